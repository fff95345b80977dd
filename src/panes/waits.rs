//! The waits pane: who waits behind whom, as a tree, and what active sessions wait for.

use super::PaneDef;
use super::chains::Chains;
use super::common::{called, session, session_row, severity};
use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::findings::{Report, Severity};
use crate::probe::Snapshot;
use crate::probe::activity::Blocked;
use crate::ui::fmt;
use crate::ui::table::{Cell, Column, Part, Row, Section, Table};
use crate::ui::text::{dim, flow, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::{Line, Span};
use std::collections::BTreeSet;

/// The pane.
pub static PANE: PaneDef = PaneDef {
    id: PaneId::Waits,
    title: "WAITS",
    purpose: "What active sessions wait for, and who stands in whose way.",
    table,
    columns: &EVENTS,
    head,
    help: &[
        "Only active sessions count; one that waits for nothing is on the CPU.",
        "The tree's root waits for nobody: it is the one to look at. Its branches wait for it.",
        "Shares are of all samples since watching began, at most an hour; they need 60 samples.",
    ],
    detail: super::session::detail,
};

static TREE: [Column; 7] = [
    Column::words("who blocks whom", 20, 40, 0),
    Column::words("waits for", 12, 26, 1),
    Column::figures("for", 6, 1),
    Column::figures("blocks", 6, 2),
    Column::figures("holds", 5, 4),
    Column::words("on", 10, 34, 6),
    Column::words("statement", 12, 30, 6),
];

static EVENTS: [Column; 4] = [
    Column::words("active now", 20, 40, 0),
    Column::figures("sessions", 8, 1),
    Column::words("", 20, 20, 3),
    Column::figures("blocked", 7, 2),
];

fn table(app: &App, part: Part) -> Table {
    let Some((snapshot, report)) = app.shown() else {
        return Table::default();
    };
    let chains = Chains::of(snapshot);
    let mut tree = Tree {
        snapshot,
        report,
        chains: &chains,
        rows: Vec::new(),
        seen: BTreeSet::new(),
    };
    for root in chains.roots() {
        tree.branch(root, &mut Vec::new());
    }
    let tree = tree.rows;
    Table {
        sections: vec![Section::new("", &TREE, tree).or("nobody waits for a lock")],
    }
    .and(part, || events(snapshot, report))
}

fn events(snapshot: &Snapshot, report: &Report) -> Section {
    let most = snapshot.waits.iter().map(|w| w.sessions).max().unwrap_or(0);
    let mut waits: Vec<_> = snapshot.waits.iter().collect();
    waits.sort_by_key(|w| std::cmp::Reverse(w.sessions));
    let events = waits.into_iter().map(|w| {
        let id = RowId::Wait {
            kind: w.kind.clone(),
            event: w.event.clone(),
        };
        let lock = w.kind == "Lock";
        let grave = severity(report, &id);
        Row::new(
            id,
            vec![
                Cell::word(format!("{} {}", w.kind, w.event).trim_end()).ink_if(lock, Ink::Warn),
                Cell::figure(w.sessions.to_string(), f64::from(w.sessions)),
                Cell::word(fmt::bar(f64::from(w.sessions), f64::from(most), 20)).ink(if lock {
                    Ink::Warn
                } else {
                    Ink::Flow
                }),
                if lock {
                    let n = snapshot
                        .blocked
                        .iter()
                        .filter(|b| b.lock_type == w.event)
                        .count();
                    Cell::figure(n.to_string(), n as f64)
                } else {
                    Cell::nothing("-")
                },
            ],
        )
        .severity(grave)
    });
    Section::new("", &EVENTS, events.collect())
        .sortable()
        .or("no active session")
}

/// The tree in the making.
struct Tree<'a> {
    snapshot: &'a Snapshot,
    report: &'a Report,
    chains: &'a Chains<'a>,
    rows: Vec<Row>,
    seen: BTreeSet<i32>,
}

