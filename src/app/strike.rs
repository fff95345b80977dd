//! The question before a session is ended: which one, what that does, how sure one is. Nothing is sent before it is
//! confirmed.

use super::row::RowId;
use super::state::{App, Detail, Layer, Tone};
use super::update::Effect;
use crate::action::strike::facts::Facts;
use crate::action::strike::{How, Strike, Struck};
use crate::keys::Action;
use crate::panes::links;
use crate::probe::backend::Backend;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The session is being read.
    Reading,
    /// `c` or `t`.
    Choose,
    /// `y`, or the pid.
    Confirm(How),
    /// The signal is under way.
    Running(How),
}

/// The question before a session is ended.
#[derive(Clone, Debug)]
pub struct Question {
    /// The session.
    pub row: RowId,
    /// Its pid.
    pub pid: i32,
    /// Where the question stands.
    pub stage: Stage,
    /// The session as it was read, and what ending it means.
    pub seen: Option<(Backend, Facts)>,
    /// What must be typed; empty when `y` is enough. A reason may stand behind it.
    pub must_type: String,
    /// What was typed so far.
    pub input: Input,
}

impl Question {
    /// About a session that has not been read yet.
    pub fn new(row: RowId, pid: i32) -> Self {
        Self {
            row,
            pid,
            stage: Stage::Reading,
            seen: None,
            must_type: String::new(),
            input: Input::default(),
        }
    }

    /// There is a field to type into.
    pub fn types(&self) -> bool {
        matches!(self.stage, Stage::Confirm(_)) && !self.must_type.is_empty()
    }

    /// What was typed is what must be, and the reason behind it.
    pub fn typed(&self) -> Option<Option<String>> {
        let rest = self.input.value().trim().strip_prefix(&self.must_type)?;
        let reason = rest.trim();
        let whole = rest.is_empty() || rest.starts_with(char::is_whitespace);
        whole.then(|| (!reason.is_empty()).then(|| reason.to_string()))
    }
}

impl App {
    /// `^K`: opens the question and has the session read, or says why not.
    pub(super) fn end_session(&mut self) -> Vec<Effect> {
        let (row, pid) = match self.session_in_hand(self.row_in_hand().as_ref()) {
            Ok(session) => session,
            Err((tone, why)) => {
                self.toast(tone, why);
                return vec![];
            }
        };
        let question = Question::new(row.clone(), pid);
        self.layers.push(Layer::Strike(Box::new(question)));
        vec![Effect::Fetch(row)]
    }

    /// The session that the row in hand is or leads to.
    pub(super) fn session_in_hand(
        &self,
        row: Option<&RowId>,
    ) -> Result<(RowId, i32), (Tone, String)> {
        if let Some(why) = self.write_refusal() {
            return Err((Tone::Warning, format!("ending sessions is off: {why}")));
        }
        let info = |why: &str| (Tone::Info, why.to_string());
        let none = || info("no session to end: choose one (press 1 or 2)");
        let (snapshot, row) = self.snapshot.as_deref().zip(row).ok_or_else(none)?;
        let row = match self.culprit(row).unwrap_or_else(|| row.clone()) {
            RowId::Task(key) => {
                let task = snapshot.tasks.rows.iter().find(|t| t.key == key);
                let holder = task.and_then(|t| t.locked_by_pid);
                let holder = holder.ok_or_else(|| {
                    (
                        Tone::Info,
                        format!("no session to end: {}", links::NO_HOLDER),
                    )
                })?;
                links::session_of(snapshot, holder)
            }
            RowId::Idle { .. } => {
                return Err(info(
                    "idle sessions hold no lock: choose one that is not idle",
                ));
            }
            row => row,
        };
        let RowId::Session { pid, .. } = row else {
            return Err(none());
        };
        let own = snapshot
            .sessions
            .iter()
            .any(|s| s.own && s.pid == Some(pid));
        if own || pid == snapshot.own.pid {
            return Err(info("that is jobtop's own session"));
        }
        if pid <= 0 {
            let why = "a prepared transaction has no session: COMMIT PREPARED or ROLLBACK PREPARED ends it";
            return Err(info(why));
        }
        Ok((row, pid))
    }

    fn strike(&mut self) -> Option<&mut Question> {
        match self.layers.last_mut() {
            Some(Layer::Strike(question)) => Some(question),
            _ => None,
        }
    }

