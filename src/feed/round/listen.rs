//! The hint that something has changed: `LISTEN` on the queues' channels. Polling goes on without it.

use super::Round;
use crate::connect::{Fault, Session};
use crate::log::told;
use tracing::info;

/// How the state of push begins while nothing is listened to for the sake of others.
const FULL: &str = "off: the notification queue";

impl Round {
    /// Listens to the queues' channels; stops when the notification queue fills, since a listener that lags
    /// makes other people's commits fail.
    pub(super) async fn listen(&mut self, db: &Session) -> Result<(), Fault> {
        let server = &mut self.snapshot.server;
        let usage = self.snapshot.maintenance.notify_queue.unwrap_or(0.0);
        if usage > self.config.thresholds.notify_unlisten {
            if self.listening.as_ref().is_some_and(|l| !l.is_empty()) {
                db.execute("UNLISTEN *").await?;
            }
            self.listening = None;
            if !server.push.starts_with(FULL) {
                info!(
                    percent = usage * 100.0,
                    "push is off: the notification queue fills"
                );
            }
            server.push = format!("{FULL} is {:.0}% full", usage * 100.0);
            return Ok(());
        }
        let channels = if server.in_recovery {
            Vec::new()
        } else {
            self.channels.clone()
        };
        if self.listening.as_ref() == Some(&channels) {
            return Ok(());
        }
        let mut sql = String::from("UNLISTEN *");
        for channel in &channels {
            sql.push_str(&format!("; LISTEN \"{}\"", channel.replace('"', "\"\"")));
        }
        if !server.in_recovery {
            match db.execute(&sql).await {
                Err(fault) if fault.closed => return Err(fault),
                Err(fault) => {
                    let (sqlstate, reason) = (fault.code.as_deref(), told(&fault));
                    info!(sqlstate, reason, "push is off: LISTEN failed");
                    server.push = format!("off: {fault}");
                    self.listening = Some(channels);
                    return Ok(());
                }
                Ok(()) => {}
            }
        }
        server.push = if channels.is_empty() {
            "polling"
        } else {
            "listen"
        }
        .into();
        info!(state = server.push, channels = channels.join(","), "push");
        self.listening = Some(channels);
        Ok(())
    }
}
