//! Everything about a worker, or about one who spends.

use super::chains::Chains;
use super::common::{NO_END, no_end, session, session_name};
use super::session::{field, heading, plain};
use crate::app::row::RowId;
use crate::app::state::App;
use crate::probe::State;
use crate::ui::fmt;
use crate::ui::text::{dim, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::Line;

/// A worker: what it holds, its pace, its clock, its session.
pub fn worker(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
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
        None if no_end(w.next_expiry) => plain("next expiry", NO_END),
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
pub fn spender(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
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
            s.tries_per_task.filter(|_| by == "tenant").map_or_else(
                || match by.as_str() {
                    "tenant" => "n/a: counted while two of five attempts fail".into(),
                    _ => format!("n/a: attempts are not counted by {by}"),
                },
                |n| format!("{n:.1} attempts a task, last 10m"),
            ),
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
