//! States of the program to draw in tests: an incident, a calm hour, an empty database, a lost one, hostile text.

use crate::action::strike::facts::Facts;
use crate::app::row::RowId;
use crate::app::state::{App, Detail, Link, LogLine, PaneId, Retry, Tone, View};
use crate::app::strike::{Question, Stage as Asking};
use crate::config::{BudgetRule, Config};
use crate::findings::{Finding, Layer, Mark, Report, Severity, Where};
use crate::probe::activity::{Blocked, Budget, Connections, Session, Wait};
use crate::probe::backend::Backend;
use crate::probe::cost::{Cost, Spender, TopTask};
use crate::probe::failures::{FailureGroup, Failures, Sample};
use crate::probe::flow::Flow;
use crate::probe::leases::{Lease, Poison, Seen, Worker};
use crate::probe::maintenance::{Maintenance, Table, XminHolder};
use crate::probe::queues::{Kind, Queue};
use crate::probe::server::Server;
use crate::probe::slots::Application;
use crate::probe::stages::{Stage, StageName};
use crate::probe::systems::HalfThere;
use crate::probe::tasks::{Attempt, Task, TaskDetail, TaskKey, TaskList, Text};
use crate::probe::{Bound, Count, Own, ServerTime, Snapshot, State, Usd};
use std::sync::Arc;

/// 2026-08-14 14:02:11 UTC.
const NOW: f64 = 1_786_716_131.0;

fn at(ago: f64) -> Option<ServerTime> {
    ServerTime::from_epoch(NOW - ago)
}

fn usd(dollars: f64) -> Usd {
    Usd((dollars * 1e6) as i64)
}

fn some<T: for<'t> From<&'t str>>(text: &str) -> Option<T> {
    (!text.is_empty()).then(|| text.into())
}

/// A program that has watched a database for 14 s.
fn app(snapshot: Snapshot, report: Report) -> App {
    let config = Config {
        budgets: ["agents", "api", "people"]
            .map(|name| BudgetRule {
                name: name.into(),
                limit: 40,
                applications: vec![format!("{name}-*")],
                roles: vec![],
            })
            .to_vec(),
        ..Config::default()
    };
    let mut app = App::new(Arc::new(config), 100.0, (160, 45));
    app.link = Link::Live;
    app.now = 114.0;
    app.arrived = 113.6;
    app.snapshot = Some(Arc::new(snapshot));
    app.report = Arc::new(report);
    for n in 0..90u16 {
        app.wait_samples.push_back([8, 9 + n % 3, 2, 4]);
    }
    for (n, (tone, text)) in [
        (Tone::Info, "watching prod-agents at db.internal, read-only"),
        (Tone::Warning, "parser: 0 tasks done in 1m"),
        (Tone::Info, "report written to jobtop-20260814T140158Z.txt"),
    ]
    .into_iter()
    .enumerate()
    {
        app.log.push_back(LogLine {
            n: n as u64,
            clock: format!("14:01:{:02}", 50 + n * 4),
            tone,
            text: text.into(),
        });
    }
    app
}

fn server() -> Server {
    Server {
        version: "17.5".into(),
        version_num: 170_005,
        database: "prod-agents".into(),
        host: "db.internal".into(),
        user: "jobtop_monitor".into(),
        read_only: true,
        push: "listen".into(),
        started_at: at(9.3 * 86_400.0),
        sees_all: true,
        time_zone: "UTC".into(),
        ..Server::default()
    }
}

fn own() -> Own {
    Own {
        connections: 1,
        statements_per_refresh: 7,
        server_ms_per_refresh: 3.1,
        share_of_server_time: 0.003,
        interval_s: 1.0,
        pid: 5001,
    }
}

/// Per minute over an hour, around `mean`, with `tail` as the last minutes.
fn minutes(mean: f64, tail: &[u32]) -> Option<Vec<u32>> {
    let wave = |n: usize| (mean * (1.0 + 0.13 * ((n * 7 % 11) as f64 - 5.0) / 5.0)).round() as u32;
    let mut all: Vec<u32> = (0..61 - tail.len()).map(wave).collect();
    all.extend(tail);
    Some(all)
}

fn flow(
    queue: &str,
    system: &str,
    arrived: Option<Vec<u32>>,
    finished: Option<Vec<u32>>,
    failed: Option<Vec<u32>>,
) -> Flow {
    Flow {
        system: system.into(),
        schema: "public".into(),
        queue: queue.into(),
        from: at(60.0 * 60.0 + 40.0),
        arrived,
        finished,
        failed_attempts: failed,
        unknown: None,
    }
}

fn queue(name: &str, system: &str, ready: u64, running: u64, limit: Option<u32>) -> Queue {
    let exact = |n| Some(Count::exact(n));
    Queue {
        system: system.into(),
        schema: "public".into(),
        queue: name.into(),
        states: [
            (State::Ready, exact(ready)),
            (State::Running, exact(running)),
            (State::Scheduled, exact(0)),
            (State::Retryable, exact(0)),
            (
                State::Succeeded,
                Some(Count {
                    count: 310_000,
                    bound: Bound::Estimate,
                }),
            ),
            (State::Failed, exact(0)),
            (State::Cancelled, exact(0)),
        ]
        .into(),
        limit,
        in_per_min: Some(60.0),
        finished_per_min: Some(60.6),
        failed_attempts_per_min: Some(0.4),
        failed_1h: Some(0),
        last_claim_s: Some(0.3),
        last_arrival_s: Some(0.8),
        longest_gap_s: Some(14.0),
        arrival_history_s: 86_400.0,
        over_usual: Some(0),
        over_usual_of: running as u32,
        ..Queue::default()
    }
}

