//! Everything about a session, a budget, or something that sessions wait for.

use super::chains::Chains;
use super::common::{called, prepared, session as by_pid, session_name, session_row};
use super::connections::short_state;
use crate::app::row::RowId;
use crate::app::state::{App, Detail};
use crate::probe::Snapshot;
use crate::probe::activity::Session;
use crate::ui::clean;
use crate::ui::fmt;
use crate::ui::text::{dim, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::{Line, Span};

/// `label   value`, aligned.
pub fn field(label: &str, value: impl Into<Vec<Span<'static>>>) -> Line<'static> {
    let gap = 16usize.saturating_sub(clean::width(label)).max(2);
    let mut spans = vec![dim(format!("{label}{}", " ".repeat(gap)))];
    spans.extend(value.into());
    Line::from(spans)
}

/// A field of plain text.
pub fn plain(label: &str, value: impl AsRef<str>) -> Line<'static> {
    field(label, vec![text(value)])
}

/// A heading between parts.
pub fn heading(title: &str) -> [Line<'static>; 2] {
    [Line::default(), Line::from(ink(title, Ink::Title))]
}

/// Details of the rows of the connections and waits panes.
pub fn detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
    let (snapshot, _) = app.shown()?;
    match row {
        RowId::Session { pid, .. } => {
            let known = snapshot.sessions.iter().find(|s| session_row(s) == *row);
            Some(match known {
                Some(s) => session(app, snapshot, s),
                None if *pid == 0 => vec![
                    plain("holds", prepared(snapshot)),
                    Line::from(dim(
                        "It has no session: COMMIT PREPARED or ROLLBACK PREPARED ends it.",
                    )),
                ],
                None => vec![
                    plain("pid", pid.to_string()),
                    Line::from(dim(
                        "This session has ended, or belongs to another database.",
                    )),
                ],
            })
        }
        RowId::Idle { .. } => {
            let s = snapshot.sessions.iter().find(|s| session_row(s) == *row)?;
            Some(session(app, snapshot, s))
        }
        RowId::Budget(name) => budget(app, snapshot, name),
        RowId::Wait { kind, event } => Some(wait(snapshot, kind, event)),
        _ => None,
    }
}

fn session(app: &App, snapshot: &Snapshot, s: &Session) -> Vec<Line<'static>> {
    let mut lines = vec![field("session", vec![ink(session_name(s), Ink::Strong)])];
    match s.pid {
        Some(pid) => lines.push(plain("pid", pid.to_string())),
        None => lines.push(plain("sessions", format!("{} idle ones, alike", s.count))),
    }
    lines.push(plain("role", &s.user));
    lines.push(plain("database", &s.database));
    lines.push(plain(
        "client",
        s.client.as_deref().unwrap_or("local socket"),
    ));
    lines.push(plain("budget", &s.budget));
    if let Some(t) = s.backend_start {
        lines.push(plain("connected", format!("{} UTC", fmt::clock(Some(t)))));
    }
    let state = s
        .state
        .as_deref()
        .unwrap_or("hidden from this role: GRANT pg_read_all_stats shows it");
    let since = s
        .state_s
        .map_or(String::new(), |a| format!(" for {}", fmt::duration(a)));
    let bad = s.idle_in_transaction();
    lines.push(field(
        "state",
        vec![ink(
            format!("{state}{since}"),
            if bad { Ink::Bad } else { Ink::Text },
        )],
    ));
    if let Some(kind) = &s.wait_type {
        let event = s.wait_event.as_deref().unwrap_or("");
        lines.push(plain("waits for", format!("{kind} {event}")));
    }
    if let Some(a) = s.xact_s {
        lines.push(plain(
            "transaction",
            format!("open for {}", fmt::duration(a)),
        ));
    }
    if let Some(a) = s.query_s {
        lines.push(plain("statement", format!("for {}", fmt::duration(a))));
    }
    if let Some(n) = s.xmin_age {
        lines.push(plain(
            "xmin",
            format!(
                "keeps row versions of the last {} transactions from vacuum",
                fmt::short(n.unsigned_abs())
            ),
        ));
    }
    if let Some(pid) = s.pid {
        chain(snapshot, pid, &mut lines);
        holds(snapshot, s, &mut lines);
        lines.extend(heading("STATEMENT"));
        lines.extend(query(app, s));
    }
    lines
}

/// Whom it waits for, and who waits for it.
fn chain(snapshot: &Snapshot, pid: i32, lines: &mut Vec<Line<'static>>) {
    let state = |pid: i32| {
        by_pid(snapshot, pid).map_or(String::new(), |s| {
            let state = short_state(s.state.as_deref().unwrap_or("hidden"));
            format!("  {state} {}", fmt::age(s.state_s))
        })
    };
    let chains = Chains::of(snapshot);
    if let Some(b) = chains.waiting(pid) {
        lines.extend(heading("WAITS FOR"));
        let on = b.relation.as_deref().unwrap_or("");
        let mode = b.mode.as_deref().unwrap_or("");
        lines.push(Line::from(text(
            format!(
                "Lock {} {on} {mode} for {}",
                b.lock_type,
                fmt::duration(b.waiting_s)
            )
            .replace("  ", " "),
        )));
        let mut seen = vec![pid];
        let mut next = chains.nearest(b);
        while let Some(holder) = next.filter(|p| !seen.contains(p)) {
            let indent = "  ".repeat(seen.len() - 1);
            lines.push(Line::from(vec![
                dim(format!("{indent}└ behind ")),
                text(called(snapshot, holder)),
                dim(state(holder)),
            ]));
            seen.push(holder);
            next = chains.waiting(holder).and_then(|b| chains.nearest(b));
        }
    }
    let behind = chains.behind(pid);
    if !behind.is_empty() {
        lines.extend(heading("BLOCKS"));
        for (n, p) in behind.iter().enumerate() {
            let lead = if n + 1 == behind.len() {
                "└ "
            } else {
                "├ "
            };
            let waits = chains.waiting(*p);
            let what = waits.map_or(String::new(), |b| {
                format!("  Lock {} for {}", b.lock_type, fmt::duration(b.waiting_s))
            });
            lines.push(Line::from(vec![
                dim(lead),
                text(called(snapshot, *p)),
                dim(what),
            ]));
        }
    }
}

