//! A queue loses a column, goes to another schema, or is in a database that is dropped and made anew: what is known is told
//! from what is not, and from what is over.

use crate::common::{self, place::Place, pty::Pty};
use crate::help::{answers, escape, line_with, live, quit, row, seconds, until, watching};
use jobtop::migrate::{NotifyChange, apply};
use std::time::{Duration, Instant};

/// Twelve tasks that nobody claims, which is a finding.
const NEVER: &str = "SET search_path = agent_queue;
    SELECT enqueue('never', 'claimed', max_attempts => 1) FROM generate_series(1, 12);
    UPDATE tasks SET created_at = now() - interval '20 min', run_after = now() - interval '20 min' WHERE queue = 'never'";

/// The same, watched.
fn stalled(place: &Place) -> Pty {
    place.sql(NEVER);
    let pty = watching(&place.url, &[]);
    pty.wait_text("never: 12 due");
    pty
}

/// The findings and the log, whole.
fn findings(pty: &mut Pty, wanted: &str) -> String {
    pty.keys("7");
    let screen = pty.wait_text(wanted);
    pty.keys("0");
    screen
}

#[test]
fn a_renamed_column_is_named_and_nothing_is_called_over() {
    let place = Place::new("half_there");
    place.sql(common::load::HOUSES);
    let mut pty = stalled(&place);
    place.sql("ALTER TABLE agent_queue.tasks RENAME COLUMN kind TO kind2");
    const WHY: &str = "agent_queue in schema agent_queue: column kind of tasks is not there";
    let screen = pty.wait("the reason", |s| {
        s.lines().nth(2).is_some_and(|l| l.contains(WHY))
    });
    let said = line_with(&screen, WHY);
    answers(&mut pty);
    let screen = pty.wait_text("agent_queue as of ");
    assert!(live(&screen) && screen.contains("parser"), "{screen}");
    // the others are read as before
    place.sql(
        "INSERT INTO agent_jobs (status, leased_until, started_at, tenant)
         VALUES ('running', now() + interval '1 h', now(), 'unmoved')",
    );
    pty.keys("6/tenant:unmoved\r");
    pty.wait_text("tenant:unmoved  1/");
    escape(&mut pty);
    // after a few refreshes what is over says so
    std::thread::sleep(Duration::from_secs(6));
    let screen = findings(&mut pty, "last known: never: 12 due");
    assert!(screen.contains("jobtop migrate --schema agent_queue"));
    for wrong in ["over: ", ": over", "is gone", "42703"] {
        assert!(!screen.contains(wrong), "{wrong}: {screen}");
    }
    pty.wait_text(" as of ");
    place.sql("ALTER TABLE agent_queue.tasks RENAME COLUMN kind2 TO kind");
    let begun = Instant::now();
    pty.wait("the queue", |s| live(s) && !s.contains(" as of "));
    // a look at the catalogue and a refresh, each at most a second and a half apart
    assert!(
        begun.elapsed() < Duration::from_secs(5 * 3),
        "it came back late"
    );
    row(
        "column renamed",
        &said,
        &seconds(begun),
        "its data are as they were, dimmed",
    );
    pty.keys("7");
    let screen = pty.wait("the finding", |s| {
        let critical = |l: &str| l.contains("critical") && l.contains("never: 12 due");
        s.lines().any(critical)
    });
    assert!(!screen.contains("stalled: over"), "{screen}");
    quit(&mut pty);
    place.wait_no_session();
}

#[test]
fn a_schema_that_gets_another_name_is_followed() {
    let place = Place::new("moves");
    let mut pty = stalled(&place);
    place.sql("ALTER SCHEMA agent_queue RENAME TO billing");
    let begun = Instant::now();
    let screen = findings(
        &mut pty,
        "agent_queue in schema agent_queue is now in schema billing",
    );
    let said = line_with(&screen, "is now in schema billing");
    let screen = pty.wait("the queue", |s| live(s) && s.contains("never: 12 due"));
    assert!(!screen.contains("was here and is gone"), "{screen}");
    row("schema renamed", &said, &seconds(begun), "nothing");
    let screen = findings(&mut pty, "stalled: ");
    assert!(!screen.contains("is gone"), "{screen}");
    assert!(!screen.contains("stalled: over"), "{screen}");

    // another one takes the place of one that was dropped
    place.sql("DROP SCHEMA billing CASCADE");
    pty.wait_text("agent_queue in schema billing was here and is gone");
    let (mut client, runtime) = place.client();
    let applied = runtime.block_on(apply(&mut client, "invoices", NotifyChange::Install));
    applied.expect("migrated");
    findings(
        &mut pty,
        "agent_queue in schema billing is now in schema invoices",
    );
    pty.wait("the end of it", |s| {
        let verdict = s.lines().nth(2).unwrap_or_default();
        live(s) && !verdict.contains("gone")
    });
    drop(client);
    quit(&mut pty);
    place.wait_no_session();
}

#[test]
fn a_database_that_is_made_anew_is_another_one() {
    let (name, config) = common::database("anew");
    let old = Place::on(common::cluster(), &name, config.clone());
    let mut pty = stalled(&old);
    pty.keys("6");
    pty.wait_text("in state");
    pty.keys(" ");
    pty.wait_text("1 marked");
    pty.keys("0");
    let (client, runtime) = old.client();
    drop(client);
    let mut elsewhere = config.clone();
    elsewhere.dbname("postgres");
    runtime.block_on(async {
        let client = common::connect(&elsewhere).await;
        for sql in [
            format!("DROP DATABASE {name} WITH (FORCE)"),
            format!("CREATE DATABASE {name}"),
        ] {
            client.batch_execute(&sql).await.expect(&sql);
        }
    });
    let begun = Instant::now();
    let screen = pty.wait_text("another database of that name answers now");
    let said = line_with(&screen, "another database of that name");
    pty.wait("no queue", |s| live(s) && s.contains("no queue found"));
    let new = Place::on(common::cluster(), &name, config);
    pty.keys("r");
    let screen = pty.wait("its queue", |s| live(s) && s.contains("parser"));
    for wrong in ["never: ", "is gone", "marked"] {
        assert!(!screen.contains(wrong), "{wrong}: {screen}");
    }
    let screen = findings(&mut pty, "another database of that name answers now");
    for wrong in [": over", "over: ", "is gone"] {
        assert!(!screen.contains(wrong), "{wrong}: {screen}");
    }
    row(
        "database dropped and made anew",
        &said,
        &seconds(begun),
        "all that was known of the one before",
    );
    quit(&mut pty);
    until("end of the session", || new.sessions() == "0");
}
