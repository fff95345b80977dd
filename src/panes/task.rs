//! Everything about a task: what its row says, its attempts, errors, payload, and what its session waits for.

use super::chains::Chains;
use super::common::{NO_END, no_end, session, session_name};
use super::links::NO_HOLDER;
use super::session::{field, heading, plain};
use super::tasks::{lost_with_it, poison};
use crate::app::row::RowId;
use crate::app::state::{App, Detail};
use crate::probe::tasks::{Attempt, Task, TaskDetail, TaskKey, Text};
use crate::probe::{ServerTime, Snapshot, State};
use crate::ui::clean;
use crate::ui::fmt;
use crate::ui::text::{Align, dim, ink, pad, text};
use crate::ui::theme::Ink;
use ratatui::text::{Line, Span};

/// The details of a task: its row at once, the rest when it has been fetched.
pub fn detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
    let RowId::Task(key) = row else {
        return None;
    };
    let (snapshot, _) = app.shown()?;
    let listed = find(snapshot, key);
    Some(match app.details.get(row) {
        Some(Ok(d)) => match d.as_ref() {
            Detail::Task(d) => whole(snapshot, d),
            Detail::Session(_) => return None,
        },
        Some(Err(why)) => {
            let mut lines = listed.map_or_else(Vec::new, |t| facts(snapshot, t, Vec::new()));
            lines.push(Line::default());
            lines.push(Line::from(ink(why, Ink::Warn)));
            lines
        }
        None => {
            let mut lines = listed.map_or_else(
                || vec![plain("task", &key.id), plain("system", &key.system)],
                |t| facts(snapshot, t, Vec::new()),
            );
            lines.push(Line::default());
            lines.push(Line::from(dim(
                "attempts, payload and result are being fetched",
            )));
            lines
        }
    })
}

fn find<'a>(snapshot: &'a Snapshot, key: &TaskKey) -> Option<&'a Task> {
    snapshot.tasks.rows.iter().find(|t| t.key == *key)
}

fn whole(snapshot: &Snapshot, d: &TaskDetail) -> Vec<Line<'static>> {
    let mut more = Vec::new();
    if let Some(c) = d.confidence {
        more.push(plain("confidence", format!("{c:.2}")));
    }
    for (name, value) in &d.more {
        more.push(plain(&clean::clean(name), value));
    }
    // The list's first line of the error gives way to the whole of it.
    let mut task = d.task.clone();
    if d.error.is_some() {
        task.last_error = None;
    }
    let mut lines = facts(snapshot, &task, more);
    if !d.batch.is_empty() {
        lines.extend(batch(&d.task, &d.batch));
    }
    lines.extend(heading("ATTEMPTS"));
    lines.extend(attempts(d));
    for (title, part) in [
        ("ERROR", &d.error),
        ("PAYLOAD", &d.payload),
        ("RESULT", &d.result),
    ] {
        if let Some(part) = part {
            lines.extend(blob(title, part));
        }
    }
    lines
}

