//! The tasks pane: totals by state, the median response time, and the tasks most in need of attention.

use super::PaneDef;
use super::common::{NO_END, graver, live, no_end, session, session_name, severity, total};
use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::findings::{Report, Severity};
use crate::probe::leases::{Poison, Seen};
use crate::probe::queues::Queue;
use crate::probe::stages::StageName;
use crate::probe::tasks::Task;
use crate::probe::{ServerTime, Snapshot, State};
use crate::ui::fmt;
use crate::ui::table::{Cell, Column, Part, Row, Section, Table};
use crate::ui::text::{dim, flow, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::{Line, Span};

/// The pane.
pub static PANE: PaneDef = PaneDef {
    id: PaneId::Tasks,
    title: "TASKS",
    purpose: "The tasks most in need of attention, totals by state, the median response time.",
    table,
    columns: &COLUMNS,
    head,
    help: &[
        "ready*     a transaction holds the row: claimed, perhaps, but not committed",
        "cancel? 2m  asked for 2m ago and not yet acknowledged by the worker",
        "lease      time left; «over 12m» has expired: only such a running task can be requeued",
        "session    the worker's session; «none» proves nothing, good workers give theirs back",
        "$          spent so far, all attempts; n/a where the system records no cost",
        "median     created to finished, over the window; the scheduled delay is not waiting",
    ],
    detail: super::task::detail,
};

/// Columns that a lease takes.
const LEASE: u16 = 9;

static COLUMNS: [Column; 15] = columns(7);

/// Ids of two systems may be alike: there the queue is worth more than the money of a task.
static OF_MANY_SYSTEMS: [Column; 15] = columns(2);

const fn columns(queue: u8) -> [Column; 15] {
    [
        Column::words("id", 7, 22, 0),
        Column::words("kind", 14, 24, 1),
        Column::words("state", 10, 14, 1),
        Column::figures("age", 6, 6),
        Column::figures("in state", 8, 1),
        Column::words("worker", 9, 18, 4),
        Column::figures("try", 5, 2),
        Column::words("lease", LEASE, LEASE, 4),
        Column::words("session", 12, 16, 3),
        Column::words("tenant", 8, 14, 5),
        Column::words("agent", 8, 14, 8),
        Column::words("queue", 8, 14, queue),
        Column::figures("prio", 4, 9),
        Column::figures("$", 6, 3),
        Column::words("last error", 24, 80, 5),
    ]
}

fn table(app: &App, _: Part) -> Table {
    let Some((snapshot, report)) = app.shown() else {
        return Table::default();
    };
    let rows = snapshot
        .tasks
        .rows
        .iter()
        .map(|t| row(app, snapshot, report, t))
        .collect();
    let mut systems: Vec<_> = snapshot
        .queues
        .iter()
        .map(|q| (&q.system, &q.schema))
        .collect();
    systems.sort_unstable();
    systems.dedup();
    let columns = if systems.len() > 1 {
        &OF_MANY_SYSTEMS
    } else {
        &COLUMNS
    };
    let section = Section::new("", columns, rows).sortable();
    let none = snapshot.no_queue().or(snapshot.unread("tasks"));
    let of_failures = matches!(app.view(PaneId::Tasks).of, Some(RowId::Failures { .. }));
    let none = none.unwrap_or(match of_failures {
        true => {
            "none of them is among the tasks listed: Enter on the group names the newest".into()
        }
        false => "no live task".into(),
    });
    Table {
        sections: vec![section.or(none)],
    }
}

/// The queue of a task, with its system before it where another system has a queue of that name.
fn queue_label(snapshot: &Snapshot, task: &Task) -> String {
    let key = &task.key;
    let alike =
        |q: &Queue| q.queue == key.queue && (&q.system, &q.schema) != (&key.system, &key.schema);
    let same_system = |q: &Queue| q.system == key.system;
    let mut others = snapshot.queues.iter().filter(|q| alike(q)).peekable();
    if others.peek().is_none() {
        key.queue.clone()
    } else if others.any(same_system) {
        format!("{}.{}", key.schema, key.queue)
    } else {
        format!("{} {}", key.system, key.queue)
    }
}

/// An id: numbers in the order of numbers.
fn by_number(id: &str) -> Cell {
    match id.parse::<u32>() {
        Ok(n) => Cell::figure(id, f64::from(n)),
        Err(_) => Cell::word(id),
    }
}

fn row(app: &App, snapshot: &Snapshot, report: &Report, task: &Task) -> Row {
    let now = snapshot.taken_at;
    let since = |t: Option<ServerTime>| now?.since(t?);
    let age = since(task.created_at);
    let id = RowId::Task(task.key.clone());
    let grave = graver(
        severity(report, &id),
        (task.stuck.is_some() || poison(snapshot, task).is_some()).then_some(Severity::Warning),
    );
    let attempt = match (task.attempt, task.max_attempts) {
        (Some(a), Some(m)) => Cell::figure(format!("{a}/{m}"), a as f64).ink_if(a >= m, Ink::Warn),
        (Some(a), None) => Cell::figure(a.to_string(), a as f64),
        _ => Cell::nothing("-"),
    };
    let mut row = Row::new(
        id,
        vec![
            by_number(&task.key.id),
            Cell::maybe(task.kind.as_deref()),
            state(task, since(task.cancel_requested_at)),
            Cell::figure_or(age_of(age), age),
            Cell::figure_or(fmt::age(task.in_state_s), task.in_state_s),
            Cell::maybe(task.worker.as_deref()),
            attempt,
            lease(task, now),
            owner(snapshot, task),
            Cell::maybe(task.tenant.as_deref()),
            Cell::maybe(task.agent.as_deref()),
            Cell::word(queue_label(snapshot, task)),
            match task.priority {
                Some(p) => Cell::figure(format!("{p}"), p),
                None => Cell::nothing("-"),
            },
            match task.cost_usd {
                Some(usd) => Cell::figure(fmt::amount(usd), usd.dollars()),
                None => Cell::nothing("n/a"),
            },
            error(snapshot, task),
        ],
    )
    .severity(grave)
    .find("system", Some(&task.key.system))
    .find("schema", Some(&task.key.schema))
    .find("application", task.application.as_deref())
    .find("batch", task.batch.as_deref())
    .find("native", Some(&task.native_state))
    .find("stuck", task.stuck.as_deref())
    .find("poison", poison(snapshot, task).map(|_| "poison"));
    row.marked = app.marks.contains(&task.key);
    row
}

/// An age; unknown where the clock that wrote the time was ahead of the one that is read now.
fn age_of(age: Option<f64>) -> String {
    match age {
        Some(s) if s < -1.0 => "n/a".into(),
        age => fmt::age(age.map(|s| s.max(0.0))),
    }
}

fn state(task: &Task, cancel_asked: Option<f64>) -> Cell {
    let name = match task.state {
        State::Other => task.native_state.as_str(),
        state => state.name(),
    };
    match (task.state, cancel_asked) {
        (State::Running, Some(s)) => {
            Cell::word(format!("cancel? {}", fmt::coarse(s))).ink(Ink::Warn)
        }
        _ if task.locked_by_pid.is_some() => Cell::word(format!("{name}*")),
        (State::Failed, _) => Cell::word(name).ink(Ink::Warn),
        _ => Cell::word(name),
    }
}

fn lease(task: &Task, now: Option<ServerTime>) -> Cell {
    if task.state != State::Running {
        return Cell::nothing("-");
    }
    match (task.lease_until, now) {
        (Some(until), Some(now)) => match until.since(now) {
            Some(s) if s < 0.0 => {
                let over = format!("over {}", fmt::coarse(-s));
                let fits = over.len() <= LEASE.into();
                Cell::figure(if fits { &over } else { "over" }, -s).ink(Ink::Bad)
            }
            Some(s) => Cell::figure(fmt::duration(s), -s),
            None if no_end(task.lease_until) => {
                Cell::figure(NO_END, f64::NEG_INFINITY).ink(Ink::Warn)
            }
            None => Cell::figure("over", f64::INFINITY).ink(Ink::Bad),
        },
        _ if task.stuck.is_some() => Cell::word("stuck").ink(Ink::Bad),
        _ => Cell::nothing("n/a"),
    }
}

/// What the session behind a task does: the one that locks its row, else its worker's.
fn owner(snapshot: &Snapshot, task: &Task) -> Cell {
    if let Some(pid) = task.locked_by_pid {
        let idle = session(snapshot, pid).is_some_and(|s| s.idle_in_transaction());
        let text = if idle {
            format!("{pid} idle tx")
        } else {
            format!("{pid}")
        };
        return Cell::word(text).ink_if(idle, Ink::Bad);
    }
    let Some(worker) = task
        .worker
        .as_deref()
        .filter(|_| task.state == State::Running)
    else {
        return Cell::nothing("-");
    };
    let known = snapshot
        .workers
        .iter()
        .find(|w| w.worker == worker && w.system == task.key.system && w.schema == task.key.schema);
    match known {
        Some(w) => seen(w.session, w.session_state.as_deref()),
        None => Cell::nothing("n/a"),
    }
}

/// The session of a worker in a word.
pub fn seen(session: Seen, state: Option<&str>) -> Cell {
    match session {
        Seen::Seen => {
            let state = state.unwrap_or("seen");
            Cell::word(state).ink_if(state.starts_with("idle tx"), Ink::Bad)
        }
        Seen::None => Cell::word("none").ink(Ink::Warn),
        Seen::Unknown => Cell::nothing("n/a"),
    }
}

fn error(snapshot: &Snapshot, task: &Task) -> Cell {
    if let Some(pid) = task.locked_by_pid {
        let who = session(snapshot, pid)
            .map_or_else(|| format!("pid {pid}"), |s| session_name(s).to_string());
        return Cell::word(format!("*row-locked by {who}")).ink(Ink::Dim);
    }
    let error = task.last_error.as_deref().unwrap_or_default();
    match poison(snapshot, task) {
        Some(p) if error.is_empty() => Cell::word(lost_with_it(p)).ink(Ink::Warn),
        Some(p) => Cell::word(format!("{}: {error}", lost_with_it(p))).ink(Ink::Warn),
        None if error.is_empty() => Cell::nothing(""),
        None => Cell::word(error),
    }
}

/// What is known of a task that loses worker after worker; `None` where it does not.
pub fn poison<'a>(snapshot: &'a Snapshot, task: &Task) -> Option<&'a Poison> {
    snapshot.poison.iter().find(|p| p.key == task.key)
}

