//! What can be done to a task, and to which ones it can be done at all.

use crate::probe::State;
use crate::probe::tasks::Task;
use serde::{Deserialize, Serialize};

/// What can be done to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Make it claimable again.
    Requeue,
    /// The same, with a full new set of tries.
    RequeueFresh,
    /// Call it off; a running task is asked to stop.
    Cancel,
    /// Take it from an owner whose lease has expired.
    Release,
    /// Due at once.
    RunNow,
    /// This priority from now on.
    Priority(i64),
    /// Out of the workers' sight.
    Park,
    /// Back into their sight.
    Unpark,
}

impl Verb {
    /// All of them, with some priority.
    pub const ALL: [Verb; 8] = [
        Verb::Requeue,
        Verb::RequeueFresh,
        Verb::Cancel,
        Verb::Release,
        Verb::RunNow,
        Verb::Priority(7),
        Verb::Park,
        Verb::Unpark,
    ];

    /// As in the journal and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Requeue => "requeue",
            Verb::RequeueFresh => "requeue_fresh",
            Verb::Cancel => "cancel",
            Verb::Release => "release",
            Verb::RunNow => "run_now",
            Verb::Priority(_) => "priority",
            Verb::Park => "park",
            Verb::Unpark => "unpark",
        }
    }

    /// As in the journals: with the priority that was set.
    pub fn noted(self) -> String {
        match self {
            Verb::Priority(n) => format!("priority {n}"),
            _ => self.name().into(),
        }
    }

    /// In front of a report.
    pub fn label(self) -> &'static str {
        match self {
            Verb::RequeueFresh => "requeue afresh",
            Verb::RunNow => "run now",
            _ => self.name(),
        }
    }

    /// As a word after "to": `nothing to reprioritize`.
    pub fn infinitive(self) -> &'static str {
        match self {
            Verb::Requeue | Verb::RequeueFresh => "requeue",
            Verb::Cancel => "cancel",
            Verb::Release => "release",
            Verb::RunNow => "run now",
            Verb::Priority(_) => "reprioritize",
            Verb::Park => "park",
            Verb::Unpark => "unpark",
        }
    }

    /// What it does to them, as words after "to": `requeue them`, `give them priority 5`.
    pub fn words(self, them: &str) -> String {
        match self {
            Verb::Requeue => format!("requeue {them}"),
            Verb::RequeueFresh => format!("requeue {them} with new tries"),
            Verb::Cancel => format!("cancel {them}"),
            Verb::Release => format!("release {them}"),
            Verb::RunNow => format!("run {them} now"),
            Verb::Priority(n) => format!("give {them} priority {n}"),
            Verb::Park => format!("park {them}"),
            Verb::Unpark => format!("unpark {them}"),
        }
    }

    /// The states that are asked for where targets are chosen by a filter that names none.
    pub fn takes(self) -> &'static [State] {
        match self {
            Verb::Requeue | Verb::RequeueFresh => &[State::Failed],
            Verb::Cancel => &[
                State::Ready,
                State::Scheduled,
                State::Retryable,
                State::Running,
            ],
            Verb::Release => &[State::Running],
            Verb::RunNow => &[State::Scheduled, State::Retryable],
            Verb::Priority(_) | Verb::Park => &[State::Ready, State::Scheduled, State::Retryable],
            Verb::Unpark => &[State::Other],
        }
    }

    /// Why a task as seen cannot be done this to. The server decides again, by its own clock.
    pub fn refuses(self, task: &Task) -> Option<&'static str> {
        use State::{Cancelled, Failed, Other, Ready, Retryable, Running, Scheduled, Succeeded};
        let waits = matches!(task.state, Ready | Scheduled | Retryable);
        match (self, task.state) {
            (Verb::Requeue | Verb::RequeueFresh, state) => match state {
                Failed | Cancelled => None,
                Running if task.stuck.is_some() => None,
                Running => {
                    Some("running under a live lease: only an expired lease permits a requeue")
                }
                Succeeded => Some("succeeded already"),
                Ready | Scheduled | Retryable => Some("in the queue already"),
                Other => Some("in a state that is not ours to change"),
            },
            (Verb::Cancel, Succeeded | Failed | Cancelled) => Some("finished already"),
            (Verb::Cancel, Running) if task.cancel_requested_at.is_some() => {
                Some("asked to stop already, not acknowledged yet")
            }
            (Verb::Cancel, _) => None,
            (Verb::Release, Running) if task.stuck.is_some() => None,
            (Verb::Release, Running) => Some("running under a live lease"),
            (Verb::Release, _) => Some("not running"),
            (Verb::RunNow, Scheduled | Retryable) => None,
            (Verb::RunNow, Ready) => Some("due already"),
            (Verb::Priority(n), _) if waits && task.priority == Some(n as f64) => {
                Some("of that priority already")
            }
            (Verb::Priority(_), Other) => None,
            (Verb::Priority(_) | Verb::Park, _) if waits => None,
            (Verb::Park, Other) => Some("parked or blocked already"),
            (Verb::Unpark, Other) => None,
            (Verb::Unpark, _) => Some("not parked"),
            (_, Running) => Some("running"),
            (_, Succeeded | Failed | Cancelled) => Some("finished already"),
            (_, Other) => Some("in a state that is not ours to change"),
            (_, Ready | Scheduled | Retryable) => Some("not in a state that permits it"),
        }
    }
}
