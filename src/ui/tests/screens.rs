//! Snapshots of every pane and of the whole screen, text and inks.

use super::{dump, overlays, text_of};
use crate::app::state::{App, PaneId};
use crate::panes::fixture;
use crate::ui::order;
use crate::ui::table::{Row, visible};
use crate::ui::theme::{Depth, Ink, Theme};
use crate::ui::{render, report, svg};
use std::collections::BTreeSet;

const SIZES: [(u16, u16); 2] = [(80, 24), (160, 45)];

fn both(name: &str, app: &App) {
    for (w, h) in SIZES {
        insta::assert_snapshot!(format!("{name}-{w}x{h}"), dump(app, w, h));
    }
}

fn with_cursor(app: App) -> App {
    fixture::cursor(app, PaneId::Tasks, 0)
}

#[test]
fn what_has_not_been_heard_for_long_is_not_called_well() {
    let mut app = fixture::calm();
    assert!(dump(&app, 160, 45).contains("✓ all is well"));
    app.now = app.arrived + 9.0;
    let screen = dump(&app, 160, 45);
    assert!(screen.contains("SLOW 9.0s"), "{screen}");
    assert!(
        screen.contains("no answer for 9.0s; before that"),
        "{screen}"
    );
    assert!(!screen.contains("✓ all is well"), "{screen}");
}

#[test]
fn the_overview() {
    both("incident", &with_cursor(fixture::incident()));
    both("calm", &with_cursor(fixture::calm()));
    both("empty", &fixture::empty());
    both("lost", &with_cursor(fixture::lost()));
    both("connecting", &fixture::connecting());
    both("hostile", &with_cursor(fixture::hostile()));
}

