//! The cost pane: burn rate against usual, and who spends it: tenants, agents, applications, models, tasks.

use super::PaneDef;
use super::common::severity;
use crate::app::row::RowId;
use crate::app::state::{App, PaneId};
use crate::findings::Report;
use crate::probe::cost::{Cost, Spender, TopTask};
use crate::probe::tasks::TaskKey;
use crate::probe::{Snapshot, Usd};
use crate::ui::fmt;
use crate::ui::table::{Cell, Column, Part, Row, Section, Table};
use crate::ui::text::{dim, flow, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::{Line, Span};

/// The pane.
pub static PANE: PaneDef = PaneDef {
    id: PaneId::Cost,
    title: "COST",
    purpose: "Tokens and money: who burns how much, against usual, and what failed attempts cost.",
    table,
    columns: &TENANTS,
    head,
    help: &[
        "$/h        the last ten minutes, per hour; usual: the rest of the window (needs 50 records)",
        "lost       spent on attempts that failed or were superseded",
        "tries      attempts per task over ten minutes, of a tenant of whose attempts two of five fail; else n/a",
        "unpriced   tokens without a price: not $0, only not known",
        "Spend that arrives late or from an attempt that lost its lease counts: it is money all the same.",
    ],
    detail: super::who::spender,
};

macro_rules! spenders {
    ($name:ident, $count:literal, $heading:literal $(, $tries:expr)?) => {
        static $name: [Column; $count] = [
            Column::words($heading, 12, 28, 0),
            Column::figures("$/h", 8, 1),
            Column::figures("usual", 7, 1),
            Column::figures("spent", 8, 2),
            Column::figures("lost", 7, 2),
            $($tries,)?
            Column::figures("unpriced", 8, 4),
            Column::figures("tokens in", 9, 5),
            Column::figures("out", 7, 5),
        ];
    };
}
// Attempts are counted by tenant, not by the others.
spenders!(TENANTS, 9, "tenant", Column::figures("tries", 5, 3));
spenders!(AGENTS, 8, "agent");
spenders!(APPLICATIONS, 8, "application");
spenders!(MODELS, 8, "model");

static TASKS: [Column; 6] = [
    Column::words("dearest tasks", 14, 28, 0),
    Column::words("queue", 8, 14, 2),
    Column::words("kind", 10, 24, 2),
    Column::figures("spent", 8, 1),
    Column::figures("attempts", 8, 1),
    Column::words("system", 8, 14, 3),
];

fn table(app: &App, part: Part) -> Table {
    let Some((snapshot, report)) = app.shown() else {
        return Table::default();
    };
    let Some(cost) = &snapshot.cost else {
        let none = "no queue of this database records what its tasks cost";
        return Table {
            sections: vec![
                Section::new("", &TENANTS, Vec::new())
                    .sortable()
                    .or(snapshot.unread("cost").unwrap_or(none.into())),
            ],
        };
    };
    let by = |columns: &'static [Column], by: &str, list: &[Spender]| {
        let rows = list.iter().map(|s| spender(report, by, s)).collect();
        Section::new("", columns, rows)
    };
    let tasks = || {
        let tasks = cost.top_tasks.iter();
        tasks.map(|t| top_task(snapshot, report, t)).collect()
    };
    let tenants = by(&TENANTS, "tenant", &cost.by_tenant);
    Table {
        sections: vec![tenants.sortable().or("no spend within the window")],
    }
    .and(part, || by(&AGENTS, "agent", &cost.by_agent))
    .and(part, || {
        by(&APPLICATIONS, "application", &cost.by_application)
    })
    .and(part, || by(&MODELS, "model", &cost.by_model))
    .and(part, || Section::new("", &TASKS, tasks()))
}

fn money(usd: Usd) -> Cell {
    Cell::figure(fmt::amount(usd), usd.dollars()).ink_if(usd.0 == 0, Ink::Dim)
}

fn tokens(n: u64) -> Cell {
    Cell::figure(fmt::short(n), n as f64).ink_if(n == 0, Ink::Dim)
}

