//! The wording of everything, on one page.

use super::build::*;
use super::examples::{attempts, example};
use crate::findings::docs;
use crate::probe::cost::Spender;
use crate::probe::leases::{Lease, Seen};
use crate::probe::locks::Blame;
use crate::probe::queues::{Invariant, Violation};
use crate::probe::systems::{HalfThere, Moved};
use crate::probe::{Snapshot, State, Usd};
use std::fmt::Write;

/// Further sentences of a rule: what it says of other causes.
fn variants() -> Vec<(&'static str, Snapshot)> {
    let from = |rule: &str, change: fn(&mut Snapshot)| {
        let mut s = example(rule);
        change(&mut s);
        s
    };
    vec![
        (
            "idle-in-transaction",
            from("idle-in-transaction", |s| {
                s.blocked.clear();
                s.sessions[0].task_rows = 0;
                s.sessions[0].xmin_age = Some(9);
            }),
        ),
        (
            "idle-in-transaction",
            from("idle-in-transaction", |s| {
                s.blocked.clear();
                s.sessions[0].task_rows = 0;
                s.connections.budgets = vec![budget("agents", 40, 36)];
            }),
        ),
        (
            "table-lock",
            from("table-lock", |s| {
                s.sessions[1] = session(5002, "report", "idle in transaction", 360.0);
            }),
        ),
        (
            "table-lock",
            from("table-lock", |s| {
                s.blocked = vec![
                    on_table(5100, &[5001], 39.0, "RowExclusiveLock"),
                    on_table(5101, &[5001], 9.0, "RowExclusiveLock"),
                ];
                s.sessions[0].verb = Some("ALTER TABLE tasks".into());
            }),
        ),
        ("table-lock", example("table had")),
        (
            "table-lock",
            from("table had", |s| {
                let holder = &mut s.sessions[0];
                holder.state = Some("active".into());
                holder.verb = Some("ALTER TABLE agent_queue.tasks".into());
                s.blocked = vec![
                    on_table(5100, &[4711], 39.0, "RowExclusiveLock"),
                    on_table(5101, &[4711], 9.0, "RowExclusiveLock"),
                    on_table(4711, &[5002], 8.0, "AccessExclusiveLock"),
                ];
                s.sessions.push(session(5002, "report", "active", 360.0));
                s.blocked[2].relation = Some("agent_queue.usage".into());
            }),
        ),
        (
            "table-lock",
            from("table had", |s| {
                s.sessions.clear();
                s.exclusive[0].waiters = 1;
            }),
        ),
        (
            "table-lock",
            from("table had", |s| {
                s.sessions.clear();
                s.exclusive[0].granted = false;
                s.exclusive[0].pid = 5001;
                s.exclusive[0].waiting_s = Some(41.0);
                s.exclusive[0].blocked_by = vec![4711];
                s.exclusive[0].waiters = 12;
            }),
        ),
        (
            "table-lock",
            from("table had", |s| {
                s.exclusive[0].pid = 0;
                s.exclusive[0].blame = Blame {
                    prepared: Some("two-phase-7".into()),
                    ..Blame::default()
                };
            }),
        ),
        (
            "standby-cut-off",
            from("standby-cut-off", |s| {
                s.server.replayed_at = None;
                s.server.restores = true;
            }),
        ),
        (
            "unreadable",
            from("unreadable", |s| {
                for probe in &mut s.probes {
                    probe.age_s = None;
                    probe.error = Some(
                        "agent_queue (agent_queue): relation \"agent_queue.usage\" does not exist (42P01)".into(),
                    );
                }
            }),
        ),
        (
            "clock-skew",
            from("clock-skew", |s| {
                for worker in &mut s.workers {
                    worker.clock_skew_s = Some(7200.4);
                    worker.clock_samples = 9;
                }
            }),
        ),
        (
            "owners-gone",
            from("owners-gone", |s| {
                s.queues[0].limit = None;
                for worker in &mut s.workers[1..] {
                    worker.session = Seen::Seen;
                }
            }),
        ),
        ("poison", from("poison", |s| s.poison[0].workers = 2)),
        (
            "leases-expired",
            from("leases-expired", |s| s.leases.truncate(1)),
        ),
        (
            "stuck",
            from("stuck", |s| {
                for lease in &mut s.leases {
                    *lease = Lease {
                        rule: "claimed_too_long".into(),
                        overdue_s: Some(900.0),
                        ..lease.clone()
                    };
                }
            }),
        ),
        (
            "failing",
            from("failing", |s| s.attempts = vec![attempts("tenant", "acme")]),
        ),
        (
            "xmin-held",
            from("xmin-held", |s| {
                let holder = s.maintenance.xmin_holder.as_mut().expect("a holder");
                holder.kind = "replication slot".into();
                holder.name = "old_standby".into();
                holder.held_s = None;
                holder.pid = None;
            }),
        ),
        (
            "notify-queue",
            from("notify-queue", |s| {
                s.maintenance.notify_queue = Some(0.02);
                s.maintenance.notify_blame =
                    Some((5120, "batch".into(), "idle in transaction 8m".into()));
            }),
        ),
        (
            "budget",
            from("budget", |s| {
                s.connections.budgets = vec![budget("agents", 90, 12), budget("api", 30, 9)];
            }),
        ),
        ("stalled", example("stalled kind")),
        (
            "stalled",
            from("stalled", |s| {
                s.queues[0].last_claim_s = None;
                s.queues[0].finished_per_min = Some(0.0);
                s.queues[0].failed_attempts_per_min = Some(0.0);
                s.workers.clear();
            }),
        ),
        (
            "throttled",
            from("throttled", |s| s.queues[0].in_per_min = Some(300.0)),
        ),
        (
            "cost-runaway",
            from("cost-runaway", |s| {
                let cost = s.cost.as_mut().expect("cost");
                cost.by_tenant.clear();
                cost.by_agent = vec![Spender {
                    name: "crawler".into(),
                    usd: Usd(90_000_000),
                    usd_per_hour: Usd(90_000_000),
                    usual_usd_per_hour: Some(Usd(0)),
                    ..Spender::default()
                }];
            }),
        ),
        (
            "invariants",
            from("invariants", |s| {
                let violation = |rule| Violation {
                    rule,
                    n: 1,
                    ids: vec!["47101".into()],
                    ..s.violations[0].clone()
                };
                s.violations = [
                    Invariant::RunsWithoutLease,
                    Invariant::RunsWithoutOwner,
                    Invariant::ManyOpenAttempts,
                    Invariant::SucceededTwice,
                    Invariant::UsageWithoutTask,
                    Invariant::ClaimedBeforeCreated,
                ]
                .map(violation)
                .to_vec();
                s.violations.truncate(5);
            }),
        ),
        (
            "invariants",
            from("invariants", |s| {
                s.violations[0].rule = Invariant::ClaimedBeforeCreated;
                s.violations[0].n = 12;
                count(&mut s.queues[0], State::Running, 43);
            }),
        ),
        ("limited-view", example("probe")),
        (
            "limited-view",
            with(|s| {
                s.gone = vec!["agent_jobs in schema public".into()];
                s.moved = vec![Moved {
                    system: "agent_queue".into(),
                    schema: "agent_queue".into(),
                    now: "in schema billing".into(),
                }];
                let half = |system: &str, age_s| HalfThere {
                    system: system.into(),
                    schema: "public".into(),
                    missing: vec!["column kind of jobs".into()],
                    why: format!("{system} in schema public: column kind of jobs is not there"),
                    advice: "restore it".into(),
                    age_s,
                };
                s.half_there = vec![half("jobs", Some(41.0)), half("tasks", None)];
            }),
        ),
    ]
}

