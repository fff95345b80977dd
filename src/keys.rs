//! THE table of keys: key, action, hint, risk. Dispatch, footer, help, palette and documentation all read it; a key
//! bound twice fails a test. An action without a key is reached through the palette.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key does. `app::update` gives each its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Focus the pane of that number and show it whole.
    Pane(u8),
    /// Back to the overview.
    Overview,
    /// Focus the next pane.
    NextPane,
    /// Focus the previous pane.
    PreviousPane,
    /// Everything about the row.
    Open,
    /// Close the topmost layer, then marks, then filter.
    Back,
    /// Cursor down.
    Down,
    /// Cursor up.
    Up,
    /// Cursor to the first row.
    Top,
    /// Cursor to the last row.
    Bottom,
    /// A page down.
    PageDown,
    /// A page up.
    PageUp,
    /// Show the focused pane whole, or the overview again.
    Zoom,
    /// Sort by the next column.
    Sort,
    /// Reverse the order.
    Reverse,
    /// Edit the filter.
    Filter,
    /// Mark the row.
    Mark,
    /// Mark all rows shown.
    MarkAll,
    /// Hold the view, or go on.
    Hold,
    /// Poll now.
    Refresh,
    /// Poll more often.
    Faster,
    /// Poll less often.
    Slower,
    /// The tasks of this row.
    TasksOf,
    /// What blocks this row.
    Blocker,
    /// Write an incident report.
    Report,
    /// Copy ids.
    Copy,
    /// Write a picture and the snapshot.
    Picture,
    /// Requeue tasks.
    Requeue,
    /// Cancel tasks.
    Cancel,
    /// Release expired leases.
    Release,
    /// Requeue tasks with a full new set of tries.
    RequeueFresh,
    /// Make tasks due at once.
    RunNow,
    /// Change the priority of tasks.
    Priority,
    /// Take tasks out of the workers' sight.
    Park,
    /// Give them back.
    Unpark,
    /// Cancel the statement of a session, or end the session.
    EndSession,
    /// Stop the action under way.
    Stop,
    /// Findings, writes, errors.
    Log,
    /// Repaint.
    Repaint,
    /// Stop until the shell brings us back.
    Suspend,
    /// Help of the focused pane.
    Help,
    /// All actions, to choose from.
    Palette,
    /// Quit (closes a dialog first).
    Quit,
}

/// What an action may do to the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Risk {
    /// Nothing.
    Looks,
    /// It writes, after a dialog.
    Writes,
}

/// Where help and footer list a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Moving about.
    Move,
    /// Looking closer.
    Look,
    /// Taking away.
    Take,
    /// Writing.
    Write,
    /// The program itself.
    Program,
}

/// One row of the table.
pub struct Binding {
    /// What it does.
    pub action: Action,
    /// The keys, as [`parse`] reads them; none where only the palette reaches it.
    pub keys: &'static [&'static str],
    /// One or two words for the footer; empty where the footer leaves it out, as it does with what has no key.
    pub hint: &'static str,
    /// One line for the help.
    pub help: &'static str,
    /// May it write?
    pub risk: Risk,
    /// Where it is listed.
    pub group: Group,
}

impl Binding {
    /// Its keys, as help and palette list them: the palette's own where it has none.
    pub fn label(&self) -> String {
        match self.keys {
            [] => PALETTE.to_string(),
            keys => keys.join(" "),
        }
    }
}

/// The key of the palette.
const PALETTE: &str = ":";

const fn looks(
    action: Action,
    keys: &'static [&'static str],
    hint: &'static str,
    help: &'static str,
    group: Group,
) -> Binding {
    Binding {
        action,
        keys,
        hint,
        help,
        risk: Risk::Looks,
        group,
    }
}

const fn writes(
    action: Action,
    keys: &'static [&'static str],
    hint: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        action,
        keys,
        hint,
        help,
        risk: Risk::Writes,
        group: Group::Write,
    }
}

use Action as A;
use Group as G;

