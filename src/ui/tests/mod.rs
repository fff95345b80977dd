//! Whole screens, at every size, under everything that can lie over them.

mod order;
mod pictures;
mod screens;
mod sizes;

use super::theme::Ink;
use super::*;
use crate::app::state::{Layer, PaneId};
use crate::panes::fixture;
use ratatui::style::Color;

/// A frame before it is painted: its text, then for each line which ink each run of columns has. `.` is plain or
/// empty, a `'` behind the letter marks the cursor's bar.
fn dump(app: &App, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut app = app.clone();
    app.size = (width, height);
    let mut buffer = Buffer::empty(area);
    screen(&mut buffer, area, &app);
    let mut out = text_of(&buffer);
    out.push_str("\ninks: ");
    out.push_str(&Ink::ALL.map(|i| format!("{}={i:?}", letter(i))).join(" "));
    for y in 0..height {
        let cells: Vec<String> = (0..width)
            .map(|x| {
                let cell = &buffer[(x, y)];
                let bar = if cell.bg == Color::Indexed(255) {
                    "'"
                } else {
                    ""
                };
                let ink = if cell.symbol() == " " {
                    Ink::Text
                } else {
                    Ink::of(cell.fg)
                };
                let loud = matches!(Ink::of(cell.fg), Ink::Badge | Ink::Alarm);
                format!("{}{bar}", letter(if loud { Ink::of(cell.fg) } else { ink }))
            })
            .collect();
        let runs: Vec<String> = cells
            .chunk_by(|a, b| a == b)
            .map(|run| format!("{}{}", run.len(), run[0]))
            .collect();
        let plain = runs.len() == 1 && runs[0].ends_with('.');
        if !plain {
            out.push_str(&format!("\n{y:>2} {}", runs.join(" ")));
        }
    }
    out
}

fn letter(ink: Ink) -> char {
    match ink {
        Ink::Text => '.',
        Ink::Dim => 'd',
        Ink::Title => 'T',
        Ink::Strong => 'S',
        Ink::Bad => 'B',
        Ink::Warn => 'W',
        Ink::Good => 'G',
        Ink::Key => 'K',
        Ink::Flow => 'F',
        Ink::Badge => 'R',
        Ink::Alarm => 'A',
    }
}

