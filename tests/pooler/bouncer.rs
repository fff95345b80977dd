//! A real PgBouncer in front of a cluster; it ends with the test, however that ends.

use jobtop::demo::cluster::Cluster;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Runs it until nobody holds the pipe any more: a test that is killed leaves nothing behind.
const WHILE_READ: &str =
    r#"pgbouncer -q "$0" & bouncer=$!; read -r _; kill $bouncer; wait $bouncer"#;

/// Listens on a port of its own.
pub struct Bouncer {
    /// Its port on 127.0.0.1.
    pub port: u16,
    directory: PathBuf,
    owner: (u32, u32),
    process: Option<Child>,
}

/// `false`, aloud, where there is none: continuous integration installs it, and says so in `JOBTOP_TEST_PGBOUNCER`.
pub fn here() -> bool {
    let found = Command::new("pgbouncer").arg("--version").output().is_ok();
    assert!(
        found || std::env::var_os("JOBTOP_TEST_PGBOUNCER").is_none(),
        "pgbouncer is not on PATH"
    );
    if !found {
        eprintln!("NOT TESTED: pgbouncer is not on PATH (on Debian: apt-get install pgbouncer)");
    }
    found
}

impl Bouncer {
    /// `mode` is its pool_mode; it may have `sessions` of the server for each database.
    pub fn start(cluster: &Cluster, mode: &str, sessions: u32) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let postmaster = cluster.postmaster_pid().expect("a server");
        let owner = std::fs::metadata(format!("/proc/{postmaster}")).expect("a process");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = cluster.socket_dir().join(format!("bouncer{number}"));
        std::fs::create_dir(&directory).expect("a directory");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let place = directory.display();
        let config = format!(
            "[databases]\n* = host={} port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {place}/users\nadmin_users = postgres\nlogfile = {place}/log\n\
             pool_mode = {mode}\ndefault_pool_size = {sessions}\nserver_login_retry = 1\n",
            cluster.socket_dir().display(),
            cluster.port()
        );
        std::fs::write(directory.join("ini"), config).expect("written");
        std::fs::write(
            directory.join("users"),
            "\"postgres\" \"\"\n\"passer_by\" \"\"\n",
        )
        .expect("written");
        for path in [&directory, &directory.join("ini"), &directory.join("users")] {
            chown(path, Some(owner.uid()), Some(owner.gid())).expect("given away");
        }
        let mut bouncer = Self {
            port,
            directory,
            owner: (owner.uid(), owner.gid()),
            process: None,
        };
        bouncer.up();
        bouncer
    }

    /// Starts it.
    pub fn up(&mut self) {
        let mut command = Command::new("sh");
        command
            .args(["-c", WHILE_READ])
            .arg(self.directory.join("ini"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            command.uid(self.owner.0).gid(self.owner.1);
        }
        self.process = Some(command.spawn().expect("a shell"));
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it, and all its sessions.
    pub fn down(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait().expect("ended");
        }
    }

    /// How to reach a database through it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// What it has written.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.down();
    }
}
