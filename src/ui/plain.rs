//! Tables as plain text, for `--once` and `jobtop tasks`: the panes' own rows, without a screen.

use super::clean::{clean, width};
use super::table::{Part, Section};
use super::text::pad;
use super::theme::Theme;
use crate::app::state::{App, Link, PaneId};
use crate::config::Config;
use crate::findings::Report;
use crate::panes::PANES;
use crate::probe::Snapshot;
use std::sync::Arc;

/// Everything a snapshot knows: the verdict, then each pane's table.
pub fn tables(
    snapshot: Arc<Snapshot>,
    report: Report,
    config: Arc<Config>,
    theme: &Theme,
) -> String {
    let mut text = format!("{}\n", heading(&snapshot));
    text.push_str(&crate::once::findings(&report));
    let mut app = App::new(config, 0.0, (160, 45));
    app.link = Link::Live;
    app.snapshot = Some(snapshot);
    app.report = Arc::new(report);
    for pane in PANES {
        text.push_str(&format!("\n{}\n", pane.title.to_uppercase()));
        for line in (pane.head)(&app, 160) {
            let line: String = line.spans.iter().map(|s| s.content.as_ref()).collect();
            text.push_str(format!(" {line}").trim_end());
            text.push('\n');
        }
        for section in &(pane.table)(&app, Part::Whole).sections {
            text.push_str(&rows(section));
        }
    }
    finish(&text, theme)
}

/// Task rows alone.
pub fn tasks(snapshot: Snapshot, config: Arc<Config>, theme: &Theme) -> String {
    let mut app = App::new(config, 0.0, (160, 45));
    app.snapshot = Some(Arc::new(snapshot));
    let pane = crate::panes::pane(PaneId::Tasks);
    let table = (pane.table)(&app, Part::Whole);
    if table.rows().next().is_none() {
        return "no such task\n".into();
    }
    finish(&table.sections.iter().map(rows).collect::<String>(), theme)
}

/// A table that stands by itself.
pub fn section(section: &Section, theme: &Theme) -> String {
    finish(&rows(section), theme)
}

fn heading(snapshot: &Snapshot) -> String {
    let server = &snapshot.server;
    let at = snapshot
        .taken_at
        .map_or_else(String::new, |t| t.to_string());
    let mut parts = vec![
        server.database.as_str(),
        "@",
        &server.host,
        "PG",
        &server.version,
        &at,
    ];
    if !server.tls.is_empty() {
        parts.extend(["", &server.tls]);
    }
    format!("{}\n", parts.join(" "))
}

/// Each column as wide as its widest cell.
fn rows(section: &Section) -> String {
    if section.rows.is_empty() {
        return match section.empty.is_empty() {
            true => String::new(),
            false => format!(" {}\n", section.empty),
        };
    }
    let cell = |row: &super::table::Row, at: usize| {
        let text = row.cells.get(at).map_or("", |c| c.text.as_str());
        clean(text).into_owned()
    };
    let heading = |at: usize, name: &str| match (at, section.title.is_empty()) {
        (0, false) => section.title.clone(),
        _ => name.to_string(),
    };
    let widths: Vec<usize> = section
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let cells = section.rows.iter().map(|row| width(&cell(row, at)));
            cells.fold(width(&heading(at, column.name)), usize::max)
        })
        .collect();
    let line = |text: &dyn Fn(usize) -> String| {
        let mut line = String::new();
        for (at, column) in section.columns.iter().enumerate() {
            line.push_str(if at == 0 { " " } else { "  " });
            line.push_str(&pad(&text(at), widths[at], column.align));
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut text = line(&|at| heading(at, section.columns[at].name));
    for row in &section.rows {
        text.push_str(&line(&|at| cell(row, at)));
    }
    text
}

fn finish(text: &str, theme: &Theme) -> String {
    if !theme.ascii {
        return text.to_string();
    }
    let one = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => super::glyphs::ascii(c.encode_utf8(&mut [0; 4])).to_string(),
    };
    text.chars().map(one).collect()
}
