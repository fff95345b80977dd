//! The Postgres under the figures: room for a thousand sessions, memory for a million tasks, a disk that is waited for,
//! and nobody at work in the background.

use crate::common::{self, load};
use jobtop::connect::Target;
use jobtop::demo::cluster::{Cluster, Options};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::{Client, Config};

/// The role that watches: what it is said to log is logged of nobody else.
pub const WATCH: &str = "figures_watch";

/// The server of all figures.
pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let settings = [
            ("max_connections", "1100"),
            ("shared_buffers", "1GB"),
            ("max_wal_size", "4GB"),
            ("autovacuum", "off"),
            ("fsync", "on"),
            ("wal_level", "minimal"),
        ];
        let settings = settings
            .map(|(n, v)| (n.to_string(), v.to_string()))
            .to_vec();
        Cluster::start(&Options {
            settings,
            ..common::options()
        })
        .expect("a private Postgres")
    })
}

/// A client of the database `postgres`.
pub async fn admin() -> Client {
    common::connect(&cluster().config()).await
}

/// A new database with these tables, vacuumed, and a client of it.
pub async fn database(hint: &str, sql: &str) -> (Config, Client) {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let name = format!("{hint}_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let admin = admin().await;
    let role = format!(
        "DO $$ BEGIN CREATE ROLE {WATCH} SUPERUSER LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    );
    admin.batch_execute(&role).await.expect("a role");
    admin
        .batch_execute(&format!("CREATE DATABASE {name}"))
        .await
        .expect("a database");
    let mut config = cluster().config();
    config.dbname(&name);
    let client = common::connect(&config).await;
    client.batch_execute(sql).await.expect("the data");
    settle(&client).await;
    (config, client)
}

/// What vacuum makes of a table at rest.
pub async fn settle(client: &Client) {
    client.batch_execute("CHECKPOINT").await.expect("flushed");
    common::vacuum(client).await;
}

/// The same for the role that watches.
pub fn watching(config: &Config) -> Target {
    let mut config = config.clone();
    config.user(WATCH);
    Target::new(config).expect("a target")
}

/// The same for the binary.
pub fn url(config: &Config) -> String {
    format!(
        "host={} user={WATCH} dbname={}",
        cluster().socket_dir().display(),
        config.get_dbname().expect("a name")
    )
}

/// The reference queue with so many finished tasks and 5,000 live ones.
pub fn queue(finished: u32) -> String {
    format!(
        "{}{}",
        load::agent_queue(),
        load::agent_queue_tasks(finished)
    )
}

/// Sessions that do nothing.
pub async fn idle(config: &Config, n: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for i in 0..n {
        let mut config = config.clone();
        config.application_name(format!("agent-{}", i % 40));
        clients.push(common::connect(&config).await);
    }
    clients
}

/// For tests that are not async themselves.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// The middle one.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
