//! One server on TCP with TLS, whose certificate can be changed; jobtop's way to it, and psql's.

use crate::certificates::Certificates;
use crate::common;
use jobtop::connect::session::Purpose;
use jobtop::connect::{Cells, Given, Session, Target};
use jobtop::demo::cluster::Cluster;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;
use tokio::sync::{Mutex, MutexGuard};

/// Who may log in, and how.
const HBA: &str = "
local     all all                       trust
hostssl   all certified    127.0.0.1/32 cert
hostssl   all only_tls     127.0.0.1/32 trust
hostnossl all only_plain   127.0.0.1/32 trust
host      all only_tls     127.0.0.1/32 reject
host      all only_plain   127.0.0.1/32 reject
host      all unwanted     127.0.0.1/32 reject
host      all scram        127.0.0.1/32 scram-sha-256
host      all clear        127.0.0.1/32 password
host      all all          127.0.0.1/32 trust
host      all all          ::1/128      trust
";

const ROLES: &str = "
SET password_encryption = 'scram-sha-256';
CREATE ROLE certified LOGIN; CREATE ROLE only_tls LOGIN; CREATE ROLE only_plain LOGIN; CREATE ROLE anybody LOGIN;
CREATE ROLE unwanted LOGIN;
CREATE ROLE scram LOGIN PASSWORD 's3cret:\\'; CREATE ROLE clear LOGIN PASSWORD 's3cret:\\';
CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on;
CREATE DATABASE app;";

/// The server of these tests.
pub struct Server {
    cluster: Cluster,
    /// On 127.0.0.1.
    pub port: u16,
    /// Its certificates.
    pub certificates: Certificates,
    /// A home directory without anything in it, and a place for files.
    pub home: PathBuf,
    turn: Mutex<String>,
}

/// The server, started on first use.
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let start = || {
            tokio::runtime::Runtime::new()
                .expect("a runtime")
                .block_on(start())
        };
        std::thread::spawn(start).join().expect("a server")
    })
}

async fn start() -> Server {
    let cluster = Cluster::start(&common::options()).expect("a private Postgres");
    let data = cluster.root().join("data");
    let certificates = Certificates::make(&data);
    std::fs::write(data.join("pg_hba.conf"), HBA).expect("written");
    let probe = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = probe.local_addr().expect("an address").port();
    drop(probe);
    let mut sockets = format!("'{}'", cluster.socket_dir().display());
    if abstract_sockets(&cluster) {
        sockets += &format!(", '@jobtop-{port}'");
    }
    let client = common::connect(&cluster.config()).await;
    for sql in ROLES.split(';').map(str::trim).filter(|s| !s.is_empty()) {
        client.batch_execute(sql).await.expect(sql);
    }
    for sql in [
        &format!("ALTER SYSTEM SET port = {port}"),
        // without IPv6 the second one is only a warning
        "ALTER SYSTEM SET listen_addresses = '127.0.0.1, ::1'",
        &format!("ALTER SYSTEM SET unix_socket_directories = {sockets}"),
        "ALTER SYSTEM SET ssl = on",
        "ALTER SYSTEM SET ssl_ca_file = 'ca.crt'",
        "ALTER SYSTEM SET ssl_cert_file = 'good.crt'",
        "ALTER SYSTEM SET ssl_key_file = 'good.key'",
    ] {
        client.batch_execute(sql).await.expect(sql);
    }
    drop(client);
    cluster.restart(false).expect("restarted");
    let home = cluster.root().join("home");
    std::fs::create_dir(&home).expect("a directory");
    Server {
        cluster,
        port,
        certificates,
        home,
        turn: Mutex::new("good".into()),
    }
}

fn abstract_sockets(cluster: &Cluster) -> bool {
    cfg!(target_os = "linux") && !cluster.version().starts_with("13.")
}

/// The binary with flags and an environment of its own, and without a terminal to ask on.
pub fn jobtop(server: &Server, args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new("setsid")
        .args(["-w", env!("CARGO_BIN_EXE_jobtop")])
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", &server.home)
        .envs(env.iter().copied())
        .output()
        .expect("ran")
}

/// What became of a try: what protects the connection, and the answer to a question; or why not.
pub type Outcome = Result<(String, String), String>;

impl Server {
    /// Its socket directory.
    pub fn socket(&self) -> String {
        self.cluster.socket_dir().display().to_string()
    }

    /// The name of its socket without a file, where it can have one.
    pub fn abstract_socket(&self) -> Option<String> {
        abstract_sockets(&self.cluster).then(|| format!("jobtop-{}", self.port))
    }

