//! Keys and news in, state and effects out, without a terminal or a database.

use super::dialog::{Dialog, Stage};
use super::palette::Palette;
use super::state::{App, Detail, Layer, Link, PaneId, Retry, Tone};
use super::strike::Question;
use super::update::{Effect, Msg};
use crate::action::strike::{After, How, Struck, Verdict};
use crate::action::{Choice, Fate, Outcome, Plan, Preview, Progress, Verb};
use crate::app::row::RowId;
use crate::feed::News;
use crate::findings::Report;
use crate::keys::{self, Action, KEYS};
use crate::panes::{fixture, links};
use crate::probe::{ServerTime, Snapshot, State};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use std::collections::BTreeMap;
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

/// What the feed answers to a look at tasks, from the rows on screen.
fn read(app: &App, effects: &[Effect]) -> News {
    let [Effect::Look(n, verb, choice)] = effects else {
        panic!("a look at the tasks: {effects:?}");
    };
    let rows = shown(app).tasks.rows;
    let (asked, tasks): (usize, Vec<_>) = match choice {
        Choice::These(keys) => {
            let here = rows.into_iter().filter(|t| keys.contains(&t.key));
            (keys.len(), here.collect())
        }
        Choice::Matching { .. } => (rows.len(), rows),
    };
    let at = ServerTime::from_epoch(1e9).expect("a time");
    let home = choice.home().expect("a system");
    let preview = Preview::of(*verb, home, (asked, 1000), tasks, &BTreeMap::new(), at);
    News::Preview(*n, Ok(Box::new(preview)))
}

/// Presses a key that writes, and lets the feed answer.
fn ask(app: &mut App, key: &str) {
    let effects = keys(app, key);
    let answer = read(app, &effects);
    news(app, answer);
}

/// The plan that was sent.
fn plan(effects: &[Effect]) -> Plan {
    match effects {
        [Effect::Act(plan)] => plan.as_ref().clone(),
        other => panic!("a write: {other:?}"),
    }
}

fn dialog(app: &App) -> Option<&Dialog> {
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
        retry: Retry::default(),
    };
    keys(&mut app, "R");
    assert!(dialog(&app).is_none() && toasts(&app).contains("no connection"));
}

#[test]
fn the_targets_are_frozen_when_the_dialog_opens() {
    let mut app = ready();
    let seen = shown(&app).tasks.rows[0].clone();
    ask(&mut app, "R");
    let asked = dialog(&app).expect("a dialog").preview.clone();
    let targets = asked.expect("it was read").targets;
    assert_eq!(targets.len(), 1);
    assert_eq!(targets[0].key, seen.key);
    assert_eq!(targets[0].lease_token, seen.lease_token);
    let mut other = shown(&app);
    other.tasks.rows.reverse();
    other.tasks.rows.retain(|t| t.key != seen.key);
    news(&mut app, News::Snapshot(Arc::new(other), Arc::default()));
    let plan = plan(&keys(&mut app, "y"));
    assert_eq!((plan.verb, plan.targets), (Verb::Requeue, targets));
    // the answer takes its time: a second press does nothing
    assert_eq!(keys(&mut app, "yy"), vec![]);
    key(&mut app, KeyCode::Esc);
    // and a stopped program would leave it half-way
    assert_eq!(app.suspend(), vec![]);
    keys(&mut app, "R");
    assert!(toasts(&app).contains("under way"), "{}", toasts(&app));
}

#[test]
fn nothing_is_sent_before_the_tasks_were_read() {
    let mut app = ready();
    let effects = keys(&mut app, "R");
    assert_eq!(dialog(&app).map(|d| d.stage), Some(Stage::Counting));
    assert_eq!(keys(&mut app, "y\n1y"), vec![]);
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    let answer = read(&app, &effects);
    key(&mut app, KeyCode::Esc);
    keys(&mut app, "R");
    news(&mut app, answer);
    assert_eq!(
        dialog(&app).map(|d| d.stage),
        Some(Stage::Counting),
        "an answer to another dialog is not taken"
    );
}

#[test]
fn no_is_the_default_and_more_than_one_must_be_typed() {
    let mut app = ready();
    ask(&mut app, "R");
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    assert!(dialog(&app).is_none(), "Enter is no");
    app.local = false;
    ask(&mut app, "R");
    assert_eq!(
        dialog(&app).expect("a dialog").must_type,
        "1",
        "the host is not this machine"
    );
    assert_eq!(keys(&mut app, "y"), vec![]);
    key(&mut app, KeyCode::Enter);
    assert!(toasts(&app).contains("type 1"), "{}", toasts(&app));
    keys(&mut app, "1");
    plan(&key(&mut app, KeyCode::Enter));
}

