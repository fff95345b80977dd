//! A database with the reference queue, for tests that run the binary against it.

use super::pty::Pty;
use jobtop::demo::cluster::Cluster;
use jobtop::migrate::{NotifyChange, apply};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio_postgres::{Config, SimpleQueryMessage};

/// A database with the reference queue and three tasks of `parser`: one failed, one running, one ready.
pub struct Place {
    /// How to reach it.
    pub url: String,
    config: Config,
    runtime: tokio::runtime::Runtime,
}

impl Place {
    /// A new database on the shared cluster.
    pub fn new(hint: &str) -> Self {
        let (name, config) = super::database(hint);
        Self::on(super::cluster(), &name, config)
    }

    /// A new database on a cluster of its own, which may be stopped or filled.
    pub fn alone(name: &str) -> (Cluster, Self) {
        let cluster = super::own_cluster(&[]);
        let config = super::database_on(&cluster, name);
        let place = Self::on(&cluster, name, config);
        (cluster, place)
    }

    /// A database that exists already on a cluster.
    pub fn on(cluster: &Cluster, name: &str, config: Config) -> Self {
        let url = format!(
            "host={} port={} user={} dbname={name}",
            cluster.socket_dir().display(),
            cluster.port(),
            cluster.superuser()
        );
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let place = Self {
            url,
            config,
            runtime,
        };
        place.runtime.block_on(async {
            let mut client = super::connect(&place.config).await;
            apply(&mut client, "agent_queue", NotifyChange::Install)
                .await
                .expect("migrated");
        });
        place.sql(
            "SET search_path = agent_queue;
             SELECT enqueue('parser', 'parse', tenant => 'acme', max_attempts => 1) FROM generate_series(1, 3);
             SELECT fail(id, lease_token, 'ValueError: bad page') FROM claim('parser', 'w1');
             SELECT started(id, lease_token) FROM claim('parser', 'w2', lease => '10 min');",
        );
        place
    }

    /// Runs statements.
    pub fn sql(&self, sql: &str) {
        self.runtime.block_on(async {
            let client = super::connect(&self.config).await;
            client.batch_execute(sql).await.expect(sql);
        });
    }

    /// The first column of the first row.
    pub fn value(&self, sql: &str) -> String {
        self.runtime.block_on(async {
            let client = super::connect(&self.config).await;
            let messages = client.simple_query(sql).await.expect(sql);
            let first = messages.iter().find_map(|m| match m {
                SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_string()),
                _ => None,
            });
            first.unwrap_or_default()
        })
    }

    /// A client that stays, for transactions that are left open.
    pub fn client(&self) -> (tokio_postgres::Client, &tokio::runtime::Runtime) {
        let client = self.runtime.block_on(super::connect(&self.config));
        (client, &self.runtime)
    }

    /// How many sessions jobtop has in this database.
    pub fn sessions(&self) -> String {
        self.value(
            "SELECT count(*) FROM pg_stat_activity \
              WHERE datname = current_database() AND application_name LIKE 'jobtop%'",
        )
    }

    /// Waits until jobtop has no session here.
    pub fn wait_no_session(&self) {
        self.wait_sessions("0");
    }

    /// Waits until jobtop has so many sessions here: a second one is there only for moments.
    pub fn wait_sessions(&self, wanted: &str) {
        let end = Instant::now() + Duration::from_secs(5);
        while self.sessions() != wanted {
            assert!(Instant::now() < end, "{} sessions", self.sessions());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The binary in a terminal, watching this database.
    pub fn watch(&self, args: &[&str], columns: u16, rows: u16) -> Pty {
        let mut all = vec![self.url.as_str()];
        all.extend(args);
        Pty::jobtop(&all, columns, rows)
    }

    /// The binary without a terminal: exit code, stdout, stderr.
    pub fn run(&self, args: &[&str]) -> (i32, String, String) {
        self.run_by(Command::new(env!("CARGO_BIN_EXE_jobtop")), args)
    }

    /// The same, started by a shell that leads its output as `redirected` says: `>&-`, `| head -1`. The exit code is jobtop's.
    pub fn run_to(&self, redirected: &str, args: &[&str]) -> (i32, String, String) {
        let mut shell = Command::new("bash");
        let script = format!("\"$0\" \"$@\" {redirected}; exit ${{PIPESTATUS[0]}}");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_jobtop")]);
        self.run_by(shell, args)
    }

    fn run_by(&self, mut command: Command, args: &[&str]) -> (i32, String, String) {
        let output = command
            .args(args)
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("XDG_STATE_HOME", super::state_home())
            .output()
            .expect("ran");
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }
}
