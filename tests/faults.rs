//! What can go wrong with the server while somebody watches: keys answer, data stay, and it comes back.

mod common;

use common::place::Place;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::Client;

/// Somebody who has the task table for himself.
fn locked(place: &Place) -> (Client, &Runtime) {
    let (client, runtime) = place.client();
    runtime.block_on(async {
        let lock = "BEGIN; LOCK TABLE agent_queue.tasks IN ACCESS EXCLUSIVE MODE";
        client.batch_execute(lock).await.expect("locked");
    });
    (client, runtime)
}

#[test]
fn a_locked_task_table_costs_its_panes_only() {
    let place = Place::new("locked");
    let mut pty = place.watch(&[], 160, 45);
    pty.wait_text("parser");
    let (client, runtime) = locked(&place);
    pty.keys("1");
    pty.wait("the holder", |s| {
        s.contains("idle in transaction") || s.contains("idle in tx")
    });
    pty.wait_text("LIVE");
    // it may also start while the table is locked
    let mut second = place.watch(&[], 160, 45);
    second.wait_text("CONNECTIONS");
    second.wait_text("lock timeout");
    second.keys("q");
    assert_eq!(second.exit_code(), 0);
    runtime.block_on(async { client.batch_execute("COMMIT").await.expect("released") });
    pty.keys("0");
    pty.wait_no_text("lock timeout");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn its_own_session_may_be_ended_by_somebody() {
    let place = Place::new("terminated");
    let mut pty = place.watch(&[], 160, 45);
    pty.wait_text("parser");
    place.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
          WHERE datname = current_database() AND application_name = 'jobtop'",
    );
    pty.wait_text("back after ");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    place.wait_no_session();
}

#[test]
fn a_refused_connection_is_one_sentence_and_exit_code_2() {
    let place = Place::new("refused");
    let nobody = place.url.replace("dbname=", "dbname=no_");
    let (code, out, err) = place.run(&[&nobody, "--once"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("does not exist") && err.lines().count() == 1,
        "{err}"
    );
    let (code, _, err) = place.run(&["host=/nonexistent user=nobody dbname=x", "--check"]);
    assert_eq!(code, 2);
    assert_eq!(err.lines().count(), 1, "{err}");
    let mut pty = common::pty::Pty::jobtop(&[&nobody], 80, 24);
    assert_eq!(pty.exit_code(), 2);
    pty.wait_text("does not exist");
    assert!(!pty.alternate());
}

#[test]
fn a_row_that_changed_meanwhile_is_reported_not_overwritten() {
    let place = Place::new("raced");
    let mut pty = place.watch(&["--allow-writes", "--interval", "60"], 160, 45);
    pty.wait_text("parser");
    pty.keys("6/state:failed\r");
    pty.wait_text("1/");
    pty.keys("R");
    pty.wait_text("Requeue 1 task?");
    // somebody else requeues it, and a worker claims it, while the dialog is open
    place.sql(
        "SET search_path = agent_queue; SELECT requeue('{1}');
         SELECT claim('parser', 'w3') FROM generate_series(1, 2);",
    );
    pty.keys("y");
    pty.wait_text("changed since it was seen");
    assert_eq!(
        place.value("SELECT status || ' ' || locked_by FROM agent_queue.tasks WHERE id = 1"),
        "processing w3"
    );
    assert_eq!(
        place.value(
            "SELECT concat_ws(' ', asked, changed, skipped) FROM agent_queue.operator_actions"
        ),
        "1 0 1"
    );
    pty.keys("q");
    pty.exit_code();
}

#[test]
fn a_row_locked_by_somebody_is_skipped_at_once() {
    let place = Place::new("rowlock");
    let (client, runtime) = place.client();
    let mut pty = place.watch(&["--allow-writes"], 160, 45);
    pty.wait_text("parser");
    pty.keys("6/state:failed\r");
    pty.wait_text("1/");
    pty.keys("R");
    pty.wait_text("Requeue 1 task?");
    runtime.block_on(async {
        let lock = "BEGIN; SELECT FROM agent_queue.tasks WHERE id = 1 FOR UPDATE";
        client.batch_execute(lock).await.expect("locked");
    });
    pty.keys("y");
    pty.wait_text("locked by another session");
    assert_eq!(
        place.value("SELECT status FROM agent_queue.tasks WHERE id = 1"),
        "failed"
    );
    runtime.block_on(async { client.batch_execute("ROLLBACK").await.expect("released") });
    pty.keys("q");
    pty.exit_code();
}

#[test]
fn what_was_read_before_a_new_session_is_as_old_as_it_is() {
    let place = Place::new("renewed");
    let mut pty = place.watch(&[], 160, 45);
    pty.wait_text("parser");
    let (client, runtime) = locked(&place);
    pty.wait("an age", |s| s.contains("TASKS  as of "));
    let ours = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'jobtop' \
                AND datname = current_database()";
    place.sql(ours);
    pty.wait_text("back after");
    pty.wait("an age again", |s| s.contains("TASKS  as of "));
    assert!(!pty.screen().contains("never read"), "{}", pty.screen());
    runtime.block_on(async { client.batch_execute("ROLLBACK").await.expect("released") });
    pty.wait_no_text("as of ");
    pty.keys("q");
    pty.exit_code();
}

#[test]
fn a_queue_that_loses_its_table_is_missed_and_found_again() {
    let place = Place::new("vanished");
    let mut pty = place.watch(&[], 160, 45);
    pty.wait_text("parser");
    place.sql("ALTER TABLE agent_queue.tasks RENAME TO tasks_old");
    pty.wait_text("table tasks is not there");
    place.sql("ALTER TABLE agent_queue.tasks_old RENAME TO tasks");
    pty.wait("the queue again", |s| {
        s.contains("parser") && !s.contains("CRITICAL")
    });
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn a_queue_that_is_made_while_somebody_looks_is_found_soon() {
    let place = Place::new("made");
    place.sql("DROP SCHEMA agent_queue CASCADE");
    let mut pty = place.watch(&[], 160, 45);
    pty.wait_text("no queue found");
    let (code, _, said) = place.run(&["migrate", &place.url]);
    assert_eq!(code, 0, "{said}");
    // five times what is promised
    pty.wait_within(Duration::from_secs(25), "queue", |s| {
        !s.contains("no queue found")
    });
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}
