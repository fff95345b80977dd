//! Causes over symptoms.

use super::build::*;
use super::example;
use crate::config::Config;
use crate::findings::{Report, Severity, Tracker};
use crate::probe::locks::Exclusive;
use crate::probe::{ProbeHealth, Snapshot, State};

fn list(report: &Report) -> Vec<(&str, Option<&str>)> {
    report
        .findings
        .iter()
        .map(|f| (f.rule.as_str(), f.explained_by.as_deref()))
        .collect()
}

/// The worst night: everything that one forgotten transaction brings with it.
fn night() -> Snapshot {
    let mut s = example("idle-in-transaction");
    s.connections = example("connections").connections;
    s.connections.budgets = vec![budget("agents", 40, 40)];
    s.queues = example("stalled").queues;
    s.leases = example("leases-expired").leases;
    s.cost = example("cost-runaway").cost;
    s
}

#[test]
fn a_cause_comes_first_with_its_symptoms_under_it() {
    let report = once(&night());
    let by = Some("idle-in-transaction");
    assert_eq!(
        list(&report),
        [
            ("idle-in-transaction", None),
            ("connections", by),
            ("stalled", by),
            ("leases-expired", by),
            ("budget", by),
            ("cost-runaway", None),
        ]
    );
    assert!(report.verdict.starts_with("agent-7 (pid 4711)"));
    assert_eq!(
        report.top().map(|f| f.culprit.clone()),
        Some(session_row(4711))
    );
}

#[test]
fn a_cause_is_as_grave_as_its_gravest_symptom() {
    let mut s = night();
    // two sessions do not fill a server
    s.connections = with(|_| {}).connections;
    s.blocked.truncate(1);
    s.sessions[0].task_rows = 0;
    let report = once(&s);
    assert_eq!(report.findings[0].rule, "idle-in-transaction");
    assert_eq!(report.findings[0].severity, Severity::Critical);
    // Alone it is not.
    let mut s = example("idle-in-transaction");
    s.blocked.truncate(1);
    s.sessions[0].task_rows = 0;
    assert_eq!(once(&s).findings[0].severity, Severity::Warning);
}

#[test]
fn the_forgotten_transaction_explains_the_pending_migration_that_explains_the_stall() {
    let mut s = example("table-lock");
    s.sessions[1] = session(5002, "report", "idle in transaction", 360.0);
    s.queues = example("stalled").queues;
    let report = once(&s);
    assert_eq!(
        list(&report),
        [
            ("idle-in-transaction", None),
            ("table-lock", Some("idle-in-transaction")),
            ("stalled", Some("idle-in-transaction")),
        ]
    );
    // Behind a working session, the lock is the cause.
    let mut s = example("table-lock");
    s.queues = example("stalled").queues;
    assert_eq!(
        list(&once(&s)),
        [("table-lock", None), ("stalled", Some("table-lock"))]
    );
}

#[test]
fn an_idle_transaction_in_nobodys_way_explains_nothing() {
    let mut s = example("stalled");
    let mut idle = session(4711, "report", "idle in transaction", 400.0);
    idle.xmin_age = Some(5);
    s.sessions.push(idle);
    assert_eq!(
        list(&once(&s)),
        [("stalled", None), ("idle-in-transaction", None)]
    );
}

#[test]
fn what_happens_in_one_queue_does_not_explain_another() {
    let mut s = example("throttled");
    s.leases = example("leases-expired").leases;
    s.queues[0].limit = Some(400);
    count(&mut s.queues[0], State::Running, 400);
    assert_eq!(
        list(&once(&s)),
        [
            ("leases-expired", None),
            ("throttled", Some("leases-expired"))
        ]
    );
    for lease in &mut s.leases {
        lease.queue = "crawler".into();
    }
    assert_eq!(
        list(&once(&s)),
        [("leases-expired", None), ("throttled", None)]
    );
}

#[test]
fn vanished_owners_explain_the_throttle() {
    let mut s = example("owners-gone");
    s.queues = example("throttled").queues;
    assert_eq!(
        list(&once(&s)),
        [("owners-gone", None), ("throttled", Some("owners-gone"))]
    );
}

