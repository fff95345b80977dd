//! The connections pane: budgets against their limits, then every session that is not idle, idle ones grouped.

use super::PaneDef;
use super::chains::Chains;
use super::common::{graver, session_name, session_row, severity};
use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::findings::{Report, Severity};
use crate::probe::Snapshot;
use crate::probe::activity::{Budget, Session};
use crate::ui::fmt;
use crate::ui::table::{Cell, Column, Part, Row, Section, Table};
use crate::ui::text::{dim, flow, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::{Line, Span};

/// The pane.
pub static PANE: PaneDef = PaneDef {
    id: PaneId::Connections,
    title: "CONNECTIONS",
    purpose: "Who holds how many connections, in what state, and for how long.",
    table,
    columns: &SESSIONS,
    head,
    help: &[
        "used       of the whole cluster, against max_connections less the reserved slots",
        "budget     a named share from the configuration; active, idle, in tx are this database's",
        "in tx      idle in transaction: the client holds its locks and does nothing",
        "blocks     sessions that wait behind this one, directly or not",
        "holds      live tasks whose rows its transaction has locked or changed (at least)",
        "xmin       transactions since the oldest row version that it keeps vacuum from removing",
        "Refused logins leave no trace in Postgres.",
    ],
    detail: super::session::detail,
};

static BUDGETS: [Column; 7] = [
    Column::words("budget", 12, 24, 0),
    Column::figures("used", 7, 1),
    Column::words("", 16, 16, 5),
    Column::figures("active", 6, 2),
    Column::figures("idle", 5, 3),
    Column::figures("in tx", 5, 1),
    Column::figures("oldest tx", 9, 4),
];

static SESSIONS: [Column; 14] = [
    Column::words("application", 14, 28, 0),
    Column::figures("pid", 7, 1),
    Column::words("state", 12, 20, 1),
    Column::figures("in state", 8, 1),
    Column::figures("tx", 6, 2),
    Column::words("waits for", 12, 24, 2),
    Column::figures("blocks", 6, 2),
    Column::figures("holds", 5, 3),
    Column::words("statement", 14, 30, 4),
    Column::words("role", 8, 18, 6),
    Column::words("budget", 8, 14, 7),
    Column::words("client", 10, 20, 8),
    Column::figures("query", 6, 8),
    Column::figures("xmin", 7, 5),
];

fn table(app: &App, part: Part) -> Table {
    let Some((snapshot, report)) = app.shown() else {
        return Table::default();
    };
    let c = &snapshot.connections;
    let budgets = c.budgets.iter().map(|b| budget(report, b)).collect();
    let table = Table {
        sections: vec![Section::new("", &BUDGETS, budgets)],
    };
    table.and(part, || sessions(snapshot, report))
}

fn sessions(snapshot: &Snapshot, report: &Report) -> Section {
    let chains = Chains::of(snapshot);
    let mut sessions: Vec<(u8, f64, Row)> = snapshot
        .sessions
        .iter()
        .map(|s| {
            let blocks = s.pid.map_or(0, |p| chains.count(p));
            let row = session(report, s, blocks);
            let rank = match row.severity {
                Some(Severity::Critical) => 0,
                Some(Severity::Warning) => 1,
                _ if s.idle_in_transaction() => 2,
                _ if s.pid.is_some() && s.state.as_deref() == Some("active") => 3,
                _ if s.pid.is_some() => 4,
                _ => 5,
            };
            (rank, -s.xact_s.unwrap_or(0.0), row)
        })
        .collect();
    sessions.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let rows: Vec<Row> = sessions.into_iter().map(|(_, _, row)| row).collect();
    Section::new("", &SESSIONS, rows)
        .sortable()
        .or("no session but those of other databases")
}

fn budget(report: &Report, b: &Budget) -> Row {
    let id = RowId::Budget(b.name.clone());
    let full = b.limit.is_some_and(|l| l > 0 && b.used >= l);
    let near = b
        .limit
        .is_some_and(|l| l > 0 && u64::from(b.used) * 10 >= u64::from(l) * 9);
    // A full pool that idles is calm.
    let own = match (full, b.idle) {
        (true, 0) => Some(Severity::Critical),
        _ => None,
    };
    let grave = graver(severity(report, &id), own);
    let ink = match grave {
        Some(s) => Ink::severity(s),
        None if near => Ink::Strong,
        None => Ink::Text,
    };
    let used = match b.limit {
        Some(l) => format!("{}/{l}", b.used),
        None => b.used.to_string(),
    };
    let n = |n: u32| match n {
        0 => Cell::figure("0", 0.0).ink(Ink::Dim),
        n => Cell::figure(n.to_string(), f64::from(n)),
    };
    Row::new(
        id,
        vec![
            Cell::word(&b.name),
            Cell::figure(used, f64::from(b.used)).ink(ink),
            match b.limit {
                Some(l) => {
                    Cell::word(fmt::bar(f64::from(b.used), f64::from(l), 16)).ink(match ink {
                        Ink::Text | Ink::Strong => Ink::Flow,
                        grave => grave,
                    })
                }
                None => Cell::nothing("no limit"),
            },
            n(b.active),
            n(b.idle),
            n(b.idle_in_transaction),
            Cell::figure_or(fmt::age(b.oldest_transaction_s), b.oldest_transaction_s).ink_if(
                b.oldest_transaction_s.is_some_and(|s| s >= 60.0),
                Ink::Strong,
            ),
        ],
    )
    .severity(grave)
    .calm(grave.is_none())
}

fn session(report: &Report, s: &Session, blocks: usize) -> Row {
    let id = session_row(s);
    let grave = severity(report, &id);
    let name = match (session_name(s), s.own, s.count) {
        (name, true, _) => format!("{name} (this jobtop)"),
        ("", _, n) if n > 1 => format!("{n} sessions"),
        (name, _, n) if n > 1 => format!("{name} x{n}"),
        (name, ..) => name.to_string(),
    };
    let stuck = s.idle_in_transaction();
    let hidden = s.state.is_none();
    let waits = match (&s.wait_type, &s.wait_event) {
        _ if s.state.as_deref() != Some("active") => Cell::nothing("-"),
        (Some(kind), Some(event)) => {
            Cell::word(format!("{kind} {event}")).ink_if(kind == "Lock", Ink::Warn)
        }
        (Some(kind), None) => Cell::word(kind.as_str()),
        (None, _) => Cell::nothing("CPU"),
    };
    let count = |n: f64| match n {
        0.0 => Cell::figure("-", 0.0).ink(Ink::Dim),
        n => Cell::figure(format!("{n:.0}"), n).ink(Ink::Strong),
    };
    let ink = if stuck && (blocks > 0 || s.task_rows > 0) {
        Ink::Bad
    } else {
        Ink::Text
    };
    Row::new(
        id,
        vec![
            Cell::word(name).ink_if(s.own, Ink::Dim),
            match s.pid {
                Some(pid) => Cell::figure(pid.to_string(), -f64::from(pid)),
                None => Cell::nothing("-"),
            },
            match &s.state {
                Some(state) => Cell::word(short_state(state)).ink(ink),
                None => Cell::nothing("hidden"),
            },
            Cell::figure_or(fmt::age(s.state_s), s.state_s).ink_if(stuck, ink),
            Cell::figure_or(fmt::age(s.xact_s), s.xact_s),
            waits,
            count(blocks as f64),
            count(f64::from(s.task_rows)),
            Cell::maybe(s.verb.as_deref()),
            Cell::word(s.user.as_str()),
            Cell::maybe(Some(&s.budget)),
            match (&s.client, &s.state) {
                (Some(client), _) => Cell::word(client.as_str()),
                (None, Some(_)) => Cell::word("socket"),
                (None, None) => Cell::nothing("hidden"),
            },
            Cell::figure_or(fmt::age(s.query_s), s.query_s),
            match s.xmin_age {
                Some(n) => Cell::figure(fmt::short(n.unsigned_abs()), n as f64),
                None => Cell::nothing("-"),
            },
        ],
    )
    .severity(grave)
    .find("database", Some(&s.database))
    .calm(hidden)
}

/// Postgres' names for session states, short enough for a column.
pub fn short_state(state: &str) -> String {
    match state {
        "idle in transaction" => "idle in tx".into(),
        "idle in transaction (aborted)" => "idle in tx failed".into(),
        "fastpath function call" => "fastpath".into(),
        other => other.into(),
    }
}

fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    let Some((snapshot, _)) = app.shown() else {
        return Vec::new();
    };
    vec![
        Line::from(flow(occupancy(snapshot), 3, usize::from(width))),
        Line::from(flow(vacuum(snapshot), 3, usize::from(width))),
    ]
}