/// Every binding. The footer shows those with a hint, in this order, as far as they fit.
pub static KEYS: &[Binding] = &[
    looks(
        A::Open,
        &["Enter"],
        "open",
        "everything about the row",
        G::Look,
    ),
    looks(
        A::TasksOf,
        &["t"],
        "tasks",
        "the tasks of this row",
        G::Look,
    ),
    looks(
        A::Blocker,
        &["b"],
        "blocker",
        "what blocks this row",
        G::Look,
    ),
    looks(
        A::Filter,
        &["/"],
        "filter",
        "show only rows that contain the words typed",
        G::Look,
    ),
    looks(
        A::Hold,
        &["p"],
        "hold",
        "hold the view (collection goes on; writes are refused)",
        G::Look,
    ),
    looks(
        A::Report,
        &["i"],
        "report",
        "incident report to a file and to the clipboard",
        G::Take,
    ),
    looks(A::Help, &["?"], "help", "this help", G::Program),
    looks(
        A::Palette,
        &[PALETTE],
        "",
        "every action, to choose from; some have no key",
        G::Program,
    ),
    looks(
        A::Quit,
        &["q", "^C"],
        "quit",
        "quit (closes a dialog first)",
        G::Program,
    ),
    writes(
        A::Requeue,
        &["R"],
        "requeue",
        "requeue the marked tasks, or the one under the cursor",
    ),
    writes(
        A::Cancel,
        &["X"],
        "cancel",
        "cancel the marked tasks, or the one under the cursor",
    ),
    writes(
        A::Release,
        &["E"],
        "release",
        "release all expired leases, the oldest first, at most 1,000",
    ),
    writes(
        A::RequeueFresh,
        &[],
        "",
        "requeue afresh: with a full new set of tries",
    ),
    writes(
        A::RunNow,
        &[],
        "",
        "run now: due at once, whatever the back-off",
    ),
    writes(A::Priority, &[], "", "change the priority"),
    writes(A::Park, &[], "", "park: nobody claims them until unparked"),
    writes(A::Unpark, &[], "", "unpark"),
    writes(
        A::EndSession,
        &["^K"],
        "end",
        "end the session under the cursor, or cancel its statement",
    ),
    looks(
        A::Stop,
        &["A"],
        "",
        "stop the action under way after its present chunk",
        G::Write,
    ),
    looks(A::Down, &["j", "Down"], "", "down", G::Move),
    looks(A::Up, &["k", "Up"], "", "up", G::Move),
    looks(A::Top, &["g", "Home"], "", "first row", G::Move),
    looks(A::Bottom, &["G", "End"], "", "last row", G::Move),
    looks(A::PageDown, &["^D", "PageDown"], "", "a page down", G::Move),
    looks(A::PageUp, &["^U", "PageUp"], "", "a page up", G::Move),
    looks(A::NextPane, &["Tab"], "", "next pane", G::Move),
    looks(A::PreviousPane, &["S-Tab"], "", "previous pane", G::Move),
    looks(A::Overview, &["0"], "", "the overview", G::Move),
    looks(A::Pane(1), &["1"], "", "connections", G::Move),
    looks(A::Pane(2), &["2"], "", "waits and who blocks whom", G::Move),
    looks(A::Pane(3), &["3"], "", "queues, kinds and stages", G::Move),
    looks(A::Pane(4), &["4"], "", "workers and leases", G::Move),
    looks(A::Pane(5), &["5"], "", "cost", G::Move),
    looks(A::Pane(6), &["6"], "", "tasks", G::Move),
    looks(A::Pane(7), &["7"], "", "findings", G::Move),
    looks(A::Pane(8), &["8"], "", "failed tasks by error", G::Move),
    looks(
        A::Zoom,
        &["z"],
        "",
        "the focused pane whole, or the overview again",
        G::Look,
    ),
    looks(
        A::Back,
        &["Esc"],
        "",
        "close the topmost layer, then clear marks, then the filter",
        G::Look,
    ),
    looks(A::Sort, &["s"], "", "sort by the next column", G::Look),
    looks(A::Reverse, &["S"], "", "reverse the order", G::Look),
    looks(A::Mark, &["Space"], "", "mark the row", G::Look),
    looks(
        A::MarkAll,
        &["*"],
        "",
        "mark all rows shown; again: all that match the filter on the server",
        G::Look,
    ),
    looks(
        A::Log,
        &["L"],
        "",
        "findings, what was pressed, written and went wrong",
        G::Look,
    ),
    looks(
        A::Copy,
        &["y"],
        "",
        "copy the ids to the terminal's clipboard",
        G::Take,
    ),
    looks(
        A::Picture,
        &["w"],
        "",
        "write the screen (SVG) and the snapshot (JSON) to files",
        G::Take,
    ),
    looks(A::Refresh, &["r"], "", "poll now", G::Program),
    looks(
        A::Faster,
        &["+", "="],
        "",
        "poll more often (down to every 0.5 s)",
        G::Program,
    ),
    looks(
        A::Slower,
        &["-"],
        "",
        "poll less often (up to every 60 s)",
        G::Program,
    ),
    looks(A::Repaint, &["^L"], "", "repaint the screen", G::Program),
    looks(
        A::Suspend,
        &["^Z"],
        "",
        "stop; the database session is closed until fg",
        G::Program,
    ),
];

