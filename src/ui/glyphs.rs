//! The glyphs of the screen and what stands for them in ASCII.

use crate::findings::{Mark, Severity};

/// Lowest to highest column of the flow.
pub const LEVELS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// The glyph of a severity; a word or a figure always stands beside it.
pub fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "·",
        Severity::Warning => "!",
        Severity::Critical => "✗",
    }
}

/// The glyph of a layer's mark.
pub fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Good => "✓",
        Mark::Warn => "!",
        Mark::Bad => "✗",
        Mark::Unknown => "?",
    }
}

/// What stands for a glyph where only ASCII can be shown; `?` for letters that we did not choose.
pub fn ascii(glyph: &str) -> &'static str {
    match glyph {
        "─" => "-",
        "│" => "|",
        "┌" | "┐" | "└" | "┘" | "├" => "+",
        "✗" => "x",
        "✓" => "v",
        "▸" => ">",
        "●" => "*",
        "·" => ".",
        "…" => "~",
        "⏎" => "|",
        "↑" => "^",
        "↓" => "v",
        "→" => ">",
        "←" => "<",
        "▁" => ".",
        "▂" => ":",
        "▃" => "-",
        "▄" => "=",
        "▅" => "+",
        "▆" => "*",
        "▇" | "█" | "▉" | "▊" | "▋" => "#",
        "▌" | "▍" => "=",
        "▎" | "▏" => "-",
        _ => "?",
    }
}
