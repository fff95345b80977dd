//! The question before a write: what it is about is read while it is open; nothing is sent before it is confirmed.

use super::state::{App, Layer, Tone};
use super::update::Effect;
use crate::action::facts::{self, REASON_ABOVE};
use crate::action::{Choice, Outcome, Plan, Preview, Progress, Verb};
use crate::keys::Action;
use crate::text::thousands;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;

/// Fates that are written to the log one by one, at most.
const LOGGED: usize = 20;

/// Where a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The priority is typed.
    Number,
    /// The targets are being read.
    Counting,
    /// The reason is typed.
    Reason,
    /// `y`, or the number of tasks.
    Confirm,
    /// The transactions are under way.
    Running,
    /// It is over: the report stands until a key.
    Over,
}

/// A question before a write.
#[derive(Clone, Debug)]
pub struct Dialog {
    /// Names it: a reading that comes late belongs to no other.
    pub n: u64,
    /// What is to be done.
    pub verb: Verb,
    /// To which tasks.
    pub choice: Choice,
    /// Where it stands.
    pub stage: Stage,
    /// `Requeue 3 tasks?`
    pub title: String,
    /// What will happen, to what, on which host; then how far it is, or the report.
    pub lines: Vec<String>,
    /// What must be typed; empty when `y` is enough.
    pub must_type: String,
    /// What was typed so far.
    pub input: Input,
    /// Why; asked for when there are many.
    pub reason: Option<String>,
    /// What was read.
    pub preview: Option<Box<Preview>>,
}

impl Dialog {
    /// A question whose targets are not known yet.
    pub fn new(n: u64, verb: Verb, choice: Choice) -> Self {
        let stage = match verb {
            Verb::Priority(_) => Stage::Number,
            _ => Stage::Counting,
        };
        Self {
            n,
            verb,
            choice,
            stage,
            title: match verb {
                Verb::Priority(_) => "Change the priority".into(),
                _ => facts::capital(verb.words("tasks")) + "?",
            },
            lines: Vec::new(),
            must_type: String::new(),
            input: Input::default(),
            reason: None,
            preview: None,
        }
    }

    /// Has the targets read.
    pub fn look(&self) -> Vec<Effect> {
        match self.stage {
            Stage::Counting => vec![Effect::Look(self.n, self.verb, self.choice.clone())],
            _ => vec![],
        }
    }

    /// There is a field to type into.
    pub fn types(&self) -> bool {
        matches!(self.stage, Stage::Number | Stage::Reason | Stage::Confirm)
    }

    fn typed(&self) -> &str {
        self.input.value().trim()
    }

    /// What must be typed was, with or without separators between thousands.
    pub fn confirmed(&self) -> bool {
        self.typed().replace(',', "") == self.must_type
    }
}

/// What a key means to a question.
enum Means {
    Nothing,
    Close,
    Next,
    Refuse(String),
    Effects(Vec<Effect>),
}

impl App {
    fn question(&mut self) -> Option<&mut Dialog> {
        match self.layers.last_mut() {
            Some(Layer::Confirm(dialog)) => Some(dialog),
            _ => None,
        }
    }

    pub(super) fn dialog_key(&mut self, key: KeyEvent, action: Option<Action>) -> Vec<Effect> {
        let (columns, rows) = self.size;
        let unseen = columns < crate::ui::LEAST.0 || rows < crate::ui::LEAST.1;
        let refusal = self.write_refusal();
        let Some(dialog) = self.question() else {
            return vec![];
        };
        match dialog.key(&key, action, unseen) {
            Means::Nothing => vec![],
            Means::Effects(effects) => effects,
            Means::Close => {
                // what is under way goes on; its outcome will be told
                self.layers.pop();
                vec![]
            }
            Means::Refuse(why) => {
                self.toast(Tone::Warning, why);
                vec![]
            }
            Means::Next => match refusal {
                None => self.next_stage(),
                Some(why) => {
                    self.layers.pop();
                    self.toast(Tone::Error, format!("nothing was written: {why}"));
                    vec![]
                }
            },
        }
    }

