//! From a key to a frozen plan, through the dialog, to the outcome.

use super::row::RowId;
use super::state::{App, Dialog, Layer, PaneId, Tone};
use super::update::Effect;
use crate::action::{Outcome, Plan, Target, Verb};
use crate::keys::Action;
use crate::probe::tasks::{Task, TaskKey};
use crate::probe::{State, Usd};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use std::collections::BTreeMap;
use tui_input::Input;
use tui_input::backend::crossterm::EventHandler;

impl App {
    /// `R` and `X`: freezes the targets and opens the dialog, or says why not.
    pub(super) fn ask(&mut self, verb: Verb) {
        if let Some(why) = self.write_refusal() {
            self.toast(Tone::Warning, format!("{} is off: {why}", verb.name()));
            return;
        }
        let chosen = self.chosen_tasks();
        if chosen.is_empty() {
            let text = format!("nothing to {}: choose or mark tasks (press 6)", verb.name());
            self.toast(Tone::Info, text);
            return;
        }
        let mut refused: BTreeMap<&'static str, usize> = BTreeMap::new();
        let mut tasks: Vec<Task> = Vec::new();
        for task in chosen {
            let deaf = verb == Verb::Cancel && self.cannot_ask_to_stop(&task);
            let deaf =
                deaf.then_some("running, and their system has no way to ask a worker to stop");
            match verb.refuses(&task).or(deaf) {
                Some(why) => *refused.entry(why).or_default() += 1,
                None => tasks.push(task),
            }
        }
        let Some(first) = tasks.first() else {
            let why = refused.keys().copied().collect::<Vec<_>>().join("; ");
            self.toast(Tone::Warning, format!("nothing to {}: {why}", verb.name()));
            return;
        };
        let home = (first.key.system.clone(), first.key.schema.clone());
        if tasks
            .iter()
            .any(|t| (&t.key.system, &t.key.schema) != (&home.0, &home.1))
        {
            self.toast(
                Tone::Warning,
                "the marked tasks belong to several systems: mark those of one",
            );
            return;
        }
        let dialog = self.dialog(verb, &tasks, &refused);
        self.layers.push(Layer::Confirm(Box::new(dialog)));
    }

    /// A running task of a system whose rows carry no cancel request.
    fn cannot_ask_to_stop(&self, task: &Task) -> bool {
        let totals = self.snapshot.iter().flat_map(|s| &s.totals);
        let mut of = totals.filter(|t| t.system == task.key.system && t.schema == task.key.schema);
        task.state == State::Running && of.next().is_some_and(|t| !t.asks_to_stop)
    }

    fn chosen_tasks(&self) -> Vec<Task> {
        let Some(snapshot) = &self.snapshot else {
            return vec![];
        };
        let in_detail = matches!(self.layers.last(), Some(Layer::Detail { .. }));
        let keys: Vec<TaskKey> =
            if !in_detail && self.focus == PaneId::Tasks && !self.marks.is_empty() {
                self.marks.iter().cloned().collect()
            } else {
                match self.row_in_hand() {
                    Some(RowId::Task(key)) => vec![key],
                    Some(row @ RowId::Finding { .. }) => match self.culprit(&row) {
                        Some(RowId::Task(key)) => vec![key],
                        _ => vec![],
                    },
                    _ => vec![],
                }
            };
        let rows = snapshot.tasks.rows.iter();
        rows.filter(|t| keys.contains(&t.key)).cloned().collect()
    }

