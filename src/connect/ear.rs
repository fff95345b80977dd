//! The task that polls a session's connection: it only keeps the last fault, and sets a flag on notifications.

use super::Fault;
use super::open::Line;
use crate::log::Talk;
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio_postgres::AsyncMessage;

/// How channels begin that only a test of the way to us uses.
pub const ECHO: &str = "jobtop_echo_";

/// What notifications wake: however many arrive, one waits.
#[derive(Clone, Default)]
pub(super) struct Ear {
    /// Those of the queues' channels.
    pub hint: Arc<Notify>,
    /// Those of channels that begin with [`ECHO`].
    pub echo: Arc<Notify>,
}

impl Ear {
    /// Polls a connection to its end, and tells `closed` why it ended.
    pub async fn hear(self, mut line: Line, talk: Arc<Talk>, closed: watch::Sender<Option<Fault>>) {
        let mut last: Option<Fault> = None;
        let mut messages = poll_fn(move |cx| line.poll_message(cx));
        while let Some(message) = messages.next().await {
            match message {
                Ok(AsyncMessage::Notification(n)) if n.channel().starts_with(ECHO) => {
                    self.echo.notify_one();
                }
                Ok(AsyncMessage::Notification(_)) => self.hint.notify_one(),
                // a shutdown or a crash elsewhere is announced as a notice, then the line is cut
                Ok(AsyncMessage::Notice(n)) if n.code().code().starts_with("57P") => {
                    last = Some(Fault {
                        code: Some(n.code().code().to_string()),
                        closed: true,
                        ..Fault::own(n.message())
                    });
                }
                Ok(_) => {}
                Err(error) => {
                    let fault = Fault {
                        closed: true,
                        ..Fault::from(error)
                    };
                    if fault.code.is_some() || last.is_none() {
                        last = Some(fault);
                    }
                    break;
                }
            }
        }
        if let Some(fault) = &last {
            talk.lost(fault);
        }
        let fault = last.unwrap_or_else(|| Fault {
            closed: true,
            ..Fault::own("the server closed the connection")
        });
        closed.send_replace(Some(fault));
    }
}
