//! Words for sentences: compact durations, counts, money, and names made harmless. Names come from tasks and
//! sessions: anybody can put an escape sequence or a right-to-left override into one.

use crate::probe::Usd;
pub use crate::text::thousands as count;
use unicode_width::UnicodeWidthChar;

/// Columns that a name may take within a sentence.
const NAME: usize = 40;
/// Characters looked at: what comes later would be cut in any case.
const LOOK_AT: usize = 2_000;

/// A name as a sentence shows it: one line, no invisible characters, at most 40 columns.
pub fn name(text: &str) -> String {
    let cleaned = clean(text, NAME);
    if cleaned.is_empty() {
        "(no name)".into()
    } else {
        cleaned
    }
}

/// Text without control, bidi and zero-width characters, whitespace runs joined, cut to `columns`.
pub fn clean(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    let mut marks = 0;
    let head: String = text.chars().take(LOOK_AT).collect();
    for c in crate::text::clean(&head).chars() {
        let c = if c.is_whitespace() { ' ' } else { c };
        if c == ' ' && (out.is_empty() || out.ends_with(' ')) {
            continue;
        }
        let width = c.width().unwrap_or(0);
        marks = if width == 0 { marks + 1 } else { 0 };
        if marks > 2 {
            continue;
        }
        if used + width > columns.saturating_sub(1) && width > 0 {
            // The last column is kept for the sign that something was cut.
            out.truncate(out.trim_end().len());
            out.push('…');
            return out;
        }
        used += width;
        out.push(c);
    }
    out.truncate(out.trim_end().len());
    out
}

/// A duration in one unit, two from an hour on: `0.4s`, `41s`, `8m`, `1h`, `2h05m`, `3d`, `3d4h`.
pub fn duration(seconds: f64) -> String {
    let s = sane(seconds);
    match s {
        s if s < 9.95 && s.fract() > 0.05 => format!("{s:.1}s"),
        s if s < 60.0 => format!("{s:.0}s"),
        s if s < 3600.0 => format!("{}m", (s / 60.0).floor()),
        s => two(s, 3600.0),
    }
}

/// A duration in two units: `41s`, `3m48s`, `2h05m`, `3d4h`.
pub fn precise(seconds: f64) -> String {
    let s = sane(seconds);
    match s {
        s if s < 60.0 => duration(s),
        s if s < 3600.0 => two(s, 60.0),
        s => two(s, 3600.0),
    }
}

fn sane(seconds: f64) -> f64 {
    // A century: what a broken timestamp yields is not worth more digits.
    let s = seconds.clamp(0.0, 3.2e9);
    if s < 9.95 { s } else { s.round() }
}

fn two(seconds: f64, unit: f64) -> String {
    let (s, m, h, d) = (
        seconds as u64 % 60,
        seconds as u64 / 60 % 60,
        seconds as u64 / 3600 % 24,
        seconds as u64 / 86_400,
    );
    match (d, unit as u64) {
        (1.., _) if h == 0 || d >= 10 => format!("{}d", count(d)),
        (1.., _) => format!("{d}d{h}h"),
        (0, 3600) if m == 0 => format!("{h}h"),
        (0, 3600) => format!("{h}h{m:02}m"),
        (0, _) if s == 0 => format!("{m}m"),
        (0, _) => format!("{m}m{s:02}s"),
    }
}

/// `1 task`, `7 tasks`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// `$18.40`, `$1,234.50`; `$0.0042` where cents would say nothing.
pub fn money(usd: Usd) -> String {
    let micros = usd.0.unsigned_abs();
    let sign = if usd.0 < 0 { "-" } else { "" };
    if micros > 0 && micros < 10_000 {
        return format!("{sign}$0.{:04}", micros.div_ceil(100).min(9_999));
    }
    let cents = micros.saturating_add(5_000) / 10_000;
    format!("{sign}${}.{:02}", count(cents / 100), cents % 100)
}

/// `69 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).clamp(0.0, 100.0))
}

/// A rate: `0.4`, `7`, `212`, `5,012`.
pub fn rate(n: f64) -> String {
    let n = n.clamp(0.0, 1e15);
    if n < 9.95 && n.fract() > 0.05 && n.fract() < 0.95 {
        format!("{n:.1}")
    } else {
        count(n.round() as u64)
    }
}

/// At most `most` of them, joined by commas, and how many more of `total` there are.
pub fn list<'a>(ids: impl IntoIterator<Item = &'a str>, most: usize, total: u64) -> String {
    let shown: Vec<String> = ids.into_iter().take(most).map(name).collect();
    let more = total.saturating_sub(shown.len() as u64);
    match (shown.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} and {} more", shown.join(", "), count(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_compact() {
        for (s, short, long) in [
            (0.0, "0s", "0s"),
            (0.4, "0.4s", "0.4s"),
            (9.0, "9s", "9s"),
            (9.97, "10s", "10s"),
            (41.4, "41s", "41s"),
            (59.6, "1m", "1m"),
            (60.0, "1m", "1m"),
            (228.0, "3m", "3m48s"),
            (3599.0, "59m", "59m59s"),
            (3600.0, "1h", "1h"),
            (7500.0, "2h05m", "2h05m"),
            (86_400.0 * 3.0 + 4.5 * 3600.0, "3d4h", "3d4h"),
            (-5.0, "0s", "0s"),
            (f64::INFINITY, "37,037d", "37,037d"),
        ] {
            assert_eq!(duration(s), short, "{s}");
            assert_eq!(precise(s), long, "{s}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(5012), "5,012");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(plural(1, "task", "tasks"), "1 task");
        assert_eq!(rate(211.7), "212");
        assert_eq!(rate(0.4), "0.4");
        assert_eq!(percent(0.688), "69 %");
        assert_eq!(list(["a", "b", "c"], 2, 7), "a, b and 5 more");
        assert_eq!(list(["a"], 2, 1), "a");
    }

    #[test]
    fn money_keeps_what_matters() {
        assert_eq!(money(Usd(18_400_000)), "$18.40");
        assert_eq!(money(Usd(1_234_567_890)), "$1,234.57");
        assert_eq!(money(Usd(4_200)), "$0.0042");
        assert_eq!(money(Usd(-2_000_000)), "-$2.00");
        assert_eq!(money(Usd(0)), "$0.00");
        assert!(money(Usd(i64::MIN)).starts_with("-$"));
    }

    #[test]
    fn names_are_made_harmless() {
        assert_eq!(name("\u{1b}[31mred\u{202e}x\u{200b}y\u{7}"), "[31mredxy");
        assert_eq!(name("a\n\t b"), "a b");
        assert_eq!(name(" \u{200b}"), "(no name)");
        assert_eq!(name(&"x".repeat(100)).chars().count(), 40);
        assert!(name(&format!("e{}", "\u{301}".repeat(500))).chars().count() < 5);
        let wide = name(&"漢".repeat(60));
        assert!(unicode_width::UnicodeWidthStr::width(wide.as_str()) <= 40);
    }
}
