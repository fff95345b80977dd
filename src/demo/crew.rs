//! Everybody who is connected to one database, from the start of the scenario to the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::agents::{self, Shop};
use super::calls::{Calls, quoted};
use super::catalog::{QUEUES, WORKERS};
use super::houses;
use super::link::{Link, seconds};
use super::office;
use super::roles::Logins;
use super::scenario::{self, Scenario};
use super::stage::Stage;
use super::world::{Deeds, World};
use crate::connect::{Cells, Fault, Target};
use crate::once::Refused;
use crate::sql::copyable;
use tokio_postgres::types::Type;

/// How many of whom.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Workers of the reference queue.
    pub agents: usize,
    /// Application servers that enqueue.
    pub enqueuers: usize,
    /// Importers of batches.
    pub importers: usize,
    /// Spare connections of the application's pool.
    pub pool: usize,
    /// People at psql.
    pub people: usize,
    /// Workers of each of the other two queues.
    pub house_workers: usize,
}

impl Cast {
    /// The demo's: 37 connections on a calm day.
    pub fn demo() -> Self {
        Self {
            agents: WORKERS.len(),
            enqueuers: 3,
            importers: 2,
            pool: 6,
            people: 2,
            house_workers: 3,
        }
    }

    /// Workers and those who enqueue: on somebody's own database.
    pub fn work(agents: usize) -> Self {
        Self {
            agents,
            enqueuers: 2,
            importers: 0,
            pool: 0,
            people: 0,
            house_workers: 0,
        }
    }
}

/// The simulated clients, at work.
pub struct Crew {
    world: Arc<World>,
    clients: JoinSet<()>,
}

impl Crew {
    /// Starts them. `progress`: the demo's own tables beside the queue are there.
    pub fn start(
        logins: &Logins,
        schema: &str,
        cast: &Cast,
        scenario: Scenario,
        seed: u64,
        progress: bool,
    ) -> Self {
        let world = World::new(seed, cast.agents);
        let (bills, mail) = unbounded_channel();
        let shop = Arc::new(Shop {
            world: world.clone(),
            calls: Calls::new(schema),
            target: logins.agents.clone(),
            bills,
            progress,
        });
        let mut clients = JoinSet::new();
        for at in 0..cast.agents {
            let queues = match WORKERS.get(at) {
                Some(queues) if cast.agents == WORKERS.len() => queues.to_vec(),
                _ => QUEUES.to_vec(),
            };
            clients.spawn(agents::place(shop.clone(), at, queues));
        }
        for part in 0..cast.enqueuers {
            let api = logins.api.clone();
            clients.spawn(office::enqueuer(shop.clone(), api, part, cast.enqueuers));
        }
        clients.spawn(office::webhook(shop.clone(), logins.api.clone(), mail));
        clients.spawn(office::reclaimer(shop.clone(), logins.agents.clone()));
        for n in 1..=cast.importers {
            clients.spawn(office::importer(shop.clone(), logins.batch.clone(), n));
        }
        let mut idle = |target: &Target, name: String, sql: String, every: f64| {
            clients.spawn(office::idler(
                shop.clone(),
                target.clone(),
                name,
                sql,
                every,
            ));
        };
        for n in 1..=cast.pool {
            idle(
                &logins.api,
                format!("api-pool-{n}"),
                "SELECT 1".to_owned(),
                30.0,
            );
        }
        for _ in 0..cast.people {
            let sql = format!(
                "SELECT count(*)::int8 FROM {}.tasks WHERE status = 'enqueued'",
                quoted(schema)
            );
            idle(&logins.people, "psql".to_owned(), sql, 45.0);
        }
        if cast.house_workers > 0 {
            houses::start(
                &mut clients,
                &world,
                &logins.agents,
                &logins.api,
                cast.house_workers,
            );
        }
        let stage = Stage::new(shop, logins.clone(), schema);
        clients.spawn(scenario::play(stage, scenario));
        Self { world, clients }
    }

    /// What they did so far.
    pub fn deeds(&self) -> Deeds {
        self.world.deeds()
    }

    /// The world they live in.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Lets workers finish what they hold, but take nothing new: nobody will come to reclaim it.
    pub async fn drain(&self, limit: Duration) {
        self.world.order(|orders| orders.draining = true);
        let all = async {
            // A claim may be under way.
            sleep(seconds(0.3)).await;
            while self.world.held() > 0 {
                sleep(seconds(0.1)).await;
            }
            // The last bills.
            sleep(seconds(0.7)).await;
        };
        let _ = timeout(limit, all).await;
    }

    /// Ends all of them; returns when none is left.
    pub async fn stop(mut self) -> Deeds {
        self.world.order(|orders| orders.stop = true);
        self.clients.abort_all();
        let all = async { while self.clients.join_next().await.is_some() {} };
        let _ = timeout(Duration::from_secs(3), all).await;
        self.world.deeds()
    }
}

/// How long workers may go on after they were told to end: nearly all tasks here take less.
const DRAIN: Duration = Duration::from_secs(12);

/// Runs the simulated agents on the reference queue of somebody's own database until `until` is ready, and a
/// few seconds longer: they finish what they hold.
///
/// # Errors
/// A server that cannot be reached, a schema without the reference queue, or a role that may not claim from it.
pub async fn work(
    target: &Target,
    schema: &str,
    agents: usize,
    seed: u64,
    until: impl Future<Output = ()>,
) -> anyhow::Result<Deeds> {
    let opened = Link::open(target, "jobtop work").await;
    let link = opened.map_err(|fault| Refused::new(&target.place(), fault))?;
    let may = may_claim(&link, schema).await;
    let missing = |fault: Fault| match fault {
        fault if fault.is("42501") => Ok(false),
        fault if fault.is("3F000") || fault.is("42883") => Err(anyhow::anyhow!(
            "there is no reference queue in schema {schema}: run jobtop migrate first"
        )),
        fault => Err(anyhow::anyhow!(
            "cannot look for the reference queue: {fault}"
        )),
    };
    if !may.or_else(missing)? {
        anyhow::bail!(
            "this role may not claim tasks: let the owner of schema {schema} run GRANT {} TO {}",
            copyable(&quoted(&format!("{schema}_worker"))),
            copyable(&quoted(target.config.get_user().unwrap_or("the role")))
        );
    }
    drop(link);
    let crew = Crew::start(
        &Logins::alike(target),
        schema,
        &Cast::work(agents),
        Scenario::Calm,
        seed,
        false,
    );
    until.await;
    crew.drain(DRAIN).await;
    Ok(crew.stop().await)
}

async fn may_claim(link: &Link, schema: &str) -> Result<bool, Fault> {
    let claim = format!(
        "{}.claim(text, text, integer, interval, text, text[])",
        quoted(schema)
    );
    let sql = "SELECT has_function_privilege($1, 'execute') AS may";
    let rows = link.rows(sql, &[(&claim, Type::TEXT)]).await?;
    rows.first()
        .map_or(Ok(false), |r| Ok(r.flag("may")?.unwrap_or(false)))
}