fn stages(
    queue: &str,
    system: &str,
    kind: Option<&str>,
    times: [Option<(f64, f64)>; 4],
) -> Vec<Stage> {
    let names = [
        StageName::Wait,
        StageName::Start,
        StageName::Run,
        StageName::Total,
    ];
    names
        .into_iter()
        .zip(times)
        .map(|(stage, t)| Stage {
            system: system.into(),
            schema: "public".into(),
            queue: queue.into(),
            kind: kind.map(String::from),
            stage,
            n: if t.is_some() { 12_240 } else { 0 },
            p50_s: t.map(|t| t.0),
            p95_s: t.map(|t| t.1),
            max_s: t.map(|t| t.1 * 4.0),
            recent_p50_s: t.map(|t| {
                t.0 * if kind == Some("parse_contract") {
                    2.4
                } else {
                    1.0
                }
            }),
            unknown: t
                .is_none()
                .then(|| "this system records no finished time".to_string()),
        })
        .collect()
}

fn session(pid: i32, application: &str, budget: &str, state: &str) -> Session {
    Session {
        pid: Some(pid),
        backend_start: at(3_600.0 + f64::from(pid)),
        count: 1,
        application: application.into(),
        user: format!("{budget}_role").into(),
        database: "prod-agents".into(),
        client: some("10.0.4.17"),
        state: some(state),
        state_s: Some(0.2),
        budget: budget.into(),
        ..Session::default()
    }
}

fn worker(name: &str, holds: u32, done: f64, expiry: f64, session: Seen, state: &str) -> Worker {
    Worker {
        system: "agent_queue".into(),
        schema: "public".into(),
        worker: name.into(),
        version: some("2c1f"),
        holds,
        done_per_min: Some(done),
        fail_share: (done > 0.0).then_some(0.004),
        clock_skew_s: Some(if name == "agent-2" { -1.2 } else { 0.1 }),
        clock_samples: 12,
        next_expiry: at(-expiry),
        next_expiry_s: (holds > 0).then_some(expiry),
        heartbeat_s: Some(4.0),
        session,
        session_state: some(state),
        absent_s: (session == Seen::None).then_some(720.0),
    }
}

fn key(id: &str) -> TaskKey {
    TaskKey {
        system: "agent_queue".into(),
        schema: "public".into(),
        queue: "parser".into(),
        id: id.into(),
    }
}

fn task(id: &str, kind: &str, state: State, in_state: f64) -> Task {
    Task {
        key: key(id),
        kind: some(kind),
        state,
        native_state: match state {
            State::Ready | State::Retryable | State::Scheduled => "enqueued".into(),
            State::Running => "processing".into(),
            other => other.name().into(),
        },
        priority: Some(100.0),
        created_at: at(in_state + 1_680.0),
        eligible_at: at(in_state + 1_680.0),
        claimed_at: (state == State::Running).then(|| at(in_state)).flatten(),
        started_at: (state == State::Running)
            .then(|| at(in_state - 1.0))
            .flatten(),
        finished_at: None,
        lease_until: (state == State::Running).then(|| at(-228.0)).flatten(),
        heartbeat_at: None,
        stuck: None,
        worker: None,
        attempt: Some(0),
        max_attempts: Some(5),
        lease_token: Some(3),
        last_error: None,
        agent: some("contracts"),
        tenant: some("acme"),
        application: some("intake"),
        batch: some("2026-08-14-a"),
        cancel_requested_at: None,
        cost_usd: Some(usd(0.0)),
        locked_by_pid: None,
        in_state_s: Some(in_state),
    }
}

/// An agent, application or model: attempts are not counted by these.
fn by_another(name: &str, rate: f64, usual: f64, spent: f64, lost: f64) -> Spender {
    Spender {
        tries_per_task: None,
        ..spender(name, rate, usual, spent, lost, 0.0, 0)
    }
}

fn spender(
    name: &str,
    rate: f64,
    usual: f64,
    spent: f64,
    lost: f64,
    tries: f64,
    unpriced: u64,
) -> Spender {
    Spender {
        name: name.into(),
        usd: usd(spent),
        usd_failed_attempts: usd(lost),
        input_tokens: (spent * 190_000.0) as u64,
        output_tokens: (spent * 21_000.0) as u64,
        unpriced_tokens: unpriced,
        usd_per_hour: usd(rate),
        usual_usd_per_hour: Some(usd(usual)),
        usd_per_hour_now: Some(usd(rate)),
        tries_per_task: Some(tries),
    }
}

