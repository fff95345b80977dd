//! Keys and news in, state and effects out, without a terminal or a database.

use super::state::{App, Layer, Link, PaneId, Tone};
use super::update::{Effect, Msg};
use crate::action::{Fate, Outcome, Verb};
use crate::app::row::RowId;
use crate::feed::News;
use crate::findings::Report;
use crate::keys::KEYS;
use crate::panes::fixture;
use crate::probe::{Snapshot, State};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use std::sync::Arc;

fn key(app: &mut App, code: KeyCode) -> Vec<Effect> {
    let now = app.now + 1.0;
    let event = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
    app.update(now, Msg::Terminal(event))
}

fn keys(app: &mut App, text: &str) -> Vec<Effect> {
    text.chars()
        .flat_map(|c| key(app, KeyCode::Char(c)))
        .collect()
}

fn news(app: &mut App, news: News) -> Vec<Effect> {
    let now = app.now + 1.0;
    app.update(now, Msg::Feed(news))
}

/// The incident with one failed task on top, writes allowed.
fn ready() -> App {
    let mut app = fixture::incident();
    app.allow_writes = true;
    app.local = true;
    let mut snapshot = shown(&app);
    let task = &mut snapshot.tasks.rows[0];
    task.state = State::Failed;
    task.native_state = "failed".into();
    app.snapshot = Some(Arc::new(snapshot));
    app.focus = PaneId::Tasks;
    app
}

fn shown(app: &App) -> Snapshot {
    app.snapshot.as_deref().cloned().expect("a snapshot")
}

fn toasts(app: &App) -> String {
    let texts: Vec<&str> = app.toasts.iter().map(|t| t.text.as_str()).collect();
    texts.join("\n")
}

fn dialog(app: &App) -> Option<&super::state::Dialog> {
    match app.layers.last() {
        Some(Layer::Confirm(dialog)) => Some(dialog),
        _ => None,
    }
}

#[test]
fn escape_closes_one_thing_at_a_time_and_never_quits() {
    let mut app = ready();
    keys(&mut app, "6/parse");
    key(&mut app, KeyCode::Enter);
    keys(&mut app, " ?");
    assert!(!app.marks.is_empty() && app.layers.len() == 1);
    key(&mut app, KeyCode::Esc);
    assert!(app.layers.is_empty() && !app.marks.is_empty());
    key(&mut app, KeyCode::Esc);
    assert!(app.marks.is_empty());
    assert_eq!(app.view(PaneId::Tasks).filter.value(), "parse");
    key(&mut app, KeyCode::Esc);
    assert_eq!(app.view(PaneId::Tasks).filter.value(), "");
    for _ in 0..5 {
        assert_eq!(key(&mut app, KeyCode::Esc), vec![]);
    }
    assert_eq!(app.zoom, None);
    assert_eq!(keys(&mut app, "q"), vec![Effect::Quit]);
}

#[test]
fn a_write_needs_permission_a_live_view_and_a_connection() {
    let mut app = ready();
    app.allow_writes = false;
    keys(&mut app, "R");
    assert!(dialog(&app).is_none() && toasts(&app).contains("--allow-writes"));
    app.allow_writes = true;
    keys(&mut app, "pR");
    assert!(
        dialog(&app).is_none() && toasts(&app).contains("held"),
        "{}",
        toasts(&app)
    );
    keys(&mut app, "p");
    app.link = Link::Lost {
        reason: "gone".into(),
        since: 0.0,
        retry_at: 1.0,
    };
    keys(&mut app, "R");
    assert!(dialog(&app).is_none() && toasts(&app).contains("no connection"));
}

#[test]
fn the_targets_are_frozen_when_the_dialog_opens() {
    let mut app = ready();
    let seen = shown(&app).tasks.rows[0].clone();
    keys(&mut app, "R");
    let plan = dialog(&app).expect("a dialog").plan.clone();
    assert_eq!(plan.verb, Verb::Requeue);
    assert_eq!(plan.targets.len(), 1);
    assert_eq!(plan.targets[0].key, seen.key);
    assert_eq!(plan.targets[0].lease_token, seen.lease_token);
    let mut other = shown(&app);
    other.tasks.rows.reverse();
    other.tasks.rows.retain(|t| t.key != seen.key);
    news(&mut app, News::Snapshot(Arc::new(other), Arc::default()));
    let effects = keys(&mut app, "y");
    assert_eq!(effects, vec![Effect::Act(Box::new(plan))]);
    // the answer takes its time: a second press does nothing
    assert_eq!(keys(&mut app, "yy"), vec![]);
}