/// The action of a key, outside text fields.
pub fn action(key: &KeyEvent) -> Option<Action> {
    KEYS.iter()
        .find(|b| b.keys.iter().any(|k| parse(k) == Some(normal(key))))
        .map(|b| b.action)
}

/// The binding of an action.
pub fn binding(action: Action) -> Option<&'static Binding> {
    KEYS.iter().find(|b| b.action == action)
}

/// Shift is part of the character, not of the key, and some terminals report it, some do not.
fn normal(key: &KeyEvent) -> (KeyCode, KeyModifiers) {
    let mut modifiers = key.modifiers & (KeyModifiers::CONTROL | KeyModifiers::ALT);
    if key.code == KeyCode::BackTab {
        modifiers = KeyModifiers::NONE;
    }
    (key.code, modifiers)
}

/// Reads the names used in the table.
fn parse(name: &str) -> Option<(KeyCode, KeyModifiers)> {
    let code = match name {
        "Enter" => KeyCode::Enter,
        "Esc" => KeyCode::Esc,
        "Tab" => KeyCode::Tab,
        "S-Tab" => KeyCode::BackTab,
        "Space" => KeyCode::Char(' '),
        "Up" => KeyCode::Up,
        "Down" => KeyCode::Down,
        "Home" => KeyCode::Home,
        "End" => KeyCode::End,
        "PageUp" => KeyCode::PageUp,
        "PageDown" => KeyCode::PageDown,
        _ => {
            let mut chars = name.chars();
            return match (chars.next(), chars.next(), chars.next()) {
                (Some(c), None, None) => Some((KeyCode::Char(c), KeyModifiers::NONE)),
                (Some('^'), Some(c), None) => {
                    Some((KeyCode::Char(c.to_ascii_lowercase()), KeyModifiers::CONTROL))
                }
                _ => None,
            };
        }
    };
    Some((code, KeyModifiers::NONE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_key_is_bound_twice_and_every_name_is_understood() {
        let mut seen = BTreeSet::new();
        for key in KEYS.iter().flat_map(|b| b.keys) {
            let parsed = parse(key).unwrap_or_else(|| panic!("{key} is no key"));
            assert!(seen.insert(format!("{parsed:?}")), "{key} is bound twice");
        }
    }

    #[test]
    fn no_action_is_listed_twice() {
        let actions: BTreeSet<_> = KEYS.iter().map(|b| b.action).collect();
        assert_eq!(actions.len(), KEYS.len());
    }

    #[test]
    fn what_has_no_key_is_listed_under_the_palette_and_stays_out_of_the_footer() {
        let keyless = writes(A::Requeue, &[], "", "requeue");
        assert_eq!(keyless.label(), ":");
        let key = KeyEvent::new(KeyCode::Char(':'), KeyModifiers::NONE);
        assert_eq!(action(&key), Some(Action::Palette));
        assert_eq!(binding(A::Quit).expect("bound").label(), "q ^C");
        for b in KEYS {
            assert!(!b.keys.is_empty() || b.hint.is_empty(), "{:?}", b.action);
        }
    }

    #[test]
    fn shift_is_part_of_the_character() {
        for modifiers in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
            let key = KeyEvent::new(KeyCode::Char('R'), modifiers);
            assert_eq!(action(&key), Some(Action::Requeue));
        }
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(&key), Some(Action::Quit));
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE);
        assert_eq!(action(&key), None);
    }
}
