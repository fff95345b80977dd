//! `jobtop requeue`, `cancel`, `release`, …: the same guards as on the screen, for scripts and for people.

mod common;

use common::place::Place;
use common::pty::Pty;

/// Exit code, stdout and stderr of an action on a place.
fn run(place: &Place, args: &[&str]) -> (i32, String, String) {
    let mut all = args.to_vec();
    all.extend(["-d", &place.url]);
    place.run(&all)
}

const STATES: &str = "SELECT string_agg(status, ',' ORDER BY id) FROM agent_queue.tasks";
const JOURNAL: &str = "SELECT string_agg(concat_ws(' ', action, asked, changed, skipped, reason), ';' ORDER BY at) FROM agent_queue.operator_actions";

#[test]
fn a_dry_run_says_what_would_be_done_and_does_nothing() {
    let place = Place::new("cli_dry");
    let (code, out, err) = run(&place, &["requeue", "1", "--dry-run"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for words in [
        "Requeue 1 task?",
        "now: 1 failed",
        "1 of 1 tries used: one more is allowed, this will be try 2 of 2",
        "claimable at once",
    ] {
        assert!(out.contains(words), "{words:?} in {out}");
    }
    let (code, out, _) = run(
        &place,
        &["requeue", "--state", "failed", "--dry-run", "--json"],
    );
    let said: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &said["ids"]), (0, &serde_json::json!(["1"])));
    assert_eq!(said["preview"]["out_of_tries"], 1);
    assert_eq!(place.value(STATES), "failed,processing,enqueued");
    assert_eq!(place.value(JOURNAL), "");
}

