//! One private Postgres for each test binary, and a database of its own for each test.

#![allow(dead_code, reason = "no test binary uses everything")]

pub mod hogs;
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

/// A server of a test's own, which it may stop, fill or freeze.
pub fn own_cluster(settings: &[(&str, &str)]) -> Cluster {
    let settings = settings.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    let options = Options {
        settings: settings.collect(),
        ..options()
    };
    Cluster::start(&options).expect("a private Postgres")
}

/// A new database of that name on a server, and how to reach it. Not to be called inside of a runtime.
pub fn database_on(cluster: &Cluster, name: &str) -> Config {
    let mut config = cluster.config();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = connect(&config).await;
        let sql = format!("CREATE DATABASE {name}");
        client.batch_execute(&sql).await.expect("a database");
    });
    config.dbname(name);
    config
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

/// Where tests keep local journals: each server under test has a directory, since several are tested at a time.
pub fn state_home() -> PathBuf {
    let server = std::env::var("JOBTOP_PG_BINDIR").unwrap_or_default();
    let server = server.replace(std::path::MAIN_SEPARATOR, "_");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(server);
    std::fs::create_dir_all(&path).expect("a directory for journals");
    path
}

/// Where a test of that name keeps a local journal.
pub fn journal_file(name: &str) -> PathBuf {
    state_home().join(format!("{name}.jsonl"))
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

/// VACUUM ANALYZE after which every page is known to be visible to all, as in a database at rest. A row counts as
/// committed once the log is flushed behind the last commit of the 32 transactions around its own: those of ANALYZE
/// are among them, and unflushed ones would make index-only scans read the table.
pub async fn vacuum(client: &Client) {
    for sql in ["SET synchronous_commit = on", "VACUUM ANALYZE"] {
        client.batch_execute(sql).await.expect(sql);
    }
    let hidden = "SELECT coalesce(string_agg(c.relname, ', '), '')::text FROM pg_class c JOIN pg_stat_user_tables t ON t.relid = c.oid
                  WHERE c.relallvisible < c.relpages";
    let row = client.query_one(hidden, &[]).await.expect("pg_class");
    assert_eq!(row.get::<_, String>(0), "", "pages not known to be visible");
}
