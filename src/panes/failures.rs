//! The failures pane: failed tasks of a day by kind and by what their errors have in common.

use super::PaneDef;
use super::session::{field, heading, plain};
use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::probe::failures::{FailureGroup, Failures, GROUPS, NO_TEXT, Sample};
use crate::probe::{Bound, Count, ServerTime, Snapshot};
use crate::ui::clean;
use crate::ui::fmt;
use crate::ui::table::{Cell, Column, Part, Row, Section, Table};
use crate::ui::text::{dim, flow, ink, text, wrap};
use crate::ui::theme::Ink;
use ratatui::text::{Line, Span};

/// The pane.
pub static PANE: PaneDef = PaneDef {
    id: PaneId::Failures,
    title: "FAILURES",
    purpose: "Tasks that gave up within a day, by kind and by what their errors have in common.",
    table,
    columns: &COLUMNS,
    head,
    help: &[
        "error      the first 200 characters, with numbers, ids, addresses and quoted values as #",
        "1h 3h 24h  tasks that failed within it; + where more failed than were read",
        "spent      by the tasks counted, all attempts; n/a where the system records no cost",
        "Read every 15 s while this pane is on the screen: at most the newest 5,000 failed tasks.",
    ],
    detail,
};

static COLUMNS: [Column; 10] = [
    Column::words("kind", 10, 22, 0),
    Column::figures("1h", 5, 1),
    Column::figures("3h", 5, 3),
    Column::figures("24h", 6, 1),
    Column::figures("last", 5, 2),
    Column::figures("first", 5, 5),
    Column::figures("spent", 7, 2),
    Column::words("error", 32, 120, 1),
    Column::words("queues", 8, 22, 4),
    Column::words("system", 8, 14, 7),
];

fn table(app: &App, _: Part) -> Table {
    let Some((snapshot, _)) = app.shown() else {
        return Table::default();
    };
    let mut groups: Vec<(&Failures, &FailureGroup)> = snapshot
        .failures
        .iter()
        .flat_map(|f| f.groups.iter().map(move |g| (f, g)))
        .collect();
    let key = |g: &FailureGroup| (g.last_1h.count, g.last_3h.count, g.last_24h.count);
    groups.sort_by_key(|(_, g)| std::cmp::Reverse(key(g)));
    let rows = groups
        .into_iter()
        .map(|(f, g)| row(snapshot, f, g))
        .collect();
    Table {
        sections: vec![
            Section::new("", &COLUMNS, rows)
                .sortable()
                .or(none(snapshot)),
        ],
    }
}

/// What is said where there is no group.
fn none(snapshot: &Snapshot) -> String {
    if let Some(why) = snapshot.no_queue().or(snapshot.unread("failures")) {
        return why;
    }
    if snapshot.failures.is_empty() {
        return "being read".into();
    }
    match snapshot.failures.iter().all(|f| f.unknown.is_some()) {
        true => "n/a".into(),
        false => "no task failed within a day".into(),
    }
}

/// The row of a group.
fn id(f: &Failures, g: &FailureGroup) -> RowId {
    RowId::Failures {
        system: f.system.clone(),
        schema: f.schema.clone(),
        kind: g.kind.clone(),
        error: g.error.clone(),
    }
}

fn row(snapshot: &Snapshot, f: &Failures, g: &FailureGroup) -> Row {
    let ago = |t: Option<ServerTime>| snapshot.taken_at?.since(t?).map(|s| s.max(0.0));
    let count = |c: Count| {
        let shown = fmt::count(Some(c));
        Cell::figure(shown, c.count as f64).ink_if(c.count == 0, Ink::Dim)
    };
    let (last, first) = (ago(g.last_seen), ago(g.first_seen));
    let fresh = g.last_1h.count > 0;
    Row::new(
        id(f, g),
        vec![
            Cell::maybe(g.kind.as_deref()),
            count(g.last_1h).ink_if(fresh, Ink::Strong),
            count(g.last_3h),
            count(g.last_24h),
            Cell::figure_or(last.map_or("-".into(), fmt::coarse), last),
            Cell::figure_or(first.map_or("-".into(), fmt::coarse), first),
            match g.usd {
                Some(usd) => Cell::figure(fmt::usd(usd), usd.dollars()),
                None => Cell::nothing("n/a"),
            },
            Cell::word(&g.error),
            Cell::word(g.queues.join(", ")),
            Cell::word(&f.system).ink(Ink::Dim),
        ],
    )
    .find("schema", Some(&f.schema))
    .calm(!fresh)
}

