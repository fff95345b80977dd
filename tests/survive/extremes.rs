//! What a person may ask for, and how fast it answers.

use crate::common::{self, place::Place};
use crate::help::{answers, line_with, live, quit, row, watching};
use std::time::{Duration, Instant};

#[test]
fn a_key_is_answered_without_waiting_for_the_next_refresh() {
    let place = Place::new("keys");
    let mut pty = watching(&place.url, &[]);
    let begun = Instant::now();
    for _ in 0..20 {
        answers(&mut pty);
    }
    let spent = begun.elapsed();
    let said = format!("help, {:.0} ms a key", spent.as_secs_f64() * 25.0);
    row(
        "40 keys between two refreshes",
        &said,
        "never away",
        "nothing",
    );
    // each would wait for half a second on average, until something else is drawn
    assert!(spent < Duration::from_secs(10), "{spent:?}");
    quit(&mut pty);
}

#[test]
fn extremes_are_refused_or_carried_out() {
    let place = Place::new("extremes");
    for bad in ["0", "0.4", "61", "-1", "nan", "inf", "1e400", "one"] {
        let (code, out, err) = place.run(&[&place.url, &format!("--interval={bad}"), "--once"]);
        assert_eq!((code, out.as_str()), (2, ""), "{bad}: {err}");
        let sentence = err.lines().next().unwrap_or_default();
        assert!(sentence.contains("interval"), "{bad}: {err}");
    }
    row(
        "--interval 0, 61, -1, nan",
        "interval is …: give 0.5 to 60 seconds",
        "does not start",
        "nothing",
    );
    let file = common::cluster().root().join("nobody.toml");
    let budgets = "[[budgets]]\nname = \"nobody\"\nlimit = 0\napplications = [\"*\"]\n";
    std::fs::write(&file, budgets).expect("written");
    let file = file.display().to_string();
    let mut pty = watching(&place.url, &["--config", &file, "--interval", "60"]);
    pty.keys("1");
    let screen = pty.wait("the budget", |s| {
        s.contains("nobody") && s.contains("of 0") || s.contains("/0")
    });
    for bad in ["NaN", "inf%", "inf %"] {
        assert!(!screen.contains(bad), "{screen}");
    }
    answers(&mut pty);
    let said = line_with(&screen, "nobody");
    row("a budget of 0", &said, "never away", "nothing");
    // from the slowest to the fastest, at once
    pty.keys("0");
    for _ in 0..9 {
        pty.keys("+");
    }
    let screen = pty.wait("the fastest", |s| live(s) && s.contains("LIVE 0.5s"));
    assert!(screen.contains("parser"));
    place.sql("SET search_path = agent_queue; SELECT enqueue('hurried', 'parse')");
    pty.wait_within(Duration::from_millis(500 * 5), "new task", |s| {
        s.contains("hurried")
    });
    row(
        "--interval 60, then ten times +",
        "LIVE 0.5s",
        "at once",
        "nothing",
    );
    quit(&mut pty);
}
