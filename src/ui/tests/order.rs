//! Filter, order, selection: which rows are shown, and that keys act on the row one sees.

use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::panes::fixture;
use crate::ui::table::{current, visible};

fn ids(app: &App) -> Vec<String> {
    visible(app, PaneId::Tasks)
        .into_iter()
        .map(|r| match r {
            RowId::Task(key) => key.id,
            other => format!("{other:?}"),
        })
        .collect()
}

fn filter(text: &str) -> Vec<String> {
    ids(&fixture::filtered(fixture::incident(), PaneId::Tasks, text))
}

#[test]
fn a_filter_wants_all_its_words() {
    let all = ids(&fixture::incident()).len();
    assert_eq!(all, 60);
    assert_eq!(filter("48002"), ["48002"]);
    assert_eq!(filter("TIMEOUT worker-a3"), ["48002"]);
    assert_eq!(filter("kind:scan state:retry"), ["47777"]);
    assert_eq!(filter("TimeoutError: !globex"), ["48002"]);
    assert_eq!(filter("valueerror: page"), ["47702"]);
    assert!(filter("nothing-like-this").is_empty());
    assert_eq!(filter("queue:parser system:agent_queue").len(), all);
    let acme = filter("tenant:acme").len();
    assert_eq!(acme + filter("!tenant:acme").len(), all);
}

#[test]
fn a_sorted_column_has_the_largest_first_and_unknown_last() {
    let mut app = fixture::incident();
    let cost = crate::panes::pane(PaneId::Tasks)
        .columns
        .iter()
        .position(|c| c.name == "$");
    app.views.entry(PaneId::Tasks).or_default().sort = cost;
    assert_eq!(ids(&app)[..3], ["47702", "47777", "48002"]);
    app.views.entry(PaneId::Tasks).or_default().reverse = true;
    assert_eq!(ids(&app)[59], "47702");
}

#[test]
fn the_order_is_kept_for_a_moment() {
    let mut app = fixture::incident();
    let before = visible(&app, PaneId::Tasks);
    let view = app.views.entry(PaneId::Tasks).or_default();
    view.order = before.iter().rev().cloned().collect();
    view.order_until = app.now + 3.0;
    let frozen = visible(&app, PaneId::Tasks);
    assert!(frozen.iter().eq(before.iter().rev()));
    app.now += 3.0;
    assert_eq!(visible(&app, PaneId::Tasks), before);
}

#[test]
fn keys_act_on_the_row_under_the_cursor_or_on_the_first() {
    let app = fixture::cursor(fixture::incident(), PaneId::Tasks, 4);
    assert_eq!(
        current(&app, PaneId::Tasks),
        visible(&app, PaneId::Tasks).get(4).cloned()
    );
    let gone = fixture::cursor(fixture::incident(), PaneId::Tasks, 999);
    assert_eq!(
        current(&gone, PaneId::Tasks),
        visible(&gone, PaneId::Tasks).first().cloned()
    );
    assert_eq!(current(&fixture::empty(), PaneId::Tasks), None);
}

#[test]
fn rows_lead_to_their_tasks() {
    let tasks_of = |of: RowId| {
        let mut app = fixture::incident();
        app.views.entry(PaneId::Tasks).or_default().of = Some(of);
        ids(&app)
    };
    let worker = RowId::Worker {
        system: "agent_queue".into(),
        schema: "public".into(),
        worker: "worker-a3".into(),
    };
    assert_eq!(tasks_of(worker), ["48002"]);
    let tenant = RowId::Spender {
        by: "tenant".into(),
        name: "globex".into(),
    };
    let globex = tasks_of(tenant);
    assert!(globex.contains(&"47777".to_string()) && !globex.contains(&"48002".to_string()));
    let finding = RowId::Finding {
        rule: "idle-in-transaction".into(),
        n: 0,
    };
    assert_eq!(tasks_of(finding), ["48017"]);
}

#[test]
fn rows_lead_to_who_stands_in_the_way() {
    let app = fixture::incident();
    let blocker = |row: &RowId| match crate::panes::links::blocker(&app, row) {
        Some(RowId::Session { pid, .. }) => Some(pid),
        _ => None,
    };
    let tasks = visible(&app, PaneId::Tasks);
    assert_eq!(blocker(&tasks[1]), Some(4711), "a row-locked task");
    assert_eq!(blocker(&tasks[2]), Some(4711), "a task whose worker waits");
    let waiting = visible(&app, PaneId::Waits);
    assert_eq!(
        blocker(&waiting[5]),
        Some(4711),
        "a session deep in the tree"
    );
    let calm = fixture::calm();
    let first = visible(&calm, PaneId::Tasks);
    assert_eq!(crate::panes::links::blocker(&calm, &first[0]), None);
}

