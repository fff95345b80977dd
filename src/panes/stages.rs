//! The stages pane: every queue's depth, pace, limit and time per stage, then its kinds.

use super::PaneDef;
use super::common::{Drain, Stages, about_queue, accused, busiest, drain, queue_row, severity};
use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::findings::{Report, Severity};
use crate::probe::queues::{Kind, Queue};
use crate::probe::stages::{Stage, StageName};
use crate::probe::{Bound, Count, State};
use crate::ui::fmt;
use crate::ui::table::{Cell, Column, Part, Row, Section, Table};
use crate::ui::text::{dim, flow, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::Line;

/// The pane.
pub static PANE: PaneDef = PaneDef {
    id: PaneId::Stages,
    title: "STAGES",
    purpose: "Each queue: depth, pace, limit, time per stage, forecast; then its kinds.",
    table,
    columns: &QUEUES,
    head,
    help: &[
        "in/m done/m  tasks created and finished a minute, over five minutes",
        "locked       ready rows that a transaction holds (at least)",
        "oldest       how long the oldest ready task has been due",
        "wait         eligible to claimed     run   started to finished     total   created to finished",
        "over usual   running tasks beyond their kind's usual p95, of those that have one",
        "drain        when the ready tasks are gone at this pace; never: more comes in than goes out",
        "n/a          not recorded by this system; Enter says why",
    ],
    detail: super::about::detail,
};

static QUEUES: [Column; 20] = [
    Column::words("queue", 12, 24, 0),
    Column::words("system", 11, 14, 6),
    Column::figures("in/m", 5, 5),
    Column::figures("done/m", 6, 4),
    Column::figures("ready", 7, 1),
    Column::figures("locked", 6, 3),
    Column::figures("oldest", 6, 2),
    Column::figures("running", 7, 1),
    Column::figures("wait p50", 8, 5),
    Column::figures("p95", 6, 5),
    Column::figures("start p50", 9, 10),
    Column::figures("run p50", 7, 5),
    Column::figures("p95", 6, 5),
    Column::figures("total p50", 9, 7),
    Column::figures("p95", 6, 10),
    Column::figures("over usual", 10, 3),
    Column::figures("retry", 5, 6),
    Column::figures("failed 1h", 9, 7),
    Column::figures("drain", 6, 2),
    Column::words("why", 14, 20, 6),
];

static KINDS: [Column; 14] = [
    Column::words("stages by kind", 16, 40, 0),
    Column::figures("ready", 6, 2),
    Column::figures("running", 7, 2),
    Column::figures("oldest", 6, 3),
    Column::figures("last claim", 10, 4),
    Column::figures("wait p50", 8, 1),
    Column::figures("p95", 6, 2),
    Column::figures("start p50", 9, 5),
    Column::figures("run p50", 7, 1),
    Column::figures("p95", 6, 2),
    Column::figures("max", 6, 5),
    Column::figures("total p50", 9, 3),
    Column::figures("p95", 6, 4),
    Column::words("run, last 10m", 13, 16, 4),
];

fn table(app: &App, part: Part) -> Table {
    let Some((snapshot, report)) = app.shown() else {
        return Table::default();
    };
    let mut queues: Vec<&Queue> = snapshot.queues.iter().collect();
    let first = accused(snapshot, report).next().map(queue_row);
    // Nothing but trouble and a backlog of another size moves a queue: rows that follow their figures jump each second.
    queues.sort_by_cached_key(|q| {
        let size = (q.n(State::Ready) / 100)
            .checked_ilog10()
            .map_or(0, |n| n + 1);
        let is_first = first.as_ref() == Some(&queue_row(q));
        std::cmp::Reverse((is_first, grave(report, q), size))
    });
    let stages = Stages::of(snapshot);
    let rows = queues.iter().map(|q| queue(&stages, report, q)).collect();
    let section = Section::new("", &QUEUES, rows)
        .sortable()
        .or(snapshot.no_queue().unwrap_or_default());
    Table {
        sections: vec![section],
    }
    .and(part, || {
        Section::new("", &KINDS, kinds(&stages, report, &queues))
    })
}

/// Each queue's own line, and below it its kinds.
fn kinds(stages: &Stages, report: &Report, queues: &[&Queue]) -> Vec<Row> {
    let mut kinds = Vec::new();
    for q in queues {
        kinds.push(whole(stages, q));
        let last = q.kinds.len().saturating_sub(1);
        let each = q.kinds.iter().enumerate();
        let more = q.more_kinds > 0;
        kinds.extend(each.map(|(n, k)| kind(stages, report, q, k, n == last && !more)));
        if more {
            let left = fmt::plural(u64::from(q.more_kinds), "more kind", "more kinds");
            let cell = Cell::word(format!("└ {left}")).ink(Ink::Dim);
            kinds.push(Row::new(queue_row(q), vec![cell]).still());
        }
    }
    kinds
}

fn grave(report: &Report, q: &Queue) -> Option<Severity> {
    about_queue(report, q).first().map(|f| f.severity)
}

fn counted(count: Option<Count>) -> Cell {
    match count {
        Some(c) if c.count == 0 => Cell::figure("0", 0.0).ink(Ink::Dim),
        Some(c) => Cell::figure(fmt::count(Some(c)), c.count as f64),
        None => Cell::nothing("n/a"),
    }
}

fn queue(stages: &Stages, report: &Report, q: &Queue) -> Row {
    let id = queue_row(q);
    let grave = grave(report, q);
    let rate = |r: Option<f64>| match r {
        Some(n) => Cell::figure(fmt::rate(r), n).ink_if(n < 0.05, Ink::Dim),
        None => Cell::nothing("n/a"),
    };
    let time = |name: StageName, p95: bool| {
        let found = stages.get(q, None, name);
        let value = found.and_then(|s| if p95 { s.p95_s } else { s.p50_s });
        match (value, found) {
            (Some(v), _) => Cell::figure(fmt::duration(v), v),
            (None, Some(s)) if s.unknown.is_none() => Cell::nothing("-"),
            _ => Cell::nothing("n/a"),
        }
    };
    let running = q.count(State::Running);
    let full = q.limit.is_some_and(|l| q.n(State::Running) >= u64::from(l));
    let over = match q.over_usual {
        Some(0) => Cell::figure(format!("0 of {}", q.over_usual_of), 0.0).ink(Ink::Dim),
        Some(n) => {
            let bad = q.over_usual_of >= 5 && n * 2 >= q.over_usual_of;
            Cell::figure(format!("{n} of {}", q.over_usual_of), f64::from(n)).ink_if(bad, Ink::Warn)
        }
        None => Cell::nothing("n/a"),
    };
    let stalled = q.finished_per_min.is_some_and(|r| r < 0.05) && q.n(State::Ready) > 0;
    Row::new(
        id,
        vec![
            Cell::word(&q.queue),
            Cell::word(&q.system).ink(Ink::Dim),
            rate(q.in_per_min),
            rate(q.finished_per_min).ink_if(stalled, Ink::Bad),
            counted(q.count(State::Ready))
                .ink_if(grave.is_some() && q.n(State::Ready) > 0, Ink::Strong),
            counted(Some(Count::exact(u64::from(q.locked)))),
            Cell::figure_or(fmt::age(q.oldest_ready_s), q.oldest_ready_s),
            match (running, q.limit) {
                (Some(c), Some(l)) => {
                    Cell::figure(format!("{}/{l}", c.count), c.count as f64).ink_if(full, Ink::Warn)
                }
                (count, _) => counted(count),
            },
            time(StageName::Wait, false),
            time(StageName::Wait, true),
            time(StageName::Start, false),
            time(StageName::Run, false),
            time(StageName::Run, true),
            time(StageName::Total, false),
            time(StageName::Total, true),
            over,
            counted(q.count(State::Retryable)),
            match q.failed_1h {
                Some(n) => counted(Some(Count::exact(u64::from(n)))),
                None => Cell::nothing("n/a"),
            },
            forecast(q),
            why(report, q),
        ],
    )
    .severity(grave)
    .find("schema", Some(&q.schema))
    .calm(grave.is_none_or(|s| s == Severity::Info))
}

/// The forecast as a cell.
fn forecast(q: &Queue) -> Cell {
    match drain(q) {
        Drain::Empty => Cell::nothing("-"),
        Drain::In(s) => Cell::figure(fmt::duration(s), s),
        Drain::Never => Cell::figure("never", f64::MAX).ink(Ink::Bad),
        Drain::Unknown => Cell::nothing("n/a"),
    }
}

/// What the gravest finding about a queue is called, or what its own figures say.
fn why(report: &Report, q: &Queue) -> Cell {
    if q.paused {
        return Cell::word("paused").ink(Ink::Warn);
    }
    if let Some(f) = about_queue(report, q).first() {
        return Cell::word(&f.rule).ink(Ink::severity(f.severity));
    }
    let full = q.limit.is_some_and(|l| q.n(State::Running) >= u64::from(l));
    let idle = q.finished_per_min.is_some_and(|r| r < 0.05);
    if full && idle {
        Cell::word("slots held").ink(Ink::Warn)
    } else if full && q.n(State::Ready) > 0 {
        Cell::word("at its limit")
    } else if q.overdue_retryable > 0 {
        Cell::word(format!(
            "{} retries overdue",
            fmt::short(u64::from(q.overdue_retryable))
        ))
        .ink(Ink::Warn)
    } else {
        match q.last_arrival_s.filter(|s| *s > 60.0) {
            Some(s) => Cell::word(format!("last in {}", fmt::duration(s))).ink(Ink::Dim),
            None => Cell::nothing(""),
        }
    }
}

/// A queue's own line above its kinds: its other figures stand in the list of queues.
fn whole(stages: &Stages, q: &Queue) -> Row {
    let mut cells = vec![Cell::word(&q.queue).ink(Ink::Strong)];
    cells.extend((0..4).map(|_| Cell::nothing("")));
    cells.extend(times(stages, q, None));
    Row::new(queue_row(q), cells)
        .find("system", Some(&q.system))
        .still()
}

fn kind(stages: &Stages, report: &Report, q: &Queue, k: &Kind, last: bool) -> Row {
    let id = RowId::Queue {
        system: q.system.clone(),
        schema: q.schema.clone(),
        queue: q.queue.clone(),
        kind: Some(k.kind.clone()),
    };
    let grave = severity(report, &id);
    let name = if k.kind.is_empty() { "-" } else { &k.kind };
    let mut cells = vec![
        Cell::word(format!("{} {name}", if last { "└" } else { "├" })),
        counted(Some(Count {
            count: u64::from(k.ready),
            bound: q.count(State::Ready).map_or(Bound::Exact, |c| c.bound),
        })),
        counted(Some(Count::exact(u64::from(k.running)))),
        Cell::figure_or(fmt::age(k.oldest_ready_s), k.oldest_ready_s),
        match k.last_claim_s {
            Some(s) => Cell::figure(fmt::duration(s), s),
            None => Cell::figure("over 1h", f64::MAX).ink_if(k.ready > 0, Ink::Warn),
        },
    ];
    cells.extend(times(stages, q, Some(&k.kind)));
    Row::new(id, cells)
        .severity(grave)
        .find("system", Some(&q.system))
        .find("queue", Some(&q.queue))
        .calm(grave.is_none())
}

/// Time per stage, and where the run time is heading.
fn times(stages: &Stages, q: &Queue, kind: Option<&str>) -> [Cell; 9] {
    let of = |name| stages.get(q, kind, name);
    let time = |found: Option<&Stage>, pick: fn(&Stage) -> Option<f64>| {
        let value = found.and_then(pick);
        let known = found.is_some_and(|s| s.unknown.is_none());
        Cell::figure_or(
            if known {
                fmt::age(value)
            } else {
                fmt::stage(value)
            },
            value,
        )
    };
    let [wait, start, run, total] = [
        StageName::Wait,
        StageName::Start,
        StageName::Run,
        StageName::Total,
    ]
    .map(of);
    let trend = match run.and_then(|s| Some((s.recent_p50_s?, s.p50_s?))) {
        Some((now, usual)) if usual > 0.0 && now >= usual * 1.25 => {
            let times = now / usual;
            Cell::figure(format!("↑ {} x{times:.1}", fmt::duration(now)), times)
                .ink_if(times >= 2.0, Ink::Warn)
        }
        Some((now, usual)) if now <= usual * 0.75 => {
            Cell::figure(format!("↓ {}", fmt::duration(now)), now / usual)
        }
        Some((now, _)) => Cell::figure(format!("→ {}", fmt::duration(now)), 1.0).ink(Ink::Dim),
        None => Cell::nothing("n/a"),
    };
    [
        time(wait, |s| s.p50_s),
        time(wait, |s| s.p95_s),
        time(start, |s| s.p50_s),
        time(run, |s| s.p50_s),
        time(run, |s| s.p95_s),
        time(run, |s| s.max_s),
        time(total, |s| s.p50_s),
        time(total, |s| s.p95_s),
        trend,
    ]
}

fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    let Some((snapshot, _)) = app.shown() else {
        return Vec::new();
    };
    let n = snapshot.queues.len();
    let systems: std::collections::BTreeSet<&str> =
        snapshot.queues.iter().map(|q| q.system.as_str()).collect();
    let mut groups = vec![vec![
        text(fmt::plural(n as u64, "queue", "queues")),
        dim(match systems.len() {
            0 | 1 => String::new(),
            n => format!(" of {n} systems"),
        }),
    ]];
    let paused = snapshot.queues.iter().filter(|q| q.paused).count();
    if paused > 0 {
        groups.push(vec![ink(format!("{paused} paused"), Ink::Warn)]);
    }
    groups.push(vec![dim(format!("window {}m", app.config.window_minutes))]);
    let mut lines = vec![Line::from(flow(groups, 3, usize::from(width)))];
    if let Some(queue) = busiest(app) {
        lines.push(Line::default());
        lines.extend(crate::ui::flow::lines(snapshot, queue, width));
    }
    lines
}
