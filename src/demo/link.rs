//! A simulated client's connection. Unlike the monitor's it waits as long as the server lets it, since clients
//! that queue behind a lock are what there is to see; and it can be cut off as if its process had been killed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::{Client, Row};
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;

use super::dice::Dice;
use crate::connect::open::Opened;
use crate::connect::{Fault, Param, Target};

/// One session. Dropping it cuts it off: the server notices when it next reads from it.
pub struct Link {
    client: Client,
    driver: JoinHandle<()>,
}

impl Link {
    /// Connects as `application`.
    pub async fn open(target: &Target, application: &str) -> Result<Self, Fault> {
        let Opened {
            client,
            line: connection,
            ..
        } = target
            .connect(application, "")
            // the log is about the monitor's connections
            .with_subscriber(Dispatch::none())
            .await?;
        let driver = tokio::spawn(async move {
            // Whoever asks next hears that the session has ended.
            let _ = connection.await;
        });
        Ok(Self { client, driver })
    }

    /// Runs one statement and returns its rows.
    pub async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        Ok(self.client.query_typed(sql, params).await?)
    }

    /// Runs statements that return nothing.
    pub async fn run(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// The session itself, for what needs more than statements.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Has the server, or somebody by hand, ended it?
    pub fn ended(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection that comes back: a lost server is retried for ever, ever more slowly.
pub struct Line {
    target: Target,
    application: String,
    link: Mutex<Option<Arc<Link>>>,
}

impl Line {
    /// Connects on first use.
    pub fn new(target: &Target, application: impl Into<String>) -> Self {
        Self {
            target: target.clone(),
            application: application.into(),
            link: Mutex::new(None),
        }
    }

    /// Its application_name.
    pub fn application(&self) -> &str {
        &self.application
    }

    /// The session, opened again where it has ended.
    pub async fn link(&self) -> Arc<Link> {
        let mut held = self.link.lock().await;
        if let Some(link) = held.as_ref().filter(|l| !l.ended()) {
            return link.clone();
        }
        *held = None;
        let mut dice = Dice::branch(u64::from(std::process::id()), &self.application);
        let mut pause = 0.2;
        loop {
            match Link::open(&self.target, &self.application).await {
                Ok(link) => {
                    let link = Arc::new(link);
                    *held = Some(link.clone());
                    return link;
                }
                // Pressing on a full server would only make it worse.
                Err(fault) if fault.no_slot() => sleep(seconds(dice.between(2.0, 5.0))).await,
                Err(_) => sleep(seconds(dice.between(0.5, 1.5) * pause)).await,
            }
            pause = (pause * 2.0f64).min(3.0);
        }
    }

    /// Runs one statement. After a fault that ended the session the next call opens another.
    pub async fn rows(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let link = self.link().await;
        let result = link.rows(sql, params).await;
        if let Err(fault) = &result
            && (fault.closed || fault.not_ready())
        {
            let mut held = self.link.lock().await;
            if held.as_ref().is_some_and(|l| Arc::ptr_eq(l, &link)) {
                *held = None;
            }
        }
        result
    }

    /// Runs a statement that may be repeated: a lost answer is asked for again.
    pub async fn insist(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let mut tries = 0;
        loop {
            match self.rows(sql, params).await {
                Err(fault) if (fault.closed || fault.not_ready()) && tries < 20 => tries += 1,
                result => return result,
            }
        }
    }
}

/// Seconds as a duration; what is no time at all is none.
pub fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s.max(0.0)).unwrap_or_default()
}