#[test]
fn a_slow_provider_explains_timeouts_and_they_explain_the_bill() {
    let mut s = example("slow-outside");
    s.attempts = example("failing").attempts;
    s.cost = example("cost-runaway").cost;
    let chain = [
        ("slow-outside", None),
        ("failing", Some("slow-outside")),
        ("cost-runaway", Some("failing")),
    ];
    assert_eq!(list(&once(&s)), chain);
    s.attempts[0].error = Some("KeyError: 'total'".into());
    assert_eq!(
        list(&once(&s)),
        [
            ("slow-outside", None),
            ("failing", None),
            ("cost-runaway", Some("failing"))
        ]
    );
}

#[test]
fn a_flood_of_one_rule_is_cut_and_counted() {
    let s = with(|s| {
        for pid in 1..=12 {
            let mut idle = session(pid, "agent", "idle in transaction", 20.0);
            idle.task_rows = pid as u32;
            s.sessions.push(idle);
        }
    });
    let report = once(&s);
    assert_eq!(report.findings.len(), 5);
    assert!(report.findings[0].sentence.contains("holds 12 tasks"));
    assert!(report.findings[4].sentence.ends_with("; 7 more like it"));
}

#[test]
fn information_alone_is_not_a_verdict() {
    let report = once(&example("limited-view"));
    assert_eq!(report.findings.len(), 1);
    assert!(report.top().is_none());
}

/// Every slot that ordinary roles may have is taken, by a pool that idles.
fn fill(s: &mut Snapshot) {
    s.connections.used = s.connections.usable();
    s.connections.states = [("idle".into(), s.connections.used)].into();
    s.connections.logins_per_s = None;
}

#[test]
fn a_server_that_refuses_logins_comes_before_all_that_is_as_grave() {
    let mut s = example("leases-expired");
    s.sessions = example("idle-in-transaction").sessions;
    s.sessions[0].task_rows = 0;
    s.blocked = (0..3).map(|n| blocked(4720 + n, &[4711], 470.0)).collect();
    fill(&mut s);
    let report = once(&s);
    let by = Some("idle-in-transaction");
    assert_eq!(
        list(&report),
        [
            ("connections", None),
            ("idle-in-transaction", None),
            ("leases-expired", by),
        ]
    );
    let gravest = report.findings.iter().take(2).map(|f| f.severity);
    assert!(gravest.into_iter().all(|s| s == Severity::Critical));
    assert!(report.verdict.starts_with("97 of 97 connections"));
    assert_eq!(report.layers.database.text, "97 of 97 conns");
    // one slot is free: somebody can still log in and mend what is wrong
    s.connections.used -= 1;
    assert_eq!(list(&once(&s))[0], ("idle-in-transaction", None));
}

#[test]
fn what_fills_the_server_comes_before_all_that_is_as_grave() {
    let mut s = example("lock-wait");
    s.workers = example("owners-gone").workers;
    s.blocked = (0..12).map(|n| blocked(4720 + n, &[4711], 41.0)).collect();
    fill(&mut s);
    assert_eq!(
        list(&once(&s)),
        [
            ("lock-wait", None),
            ("connections", Some("lock-wait")),
            ("owners-gone", None),
        ]
    );
}

#[test]
fn a_mark_without_a_finding_is_not_well() {
    let mut s = with(|_| {});
    assert!(
        once(&s).verdict.starts_with("all is well"),
        "{}",
        once(&s).verdict
    );
    s.exclusive = vec![Exclusive {
        relation: "agent_queue.tasks".into(),
        pid: 4711,
        granted: true,
        ..Exclusive::default()
    }];
    // seen for a second only: no finding yet
    let twice = |s: &Snapshot| {
        let mut tracker = Tracker::new(&Config::default());
        tracker.update(s);
        let mut later = s.clone();
        later.taken_at = s.taken_at.map(|t| t.plus(1.0));
        tracker.update(&later)
    };
    let report = twice(&s);
    assert_eq!(report.findings, []);
    let said = "no finding yet, but database tasks locked: ";
    assert!(report.verdict.starts_with(said), "{}", report.verdict);
    s.probes = vec![ProbeHealth {
        name: "queues".into(),
        age_s: Some(9.0),
        error: Some("lock timeout (55P03)".into()),
        ..ProbeHealth::default()
    }];
    let blind = twice(&s).verdict;
    assert!(
        blind.starts_with("nothing wrong in what can be seen"),
        "{blind}"
    );
}