/// The text of a frame, line by line, without the spaces at the ends.
fn text_of(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut x = 0;
        while x < buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += (clean::width(symbol) as u16).max(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The incident with everything that can lie over it.
fn overlays() -> Vec<(&'static str, App)> {
    use crate::action::strike::How;
    use crate::action::{Choice, Preview, Verb, facts};
    use crate::app::dialog::{Dialog, Stage};
    use crate::app::palette::Palette;
    use crate::app::state::{Toast, Tone};
    use crate::app::strike::{Question, Stage as Asking};
    use crate::keys::Action;
    let base = fixture::cursor(fixture::incident(), PaneId::Tasks, 0);
    let snapshot = base.snapshot.as_ref().expect("data");
    let rows = &snapshot.tasks.rows;
    let tasks: Vec<_> = rows.iter().take(3).cloned().collect();
    let keys = tasks.iter().map(|t| t.key.clone()).collect();
    let home = (tasks[0].key.system.as_str(), tasks[0].key.schema.as_str());
    let usual = [("parse_contract".to_string(), crate::probe::Usd(31_000))].into();
    let at = snapshot.taken_at.expect("a clock");
    let dialog = |verb: Verb| {
        let preview = Preview::of(verb, home, (4, 1000), tasks.clone(), &usual, at);
        let mut dialog = Dialog::new(1, verb, Choice::These(Vec::clone(&keys)));
        dialog.stage = Stage::Confirm;
        dialog.title = facts::title(&preview);
        dialog.lines = facts::lines(&preview, Some(snapshot), "prod-agents on db.internal");
        dialog.must_type = preview.eligible.to_string();
        dialog.preview = Some(Box::new(preview));
        dialog
    };
    let with = |layer: Layer| {
        let mut app = base.clone();
        app.allow_writes = true;
        app.layers.push(layer);
        app
    };
    let confirm = |change: fn(&mut Dialog)| {
        let mut dialog = dialog(Verb::Cancel);
        change(&mut dialog);
        with(Layer::Confirm(Box::new(dialog)))
    };
    let (mut task, row) = fixture::task_detail(base.clone());
    task.layers.push(Layer::Detail { row, scroll: 0 });
    let mut toasts = base.clone();
    for (tone, text) in [
        (
            Tone::Error,
            "cancel: 48031 was not changed: it was claimed by another worker (attempt 2, seen 1)",
        ),
        (Tone::Warning, "48017 is gone: its mark was removed"),
        (Tone::Info, "requeued 2 of 3 tasks"),
    ] {
        toasts.toasts.push(Toast {
            tone,
            text: text.into(),
            at: 113.0,
        });
    }
    let mut filter = fixture::filtered(base.clone(), PaneId::Tasks, "kind:scan acme");
    filter.editing_filter = true;
    filter.marks = rows.iter().skip(2).take(2).map(|t| t.key.clone()).collect();
    let mut held = base.clone();
    held.held = held.snapshot.clone().zip(Some(held.report.clone()));
    held.allow_writes = true;
    let mut sorted = base.clone();
    let view = sorted.views.entry(PaneId::Tasks).or_default();
    (view.sort, view.reverse) = (Some(13), false);
    view.of = Some(crate::app::row::RowId::Spender {
        by: "tenant".into(),
        name: "acme".into(),
    });
    let palette = |typed: &str, chosen: Option<Action>| {
        with(Layer::Palette(Palette {
            input: typed.into(),
            chosen,
        }))
    };
    let mut palette_off = palette("", Some(Action::Cancel));
    palette_off.allow_writes = false;
    let strike = |change: fn(&mut Question)| {
        let mut question = fixture::strike(&base);
        change(&mut question);
        with(Layer::Strike(Box::new(question)))
    };
    vec![
        ("palette", palette("", None)),
        ("palette-end", palette("", Some(Action::Suspend))),
        ("palette-typed", palette("row", Some(Action::TasksOf))),
        ("palette-none", palette("no such thing", None)),
        ("palette-off", palette_off),
        ("strike", strike(|_| {})),
        (
            "strike-typed",
            strike(|q| {
                q.stage = Asking::Confirm(How::Terminate);
                q.must_type = "4711".into();
                q.input = "4711 stuck since the deploy".into();
            }),
        ),
        (
            "strike-reading",
            strike(|q| (q.seen, q.stage) = (None, Asking::Reading)),
        ),
        (
            "strike-busy",
            strike(|q| q.stage = Asking::Running(How::Terminate)),
        ),
        ("confirm", confirm(|_| {})),
        ("confirm-typed", confirm(|d| d.input = "3".into())),
        ("confirm-one", confirm(|d| d.must_type.clear())),
        (
            "confirm-reading",
            with(Layer::Confirm(Box::new(Dialog::new(
                1,
                Verb::Requeue,
                Choice::These(vec![]),
            )))),
        ),
        (
            "confirm-release",
            with(Layer::Confirm(Box::new(dialog(Verb::Release)))),
        ),
        (
            "confirm-reason",
            confirm(|d| {
                d.stage = Stage::Reason;
                d.input = "provider is back".into();
            }),
        ),
        (
            "confirm-number",
            with(Layer::Confirm(Box::new(Dialog::new(
                1,
                Verb::Priority(0),
                Choice::These(vec![]),
            )))),
        ),
        (
            "confirm-busy",
            confirm(|d| {
                d.stage = Stage::Running;
                d.lines =
                    vec!["5,100 of 12,480 done, 5,088 changed, 7,380 left, 480 a second".into()];
            }),
        ),
        ("help", with(Layer::Help { scroll: 0 })),
        ("help-end", with(Layer::Help { scroll: 999 })),
        ("task", task),
        ("toasts", toasts),
        ("filter", filter),
        ("held", held),
        ("sorted-of", sorted),
    ]
}
