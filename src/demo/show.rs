//! `jobtop demo` without its screen: a private Postgres with fixture data, and everybody at work in it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::cluster::{Cluster, Options, Progress};
use super::crew::{Cast, Crew};
use super::houses;
use super::link::Link;
use super::roles::{self, Logins, login};
use super::scenario::Scenario;
use super::seed::{SeedOptions, SeedReport, seed};
use super::settings::MAX_CONNECTIONS;
use crate::connect::Target;
use crate::migrate::{self, NotifyChange};

/// The demo's database.
pub const DATABASE: &str = "demo";
/// The schema of its reference queue.
pub const SCHEMA: &str = "agent_queue";

/// What kind of demo is wanted.
pub struct DemoOptions {
    /// What happens.
    pub scenario: Scenario,
    /// What chance depends on.
    pub seed: u64,
    /// The directory of `initdb` and `postgres`; else they are looked for.
    pub bindir: Option<PathBuf>,
    /// Whether server binaries may be fetched when the machine has none.
    pub fetch: bool,
    /// The jobtop binary, which looks after the server.
    pub supervisor: PathBuf,
}

impl Default for DemoOptions {
    fn default() -> Self {
        let cluster = Options::default();
        Self {
            scenario: Scenario::default(),
            seed: 1,
            bindir: None,
            fetch: cluster.fetch,
            supervisor: cluster.supervisor,
        }
    }
}

/// How long the parts of a start took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// `initdb` and the server's start.
    pub cluster: Duration,
    /// Database, migration, roles and the other queues.
    pub prepare: Duration,
    /// Fixture data.
    pub seed: Duration,
}

/// A running demo. Dropping it ends the server at once.
pub struct Demo {
    /// Its private Postgres.
    pub cluster: Cluster,
    /// Its database, as the superuser.
    pub target: Target,
    /// What was seeded.
    pub seeded: SeedReport,
    /// How long the start took.
    pub times: Times,
    crew: Crew,
}

impl Demo {
    /// Starts everything; returns when the clients are on their way. `progress` hears what takes time.
    ///
    /// # Errors
    /// One sentence: no binaries, a server that does not start, or what Postgres said.
    pub async fn start(options: DemoOptions, progress: Progress) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let scenario = options.scenario;
        let chance = options.seed;
        let cluster = tokio::task::spawn_blocking(move || {
            let settings = [
                ("max_connections", MAX_CONNECTIONS.to_string()),
                // Dead rows go while one watches, not a minute later.
                ("autovacuum_naptime", "1s".to_owned()),
            ];
            Cluster::start(&Options {
                bindir: options.bindir,
                supervisor: options.supervisor,
                settings: settings
                    .map(|(name, value)| (name.to_owned(), value))
                    .to_vec(),
                progress: Some(progress),
                fetch: options.fetch,
            })
        })
        .await
        .context("the thread that starts Postgres died")??;
        let mut times = Times {
            cluster: begun.elapsed(),
            ..Times::default()
        };
        let begun = Instant::now();
        let admin = Target::new(cluster.config())?;
        Link::open(&admin, "jobtop demo")
            .await?
            .run(&format!("CREATE DATABASE {DATABASE}"))
            .await?;
        let mut target = admin;
        target.config.dbname(DATABASE);
        prepare(&target, chance).await?;
        times.prepare = begun.elapsed();
        let begun = Instant::now();
        let seeded = furnish(&target, chance).await?;
        times.seed = begun.elapsed();
        let crew = Crew::start(
            &Logins::roles(&target),
            SCHEMA,
            &Cast::demo(),
            scenario,
            chance,
            true,
        );
        Ok(Self {
            cluster,
            target,
            seeded,
            times,
            crew,
        })
    }

    /// The demo's database for one of its roles, such as [`roles::ONCALL`].
    pub fn target(&self, role: &str) -> Target {
        login(&self.target, role)
    }

    /// The directory that is gone when the demo is.
    pub fn root(&self) -> &std::path::Path {
        self.cluster.root()
    }

    /// The clients.
    pub fn crew(&self) -> &Crew {
        &self.crew
    }

    /// Ends the clients, then the server, and removes its directory.
    pub async fn stop(self) {
        self.crew.stop().await;
        let cluster = self.cluster;
        let _ = tokio::task::spawn_blocking(move || cluster.stop()).await;
    }
}

/// Everything but fixture data in the reference queue: the queue with its trigger, the other two, and the roles.
/// Needs a superuser.
pub async fn prepare(target: &Target, seed: u64) -> anyhow::Result<()> {
    let (mut client, connection) = target
        .config
        .connect(tokio_postgres::NoTls)
        .await
        .context("cannot connect to the demo's database")?;
    let driver = tokio::spawn(connection);
    migrate::apply(&mut client, SCHEMA, NotifyChange::Install).await?;
    drop(client);
    let _ = driver.await;
    let link = Link::open(target, "jobtop demo").await?;
    houses::create(&link, seed).await?;
    roles::create(&link, SCHEMA).await?;
    Ok(())
}

/// Fixture data for a queue whose workers are about to start.
pub async fn furnish(target: &Target, chance: u64) -> anyhow::Result<SeedReport> {
    let link = Link::open(target, "jobtop demo").await?;
    let options = SeedOptions {
        seed: chance,
        running: false,
        ..SeedOptions::default()
    };
    seed(&link, SCHEMA, &options).await
}
