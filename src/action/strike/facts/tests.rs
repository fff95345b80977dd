use super::*;
use crate::panes::fixture;

/// The agent of the incident that idles inside a transaction; its statement tries to paint the screen.
fn agent() -> Backend {
    Backend {
        statement: "UPDATE tasks\n  SET x = \u{1b}[31m1".into(),
        ..fixture::backend()
    }
}

fn facts(pid: i32, backend: &Backend) -> Facts {
    let app = fixture::incident();
    Facts::of(pid, backend, app.snapshot.as_deref().expect("data"))
}

#[test]
fn terminating_says_what_is_rolled_back_and_who_goes_on() {
    let f = facts(4711, &agent());
    assert_eq!(f.title, "End session 4711 agent-7?");
    let does = f.terminate.clone().expect("it may");
    assert_eq!(
        does,
        "rolls back 8m of work; at least 3 tasks are held by it: 48017 and 2 more; 9 sessions get the lock in turn"
    );
    assert!(f.lines.iter().all(|l| !l.contains('\u{1b}')), "{f:?}");
    assert!(f.lines[1].starts_with("idle in transaction for 8m; its transaction is open for 8m"));
    assert_eq!(f.lines[2], "ran last: UPDATE tasks SET x = [31m1");
}

#[test]
fn cancelling_does_nothing_to_one_that_runs_nothing() {
    let idle = facts(4711, &agent()).cancel;
    let why = idle.expect_err("nothing runs");
    assert!(
        why.contains("idle in transaction and runs no statement"),
        "{why}"
    );
    let mut b = agent();
    b.state = Some("active".into());
    b.statement_s = b.xact_s;
    assert_eq!(
        facts(1, &b).cancel.as_deref(),
        Ok(
            "ends the statement and rolls back its transaction, 8m of work, so that its locks are free (unless a savepoint keeps them); the session stays"
        )
    );
    b.xact_s = None;
    assert_eq!(
        facts(1, &b).cancel.as_deref(),
        Ok("ends the statement; the session stays")
    );
    b.xact_s = agent().xact_s;
    b.statement_s = Some(1.0);
    let does = facts(1, &b).cancel.expect("it may");
    assert!(does.contains("8m of work"), "{does}");
    b.state = None;
    assert!(facts(1, &b).cancel.expect_err("hidden").contains("hidden"));
}

#[test]
fn a_missing_right_or_a_hidden_start_refuses_both() {
    let mut b = agent();
    b.permitted = false;
    let f = facts(4711, &b);
    let why = f.terminate.expect_err("no right");
    assert!(why.contains("GRANT pg_signal_backend TO oncall"), "{why}");
    assert_eq!(f.cancel, Err(why));
    b.permitted = true;
    b.started_us = None;
    let why = facts(4711, &b).terminate.expect_err("no start");
    assert!(why.contains("GRANT pg_read_all_stats TO oncall"), "{why}");
}

#[test]
fn the_pid_is_typed_where_it_matters_and_replication_is_asked_twice() {
    let typed = |pid: i32, b: &Backend, how: How, local: bool| facts(pid, b).must_type(how, local);
    let b = agent();
    assert_eq!(typed(4711, &b, How::Terminate, true), "4711", "others wait");
    assert_eq!(typed(4711, &b, How::Cancel, true), "");
    assert_eq!(typed(1, &b, How::Terminate, true), "", "nobody waits");
    assert_eq!(typed(1, &b, How::Terminate, false), "1", "not this machine");
    let dump = Backend {
        application: "pg_dump".into(),
        ..agent()
    };
    assert_eq!(typed(1, &dump, How::Cancel, true), "1");
    let sender = Backend {
        kind: "walsender".into(),
        ..agent()
    };
    assert_eq!(typed(1, &sender, How::Terminate, true), "replication 1");
    assert!(facts(1, &sender).twice[0].starts_with("replication"));
}

#[test]
fn a_workers_leases_stay_and_those_behind_others_are_counted() {
    let app = fixture::incident();
    let mut s = (*app.snapshot.expect("data")).clone();
    let task = s.tasks.rows.iter_mut().find(|t| t.state == State::Running);
    task.expect("a running task").worker = Some("agent-7".into());
    s.blocked[1].blocked_by.push(99);
    let does = Facts::of(4711, &agent(), &s).terminate.expect("it may");
    assert!(
        does.contains("9 sessions get the lock in turn, 1 of them after others"),
        "{does}"
    );
    assert!(
        does.contains("1 task of this worker (48002) loses only the session: the lease stays"),
        "{does}"
    );
    let mut failed = agent();
    failed.state = Some("idle in transaction (aborted)".into());
    let does = Facts::of(4711, &failed, &s).terminate.expect("it may");
    assert!(
        does.starts_with("its transaction has failed already"),
        "{does}"
    );
    let idle = Backend {
        xact_s: None,
        ..agent()
    };
    let does = Facts::of(1, &idle, &Snapshot::default())
        .terminate
        .expect("it may");
    assert_eq!(does, "no transaction is open: nothing is rolled back");
}