fn facts(snapshot: &Snapshot, t: &Task, more: Vec<Line<'static>>) -> Vec<Line<'static>> {
    let now = snapshot.taken_at;
    let since = |t: Option<ServerTime>| now?.since(t?);
    let mut state = vec![ink(
        if t.state == State::Other {
            t.native_state.as_str()
        } else {
            t.state.name()
        },
        Ink::Strong,
    )];
    if t.state.name() != t.native_state {
        state.push(dim(format!(" (its own word: {})", t.native_state)));
    }
    if let Some(s) = t.in_state_s {
        state.push(dim(format!(" for {}", fmt::duration(s))));
    }
    let mut lines = vec![
        field("task", vec![ink(&t.key.id, Ink::Strong)]),
        plain(
            "queue",
            format!(
                "{} ({}, schema {})",
                t.key.queue, t.key.system, t.key.schema
            ),
        ),
        plain("kind", t.kind.as_deref().unwrap_or("-")),
        field("state", state),
    ];
    if let Some(rule) = &t.stuck {
        lines.push(field("stuck", vec![ink(rule, Ink::Bad)]));
    }
    if let Some(p) = poison(snapshot, t) {
        let span = fmt::duration(p.over_s);
        let on = fmt::plural(u64::from(p.workers), "worker", "workers");
        let what = format!("{} on {on} within {span}, none finished", lost_with_it(p));
        lines.push(field("poison", vec![ink(what, Ink::Bad)]));
    }
    if let Some(s) = since(t.cancel_requested_at) {
        lines.push(field(
            "cancel",
            vec![ink(
                format!("asked for {} ago, not acknowledged", fmt::duration(s)),
                Ink::Warn,
            )],
        ));
    }
    let tries = match (t.attempt, t.max_attempts) {
        (Some(a), Some(m)) => format!("{a} of {m}"),
        (Some(a), None) => a.to_string(),
        _ => "n/a".into(),
    };
    let token = t
        .lease_token
        .map_or(String::new(), |t| format!("   lease token {t}"));
    lines.push(plain("attempt", format!("{tries}{token}")));
    lines.push(plain("worker", t.worker.as_deref().unwrap_or("-")));
    if no_end(t.lease_until) {
        lines.push(field("lease", vec![ink(NO_END, Ink::Warn)]));
    } else if let Some(left) = t.lease_until.zip(now).and_then(|(u, n)| u.since(n)) {
        lines.push(if left < 0.0 {
            field(
                "lease",
                vec![ink(
                    format!("expired {} ago", fmt::duration(-left)),
                    Ink::Bad,
                )],
            )
        } else {
            plain("lease", format!("{} left", fmt::duration(left)))
        });
    }
    if let Some(s) = since(t.heartbeat_at) {
        lines.push(plain("heartbeat", format!("{} ago", fmt::duration(s))));
    }
    lines.extend(waits(snapshot, t));
    lines.push(plain(
        "spent",
        t.cost_usd
            .map_or_else(|| "n/a: not recorded".into(), fmt::usd),
    ));
    for (label, value) in [
        ("agent", &t.agent),
        ("tenant", &t.tenant),
        ("application", &t.application),
        ("batch", &t.batch),
    ] {
        if let Some(value) = value {
            lines.push(plain(label, value));
        }
    }
    if let Some(p) = t.priority {
        lines.push(plain("priority", p.to_string()));
    }
    lines.extend(more);
    lines.extend(heading("TIMES"));
    lines.extend(times(t, now));
    if let Some(e) = &t.last_error {
        lines.extend(heading("LAST ERROR"));
        lines.push(Line::from(text(e)));
    }
    lines
}

/// The session that holds its row, and what the session of its worker waits for.
fn waits(snapshot: &Snapshot, t: &Task) -> Vec<Line<'static>> {
    let who = |pid: i32| {
        session(snapshot, pid).map_or(format!("pid {pid}"), |s| {
            let state = s.state.as_deref().unwrap_or("hidden");
            format!(
                "pid {pid} {} ({state} {})",
                session_name(s),
                fmt::age(s.state_s)
            )
        })
    };
    let mut lines = Vec::new();
    match t.locked_by_pid {
        Some(pid) => lines.push(field("row locked by", vec![ink(who(pid), Ink::Bad)])),
        None if t.stuck.is_some() => lines.push(field("row locked by", vec![dim(NO_HOLDER)])),
        None => {}
    }
    let Some(worker) = t.worker.as_deref() else {
        return lines;
    };
    let own = snapshot.sessions.iter().filter(|s| s.application == worker);
    let waiting = own
        .filter_map(|s| s.pid)
        .find_map(|pid| snapshot.blocked.iter().find(|b| b.pid == pid));
    lines.extend(waiting.map(|b| {
        field(
            "its session",
            vec![
                text(format!(
                    "waits {} for Lock {} behind ",
                    fmt::duration(b.waiting_s),
                    b.lock_type
                )),
                ink(who(Chains::of(snapshot).root_of(b.pid)), Ink::Bad),
            ],
        )
    }));
    lines
}

/// Each moment, how long ago it was, and the stage that it ended.
fn times(t: &Task, now: Option<ServerTime>) -> Vec<Line<'static>> {
    let rows = [
        ("created", t.created_at, None, ""),
        ("due", t.eligible_at, t.created_at, "delay"),
        (
            "claimed",
            t.claimed_at,
            t.eligible_at.or(t.created_at),
            "wait",
        ),
        ("started", t.started_at, t.claimed_at, "start"),
        ("finished", t.finished_at, t.started_at, "run"),
    ];
    rows.into_iter()
        .filter_map(|(label, at, before, stage)| {
            let at = at?;
            let mut spans = vec![text(pad(&moment(at), 24, Align::Left))];
            if let Some(ago) = now.and_then(|n| n.since(at)) {
                spans.push(dim(if ago >= 0.0 {
                    format!("  {:>7} ago", fmt::duration(ago))
                } else {
                    format!("  in {:>8}", fmt::duration(-ago))
                }));
            }
            match before.and_then(|b| at.since(b)) {
                Some(s) if s >= 0.0 && !stage.is_empty() => {
                    spans.push(dim(format!("   {stage} ")));
                    spans.push(text(fmt::duration(s)));
                }
                Some(_) if !stage.is_empty() => {
                    spans.push(dim(format!("   {stage} n/a: clocks differ")))
                }
                _ => {}
            }
            Some(field(label, spans))
        })
        .collect()
}

