//! From a key to the tasks it is about: the row in hand, the marked ones, all that match on the server.

use super::dialog::Dialog;
use super::row::RowId;
use super::state::{App, Layer, PaneId, Tone};
use super::update::Effect;
use crate::action::{Choice, MOST, Verb};
use crate::probe::State;
use crate::probe::tasks::query::{FIELDS, Filter, Term};
use crate::probe::tasks::{Task, TaskKey};
use crate::ui::order::{Word, words};
use std::collections::{BTreeMap, BTreeSet};

impl App {
    /// A key that writes: opens the dialog and has the targets read, or says why not.
    pub(super) fn ask(&mut self, verb: Verb) -> Vec<Effect> {
        match self.choose(verb, self.row_in_hand().as_ref()) {
            Ok(choice) => self.open_dialog(verb, choice),
            Err((tone, why)) => {
                self.toast(tone, why);
                vec![]
            }
        }
    }

    fn open_dialog(&mut self, verb: Verb, choice: Choice) -> Vec<Effect> {
        self.dialogs += 1;
        let dialog = Dialog::new(self.dialogs, verb, choice);
        let effects = dialog.look();
        self.layers.push(Layer::Confirm(Box::new(dialog)));
        effects
    }

    /// What a verb would be done to now, with this row in hand, or why to nothing.
    pub fn choose(&self, verb: Verb, row: Option<&RowId>) -> Result<Choice, (Tone, String)> {
        let name = verb.infinitive();
        if let Some(why) = self.write_refusal() {
            return Err((Tone::Warning, format!("{name} is off: {why}")));
        }
        if self.acting.is_some() {
            let why = "an action is under way: A stops it, then try again";
            return Err((Tone::Warning, why.into()));
        }
        if verb == Verb::Release {
            return self.expired(row).map_err(|why| (Tone::Info, why));
        }
        if let Some(matching) = self.matching.as_ref().filter(|_| self.in_tasks()) {
            return Ok(matching.as_choice(verb));
        }
        if let Some(group) = self.failure_group(verb, row) {
            return Ok(group);
        }
        let chosen = self.chosen_tasks(row);
        if chosen.is_empty() {
            let why = format!("nothing to {name}: choose or mark tasks (press 6)");
            return Err((Tone::Info, why));
        }
        let refused: BTreeSet<&str> = chosen
            .iter()
            .filter_map(|t| self.refuses(verb, t))
            .collect();
        if chosen.iter().all(|t| self.refuses(verb, t).is_some()) {
            let why: Vec<&str> = refused.into_iter().collect();
            let why = format!("nothing to {name}: {}", why.join("; "));
            return Err((Tone::Warning, why));
        }
        let homes: BTreeSet<(&String, &String)> = chosen
            .iter()
            .map(|t| (&t.key.system, &t.key.schema))
            .collect();
        if homes.len() > 1 {
            let why = "the marked tasks belong to several systems: mark those of one";
            return Err((Tone::Warning, why.into()));
        }
        Ok(Choice::These(chosen.into_iter().map(|t| t.key).collect()))
    }

