//! What the operator does: a plan with frozen ids, one short transaction, an outcome per id, a journal row.

mod journal;
mod ready;

use crate::app::state::Tone;
use crate::probe::State;
use crate::probe::tasks::{Task, TaskKey};
pub use ready::Ready;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What can be done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Make it claimable again.
    Requeue,
    /// Call it off; a running task is asked to stop.
    Cancel,
}

impl Verb {
    /// As on screen and in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Requeue => "requeue",
            Verb::Cancel => "cancel",
        }
    }

    /// Why a task as seen cannot be done this to, in the plural. The server decides again, by its own clock.
    pub fn refuses(self, task: &Task) -> Option<&'static str> {
        match (self, task.state) {
            (Verb::Requeue, State::Failed | State::Cancelled) => None,
            (Verb::Requeue, State::Running) if task.stuck.is_some() => None,
            (Verb::Requeue, State::Running) => {
                Some("running under a live lease: only an expired lease permits a requeue")
            }
            (Verb::Requeue, State::Succeeded) => Some("succeeded already"),
            (Verb::Requeue, State::Ready | State::Scheduled | State::Retryable) => {
                Some("in the queue already")
            }
            (Verb::Requeue, State::Other) => Some("in a state that is not ours to change"),
            (Verb::Cancel, State::Succeeded | State::Failed | State::Cancelled) => {
                Some("finished already")
            }
            (Verb::Cancel, State::Running) if task.cancel_requested_at.is_some() => {
                Some("asked to stop already, not acknowledged yet")
            }
            (Verb::Cancel, _) => None,
        }
    }
}

/// A task as the operator saw it: the write applies only if it still is that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What names it.
    pub key: TaskKey,
    /// Neutral state seen.
    pub state: State,
    /// Native state seen.
    pub native_state: String,
    /// Attempt seen.
    pub attempt: Option<i64>,
    /// Lease token seen.
    pub lease_token: Option<i64>,
}

impl Target {
    /// The task as it is on screen now.
    pub fn of(task: &Task) -> Self {
        Self {
            key: task.key.clone(),
            state: task.state,
            native_state: task.native_state.clone(),
            attempt: task.attempt,
            lease_token: task.lease_token,
        }
    }
}

/// What is about to be done, frozen when the dialog opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What.
    pub verb: Verb,
    /// To which tasks; all of one system and schema.
    pub targets: Vec<Target>,
    /// Names this action in the journal.
    pub action_id: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}

/// What became of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fate {
    /// What names it.
    pub key: TaskKey,
    /// `changed`, `requested`, `locked`, `moved on`, `gone` or `refused`.
    pub outcome: String,
    /// Why it was refused, in the system's own words.
    pub why: Option<String>,
    /// Its native state now, where it still exists.
    pub now_state: Option<String>,
}

impl Fate {
    /// Was it changed (or, for a running task, was the request set)?
    pub fn done(&self) -> bool {
        matches!(self.outcome.as_str(), "changed" | "requested" | "released")
    }
}

impl Fate {
    /// The outcome as a person reads it.
    pub fn words(&self) -> &str {
        match (self.outcome.as_str(), &self.why) {
            ("refused", Some(why)) => why,
            ("locked", _) => "row locked by another session",
            ("moved on", _) => "changed since it was seen",
            (outcome, _) => outcome,
        }
    }
}

/// What became of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// The fate of each target; or, in one sentence, why nothing was done or is not known.
    pub result: Result<Vec<Fate>, String>,
}

impl Outcome {
    /// How many were changed, how many not and why, in one sentence; and whether that was all.
    pub fn summary(&self) -> (Tone, String) {
        let verb = self.plan.verb.name();
        let fates = match &self.result {
            Err(why) => return (Tone::Error, format!("{verb}: {why}")),
            Ok(fates) => fates,
        };
        let mut counts: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        for fate in fates {
            *counts.entry((fate.done(), fate.words())).or_default() += 1;
        }
        let done = fates.iter().filter(|f| f.done()).count();
        let skipped = fates.len() - done;
        let part = |done: bool| {
            let parts: Vec<String> = counts
                .iter()
                .filter(|((d, _), _)| *d == done)
                .map(|((_, words), n)| format!("{n} {words}"))
                .collect();
            parts.join(", ")
        };
        let mut text = format!("{verb}: asked {}", fates.len());
        if done > 0 {
            text.push_str(&format!(", {}", part(true)));
        }
        if skipped > 0 {
            text.push_str(&format!(", skipped {skipped} ({})", part(false)));
        }
        let tone = if skipped == 0 {
            Tone::Info
        } else {
            Tone::Warning
        };
        (tone, text)
    }
}
