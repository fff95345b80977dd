//! Everything about a queue, or about one kind of its tasks.

use super::common::{Drain, Stages, drain, flow, queue_of};
use super::session::{field, heading, plain};
use crate::app::row::RowId;
use crate::app::state::App;
use crate::probe::Snapshot;
use crate::probe::queues::Queue;
use crate::probe::stages::{Stage, StageName};
use crate::probe::{Bound, State};
use crate::ui::fmt;
use crate::ui::text::{Align, dim, ink, pad, text};
use crate::ui::theme::Ink;
use ratatui::text::Line;

/// A queue, or one kind within it: depth, pace, every stage, what is not known and why.
pub fn detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
    let RowId::Queue { kind, .. } = row else {
        return None;
    };
    let (snapshot, report) = app.shown()?;
    let q = queue_of(snapshot, row)?;
    let mut lines = vec![
        field("queue", vec![ink(&q.queue, Ink::Strong)]),
        plain("system", format!("{}, schema {}", q.system, q.schema)),
    ];
    if let Some(kind) = kind {
        lines.push(field("kind", vec![ink(kind, Ink::Strong)]));
    }
    for f in report
        .findings
        .iter()
        .filter(|f| f.culprit.as_ref() == Some(row))
    {
        lines.push(field(
            "finding",
            vec![ink(&f.sentence, Ink::severity(f.severity))],
        ));
    }
    if let Some(k) = q.kinds.iter().find(|k| Some(&k.kind) == kind.as_ref()) {
        lines.push(plain("ready", k.ready.to_string()));
        lines.push(plain("running", k.running.to_string()));
        lines.push(plain("oldest ready", fmt::age(k.oldest_ready_s)));
        lines.push(plain(
            "last claim",
            k.last_claim_s
                .map_or("none within the last hour".into(), |s| {
                    format!("{} ago", fmt::duration(s))
                }),
        ));
    } else {
        lines.extend(depth(q));
    }
    lines.extend(heading("STAGES"));
    lines.extend(stages(snapshot, q, kind.as_deref()));
    let missing = flow(snapshot, q).and_then(|f| f.unknown.as_deref());
    if !q.notes.is_empty() || missing.is_some() {
        lines.extend(heading("NOT KNOWN HERE"));
        let notes = q.notes.iter().map(String::as_str).chain(missing);
        lines.extend(notes.map(|n| Line::from(text(n))));
    }
    Some(lines)
}

fn depth(q: &Queue) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for state in State::ALL {
        let count = q.count(state);
        let note = match count.map(|c| c.bound) {
            Some(Bound::AtLeast) => "  counting stopped there",
            Some(Bound::Estimate) => "  an estimate of the planner",
            Some(Bound::Exact) if state.is_final() => "  within the window",
            _ => "",
        };
        lines.push(field(
            state.name(),
            vec![text(fmt::count(count)), dim(note)],
        ));
    }
    let per_min = |r: Option<f64>| format!("{} a minute", fmt::rate(r));
    lines.push(plain(
        "limit",
        q.limit
            .map_or("none".into(), |l| format!("{l} may run at once")),
    ));
    lines.push(plain("row-locked", format!("at least {}", q.locked)));
    lines.push(plain("oldest ready", fmt::age(q.oldest_ready_s)));
    lines.push(plain("arrivals", per_min(q.in_per_min)));
    lines.push(plain("finished", per_min(q.finished_per_min)));
    lines.push(plain("failed tries", per_min(q.failed_attempts_per_min)));
    lines.push(plain(
        "gave up, 1h",
        q.failed_1h.map_or("n/a".into(), |n| n.to_string()),
    ));
    lines.push(plain("last claim", fmt::age(q.last_claim_s)));
    lines.push(plain(
        "last arrival",
        format!(
            "{}; longest gap {} in {}",
            fmt::age(q.last_arrival_s),
            fmt::age(q.longest_gap_s),
            fmt::duration(q.arrival_history_s)
        ),
    ));
    lines.push(plain(
        "over usual",
        q.over_usual
            .map_or("n/a: no kind has a usual p95 yet".into(), |n| {
                format!("{n} of {} running", q.over_usual_of)
            }),
    ));
    lines.push(plain(
        "drain",
        match drain(q) {
            Drain::Empty => "nothing is ready".into(),
            Drain::In(s) => format!("in {} at this pace", fmt::duration(s)),
            Drain::Never => "never: more comes in than goes out".into(),
            Drain::Unknown => "n/a: the pace is not known".into(),
        },
    ));
    if q.overdue_retryable > 0 {
        lines.push(field(
            "overdue",
            vec![ink(
                format!(
                    "{} retries are due and nobody claims them",
                    q.overdue_retryable
                ),
                Ink::Warn,
            )],
        ));
    }
    lines
}

fn stages(snapshot: &Snapshot, q: &Queue, kind: Option<&str>) -> Vec<Line<'static>> {
    const WIDTHS: [(usize, Align); 7] = [
        (22, Align::Left),
        (6, Align::Left),
        (7, Align::Right),
        (7, Align::Right),
        (7, Align::Right),
        (7, Align::Right),
        (9, Align::Right),
    ];
    let line = |values: [String; 7], label: Ink| {
        let parts: Vec<String> = values
            .iter()
            .zip(WIDTHS)
            .map(|(v, (w, align))| pad(&crate::ui::clean::clean(v), w, align))
            .collect();
        Line::from(ink(parts.join(" "), label))
    };
    let names = ["kind", "stage", "n", "p50", "p95", "max", "p50 10m"];
    let mut lines = vec![line(names.map(String::from), Ink::Dim)];
    let kinds: Vec<Option<&str>> = match kind {
        Some(kind) => vec![Some(kind)],
        None => std::iter::once(None)
            .chain(q.kinds.iter().map(|k| Some(k.kind.as_str())))
            .collect(),
    };
    let stages = Stages::of(snapshot);
    for kind in kinds {
        for name in [
            StageName::Wait,
            StageName::Start,
            StageName::Run,
            StageName::Total,
        ] {
            let label = kind.unwrap_or("(all)").to_string();
            match stages.get(q, kind, name) {
                Some(s) => {
                    lines.push(line(figures(label, s), Ink::Text));
                    if let Some(why) = &s.unknown {
                        lines.push(Line::from(dim(format!("  n/a: {why}"))));
                    }
                }
                None if kind.is_none() => lines.push(Line::from(dim(format!(
                    "{label:<22} {:<6} n/a: no task finished within the window",
                    word(name)
                )))),
                None => {}
            }
        }
    }
    lines
}

fn word(name: StageName) -> &'static str {
    match name {
        StageName::Wait => "wait",
        StageName::Start => "start",
        StageName::Run => "run",
        StageName::Total => "total",
    }
}

fn figures(label: String, s: &Stage) -> [String; 7] {
    [
        label,
        word(s.stage).into(),
        fmt::short(s.n),
        fmt::stage(s.p50_s),
        fmt::stage(s.p95_s),
        fmt::stage(s.max_s),
        fmt::stage(s.recent_p50_s),
    ]
}
