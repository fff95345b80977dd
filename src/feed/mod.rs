//! How snapshots arrive: a task that owns the one connection, polls, listens, slows itself down, and comes back
//! after a loss. The rest of the program sees [`News`] and sends [`Order`]s; it never waits for the database.

mod barred;
pub mod clock;
pub mod full;
pub mod hands;
mod listen;
pub mod pace;
pub mod push;
pub mod round;
pub mod sampler;
pub mod slot;
mod slots;
mod systems;

use crate::action::strike::{Strike, Struck};
use crate::action::{Choice, Outcome, Plan, Preview, Progress, Verb};
use crate::app::row::RowId;
use crate::app::state::Detail;
use crate::findings::Report;
use crate::probe::Snapshot;
use std::sync::Arc;

/// What the feed says.
#[derive(Clone, Debug)]
pub enum News {
    /// Still making the first connection; the text says why.
    Connecting(String),
    /// A refresh, and what it says together with those before it.
    Snapshot(Arc<Snapshot>, Arc<Report>),
    /// The connection was lost, or could not be made again.
    Lost {
        /// In one sentence.
        reason: String,
        /// Seconds until the next attempt.
        retry_in: f64,
    },
    /// The first connection failed for good.
    Refused(String),
    /// Details that were asked for.
    Detail(RowId, Result<Arc<Detail>, String>),
    /// What an action is about, for the dialog of that number.
    Preview(u64, Result<Box<Preview>, String>),
    /// How far an action is.
    Progress(Progress),
    /// What became of an action.
    Outcome(Box<Outcome>),
    /// What became of an attempt to end a session.
    Struck(Box<Struck>),
    /// No session is open, and none will be before [`Order::Wake`].
    Asleep,
}

/// What the feed is told.
#[derive(Clone, Debug)]
pub enum Order {
    /// Poll now.
    Poll,
    /// Seconds between refreshes.
    Interval(f64),
    /// Fetch the details of a row.
    Fetch(RowId),
    /// Read what an action is about, for the dialog of that number.
    Look(u64, Verb, Choice),
    /// Somebody looks at the failures, or does so no more: they are read only then.
    Watch(bool),
    /// Carry out a plan.
    Act(Box<Plan>),
    /// The action under way ends after its chunk.
    Stop,
    /// End a session.
    Strike(Box<Strike>),
    /// Close the session, also in the middle of a refresh, and wait for [`Order::Wake`]: a stopped program must not
    /// hold one. Answered by [`News::Asleep`].
    Sleep,
    /// Connect again.
    Wake,
}
