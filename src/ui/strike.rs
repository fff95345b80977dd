//! The question before a session is ended.

use super::ask;
use super::text::{dim, ink, text, wrap};
use super::theme::Ink;
use crate::action::strike::How;
use crate::action::strike::facts::Facts;
use crate::app::strike::{Question, Stage};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws it over everything.
pub fn draw(buffer: &mut Buffer, area: Rect, question: &Question) {
    let (title, lines) = match &question.seen {
        Some((_, facts)) => (facts.title.clone(), lines(question.stage, facts)),
        None => (format!("End session {}?", question.pid), Vec::new()),
    };
    let foot = foot(question, ask::room(area));
    ask::draw(buffer, area, &title, &lines, foot);
}

/// Each choice with its key, its name, and what it does or why it cannot be done.
fn choices(facts: &Facts) -> [(How, &'static str, &'static str, &Result<String, String>); 2] {
    [
        (How::Terminate, "t", "terminate", &facts.terminate),
        (How::Cancel, "c", "cancel its statement", &facts.cancel),
    ]
}

fn lines(stage: Stage, facts: &Facts) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = facts.lines.iter().map(|l| Line::from(text(l))).collect();
    lines.extend(
        facts
            .twice
            .iter()
            .map(|why| Line::from(vec![ink("! think twice: ", Ink::Warn), text(why)])),
    );
    lines.push(Line::default());
    let chosen = match stage {
        Stage::Confirm(how) | Stage::Running(how) => Some(how),
        Stage::Reading | Stage::Choose => None,
    };
    for (how, _, name, does) in choices(facts) {
        if chosen.is_some_and(|c| c != how) {
            continue;
        }
        lines.push(Line::from(match does {
            Ok(does) => vec![ink(format!("{name}: "), Ink::Strong), text(does)],
            Err(why) => vec![dim(format!("{name} is off: {why}"))],
        }));
    }
    lines
}

fn foot(question: &Question, room: usize) -> Vec<Line<'static>> {
    let what = |how: How| match how {
        How::Cancel => "cancel its statement",
        How::Terminate => "terminate it",
    };
    match question.stage {
        Stage::Reading => {
            let mut line = vec![ink("reading the session as it is now…      ", Ink::Warn)];
            line.extend(ask::no());
            vec![Line::from(line)]
        }
        Stage::Choose => {
            let mut line = Vec::new();
            let seen = question.seen.iter();
            for (_, key, name, does) in seen.flat_map(|(_, facts)| choices(facts)) {
                let (strong, plain) = match does {
                    Ok(_) => (Ink::Key, Ink::Text),
                    Err(_) => (Ink::Dim, Ink::Dim),
                };
                line.extend([ink(key, strong), ink(format!(" {name}    "), plain)]);
            }
            line.extend(ask::no());
            wrap(&Line::from(line), room, 0)
        }
        Stage::Confirm(how) if question.must_type.is_empty() => ask::yes_or_no(what(how), room),
        Stage::Confirm(how) => ask::field(
            &format!("type {} (and why, for the journal): ", question.must_type),
            &question.input,
            &format!(" yes, {}", what(how)),
            question.typed().is_some(),
            room,
        ),
        Stage::Running(_) => {
            let line = vec![
                ink("signalling, then looking for up to 2 s…    ", Ink::Warn),
                ink("Esc", Ink::Key),
                text(" hide this"),
            ];
            wrap(&Line::from(line), room, 0)
        }
    }
}