    fn refuses(&self, verb: Verb, task: &Task) -> Option<&'static str> {
        let deaf = verb == Verb::Cancel && self.cannot_ask_to_stop(task);
        let deaf = deaf.then_some("running, and their system has no way to ask a worker to stop");
        verb.refuses(task).or(deaf)
    }

    /// A running task of a system whose rows carry no cancel request.
    fn cannot_ask_to_stop(&self, task: &Task) -> bool {
        let totals = self.snapshot.iter().flat_map(|s| &s.totals);
        let mut of = totals.filter(|t| t.system == task.key.system && t.schema == task.key.schema);
        task.state == State::Running && of.next().is_some_and(|t| !t.asks_to_stop)
    }

    fn in_tasks(&self) -> bool {
        let in_detail = matches!(self.under_palette(), Some(Layer::Detail { .. }));
        !in_detail && self.focus == PaneId::Tasks
    }

    fn chosen_tasks(&self, row: Option<&RowId>) -> Vec<Task> {
        let Some(snapshot) = &self.snapshot else {
            return vec![];
        };
        let keys: Vec<TaskKey> = if self.in_tasks() && !self.marks.is_empty() {
            self.marks.iter().cloned().collect()
        } else {
            match row {
                Some(RowId::Task(key)) => vec![key.clone()],
                Some(row @ RowId::Finding { .. }) => match self.culprit(row) {
                    Some(RowId::Task(key)) => vec![key],
                    _ => vec![],
                },
                _ => vec![],
            }
        };
        let rows = snapshot.tasks.rows.iter();
        rows.filter(|t| keys.contains(&t.key)).cloned().collect()
    }

    /// All failed tasks of the group in hand; for what is done to waiting tasks, those that wait for another try after
    /// such a failure.
    fn failure_group(&self, verb: Verb, row: Option<&RowId>) -> Option<Choice> {
        let Some(RowId::Failures {
            system,
            schema,
            kind,
            error,
        }) = row
        else {
            return None;
        };
        let (snapshot, _) = self.shown()?;
        let mut of = snapshot.failures.iter();
        let of = of.find(|f| f.system == *system && f.schema == *schema)?;
        let group = of
            .groups
            .iter()
            .find(|g| g.kind == *kind && g.error == *error)?;
        let filter = Filter {
            states: verb.takes().to_vec(),
            failure: group.exact.clone(),
            within_s: Some(crate::probe::failures::DAY),
            limit: MOST as u32,
            ..Filter::default()
        };
        let kind = kind.as_deref().unwrap_or_default();
        Some(Choice::Matching {
            system: system.clone(),
            schema: schema.clone(),
            filter: Box::new(filter.with("kind", Some(kind))),
        })
    }

    /// All expired leases of the system of the row in hand, else of the one that has most of them.
    fn expired(&self, row: Option<&RowId>) -> Result<Choice, String> {
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for lease in self.snapshot.iter().flat_map(|s| &s.leases) {
            *counts.entry((&lease.system, &lease.schema)).or_default() += 1;
        }
        let own = row.and_then(RowId::home);
        let own = own.filter(|home| counts.contains_key(home));
        let most = counts
            .iter()
            .max_by_key(|(_, n)| **n)
            .map(|(home, _)| *home);
        let Some((system, schema)) = own.or(most) else {
            return Err("nothing to release: no lease has expired".into());
        };
        let filter = Filter {
            states: vec![State::Running],
            stuck: true,
            limit: RELEASED,
            ..Filter::default()
        };
        Ok(Choice::Matching {
            system: system.into(),
            schema: schema.into(),
            filter: Box::new(filter),
        })
    }

    /// `*` again when all rows shown are marked: all that match the filter, on the server.
    pub(super) fn match_all(&mut self) {
        match self.matching_now() {
            Ok(matching) => self.matching = Some(matching),
            Err(why) => self.toast(Tone::Warning, why),
        }
    }

    fn matching_now(&self) -> Result<Matching, String> {
        let view = self.view(PaneId::Tasks);
        let mut states = BTreeSet::from(State::ALL);
        let mut named = false;
        let mut terms = Vec::new();
        let mut system: Option<(String, String)> = None;
        for word in words(view.filter.value()) {
            match word.field.as_deref() {
                // the system's own word for a state
                Some("state") if !State::ALL.iter().any(|s| s.name().contains(&word.text)) => {
                    terms.push(Term {
                        field: Some("native_state"),
                        exact: false,
                        not: word.not,
                        text: word.text.clone(),
                    });
                }
                Some("state") => {
                    named = true;
                    states.retain(|s| s.name().contains(&word.text) != word.not);
                }
                Some("system") => {
                    let here = self.systems();
                    let mut found = here.into_iter().filter(|(s, _)| s.contains(&word.text));
                    system = found.next();
                }
                _ => terms.push(term(&word)?),
            }
        }
        match &view.of {
            None => {}
            Some(row) => {
                let (of, home) = of_row(row)?;
                terms.extend(of);
                system = home.or(system);
            }
        }
        if terms.is_empty() && !named {
            return Err("all that match needs a filter first (/): kind:NAME, queue:NAME, state:failed, or words of the error".into());
        }
        let systems = self.systems();
        let (system, schema) = match (system, systems.as_slice()) {
            (Some(home), _) => home,
            (None, [one]) => one.clone(),
            (None, []) => return Err("no queue is watched".into()),
            (None, _) => {
                return Err(
                    "several queue systems are watched: add system:NAME to the filter".into(),
                );
            }
        };
        Ok(Matching {
            system,
            schema,
            states: match named {
                true => states.into_iter().collect(),
                false => Vec::new(),
            },
            terms,
        })
    }

    fn systems(&self) -> Vec<(String, String)> {
        let queues = self.snapshot.iter().flat_map(|s| &s.queues);
        let systems: BTreeSet<_> = queues
            .map(|q| (q.system.clone(), q.schema.clone()))
            .collect();
        systems.into_iter().collect()
    }
}

