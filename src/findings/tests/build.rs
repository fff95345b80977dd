//! Small snapshots.

use crate::app::row::RowId;
use crate::config::Config;
use crate::findings::{Finding, Report, Tracker};
use crate::probe::activity::{Blocked, Budget, Session, Wait};
use crate::probe::leases::{Lease, Seen, Worker};
use crate::probe::queues::Queue;
use crate::probe::stages::{Stage, StageName};
use crate::probe::tasks::{Task, TaskKey};
use crate::probe::{Count, ServerTime, Snapshot, State};

/// Server time, `s` seconds into the tests.
pub fn at(s: f64) -> ServerTime {
    ServerTime::from_epoch(1_800_000_000.0 + s).expect("not NaN")
}

/// A queue of the reference system in which all is well.
pub fn queue(name: &str) -> Queue {
    Queue {
        system: "agent_queue".into(),
        schema: "agent_queue".into(),
        queue: name.into(),
        states: [(State::Ready, 4), (State::Running, 20)]
            .map(|(state, n)| (state, Some(Count::exact(n))))
            .into(),
        limit: Some(40),
        oldest_ready_s: Some(0.4),
        in_per_min: Some(205.0),
        finished_per_min: Some(212.0),
        failed_attempts_per_min: Some(5.0),
        last_claim_s: Some(0.3),
        last_arrival_s: Some(0.2),
        longest_gap_s: Some(300.0),
        arrival_history_s: 90_000.0,
        over_usual: Some(1),
        over_usual_of: 20,
        ..Queue::default()
    }
}

/// How many tasks are in a state.
pub fn count(queue: &mut Queue, state: State, n: u64) {
    queue.states.insert(state, Some(Count::exact(n)));
}

/// A stage of that queue with enough samples to be usual.
pub fn stage(queue: &str, stage: StageName, p50: f64, p95: f64) -> Stage {
    Stage {
        system: "agent_queue".into(),
        schema: "agent_queue".into(),
        queue: queue.into(),
        kind: None,
        stage,
        n: 50,
        p50_s: Some(p50),
        p95_s: Some(p95),
        max_s: Some(p95 * 2.0),
        recent_p50_s: None,
        unknown: None,
    }
}

/// A session in a state since `s` seconds.
pub fn session(pid: i32, application: &str, state: &str, s: f64) -> Session {
    Session {
        pid: Some(pid),
        backend_start: Some(at(-f64::from(pid))),
        count: 1,
        application: application.into(),
        user: "agent".into(),
        state: Some(state.into()),
        xact_s: Some(s),
        query_s: Some(s),
        state_s: Some(s),
        budget: "agents".into(),
        ..Session::default()
    }
}

/// A session that waits for a row.
pub fn blocked(pid: i32, by: &[i32], s: f64) -> Blocked {
    Blocked {
        pid,
        blocked_by: by.to_vec(),
        waiting_s: s,
        lock_type: "transactionid".into(),
        relation: None,
        mode: Some("ShareLock".into()),
    }
}

/// A session that waits for the table of tasks.
pub fn on_table(pid: i32, by: &[i32], s: f64, mode: &str) -> Blocked {
    Blocked {
        lock_type: "relation".into(),
        relation: Some("agent_queue.tasks".into()),
        mode: Some(mode.into()),
        ..blocked(pid, by, s)
    }
}

/// A worker with a session and one task.
pub fn worker(name: &str) -> Worker {
    Worker {
        system: "agent_queue".into(),
        schema: "agent_queue".into(),
        worker: name.into(),
        holds: 1,
        next_expiry_s: Some(240.0),
        session: Seen::Seen,
        ..Worker::default()
    }
}

/// A lease that expired.
pub fn lease(task: &str, worker: &str, overdue: f64) -> Lease {
    Lease {
        system: "agent_queue".into(),
        schema: "agent_queue".into(),
        queue: "parser".into(),
        task: task.into(),
        worker: Some(worker.into()),
        overdue_s: Some(overdue),
        rule: "lease expired".into(),
        session: Seen::None,
        ..Lease::default()
    }
}

/// A running task of `parser`.
pub fn task(id: &str, worker: &str) -> Task {
    Task {
        key: TaskKey {
            system: "agent_queue".into(),
            schema: "agent_queue".into(),
            queue: "parser".into(),
            id: id.into(),
        },
        kind: Some("parse".into()),
        state: State::Running,
        native_state: "processing".into(),
        priority: None,
        created_at: None,
        eligible_at: None,
        claimed_at: None,
        started_at: None,
        finished_at: None,
        lease_until: None,
        heartbeat_at: None,
        stuck: None,
        worker: Some(worker.into()),
        attempt: None,
        max_attempts: None,
        lease_token: None,
        last_error: None,
        agent: None,
        tenant: None,
        application: None,
        batch: None,
        cancel_requested_at: None,
        cost_usd: None,
        locked_by_pid: None,
        in_state_s: None,
    }
}

/// A budget, all of whose sessions are here and work.
pub fn budget(name: &str, limit: u32, used: u32) -> Budget {
    Budget {
        name: name.into(),
        limit: Some(limit),
        used,
        active: used,
        ..Budget::default()
    }
}

/// Active sessions that wait for something.
pub fn wait(kind: &str, sessions: u32) -> Wait {
    Wait {
        kind: kind.into(),
        event: String::new(),
        sessions,
    }
}

/// One queue, twelve workers, nothing wrong.
pub fn calm() -> Snapshot {
    let mut s = Snapshot {
        taken_at: Some(at(0.0)),
        queues: vec![queue("parser")],
        stages: vec![
            stage("parser", StageName::Wait, 1.2, 8.0),
            stage("parser", StageName::Run, 4.0, 19.0),
        ],
        workers: (1..=12).map(|n| worker(&format!("agent-{n}"))).collect(),
        ..Snapshot::default()
    };
    s.connections.max = 100;
    s.connections.reserved = 3;
    s.connections.used = 30;
    s.connections.states = [("active".to_string(), 2), ("idle".to_string(), 28)].into();
    s.server.user = "monitor".into();
    s.server.cores = Some(4);
    s
}

/// The calm one, changed.
pub fn with(change: impl FnOnce(&mut Snapshot)) -> Snapshot {
    let mut s = calm();
    change(&mut s);
    s
}

/// What a single look says.
pub fn once(snapshot: &Snapshot) -> Report {
    Tracker::if_it_lasts(&Config::default(), snapshot)
}

/// The findings of one rule in a single look.
pub fn of(rule: &str, snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = once(snapshot).findings;
    findings.retain(|f| f.rule == rule);
    findings
}

/// The one sentence of a rule in a single look.
#[track_caller]
pub fn says(rule: &str, snapshot: &Snapshot) -> String {
    let found = of(rule, snapshot);
    assert_eq!(found.len(), 1, "{rule}: {found:#?}");
    found[0].sentence.clone()
}

/// A rule says nothing in a single look.
#[track_caller]
pub fn silent(rule: &str, snapshot: &Snapshot) {
    let found = of(rule, snapshot);
    assert!(found.is_empty(), "{rule}: {found:#?}");
}

/// The row of a session made by [`session`].
pub fn session_row(pid: i32) -> Option<RowId> {
    Some(RowId::Session {
        pid,
        started_us: (1_800_000_000 - i64::from(pid)) * 1_000_000,
    })
}