impl Tree<'_> {
    /// A session and, below it, those that wait for it. `last` tells for each level above whether it ended there.
    fn branch(&mut self, pid: i32, last: &mut Vec<bool>) {
        if last.len() > 24 || !self.seen.insert(pid) {
            return;
        }
        let mut lead = String::new();
        for (level, ended) in last.iter().enumerate() {
            lead.push_str(match (level + 1 == last.len(), ended) {
                (true, true) => "└ ",
                (true, false) => "├ ",
                (false, true) => "  ",
                (false, false) => "│ ",
            });
        }
        let blocks = self.chains.count(pid);
        let waiting = self.chains.waiting(pid);
        self.rows
            .push(row(self.snapshot, self.report, pid, &lead, waiting, blocks));
        let children = self.chains.children(pid);
        let count = children.len();
        for (n, child) in children.into_iter().enumerate() {
            last.push(n + 1 == count);
            self.branch(child, last);
            last.pop();
        }
    }
}

fn row(
    snapshot: &Snapshot,
    report: &Report,
    pid: i32,
    lead: &str,
    waiting: Option<&Blocked>,
    blocks: usize,
) -> Row {
    let known = session(snapshot, pid);
    let id = known.map_or(RowId::Session { pid, started_us: 0 }, session_row);
    let name = lead.to_string() + &called(snapshot, pid);
    let root = waiting.is_none();
    let grave = severity(report, &id).or(root.then_some(Severity::Warning));
    let state = known.and_then(|s| s.state.as_deref());
    let waits = match (waiting, known) {
        (Some(b), _) => Cell::word(format!("Lock {}", b.lock_type)),
        (None, Some(s)) if s.idle_in_transaction() => Cell::word("idle in tx").ink(Ink::Bad),
        (None, Some(s)) => match (&s.wait_type, state) {
            (Some(kind), Some("active")) => {
                Cell::word(format!("{kind} {}", s.wait_event.as_deref().unwrap_or("")))
            }
            (None, Some("active")) => Cell::nothing("CPU"),
            _ => Cell::maybe(state),
        },
        (None, None) if pid == 0 => Cell::nothing("no session"),
        // Another database's session is not listed.
        (None, None) => Cell::nothing("not listed"),
    };
    let age = match waiting {
        Some(b) => Some(b.waiting_s),
        None => known.and_then(|s| s.state_s),
    };
    let holds = known.map_or(0, |s| s.task_rows);
    let on = waiting.map(|b| match (&b.relation, &b.mode) {
        (Some(r), Some(m)) => format!(
            "{} {}",
            r.trim_start_matches("public."),
            m.trim_end_matches("Lock")
        ),
        (Some(r), None) => r.clone(),
        (None, Some(m)) => m.trim_end_matches("Lock").to_string(),
        (None, None) => String::new(),
    });
    Row::new(
        id,
        vec![
            Cell::word(name).ink_if(root, Ink::Strong),
            waits,
            Cell::figure_or(fmt::age(age), age),
            match blocks {
                0 => Cell::nothing("-"),
                n => Cell::figure(n.to_string(), n as f64),
            },
            match holds {
                0 => Cell::nothing("-"),
                n => Cell::figure(n.to_string(), f64::from(n)),
            },
            Cell::maybe(on.as_deref()),
            Cell::maybe(known.and_then(|s| s.verb.as_deref())),
        ],
    )
    .severity(grave)
}

fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    vec![Line::from(flow(shares(app), 3, usize::from(width)))]
}

/// What active sessions waited for, as shares of all samples.
pub fn shares(app: &App) -> Vec<Vec<Span<'static>>> {
    let samples = app.wait_samples.len();
    if samples < 60 {
        return vec![vec![dim(format!("shares after {samples} of 60 samples"))]];
    }
    let mut sums = [0u64; 4];
    for sample in &app.wait_samples {
        for (sum, n) in sums.iter_mut().zip(sample) {
            *sum += u64::from(*n);
        }
    }
    let all: u64 = sums.iter().sum();
    if all == 0 {
        return vec![vec![dim("no session was active")]];
    }
    let mut parts: Vec<(&str, u64)> = ["CPU", "Lock", "IO", "other"]
        .into_iter()
        .zip(sums)
        .collect();
    parts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let mut groups: Vec<Vec<Span<'static>>> = parts
        .into_iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| {
            let share = n as f64 / all as f64;
            let grave = name == "Lock" && share >= 0.2;
            vec![
                dim(format!("{name} ")),
                if grave {
                    ink(fmt::percent(share), Ink::Warn)
                } else {
                    text(fmt::percent(share))
                },
            ]
        })
        .collect();
    groups.push(vec![dim("of active time")]);
    groups
}