    fn dialog(
        &self,
        verb: Verb,
        tasks: &[Task],
        refused: &BTreeMap<&'static str, usize>,
    ) -> Dialog {
        let n = tasks.len();
        let running = tasks.iter().filter(|t| t.state == State::Running).count();
        let server = self.snapshot.as_ref().map(|s| &s.server);
        let place = server.map_or_else(String::new, |s| format!("{} on {}", s.database, s.host));
        let ids: Vec<&str> = tasks.iter().take(6).map(|t| t.key.id.as_str()).collect();
        let more = n - ids.len();
        let mut lines = vec![format!(
            "in {place}, {} {}",
            tasks[0].key.system, tasks[0].key.schema
        )];
        lines.push(format!(
            "{}: {}{}",
            if n == 1 { "task" } else { "tasks" },
            ids.join(", "),
            if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            }
        ));
        lines.push(by_state(tasks));
        lines.extend(consequences(verb, tasks));
        let spent: Option<Usd> = tasks.iter().filter_map(|t| t.cost_usd).reduce(|a, b| a + b);
        if let Some(spent) = spent {
            lines.push(format!("spent so far: ${:.4}", spent.dollars()));
        }
        for (why, count) in refused {
            lines.push(format!("left out, {count}: {why}"));
        }
        let typed = n > 1 || (verb == Verb::Cancel && running > 0) || !self.local;
        Dialog {
            title: format!(
                "{} {n} {}?",
                if verb == Verb::Requeue {
                    "Requeue"
                } else {
                    "Cancel"
                },
                if n == 1 { "task" } else { "tasks" }
            ),
            lines,
            must_type: if typed { n.to_string() } else { String::new() },
            input: Input::default(),
            plan: Plan {
                verb,
                targets: tasks.iter().map(Target::of).collect(),
                action_id: String::new(),
                reason: None,
            },
            busy: false,
        }
    }

    pub(super) fn dialog_key(&mut self, key: KeyEvent, action: Option<Action>) -> Vec<Effect> {
        let refusal = self.write_refusal();
        let Some(Layer::Confirm(dialog)) = self.layers.last_mut() else {
            return vec![];
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if key.code == KeyCode::Esc || (control && action == Some(Action::Quit)) {
            // the write goes on; its outcome will be told
            self.layers.pop();
            return vec![];
        }
        let (columns, rows) = self.size;
        let unseen = columns < crate::ui::LEAST.0 || rows < crate::ui::LEAST.1;
        if dialog.busy || unseen {
            return vec![];
        }
        let confirmed = if dialog.must_type.is_empty() {
            match key.code {
                KeyCode::Char('y') if !control => true,
                _ if action == Some(Action::Picture) => return vec![Effect::Picture],
                KeyCode::Char('n' | 'N' | 'q') | KeyCode::Enter => {
                    self.layers.pop();
                    return vec![];
                }
                _ => return vec![],
            }
        } else if key.code == KeyCode::Enter {
            if dialog.input.value().trim().is_empty() {
                self.layers.pop();
                return vec![];
            }
            dialog.input.value().trim() == dialog.must_type
        } else {
            dialog.input.handle_event(&Event::Key(key));
            return vec![];
        };
        if !confirmed {
            let wanted = dialog.must_type.clone();
            dialog.input.reset();
            self.toast(
                Tone::Warning,
                format!("type {wanted} to confirm, or Esc to leave it"),
            );
            return vec![];
        }
        if let Some(why) = refusal {
            self.layers.pop();
            self.toast(Tone::Error, format!("nothing was written: {why}"));
            return vec![];
        }
        dialog.busy = true;
        vec![Effect::Act(Box::new(dialog.plan.clone()))]
    }

    /// Tells what became of a write.
    pub(super) fn outcome(&mut self, outcome: &Outcome) -> Vec<Effect> {
        if let Some(Layer::Confirm(dialog)) = self.layers.last()
            && dialog.busy
        {
            self.layers.pop();
        }
        let verb = outcome.plan.verb;
        match &outcome.result {
            Err(why) => self.toast(Tone::Error, format!("{}: {why}", verb.name())),
            Ok(fates) => {
                for fate in fates {
                    let now = fate.now_state.as_deref().unwrap_or("gone");
                    let tone = if fate.done() {
                        Tone::Info
                    } else {
                        Tone::Warning
                    };
                    let text = format!(
                        "{} {}: {}, now {now}",
                        verb.name(),
                        fate.key.id,
                        fate.words()
                    );
                    self.note(tone, text);
                    if fate.done() {
                        self.marks.remove(&fate.key);
                    }
                }
                let (tone, text) = outcome.summary();
                self.toast(tone, text);
            }
        }
        vec![Effect::Poll]
    }
}

/// What will happen, and what will not.
fn consequences(verb: Verb, tasks: &[Task]) -> Vec<String> {
    let running = tasks.iter().filter(|t| t.state == State::Running).count();
    let rest = tasks.len() - running;
    let mut lines = Vec::new();
    match verb {
        Verb::Requeue => {
            lines.push(match tasks.len() {
                1 => "It becomes claimable at once; its history stays.".to_string(),
                _ => "They become claimable at once; their history stays.".to_string(),
            });
            if running > 0 {
                let fenced = tasks.iter().all(|t| t.lease_token.is_some());
                lines.push(format!(
                    "{running} with an expired lease: the worker that held it is not stopped; {}.",
                    if fenced {
                        "should it finish late, that changes nothing"
                    } else {
                        "should it finish late, that may be taken for the new try (no lease token here)"
                    }
                ));
            }
        }
        Verb::Cancel => {
            if running > 0 {
                lines.push(format!(
                    "{running} running: the worker is asked to stop, and may finish first."
                ));
            }
            if rest > 0 {
                lines.push(format!("{rest} not running: called off at once."));
            }
        }
    }
    lines
}

fn by_state(tasks: &[Task]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks {
        *counts.entry(task.native_state.as_str()).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(s, n)| format!("{n} {s}")).collect();
    let tries = tasks.iter().filter_map(|t| t.attempt.zip(t.max_attempts));
    let last = tries.filter(|(a, m)| a >= m).count();
    match last {
        0 => format!("seen as: {}", parts.join(", ")),
        _ => format!("seen as: {}; {last} used all tries", parts.join(", ")),
    }
}
