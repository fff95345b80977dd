//! Everything the screen is drawn from.

use super::choose::Matching;
use super::dialog::Dialog;
use super::palette::Palette;
use super::row::RowId;
use super::strike::Question;
use crate::action::{Progress, Verb};
use crate::config::Config;
use crate::findings::Report;
use crate::probe::Snapshot;
use crate::probe::backend::Backend;
use crate::probe::server::STANDBY;
use crate::probe::tasks::{TaskDetail, TaskKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};
use tui_input::Input;

/// The panes, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PaneId {
    /// `1`: budgets and sessions.
    Connections,
    /// `2`: what active sessions wait for, and the blocking tree.
    Waits,
    /// `3`: queues, kinds and stages.
    Stages,
    /// `4`: workers and expired leases.
    Leases,
    /// `5`: spend.
    Cost,
    /// `6`: tasks.
    Tasks,
    /// `7`, and `L`: findings, then what was pressed, written and went wrong.
    Findings,
    /// `8`: failed tasks by kind and error.
    Failures,
}

impl PaneId {
    /// All panes, in the order of their keys.
    pub const ALL: [PaneId; 8] = [
        PaneId::Connections,
        PaneId::Waits,
        PaneId::Stages,
        PaneId::Leases,
        PaneId::Cost,
        PaneId::Tasks,
        PaneId::Findings,
        PaneId::Failures,
    ];
}

/// The connection to the database, as the header shows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// The first connection is being made; the text says why it takes long.
    Connecting(String),
    /// Snapshots arrive.
    Live,
    /// Lost: the last data stays, dimmed.
    Lost {
        /// Why, in one sentence.
        reason: String,
        /// Local time when it was lost, in seconds (see [`App::now`]).
        since: f64,
        /// The way back.
        retry: Retry,
    },
}

/// Attempts to have a connection again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Retry {
    /// Attempts that failed since the loss.
    pub failed: u32,
    /// Seconds between the last thing that failed and the next attempt.
    pub pause: f64,
    /// Local time of the next attempt, in seconds (see [`App::now`]).
    pub at: f64,
}

/// How a toast looks and how long it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Gone after 6 s.
    Info,
    /// Stays until a key is pressed.
    Warning,
    /// Stays until a key is pressed.
    Error,
}

/// A short message over the footer.
#[derive(Clone, Debug, PartialEq)]
pub struct Toast {
    /// How it looks.
    pub tone: Tone,
    /// One sentence.
    pub text: String,
    /// Local time when it appeared, in seconds.
    pub at: f64,
}

/// A line of the log pane: toasts, findings that came and went, writes, errors.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// Number, rising.
    pub n: u64,
    /// `HH:MM:SS` by the server's clock (UTC), or empty when there was none yet.
    pub clock: String,
    /// How it looks.
    pub tone: Tone,
    /// One sentence.
    pub text: String,
}

/// What is drawn over the panes, topmost last.
#[derive(Clone, Debug)]
pub enum Layer {
    /// Keys of the focused pane.
    Help {
        /// First line shown.
        scroll: u16,
    },
    /// Everything about a row.
    Detail {
        /// The row.
        row: RowId,
        /// First line shown.
        scroll: u16,
    },
    /// Every action, to choose from.
    Palette(Palette),
    /// A question before a write.
    Confirm(Box<Dialog>),
    /// The question before a session is ended.
    Strike(Box<Question>),
}

/// Cursor and sorting of one pane.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The row under the cursor.
    pub cursor: Option<RowId>,
    /// The cursor was put there by a key that did not move it: it goes back to the top when nobody is there.
    pub pinned: bool,
    /// Column sorted by (index into the pane's columns); `None` is the pane's own order.
    pub sort: Option<usize>,
    /// Reverse that order.
    pub reverse: bool,
    /// Filter text; empty shows all.
    pub filter: Input,
    /// Only rows that belong to this one (`t`: its tasks).
    pub of: Option<RowId>,
    /// The order of rows is kept until this local time, in seconds (3 s after a cursor key).
    pub order_until: f64,
    /// That order.
    pub order: Vec<RowId>,
}