    /// The user that the server runs as.
    pub fn owner(&self) -> String {
        let about = std::fs::metadata(self.cluster.root().join("data")).expect("its data");
        let uid = std::os::unix::fs::MetadataExt::uid(&about);
        let user = nix::unistd::User::from_uid(uid.into()).expect("read");
        user.expect("a user").name
    }

    /// A directory for the files of one test.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.home.parent().expect("a root").join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    async fn admin(&self) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.cluster.socket_dir()).port(self.port);
        config.user(self.cluster.superuser()).dbname("postgres");
        common::connect(&config).await
    }

    /// Runs a statement as the superuser.
    pub async fn sql(&self, sql: &str) {
        self.admin().await.batch_execute(sql).await.expect(sql);
    }

    /// The first column of the first row of a statement of the superuser's, outside of a runtime.
    pub fn value(&self, sql: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let rows = runtime.block_on(async { self.admin().await.simple_query(sql).await });
        let rows = rows.expect(sql);
        let found = rows.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(String::from),
            _ => None,
        });
        found.unwrap_or_default()
    }

    /// From now on the server shows this certificate (`off`: has no TLS), until the guard is gone and the next one asks.
    pub async fn shows(&self, certificate: &str) -> MutexGuard<'_, String> {
        let mut turn = self.turn.lock().await;
        if *turn == certificate {
            return turn;
        }
        let mut settings = vec![format!(
            "ssl = {}",
            if certificate == "off" { "off" } else { "on" }
        )];
        if certificate != "off" {
            settings.push(format!("ssl_cert_file = '{certificate}.crt'"));
            settings.push(format!("ssl_key_file = '{certificate}.key'"));
        }
        self.reload(&settings).await;
        *turn = certificate.into();
        turn
    }

    /// From now on this is set; whoever calls it has the turn.
    pub async fn set(&self, setting: &str) {
        self.reload(&[setting.to_string()]).await;
    }

    async fn reload(&self, settings: &[String]) {
        let loaded = "SELECT pg_conf_load_time()::text";
        let admin = self.admin().await;
        let before: String = admin.query_one(loaded, &[]).await.expect("a time").get(0);
        for setting in settings {
            let sql = format!("ALTER SYSTEM SET {setting}");
            admin.batch_execute(&sql).await.expect(&sql);
        }
        admin
            .batch_execute("SELECT pg_reload_conf()")
            .await
            .expect("reloaded");
        // a new session inherits the time from the postmaster, which then has the new settings
        while self
            .admin()
            .await
            .query_one(loaded, &[])
            .await
            .expect("a time")
            .get::<_, String>(0)
            == before
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// jobtop's library with a connection string and an environment of its own.
    pub async fn ours(&self, given: &Given, env: &[(&str, &str)], question: &str) -> Outcome {
        let home = self.home.display().to_string();
        let env = |name: &str| {
            let found = env.iter().rev().find(|(n, _)| *n == name);
            let home = (name == "HOME").then_some(home.as_str());
            found.map(|(_, v)| *v).or(home).map(String::from)
        };
        let target = Target::read(given, &env).map_err(|e| format!("{e:#}"))?;
        let session = Session::open(&target, Purpose::Poll, "jobtop").await;
        let session = session.map_err(|fault| fault.to_string())?;
        let asked = format!("SELECT ({question})::text AS answer");
        let rows = session
            .query(&asked, &[])
            .await
            .map_err(|f| f.to_string())?;
        let answer = rows[0].word("answer").expect("a text");
        let protection = session.reached.protection.clone();
        session.close().await;
        Ok((protection, answer))
    }

    /// The same with a connection string only.
    pub async fn string(&self, string: &str, env: &[(&str, &str)], question: &str) -> Outcome {
        let given = Given {
            string: Some(string.into()),
            ..Given::default()
        };
        self.ours(&given, env, question).await
    }

    /// psql's answer to the question.
    pub fn psql(
        &self,
        args: &[&str],
        env: &[(&str, &str)],
        question: &str,
    ) -> Result<String, String> {
        let output = Command::new("psql")
            .args([
                "-X",
                "-w",
                "-A",
                "-t",
                "-c",
                &format!("SELECT ({question})::text"),
            ])
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .envs(env.iter().copied())
            .output()
            .expect("psql, which is the reference");
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes)
                .trim_end_matches('\n')
                .to_string()
        };
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }
}
