//! What became of an attempt to end a session, and how that is told.

use super::{How, Strike};
use crate::app::state::Tone;
use crate::findings::words::name;

/// What a signalled session was seen to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// The session has ended.
    Gone,
    /// Its statement has; it is in that state now.
    Ended(String),
    /// Neither, for two seconds.
    Still,
    /// The connection was lost before one could look.
    Unseen,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was signalled.
    Signalled(After),
    /// The session has ended, or its pid belongs to another one now.
    Gone,
    /// A session of jobtop's own.
    Ours,
    /// A replication sender, which was not asked for as one.
    Replication,
    /// The statement that was seen is over: nothing was cancelled.
    MovedOn,
    /// A right is missing: which, in one sentence.
    NotPermitted(String),
    /// Nothing was signalled, and why.
    Failed(String),
    /// Whether it was signalled is not known, and why.
    Unknown(String),
}

impl Verdict {
    /// As in the journal.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Signalled(_) => "signalled",
            Verdict::Gone => "gone",
            Verdict::Ours | Verdict::Replication => "refused",
            Verdict::MovedOn => "moved on",
            Verdict::NotPermitted(_) => "not permitted",
            Verdict::Failed(_) => "failed",
            Verdict::Unknown(_) => "unknown",
        }
    }
}

/// An attempt to end a session, finished.
#[derive(Clone, Debug, PartialEq)]
pub struct Struck {
    /// What was to be done.
    pub strike: Strike,
    /// What became of it.
    pub verdict: Verdict,
    /// Why there is no journal row although there is a journal.
    pub unwritten: Option<String>,
}

impl Struck {
    /// In one sentence; and whether that was all.
    pub fn summary(&self) -> (Tone, String) {
        let Strike {
            pid,
            how,
            application,
            user,
            ..
        } = &self.strike;
        let who = match (application.is_empty(), user.is_empty()) {
            (false, _) => format!("{pid} {}", name(application)),
            (true, false) => format!("{pid} {}", name(user)),
            (true, true) => pid.to_string(),
        };
        let (done, word) = match how {
            How::Cancel => ("cancelled", "cancel"),
            How::Terminate => ("terminated", "terminate"),
        };
        let not = |why: &str| format!("{word} {who}: {why}");
        let (tone, mut text) = match (&self.verdict, how) {
            (Verdict::Signalled(After::Gone), How::Terminate) => {
                (Tone::Info, format!("{done} {who}: gone"))
            }
            (Verdict::Signalled(After::Gone), How::Cancel) => {
                (Tone::Info, format!("{done} {who}: its session ended, too"))
            }
            (Verdict::Signalled(After::Ended(state)), _) => {
                let now = match state.is_empty() {
                    true => String::new(),
                    false => format!(", it is {} now", name(state)),
                };
                (
                    Tone::Info,
                    format!("{done} {who}: its statement is over{now}"),
                )
            }
            (Verdict::Signalled(After::Still), _) => (
                Tone::Warning,
                not("signalled, still there: it ends when it next looks for interrupts"),
            ),
            (Verdict::Signalled(After::Unseen), _) => (
                Tone::Warning,
                not("signalled, but the connection was lost before one could look"),
            ),
            (Verdict::Gone, _) => (
                Tone::Warning,
                not("nothing was done: that session has ended (its pid may be another's by now)"),
            ),
            (Verdict::Ours, _) => (
                Tone::Error,
                not("refused: a session of jobtop's own, quit that program instead"),
            ),
            (Verdict::Replication, _) => (
                Tone::Error,
                not("refused: it sends replication, and was not asked for as such"),
            ),
            (Verdict::MovedOn, _) => (
                Tone::Warning,
                not("nothing was done: the statement that was seen is over"),
            ),
            (Verdict::NotPermitted(why), _) => (Tone::Error, not(&format!("not permitted: {why}"))),
            (Verdict::Failed(why), _) => (Tone::Error, not(&format!("nothing was done: {why}"))),
            (Verdict::Unknown(why), _) => (
                Tone::Error,
                not(&format!(
                    "{why}; whether it was signalled is not known: look whether it is there"
                )),
            ),
        };
        if let Some(why) = &self.unwritten {
            text.push_str(&format!(" (not in the queue's journal: {why})"));
        }
        let tone = match &self.unwritten {
            Some(_) => tone.max(Tone::Warning),
            None => tone,
        };
        (tone, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::backend::Backend;

    #[test]
    fn every_end_is_one_sentence() {
        let seen = Backend {
            started_us: Some(1),
            application: "agent-7\u{202e}".into(),
            ..Backend::default()
        };
        let told = |how: How, verdict: Verdict, unwritten: Option<&str>| {
            let strike = Strike::new(4711, &seen, how, None).expect("a start");
            let struck = Struck {
                strike,
                verdict,
                unwritten: unwritten.map(Into::into),
            };
            struck.summary()
        };
        let gone = || Verdict::Signalled(After::Gone);
        assert_eq!(
            told(How::Terminate, gone(), None),
            (Tone::Info, "terminated 4711 agent-7: gone".into())
        );
        let (tone, text) = told(How::Terminate, gone(), Some("permission denied (42501)"));
        assert_eq!(tone, Tone::Warning);
        assert!(text.ends_with("(not in the queue's journal: permission denied (42501))"));
        let (_, text) = told(
            How::Cancel,
            Verdict::Signalled(After::Ended("idle in transaction (aborted)".into())),
            None,
        );
        assert_eq!(
            text,
            "cancelled 4711 agent-7: its statement is over, it is idle in transaction (aborted) now"
        );
        let (tone, text) = told(How::Terminate, Verdict::Signalled(After::Still), None);
        assert_eq!(tone, Tone::Warning);
        assert!(text.contains("signalled, still there: it ends when it next looks for interrupts"));
    }
}
