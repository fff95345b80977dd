//! A connection that comes back after the server was away.

use std::time::Duration;

use jobtop::connect::Fault;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// Rows, each column as text and NULL as `-`.
pub type Rows = Vec<Vec<String>>;

/// One client, connected anew where its connection was lost.
pub struct Line {
    config: Config,
    client: Client,
}

/// A client, as soon as the server takes connections.
pub async fn client(config: &Config) -> Client {
    for _ in 0..600 {
        if let Ok((client, connection)) = config.connect(NoTls).await {
            // the client hears of a lost connection by itself
            tokio::spawn(connection);
            return client;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the server does not come back");
}

/// The session went, not the statement.
pub fn lost(fault: &Fault) -> bool {
    fault.closed || fault.not_ready()
}

impl Line {
    /// Unqualified names are the queue's.
    pub async fn open(config: &Config) -> Self {
        let mut config = config.clone();
        config.options("-c search_path=agent_queue,pg_temp");
        let client = client(&config).await;
        Self { config, client }
    }

    /// The answer to a call; `None` where it was lost with the connection. Any error of the server's is the test's end.
    pub async fn call(&mut self, sql: &str) -> Option<Rows> {
        match self.client.simple_query(sql).await {
            Ok(messages) => Some(messages.iter().filter_map(row).collect()),
            Err(error) => {
                let fault = Fault::from(error);
                assert!(lost(&fault), "{sql}: {fault}");
                self.client = client(&self.config).await;
                None
            }
        }
    }

    /// The first value of a call.
    pub async fn word(&mut self, sql: &str) -> Option<String> {
        let rows = self.call(sql).await?;
        Some(rows.first().map_or_else(String::new, |r| r.join("|")))
    }

    /// The rows of a call that may be repeated.
    pub async fn rows(&mut self, sql: &str) -> Rows {
        loop {
            if let Some(rows) = self.call(sql).await {
                return rows;
            }
        }
    }
}

fn row(message: &SimpleQueryMessage) -> Option<Vec<String>> {
    let SimpleQueryMessage::Row(row) = message else {
        return None;
    };
    let column = |i| row.get(i).unwrap_or("-").to_string();
    Some((0..row.len()).map(column).collect())
}