    /// The session was read, or could not be.
    pub(super) fn session_read(&mut self, row: &RowId) {
        let detail = self.details.get(row).cloned();
        let snapshot = self.snapshot.clone().unwrap_or_default();
        let reading = |q: &&mut Question| q.row == *row && q.stage == Stage::Reading;
        let Some(question) = self.strike().filter(reading) else {
            return;
        };
        match detail {
            Some(Ok(detail)) => {
                if let Detail::Session(backend) = detail.as_ref() {
                    let facts = Facts::of(question.pid, backend, &snapshot);
                    question.seen = Some((backend.as_ref().clone(), facts));
                    question.stage = Stage::Choose;
                }
            }
            Some(Err(why)) => {
                let why = format!("session {}: {why}", question.pid);
                self.layers.pop();
                self.toast(Tone::Warning, why);
            }
            None => {}
        }
    }

    pub(super) fn strike_key(&mut self, key: KeyEvent, action: Option<Action>) -> Vec<Effect> {
        let (columns, rows) = self.size;
        let unseen = columns < crate::ui::LEAST.0 || rows < crate::ui::LEAST.1;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let local = self.local;
        let Some(question) = self.strike() else {
            return vec![];
        };
        if key.code == KeyCode::Esc || (control && action == Some(Action::Quit)) {
            // what is under way goes on; its outcome will be told
            self.layers.pop();
            return vec![];
        }
        let types = question.types();
        match (question.stage, key.code) {
            _ if unseen => vec![],
            (Stage::Confirm(_), KeyCode::Enter) if types => match question.typed() {
                Some(reason) => self.send(reason),
                None if question.input.value().trim().is_empty() => self.no(),
                None => {
                    let must = question.must_type.clone();
                    question.input.reset();
                    let why = format!("type {must} to confirm, or Esc to leave it");
                    self.toast(Tone::Warning, why);
                    vec![]
                }
            },
            (Stage::Confirm(_), _) if types => {
                question.input.handle_event(&Event::Key(key));
                vec![]
            }
            _ if action == Some(Action::Picture) => vec![Effect::Picture],
            (Stage::Choose, KeyCode::Char('c')) if !control => self.chosen(How::Cancel, local),
            (Stage::Choose, KeyCode::Char('t')) if !control => self.chosen(How::Terminate, local),
            (Stage::Confirm(_), KeyCode::Char('y')) if !control => self.send(None),
            (
                Stage::Choose | Stage::Confirm(_),
                KeyCode::Char('n' | 'N' | 'q') | KeyCode::Enter,
            ) => self.no(),
            _ => vec![],
        }
    }

    fn no(&mut self) -> Vec<Effect> {
        self.layers.pop();
        vec![]
    }

    fn chosen(&mut self, how: How, local: bool) -> Vec<Effect> {
        let Some(question) = self.strike() else {
            return vec![];
        };
        let Some((_, facts)) = &question.seen else {
            return vec![];
        };
        let does = match how {
            How::Cancel => &facts.cancel,
            How::Terminate => &facts.terminate,
        };
        match does.clone() {
            Ok(_) => {
                question.must_type = facts.must_type(how, local);
                question.stage = Stage::Confirm(how);
            }
            Err(why) => self.toast(Tone::Warning, why),
        }
        vec![]
    }

    fn send(&mut self, reason: Option<String>) -> Vec<Effect> {
        if let Some(why) = self.write_refusal() {
            self.layers.pop();
            self.toast(Tone::Error, format!("nothing was done: {why}"));
            return vec![];
        }
        let Some(question) = self.strike() else {
            return vec![];
        };
        let (Stage::Confirm(how), Some((backend, _))) = (question.stage, &question.seen) else {
            return vec![];
        };
        let Some(strike) = Strike::new(question.pid, backend, how, reason) else {
            return vec![];
        };
        question.stage = Stage::Running(how);
        vec![Effect::Strike(Box::new(strike))]
    }

    /// Tells what became of it.
    pub(super) fn struck(&mut self, struck: &Struck) -> Vec<Effect> {
        let pid = struck.strike.pid;
        let running = |q: &&mut Question| q.pid == pid && matches!(q.stage, Stage::Running(_));
        if self.strike().filter(running).is_some() {
            self.layers.pop();
        }
        let (tone, text) = struck.summary();
        self.toast(tone, text);
        vec![Effect::Poll]
    }
}