#[test]
fn the_blocking_tree_is_a_tree() {
    let app = fixture::incident();
    let table = (crate::panes::pane(PaneId::Waits).table)(&app, crate::ui::table::Part::Whole);
    let names: Vec<&str> = table.sections[0]
        .rows
        .iter()
        .map(|r| r.cells[0].text.as_str())
        .collect();
    assert_eq!(names[0], "4711 agent-7");
    assert_eq!(names[1], "├ 4720 agent-2");
    assert_eq!(names[9], "└ 4728 agent-20");
    assert_eq!(names.len(), 10);
}

#[test]
fn the_queue_of_the_verdict_is_first_then_trouble_then_what_waits() {
    use crate::findings::{Finding, Severity};
    use crate::probe::{Count, State};
    use std::sync::Arc;

    let mut app = fixture::incident();
    let mut snapshot = (**app.snapshot.as_ref().expect("data")).clone();
    snapshot.queues.sort_by(|a, b| a.queue.cmp(&b.queue));
    for (q, ready) in snapshot.queues.iter_mut().zip([3, 700, 20, 9_000, 0]) {
        q.states.insert(State::Ready, Some(Count::exact(ready)));
    }
    let names: Vec<String> = snapshot.queues.iter().map(|q| q.queue.clone()).collect();
    assert_eq!(names, ["crawler", "digests", "mail", "nightly", "parser"]);
    let about = |queue: usize, kind: Option<&str>, severity| Finding {
        rule: "r".into(),
        severity,
        since_s: 1.0,
        sentence: "s".into(),
        culprit: Some(RowId::Queue {
            system: snapshot.queues[queue].system.clone(),
            schema: snapshot.queues[queue].schema.clone(),
            queue: names[queue].clone(),
            kind: kind.map(String::from),
        }),
        explained_by: None,
    };
    let order = |app: &App| -> Vec<String> {
        let rows = visible(app, PaneId::Stages).into_iter().take(5);
        rows.map(|r| match r {
            RowId::Queue { queue, .. } => queue,
            other => format!("{other:?}"),
        })
        .collect()
    };
    let mut report = crate::findings::Report {
        findings: vec![
            about(2, Some("a kind of mail"), Severity::Warning),
            about(4, None, Severity::Critical),
            about(0, None, Severity::Warning),
        ],
        ..Default::default()
    };
    app.snapshot = Some(Arc::new(snapshot.clone()));
    app.report = Arc::new(report.clone());
    assert_eq!(
        order(&app),
        ["mail", "parser", "crawler", "nightly", "digests"]
    );
    report.findings.clear();
    app.report = Arc::new(report);
    // Few more or less move nobody.
    assert_eq!(
        order(&app),
        ["nightly", "digests", "crawler", "mail", "parser"]
    );
}

#[test]
fn kinds_that_are_left_out_are_counted() {
    use std::sync::Arc;
    let mut app = fixture::incident();
    let mut snapshot = (**app.snapshot.as_ref().expect("data")).clone();
    snapshot.queues[0].more_kinds = 7;
    let name = snapshot.queues[0].queue.clone();
    app.snapshot = Some(Arc::new(snapshot));
    let shown = crate::ui::order::shown(&app, PaneId::Stages);
    let rows = &shown.table.sections[1].rows;
    let at = |text: &str| rows.iter().position(|r| r.cells[0].text == text);
    let last = at("└ 7 more kinds").expect("the count");
    assert!(at(&name).is_some_and(|own| own < last), "under {name}");
    assert!(!shown.table.rows().any(|r| r.still), "nothing to point at");
}