/// The tasks whose rows it holds, and those it works on under a lease.
fn holds(snapshot: &Snapshot, s: &Session, lines: &mut Vec<Line<'static>>) {
    let rows = &snapshot.tasks.rows;
    let locked: Vec<_> = rows
        .iter()
        .filter(|t| s.pid.is_some() && t.locked_by_pid == s.pid)
        .collect();
    let leased: Vec<_> = rows
        .iter()
        .filter(|t| t.locked_by_pid.is_none() && t.worker.as_deref() == Some(&s.application))
        .filter(|t| t.state == crate::probe::State::Running)
        .collect();
    if s.task_rows == 0 && leased.is_empty() {
        return;
    }
    lines.extend(heading("TASKS"));
    if s.task_rows > 0 {
        lines.push(Line::from(text(format!(
            "its transaction holds the rows of at least {}",
            fmt::plural(u64::from(s.task_rows), "task", "tasks")
        ))));
    }
    for (word, list) in [("row locked", locked), ("leased", leased)] {
        for t in list.iter().take(20) {
            lines.push(Line::from(vec![
                text(format!("  {}", t.key.id)),
                dim(format!(
                    "  {}  {word}  in state {}",
                    t.kind.as_deref().unwrap_or("-"),
                    fmt::age(t.in_state_s)
                )),
            ]));
        }
    }
}

fn query(app: &App, s: &Session) -> Vec<Line<'static>> {
    match app.details.get(&session_row(s)) {
        Some(Ok(detail)) => match detail.as_ref() {
            Detail::Session(s) if s.statement.trim().is_empty() => {
                vec![Line::from(dim("none yet"))]
            }
            Detail::Session(s) => clean::lines(&s.statement)
                .map(|l| Line::from(text(l)))
                .collect(),
            Detail::Task(_) => Vec::new(),
        },
        Some(Err(why)) => vec![Line::from(ink(why, Ink::Warn))],
        None => vec![Line::from(vec![
            text(s.verb.as_deref().unwrap_or("-")),
            dim("  (its text is being fetched)"),
        ])],
    }
}

fn budget(app: &App, snapshot: &Snapshot, name: &str) -> Option<Vec<Line<'static>>> {
    let b = snapshot
        .connections
        .budgets
        .iter()
        .find(|b| b.name == name)?;
    let mut lines = vec![field("budget", vec![ink(name, Ink::Strong)])];
    lines.push(match b.limit {
        Some(l) => plain("used", format!("{} of {l}, in the whole cluster", b.used)),
        None => plain(
            "used",
            format!("{}, in the whole cluster; no limit", b.used),
        ),
    });
    lines.push(plain(
        "here",
        format!(
            "{} active, {} idle, {} idle in transaction",
            b.active, b.idle, b.idle_in_transaction
        ),
    ));
    lines.push(plain("oldest tx", fmt::age(b.oldest_transaction_s)));
    if let Some(rule) = app.config.budgets.iter().find(|r| r.name == name) {
        lines.push(plain("applications", or_none(&rule.applications)));
        lines.push(plain("roles", or_none(&rule.roles)));
    } else {
        lines.push(Line::from(dim(
            "Sessions that no [[budgets]] entry of the configuration names.",
        )));
    }
    lines.extend(heading("SESSIONS"));
    for s in snapshot
        .sessions
        .iter()
        .filter(|s| s.budget == name)
        .take(60)
    {
        lines.push(one(s));
    }
    Some(lines)
}

fn or_none(patterns: &[String]) -> String {
    if patterns.is_empty() {
        "-".into()
    } else {
        patterns.join(", ")
    }
}

fn wait(snapshot: &Snapshot, kind: &str, event: &str) -> Vec<Line<'static>> {
    let mut lines = vec![field(
        "waits for",
        vec![ink(format!("{kind} {event}"), Ink::Strong)],
    )];
    lines.push(Line::from(dim(match kind {
        "CPU" => "Active and waiting for nothing that Postgres names: on the CPU, or about to be.",
        "Lock" => "A lock that another transaction holds: the tree above shows whose.",
        "IO" => "Reads or writes of files.",
        "LWLock" => "A short lock inside the server: usually many sessions at the same thing.",
        "Client" => "The client: to read what it was sent, or to send what comes next.",
        _ => "A wait_event_type of pg_stat_activity; the Postgres manual lists its events.",
    })));
    lines.extend(heading("SESSIONS"));
    let hit = |s: &&Session| {
        s.state.as_deref() == Some("active")
            && s.wait_type.as_deref().unwrap_or("CPU") == kind
            && s.wait_event.as_deref().unwrap_or_default() == event
    };
    lines.extend(snapshot.sessions.iter().filter(hit).take(60).map(one));
    lines
}

/// A session in a line.
fn one(s: &Session) -> Line<'static> {
    let pid = s
        .pid
        .map_or_else(|| format!("x{}", s.count), |p| p.to_string());
    let state = short_state(s.state.as_deref().unwrap_or("hidden"));
    Line::from(vec![
        dim(format!("{pid:>8}  ")),
        text(session_name(s)),
        dim(format!("  {state} {}  ", fmt::age(s.state_s))),
        dim(s.verb.as_deref().unwrap_or("")),
    ])
}