    fn next_stage(&mut self) -> Vec<Effect> {
        let Some(dialog) = self.question() else {
            return vec![];
        };
        let typed = dialog.typed().to_string();
        dialog.input.reset();
        match dialog.stage {
            Stage::Number => {
                dialog.verb = Verb::Priority(typed.parse().unwrap_or_default());
                dialog.stage = Stage::Counting;
                dialog.look()
            }
            Stage::Reason => {
                dialog.reason = Some(typed);
                dialog.stage = Stage::Confirm;
                vec![]
            }
            Stage::Confirm => {
                let Some(preview) = dialog.preview.take() else {
                    return vec![];
                };
                let plan = Plan::new(dialog.verb, preview.targets, dialog.reason.clone());
                dialog.stage = Stage::Running;
                dialog.title = dialog.title.trim_end_matches('?').to_string();
                let progress = Progress {
                    action_id: plan.action_id.clone(),
                    asked: plan.targets.len() as u64,
                    done: 0,
                    changed: 0,
                    per_second: 0.0,
                    locked: 0,
                };
                dialog.lines = under_way(&progress);
                self.acting = Some((dialog.verb, progress));
                vec![Effect::Act(Box::new(plan))]
            }
            Stage::Counting | Stage::Running | Stage::Over => vec![],
        }
    }

    /// The targets of a question were read.
    pub(super) fn preview(&mut self, n: u64, read: Result<Box<Preview>, String>) {
        let snapshot = self.snapshot.clone();
        let local = self.local;
        let server = snapshot.as_ref().map(|s| &s.server);
        let place = server.map_or_else(String::new, |s| format!("{} on {}", s.database, s.host));
        let Some(dialog) = self
            .question()
            .filter(|d| d.n == n && d.stage == Stage::Counting)
        else {
            return;
        };
        let name = dialog.verb.infinitive();
        let preview = match read {
            Ok(preview) if preview.eligible > 0 => preview,
            Ok(preview) => {
                let why = match preview.why_left_out() {
                    why if why.is_empty() => "no task matches".into(),
                    why => why,
                };
                self.layers.pop();
                self.toast(Tone::Warning, format!("nothing to {name}: {why}"));
                return;
            }
            Err(why) => {
                self.layers.pop();
                self.toast(Tone::Error, format!("{name}: {why}"));
                return;
            }
        };
        dialog.title = facts::title(&preview);
        dialog.lines = facts::lines(&preview, snapshot.as_deref(), &place);
        let stops = dialog.verb == Verb::Cancel && preview.running > 0;
        if preview.eligible > 1 || stops || !local {
            dialog.must_type = preview.eligible.to_string();
        }
        dialog.stage = match preview.eligible > REASON_ABOVE {
            true => Stage::Reason,
            false => Stage::Confirm,
        };
        dialog.preview = Some(preview);
    }

    /// How far the action under way is.
    pub(super) fn progress(&mut self, progress: Progress) {
        let Some((_, known)) = &mut self.acting else {
            return;
        };
        if known.action_id != progress.action_id {
            return;
        }
        *known = progress.clone();
        if let Some(dialog) = self.question().filter(|d| d.stage == Stage::Running) {
            dialog.lines = under_way(&progress);
        }
    }