fn cost(hot: bool) -> Cost {
    let acme = if hot {
        spender("acme", 18.4, 2.1, 16.9, 12.7, 6.2, 0)
    } else {
        spender("acme", 2.2, 2.1, 2.15, 0.1, 1.1, 0)
    };
    Cost {
        window_s: 3_600.0,
        usd: usd(if hot { 21.4 } else { 5.1 }),
        model_usd: usd(if hot { 20.3 } else { 4.8 }),
        compute_usd: usd(if hot { 1.1 } else { 0.3 }),
        usd_per_hour: usd(if hot { 21.4 } else { 5.2 }),
        usual_usd_per_hour: Some(usd(5.1)),
        usd_failed_attempts: usd(if hot { 14.8 } else { 0.2 }),
        usd_running: usd(3.1),
        input_tokens: 4_100_000,
        output_tokens: 452_000,
        unpriced_tokens: 210_400,
        by_agent: vec![
            by_another("contracts", 17.0, 1.9, 15.2, 12.1),
            by_another("summaries", 2.3, 2.2, 2.4, 0.5),
        ],
        by_tenant: vec![
            acme,
            spender("globex", 1.9, 1.7, 2.0, 0.1, 1.1, 210_400),
            spender("initech", 1.1, 1.3, 1.2, 0.0, 1.0, 0),
        ],
        by_application: vec![by_another("intake", 20.1, 4.4, 19.8, 14.1)],
        by_model: vec![by_another("large-4", 18.8, 4.0, 18.0, 13.2)],
        top_tasks: vec![TopTask {
            system: "agent_queue".into(),
            schema: "public".into(),
            queue: some("parser"),
            task: "47777".into(),
            kind: some("parse_scan"),
            usd: usd(6.4),
            attempts: 4,
        }],
        notes: vec!["agent_jobs and workflow_jobs record no cost".into()],
    }
}

fn failure(kind: &str, error: &str, counts: [u64; 3], seen: [f64; 2], spent: f64) -> FailureGroup {
    let [last_1h, last_3h, last_24h] = counts.map(Count::exact);
    FailureGroup {
        kind: some(kind),
        error: error.into(),
        exact: vec![error.into()],
        last_1h,
        last_3h,
        last_24h,
        first_seen: at(seen[0]),
        last_seen: at(seen[1]),
        usd: Some(usd(spent)),
        queues: vec!["parser".into()],
        samples: Vec::new(),
    }
}

/// What failed within a day: a storm, older things, a system that was read in part, one that keeps no failed tasks.
fn failures() -> Vec<Failures> {
    let mut timeouts = failure(
        "parse_scan",
        "TimeoutError: read timed out after #s",
        [116, 118, 131],
        [81_000.0, 12.0],
        98.4,
    );
    timeouts.samples = [("47699", 12.0, 30), ("47688", 31.0, 31)]
        .map(|(id, ago, s)| Sample {
            key: key(id),
            at: at(ago),
            error: Some(format!(
                "TimeoutError: read timed out after {s}s\n  at fetch (model.py:88)"
            )),
        })
        .to_vec();
    let mut queues = failure(
        "parse_contract",
        "ValueError: no text on page #",
        [1, 9, 44],
        [80_000.0, 1_300.0],
        7.75,
    );
    queues.queues.push("parser-slow".into());
    let mut lost = failure(
        "pdf_v2",
        "(no error text)",
        [0, 0, 2],
        [70_000.0, 50_000.0],
        0.02,
    );
    lost.usd = None;
    let mut mail = failure(
        "mail",
        "smtp # refused: connection to # (#) lost",
        [0, 210, 4_790],
        [15_000.0, 4_100.0],
        0.0,
    );
    (mail.usd, mail.queues) = (None, vec!["mail".into()]);
    mail.last_24h.bound = Bound::AtLeast;
    let of = |system: &str| Failures {
        system: system.into(),
        schema: "public".into(),
        read_at: at(11.0),
        ..Failures::default()
    };
    vec![
        Failures {
            read: Some(Count::exact(177)),
            found: 3,
            groups: vec![timeouts, queues, lost],
            ..of("agent_queue")
        },
        Failures {
            read: Some(Count {
                count: 5_000,
                bound: Bound::AtLeast,
            }),
            complete_from: at(15_000.0),
            found: 61,
            groups: vec![mail],
            notes: vec!["times are those of the last claim".into()],
            ..of("workflow_jobs")
        },
        Failures {
            unknown: some("these tasks have no finished time"),
            ..of("tasks")
        },
    ]
}