#[test]
fn no_is_the_default_and_more_than_one_must_be_typed() {
    let mut app = ready();
    keys(&mut app, "R");
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    assert!(dialog(&app).is_none(), "Enter is no");
    app.local = false;
    keys(&mut app, "R");
    assert_eq!(
        dialog(&app).expect("a dialog").must_type,
        "1",
        "the host is not this machine"
    );
    assert_eq!(keys(&mut app, "y"), vec![]);
    key(&mut app, KeyCode::Enter);
    assert!(toasts(&app).contains("type 1"), "{}", toasts(&app));
    keys(&mut app, "1");
    let effects = key(&mut app, KeyCode::Enter);
    assert!(matches!(effects[..], [Effect::Act(_)]), "{effects:?}");
}

#[test]
fn a_live_lease_is_never_requeued() {
    let mut app = ready();
    let mut snapshot = shown(&app);
    let task = &mut snapshot.tasks.rows[0];
    task.state = State::Running;
    task.stuck = None;
    app.snapshot = Some(Arc::new(snapshot));
    keys(&mut app, "R");
    assert!(
        dialog(&app).is_none() && toasts(&app).contains("live lease"),
        "{}",
        toasts(&app)
    );
    keys(&mut app, "X");
    let asked = dialog(&app).expect("cancel may be asked for");
    assert_eq!(asked.must_type, "1", "a running task");
}

#[test]
fn the_report_adds_up() {
    let mut app = ready();
    keys(&mut app, "R");
    let mut plan = dialog(&app).expect("a dialog").plan.clone();
    keys(&mut app, "y");
    let target = plan.targets[0].clone();
    plan.targets = vec![target.clone(), target.clone(), target];
    let fate = |outcome: &str| Fate {
        key: plan.targets[0].key.clone(),
        outcome: outcome.into(),
        why: None,
        now_state: Some("enqueued".into()),
    };
    let outcome = Outcome {
        plan: plan.clone(),
        result: Ok(vec![fate("changed"), fate("locked"), fate("moved on")]),
    };
    assert_eq!(
        news(&mut app, News::Outcome(Box::new(outcome))),
        vec![Effect::Poll]
    );
    assert!(dialog(&app).is_none());
    let text = toasts(&app);
    assert!(text.contains("asked 3, 1 changed, skipped 2"), "{text}");
    assert!(text.contains("1 row locked by another session"), "{text}");
    assert_eq!(
        app.log
            .iter()
            .filter(|l| l.text.contains("now enqueued"))
            .count(),
        3
    );
}

#[test]
fn a_lost_database_leaves_everything_and_is_found_again() {
    let mut app = ready();
    let before = shown(&app);
    let lost = News::Lost {
        reason: "the server closed the connection".into(),
        retry_in: 0.8,
    };
    assert_eq!(news(&mut app, lost.clone()), vec![]);
    news(&mut app, lost);
    assert_eq!(shown(&app), before);
    assert_eq!(
        app.log
            .iter()
            .filter(|l| l.text.contains("connection lost"))
            .count(),
        1
    );
    let Link::Lost { since, .. } = app.link else {
        panic!("it is lost");
    };
    assert!(app.now - since > 0.5, "lost since the first time");
    news(&mut app, News::Snapshot(Arc::new(before), Arc::default()));
    assert_eq!(app.link, Link::Live);
    assert!(toasts(&app).contains("connected again"));
    let refused = news(&mut app, News::Refused("no such database".into()));
    assert_eq!(refused, vec![Effect::Fail("no such database".into())]);
}

#[test]
fn a_marked_row_that_vanishes_loses_its_mark_and_says_so() {
    let mut app = ready();
    keys(&mut app, "6*");
    let marked = app.marks.len();
    assert!(marked > 1);
    let mut snapshot = shown(&app);
    let gone = snapshot.tasks.rows.remove(0);
    news(&mut app, News::Snapshot(Arc::new(snapshot), Arc::default()));
    assert_eq!(app.marks.len(), marked - 1);
    assert!(!app.marks.contains(&gone.key));
    assert!(toasts(&app).contains("1 marked task left the list"));
}

#[test]
fn a_key_acts_on_the_row_that_was_seen() {
    let mut app = ready();
    keys(&mut app, "6");
    let seen = app.cursor_row().expect("a row");
    let mut snapshot = shown(&app);
    snapshot.tasks.rows.rotate_left(1);
    news(&mut app, News::Snapshot(Arc::new(snapshot), Arc::default()));
    assert_eq!(app.cursor_row(), Some(seen.clone()));
    key(&mut app, KeyCode::Enter);
    assert!(matches!(app.layers.last(), Some(Layer::Detail { row, .. }) if *row == seen));
    key(&mut app, KeyCode::Esc);
    let later = app.now + 60.0;
    app.update(later, Msg::Tick);
    assert_ne!(
        app.cursor_row(),
        Some(seen),
        "nobody is there: back to the top"
    );
}