/// `78 of 97`, states, logins: the most telling first.
pub fn occupancy(snapshot: &Snapshot) -> Vec<Vec<Span<'static>>> {
    let c = &snapshot.connections;
    let usable = c.max.saturating_sub(c.reserved);
    let full = usable > 0 && f64::from(c.used) >= 0.9 * f64::from(usable);
    let mut groups = vec![vec![
        ink(
            c.used.to_string(),
            if full { Ink::Warn } else { Ink::Strong },
        ),
        dim(format!(" of {usable}")),
    ]];
    for (state, n) in &c.states {
        groups.push(vec![
            dim(format!("{} ", short_state(state))),
            text(n.to_string()),
        ]);
    }
    if let Some(oldest) = c.oldest_transaction_s {
        groups.push(vec![dim("oldest tx "), text(fmt::duration(oldest))]);
    }
    groups.push(vec![
        dim("logins "),
        match c.logins_per_s {
            Some(r) => text(format!("{}/s", fmt::rate(Some(r)))),
            None => dim("n/a"),
        },
    ]);
    if c.hidden > 0 {
        groups.push(vec![ink(
            format!("{} hidden from this role", c.hidden),
            Ink::Warn,
        )]);
    }
    if let Some(n) = c.deadlocks {
        groups.push(vec![dim("deadlocks "), text(fmt::number(n))]);
    }
    groups
}