/// The drawing of the design: an agent waits inside a transaction, the parser stands, a tenant burns money.
pub fn incident() -> App {
    let mut parser = queue("parser", "agent_queue", 5_012, 40, Some(40));
    parser.in_per_min = Some(212.0);
    parser.finished_per_min = Some(0.0);
    parser.failed_attempts_per_min = Some(31.0);
    parser.locked = 3;
    parser.oldest_ready_s = Some(1_860.0);
    parser.over_usual = Some(38);
    parser.over_usual_of = 40;
    parser.failed_1h = Some(31);
    parser
        .states
        .insert(State::Retryable, Some(Count::exact(120)));
    parser.states.insert(State::Failed, Some(Count::exact(31)));
    parser.kinds = [
        ("parse_contract", 4_100, 31),
        ("parse_scan", 880, 9),
        ("pdf_v2", 32, 0),
    ]
    .map(|(kind, ready, running)| Kind {
        kind: kind.into(),
        ready,
        running,
        oldest_ready_s: Some(1_860.0),
        last_claim_s: (kind != "pdf_v2").then_some(540.0),
    })
    .to_vec();
    let mut crawler = queue("crawler", "agent_queue", 4, 6, Some(20));
    crawler.oldest_ready_s = Some(0.4);
    let mut mail = queue("mail", "workflow_jobs", 0, 1, None);
    mail.states.insert(State::Retryable, Some(Count::exact(2)));
    mail.states.insert(State::Succeeded, None);
    mail.in_per_min = Some(18.0);
    mail.finished_per_min = Some(18.0);
    mail.over_usual = None;
    mail.notes =
        vec!["finished: this system records no finished time, so run and total are n/a".into()];
    let mut nightly = queue("nightly", "agent_jobs", 0, 0, None);
    (nightly.in_per_min, nightly.finished_per_min) = (Some(0.0), Some(0.0));
    nightly.last_arrival_s = Some(2_820.0);
    nightly.over_usual = None;
    let mut digests = queue("digests", "agent_jobs", 0, 2, Some(4));
    (digests.in_per_min, digests.finished_per_min) = (Some(3.0), Some(3.2));

    let mut holder = session(4711, "agent-7", "agents", "idle in transaction");
    holder.state_s = Some(492.0);
    holder.xact_s = Some(492.4);
    holder.task_rows = 3;
    holder.verb = some("UPDATE tasks");
    holder.wait_type = some("Client");
    holder.wait_event = some("ClientRead");
    let mut sessions = vec![holder];
    let mut blocked = Vec::new();
    for (n, pid) in (4720..4729).enumerate() {
        let mut s = session(
            pid,
            &format!("agent-{}", [2, 9, 11, 12, 14, 15, 16, 18, 20][n]),
            "agents",
            "active",
        );
        let waiting = 470.0 - 19.0 * n as f64;
        (s.wait_type, s.wait_event) = (
            some("Lock"),
            some(if n == 0 { "transactionid" } else { "tuple" }),
        );
        (s.xact_s, s.query_s, s.state_s) = (Some(waiting), Some(waiting), Some(waiting));
        s.verb = some("UPDATE tasks");
        blocked.push(Blocked {
            pid,
            blocked_by: if n < 2 { vec![4711] } else { vec![4720, 4711] },
            waiting_s: waiting,
            lock_type: if n == 0 { "transactionid" } else { "tuple" }.into(),
            relation: some(if n == 0 { "" } else { "public.tasks" }),
            mode: some(if n == 0 { "ShareLock" } else { "ExclusiveLock" }),
        });
        sessions.push(s);
    }
    let mut report_3 = session(4810, "report-3", "people", "active");
    (report_3.xact_s, report_3.query_s, report_3.state_s) = (Some(121.0), Some(121.0), Some(121.0));
    report_3.xmin_age = Some(51_200);
    report_3.verb = some("SELECT tasks");
    (report_3.wait_type, report_3.wait_event) = (some("IO"), some("DataFileRead"));
    sessions.push(report_3);
    let mut me = session(5001, "jobtop", "unbudgeted", "active");
    me.own = true;
    sessions.push(me);
    for (application, budget, count) in [("api", "api", 28), ("agent-pool", "agents", 9)] {
        let mut s = session(0, application, budget, "idle");
        (s.pid, s.count) = (None, count);
        sessions.push(s);
    }

    let mut tasks = vec![
        Task {
            worker: some("worker-a3"),
            attempt: Some(2),
            lease_until: at(720.0),
            stuck: some("lease expired"),
            cost_usd: Some(usd(1.2)),
            last_error: some("TimeoutError: read timed out after 30s"),
            ..task("48002", "parse_contract", State::Running, 720.0)
        },
        Task {
            locked_by_pid: Some(4711),
            ..task("48017", "parse_contract", State::Ready, 1_860.0)
        },
        Task {
            worker: some("agent-2"),
            attempt: Some(1),
            cancel_requested_at: at(130.0),
            cost_usd: Some(usd(0.42)),
            ..task("48031", "parse_scan", State::Running, 260.0)
        },
        Task {
            attempt: Some(4),
            cost_usd: Some(usd(6.4)),
            tenant: some("globex"),
            last_error: some("TimeoutError: read timed out after 30s"),
            ..task("47777", "parse_scan", State::Retryable, 126.0)
        },
        Task {
            attempt: Some(5),
            cost_usd: Some(usd(7.75)),
            last_error: some("ValueError: no text on page 3"),
            ..task("47702", "parse_scan", State::Failed, 1_300.0)
        },
    ];
    for n in 0..55 {
        tasks.push(Task {
            worker: (n % 3 == 0).then(|| format!("agent-{}", n % 12)),
            attempt: Some(n % 3),
            tenant: some(["acme", "globex", "initech"][n as usize % 3]),
            ..task(
                &(48_040 + n).to_string(),
                ["parse_contract", "parse_scan", "pdf_v2"][n as usize % 3],
                if n % 3 == 0 {
                    State::Running
                } else {
                    State::Ready
                },
                700.0 - n as f64,
            )
        });
    }
    let snapshot = Snapshot {
        format: 1,
        taken_at: at(0.0),
        server: server(),
        connections: Connections {
            max: 100,
            reserved: 3,
            used: 78,
            hidden: 0,
            states: [("active", 22), ("idle", 37), ("idle in transaction", 9)]
                .map(|(k, n)| (k.to_string(), n))
                .into(),
            budgets: [
                ("agents", Some(40), 40, [31, 0, 9], Some(492.4)),
                ("api", Some(40), 31, [3, 28, 0], Some(0.1)),
                ("people", Some(7), 1, [1, 0, 0], None),
                ("unbudgeted", None, 6, [1, 0, 0], None),
            ]
            .map(
                |(name, limit, used, [active, idle, in_tx], oldest)| Budget {
                    name: name.into(),
                    limit,
                    used,
                    active,
                    idle,
                    idle_in_transaction: in_tx,
                    oldest_transaction_s: oldest,
                },
            )
            .to_vec(),
            oldest_transaction_s: Some(492.4),
            logins_per_s: Some(2.0),
            deadlocks: Some(0),
            applications: [("agent-7", 31), ("api", 31), ("", 5)]
                .map(|(name, used)| Application {
                    name: name.into(),
                    used,
                })
                .to_vec(),
        },
        waits: [
            ("Lock", "tuple", 8),
            ("Lock", "transactionid", 1),
            ("CPU", "", 8),
            ("IO", "DataFileRead", 3),
        ]
        .map(|(kind, event, sessions)| Wait {
            kind: kind.into(),
            event: event.into(),
            sessions,
        })
        .to_vec(),
        blocked,
        sessions,
        maintenance: Maintenance {
            xmin_holder: Some(XminHolder {
                kind: "session".into(),
                name: "report-3".into(),
                pid: Some(4810),
                held_s: Some(121.0),
                age_xids: 51_200,
            }),
            tables: vec![Table {
                name: "public.tasks".into(),
                live: 241_000,
                dead: 12_410,
                reads_per_claim: Some(3.2),
                reads_per_claim_usual: Some(3.0),
            }],
            notify_queue: Some(0.0),
            notify_blame: None,
        },
        queues: vec![parser, crawler, mail, nightly, digests],
        stages: [
            stages(
                "parser",
                "agent_queue",
                None,
                [
                    Some((1.2, 8.0)),
                    Some((0.1, 0.3)),
                    Some((4.0, 19.0)),
                    Some((6.1, 31.0)),
                ],
            ),
            stages(
                "parser",
                "agent_queue",
                Some("parse_contract"),
                [
                    Some((1.1, 7.0)),
                    Some((0.1, 0.3)),
                    Some((3.6, 14.0)),
                    Some((5.2, 26.0)),
                ],
            ),
            stages(
                "crawler",
                "agent_queue",
                None,
                [
                    Some((0.1, 0.4)),
                    Some((0.1, 0.1)),
                    Some((0.9, 2.0)),
                    Some((1.1, 2.6)),
                ],
            ),
            stages(
                "mail",
                "workflow_jobs",
                None,
                [Some((0.3, 1.0)), None, None, None],
            ),
        ]
        .concat(),
        flow: vec![
            flow(
                "parser",
                "agent_queue",
                minutes(205.0, &[214, 208, 212, 141]),
                minutes(204.0, &[120, 66, 31, 12, 0, 0, 0, 0, 0, 0]),
                minutes(4.8, &[9, 14, 19, 24, 27, 30, 33, 31, 30, 32, 21]),
            ),
            flow(
                "crawler",
                "agent_queue",
                minutes(60.0, &[]),
                minutes(60.0, &[]),
                minutes(0.4, &[]),
            ),
        ],
        poison: vec![Poison {
            key: key("47777"),
            lost_attempts: 3,
            workers: 3,
            over_s: 1_500.0,
        }],
        leases: (0..7)
            .map(|n| Lease {
                system: "agent_queue".into(),
                schema: "public".into(),
                queue: "parser".into(),
                task: (48_002 + n).to_string(),
                kind: some("parse_contract"),
                worker: some("worker-a3"),
                overdue_s: Some(720.0 - 11.0 * n as f64),
                attempt: Some(2),
                lease_token: Some(3),
                cancel_requested_s: None,
                rule: "lease expired".into(),
                session: Seen::None,
            })
            .collect(),
        workers: vec![
            worker("agent-7", 3, 0.0, 228.0, Seen::Seen, "idle tx"),
            worker("worker-a3", 7, 0.0, -720.0, Seen::None, ""),
            worker("agent-2", 4, 0.0, 242.0, Seen::Seen, "waiting"),
            worker("agent-9", 4, 0.0, 251.0, Seen::Seen, "waiting"),
            worker("crawl-1", 6, 30.2, 288.0, Seen::Unknown, ""),
        ],
        cost: Some(cost(true)),
        tasks: TaskList {
            rows: tasks,
            note: None,
        },
        failures: failures(),
        own: own(),
        ..Snapshot::default()
    };
    let session_4711 = RowId::Session {
        pid: 4711,
        started_us: ((NOW - 3_600.0 - 4_711.0) * 1e6) as i64,
    };
    let finding = |rule: &str,
                   severity,
                   since_s,
                   sentence: &str,
                   culprit: Option<RowId>,
                   by: Option<&str>| Finding {
        rule: rule.into(),
        severity,
        since_s,
        sentence: sentence.into(),
        culprit,
        explained_by: by.map(String::from),
    };
    let of_queue = |queue: &str, system: &str| RowId::Queue {
        system: system.into(),
        schema: "public".into(),
        queue: queue.into(),
        kind: None,
    };
    let verdict = "agent-7 (pid 4711) waits for its client inside a transaction: it holds 3 tasks and 9 sessions wait behind it";
    let report = Report {
        findings: vec![
            finding(
                "idle-in-transaction",
                Severity::Critical,
                492.0,
                verdict,
                Some(session_4711),
                None,
            ),
            finding(
                "stalled",
                Severity::Critical,
                540.0,
                "parser: 5,012 tasks are due, none was claimed for 9m",
                Some(of_queue("parser", "agent_queue")),
                Some("idle-in-transaction"),
            ),
            finding(
                "budget",
                Severity::Warning,
                470.0,
                "agents use 40 of 40, none idle",
                Some(RowId::Budget("agents".into())),
                Some("idle-in-transaction"),
            ),
            finding(
                "failing",
                Severity::Warning,
                431.0,
                "parse_scan failing since 13:55: 116 of 199, 94% TimeoutError, $12.70 lost, 6.2 tries a task",
                Some(of_queue("parser", "agent_queue")),
                None,
            ),
            finding(
                "cost-runaway",
                Severity::Warning,
                400.0,
                "tenant acme burns $18.40/h, usual $2.10; 69% lost to retries",
                Some(RowId::Spender {
                    by: "tenant".into(),
                    name: "acme".into(),
                }),
                None,
            ),
            finding(
                "inflow-stopped",
                Severity::Warning,
                2_820.0,
                "nightly: last task in 47m ago; longest usual gap 5m",
                Some(of_queue("nightly", "agent_jobs")),
                None,
            ),
        ],
        verdict: verdict.into(),
        layers: Where {
            queue: layer(Mark::Bad, "0 done in 9m"),
            workers: layer(Mark::Warn, "1 of 12 expired"),
            database: layer(Mark::Bad, "9 on row locks"),
            outside: layer(Mark::Unknown, "38 of 40 runs over usual"),
        },
    };
    app(snapshot, report)
}