#[test]
fn many_need_a_reason_which_goes_into_the_plan() {
    let mut app = ready();
    let mut snapshot = shown(&app);
    let one = snapshot.tasks.rows[0].clone();
    snapshot.tasks.rows = (0..12)
        .map(|n| {
            let mut task = one.clone();
            task.key.id = format!("{n}");
            task
        })
        .collect();
    app.snapshot = Some(Arc::new(snapshot));
    keys(&mut app, "6*");
    ask(&mut app, "R");
    assert_eq!(dialog(&app).map(|d| d.stage), Some(Stage::Reason));
    key(&mut app, KeyCode::Enter);
    assert!(toasts(&app).contains("why"), "{}", toasts(&app));
    keys(&mut app, "provider is back");
    key(&mut app, KeyCode::Enter);
    keys(&mut app, "12");
    let plan = plan(&key(&mut app, KeyCode::Enter));
    assert_eq!(plan.reason.as_deref(), Some("provider is back"));
    let ids: Vec<&str> = plan.targets.iter().map(|t| t.key.id.as_str()).collect();
    assert_eq!(&ids[..3], ["0", "1", "2"], "in key order");
    assert_eq!(&ids[9..], ["9", "10", "11"]);
    // how far it is, then a report that adds up
    let progress = Progress {
        action_id: plan.action_id.clone(),
        asked: 12,
        done: 5,
        changed: 4,
        per_second: 100.0,
        locked: 1,
    };
    news(&mut app, News::Progress(progress));
    let text = dialog(&app).expect("a dialog").lines.join("\n");
    assert!(text.contains("5 of 12 done, 4 changed, 7 left"), "{text}");
    assert_eq!(keys(&mut app, "A"), vec![Effect::Stop]);
    let fate = |outcome: &str| Fate {
        key: plan.targets[0].key.clone(),
        outcome: outcome.into(),
        why: None,
        now_state: None,
    };
    let outcome = Outcome {
        verb: plan.verb,
        action_id: plan.action_id.clone(),
        asked: 12,
        fates: [vec![fate("changed"); 7], vec![fate("locked"); 2]].concat(),
        unknown: 1,
        stopped: Some("stopped on request".into()),
    };
    news(&mut app, News::Outcome(Box::new(outcome)));
    let text = dialog(&app).expect("the report").lines.join("\n");
    for line in [
        "12  asked",
        "7  changed",
        "2  locked",
        "1  unknown",
        "2  not reached",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    keys(&mut app, "y");
    assert!(dialog(&app).is_none() && app.acting.is_none());
}

#[test]
fn the_first_q_during_an_action_never_ends_it() {
    let mut app = ready();
    for round in 1..=2 {
        ask(&mut app, "R");
        let plan = plan(&keys(&mut app, "y"));
        key(&mut app, KeyCode::Esc);
        assert_eq!(keys(&mut app, "q"), vec![], "action {round}");
        assert!(toasts(&app).contains("q again"), "{}", toasts(&app));
        let done = Outcome::nothing(plan.verb, 1, "nothing was written");
        news(&mut app, News::Outcome(Box::new(done)));
    }
    assert_eq!(keys(&mut app, "q"), vec![Effect::Quit]);
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
    ask(&mut app, "X");
    let asked = dialog(&app).expect("cancel may be asked for");
    assert_eq!(asked.must_type, "1", "a running task");
}

#[test]
fn all_that_match_are_asked_of_the_server_by_the_third_star() {
    let mut app = ready();
    keys(&mut app, "6*");
    assert!(!app.marks.is_empty());
    keys(&mut app, "*");
    assert!(toasts(&app).contains("needs a filter"), "{}", toasts(&app));
    key(&mut app, KeyCode::Esc);
    keys(&mut app, "/kind:parse !acme system:agent_queue");
    key(&mut app, KeyCode::Enter);
    keys(&mut app, "**");
    assert!(app.matching.is_some(), "{}", toasts(&app));
    let effects = keys(&mut app, "R");
    let [Effect::Look(_, Verb::Requeue, Choice::Matching { filter, .. })] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(filter.states, [State::Failed]);
    let terms: Vec<_> = filter
        .terms
        .iter()
        .map(|t| (t.field, t.exact, t.not, t.text.as_str()))
        .collect();
    assert_eq!(
        terms,
        [
            (Some("kind"), false, false, "parse"),
            (None, false, true, "acme")
        ]
    );
    key(&mut app, KeyCode::Esc);
    keys(&mut app, "*");
    assert!(app.matching.is_none() && app.marks.is_empty());
}

#[test]
fn the_report_adds_up() {
    let mut app = ready();
    ask(&mut app, "R");
    let plan = plan(&keys(&mut app, "y"));
    let fate = |outcome: &str| Fate {
        key: plan.targets[0].key.clone(),
        outcome: outcome.into(),
        why: None,
        now_state: Some("enqueued".into()),
    };
    let outcome = Outcome {
        verb: plan.verb,
        action_id: plan.action_id.clone(),
        asked: 3,
        fates: vec![fate("changed"), fate("locked"), fate("moved on")],
        unknown: 0,
        stopped: None,
    };
    assert_eq!(
        news(&mut app, News::Outcome(Box::new(outcome))),
        vec![Effect::Poll]
    );
    assert!(dialog(&app).is_none());
    let text = toasts(&app);
    assert!(text.contains("asked 3, 1 changed, skipped 2"), "{text}");
    assert!(text.contains("1 locked by another session"), "{text}");
    assert_eq!(
        app.log
            .iter()
            .filter(|l| l.text.contains("now enqueued"))
            .count(),
        3
    );
}

#[test]
fn a_crash_that_ended_all_sessions_is_told_with_the_return() {
    let mut app = fixture::incident();
    let seen = app.snapshot.clone().expect("data");
    let reason = "terminating connection because of crash of another server process (57P02)";
    let reason = reason.to_string();
    news(
        &mut app,
        News::Lost {
            reason,
            retry_in: 1.0,
        },
    );
    news(&mut app, News::Snapshot(seen, Arc::default()));
    assert!(
        toasts(&app).contains("a server process had crashed"),
        "{}",
        toasts(&app)
    );
}

#[test]
fn a_line_that_should_be_encrypted_is_told_with_its_reason_once() {
    let mut app = fixture::incident();
    let mut server = (**app.snapshot.as_ref().expect("data")).clone();
    let mut said = |app: &mut App, why: Option<&str>| {
        server.server.tls_failed = why.map(String::from);
        news(
            app,
            News::Snapshot(Arc::new(server.clone()), Arc::default()),
        );
        let told =
            |l: &&crate::app::state::LogLine| l.text.starts_with("not encrypted; with TLS: ");
        app.log.iter().filter(told).count()
    };
    assert_eq!(said(&mut app, None), 0);
    assert_eq!(said(&mut app, Some("it has expired")), 1);
    assert_eq!(said(&mut app, Some("it has expired")), 1);
    assert_eq!(said(&mut app, None), 1);
    assert_eq!(said(&mut app, Some("it has expired")), 2);
}

#[test]
fn a_lost_database_leaves_everything_and_is_found_again() {
    let mut app = ready();
    let before = shown(&app);
    let gone = || News::Lost {
        reason: "the server closed the connection".into(),
        retry_in: 0.8,
    };
    assert_eq!(news(&mut app, gone()), vec![]);
    news(&mut app, gone());
    assert_eq!(shown(&app), before);
    assert_eq!(
        app.log
            .iter()
            .filter(|l| l.text.contains("connection lost"))
            .count(),
        1
    );
    let Link::Lost { since, retry, .. } = app.link else {
        panic!("it is lost");
    };
    assert_eq!(retry.failed, 1, "the loss itself was no attempt");
    assert!(app.now - since > 0.5, "lost since the first time");
    news(
        &mut app,
        News::Snapshot(Arc::new(before.clone()), Arc::default()),
    );
    assert_eq!(app.link, Link::Live);
    assert!(toasts(&app).contains("back after"), "{}", toasts(&app));
    assert!(!toasts(&app).contains("restarted"), "{}", toasts(&app));
    news(&mut app, gone());
    let mut restarted = before.clone();
    restarted.server.started_at = before.taken_at.map(|t| t.plus(1.0));
    for _ in 0..2 {
        let data = News::Snapshot(Arc::new(restarted.clone()), Arc::default());
        news(&mut app, data);
    }
    let said = |l: &&crate::app::state::LogLine| l.text.ends_with("s: the server was restarted");
    assert_eq!(app.log.iter().filter(said).count(), 1);
    app.update(app.now + 60.0, Msg::Tick);
    assert!(toasts(&app).contains("restarted"), "{}", toasts(&app));
    news(&mut app, gone());
    assert!(!toasts(&app).contains("back after"), "{}", toasts(&app));
    news(
        &mut app,
        News::Snapshot(Arc::new(restarted.clone()), Arc::default()),
    );
    // a session that was never lost proves nothing either
    restarted.server.started_at = before.taken_at.map(|t| t.plus(2.0));
    for _ in 0..2 {
        let data = News::Snapshot(Arc::new(restarted.clone()), Arc::default());
        news(&mut app, data);
    }
    let said = |l: &&crate::app::state::LogLine| l.text == "the server was restarted";
    assert_eq!(app.log.iter().filter(said).count(), 1);
    assert!(toasts(&app).contains("the server was restarted"));
    let refused = news(&mut app, News::Refused("no such database".into()));
    assert_eq!(refused, vec![Effect::Fail("no such database".into())]);
}

#[test]
fn another_database_gets_none_of_the_old_ones_marks_dialogs_or_endings() {
    let mut app = ready();
    let mut old = shown(&app);
    old.server.database_oid = 16384;
    let report = app.report.clone();
    news(
        &mut app,
        News::Snapshot(Arc::new(old.clone()), report.clone()),
    );
    keys(&mut app, "6*R");
    assert!(!app.marks.is_empty() && !app.layers.is_empty());
    let mut new = old.clone();
    new.server.database_oid = 17000;
    // the ids are the same
    news(
        &mut app,
        News::Snapshot(Arc::new(new.clone()), Arc::default()),
    );
    assert!(app.marks.is_empty() && app.layers.is_empty());
    assert!(app.details.is_empty() && app.matching.is_none());
    let said = "another database of that name answers now";
    assert_eq!(toasts(&app), said, "also where no connection was lost");
    let over = app.log.iter().any(|l| l.text.ends_with(": over"));
    assert!(!over && !report.findings.is_empty());
    keys(&mut app, "*");
    assert!(!app.marks.is_empty());
    news(&mut app, News::Snapshot(Arc::new(new), Arc::default()));
    assert!(!app.marks.is_empty(), "the same one");
}

#[test]
fn a_finding_of_a_system_that_left_is_not_called_over() {
    let mut app = ready();
    let mut without = shown(&app);
    let finding = |f: &&crate::findings::Finding| {
        f.culprit
            .as_ref()
            .is_some_and(|c| c.home() == Some(("agent_queue", "public")))
    };
    let report = app.report.clone();
    let rule = &report.findings.iter().find(finding).expect("one").rule;
    let alone = Report {
        findings: report
            .findings
            .iter()
            .filter(|f| f.rule == *rule)
            .cloned()
            .collect(),
        ..Report::default()
    };
    app.report = Arc::new(alone);
    without.gone = vec!["agent_queue in schema public".into()];
    news(&mut app, News::Snapshot(Arc::new(without), Arc::default()));
    let last = app.log.back().map(|l| l.text.clone());
    assert_eq!(last, Some(format!("{rule}: not known any more")));
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
    let row = links::session_of(&snapshot, blocked.pid);
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
    key(&mut app, KeyCode::Enter);
    keys(&mut app, ":");
    assert_eq!(paste(&mut app, "qX\u{1b}[2J\r\ny"), vec![]);
    assert_eq!(palette(&app).expect("open").input.value(), "qX[2J  y");
    assert_eq!(app.view(app.focus).filter.value(), "a[2Jb");
}

fn palette(app: &App) -> Option<&Palette> {
    match app.layers.last() {
        Some(Layer::Palette(palette)) => Some(palette),
        _ => None,
    }
}

/// What the palette lists, chosen one first.
fn listed(app: &App) -> (Option<Action>, Vec<Action>) {
    let palette = palette(app).expect("a palette");
    let entries = app.palette_entries(palette);
    let chosen = entries.get(palette.at(&entries)).map(|e| e.binding.action);
    (chosen, entries.iter().map(|e| e.binding.action).collect())
}

fn ctrl(app: &mut App, c: char) -> Vec<Effect> {
    let now = app.now + 1.0;
    let event = Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
    app.update(now, Msg::Terminal(event))
}

#[test]
fn the_palette_lists_every_action_and_typing_filters_it() {
    let mut app = ready();
    keys(&mut app, ":");
    let (chosen, all) = listed(&app);
    assert_eq!(all, KEYS.iter().map(|b| b.action).collect::<Vec<_>>());
    assert_eq!(chosen, Some(all[0]));
    let writes: Vec<Action> = KEYS
        .iter()
        .filter(|b| b.risk == keys::Risk::Writes)
        .map(|b| b.action)
        .collect();
    keys(&mut app, "TASK mark");
    assert_eq!(listed(&app).1, [Action::Requeue, Action::Cancel]);
    keys(&mut app, " key:x");
    assert_eq!(listed(&app).1, [Action::Cancel]);
    keys(&mut app, "nothing");
    assert_eq!(listed(&app), (None, vec![]));
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    assert!(palette(&app).is_some(), "there was nothing to run");
    key(&mut app, KeyCode::Esc);
    assert!(app.layers.is_empty());
    keys(&mut app, ":risk:writes");
    assert_eq!(listed(&app).1, writes);
    ctrl(&mut app, 'c');
    assert!(app.layers.is_empty());
}

#[test]
fn the_palette_moves_with_arrows_and_pages_and_stops_at_its_ends() {
    let mut app = ready();
    keys(&mut app, ":");
    let (first, all) = listed(&app);
    key(&mut app, KeyCode::Up);
    ctrl(&mut app, 'p');
    assert_eq!(listed(&app).0, first);
    key(&mut app, KeyCode::Down);
    ctrl(&mut app, 'n');
    assert_eq!(listed(&app).0, Some(all[2]));
    key(&mut app, KeyCode::PageUp);
    assert_eq!(listed(&app).0, first);
    key(&mut app, KeyCode::PageDown);
    assert!(listed(&app).0 > Some(all[2]) || listed(&app).0 != first);
    for _ in 0..20 {
        key(&mut app, KeyCode::PageDown);
    }
    assert_eq!(listed(&app).0.as_ref(), all.last());
    keys(&mut app, "p");
    let (chosen, some) = listed(&app);
    assert_eq!(chosen, Some(some[0]), "typing goes back to the first");
}

#[test]
fn the_palette_runs_what_the_key_would_run_below_it() {
    let mut app = ready();
    keys(&mut app, ":poll now");
    assert_eq!(key(&mut app, KeyCode::Enter), vec![Effect::Poll]);
    assert!(app.layers.is_empty());
    // a write still asks first
    keys(&mut app, ":requeue");
    let effects = key(&mut app, KeyCode::Enter);
    assert!(matches!(effects[..], [Effect::Look(_, Verb::Requeue, _)]));
    assert!(dialog(&app).is_some());
    key(&mut app, KeyCode::Esc);
    // over details it is about their row, and scrolling scrolls them
    key(&mut app, KeyCode::Enter);
    let Some(Layer::Detail { row, .. }) = app.layers.last().cloned() else {
        panic!("details");
    };
    keys(&mut app, ":copy");
    let copied = key(&mut app, KeyCode::Enter);
    assert_eq!(copied, vec![Effect::Copy(row.short())]);
    let cursor = app.cursor_row();
    keys(&mut app, ":key:end");
    key(&mut app, KeyCode::Enter);
    assert!(matches!(app.layers.last(), Some(Layer::Detail { .. })));
    assert_eq!(app.cursor_row(), cursor, "the row below did not move");
    keys(&mut app, ":everything row");
    key(&mut app, KeyCode::Enter);
    assert!(palette(&app).is_some() && toasts(&app).contains("open already"));
}

#[test]
fn the_palette_says_why_not_and_stays_open() {
    let mut app = ready();
    app.allow_writes = false;
    keys(&mut app, ":requeue");
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    assert!(palette(&app).is_some());
    assert!(
        toasts(&app).contains("not now: read-only"),
        "{}",
        toasts(&app)
    );
    app.allow_writes = true;
    key(&mut app, KeyCode::Enter);
    assert!(dialog(&app).is_some(), "possible by now");
}

#[test]
fn why_not_tells_what_stands_in_the_way() {
    let why = |app: &App, action| app.why_not(action).unwrap_or_default();
    let mut app = ready();
    for action in [Action::Requeue, Action::Open, Action::Mark, Action::Copy] {
        assert_eq!(app.why_not(action), None, "{action:?}");
    }
    keys(&mut app, "6G");
    assert_eq!(app.why_not(Action::Down), None, "the end is no reason");
    keys(&mut app, "1");
    assert!(why(&app, Action::Cancel).contains("choose or mark tasks"));
    assert!(why(&app, Action::Mark).contains("only tasks"));
    assert!(why(&app, Action::MarkAll).contains("only tasks"));
    keys(&mut app, "6/no such task");
    key(&mut app, KeyCode::Enter);
    for action in [Action::Open, Action::TasksOf, Action::Blocker, Action::Copy] {
        assert_eq!(why(&app, action), "no row is selected", "{action:?}");
    }
    assert!(why(&app, Action::Requeue).contains("choose or mark tasks"));
    app.marks
        .extend(shown(&app).tasks.rows.first().map(|t| t.key.clone()));
    assert_eq!(app.why_not(Action::Requeue), None, "a marked one will do");
    assert_eq!(app.why_not(Action::Copy), None);
    keys(&mut app, "p");
    assert!(why(&app, Action::Requeue).contains("held"));
    keys(&mut app, "p");
    app.link = Link::Lost {
        reason: "gone".into(),
        since: 0.0,
        retry: Retry::default(),
    };
    assert!(why(&app, Action::Requeue).contains("no connection"));
    let nothing = fixture::connecting();
    assert!(why(&nothing, Action::Hold).contains("no data"));
    assert_eq!(nothing.why_not(Action::Quit), None);
}

#[test]
fn the_row_stays_what_it_was_while_the_palette_is_open() {
    let mut app = ready();
    keys(&mut app, "6:");
    let seen = app.cursor_row().expect("a row");
    let mut snapshot = shown(&app);
    snapshot.tasks.rows.rotate_left(1);
    news(&mut app, News::Snapshot(Arc::new(snapshot), Arc::default()));
    let later = app.now + 300.0;
    app.update(later, Msg::Tick);
    keys(&mut app, "copy");
    assert_eq!(
        key(&mut app, KeyCode::Enter),
        vec![Effect::Copy(seen.short())]
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever is typed: no panic, and no write that was not confirmed in a dialog.
    #[test]
    fn nothing_is_written_without_a_dialog(script in proptest::collection::vec(0usize..1000, 1..60)) {
        let mut app = ready();
        let extra = ["y", "1", "2", "a", "Enter"];
        let names: Vec<_> = KEYS.iter().flat_map(|b| b.keys).chain(&extra).collect();
        for pick in script {
            let name = *names[pick % names.len()];
            let code = match name {
                "Enter" => KeyCode::Enter,
                "Esc" => KeyCode::Esc,
                "Tab" => KeyCode::Tab,
                "S-Tab" => KeyCode::BackTab,
                "Space" => KeyCode::Char(' '),
                name => KeyCode::Char(name.chars().last().unwrap_or('x')),
            };
            let open = dialog(&app).is_some_and(|d| d.stage == Stage::Confirm);
            let effects = key(&mut app, code);
            if let [Effect::Look(..)] = effects[..] {
                let answer = read(&app, &effects);
                news(&mut app, answer);
            }
            let wrote = effects.iter().any(|e| matches!(e, Effect::Act(_)));
            proptest::prop_assert!(!wrote || open, "{name} wrote without a dialog");
        }
    }
}

#[test]
fn the_feed_is_told_who_looks_at_the_failures() {
    let mut app = ready();
    assert_eq!(keys(&mut app, "8"), vec![Effect::Watch(true)]);
    assert_eq!(app.zoom, Some(PaneId::Failures));
    assert_eq!(keys(&mut app, "jp8"), vec![]);
    // in the overview the pane with the focus stays on the screen
    assert_eq!(keys(&mut app, "0"), vec![]);
    assert_eq!(keys(&mut app, "7"), vec![Effect::Watch(false)]);
    key(&mut app, KeyCode::Tab);
    assert_eq!(app.focus, PaneId::Failures);
    // the feed was too busy to hear it
    app.watching = false;
    let now = app.now + 1.0;
    assert_eq!(app.update(now, Msg::Tick), vec![Effect::Watch(true)]);
}

#[test]
fn a_group_of_failures_leads_to_its_tasks() {
    let mut app = ready();
    keys(&mut app, "8");
    let row = app.cursor_row().expect("a group");
    assert!(matches!(&row, RowId::Failures { kind, .. } if kind.as_deref() == Some("parse_scan")));
    keys(&mut app, "t");
    assert_eq!(app.focus, PaneId::Tasks);
    assert_eq!(crate::ui::table::visible(&app, PaneId::Tasks), []);
    keys(&mut app, "8j");
    let group = app.cursor_row().expect("the next group");
    assert!(matches!(&group, RowId::Failures { error, .. } if error.starts_with("ValueError")));
    let mut snapshot = shown(&app);
    for (n, task) in snapshot.tasks.rows.iter_mut().take(3).enumerate() {
        task.state = State::Failed;
        task.kind = Some("parse_contract".into());
        task.last_error = Some(format!(
            "ValueError: no text on {} {n}",
            ["page", "page", "line"][n]
        ));
    }
    let ids: Vec<String> = snapshot.tasks.rows[..2]
        .iter()
        .map(|t| t.key.id.clone())
        .collect();
    news(&mut app, News::Snapshot(Arc::new(snapshot), Arc::default()));
    keys(&mut app, "t");
    let listed = crate::ui::table::visible(&app, PaneId::Tasks);
    let listed: Vec<String> = listed.iter().map(RowId::short).collect();
    assert_eq!(listed, ids);
}

/// Presses ^K on the session of the incident that idles in a transaction, and lets the feed answer.
fn strike_at(app: &mut App) {
    let row = links::session_of(&shown(app), 4711);
    app.go(PaneId::Connections, row.clone());
    assert_eq!(control_k(app), vec![Effect::Fetch(row.clone())]);
    let detail = Detail::Session(Box::new(fixture::backend()));
    news(app, News::Detail(row, Ok(Arc::new(detail))));
}

fn control_k(app: &mut App) -> Vec<Effect> {
    let event = KeyEvent::new(KeyCode::Char('k'), KeyModifiers::CONTROL);
    app.update(app.now + 1.0, Msg::Terminal(Event::Key(event)))
}

fn asked(app: &App) -> Option<&Question> {
    match app.layers.last() {
        Some(Layer::Strike(question)) => Some(question),
        _ => None,
    }
}

#[test]
fn a_session_that_others_wait_for_is_ended_only_by_its_pid() {
    let mut app = ready();
    strike_at(&mut app);
    keys(&mut app, "c");
    assert!(
        toasts(&app).contains("runs no statement"),
        "{}",
        toasts(&app)
    );
    keys(&mut app, "ty");
    key(&mut app, KeyCode::Enter);
    assert!(toasts(&app).contains("type 4711"), "{}", toasts(&app));
    keys(&mut app, "47111");
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    // in the field ^K is the field's: it cuts what is behind the caret
    keys(&mut app, "4711");
    key(&mut app, KeyCode::Home);
    assert_eq!(control_k(&mut app), vec![]);
    keys(&mut app, "4711 stuck since the deploy");
    let effects = key(&mut app, KeyCode::Enter);
    let [Effect::Strike(strike)] = &effects[..] else {
        panic!("{effects:?}");
    };
    let seen = fixture::backend();
    assert_eq!(
        (strike.pid, Some(strike.started_us)),
        (4711, seen.started_us)
    );
    assert_eq!((strike.how, strike.statement_us), (How::Terminate, None));
    assert_eq!(strike.reason.as_deref(), Some("stuck since the deploy"));
    // the answer takes its time: a second press does nothing
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    let struck = Struck {
        strike: strike.as_ref().clone(),
        verdict: Verdict::Signalled(After::Gone),
        unwritten: None,
    };
    assert_eq!(
        news(&mut app, News::Struck(Box::new(struck))),
        vec![Effect::Poll]
    );
    assert!(asked(&app).is_none());
    assert!(
        toasts(&app).contains("terminated 4711 agent-7: gone"),
        "{}",
        toasts(&app)
    );
}

#[test]
fn no_is_the_default_before_a_session_is_ended() {
    let mut app = ready();
    for no in [
        KeyCode::Esc,
        KeyCode::Enter,
        KeyCode::Char('n'),
        KeyCode::Char('q'),
    ] {
        strike_at(&mut app);
        assert_eq!(key(&mut app, no), vec![]);
        assert!(asked(&app).is_none(), "{no:?}");
    }
    strike_at(&mut app);
    keys(&mut app, "t");
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    assert!(asked(&app).is_none(), "an empty field is no");
    // nothing is sent on a view that is not live any more
    strike_at(&mut app);
    keys(&mut app, "t4711");
    app.allow_writes = false;
    assert_eq!(key(&mut app, KeyCode::Enter), vec![]);
    assert!(
        toasts(&app).contains("nothing was done: read-only"),
        "{}",
        toasts(&app)
    );
}

#[test]
fn every_row_that_leads_to_a_session_offers_it() {
    let mut app = ready();
    let mut snapshot = shown(&app);
    snapshot.tasks.rows[0].locked_by_pid = Some(4711);
    app.snapshot = Some(Arc::new(snapshot));
    let holder = links::session_of(&shown(&app), 4711);
    keys(&mut app, "6");
    assert_eq!(control_k(&mut app), vec![Effect::Fetch(holder.clone())]);
    key(&mut app, KeyCode::Esc);
    key(&mut app, KeyCode::Enter);
    assert_eq!(
        control_k(&mut app),
        vec![Effect::Fetch(holder.clone())],
        "its details"
    );
    app.layers.clear();
    let finding = RowId::Finding {
        rule: "idle-in-transaction".into(),
        n: 0,
    };
    app.go(PaneId::Findings, finding);
    assert_eq!(
        control_k(&mut app),
        vec![Effect::Fetch(holder)],
        "its finding"
    );
    app.layers.clear();
    // one that nobody lists is known by its pid only
    let mut snapshot = shown(&app);
    snapshot.tasks.rows[0].locked_by_pid = Some(99);
    app.snapshot = Some(Arc::new(snapshot));
    keys(&mut app, "6");
    let unlisted = RowId::Session {
        pid: 99,
        started_us: 0,
    };
    assert_eq!(control_k(&mut app), vec![Effect::Fetch(unlisted.clone())]);
    news(
        &mut app,
        News::Detail(unlisted, Err("this session has ended".into())),
    );
    assert!(asked(&app).is_none() && toasts(&app).contains("session 99: this session has ended"));
}

#[test]
fn what_is_no_session_or_our_own_is_refused() {
    let mut app = ready();
    let mut snapshot = shown(&app);
    snapshot.tasks.rows[0].locked_by_pid = None;
    app.snapshot = Some(Arc::new(snapshot));
    let own = links::session_of(&shown(&app), 5001);
    let prepared = RowId::Session {
        pid: 0,
        started_us: 0,
    };
    let idle = RowId::Idle {
        application: "api".into(),
        user: "api".into(),
        client: String::new(),
    };
    let task = RowId::Task(shown(&app).tasks.rows[0].key.clone());
    for (row, says) in [
        (own, "jobtop's own"),
        (prepared, "ROLLBACK PREPARED"),
        (idle, "hold no lock"),
        (task, "several sessions share"),
        (RowId::Budget("api".into()), "choose one"),
    ] {
        app.layers.push(Layer::Detail { row, scroll: 0 });
        assert_eq!(control_k(&mut app), vec![]);
        assert!(toasts(&app).contains(says), "{says}: {}", toasts(&app));
        app.layers.clear();
    }
    app.allow_writes = false;
    assert_eq!(control_k(&mut app), vec![]);
    assert!(
        toasts(&app).contains("ending sessions is off"),
        "{}",
        toasts(&app)
    );
}

#[test]
fn the_blocker_is_shown_where_it_is_listed() {
    let mut app = ready();
    let mut snapshot = shown(&app);
    snapshot.tasks.rows[0].locked_by_pid = Some(4711);
    app.snapshot = Some(Arc::new(snapshot.clone()));
    keys(&mut app, "6b");
    assert_eq!(app.focus, PaneId::Waits);
    // nobody waits behind it: the tree does not show it
    snapshot.blocked.clear();
    app.snapshot = Some(Arc::new(snapshot.clone()));
    keys(&mut app, "6b");
    let holder = links::session_of(&snapshot, 4711);
    assert_eq!(
        (app.focus, app.cursor_row()),
        (PaneId::Connections, Some(holder))
    );
    snapshot.tasks.rows[0].locked_by_pid = None;
    snapshot.tasks.rows[0].worker = None;
    app.snapshot = Some(Arc::new(snapshot));
    keys(&mut app, "6b");
    assert!(
        toasts(&app).contains("nobody is seen to hold this row"),
        "{}",
        toasts(&app)
    );
}
