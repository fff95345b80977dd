//! Colour by meaning. Everything under `ui` and `panes` draws with an [`Ink`], an index that stands for a meaning;
//! the theme turns inks into colours in one pass over the finished frame, as a palette does for a picture. So no
//! pane knows a hue, and `NO_COLOR`, 16, 256 and true colour differ in this file only.

use super::glyphs;
use crate::config::Config;
use crate::findings::{Mark, Severity};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// What a piece of text means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ink {
    /// Plain data.
    #[default]
    Text,
    /// Labels, rules, what is calm: there, but quiet.
    Dim,
    /// Headings.
    Title,
    /// A figure that a person came for.
    Strong,
    /// Guilty; somebody should act.
    Bad,
    /// Look here next.
    Warn,
    /// Went well.
    Good,
    /// A name one can press or follow.
    Key,
    /// The columns of the flow.
    Flow,
    /// Reversed: HELD, STALE, the caret of a text field.
    Badge,
    /// Reversed and guilty.
    Alarm,
}

impl Ink {
    /// All inks.
    pub const ALL: [Ink; 11] = [
        Ink::Text,
        Ink::Dim,
        Ink::Title,
        Ink::Strong,
        Ink::Bad,
        Ink::Warn,
        Ink::Good,
        Ink::Key,
        Ink::Flow,
        Ink::Badge,
        Ink::Alarm,
    ];

    /// The ink of a cell before the frame is painted.
    pub fn of(color: Color) -> Ink {
        match color {
            Color::Indexed(i) => Ink::ALL.get(usize::from(i)).copied().unwrap_or_default(),
            _ => Ink::Text,
        }
    }

    /// The ink for a severity.
    pub fn severity(severity: Severity) -> Ink {
        match severity {
            Severity::Info => Ink::Text,
            Severity::Warning => Ink::Warn,
            Severity::Critical => Ink::Bad,
        }
    }

    /// The ink for a layer's mark.
    pub fn mark(mark: Mark) -> Ink {
        match mark {
            Mark::Good | Mark::Unknown => Ink::Dim,
            Mark::Warn => Ink::Warn,
            Mark::Bad => Ink::Bad,
        }
    }
}

impl From<Ink> for Style {
    fn from(ink: Ink) -> Style {
        Style::new().fg(Color::Indexed(ink as u8))
    }
}

/// Marks the row under the cursor, before the frame is painted.
pub const SELECTED: Style = Style::new().bg(Color::Indexed(255));

/// What the environment says about the terminal; the caller reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Env {
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// `COLORTERM`.
    pub colorterm: Option<String>,
    /// `TERM`.
    pub term: Option<String>,
    /// The locale is a UTF-8 one.
    pub utf8: bool,
}

/// How many colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None: bold, reverse and dim carry the meaning.
    None,
    /// The sixteen of the user's own scheme.
    Sixteen,
    /// The fixed palette of 256.
    Palette,
    /// 24 bits.
    True,
}

/// Inks to styles, and which glyphs there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Theme {
    /// How many colours there are.
    pub depth: Depth,
    /// Draw with ASCII only.
    pub ascii: bool,
    styles: [Style; Ink::ALL.len()],
    selected: Style,
}

impl Theme {
    /// The theme for these settings on this terminal. A colour depth asked for by name beats `NO_COLOR`; `auto` is
    /// sixteen colours, because only those follow a light or dark scheme.
    pub fn new(config: &Config, env: &Env) -> Self {
        let term = env.term.as_deref().unwrap_or("");
        let few = term == "linux" || term.starts_with("vt");
        let screen = term.starts_with("screen") && env.colorterm.is_none();
        let depth = match config.color.as_str() {
            "none" => Depth::None,
            "16" => Depth::Sixteen,
            "256" if few => Depth::Sixteen,
            "256" => Depth::Palette,
            "true" if few => Depth::Sixteen,
            // GNU screen prints 24-bit sequences as garbage unless it says otherwise.
            "true" if screen => Depth::Palette,
            "true" => Depth::True,
            _ if env.no_color || term == "dumb" => Depth::None,
            _ => Depth::Sixteen,
        };
        Self::of(depth, config.ascii || !env.utf8)
    }