#[test]
fn the_blocker_and_the_tasks_of_a_row_are_one_key_away() {
    let mut app = ready();
    let snapshot = shown(&app);
    let blocked = &snapshot.blocked[0];
    let waits = snapshot
        .sessions
        .iter()
        .find(|s| s.pid == Some(blocked.pid));
    let row = waits.and_then(|s| s.row_id()).expect("a session");
    app.go(PaneId::Waits, row);
    keys(&mut app, "b");
    let cursor = app.cursor_row();
    let expected = blocked.blocked_by[0];
    assert!(
        matches!(cursor, Some(RowId::Session { pid, .. }) if pid == expected),
        "{cursor:?}"
    );
    keys(&mut app, "t");
    assert_eq!(app.focus, PaneId::Tasks);
    assert!(app.view(PaneId::Tasks).of.is_some());
}

#[test]
fn warnings_stay_until_a_key_and_news_pass() {
    let mut app = ready();
    app.toast(Tone::Info, "news");
    app.toast(Tone::Error, "trouble");
    let later = app.now + 7.0;
    app.update(later, Msg::Tick);
    assert_eq!(toasts(&app), "trouble");
    keys(&mut app, "j");
    assert_eq!(toasts(&app), "");
    assert!(app.log.iter().any(|l| l.text == "trouble"));
}

#[test]
fn findings_that_come_and_go_are_logged_once() {
    let mut app = ready();
    let report: Report = (*app.report).clone();
    let snapshot = Arc::new(shown(&app));
    for _ in 0..3 {
        news(&mut app, News::Snapshot(snapshot.clone(), Arc::default()));
    }
    for _ in 0..3 {
        let news_ = News::Snapshot(snapshot.clone(), Arc::new(report.clone()));
        news(&mut app, news_);
    }
    let rule = &report.findings[0].rule;
    let lines = |what: &str| app.log.iter().filter(|l| l.text.starts_with(what)).count();
    assert_eq!(lines(&format!("{rule}: over")), 1);
    assert_eq!(lines(&format!("{rule}: ")), 2, "it came again once");
}

#[test]
fn findings_come_first_wherever_the_cursor_stood_in_the_log() {
    let mut app = ready();
    let report = app.report.clone();
    app.report = Arc::default();
    app.log.push_back(super::state::LogLine {
        n: 7,
        clock: "14:00:00".into(),
        tone: Tone::Info,
        text: "something happened".into(),
    });
    keys(&mut app, "7");
    key(&mut app, KeyCode::Down);
    assert!(matches!(app.cursor_row(), Some(RowId::Log(_))));
    keys(&mut app, "67");
    app.report = report;
    assert!(matches!(app.cursor_row(), Some(RowId::Finding { .. })));
}

#[test]
fn paste_goes_into_text_fields_only() {
    let mut app = ready();
    let paste = |app: &mut App, text: &str| {
        let now = app.now + 0.1;
        app.update(now, Msg::Terminal(Event::Paste(text.into())))
    };
    assert_eq!(paste(&mut app, "qX\ny"), vec![]);
    assert!(app.layers.is_empty());
    keys(&mut app, "/");
    paste(&mut app, "a\u{1b}[2Jb\u{202e}");
    assert_eq!(app.view(app.focus).filter.value(), "a[2Jb");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever is typed: no panic, and no write that was not confirmed in a dialog.
    #[test]
    fn nothing_is_written_without_a_dialog(script in proptest::collection::vec(0usize..48, 1..60)) {
        let mut app = ready();
        let extra = ["y", "1", "2", "a", "Enter"];
        for pick in script {
            let name = KEYS.iter().flat_map(|b| b.keys).chain(&extra).nth(pick % 48).copied().unwrap_or("x");
            let code = match name {
                "Enter" => KeyCode::Enter,
                "Esc" => KeyCode::Esc,
                "Tab" => KeyCode::Tab,
                "S-Tab" => KeyCode::BackTab,
                "Space" => KeyCode::Char(' '),
                name => KeyCode::Char(name.chars().last().unwrap_or('x')),
            };
            let open = dialog(&app).is_some_and(|d| !d.busy);
            let effects = key(&mut app, code);
            let wrote = effects.iter().any(|e| matches!(e, Effect::Act(_)));
            proptest::prop_assert!(!wrote || open, "{name} wrote without a dialog");
        }
    }
}