/// `poison, 3 tries lost`: claimed so often and never finished.
pub fn lost_with_it(p: &Poison) -> String {
    let tries = fmt::plural(u64::from(p.lost_attempts), "try", "tries");
    format!("poison, {tries} lost")
}

/// `5,187 live, 60 listed   median 6.1s parser   ready 5,016   running 47 …`.
fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    let Some((snapshot, _)) = app.shown() else {
        return Vec::new();
    };
    let mut groups = totals(snapshot);
    groups.splice(1..1, medians(app, 1));
    if let Some(note) = &snapshot.tasks.note {
        groups.push(vec![dim(note)]);
    }
    vec![Line::from(flow(groups, 3, usize::from(width)))]
}

/// Totals by state, live ones first, each with its name.
pub fn totals(snapshot: &Snapshot) -> Vec<Vec<Span<'static>>> {
    if let Some(why) = snapshot.unread("queues") {
        return vec![vec![dim(why)]];
    }
    let rows = snapshot.tasks.rows.len() as u64;
    let live = live(snapshot);
    let mut groups = vec![vec![
        text(fmt::count(live)),
        dim(if live.is_some_and(|live| rows < live.count) {
            format!(" live, {} listed", fmt::number(rows))
        } else {
            " live".into()
        }),
    ]];
    for state in State::ALL {
        let count = total(snapshot, state);
        if count.is_some_and(|c| c.count == 0) && !matches!(state, State::Ready | State::Running) {
            continue;
        }
        groups.push(vec![
            dim(format!("{} ", state.name())),
            match count {
                Some(_) => text(fmt::count(count)),
                None => dim("n/a"),
            },
        ]);
    }
    groups
}

/// Median time from created to finished of the queues with most samples, at most so many.
pub fn medians(app: &App, most: usize) -> Vec<Vec<Span<'static>>> {
    let Some((snapshot, _)) = app.shown() else {
        return Vec::new();
    };
    let mut totals: Vec<_> = snapshot
        .stages
        .iter()
        .filter(|s| s.stage == StageName::Total && s.kind.is_none() && s.p50_s.is_some())
        .collect();
    totals.sort_by_key(|s| std::cmp::Reverse(s.n));
    if totals.is_empty() {
        return vec![vec![dim("median "), dim("n/a")]];
    }
    totals
        .iter()
        .take(most)
        .map(|s| {
            vec![
                dim("median "),
                ink(fmt::stage(s.p50_s), Ink::Strong),
                dim(format!(" {}", s.queue)),
            ]
        })
        .collect()
}