    /// A theme by name of its parts.
    pub fn of(depth: Depth, ascii: bool) -> Self {
        Self {
            depth,
            ascii,
            styles: Ink::ALL.map(|ink| style(depth, ink)),
            selected: Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// How an ink looks.
    pub fn ink(&self, ink: Ink) -> Style {
        self.styles[ink as usize]
    }

    /// Turns meanings into colours and, for ASCII, glyphs into characters. The last step of a frame.
    pub fn paint(&self, buffer: &mut Buffer) {
        for cell in &mut buffer.content {
            let selected = cell.bg == Color::Indexed(255);
            let ink = Ink::of(cell.fg);
            cell.set_style(Style::reset());
            cell.set_style(self.ink(ink));
            if selected {
                // A reversed cell that is reversed again would vanish from the bar, dim text would be faint in it.
                cell.modifier.remove(Modifier::DIM);
                cell.set_style(self.selected);
            }
            if self.ascii && !cell.symbol().is_ascii() {
                cell.set_symbol(glyphs::ascii(cell.symbol()));
            }
        }
    }
}

/// Okabe-Ito hues where hues can be chosen. Dim and bold are never combined: terminals undo both with one sequence.
fn style(depth: Depth, ink: Ink) -> Style {
    use Ink as I;
    let plain = Style::new();
    let bold = plain.add_modifier(Modifier::BOLD);
    let reversed = bold.add_modifier(Modifier::REVERSED);
    let hue = |sixteen: Color, palette: u8, rgb: u32| match depth {
        Depth::None => Color::Reset,
        Depth::Sixteen => sixteen,
        Depth::Palette => Color::Indexed(palette),
        Depth::True => Color::from_u32(rgb),
    };
    match (ink, depth) {
        (I::Text, _) => plain,
        (I::Dim, Depth::None | Depth::Sixteen) => plain.add_modifier(Modifier::DIM),
        (I::Dim, _) => plain.fg(hue(Color::Reset, 245, 0x8a_8a_8a)),
        (I::Title | I::Strong, _) => bold,
        (I::Bad, Depth::None) => bold.add_modifier(Modifier::UNDERLINED),
        (I::Bad, _) => bold.fg(hue(Color::Red, 202, 0xe6_6a_1f)),
        (I::Warn, Depth::None) => bold,
        (I::Warn, _) => plain.fg(hue(Color::Yellow, 214, 0xe6_9f_00)),
        (I::Good, Depth::None) => plain,
        (I::Good, _) => plain.fg(hue(Color::Green, 36, 0x00_9e_73)),
        (I::Key, Depth::None) => bold,
        (I::Key, _) => plain.fg(hue(Color::Cyan, 74, 0x56_b4_e9)),
        (I::Flow, Depth::None) => plain,
        // Blue would be the hue, but the blue of many schemes cannot be seen on black.
        (I::Flow, Depth::Sixteen) => plain.add_modifier(Modifier::DIM),
        (I::Flow, _) => plain.fg(hue(Color::Reset, 67, 0x5f_87_af)),
        (I::Badge, _) => reversed,
        (I::Alarm, Depth::None) => reversed,
        (I::Alarm, _) => reversed.fg(hue(Color::Red, 202, 0xe6_6a_1f)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(term: &str, no_color: bool) -> Env {
        Env {
            no_color,
            colorterm: None,
            term: Some(term.into()),
            utf8: true,
        }
    }

    #[test]
    fn depth_follows_what_was_asked_for() {
        let mut config = Config::default();
        let depth = |c: &Config, e: &Env| Theme::new(c, e).depth;
        assert_eq!(depth(&config, &env("xterm", false)), Depth::Sixteen);
        assert_eq!(depth(&config, &env("xterm", true)), Depth::None);
        assert_eq!(depth(&config, &env("dumb", false)), Depth::None);
        config.color = "true".into();
        assert_eq!(depth(&config, &env("xterm", true)), Depth::True);
        assert_eq!(depth(&config, &env("linux", false)), Depth::Sixteen);
        assert_eq!(depth(&config, &env("screen", false)), Depth::Palette);
    }

    #[test]
    fn bold_is_never_dim_and_no_colour_means_none() {
        for depth in [Depth::None, Depth::Sixteen, Depth::Palette, Depth::True] {
            for ink in Ink::ALL {
                let s = style(depth, ink);
                assert!(!s.add_modifier.contains(Modifier::BOLD | Modifier::DIM));
                if depth == Depth::None {
                    assert!(matches!(s.fg, None | Some(Color::Reset)), "{ink:?}");
                }
            }
        }
    }
}
