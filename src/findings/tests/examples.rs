//! For every rule, the least that makes it speak.

use super::build::*;
use crate::probe::cost::{Cost, Spender};
use crate::probe::flow::Attempts;
use crate::probe::leases::{Poison, Seen};
use crate::probe::locks::{Blame, Exclusive};
use crate::probe::maintenance::{Table, XminHolder};
use crate::probe::queues::{Invariant, Kind, Violation};
use crate::probe::rights::Denied;
use crate::probe::server::ClockStep;
use crate::probe::{ProbeHealth, Snapshot, State, Usd};

/// The least that makes a rule speak.
pub fn example(rule: &str) -> Snapshot {
    with(|s| match rule {
        "idle-in-transaction" => {
            let mut idle = session(4711, "agent-7", "idle in transaction", 492.0);
            idle.task_rows = 3;
            s.sessions.push(idle);
            s.blocked = (0..9).map(|n| blocked(4720 + n, &[4711], 470.0)).collect();
        }
        "table-lock" => {
            s.sessions = vec![
                session(5001, "migrate", "active", 41.0),
                session(5002, "report", "active", 360.0),
            ];
            s.sessions[1].verb = Some("SELECT tasks".into());
            s.maintenance.tables = vec![table()];
            s.blocked = vec![on_table(5001, &[5002], 41.0, "AccessExclusiveLock")];
            let queue = (0..12).map(|n| on_table(5100 + n, &[5001], 39.0, "RowExclusiveLock"));
            s.blocked.extend(queue);
        }
        "table had" => {
            let mut psql = session(4711, "psql", "idle in transaction", 120.0);
            psql.user = "alice".into();
            psql.xact_s = Some(190.0);
            psql.verb = Some("LOCK agent_queue.tasks".into());
            s.sessions = vec![psql];
            s.maintenance.tables = vec![table()];
            s.exclusive = vec![Exclusive {
                relation: "agent_queue.tasks".into(),
                pid: 4711,
                granted: true,
                blame: Blame {
                    pid: 4711,
                    application: "psql".into(),
                    user: "alice".into(),
                    prepared: None,
                },
                ..Exclusive::default()
            }];
        }
        "lock-wait" => {
            let mut holder = session(4711, "backfill", "active", 363.0);
            holder.verb = Some("UPDATE tasks".into());
            s.sessions.push(holder);
            s.blocked = (0..9).map(|n| blocked(4720 + n, &[4711], 41.0)).collect();
        }
        "clock-step" => {
            s.server.clock_step = Some(ClockStep {
                by_s: 3600.0,
                ago_s: 12.0,
            });
        }
        "clock-skew" => {
            s.workers[1].worker = "worker-b2".into();
            s.workers[1].clock_skew_s = Some(-240.2);
            s.workers[1].clock_samples = 3;
        }
        "poison" => {
            s.poison = vec![Poison {
                key: task("47777", "").key,
                lost_attempts: 4,
                workers: 4,
                over_s: 1450.0,
            }];
        }
        "owners-gone" => {
            for (n, worker) in s.workers.iter_mut().enumerate().take(10) {
                worker.holds = if n < 8 { 4 } else { 3 };
                worker.session = Seen::None;
                worker.absent_s = Some(20.0);
                worker.next_expiry_s = Some(228.0 + n as f64);
            }
        }
        "leases-expired" => {
            s.leases = (0..7)
                .map(|n| {
                    lease(
                        &format!("{}", 48000 + n),
                        "worker-a3",
                        720.0 - 60.0 * n as f64,
                    )
                })
                .collect();
        }
        "stuck" => {
            s.leases = (501..504)
                .map(|n| crate::probe::leases::Lease {
                    overdue_s: None,
                    worker: None,
                    rule: "no lease".into(),
                    ..lease(&n.to_string(), "", 0.0)
                })
                .collect();
        }
        "slow-outside" => {
            s.queues[0].over_usual = Some(38);
            s.queues[0].over_usual_of = 40;
        }
        "failing" => {
            s.attempts = vec![attempts("kind", "parse")];
        }
        "xmin-held" => {
            s.sessions.push(session(6100, "report-3", "active", 2460.0));
            s.maintenance.xmin_holder = Some(XminHolder {
                kind: "session".into(),
                name: "report-3".into(),
                pid: Some(6100),
                held_s: Some(2460.0),
                age_xids: 1_000_000,
            });
            s.maintenance.tables = vec![Table {
                dead: 10_000,
                reads_per_claim: Some(10_500.0),
                reads_per_claim_usual: Some(3.0),
                ..table()
            }];
        }
        "notify-queue" => {
            s.sessions.push(session(5120, "batch", "active", 100.0));
            s.maintenance.notify_queue = Some(0.31);
            s.maintenance.notify_blame = Some((5120, "batch".into(), "ClientWrite".into()));
        }
        "connections" => {
            s.connections.used = 95;
            s.connections.states = [("active".to_string(), 90), ("idle".to_string(), 5)].into();
            s.connections.logins_per_s = Some(5.6);
            s.server.started_at = Some(at(-41.0));
        }
        "budget" => s.connections.budgets = vec![budget("agents", 40, 40)],
        "stalled" => {
            let q = &mut s.queues[0];
            count(q, State::Ready, 5012);
            q.oldest_ready_s = Some(1860.0);
            q.last_claim_s = Some(540.0);
        }
        "throttled" => {
            let q = &mut s.queues[0];
            count(q, State::Ready, 5012);
            count(q, State::Running, 40);
            q.oldest_ready_s = Some(60.0);
            q.in_per_min = Some(26.0);
        }
        "inflow-stopped" => {
            s.queues[0].queue = "nightly".into();
            s.queues[0].last_arrival_s = Some(2820.0);
        }
        "cost-runaway" => {
            let acme = Spender {
                name: "acme".into(),
                usd: Usd(18_400_000),
                usd_failed_attempts: Usd(12_700_000),
                usd_per_hour: Usd(18_400_000),
                usual_usd_per_hour: Some(Usd(2_100_000)),
                ..Spender::default()
            };
            s.cost = Some(Cost {
                by_tenant: vec![acme],
                ..Cost::default()
            });
        }
        "overdue-retryable" => s.queues[0].overdue_retryable = 6,
        "cancel-unheard" => {
            let mut asked = task("48031", "agent-2");
            asked.cancel_requested_at = Some(at(-130.0));
            s.tasks.rows.push(asked);
        }
        "invariants" => {
            s.violations = vec![Violation {
                system: "agent_queue".into(),
                schema: "agent_queue".into(),
                rule: Invariant::RunsWithoutAttempt,
                ids: vec!["47101".into(), "47109".into()],
                n: 2,
            }];
        }
        "limited-view" => {
            s.connections.used = 221;
            s.connections.max = 1000;
            s.connections.hidden = 217;
        }
        "stalled kind" => {
            s.queues[0].kinds = vec![
                Kind {
                    kind: "pdf_v2".into(),
                    ready: 17,
                    running: 0,
                    oldest_ready_s: Some(1200.0),
                    last_claim_s: None,
                },
                Kind {
                    kind: "pdf".into(),
                    ready: 3,
                    running: 20,
                    oldest_ready_s: Some(0.4),
                    last_claim_s: Some(0.3),
                },
            ];
        }
        "standby-cut-off" => {
            s.server.in_recovery = true;
            s.server.started_at = Some(at(-9000.0));
            s.server.replayed_at = Some(at(-38.0));
            s.server.wal_receiver = Some(false);
        }
        "unreadable" => {
            s.denied = vec![Denied {
                system: "agent_queue".into(),
                schema: "agent_queue".into(),
                tables: vec!["tasks".into()],
                grants: vec!["GRANT agent_queue_monitor TO monitor".into()],
                taken: true,
            }];
            let probe = |name: &str| ProbeHealth {
                name: name.into(),
                age_s: Some(9.0),
                error: Some(
                    "agent_queue (agent_queue): permission denied for table tasks (42501)".into(),
                ),
                ..ProbeHealth::default()
            };
            s.probes = ["queues", "leases"].map(probe).into();
        }
        "probe" => {
            s.probes = vec![ProbeHealth {
                name: "leases".into(),
                age_s: None,
                error: Some("canceling statement due to statement timeout (57014)".into()),
                ..ProbeHealth::default()
            }];
        }
        other => panic!("no example for {other}"),
    })
}

/// The table of tasks.
pub fn table() -> Table {
    Table {
        name: "agent_queue.tasks".into(),
        ..Table::default()
    }
}

/// Attempts that fail as in the specification's sentence.
pub fn attempts(by: &str, name: &str) -> Attempts {
    Attempts {
        system: "agent_queue".into(),
        schema: "agent_queue".into(),
        queue: if by == "kind" { "parser" } else { "" }.into(),
        by: by.into(),
        name: name.into(),
        recent: 199,
        recent_failed: 116,
        before: 900,
        before_failed: 20,
        error: Some("TimeoutError".into()),
        error_n: 110,
        lost: Some(Usd(12_700_000)),
        tries_per_task: Some(6.2),
        failing_since: Some(at(-300.0)),
    }
}