fn layer(mark: Mark, text: &str) -> Layer {
    Layer {
        mark,
        text: text.into(),
    }
}

/// All is well.
pub fn calm() -> App {
    let mut snapshot = incident()
        .snapshot
        .map(Arc::unwrap_or_clone)
        .unwrap_or_default();
    let mut parser = queue("parser", "agent_queue", 11, 21, Some(40));
    (parser.in_per_min, parser.finished_per_min) = (Some(205.0), Some(204.6));
    parser.oldest_ready_s = Some(2.4);
    snapshot.queues[0] = parser;
    snapshot.queues[3].last_arrival_s = Some(64.0);
    snapshot.blocked.clear();
    snapshot
        .sessions
        .retain(|s| s.state.as_deref() == Some("idle") || s.own);
    snapshot.waits.truncate(0);
    snapshot.waits.push(Wait {
        kind: "CPU".into(),
        event: String::new(),
        sessions: 2,
    });
    snapshot.connections.used = 51;
    snapshot.connections.states = [("active", 3), ("idle", 48)]
        .map(|(k, n)| (k.to_string(), n))
        .into();
    snapshot.connections.oldest_transaction_s = Some(0.1);
    for b in &mut snapshot.connections.budgets {
        b.idle += b.idle_in_transaction + b.active.saturating_sub(1);
        (b.active, b.idle_in_transaction) = (1, 0);
        b.used = b.used.min(19);
        b.oldest_transaction_s = Some(0.1);
    }
    snapshot.maintenance.xmin_holder = None;
    snapshot.leases.clear();
    snapshot
        .workers
        .retain(|w| w.next_expiry_s.is_some_and(|s| s > 0.0));
    for w in &mut snapshot.workers {
        (w.session, w.session_state, w.done_per_min) = (Seen::Seen, some("idle"), Some(20.5));
    }
    snapshot.cost = Some(cost(false));
    snapshot.failures.truncate(1);
    snapshot.failures[0].groups.clear();
    (snapshot.failures[0].read, snapshot.failures[0].found) = (Some(Count::exact(0)), 0);
    snapshot.flow[0].finished = minutes(204.0, &[]);
    snapshot.flow[0].failed_attempts = minutes(3.0, &[]);
    snapshot
        .tasks
        .rows
        .retain(|t| t.locked_by_pid.is_none() && t.stuck.is_none());
    snapshot.tasks.rows.drain(..3);
    snapshot.tasks.rows.truncate(32);
    for t in &mut snapshot.tasks.rows {
        t.in_state_s = Some(1.4);
        t.created_at = at(3.0);
    }
    let good = |text: &str| layer(Mark::Good, text);
    let report = Report {
        findings: Vec::new(),
        verdict: "all is well: 5 queues, 286 tasks done a minute, nothing waits longer than usual"
            .into(),
        layers: Where {
            queue: good("286 done a minute"),
            workers: good("12"),
            database: good("no locks"),
            outside: good("0 of 29 over usual"),
        },
    };
    let mut app = app(snapshot, report);
    app.wait_samples.truncate(12);
    app
}

