//! The findings pane: what is wrong, causes before what they explain, then the log of what was pressed, written and
//! went wrong.

use super::PaneDef;
use crate::app::row::RowId;
use crate::app::state::{App, LogLine, PaneId, Tone};
use crate::findings::{Finding, Severity};
use crate::ui::fmt;
use crate::ui::glyphs;
use crate::ui::table::{Cell, Column, Part, Row, Section, Table};
use crate::ui::text::{dim, flow, ink, text};
use crate::ui::theme::Ink;
use ratatui::text::Line;

/// The pane.
pub static PANE: PaneDef = PaneDef {
    id: PaneId::Findings,
    title: "FINDINGS",
    purpose: "What is wrong, causes before what they explain; then what was pressed, written and went wrong.",
    table,
    columns: &FINDINGS,
    head,
    help: &[
        "A finding fires after two refreshes and goes 30 s after its cause is gone.",
        "«last known» is one of a queue that cannot be read any more: whether it still holds is not known.",
        "One that another explains stands below it with └: mend the cause first.",
        "t lists the tasks of its culprit, b goes to the session in the way.",
    ],
    detail,
};

static FINDINGS: [Column; 4] = [
    Column::words("severity", 8, 8, 1),
    Column::figures("since", 6, 1),
    Column::words("finding", 30, 400, 0),
    Column::words("rule", 14, 22, 7),
];

static LOG: [Column; 3] = [
    Column::words("log", 8, 8, 1),
    Column::words("", 7, 7, 2),
    Column::words("what", 30, 400, 0),
];

/// The word of a severity.
pub fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// Identity of the findings, in order: the rule and a number among those of the rule.
pub fn ids(findings: &[Finding]) -> Vec<RowId> {
    findings
        .iter()
        .enumerate()
        .map(|(at, f)| RowId::Finding {
            rule: f.rule.clone(),
            n: findings[..at].iter().filter(|g| g.rule == f.rule).count(),
        })
        .collect()
}

fn table(app: &App, part: Part) -> Table {
    let findings = app.shown().map_or(&[][..], |(_, r)| &r.findings);
    let rows = findings.iter().zip(ids(findings)).map(|(f, id)| {
        let lead = if f.explained_by.is_some() { "└ " } else { "" };
        Row::new(
            id,
            vec![
                Cell::figure(word(f.severity), f.severity as u8 as f64)
                    .ink(Ink::severity(f.severity)),
                Cell::figure(fmt::duration(f.since_s), f.since_s),
                Cell::word(format!("{lead}{}", f.sentence)),
                Cell::word(&f.rule).ink(Ink::Dim),
            ],
        )
        .severity(Some(f.severity))
    });
    let rows = rows.collect();
    let log = || app.log.iter().rev().map(line).collect();
    Table {
        sections: vec![
            Section::new("", &FINDINGS, rows)
                .sortable()
                .or("nothing is wrong"),
        ],
    }
    .and(part, || {
        Section::new("", &LOG, log()).or("nothing has happened yet")
    })
}

fn line(l: &LogLine) -> Row {
    let (name, severity, ink) = match l.tone {
        Tone::Info => ("", None, Ink::Text),
        Tone::Warning => ("warning", Some(Severity::Warning), Ink::Warn),
        Tone::Error => ("error", Some(Severity::Critical), Ink::Bad),
    };
    Row::new(
        RowId::Log(l.n),
        vec![
            Cell::word(&l.clock).ink(Ink::Dim),
            Cell::word(name).ink(ink),
            Cell::word(&l.text),
        ],
    )
    .severity(severity)
}

fn head(app: &App, width: u16) -> Vec<Line<'static>> {
    let findings = app.shown().map_or(&[][..], |(_, r)| &r.findings);
    let count = |s: Severity| findings.iter().filter(|f| f.severity == s).count();
    let mut groups = Vec::new();
    for s in [Severity::Critical, Severity::Warning, Severity::Info] {
        if count(s) > 0 {
            groups.push(vec![ink(
                format!("{} {}", count(s), word(s)),
                Ink::severity(s),
            )]);
        }
    }
    if groups.is_empty() {
        groups.push(vec![dim("none")]);
    }
    vec![Line::from(flow(groups, 3, usize::from(width)))]
}

fn detail(app: &App, row: &RowId) -> Option<Vec<Line<'static>>> {
    if let RowId::Log(n) = row {
        let l = app.log.iter().find(|l| l.n == *n)?;
        return Some(vec![
            Line::from(vec![dim(format!("{} UTC", l.clock))]),
            Line::default(),
            Line::from(text(&l.text)),
        ]);
    }
    let (_, report) = app.shown()?;
    let at = ids(&report.findings).iter().position(|id| id == row)?;
    let f = &report.findings[at];
    let mut lines = vec![
        Line::from(vec![
            ink(
                format!(
                    "{} {}",
                    glyphs::severity(f.severity),
                    word(f.severity).to_uppercase()
                ),
                Ink::severity(f.severity),
            ),
            dim(format!(
                "  for {}   rule {}",
                fmt::duration(f.since_s),
                f.rule
            )),
        ]),
        Line::default(),
        Line::from(text(&f.sentence)),
    ];
    if let Some(by) = &f.explained_by {
        lines.push(Line::default());
        lines.push(Line::from(vec![dim("explained by "), text(by)]));
        let causes = report.findings.iter().filter(|g| g.rule == *by);
        lines.extend(causes.map(|g| Line::from(vec![dim("  "), text(&g.sentence)])));
    }
    let explains: Vec<_> = report
        .findings
        .iter()
        .filter(|g| g.explained_by.as_deref() == Some(&f.rule))
        .collect();
    if !explains.is_empty() {
        lines.push(Line::default());
        lines.push(Line::from(ink("EXPLAINS", Ink::Title)));
        lines.extend(explains.iter().map(|g| {
            Line::from(vec![
                ink(
                    format!("  {} ", glyphs::severity(g.severity)),
                    Ink::severity(g.severity),
                ),
                text(&g.sentence),
            ])
        }));
    }
    if let Some(culprit) = f.culprit.as_ref().filter(|c| *c != row) {
        let more = super::PANES.iter().find_map(|p| match culprit {
            RowId::Finding { .. } | RowId::Log(_) => None,
            c => (p.detail)(app, c),
        });
        if let Some(more) = more {
            lines.push(Line::default());
            lines.push(Line::from(ink("CULPRIT", Ink::Title)));
            lines.extend(more);
        }
    }
    Some(lines)
}