#[test]
fn every_sentence_on_one_page() {
    let mut page = String::new();
    for doc in docs::all() {
        let of_rule = variants();
        let of_rule = of_rule.iter().filter(|(rule, _)| *rule == doc.rule);
        let snapshots: Vec<Snapshot> = std::iter::once(example(doc.rule))
            .chain(of_rule.map(|(_, s)| s.clone()))
            .collect();
        writeln!(page, "{}", doc.rule).expect("write");
        for snapshot in &snapshots {
            let findings = of(doc.rule, snapshot);
            assert!(!findings.is_empty(), "{} is silent", doc.rule);
            for f in findings {
                let gravity = format!("{:?}", f.severity).to_lowercase();
                writeln!(page, "  {gravity:9} {}", f.sentence).expect("write");
            }
        }
        writeln!(
            page,
            "  means     {}\n  next      {}\n",
            doc.means, doc.next
        )
        .expect("write");
    }
    insta::assert_snapshot!(page);
}

#[test]
fn calm_says_so_with_figures() {
    let calm_report = once(&calm());
    assert!(
        calm_report.findings.is_empty(),
        "{:#?}",
        calm_report.findings
    );
    assert!(calm_report.top().is_none());
    insta::assert_snapshot!(
        calm_report.verdict,
        @"all is well: 212 tasks/min done, oldest ready 0.4s"
    );
    let unrated = with(|s| {
        s.queues[0].finished_per_min = None;
        s.queues[0].oldest_ready_s = None;
    });
    insta::assert_snapshot!(once(&unrated).verdict, @"all is well: 20 tasks running, nothing waits");
    let empty = with(|s| s.queues.clear());
    insta::assert_snapshot!(
        once(&empty).verdict,
        @"no queue found in this database: 30 of 97 connections in use"
    );
    insta::assert_snapshot!(
        once(&example("limited-view")).verdict,
        @"nothing wrong in what can be seen: 212 tasks/min done, oldest ready 0.4s"
    );
}

#[test]
fn calm_names_a_task_that_waits_far_longer_than_usual() {
    let waits = |oldest: f64, change: fn(&mut crate::probe::Snapshot)| {
        let s = with(|s| {
            s.queues[0].oldest_ready_s = Some(oldest);
            change(s);
        });
        once(&s).verdict
    };
    assert_eq!(
        waits(1860.0, |_| {}),
        "all is well; oldest ready 31m in parser, usual 1.2s; 212 tasks/min done"
    );
    let plain = "all is well: 212 tasks/min done, oldest ready ";
    assert_eq!(waits(59.0, |_| {}), format!("{plain}59s"));
    let slow = |s: &mut crate::probe::Snapshot| s.stages[0].p95_s = Some(120.0);
    assert_eq!(waits(100.0, slow), format!("{plain}1m"));
    let unknown = |s: &mut crate::probe::Snapshot| s.stages[0].n = 49;
    assert_eq!(waits(1860.0, unknown), format!("{plain}31m"));
}