/// A database without a queue, seen by a role that may see little.
pub fn empty() -> App {
    let snapshot = Snapshot {
        format: 1,
        taken_at: at(0.0),
        server: Server {
            sees_all: false,
            started_at: None,
            ..server()
        },
        own: own(),
        ..Snapshot::default()
    };
    let report = Report {
        verdict: "no queue found in this database".into(),
        ..Report::default()
    };
    let mut app = app(snapshot, report);
    app.log.clear();
    app.wait_samples.clear();
    app
}

/// The only queue system was renamed while somebody looked.
pub fn gone() -> App {
    let mut app = empty();
    let mut s = app.snapshot.map(Arc::unwrap_or_clone).unwrap_or_default();
    s.gone = vec!["agent_queue in schema agent_queue".into()];
    app.snapshot = Some(Arc::new(s));
    app
}

/// The incident, and then somebody renamed a column of these systems.
pub fn half(systems: &[&str]) -> App {
    let mut app = incident();
    let mut s = app.snapshot.map(Arc::unwrap_or_clone).unwrap_or_default();
    let half = systems.iter().map(|system| HalfThere {
        system: (*system).into(),
        schema: "public".into(),
        missing: vec!["column kind of tasks".into()],
        why: format!("{system} in schema public: column kind of tasks is not there"),
        advice: "restore it".into(),
        age_s: Some(12.0),
    });
    s.half_there = half.collect();
    app.snapshot = Some(Arc::new(s));
    app
}