#[test]
fn without_a_terminal_it_refuses_unless_told() {
    let place = Place::new("cli_yes");
    for (id, words) in [
        ("postgres://h/d", "is no id: give the database with -d"),
        ("1", "ids name the tasks already"),
    ] {
        let (code, _, err) = run(&place, &["requeue", id, "--state", "failed", "--yes"]);
        assert_eq!(code, 2);
        assert!(err.contains(words) && err.lines().count() == 1, "{err}");
    }
    let (code, _, err) = run(&place, &["requeue", "1"]);
    assert_eq!(code, 2);
    assert!(err.contains("give --yes"), "{err}");
    assert_eq!(place.value(STATES), "failed,processing,enqueued");
    let (code, out, err) = run(&place, &["requeue", "1", "--yes", "--reason", "fixed"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("requeue: asked 1, 1 changed"), "{out}");
    assert_eq!(place.value(STATES), "enqueued,processing,enqueued");
    assert_eq!(place.value(JOURNAL), "requeue 1 1 0 fixed");
    // what cannot be done is said, and is an error where it was named
    let (code, _, err) = run(&place, &["requeue", "2", "99", "--yes"]);
    assert_eq!(code, 1);
    assert!(err.contains("1 not there any more"), "{err}");
    assert!(err.contains("1 running under a live lease"), "{err}");
    let (code, out, _) = run(&place, &["requeue", "--state", "failed", "--yes"]);
    assert_eq!(
        (code, out.as_str()),
        (0, "nothing to requeue: no task matches\n")
    );
    let (code, _, err) = run(&place, &["requeue", "--yes"]);
    assert_eq!(code, 2);
    assert!(err.contains("requeue what?"), "{err}");
    let (code, out, _) = run(&place, &["requeue", "--state", "done", "--yes"]);
    assert_eq!(code, 0);
    assert!(out.contains("neutral states are"), "{out}");
    let (code, _, err) = run(&place, &["requeue", "1", "postgres://h/d", "--yes"]);
    assert_eq!(code, 2);
    assert!(err.contains("with -d"), "{err}");
    // named twice is one task; what was left out is no success
    let (code, out, _) = run(&place, &["cancel", "3", "3", "1", "--yes", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (&said["asked"], &said["changed"]),
        (&2.into(), &2.into()),
        "{out}"
    );
    assert_eq!(code, 0);
    let (code, out, _) = run(&place, &["cancel", "2", "1", "--yes", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(said["left_out"]["finished already"], 1, "{out}");
    assert_eq!(code, 1);
}

#[test]
fn every_action_does_what_its_name_says() {
    let place = Place::new("cli_all");
    let told = |args: &[&str]| {
        let mut args = args.to_vec();
        args.extend(["--yes", "--json"]);
        let (code, out, err) = run(&place, &args);
        let said: serde_json::Value = serde_json::from_str(&out).expect(&err);
        let fates = said["fates"].as_array().expect("fates");
        (
            code,
            fates
                .iter()
                .map(|f| f["outcome"].as_str().unwrap_or("").to_string())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(told(&["park", "3"]), (0, vec!["changed".to_string()]));
    assert_eq!(place.value(STATES), "failed,processing,parked");
    assert_eq!(
        told(&["unpark", "--state", "parked"]),
        (0, vec!["changed".into()])
    );
    assert_eq!(
        told(&["priority", "--to", "9", "3"]),
        (0, vec!["changed".into()])
    );
    place.sql("UPDATE agent_queue.tasks SET run_after = now() + interval '1 h', deferred = true WHERE id = 3");
    assert_eq!(
        told(&["run-now", "--queue", "parser"]),
        (0, vec!["changed".into()])
    );
    assert_eq!(
        place.value("SELECT concat_ws(' ', priority, run_after <= now()) FROM agent_queue.tasks WHERE id = 3"),
        "9 t"
    );
    assert_eq!(told(&["cancel", "2"]), (0, vec!["requested".into()]));
    place.sql("UPDATE agent_queue.tasks SET lease_expires_at = now() - interval '1 s', cancel_requested_at = NULL WHERE id = 2");
    assert_eq!(told(&["release"]), (0, vec!["changed".into()]));
    assert_eq!(
        told(&["requeue", "--fresh", "1"]),
        (0, vec!["changed".into()])
    );
    assert_eq!(
        place.value("SELECT concat_ws(' ', attempt, attempts_before, max_attempts) FROM agent_queue.tasks WHERE id = 1"),
        "1 1 2"
    );
}

#[test]
fn many_need_a_reason() {
    let place = Place::new("cli_many");
    place.sql("SET search_path = agent_queue; SELECT enqueue('parser', 'parse') FROM generate_series(1, 20)");
    let (code, _, err) = run(&place, &["park", "--queue", "parser", "--yes"]);
    assert_eq!(code, 2);
    assert!(err.contains("give --reason"), "{err}");
    let (code, out, _) = run(
        &place,
        &["park", "--queue", "parser", "--yes", "--reason", "poison"],
    );
    assert_eq!(code, 0, "{out}");
    assert_eq!(place.value(JOURNAL), "park 21 21 0 poison");
}

#[test]
fn on_a_terminal_it_asks() {
    let place = Place::new("cli_asks");
    let args = |yes: &'static str| {
        let mut pty = Pty::jobtop(&["cancel", "2", "3", "-d", &place.url], 100, 30);
        pty.wait_text("type 2 to go on");
        pty.keys(yes);
        pty.exit_code()
    };
    assert_eq!(args("y\r"), 1);
    assert_eq!(place.value(STATES), "failed,processing,enqueued");
    assert_eq!(args("2\r"), 0);
    assert_eq!(place.value(STATES), "failed,processing,cancelled");
}

#[test]
fn a_database_with_several_systems_wants_one_named() {
    let place = Place::new("cli_systems");
    place.sql(include_str!("profiles/house.sql"));
    let (code, _, err) = run(&place, &["cancel", "3", "--yes"]);
    assert_eq!(code, 2);
    assert!(err.contains("give --system, one of"), "{err}");
    let (code, _, err) = run(&place, &["cancel", "3", "--yes", "--system", "agent_queue"]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = run(&place, &["park", "1", "--yes", "--system", "workflow_jobs"]);
    assert_eq!(code, 1);
    assert!(err.contains("workflow_jobs"), "{err}");
}
