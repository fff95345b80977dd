//! One event, one line: `2026-11-30T01:02:03.456Z [97] INFO  connected session=poll pid=4711 …`, where 97 is this process, since
//! several may append to one file. Whatever a value holds, it neither ends the line nor moves a cursor: it is quoted, and what is
//! not plain text is escaped. Values of keys that sound like a secret's, and passwords in URLs, are replaced, wherever they come
//! from.

use super::words;
use crate::config::Config;
use crate::probe::tasks::redact::redact;
use crate::text::forbidden;
use chrono::{SecondsFormat, Utc};
use std::fmt::{self, Debug, Write};
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Bytes of a value, and of a statement, that are written.
const LONGEST: usize = 2048;
const LONGEST_STATEMENT: usize = 64 * 1024;

/// The field that holds a statement.
pub(super) const STATEMENT: &str = "text";

/// How lines are made.
#[derive(Clone)]
pub(super) struct Line {
    /// In lower case.
    patterns: Arc<[String]>,
}

impl Line {
    /// Hides values of keys that contain one of `redact`, or one that is hidden by default: a log leaves the machine.
    pub fn new(redact: &[String]) -> Self {
        let always = Config::default().redact;
        let crypt = "crypt".to_string();
        let all = redact.iter().chain(&always).chain([&crypt]);
        Self {
            patterns: all.map(|p| p.to_lowercase()).collect(),
        }
    }

    /// A value as it is written.
    fn value(&self, name: &str, value: &str) -> String {
        if name == STATEMENT {
            let text = words::statement(value, &self.patterns);
            return quoted(cut(&text, LONGEST_STATEMENT));
        }
        quoted(&redact(cut(value, LONGEST), &self.patterns))
    }
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "{}", head(event.metadata().level()))?;
        self.format_fields(writer.by_ref(), event)?;
        for span in context
            .event_scope()
            .into_iter()
            .flat_map(|s| s.from_root())
        {
            let extensions = span.extensions();
            if let Some(fields) = extensions.get::<FormattedFields<N>>() {
                write!(writer, "{}", fields.fields)?;
            }
        }
        writeln!(writer)
    }
}

impl<'w> FormatFields<'w> for Line {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut pairs = Pairs {
            line: self,
            writer,
            result: Ok(()),
        };
        fields.record(&mut pairs);
        pairs.result
    }
}

/// When, by this machine's clock, which process, and how grave.
pub(super) fn head(level: &Level) -> String {
    let now = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
    format!("{now} [{}] {:<5}", std::process::id(), level.as_str())
}

struct Pairs<'l, 'w> {
    line: &'l Line,
    writer: Writer<'w>,
    result: fmt::Result,
}

impl Pairs<'_, '_> {
    fn pair(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let written = match field.name() {
            // the event's own name, of our making
            "message" => write!(self.writer, " {value}"),
            name => write!(self.writer, " {name}={value}"),
        };
        self.result = self.result.and(written);
    }
}

impl Visit for Pairs<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.pair(field, format_args!("{value:?}")),
            _ => self.record_str(field, &format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let value = self.line.value(field.name(), value);
        self.pair(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.pair(field, format_args!("{value:.2}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.pair(field, format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.pair(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.pair(field, format_args!("{value}"));
    }
}

/// The beginning.
fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A word as it is; anything else between quotes, escaped as Rust and JSON do it.
pub(super) fn quoted(text: &str) -> String {
    let odd = |c: char| c.is_whitespace() || matches!(c, '"' | '=' | '\\') || forbidden(c);
    if !text.is_empty() && !text.contains(odd) {
        return text.to_string();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            ' ' => out.push(c),
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // to a String: cannot fail
            c if c.is_whitespace() || forbidden(c) => drop(write!(out, "\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
