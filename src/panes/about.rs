//! Everything about a queue, a worker, or one who spends.

use super::chains::Chains;
use super::common::{Drain, drain, flow, queue_of, session, session_name, stage};
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
pub fn queue_detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
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
    for kind in kinds {
        for name in [
            StageName::Wait,
            StageName::Start,
            StageName::Run,
            StageName::Total,
        ] {
            let label = kind.unwrap_or("(all)").to_string();
            match stage(snapshot, q, kind, name) {
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

/// A worker: what it holds, its pace, its clock, its session.
pub fn worker_detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
    let RowId::Worker {
        system,
        schema,
        worker,
    } = row
    else {
        return super::task::detail(app, row);
    };
    let (snapshot, _) = app.shown()?;
    let w = snapshot
        .workers
        .iter()
        .find(|w| w.system == *system && w.schema == *schema && w.worker == *worker)?;
    let mut lines = vec![
        field("worker", vec![ink(&w.worker, Ink::Strong)]),
        plain("system", format!("{system}, schema {schema}")),
        plain(
            "version",
            w.version.as_deref().unwrap_or("n/a: not recorded"),
        ),
        plain(
            "holds",
            fmt::plural(u64::from(w.holds), "running task", "running tasks"),
        ),
        plain(
            "done",
            format!(
                "{} attempts a minute, over ten minutes",
                fmt::rate(w.done_per_min)
            ),
        ),
        plain(
            "failed",
            w.fail_share
                .map_or("n/a: fewer than 5 attempts".into(), fmt::percent),
        ),
        plain(
            "clock",
            w.clock_skew_s.map_or("n/a: no claim seen yet".into(), |s| {
                format!(
                    "{} against the server's, from {} claims",
                    fmt::duration(s),
                    w.clock_samples
                )
            }),
        ),
        plain(
            "heartbeat",
            w.heartbeat_s
                .map_or("n/a".into(), |s| format!("{} ago", fmt::duration(s))),
        ),
    ];
    lines.push(match w.next_expiry_s {
        Some(s) if s < 0.0 => field(
            "next expiry",
            vec![ink(format!("{} overdue", fmt::duration(-s)), Ink::Bad)],
        ),
        Some(s) => plain("next expiry", format!("in {}", fmt::duration(s))),
        None => plain("next expiry", "-"),
    });
    if let Some(s) = w.absent_s {
        lines.push(plain(
            "session",
            format!("once seen, absent for {}", fmt::duration(s)),
        ));
    }
    lines.extend(heading("SESSIONS"));
    let own: Vec<_> = snapshot
        .sessions
        .iter()
        .filter(|s| s.application == *worker)
        .collect();
    if own.is_empty() {
        lines.push(Line::from(dim(
            "No session of that name. Workers may give theirs back while they work: it proves nothing.",
        )));
    }
    let chains = Chains::of(snapshot);
    for s in own {
        let root = s.pid.map(|p| (p, chains.root_of(p)));
        let waits = root.filter(|(p, root)| p != root).map(|(_, root)| root);
        let behind = waits.map_or(String::new(), |root| {
            let name = session(snapshot, root).map_or("", session_name);
            format!("  waits behind {root} {name}")
        });
        lines.push(Line::from(vec![
            text(
                s.pid
                    .map_or_else(|| format!("x{}", s.count), |p| p.to_string()),
            ),
            dim(format!(
                "  {} {}",
                s.state.as_deref().unwrap_or("hidden"),
                fmt::age(s.state_s)
            )),
            ink(behind, Ink::Warn),
        ]));
    }
    lines.extend(heading("TASKS"));
    let held = snapshot.tasks.rows.iter().filter(|t| {
        t.worker.as_deref() == Some(worker) && t.key.system == *system && t.state == State::Running
    });
    let listed = lines.len();
    for t in held.take(40) {
        lines.push(Line::from(vec![
            text(&t.key.id),
            dim(format!(
                "  {}  running {}",
                t.kind.as_deref().unwrap_or("-"),
                fmt::age(t.in_state_s)
            )),
        ]));
    }
    if listed == lines.len() {
        lines.push(Line::from(dim("none of them is among the tasks listed")));
    }
    Some(lines)
}

/// An agent, tenant, application or model and what it spends.
pub fn spender_detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
    let RowId::Spender { by, name } = row else {
        return super::task::detail(app, row);
    };
    let (snapshot, _) = app.shown()?;
    let cost = snapshot.cost.as_ref()?;
    let list = match by.as_str() {
        "tenant" => &cost.by_tenant,
        "agent" => &cost.by_agent,
        "application" => &cost.by_application,
        _ => &cost.by_model,
    };
    let s = list.iter().find(|s| s.name == *name)?;
    let share = if cost.usd.0 > 0 {
        s.usd.dollars() / cost.usd.dollars()
    } else {
        0.0
    };
    let lost = if s.usd.0 > 0 {
        s.usd_failed_attempts.dollars() / s.usd.dollars()
    } else {
        0.0
    };
    Some(vec![
        field(by, vec![ink(name, Ink::Strong)]),
        plain(
            "burns",
            format!("{}/h over the last ten minutes", fmt::usd(s.usd_per_hour)),
        ),
        plain(
            "usual",
            s.usual_usd_per_hour
                .map_or("n/a: fewer than 50 records".into(), |u| {
                    format!("{}/h", fmt::usd(u))
                }),
        ),
        plain(
            "spent",
            format!(
                "{} in {}, {} of all",
                fmt::usd(s.usd),
                fmt::span(cost.window_s),
                fmt::percent(share)
            ),
        ),
        plain(
            "lost",
            format!(
                "{} to failed attempts, {}",
                fmt::usd(s.usd_failed_attempts),
                fmt::percent(lost)
            ),
        ),
        plain(
            "tries",
            s.tries_per_task
                .map_or("n/a".into(), |n| format!("{n:.1} attempts a task")),
        ),
        plain(
            "tokens",
            format!(
                "{} in, {} out",
                fmt::number(s.input_tokens),
                fmt::number(s.output_tokens)
            ),
        ),
        plain(
            "unpriced",
            format!("{} tokens without a price", fmt::number(s.unpriced_tokens)),
        ),
        Line::default(),
        Line::from(dim("t lists its live tasks.")),
    ])
}