    /// Tells what became of an action.
    pub(super) fn outcome(&mut self, outcome: &Outcome) -> Vec<Effect> {
        self.acting = None;
        // a `q` was about this action: the next one is asked about anew
        self.leaving = false;
        self.matching = None;
        let name = outcome.verb.label();
        let (tone, text) = outcome.summary();
        // those that were not done are worth more than those that were
        let few = outcome.fates.len() <= LOGGED;
        let told = outcome.fates.iter().filter(|f| few || !f.done());
        for fate in told.take(LOGGED) {
            let now = fate.now_state.as_deref().unwrap_or("gone");
            let tone = if fate.done() {
                Tone::Info
            } else {
                Tone::Warning
            };
            let text = format!("{name} {}: {}, now {now}", fate.key.id, fate.words());
            self.note(tone, text);
        }
        for fate in outcome.fates.iter().filter(|f| f.done()) {
            self.marks.remove(&fate.key);
        }
        let named = match outcome.skipped() {
            0 => "",
            _ => "; L names them",
        };
        match self.question() {
            Some(dialog) if dialog.stage == Stage::Running && outcome.asked > REASON_ABOVE => {
                dialog.stage = Stage::Over;
                dialog.lines = report(outcome);
                self.note(tone, text);
            }
            Some(dialog) if dialog.stage == Stage::Running => {
                self.layers.pop();
                self.toast(tone, text + named);
            }
            _ => self.toast(tone, text + named),
        }
        vec![Effect::Poll]
    }
}

impl Dialog {
    fn key(&mut self, key: &KeyEvent, action: Option<Action>, unseen: bool) -> Means {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if key.code == KeyCode::Esc || (control && action == Some(Action::Quit)) {
            return Means::Close;
        }
        if unseen {
            return Means::Nothing;
        }
        match self.stage {
            Stage::Over => Means::Close,
            Stage::Running if action == Some(Action::Stop) => Means::Effects(vec![Effect::Stop]),
            Stage::Running if action == Some(Action::Picture) => {
                Means::Effects(vec![Effect::Picture])
            }
            Stage::Counting | Stage::Running => Means::Nothing,
            Stage::Confirm if self.must_type.is_empty() => match key.code {
                KeyCode::Char('y') if !control => Means::Next,
                _ if action == Some(Action::Picture) => Means::Effects(vec![Effect::Picture]),
                KeyCode::Char('n' | 'N' | 'q') | KeyCode::Enter => Means::Close,
                _ => Means::Nothing,
            },
            Stage::Number | Stage::Reason | Stage::Confirm => {
                if key.code != KeyCode::Enter {
                    self.input.handle_event(&Event::Key(*key));
                    return Means::Nothing;
                }
                self.enter()
            }
        }
    }

    fn enter(&mut self) -> Means {
        let typed = self.typed();
        if typed.is_empty() {
            return match self.stage {
                Stage::Reason => {
                    Means::Refuse("type why, in a few words for the journal, or Esc".into())
                }
                _ => Means::Close,
            };
        }
        let refuse = match self.stage {
            Stage::Confirm if !self.confirmed() => Some(format!(
                "type {} to confirm, or Esc to leave it",
                self.must_type
            )),
            Stage::Number if typed.parse::<i32>().is_err() => {
                Some("type a whole number, or Esc to leave it".into())
            }
            _ => None,
        };
        match refuse {
            None => Means::Next,
            Some(why) => {
                self.input.reset();
                Means::Refuse(why)
            }
        }
    }
}

fn under_way(p: &Progress) -> Vec<String> {
    let left = p.asked - p.done.min(p.asked);
    let mut lines = vec![format!(
        "{} of {} done, {} changed, {} left, {:.0} a second",
        thousands(p.done),
        thousands(p.asked),
        thousands(p.changed),
        thousands(left),
        p.per_second
    )];
    if p.locked > 0 {
        lines.push(format!(
            "{} locked by other sessions: tried again at the end",
            thousands(p.locked)
        ));
    }
    lines
}

/// Every target counted once.
fn report(outcome: &Outcome) -> Vec<String> {
    let mut lines = vec![format!("{:>9}  asked", thousands(outcome.asked))];
    for (_, words, n) in outcome.counts() {
        lines.push(format!("{:>9}  {words}", thousands(n)));
    }
    for (n, words) in [
        (outcome.unknown, "unknown: the server did not answer"),
        (outcome.not_reached(), "not reached"),
    ] {
        if n > 0 {
            lines.push(format!("{:>9}  {words}", thousands(n)));
        }
    }
    lines.extend(outcome.stopped.clone());
    lines
}