#[test]
fn a_lease_without_end_and_one_that_ended_before_all_times_are_told_apart() {
    use crate::probe::{ServerTime, State};
    use std::sync::Arc;
    let mut app = fixture::incident();
    let mut snapshot = (**app.snapshot.as_ref().expect("data")).clone();
    let running = |t: &&mut crate::probe::tasks::Task| t.state == State::Running;
    let mut tasks = snapshot.tasks.rows.iter_mut().filter(running);
    let mut lease = |until: f64| {
        let task = tasks.next().expect("a running task");
        task.lease_until = ServerTime::from_epoch(until);
        RowId::Task(task.key.clone())
    };
    let (endless, over) = (lease(f64::INFINITY), lease(f64::NEG_INFINITY));
    app.snapshot = Some(Arc::new(snapshot));
    let shown = crate::ui::order::shown(&app, PaneId::Tasks);
    let columns = crate::panes::pane(PaneId::Tasks).columns;
    let at = columns
        .iter()
        .position(|c| c.name == "lease")
        .expect("a column");
    let cell = |id: &RowId| {
        let mut rows = shown.table.rows();
        let row = rows.find(|r| r.id == *id).expect("the row");
        row.cells[at].text.clone()
    };
    assert_eq!(
        (cell(&endless).as_str(), cell(&over).as_str()),
        ("no end", "over")
    );
    let lines = crate::panes::detail(&app, &endless).expect("details");
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    assert!(
        text.iter()
            .any(|l| l.starts_with("lease") && l.ends_with("no end")),
        "{text:#?}"
    );
}

#[test]
fn a_small_screen_shows_the_findings_before_the_log_when_they_have_the_focus() {
    let mut app = fixture::incident();
    app.focus = PaneId::Findings;
    app.size = (80, 24);
    let area = ratatui::layout::Rect::new(0, 0, 80, 24);
    let mut buffer = ratatui::buffer::Buffer::empty(area);
    crate::ui::screen(&mut buffer, area, &app);
    let text = super::text_of(&buffer);
    let list = text.split("FINDINGS").nth(1).expect("the pane");
    for f in &app.report.findings {
        let head: String = f.sentence.chars().take(30).collect();
        assert!(list.contains(&head), "{head:?} in\n{text}");
    }
}

#[test]
fn tasks_of_several_systems_show_their_queues_on_a_small_screen() {
    use std::sync::Arc;
    let heading = |app: &App| {
        let shown = crate::ui::order::shown(app, PaneId::Tasks);
        let section = &shown.table.sections[0];
        let fits = crate::ui::table::fit(section, &section.title, 77);
        let names = fits.iter().map(|(at, _)| section.columns[*at].name);
        names.collect::<Vec<_>>()
    };
    let mut app = fixture::incident();
    assert!(heading(&app).contains(&"queue"), "{:?}", heading(&app));
    let mut snapshot = (**app.snapshot.as_ref().expect("data")).clone();
    let other = snapshot.queues.last_mut().expect("a queue");
    other.queue = "parser".into();
    let shown_queue = |snapshot: &crate::probe::Snapshot| {
        let mut app = fixture::incident();
        app.snapshot = Some(Arc::new(snapshot.clone()));
        let shown = crate::ui::order::shown(&app, PaneId::Tasks);
        let row = shown.table.rows().next().expect("a task");
        row.cells[11].text.clone()
    };
    assert_eq!(shown_queue(&snapshot), "agent_queue parser");
    let one = snapshot.queues[0].system.clone();
    snapshot.queues.retain(|q| q.system == one);
    assert_eq!(shown_queue(&snapshot), "parser");
    app.snapshot = Some(Arc::new(snapshot));
    let alone = heading(&app);
    assert!(
        alone.contains(&"$") && !alone.contains(&"queue"),
        "{alone:?}"
    );
}

#[test]
fn tries_are_told_where_they_are_counted_and_of_others_why_not() {
    let app = fixture::incident();
    let shown = crate::ui::order::shown(&app, PaneId::Cost);
    let named = |s: &crate::ui::table::Section| s.columns.iter().any(|c| c.name == "tries");
    let with: Vec<bool> = shown.table.sections.iter().map(named).collect();
    assert_eq!(with, [true, false, false, false, false]);
    for section in &shown.table.sections {
        assert!(
            section
                .rows
                .iter()
                .all(|r| r.cells.len() == section.columns.len())
        );
    }
    let why = |by: &str, name: &str| {
        let (by, name) = (by.into(), name.into());
        let lines = crate::panes::detail(&app, &RowId::Spender { by, name }).expect("details");
        let mut lines = lines.iter().map(ToString::to_string);
        lines.find(|l| l.starts_with("tries")).expect("the line")
    };
    assert!(why("tenant", "acme").ends_with("6.2 attempts a task, last 10m"));
    assert!(why("agent", "contracts").ends_with("n/a: attempts are not counted by agent"));
}
