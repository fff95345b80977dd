//! What an act has at hand: the world, the login roles, and sessions to make trouble with.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use super::acts::Act;
use super::agents::Shop;
use super::calls::quoted;
use super::catalog;
use super::dice::Dice;
use super::link::{Line, Link, seconds};
use super::office;
use super::roles::Logins;
use super::world::{Orders, World};
use crate::connect::{Cells, Fault, Target};

/// One database's stage.
pub struct Stage {
    /// The workers' shop.
    pub shop: Arc<Shop>,
    /// How each kind of client connects.
    pub logins: Logins,
    /// The queue's schema, quoted.
    pub s: String,
    /// How often all acts have been played: what rules take for usual should not be the trouble of the last round.
    pub round: usize,
    patience: f64,
    status: Line,
}

/// How long an act still lasts.
pub struct Clock(Instant);

impl Clock {
    /// Waits half a second; false when time is over.
    pub async fn tick(&self) -> bool {
        sleep(seconds(0.5)).await;
        Instant::now() < self.0
    }
}

impl Stage {
    /// A stage for the queue in `schema`.
    pub fn new(shop: Arc<Shop>, logins: Logins, schema: &str) -> Self {
        let status = Line::new(&logins.api, "api-status");
        Self {
            shop,
            logins,
            s: quoted(schema),
            round: 0,
            patience: 1.0,
            status,
        }
    }

    /// Plays one act, `patience` times as long as in an incident, and clears up after it.
    pub async fn play(&mut self, act: Act, patience: f64) {
        self.patience = patience;
        if let Err(fault) = act.play(self).await {
            self.world().fault(act.name(), &fault);
        }
        self.world().order(|orders| {
            *orders = Orders {
                stop: orders.stop,
                draining: orders.draining,
                ..Orders::default()
            };
        });
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.shop.world
    }

    /// Chance for an act.
    pub fn dice(&self, name: &str) -> Dice {
        Dice::branch(self.world().seed + self.round as u64, name)
    }

    /// Time for what lasts `s` seconds in an incident.
    pub fn clock(&self, s: f64) -> Clock {
        Clock(Instant::now() + seconds(s * self.patience))
    }

    /// Another session.
    pub async fn open(&self, target: &Target, application: &str) -> Result<Link, Fault> {
        Link::open(target, application).await
    }

    /// Brings a batch of `n` tasks of one kind in; its name.
    pub async fn bring(&self, kind: &str, tenant: &str, n: i64) -> Result<String, Fault> {
        self.bring_stubborn(kind, tenant, n, 5).await
    }

    /// The same, with so many tries for each.
    pub async fn bring_stubborn(
        &self,
        kind: &str,
        tenant: &str,
        n: i64,
        tries: i64,
    ) -> Result<String, Fault> {
        let line = Line::new(&self.logins.batch, "batch-orders");
        let mut dice = self.dice(kind);
        let batch = format!("orders-{tenant}-{:04x}", self.world().next_call() & 0xffff);
        office::bring(
            &self.shop,
            &line,
            catalog::kind(kind),
            &batch,
            (n, tries),
            &mut dice,
        )
        .await?;
        Ok(batch)
    }

    /// Asks for one number, as the application's status page would.
    pub async fn count(&self, sql: &str) -> Result<i64, Fault> {
        let rows = self.status.rows(sql, &[]).await?;
        Ok(match rows.first() {
            Some(row) => row.int("n")?.unwrap_or(0),
            None => 0,
        })
    }

    /// How many tasks of a batch are not over.
    pub async fn live(&self, batch: &str) -> Result<i64, Fault> {
        let sql = format!(
            "SELECT count(*)::int8 AS n FROM {}.tasks WHERE batch_id = $1 AND status IN ('enqueued', 'processing')",
            self.s
        );
        let rows = self.status.rows(&sql, &[(&batch, Type::TEXT)]).await?;
        rows.first().map_or(Ok(0), |r| Ok(r.int("n")?.unwrap_or(0)))
    }
}
