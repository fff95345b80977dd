//! The leases pane: running tasks whose lease has expired, and the workers with what they hold.

use super::PaneDef;
use super::common::{NO_END, graver, natural, no_end, session_row, severity};
use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::findings::{Report, Severity};
use crate::probe::Snapshot;
use crate::probe::activity::Session;
use crate::probe::leases::{Lease, Worker};
use crate::probe::tasks::TaskKey;
use crate::ui::fmt;
use crate::ui::table::{Cell, Column, Part, Row, Section, Table};
use crate::ui::text::{dim, flow, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::{Line, Span};
use std::collections::BTreeMap;

/// The pane.
pub static PANE: PaneDef = PaneDef {
    id: PaneId::Leases,
    title: "LEASES",
    purpose: "Workers and what they hold; running tasks whose lease has expired.",
    table,
    columns: &WORKERS,
    head,
    help: &[
        "session    «none»: no session of that name is connected. Good workers give theirs back, so",
        "           it proves nothing; only an expired lease permits a requeue",
        "done/m     attempts finished a minute over ten minutes; fail: the share that failed",
        "clock      the worker's clock minus the server's, from its claims",
        "overdue    since when the lease is over; by the server's clock",
    ],
    detail: super::who::worker,
};

static WORKERS: [Column; 10] = [
    Column::words("worker", 12, 26, 0),
    Column::words("version", 7, 10, 5),
    Column::words("session", 8, 14, 1),
    Column::figures("holds", 5, 1),
    Column::figures("done/m", 6, 2),
    Column::figures("fail", 5, 3),
    Column::figures("clock", 6, 4),
    Column::figures("heartbeat", 9, 6),
    Column::words("next expiry", 11, 14, 2),
    Column::words("system", 8, 14, 7),
];

static EXPIRED: [Column; 10] = [
    Column::words("expired", 10, 22, 0),
    Column::figures("overdue", 7, 1),
    Column::words("kind", 12, 24, 2),
    Column::words("worker", 10, 24, 1),
    Column::words("session", 8, 10, 2),
    Column::figures("try", 4, 3),
    Column::figures("token", 6, 6),
    Column::figures("cancel asked", 12, 5),
    Column::words("queue", 8, 14, 4),
    Column::words("rule", 10, 24, 4),
];

fn table(app: &App, part: Part) -> Table {
    let Some((snapshot, report)) = app.shown() else {
        return Table::default();
    };
    let sessions = sessions(snapshot, report);
    let graves = snapshot.workers.iter().map(|w| grave(report, &sessions, w));
    let mut workers: Vec<(Option<Severity>, &Worker)> = graves.zip(&snapshot.workers).collect();
    workers.sort_by_cached_key(|(grave, w)| (std::cmp::Reverse(*grave), natural(&w.worker)));
    let mut leases: Vec<&Lease> = snapshot.leases.iter().collect();
    leases.sort_by(|a, b| {
        let age = |l: &Lease| l.overdue_s.unwrap_or(f64::MAX);
        age(b).total_cmp(&age(a))
    });
    let none = |calm: &str| snapshot.unread("leases").unwrap_or(calm.into());
    let workers = workers.into_iter().map(|(grave, w)| worker(grave, w));
    let section = Section::new("", &WORKERS, workers.collect())
        .sortable()
        .or(none("no worker holds a task or has finished one lately"));
    let table = Table {
        sections: vec![section],
    };
    table.and(part, || {
        let leases = leases.into_iter().map(|l| lease(report, l));
        Section::new("", &EXPIRED, leases.collect()).or(none("no lease has expired"))
    })
}

/// What is said about sessions, by their application.
fn sessions<'a>(snapshot: &'a Snapshot, report: &Report) -> BTreeMap<&'a str, Severity> {
    let mut graves = BTreeMap::new();
    for finding in &report.findings {
        let Some(culprit @ (RowId::Session { .. } | RowId::Idle { .. })) = &finding.culprit else {
            continue;
        };
        let is_it = |s: &&Session| session_row(s) == *culprit;
        for session in snapshot.sessions.iter().filter(is_it) {
            let grave = graves
                .entry(session.application.as_str())
                .or_insert(finding.severity);
            *grave = finding.severity.max(*grave);
        }
    }
    graves
}

/// The row of a worker.
fn worker_row(w: &Worker) -> RowId {
    RowId::Worker {
        system: w.system.clone(),
        schema: w.schema.clone(),
        worker: w.worker.clone(),
    }
}

