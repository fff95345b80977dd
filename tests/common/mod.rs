//! One private Postgres for each test binary, and a database of its own for each test.

#![allow(dead_code, reason = "no test binary uses everything")]

pub mod load;
pub mod place;
pub mod pty;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use jobtop::demo::cluster::{Cluster, Options};
use tokio_postgres::{Client, Config, NoTls};

/// The options of a cluster that this package's own binary looks after.
pub fn options() -> Options {
    Options {
        supervisor: PathBuf::from(env!("CARGO_BIN_EXE_jobtop")),
        progress: Some(Box::new(|_| {})),
        ..Options::default()
    }
}

/// The Postgres of this test binary: started on first use, gone when the process ends.
pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start(&options()).expect("a private Postgres"))
}

/// A new empty database, and how to reach it. May be called inside and outside of a runtime.
pub fn database(hint: &str) -> (String, Config) {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let name = format!("{hint}_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let sql = format!("CREATE DATABASE \"{name}\"");
    let admin = cluster().config();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            connect(&admin)
                .await
                .batch_execute(&sql)
                .await
                .expect("a new database")
        });
    };
    std::thread::spawn(work)
        .join()
        .expect("the thread that creates a database");
    let mut config = cluster().config();
    config.dbname(&name);
    (name, config)
}

/// Where a test of that name keeps a local journal.
pub fn journal_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.jsonl"))
}

/// The same, without what an earlier run left there.
pub fn journal(name: &str) -> PathBuf {
    let path = journal_file(name);
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{}: {e}", path.display()),
        _ => path,
    }
}

/// A connected client; its connection is driven by a task of its own.
pub async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.expect("a connection");
    tokio::spawn(async move {
        // The client hears of a lost connection by itself.
        let _ = connection.await;
    });
    client
}