/// `5,000+ failed within a day, complete from 07:12   73 groups   read 12s ago`, then what is not known.
fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    let Some((snapshot, _)) = app.shown() else {
        return Vec::new();
    };
    let width = usize::from(width);
    let all = &snapshot.failures;
    let mut lines = vec![Line::from(flow(summary(snapshot), 3, width))];
    let probe = snapshot.probes.iter().find(|p| p.name == "failures");
    if let Some(error) = probe.and_then(|p| p.error.as_deref()) {
        let line = Line::from(ink(format!("not read: {error}"), Ink::Warn));
        lines.extend(wrap(&line, width, 5));
    }
    let several = all.len() > 1;
    let name = |f: &Failures| match several {
        true => format!("{} ({}) ", f.system, f.schema),
        false => String::new(),
    };
    for f in all {
        let why = f.unknown.iter().map(|why| format!("n/a: {why}"));
        let cut = (f.found as usize > GROUPS)
            .then(|| format!("the {GROUPS} largest groups of {}", f.found));
        for note in why.chain(f.notes.iter().cloned()).chain(cut) {
            let line = Line::from(vec![text(name(f)), dim(note)]);
            lines.extend(wrap(&line, width, 5));
        }
    }
    lines
}

fn summary(snapshot: &Snapshot) -> Vec<Vec<Span<'static>>> {
    let all = &snapshot.failures;
    let known: Vec<Count> = all.iter().filter_map(|f| f.read).collect();
    if known.is_empty() {
        return vec![vec![dim(none(snapshot))]];
    }
    let mut sum = Count::exact(0);
    for c in known {
        sum.count = sum.count.saturating_add(c.count);
        if c.bound != Bound::Exact {
            sum.bound = c.bound;
        }
    }
    let mut first = vec![text(fmt::count(Some(sum))), dim(" failed within a day")];
    let from = all.iter().filter_map(|f| f.complete_from);
    if let Some(from) = from.reduce(|a, b| if b > a { b } else { a }) {
        first.push(dim(format!(
            ", complete from {} UTC",
            fmt::clock(Some(from))
        )));
    }
    let groups: u64 = all.iter().map(|f| f.found).sum();
    let mut parts = vec![first, vec![dim(fmt::plural(groups, "group", "groups"))]];
    let read = all
        .iter()
        .filter_map(|f| snapshot.taken_at?.since(f.read_at?));
    if let Some(age) = read.reduce(f64::max) {
        parts.push(vec![dim(format!("read {} ago", fmt::coarse(age.max(0.0))))]);
    }
    parts
}

/// Everything about a group: what it counts, and its newest tasks with their errors as they were written.
fn detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
    let RowId::Failures { .. } = row else {
        return super::task::detail(app, row);
    };
    let (snapshot, _) = app.shown()?;
    let mut all = snapshot.failures.iter();
    let (f, g) = all.find_map(|f| Some((f, f.groups.iter().find(|g| id(f, g) == *row)?)))?;
    let ago = |t: Option<ServerTime>| snapshot.taken_at?.since(t?);
    let seen = |t: Option<ServerTime>| {
        let ago = ago(t).map_or("-".into(), |s| format!("{} ago", fmt::duration(s.max(0.0))));
        format!("{ago}, {}", t.map_or("-".into(), |t| t.to_string()))
    };
    let within = |c: Count, window: &str| format!("{} within {window}", fmt::count(Some(c)));
    let mut lines = vec![
        field("error", vec![ink(&g.error, Ink::Strong)]),
        plain("kind", g.kind.as_deref().unwrap_or("-")),
        plain("system", format!("{}, schema {}", f.system, f.schema)),
        plain("queues", g.queues.join(", ")),
        plain(
            "failed",
            [
                within(g.last_1h, "1h"),
                within(g.last_3h, "3h"),
                within(g.last_24h, "24h"),
            ]
            .join(", "),
        ),
        plain("first seen", seen(g.first_seen)),
        plain("last seen", seen(g.last_seen)),
        plain("spent", g.usd.map_or("n/a: not recorded".into(), fmt::usd)),
    ];
    lines.extend(heading("NEWEST"));
    for s in &g.samples {
        lines.extend(sample(s, ago(s.at)));
    }
    lines.push(Line::default());
    lines.push(Line::from(dim(
        "t shows those of its tasks that are listed: the ones that failed within the last hour, at most 25 a system.",
    )));
    Some(lines)
}

fn sample(s: &Sample, ago: Option<f64>) -> Vec<Line<'static>> {
    let ago = ago.map_or("-".into(), |a| format!("{} ago", fmt::duration(a.max(0.0))));
    let mut lines = vec![Line::from(vec![
        text(&s.key.id),
        dim(format!("  {}  {ago}", s.key.queue)),
    ])];
    let error = s.error.as_deref().unwrap_or(NO_TEXT);
    lines.extend(clean::lines(error).map(|l| Line::from(text(format!("  {l}")))));
    lines
}