/// Of what is said about the worker, about a session of its name, or of what its leases say.
fn grave(report: &Report, sessions: &BTreeMap<&str, Severity>, w: &Worker) -> Option<Severity> {
    let overdue = w.next_expiry_s.is_some_and(|s| s < 0.0);
    let own = graver(
        severity(report, &worker_row(w)),
        overdue.then_some(Severity::Warning),
    );
    graver(own, sessions.get(w.worker.as_str()).copied())
}

fn worker(grave: Option<Severity>, w: &Worker) -> Row {
    let expiry = match w.next_expiry_s {
        Some(s) if s < 0.0 => Cell::figure(format!("over {}", fmt::duration(-s)), -s).ink(Ink::Bad),
        Some(s) => Cell::figure(fmt::duration(s), -s),
        None if no_end(w.next_expiry) => Cell::word(NO_END),
        None => Cell::nothing("-"),
    };
    Row::new(
        worker_row(w),
        vec![
            Cell::word(&w.worker),
            Cell::maybe(w.version.as_deref()),
            super::tasks::seen(w.session, w.session_state.as_deref()),
            Cell::figure(w.holds.to_string(), f64::from(w.holds)).ink_if(w.holds == 0, Ink::Dim),
            Cell::figure_or(fmt::rate(w.done_per_min), w.done_per_min),
            match w.fail_share {
                Some(s) => Cell::figure(fmt::percent(s), s).ink_if(s >= 0.5, Ink::Warn),
                None => Cell::nothing("-"),
            },
            match w.clock_skew_s {
                Some(s) if s.abs() < 0.95 => Cell::figure("0s", 0.0).ink(Ink::Dim),
                Some(s) => {
                    let sign = if s > 0.0 { "+" } else { "-" };
                    Cell::figure(format!("{sign}{}", fmt::duration(s.abs())), s.abs())
                        .ink_if(s.abs() > 5.0, Ink::Warn)
                }
                None => Cell::nothing("n/a"),
            },
            Cell::figure_or(fmt::age(w.heartbeat_s), w.heartbeat_s),
            expiry,
            Cell::word(&w.system).ink(Ink::Dim),
        ],
    )
    .severity(grave)
    .find("schema", Some(&w.schema))
    .calm(grave.is_none())
}

fn lease(report: &Report, l: &Lease) -> Row {
    let id = RowId::Task(TaskKey {
        system: l.system.clone(),
        schema: l.schema.clone(),
        queue: l.queue.clone(),
        id: l.task.clone(),
    });
    let grave = graver(severity(report, &id), Some(Severity::Warning));
    Row::new(
        id,
        vec![
            Cell::word(&l.task),
            match l.overdue_s {
                Some(s) => Cell::figure(fmt::duration(s), s).ink(Ink::Bad),
                None => Cell::word("no end").ink(Ink::Warn),
            },
            Cell::maybe(l.kind.as_deref()),
            Cell::maybe(l.worker.as_deref()),
            super::tasks::seen(l.session, None),
            match l.attempt {
                Some(a) => Cell::figure(a.to_string(), a as f64),
                None => Cell::nothing("-"),
            },
            match l.lease_token {
                Some(t) => Cell::figure(t.to_string(), t as f64),
                None => Cell::nothing("-"),
            },
            Cell::figure_or(fmt::age(l.cancel_requested_s), l.cancel_requested_s),
            Cell::word(&l.queue),
            Cell::word(&l.rule),
        ],
    )
    .severity(grave)
    .find("system", Some(&l.system))
}

fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    vec![Line::from(flow(summary(app), 3, usize::from(width)))]
}

/// `7 expired, oldest 12m   12 workers hold 43`.
pub fn summary(app: &App) -> Vec<Vec<Span<'static>>> {
    let Some((snapshot, _)) = app.shown() else {
        return Vec::new();
    };
    if let Some(why) = snapshot.unread("leases") {
        return vec![vec![dim(why)]];
    }
    let expired = snapshot.leases.len();
    let mut first = if expired == 0 {
        vec![dim("none expired")]
    } else {
        vec![ink(format!("{expired} expired"), Ink::Bad)]
    };
    let oldest = snapshot
        .leases
        .iter()
        .filter_map(|l| l.overdue_s)
        .max_by(f64::total_cmp);
    if let Some(s) = oldest {
        first.push(dim(format!(", oldest {}", fmt::duration(s))));
    }
    let holds: u64 = snapshot.workers.iter().map(|w| u64::from(w.holds)).sum();
    vec![
        first,
        vec![
            text(fmt::plural(
                snapshot.workers.len() as u64,
                "worker",
                "workers",
            )),
            dim(format!(" hold {}", fmt::number(holds))),
        ],
    ]
}