fn moment(t: ServerTime) -> String {
    t.to_utc().map_or_else(
        || t.to_string(),
        |t| t.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

/// One line an attempt, and its error below it.
fn attempts(d: &TaskDetail) -> Vec<Line<'static>> {
    if d.attempts.is_empty() {
        return vec![Line::from(dim(
            "this system keeps no attempts, or there was none",
        ))];
    }
    let columns: [(&str, usize, Align); 8] = [
        ("try", 3, Align::Right),
        ("outcome", 10, Align::Left),
        ("worker", 12, Align::Left),
        ("claimed", 8, Align::Left),
        ("start", 6, Align::Right),
        ("run", 6, Align::Right),
        ("tokens", 7, Align::Right),
        ("$", 8, Align::Right),
    ];
    let line = |values: [String; 8], label: Ink| {
        let cells = values.iter().zip(&columns);
        let parts: Vec<String> = cells
            .map(|(v, (_, w, align))| pad(&clean::clean(v), *w, *align))
            .collect();
        Line::from(ink(parts.join("  "), label))
    };
    let mut lines = vec![line(columns.map(|(name, ..)| name.to_string()), Ink::Dim)];
    for a in &d.attempts {
        lines.push(line(attempt(a), Ink::Text));
        let ids = [("run", &a.run_id), ("trace", &a.trace_id)];
        let ids: Vec<Span<'static>> = ids
            .into_iter()
            .filter_map(|(name, id)| {
                Some([dim(format!("{name} ")), text(format!("{}  ", id.as_ref()?))])
            })
            .flatten()
            .collect();
        if !ids.is_empty() {
            lines.push(Line::from([vec![Span::raw("     ")], ids].concat()));
        }
        if let Some(e) = &a.error {
            lines.push(Line::from(vec![Span::raw("     "), ink(e, Ink::Warn)]));
        }
    }
    lines
}

fn attempt(a: &Attempt) -> [String; 8] {
    let between = |from: Option<ServerTime>, to: Option<ServerTime>| match (from, to) {
        (Some(f), Some(t)) => match t.since(f) {
            Some(s) if s >= 0.0 => fmt::duration(s),
            _ => "n/a".into(),
        },
        _ => "-".into(),
    };
    let tokens = match (a.input_tokens, a.output_tokens) {
        (None, None) => "n/a".into(),
        (i, o) => fmt::short(i.unwrap_or(0).saturating_add(o.unwrap_or(0))),
    };
    [
        a.attempt.map_or_else(|| "-".into(), |n| n.to_string()),
        a.outcome.clone().unwrap_or_else(|| "open".into()),
        a.worker.clone().unwrap_or_else(|| "-".into()),
        a.claimed_at
            .map_or_else(|| "-".into(), |t| fmt::clock(Some(t))),
        between(a.claimed_at, a.started_at),
        between(a.started_at.or(a.claimed_at), a.finished_at),
        tokens,
        a.cost_usd.map_or_else(|| "n/a".into(), fmt::usd),
    ]
}

fn batch(t: &Task, states: &[(State, u64)]) -> Vec<Line<'static>> {
    let sum = |states: &mut dyn Iterator<Item = &(State, u64)>| {
        states.fold(0u64, |sum, (_, n)| sum.saturating_add(*n))
    };
    let all = sum(&mut states.iter());
    let done = sum(&mut states.iter().filter(|(s, _)| s.is_final()));
    let mut lines = heading("BATCH").to_vec();
    lines.push(Line::from(vec![
        text(format!("{} ", t.batch.as_deref().unwrap_or("-"))),
        dim(format!(
            "{} of {} finished  ",
            fmt::number(done),
            fmt::number(all)
        )),
        ink(fmt::bar(done as f64, all as f64, 30), Ink::Flow),
    ]));
    let parts = states.iter().filter(|(_, n)| *n > 0);
    let parts = parts.flat_map(|(s, n)| {
        [
            dim(format!("{s} ")),
            text(format!("{}   ", fmt::number(*n))),
        ]
    });
    lines.push(Line::from(parts.collect::<Vec<_>>()));
    lines
}

/// A payload, result or error; says how much of it was left on the server.
fn blob(title: &str, part: &Text) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    let mut head = vec![ink(title, Ink::Title)];
    if part.bytes > part.text.len() as u64 {
        head.push(dim(format!(
            "  the first {} of {}",
            fmt::bytes(part.text.len() as u64),
            fmt::bytes(part.bytes)
        )));
    }
    lines.push(Line::from(head));
    let pretty = serde_json::from_str::<serde_json::Value>(&part.text)
        .ok()
        .filter(|v| v.is_object() || v.is_array())
        .and_then(|v| serde_json::to_string_pretty(&v).ok());
    let body = pretty.as_deref().unwrap_or(&part.text);
    lines.extend(clean::lines(body).take(500).map(|l| Line::from(text(l))));
    lines
}