/// Expired leases released by one press, at most: the oldest.
const RELEASED: u32 = 1000;

/// The filter of the tasks pane as the server understands it.
#[derive(Clone, Debug, PartialEq)]
pub struct Matching {
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// States named in the filter; empty where it names none.
    pub states: Vec<State>,
    /// Its other words.
    pub terms: Vec<Term>,
}

impl Matching {
    /// With the states that a verb takes, where the filter names none.
    fn as_choice(&self, verb: Verb) -> Choice {
        let states = match self.states.is_empty() {
            true => verb.takes().to_vec(),
            false => self.states.clone(),
        };
        Choice::Matching {
            system: self.system.clone(),
            schema: self.schema.clone(),
            filter: Box::new(Filter {
                states,
                terms: self.terms.clone(),
                limit: MOST as u32,
                ..Filter::default()
            }),
        }
    }
}

fn term(word: &Word) -> Result<Term, String> {
    let field = match word.field.as_deref() {
        None => None,
        Some("error") => Some("last_error"),
        Some("app") => Some("application"),
        Some(name) => match FIELDS.iter().find(|f| **f == name) {
            Some(field) => Some(*field),
            None => {
                return Err(format!(
                    "{name}: is known on this screen only: use id, queue, kind, worker, tenant, agent, application, batch, error or state"
                ));
            }
        },
    };
    Ok(Term {
        field,
        exact: false,
        not: word.not,
        text: word.text.clone(),
    })
}

type Home = Option<(String, String)>;

/// The tasks of a row (`t`) as terms.
fn of_row(row: &RowId) -> Result<(Vec<Term>, Home), String> {
    let exact = |field, text: &str| Term {
        field: Some(field),
        exact: true,
        not: false,
        text: text.to_string(),
    };
    let home = row.home().map(|(s, n)| (s.to_string(), n.to_string()));
    let terms = match row {
        RowId::Queue { queue, kind, .. } => {
            let kind = kind.iter().map(|k| exact("kind", k));
            std::iter::once(exact("queue", queue)).chain(kind).collect()
        }
        RowId::Worker { worker, .. } => vec![exact("worker", worker)],
        RowId::Spender { by, name } => match by.as_str() {
            "agent" => vec![exact("agent", name)],
            "tenant" => vec![exact("tenant", name)],
            "application" => vec![exact("application", name)],
            _ => return Err("a model's tasks cannot be asked for: mark those shown".into()),
        },
        _ => {
            return Err(
                "the tasks of this row cannot be asked of the server: mark those shown".into(),
            );
        }
    };
    Ok((terms, home))
}
