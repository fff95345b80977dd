//! What happens next: one message in, state changed, effects out.

use super::palette::Palette;
use super::row::RowId;
use super::state::{App, Layer, PaneId, Tone};
use super::why_not::verb;
use crate::action::strike::Strike;
use crate::action::{Choice, Plan, Verb};
use crate::feed::News;
use crate::keys::{self, Action, Risk};
use crossterm::event::{Event, KeyEvent, KeyEventKind, MouseEventKind};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Msg {
    /// Time passed.
    Tick,
    /// The terminal says something.
    Terminal(Event),
    /// The feed says something.
    Feed(News),
    /// A file was written, or could not be.
    Saved(Result<String, String>),
}

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Poll now.
    Poll,
    /// Poll so often, in seconds.
    Interval(f64),
    /// Fetch details of a row.
    Fetch(RowId),
    /// Read what an action is about, for the dialog of that number.
    Look(u64, Verb, Choice),
    /// The failures are on the screen, or are so no more.
    Watch(bool),
    /// Carry out a plan.
    Act(Box<Plan>),
    /// The action under way ends after its chunk.
    Stop,
    /// End a session.
    Strike(Box<Strike>),
    /// Send to the terminal's clipboard.
    Copy(String),
    /// Write the incident report to a file and to the clipboard.
    Report,
    /// Write a picture of the screen and the snapshot.
    Picture,
    /// Paint everything anew.
    Repaint,
    /// Stop until the shell brings us back.
    Suspend,
    /// End with exit code 2 and this sentence.
    Fail(String),
    /// End.
    Quit,
}

/// Intervals that `+` and `-` go through, in seconds.
const INTERVALS: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0];

impl App {
    pub(super) fn message(&mut self, now: f64, msg: Msg) -> Vec<Effect> {
        self.now = now;
        self.expire_toasts();
        match msg {
            Msg::Tick => {
                self.release_cursors();
                vec![]
            }
            Msg::Feed(news) => self.news(news),
            Msg::Saved(Ok(text)) => {
                self.toast(Tone::Info, text);
                vec![]
            }
            Msg::Saved(Err(text)) => {
                self.toast(Tone::Error, text);
                vec![]
            }
            Msg::Terminal(Event::Resize(columns, rows)) => {
                self.size = (columns, rows);
                vec![]
            }
            Msg::Terminal(Event::Paste(text)) => {
                self.paste(&text);
                vec![]
            }
            Msg::Terminal(Event::Mouse(mouse)) => {
                match mouse.kind {
                    MouseEventKind::ScrollDown => self.scroll(Action::Down),
                    MouseEventKind::ScrollUp => self.scroll(Action::Up),
                    _ => {}
                }
                vec![]
            }
            Msg::Terminal(Event::Key(key)) if key.kind != KeyEventKind::Release => self.key(key),
            Msg::Terminal(_) => vec![],
        }
    }

    fn scroll(&mut self, action: Action) {
        for _ in 0..3 {
            if !self.scroll_layer(action) {
                self.move_cursor(action);
            }
        }
    }

    fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        self.acknowledge_toasts();
        self.last_key = self.now;
        self.pin_cursor();
        let effects = self.dispatch(key);
        self.pin_cursor();
        effects
    }

    fn dispatch(&mut self, key: KeyEvent) -> Vec<Effect> {
        let action = keys::action(&key);
        if matches!(self.layers.last(), Some(Layer::Confirm(_))) {
            return self.dialog_key(key, action);
        }
        if matches!(self.layers.last(), Some(Layer::Palette(_))) {
            return self.palette_key(key, action);
        }
        if matches!(self.layers.last(), Some(Layer::Strike(_))) {
            return self.strike_key(key, action);
        }
        if self.editing_filter {
            return self.filter_key(key, action);
        }
        action.map_or_else(Vec::new, |action| self.run(action))
    }

    /// What an action does where the screen is now, by its key or from the palette.
    pub(super) fn run(&mut self, action: Action) -> Vec<Effect> {
        if self.scroll_layer(action) {
            return vec![];
        }
        self.act(action)
    }

    /// Help and details scroll, the palette moves; true when the action was theirs.
    fn scroll_layer(&mut self, action: Action) -> bool {
        let page = crate::ui::page_height(self);
        let scroll = match self.layers.last_mut() {
            Some(Layer::Help { scroll } | Layer::Detail { scroll, .. }) => scroll,
            Some(Layer::Palette(_)) => {
                self.palette_move(action);
                return true;
            }
            Some(Layer::Confirm(_) | Layer::Strike(_)) => return true,
            None => return false,
        };
        *scroll = match action {
            Action::Down => scroll.saturating_add(1),
            Action::Up => scroll.saturating_sub(1),
            Action::PageDown => scroll.saturating_add(page),
            Action::PageUp => scroll.saturating_sub(page),
            Action::Top => 0,
            Action::Bottom => u16::MAX,
            _ => return false,
        };
        let limit = crate::ui::max_scroll(self);
        if let Some(Layer::Help { scroll } | Layer::Detail { scroll, .. }) = self.layers.last_mut()
        {
            *scroll = (*scroll).min(limit);
        }
        true
    }

    /// What a key means outside text fields.
    pub fn act(&mut self, action: Action) -> Vec<Effect> {
        let looks = keys::binding(action).is_none_or(|b| b.risk == Risk::Looks);
        // what writes says it in its own words, see `ask`
        if let Some(why) = self.why_not(action).filter(|_| looks) {
            self.toast(Tone::Info, why);
            return vec![];
        }
        match action {
            Action::Pane(n) => {
                if let Some(pane) = PaneId::ALL.get(usize::from(n).saturating_sub(1)) {
                    self.layers.clear();
                    self.focus_on(*pane);
                    self.zoom = Some(*pane);
                }
            }
            Action::Overview => {
                self.layers.clear();
                self.zoom = None;
            }
            Action::NextPane => self.cycle(1),
            Action::PreviousPane => self.cycle(PaneId::ALL.len() - 1),
            Action::Zoom => {
                self.zoom = self.zoom.is_none().then_some(self.focus);
            }
            Action::Down
            | Action::Up
            | Action::Top
            | Action::Bottom
            | Action::PageDown
            | Action::PageUp => self.move_cursor(action),
            Action::Open => return self.open(),
            Action::Back => self.back(),
            Action::Sort => self.sort(),
            Action::Reverse => {
                let view = self.view_mut(self.focus);
                view.reverse = !view.reverse;
                view.order_until = 0.0;
            }
            Action::Filter => {
                self.matching = None;
                self.layers.clear();
                self.editing_filter = true;
            }
            Action::Mark => self.mark(),
            Action::MarkAll => self.mark_all(),
            Action::Hold => self.hold(),
            Action::Refresh => return vec![Effect::Poll],
            Action::Faster => return self.change_interval(false),
            Action::Slower => return self.change_interval(true),
            Action::TasksOf => self.tasks_of(),
            Action::Blocker => self.go_to_blocker(),
            Action::Report => return vec![Effect::Report],
            Action::Picture => return vec![Effect::Picture],
            Action::Copy => return self.copy(),
            Action::Requeue
            | Action::RequeueFresh
            | Action::Cancel
            | Action::Release
            | Action::RunNow
            | Action::Priority
            | Action::Park
            | Action::Unpark => return verb(action).map_or(vec![], |verb| self.ask(verb)),
            Action::EndSession => return self.end_session(),
            Action::Stop => return vec![Effect::Stop],
            Action::Log => {
                self.layers.clear();
                self.focus_on(PaneId::Findings);
                self.zoom = Some(PaneId::Findings);
            }
            Action::Repaint => return vec![Effect::Repaint],
            Action::Help => match self.layers.last() {
                Some(Layer::Help { .. }) => {
                    self.layers.pop();
                }
                _ => self.layers.push(Layer::Help { scroll: 0 }),
            },
            Action::Palette => self.layers.push(Layer::Palette(Palette::default())),
            Action::Suspend => return self.suspend(),
            Action::Quit => {
                if self.layers.pop().is_some() {
                    return vec![];
                }
                if self.acting.is_none() || self.leaving {
                    return vec![Effect::Quit];
                }
                self.leaving = true;
                self.toast(
                    Tone::Warning,
                    "an action is under way: q again stops it after its chunk and quits",
                );
            }
        }
        vec![]
    }

    /// The row an action is about: that of the open detail, else the one under the cursor.
    pub fn row_in_hand(&self) -> Option<RowId> {
        match self.under_palette() {
            Some(Layer::Detail { row, .. }) => Some(row.clone()),
            _ => self.cursor_row(),
        }
    }

    /// A stopped program would leave its action half-way.
    pub fn suspend(&mut self) -> Vec<Effect> {
        if self.acting.is_none() {
            return vec![Effect::Suspend];
        }
        let why = "an action is under way: A stops it after its chunk, then Ctrl-Z";
        self.toast(Tone::Warning, why);
        vec![]
    }

    fn cycle(&mut self, by: usize) {
        let at = PaneId::ALL.iter().position(|p| *p == self.focus);
        self.focus_on(PaneId::ALL[(at.unwrap_or(0) + by) % PaneId::ALL.len()]);
        if self.zoom.is_some() {
            self.zoom = Some(self.focus);
        }
    }

    fn open(&mut self) -> Vec<Effect> {
        let Some(row) = self.cursor_row() else {
            return vec![];
        };
        self.layers.push(Layer::Detail {
            row: row.clone(),
            scroll: 0,
        });
        match row {
            RowId::Task(_) | RowId::Session { .. } => {
                self.details.clear();
                vec![Effect::Fetch(row)]
            }
            _ => vec![],
        }
    }

    fn back(&mut self) {
        if self.layers.pop().is_some() {
            return;
        }
        if self.matching.take().is_some() || !self.marks.is_empty() {
            self.marks.clear();
            return;
        }
        let view = self.view_mut(self.focus);
        if !view.filter.value().is_empty() || view.of.is_some() {
            view.filter.reset();
            view.of = None;
            return;
        }
        self.zoom = None;
    }

    fn sort(&mut self) {
        let columns = crate::panes::pane(self.focus).columns.len();
        let view = self.view_mut(self.focus);
        view.sort = match view.sort {
            None if columns > 0 => Some(0),
            Some(at) if at + 1 < columns => Some(at + 1),
            _ => None,
        };
        view.order_until = 0.0;
    }

    fn mark(&mut self) {
        self.matching = None;
        if let Some(RowId::Task(key)) = self.cursor_row() {
            if !self.marks.remove(&key) {
                self.marks.insert(key);
            }
            self.move_cursor(Action::Down);
        }
    }

    fn mark_all(&mut self) {
        let tasks = self.markable();
        if self.matching.take().is_some() {
            self.marks.clear();
        } else if tasks.iter().all(|key| self.marks.contains(key)) {
            self.match_all();
        } else {
            self.marks.extend(tasks);
        }
    }

    fn hold(&mut self) {
        for pane in PaneId::ALL {
            let order = crate::ui::table::visible(self, pane);
            let held = self.held.is_none();
            let view = self.view_mut(pane);
            view.order_until = if held { f64::INFINITY } else { 0.0 };
            view.order = order;
        }
        self.held = match (self.held.take(), &self.snapshot) {
            (None, Some(snapshot)) => Some((snapshot.clone(), self.report.clone())),
            _ => None,
        };
    }

    fn change_interval(&mut self, slower: bool) -> Vec<Effect> {
        let next = if slower {
            INTERVALS.iter().find(|i| **i > self.interval)
        } else {
            INTERVALS.iter().rev().find(|i| **i < self.interval)
        };
        if let Some(next) = next {
            self.interval = *next;
        }
        self.toast(Tone::Info, format!("polling every {}s", self.interval));
        vec![Effect::Interval(self.interval)]
    }

    fn copy(&mut self) -> Vec<Effect> {
        let text = if self.marks_count() {
            let ids: Vec<_> = self.marks.iter().map(|k| k.id.as_str()).collect();
            ids.join("\n")
        } else {
            match self.row_in_hand() {
                Some(row) => row.short(),
                None => return vec![],
            }
        };
        self.toast(Tone::Info, "sent to the terminal's clipboard");
        vec![Effect::Copy(crate::text::clean_lines(&text).join("\n"))]
    }
}