#[test]
fn what_is_gone_is_unknown_and_not_0() {
    let app = fixture::gone();
    let screen = dump(&app, 160, 45);
    for words in [
        "TOTALS n/a live",
        "LEASES   agent_queue in schema agent_queue is gone",
        "TASKS   agent_queue in schema agent_queue is gone",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    for words in [
        "none expired",
        "0 workers",
        "0 live",
        "expired leases 0",
        "records what",
    ] {
        for (w, h) in SIZES {
            let screen = dump(&app, w, h);
            assert!(!screen.contains(words), "{words}: {screen}");
        }
    }
    let report = report::text(&app);
    assert!(report.contains("EXPIRED LEASES  n/a: agent"), "{report}");
}

#[test]
fn what_is_half_there_keeps_its_rows_dim_and_tells_their_age() {
    let before = fixture::incident();
    let systems: BTreeSet<String> = visible(&before, PaneId::Stages)
        .iter()
        .filter_map(|row| row.home().map(|(system, _)| system.to_string()))
        .collect();
    assert!(systems.len() > 1, "{systems:?}");
    let one = fixture::half(&["agent_queue"]);
    for pane in [PaneId::Stages, PaneId::Tasks, PaneId::Leases] {
        let is_dim =
            |row: &Row| row.severity.is_none() && row.cells.iter().all(|cell| cell.ink == Ink::Dim);
        let shown = order::shown(&one, pane);
        assert_eq!(visible(&one, pane).len(), visible(&before, pane).len());
        for row in shown.table.rows().filter(|r| r.id.home().is_some()) {
            let half = row.id.home() == Some(("agent_queue", "public"));
            assert_eq!(is_dim(row), half, "{row:?}");
        }
    }
    let screen = dump(&one, 160, 45);
    assert!(
        screen.contains("TASKS  agent_queue as of 12s ago"),
        "{screen}"
    );
    assert!(!screen.contains("not read"), "the others are: {screen}");

    let all: Vec<&str> = systems.iter().map(String::as_str).collect();
    let all = fixture::half(&all);
    let screen = dump(&all, 160, 45);
    for words in [
        "TASKS  as of 12s ago",
        "LEASES  as of 12s ago",
        "COST  as of 12s ago",
        "not read: agent_",
        "TOTALS n/a live",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    let small = dump(&all, 80, 24);
    assert!(small.contains("/h as of 12s ago"), "{small}");
    let inks = |app: &App| -> BTreeSet<_> {
        let queue = crate::panes::busiest(app).expect("a queue");
        let (shown, _) = app.shown().expect("data");
        let lines = crate::ui::flow::lines(shown, queue, 160);
        lines
            .iter()
            .flat_map(|l| &l.spans)
            .map(|s| format!("{:?}", s.style))
            .collect()
    };
    assert!(inks(&before).len() > 2 && inks(&all).len() == 1);
    let spend = order::shown(&all, PaneId::Cost);
    let mut cells = spend.table.rows().flat_map(|r| &r.cells);
    assert!(cells.all(|cell| cell.ink == Ink::Dim));
    let report = report::text(&all);
    assert!(report.contains("EXPIRED LEASES  n/a: not read"), "{report}");
}

#[test]
fn sizes_between_and_beyond() {
    let app = with_cursor(fixture::incident());
    for (w, h) in [
        (59, 16),
        (60, 16),
        (100, 30),
        (120, 50),
        (132, 36),
        (200, 60),
    ] {
        insta::assert_snapshot!(format!("incident-{w}x{h}"), dump(&app, w, h));
    }
}

#[test]
fn panes_whole() {
    for pane in PaneId::ALL {
        let mut app = fixture::cursor(fixture::incident(), pane, 1);
        app.zoom = Some(pane);
        both(&format!("pane-{pane:?}").to_lowercase(), &app);
    }
    let mut app = fixture::cursor(fixture::incident(), PaneId::Connections, 1);
    app.zoom = Some(PaneId::Connections);
    app.allow_writes = true;
    both("pane-connections-writes", &app);
}

#[test]
fn panes_with_the_focus() {
    for pane in PaneId::ALL {
        let app = fixture::cursor(fixture::incident(), pane, 2);
        both(&format!("focus-{pane:?}").to_lowercase(), &app);
    }
}

#[test]
fn what_lies_over_them() {
    for (name, app) in overlays() {
        insta::assert_snapshot!(format!("over-{name}-80x24"), dump(&app, 80, 24));
    }
    for (name, app) in overlays()
        .into_iter()
        .filter(|(n, _)| ["task", "confirm", "palette", "palette-off", "strike"].contains(n))
    {
        insta::assert_snapshot!(format!("over-{name}-160x45"), dump(&app, 160, 45));
    }
}

#[test]
fn details_of_every_kind_of_row() {
    let app = fixture::incident();
    for pane in PaneId::ALL {
        let mut seen = Vec::new();
        for row in crate::ui::table::visible(&app, pane) {
            let kind = std::mem::discriminant(&row);
            if seen.contains(&kind) {
                continue;
            }
            seen.push(kind);
            let lines = crate::panes::detail(&app, &row).expect("a listed row has details");
            let text: Vec<String> = lines.iter().map(|l| l.to_string()).collect();
            let name = format!("detail-{pane:?}-{}", seen.len()).to_lowercase();
            insta::assert_snapshot!(name, text.join("\n"));
        }
    }
}

#[test]
fn ascii_and_no_colour() {
    let app = with_cursor(fixture::incident());
    let ascii = render(&app, &Theme::of(Depth::Sixteen, true), 80, 24);
    let text = text_of(&ascii);
    assert!(text.is_ascii(), "{text}");
    insta::assert_snapshot!("ascii-80x24", text);

    let none = render(&app, &Theme::of(Depth::None, false), 80, 24);
    let looks: Vec<String> = (0..24)
        .map(|y| {
            let row: Vec<String> = (0..80)
                .map(|x| {
                    let cell = &none[(x, y)];
                    assert_eq!(
                        (cell.fg, cell.bg),
                        (ratatui::style::Color::Reset, ratatui::style::Color::Reset)
                    );
                    format!("{:?}", cell.modifier)
                })
                .collect();
            let runs = row.chunk_by(|a, b| a == b);
            runs.map(|r| format!("{} {}", r.len(), r[0]))
                .collect::<Vec<_>>()
                .join(", ")
        })
        .collect();
    insta::assert_snapshot!("none-80x24", looks.join("\n"));
}

#[test]
fn the_incident_report() {
    insta::assert_snapshot!("report-incident", report::text(&fixture::incident()));
    insta::assert_snapshot!("report-calm", report::text(&fixture::calm()));
    assert_eq!(
        report::text(&fixture::connecting()),
        "jobtop report: no data yet\n"
    );
    let hostile = report::text(&fixture::hostile());
    let bad = hostile
        .chars()
        .find(|c| *c != '\n' && crate::text::forbidden(*c));
    assert_eq!(bad, None);
}

#[test]
fn a_picture_is_well_formed_and_complete() {
    for app in [fixture::incident(), fixture::hostile()] {
        let buffer = render(&app, &Theme::of(Depth::True, false), 160, 45);
        let picture = svg::svg(&buffer);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        for line in picture.lines().skip(1) {
            let closed = line.ends_with("/>") || line.ends_with("</text>") || line == "</svg>";
            assert!(closed, "{line}");
        }
        // Each cell that shows something is drawn once: rectangles for blocks, text for the rest.
        let letters: usize = buffer
            .content
            .iter()
            .map(|c| c.symbol().chars().filter(char::is_ascii_graphic).count())
            .sum();
        let drawn: usize = picture
            .lines()
            .filter_map(|l| {
                l.strip_prefix("<text ")?
                    .split_once('>')?
                    .1
                    .strip_suffix("</text>")
            })
            .map(|t| {
                let plain = ["&amp;", "&lt;", "&gt;", "&quot;"]
                    .iter()
                    .fold(t.to_string(), |t, e| t.replace(e, "&"));
                plain.chars().filter(char::is_ascii_graphic).count()
            })
            .sum();
        assert_eq!(drawn, letters);
    }
}
