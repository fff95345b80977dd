//! The page: parts of lines, each fine, worth knowing or in need of somebody; as text of 80 columns or as JSON.

use crate::sql::copyable;
use crate::ui::text::{self, wrap};
use ratatui::text::Line as Inked;
use serde::Serialize;

/// Columns of the page.
const WIDTH: usize = 80;
/// Columns before a line's text.
const INDENT: usize = 27;
/// Columns before what to run.
const RUN: usize = 6;

/// What a line asks of its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing.
    Ok,
    /// To know it.
    Note,
    /// To do something.
    NeedsDoing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// How it is.
    pub level: Level,
    /// What was looked at.
    pub name: String,
    /// What was found. Not cleaned.
    pub text: String,
    /// Statements or commands that would help, each whole. Not cleaned.
    pub run: Vec<String>,
}

/// Lines about one matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Its heading.
    pub title: String,
    /// Its lines.
    pub lines: Vec<Line>,
}

impl Part {
    /// No lines yet.
    pub fn new(title: &str) -> Self {
        Self {
            title: title.into(),
            lines: Vec::new(),
        }
    }

    /// Adds a line.
    pub fn say(&mut self, level: Level, name: &str, text: impl Into<String>) {
        self.advise(level, name, text, Vec::new());
    }

    /// On a standby: what would change something is to be run elsewhere, and each line says so.
    pub fn on_a_standby(mut self) -> Self {
        let changes = |l: &&mut Line| l.run.iter().any(|run| !run.starts_with("SELECT "));
        for line in self.lines.iter_mut().filter(changes) {
            line.text += "; run on the primary:";
        }
        self
    }

    /// Adds a line with what to run.
    pub fn advise(&mut self, level: Level, name: &str, text: impl Into<String>, run: Vec<String>) {
        self.lines.push(Line {
            level,
            name: name.into(),
            text: text.into(),
            run,
        });
    }
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page {
    /// Version of this shape. Fields are added, never renamed.
    pub format: u32,
    /// jobtop's own version.
    pub jobtop: String,
    /// Where: database @ host.
    pub place: String,
    /// The server's clock, RFC 3339; empty where it is not known.
    pub taken_at: String,
    /// Lines that need doing.
    pub needs_doing: usize,
    /// The parts.
    pub parts: Vec<Part>,
}

impl Page {
    /// A page of these parts.
    pub fn new(place: String, taken_at: String, parts: Vec<Part>) -> Self {
        let mut page = Self {
            format: 1,
            jobtop: env!("CARGO_PKG_VERSION").into(),
            place,
            taken_at,
            needs_doing: 0,
            parts,
        };
        page.needs_doing = page.count(Level::NeedsDoing);
        page
    }

    fn count(&self, level: Level) -> usize {
        let lines = self.parts.iter().flat_map(|p| &p.lines);
        lines.filter(|l| l.level == level).count()
    }

    /// As text, 80 columns wide (a statement that a line break would change may be wider), without anything that could
    /// harm a terminal.
    pub fn text(&self) -> String {
        let head = [
            "jobtop",
            &self.jobtop,
            "doctor:",
            &self.place,
            &self.taken_at,
        ];
        let mut out = wrapped(&head.join(" "), WIDTH, 0, "");
        for part in &self.parts {
            out.push_str(&format!("\n{}\n", part.title));
            for line in &part.lines {
                out.push_str(&line.print());
            }
        }
        let count = |level| self.count(level);
        out.push_str(&format!(
            "\nneeds doing: {}, notes: {}, ok: {}\n",
            count(Level::NeedsDoing),
            count(Level::Note),
            count(Level::Ok)
        ));
        out
    }
}

impl Line {
    fn print(&self) -> String {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::NeedsDoing => "needs doing",
        };
        let head = format!("  {level:<11}  {:<11} ", self.name);
        let mut out = wrapped(&self.text, WIDTH, INDENT, &head);
        for run in &self.run {
            let run = &copyable(run);
            let quoted = run.contains(['"', '\'']) && breaks_a_name(run);
            let columns = if quoted { usize::MAX } else { WIDTH };
            out.push_str(&wrapped(run, columns, RUN, &" ".repeat(RUN)));
        }
        out
    }
}

/// Would a line break change what is quoted?
fn breaks_a_name(sql: &str) -> bool {
    let mut quote = None;
    for c in sql.chars() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            (Some(_), ' ') => return true,
            _ => {}
        }
    }
    false
}

/// Cleaned text behind a head of `indent` columns, as many lines as it takes.
fn wrapped(text: &str, columns: usize, indent: usize, head: &str) -> String {
    let room = columns.saturating_sub(indent);
    let lines = wrap(&Inked::from(text::text(text)), room, 0);
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        let head = match n {
            0 => head.to_string(),
            _ => " ".repeat(indent),
        };
        let line = format!("{head}{line}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_standby_nothing_is_to_be_run_that_changes_something() {
        let mut part = Part::new("RIGHTS");
        let run = |sql: &str| vec![sql.to_string()];
        part.advise(Level::Note, "^K", "may not", run("GRANT a TO b;"));
        let ends = run("SELECT pg_terminate_backend(1);");
        part.advise(Level::Note, "queue", "full", ends);
        part.say(Level::Ok, "role", "mona");
        let lines = part.on_a_standby().lines;
        let texts: Vec<&str> = lines.iter().map(|l| l.text.as_str()).collect();
        assert_eq!(texts, ["may not; run on the primary:", "full", "mona"]);
    }

    #[test]
    fn lines_are_aligned_clean_and_no_wider_than_a_terminal() {
        let mut part = Part::new("RIGHTS");
        part.say(Level::Ok, "sight", "sees everybody");
        let long = "may not requeue: permission denied for \u{1b}[2Jtable agent_jobs, which is owned by somebody else";
        let short =
            "GRANT SELECT ON \"public\".\"agent_jobs\" TO \"a_rather_long_role_name_for_somebody\"";
        let odd = "GRANT SELECT ON \"public\".\"agent_jobs\" TO \"a rather odd role name for somebody on call\"";
        let run = vec![short.to_string(), odd.to_string()];
        part.advise(Level::NeedsDoing, "actions", long, run);
        let page = Page::new("d @ h".into(), "2026-01-01T00:00:00Z".into(), vec![part]);
        assert_eq!(page.needs_doing, 1);
        let text = page.text();
        let version = ["jobtop ", env!("CARGO_PKG_VERSION")].concat();
        insta::assert_snapshot!(text.replace(&version, "jobtop VERSION"));
        let wide = |l: &&str| l.len() > WIDTH;
        assert!(text.lines().filter(wide).all(|l| l.trim() == odd), "{text}");
    }
}