/// Everything the screen is drawn from.
#[derive(Clone, Debug)]
pub struct App {
    /// Settings.
    pub config: Arc<Config>,
    /// The connection.
    pub link: Link,
    /// Newest data.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Local time when it arrived, in seconds.
    pub arrived: f64,
    /// What it says.
    pub report: Arc<Report>,
    /// `p`: the snapshot and report that the screen keeps showing.
    pub held: Option<(Arc<Snapshot>, Arc<Report>)>,
    /// Local monotonic time in seconds, set by every message: the only clock.
    pub now: f64,
    /// Local time when watching began.
    pub started: f64,
    /// Local time of the last key.
    pub last_key: f64,
    /// Seconds between refreshes that the user asked for.
    pub interval: f64,
    /// May this program write? The session must allow it too.
    pub allow_writes: bool,
    /// The host is this machine (a socket or loopback): a single row needs only `y`.
    pub local: bool,
    /// Terminal size: columns, rows.
    pub size: (u16, u16),
    /// `None` is the overview.
    pub zoom: Option<PaneId>,
    /// The pane with the cursor.
    pub focus: PaneId,
    /// Cursor, filter and sorting by pane.
    pub views: BTreeMap<PaneId, View>,
    /// Marked rows of the tasks pane.
    pub marks: BTreeSet<TaskKey>,
    /// All that match this on the server are marked.
    pub matching: Option<Matching>,
    /// The action under way, and how far it is.
    pub acting: Option<(Verb, Progress)>,
    /// Quit was pressed while an action is under way.
    pub leaving: bool,
    /// Number of the last dialog.
    pub dialogs: u64,
    /// The filter of the focused pane is being edited.
    pub editing_filter: bool,
    /// The feed has been told that the failures are on the screen.
    pub watching: bool,
    /// What lies over the panes, topmost last.
    pub layers: Vec<Layer>,
    /// Details fetched on demand, or why they could not be.
    pub details: BTreeMap<RowId, Result<Arc<Detail>, String>>,
    /// Short messages, newest last.
    pub toasts: Vec<Toast>,
    /// All of them, and more, newest last, at most 1,000.
    pub log: VecDeque<LogLine>,
    /// Samples of waits of active sessions, newest last, at most 3,600: (CPU, Lock, IO, other).
    pub wait_samples: VecDeque<[u16; 4]>,
}

/// Something fetched on demand for the detail layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// One task whole.
    Task(Box<TaskDetail>),
    /// One session with its statement.
    Session(Box<Backend>),
}

impl App {
    /// A program that has just started.
    pub fn new(config: Arc<Config>, now: f64, size: (u16, u16)) -> Self {
        Self {
            interval: config.interval,
            allow_writes: config.allow_writes,
            config,
            link: Link::Connecting(String::new()),
            snapshot: None,
            arrived: now,
            report: Arc::default(),
            held: None,
            now,
            started: now,
            last_key: now,
            local: false,
            size,
            zoom: None,
            focus: PaneId::Tasks,
            views: BTreeMap::new(),
            marks: BTreeSet::new(),
            matching: None,
            acting: None,
            leaving: false,
            dialogs: 0,
            editing_filter: false,
            watching: false,
            layers: Vec::new(),
            details: BTreeMap::new(),
            toasts: Vec::new(),
            log: VecDeque::new(),
            wait_samples: VecDeque::new(),
        }
    }

    /// What the screen shows: the held data, else the newest.
    pub fn shown(&self) -> Option<(&Snapshot, &Report)> {
        match &self.held {
            Some((snapshot, report)) => Some((snapshot, report)),
            None => self
                .snapshot
                .as_deref()
                .map(|snapshot| (snapshot, self.report.as_ref())),
        }
    }

    /// Cursor, filter and sorting of a pane.
    pub fn view(&self, pane: PaneId) -> &View {
        static USUAL: LazyLock<View> = LazyLock::new(View::default);
        self.views.get(&pane).unwrap_or(&USUAL)
    }

    /// A refresh that takes far longer than the interval is as good as lost: what is shown may not be so any more.
    pub fn overdue(&self) -> bool {
        let live = matches!(self.link, Link::Live) && self.held.is_none();
        let interval = self.snapshot.as_ref().map(|s| s.own.interval_s);
        live && interval
            .is_some_and(|every| self.now - self.arrived > 3.0 * every.max(self.interval) + 2.0)
    }

    /// Why a write is not possible now; `None` when it is.
    pub fn write_refusal(&self) -> Option<String> {
        if !self.allow_writes {
            return Some("read-only: start with --allow-writes".into());
        }
        if self.held.is_some() {
            return Some("the view is held: press p to go on first".into());
        }
        match (&self.link, &self.snapshot) {
            (Link::Live, Some(s)) if s.server.in_recovery => Some(STANDBY.into()),
            (Link::Live, Some(_)) => None,
            _ => Some("no connection to the database".into()),
        }
    }
}