/// The incident, and then the database went away.
pub fn lost() -> App {
    let mut app = incident();
    app.now = 127.6;
    app.link = Link::Lost {
        reason:
            "the server closed the connection: terminating connection due to administrator command"
                .into(),
        since: 114.0,
        retry: Retry {
            failed: 14,
            pause: 0.9,
            at: 128.4,
        },
    };
    app
}

/// Before anything was read.
pub fn connecting() -> App {
    let mut app = App::new(Arc::new(Config::default()), 100.0, (80, 24));
    app.now = 103.0;
    app.link = Link::Connecting(
        "db.internal has no free connection (53300): waiting for one, jobtop takes no reserved slot".into(),
    );
    app
}

/// Every text that strangers can write is nasty.
pub fn hostile() -> App {
    const NASTY: &str = "\u{202e}evil\u{1b}[2J\u{7}\u{200b}\u{2066}\nx\u{9b}31m 会议室\u{e0041}👩‍👩‍👧 e\u{301}\u{302}\u{303}\u{304}\u{feff}";
    let mut app = incident();
    let mut s = app.snapshot.map(Arc::unwrap_or_clone).unwrap_or_default();
    for (n, t) in s.tasks.rows.iter_mut().enumerate() {
        t.kind = some(NASTY);
        t.worker = some(NASTY);
        t.last_error = Some(NASTY.repeat(9));
        t.tenant = some(NASTY);
        t.key.id = format!("{n}{NASTY}");
        t.native_state = NASTY.into();
        t.created_at =
            ServerTime::from_epoch([f64::INFINITY, f64::NEG_INFINITY, -1e15, 1e15][n % 4]);
        t.in_state_s = Some([f64::INFINITY, -4e9, 0.0, f64::MAX][n % 4]);
        t.attempt = Some(i64::MIN);
        t.cost_usd = Some(Usd(if n % 2 == 0 { i64::MAX } else { i64::MIN }));
        t.state = State::ALL[n % 8];
        t.lease_until = ServerTime::from_epoch(f64::INFINITY);
    }
    for q in &mut s.queues {
        q.queue = NASTY.repeat(3);
        q.system = NASTY.into();
        q.notes = vec![NASTY.into()];
        q.states.insert(State::Ready, Some(Count::exact(u64::MAX)));
        (q.in_per_min, q.finished_per_min) = (Some(f64::NAN), Some(f64::INFINITY));
        q.last_arrival_s = Some(f64::INFINITY);
    }
    for f in &mut s.flow {
        f.queue = NASTY.repeat(3);
        f.system = NASTY.into();
        f.arrived = Some(vec![u32::MAX; 3]);
        f.finished = Some(Vec::new());
        f.failed_attempts = None;
        f.unknown = some(NASTY);
    }
    for x in &mut s.sessions {
        x.application = NASTY.into();
        x.user = NASTY.into();
        x.verb = some(NASTY);
        x.state_s = Some(f64::INFINITY);
        x.xmin_age = Some(i64::MIN);
    }
    // A deadlock: everybody waits for the next one.
    s.blocked = (0..9)
        .map(|n| Blocked {
            pid: 4720 + n,
            blocked_by: vec![4720 + (n + 1) % 9],
            waiting_s: f64::NAN,
            lock_type: NASTY.into(),
            relation: some(NASTY),
            mode: some(NASTY),
        })
        .collect();
    for b in &mut s.connections.budgets {
        b.name = NASTY.into();
        b.limit = Some(0);
    }
    for w in &mut s.workers {
        w.worker = NASTY.into();
        w.session_state = some(NASTY);
        w.fail_share = Some(f64::NAN);
        w.clock_skew_s = Some(f64::NEG_INFINITY);
    }
    for f in &mut s.failures {
        f.notes.push(NASTY.into());
        (f.system, f.complete_from) = (NASTY.into(), ServerTime::from_epoch(f64::INFINITY));
        for g in &mut f.groups {
            g.kind = some(NASTY);
            g.error = format!("{}{}", g.error, NASTY.repeat(4));
            g.queues = vec![NASTY.into()];
            g.last_seen = ServerTime::from_epoch(f64::NEG_INFINITY);
            g.last_24h.count = u64::MAX;
            for x in &mut g.samples {
                x.error = some(NASTY);
                x.key.id = NASTY.into();
            }
        }
    }
    if let Some(c) = &mut s.cost {
        for x in c.by_tenant.iter_mut().chain(&mut c.by_agent) {
            x.name = NASTY.into();
            x.usd = Usd(i64::MIN);
        }
        c.unpriced_tokens = u64::MAX;
    }
    s.server.database = NASTY.into();
    s.server.host = NASTY.into();
    s.server.version = String::new();
    s.taken_at = ServerTime::from_epoch(f64::INFINITY);
    let mut report = Arc::unwrap_or_clone(app.report);
    report.verdict = NASTY.repeat(8);
    for f in &mut report.findings {
        f.sentence = NASTY.repeat(5);
        f.since_s = f64::INFINITY;
    }
    report.layers.queue.text = NASTY.into();
    app.snapshot = Some(Arc::new(s));
    app.report = Arc::new(report);
    for l in &mut app.log {
        l.text = NASTY.repeat(4);
    }
    app
}

