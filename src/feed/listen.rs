//! Which channels are listened to: those of the queues found, where notifications arrive and where it is harmless.

use super::push::Sent;
use crate::connect::{Fault, Footing, Session};
use crate::probe::Snapshot;
use tracing::info;

/// What is listened to on one session, and what is known of its way.
#[derive(Default)]
pub struct Listen {
    /// Of the systems found.
    channels: Vec<String>,
    /// What `LISTEN` was said for; `None` before it was tried.
    listening: Option<Vec<String>>,
    /// What became of a notification to ourselves.
    sent: Option<Sent>,
}

impl Listen {
    /// A new session listens to nothing.
    pub fn connected(&mut self) {
        self.listening = None;
        self.sent = None;
    }

    /// The channels of the systems found.
    pub fn want(&mut self, channels: Vec<String>) {
        self.channels = channels;
    }

    /// There is something to listen to.
    pub fn has_channels(&self) -> bool {
        !self.channels.is_empty()
    }

    /// A notification was sent to ourselves.
    pub fn tried(&mut self, sent: Sent) {
        self.sent = Some(sent);
    }

    /// Listens, or stops to; what is so goes into the snapshot. `limit` is the share of the server's queue of
    /// notifications above which nothing is listened to.
    ///
    /// # Errors
    /// Where the session is lost.
    pub async fn follow(
        &mut self,
        db: &Session,
        snapshot: &mut Snapshot,
        limit: f64,
    ) -> Result<(), Fault> {
        snapshot.server.pooler = self.pooler(db.footing()).map(String::from);
        let deaf = self.deaf(db.footing(), snapshot, limit);
        let channels = match &deaf {
            None => self.channels.clone(),
            Some(_) => Vec::new(),
        };
        let same = self.listening.as_ref() == Some(&channels);
        let push = &mut snapshot.server.push;
        let before = match deaf {
            Some(why) => std::mem::replace(push, why),
            None if same => return Ok(()),
            None => std::mem::replace(push, "listen".into()),
        };
        if same {
            // the share of a queue that fills changes, and says nothing new
            if state(&before) != state(push) {
                info!(state = push, "push");
            }
            return Ok(());
        }
        let some = self.listening.as_ref().is_some_and(|l| !l.is_empty());
        let mut sql: Vec<String> = some.then(|| "UNLISTEN *".into()).into_iter().collect();
        let name = |c: &String| format!("LISTEN \"{}\"", c.replace('"', "\"\""));
        sql.extend(channels.iter().map(name));
        let told_of = channels.join(",");
        self.listening = Some(channels);
        if !sql.is_empty() {
            match db.execute(&sql.join("; ")).await {
                Err(fault) if fault.closed => return Err(fault),
                Err(fault) => *push = format!("off: {fault}"),
                Ok(()) => {}
            }
        }
        info!(state = push, channels = told_of, "push");
        Ok(())
    }

    /// What is known of a pooler on the way.
    fn pooler(&self, footing: Footing) -> Option<&'static str> {
        match (footing, &self.sent) {
            (Footing::Session, _) => None,
            (_, Some(Sent::Received)) => Some("session"),
            (_, Some(Sent::Lost | Sent::Shared)) => Some("transaction"),
            _ => Some("unknown"),
        }
    }

    /// Why nothing is listened to.
    fn deaf(&self, footing: Footing, snapshot: &Snapshot, limit: f64) -> Option<String> {
        if self.channels.is_empty() {
            return Some("polling".into());
        }
        if snapshot.server.in_recovery {
            return Some("off: a standby cannot listen".into());
        }
        // a listener that lags makes other people's commits fail
        let usage = snapshot.maintenance.notify_queue.unwrap_or(0.0);
        if usage > limit {
            let full = usage * 100.0;
            return Some(format!("off: the notification queue is {full:.0}% full"));
        }
        let pooled = footing == Footing::Transaction;
        Some(match &self.sent {
            Some(Sent::Received) => return None,
            Some(Sent::Lost) => "off: a notification to ourselves did not arrive".into(),
            Some(Sent::Shared) => "off: a pooler shares sessions between clients".into(),
            Some(Sent::Untried(why)) if pooled => {
                format!("off: whether notifications arrive could not be tried: {why}")
            }
            None if pooled => "off: not known yet whether notifications arrive".into(),
            // settings arrived: nothing suggests that notifications would not
            _ => return None,
        })
    }
}

/// A state of push without its figures.
fn state(push: &str) -> String {
    push.chars().filter(|c| !c.is_numeric()).collect()
}