/// What holds vacuum back, what it costs the claims, the notification queue.
pub fn vacuum(snapshot: &Snapshot) -> Vec<Vec<Span<'static>>> {
    let m = &snapshot.maintenance;
    let mut groups = Vec::new();
    groups.push(match &m.xmin_holder {
        Some(h) => {
            let held = h.held_s.map(|s| {
                let long = s >= 300.0;
                ink(
                    format!("{} ", fmt::duration(s)),
                    if long { Ink::Warn } else { Ink::Text },
                )
            });
            [
                Some(dim("xmin held ")),
                held,
                Some(dim("by ")),
                Some(text(h.who())),
            ]
            .into_iter()
            .flatten()
            .collect()
        }
        None => vec![dim("xmin held by nobody")],
    });
    if let Some(t) = m.tables.iter().max_by_key(|t| t.dead) {
        let all = t.live.saturating_add(t.dead);
        let share = if all == 0 {
            0.0
        } else {
            t.dead as f64 / all as f64
        };
        groups.push(vec![
            dim(format!("{} dead ", t.name)),
            text(fmt::short(t.dead)),
            dim(format!(" ({})", fmt::percent(share))),
        ]);
    }
    let reads = m
        .tables
        .iter()
        .filter_map(|t| t.reads_per_claim.map(|r| (r, t)));
    if let Some((r, t)) = reads.max_by(|a, b| a.0.total_cmp(&b.0)) {
        let slow = t
            .reads_per_claim_usual
            .is_some_and(|u| r >= 20.0 * u.max(1.0));
        let mut group = vec![
            dim("claim reads "),
            ink(fmt::rate(Some(r)), if slow { Ink::Warn } else { Ink::Text }),
        ];
        if let Some(u) = t.reads_per_claim_usual {
            group.push(dim(format!(" (usual {})", fmt::rate(Some(u)))));
        }
        groups.push(group);
    }
    if let Some(share) = m.notify_queue {
        let ink_of = if share >= 0.01 { Ink::Warn } else { Ink::Text };
        groups.push(vec![dim("notify queue "), ink(fmt::percent(share), ink_of)]);
    }
    groups.push(vec![dim("refused logins: not in Postgres")]);
    groups
}