/// With the cursor of a pane on its n-th row.
pub fn cursor(mut app: App, pane: PaneId, n: usize) -> App {
    let ids = crate::ui::table::visible(&app, pane);
    app.focus = pane;
    app.views.entry(pane).or_default().cursor = ids.get(n).cloned();
    app
}

/// With a filter on a pane.
pub fn filtered(mut app: App, pane: PaneId, filter: &str) -> App {
    app.focus = pane;
    app.views.insert(
        pane,
        View {
            filter: filter.into(),
            ..View::default()
        },
    );
    app
}

/// With the details of the first task fetched, and its row.
pub fn task_detail(mut app: App) -> (App, RowId) {
    let Some(task) = app
        .snapshot
        .as_ref()
        .and_then(|s| s.tasks.rows.first().cloned())
    else {
        return (app, RowId::Log(0));
    };
    let row = RowId::Task(task.key.clone());
    let attempt = |n: i64, ago: f64, outcome: &str, error: &str| Attempt {
        attempt: Some(n),
        worker: some("worker-a3"),
        claimed_at: at(ago),
        started_at: at(ago - 0.1),
        finished_at: if outcome.is_empty() {
            None
        } else {
            at(ago - 30.4)
        },
        outcome: some(outcome),
        error: some(error),
        run_id: Some(format!("run-7f3a{n}")),
        trace_id: some("4bf92f3577b34da6a3ce929d0e0e4736"),
        input_tokens: Some(18_400),
        output_tokens: Some(2_100),
        cost_usd: Some(usd(0.6)),
    };
    let payload = r#"{"document":"contracts/2026/acme-0815.pdf","pages":[1,2,3],"api_key":"(redacted)","note":"größe"}"#;
    let detail = TaskDetail {
        task,
        attempts: vec![
            attempt(1, 1_240.0, "failed", "TimeoutError: read timed out after 30s"),
            attempt(2, 720.0, "", ""),
        ],
        payload: Some(Text {
            text: payload.into(),
            bytes: payload.len() as u64,
        }),
        result: None,
        confidence: Some(0.87),
        error: Some(Text {
            text: "TimeoutError: read timed out after 30s\n  at fetch (model.py:88)\n  at run (worker.py:140)".into(),
            bytes: 3_145_728,
        }),
        batch: vec![(State::Succeeded, 812), (State::Running, 40), (State::Ready, 310), (State::Failed, 4)],
        more: vec![("idempotency key".into(), "acme-0815-v3".into())],
    };
    app.details
        .insert(row.clone(), Ok(Arc::new(Detail::Task(Box::new(detail)))));
    (app, row)
}

/// The session of the incident that idles inside a transaction, as the server has it.
pub fn backend() -> Backend {
    Backend {
        started_us: Some(1_786_700_000_000_001),
        statement_us: Some(1_786_715_639_000_001),
        kind: "client backend".into(),
        role: "agents".into(),
        application: "agent-7".into(),
        database: "prod-agents".into(),
        client: some("10.0.3.7"),
        state: some("idle in transaction"),
        statement: "UPDATE tasks\n  SET progress = $1 WHERE id = ANY ($2)".into(),
        xact_s: Some(492.4),
        statement_s: Some(492.0),
        state_s: Some(492.0),
        permitted: true,
        me: "oncall".into(),
        ..Backend::default()
    }
}

/// The question before that session is ended, once it has been read.
pub fn strike(app: &App) -> Question {
    let snapshot = app.snapshot.as_deref().expect("data");
    let mut question = Question::new(crate::panes::links::session_of(snapshot, 4711), 4711);
    let facts = Facts::of(4711, &backend(), snapshot);
    question.seen = Some((backend(), facts));
    question.stage = Asking::Choose;
    question
}