fn spender(report: &Report, by: &str, s: &Spender) -> Row {
    let id = RowId::Spender {
        by: by.into(),
        name: s.name.clone(),
    };
    let grave = severity(report, &id);
    let wasteful = s.usd.0 > 0 && s.usd_failed_attempts.0 * 2 > s.usd.0;
    let mut cells = vec![
        Cell::word(&s.name),
        money(s.usd_per_hour).ink_if(grave.is_some(), Ink::Strong),
        match s.usual_usd_per_hour {
            Some(usd) => money(usd),
            None => Cell::nothing("n/a"),
        },
        money(s.usd),
        money(s.usd_failed_attempts).ink_if(wasteful, Ink::Warn),
    ];
    if by == "tenant" {
        cells.push(match s.tries_per_task {
            Some(n) => Cell::figure(format!("{n:.1}"), n).ink_if(n >= 3.0, Ink::Warn),
            None => Cell::nothing("n/a"),
        });
    }
    cells.extend([
        tokens(s.unpriced_tokens),
        tokens(s.input_tokens),
        tokens(s.output_tokens),
    ]);
    Row::new(id, cells)
        .severity(grave)
        .find("by", Some(by))
        .calm(grave.is_none())
}

fn top_task(snapshot: &Snapshot, report: &Report, t: &TopTask) -> Row {
    // A listed task brings its queue along; one that is gone is found by its id alone.
    let listed = snapshot
        .tasks
        .rows
        .iter()
        .find(|r| r.key.id == t.task && r.key.system == t.system && r.key.schema == t.schema);
    let id = RowId::Task(listed.map_or_else(
        || TaskKey {
            system: t.system.clone(),
            schema: t.schema.clone(),
            queue: t.queue.clone().unwrap_or_default(),
            id: t.task.clone(),
        },
        |r| r.key.clone(),
    ));
    let grave = severity(report, &id);
    Row::new(
        id,
        vec![
            Cell::word(&t.task),
            Cell::maybe(t.queue.as_deref()),
            Cell::maybe(t.kind.as_deref()),
            money(t.usd),
            Cell::figure(t.attempts.to_string(), f64::from(t.attempts))
                .ink_if(t.attempts > 3, Ink::Warn),
            Cell::word(&t.system).ink(Ink::Dim),
        ],
    )
    .severity(grave)
}

fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    let shown = app.shown().map(|(s, _)| s);
    if let Some(why) = shown.and_then(|s| s.unread("cost")) {
        return vec![Line::from(dim(why))];
    }
    let Some(cost) = shown.and_then(|s| s.cost.as_ref()) else {
        return vec![Line::from(dim("not recorded"))];
    };
    let width = usize::from(width);
    let split = vec![
        vec![dim("model "), text(fmt::usd(cost.model_usd))],
        vec![dim("compute "), text(fmt::usd(cost.compute_usd))],
        vec![
            dim("tokens "),
            text(fmt::short(cost.input_tokens)),
            dim(" in "),
            text(fmt::short(cost.output_tokens)),
            dim(" out"),
        ],
        vec![dim("unpriced "), text(fmt::short(cost.unpriced_tokens))],
    ];
    let notes = cost.notes.iter().map(|n| vec![dim(n)]);
    vec![
        Line::from(flow(summary(cost), 3, width)),
        Line::from(flow(split.into_iter().chain(notes).collect(), 3, width)),
    ]
}

/// `$21.40 last hour   burning $24.10/h, usual $4.90   lost to failures $14.80   running $3.10`.
pub fn summary(cost: &Cost) -> Vec<Vec<Span<'static>>> {
    let hot = cost.usual_usd_per_hour.is_some_and(|u| {
        cost.usd_per_hour.0 >= u.0.saturating_mul(5) && cost.usd_per_hour.dollars() >= 1.0
    });
    let usual = match cost.usual_usd_per_hour {
        Some(usd) => format!(", usual {}", fmt::usd(usd)),
        None => String::new(),
    };
    let wasteful = cost.usd.0 > 0 && cost.usd_failed_attempts.0 * 2 > cost.usd.0;
    vec![
        vec![
            ink(
                format!("{}/h", fmt::usd(cost.usd_per_hour)),
                if hot { Ink::Warn } else { Ink::Strong },
            ),
            dim(usual),
        ],
        vec![
            dim(format!("last {} ", fmt::span(cost.window_s))),
            text(fmt::usd(cost.usd)),
        ],
        vec![
            dim("lost to failures "),
            ink(
                fmt::usd(cost.usd_failed_attempts),
                if wasteful { Ink::Warn } else { Ink::Text },
            ),
        ],
        vec![
            dim("running "),
            text(format!("~{}", fmt::usd(cost.usd_running))),
        ],
    ]
}
