//! What the program holds of its private Postgres: where it listens, and that it goes with us.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::locate::{Binaries, Search};
use super::server::{PORT, SUPERUSER};
use super::supervisor::ARGUMENT;
use super::{Error, fetch};

/// Hears, in short lines, what takes time.
pub type Progress = Box<dyn Fn(&str) + Send + Sync>;

/// What kind of private Postgres is wanted.
pub struct Options {
    /// The directory of `initdb` and `postgres`; else they are looked for.
    pub bindir: Option<PathBuf>,
    /// The jobtop binary, which is its own supervisor.
    pub supervisor: PathBuf,
    /// Server settings beyond the defaults, which they override.
    pub settings: Vec<(String, String)>,
    /// Who hears of progress; else standard error, and only of what takes long.
    pub progress: Option<Progress>,
    /// Whether server binaries may be fetched when the machine has none.
    pub fetch: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bindir: None,
            supervisor: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("jobtop")),
            settings: Vec::new(),
            progress: None,
            fetch: true,
        }
    }
}

/// A running private Postgres. Dropping it ends the server and removes its directory; so does any end
/// of this process.
#[derive(Debug)]
pub struct Cluster {
    child: Child,
    binaries: Binaries,
    root: PathBuf,
    pipes: Mutex<Pipes>,
}

#[derive(Debug)]
struct Pipes {
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    root: Option<PathBuf>,
    postmaster: Option<u32>,
}

impl Cluster {
    /// Finds (or fetches) the binaries, sets a cluster up and waits until it takes connections: the
    /// time of `initdb`, about a second, and little more. Blocks the thread.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let say = |text: &str| match &options.progress {
            Some(progress) => progress(text),
            None => crate::out::tell(text),
        };
        let search = Search::from_env(options.bindir.clone());
        let binaries = match search.run()? {
            Some(binaries) => binaries,
            None if options.fetch => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                fetch::fetch(search.cache.as_deref(), &path, &say)?
            }
            None => return Err(Error::NotFound(fetch::advice().to_owned())),
        };
        if options.progress.is_some() {
            say(&format!("starting a private Postgres {}", binaries.version));
        }
        Self::launch(options, binaries)
    }

    fn launch(options: &Options, binaries: Binaries) -> Result<Self, Error> {
        let refuse = |reason: String| Error::Supervisor {
            program: options.supervisor.clone(),
            reason,
        };
        let mut child = Command::new(&options.supervisor)
            .arg(ARGUMENT)
            .arg(&binaries.dir)
            .args(
                options
                    .settings
                    .iter()
                    .map(|(name, value)| format!("{name}={value}")),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| refuse(error.to_string()))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(refuse("its pipes are missing".to_owned()));
        };
        let mut pipes = Pipes {
            orders: Some(orders),
            answers: BufReader::new(answers),
            root: None,
            postmaster: None,
        };
        let started = pipes.wait_for("ready").and_then(|()| {
            pipes
                .root
                .take()
                .ok_or_else(|| refuse("it did not tell its directory".to_owned()))
        });
        match started {
            Ok(root) => Ok(Self {
                child,
                binaries,
                root,
                pipes: Mutex::new(pipes),
            }),
            Err(error) => {
                drop(pipes);
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// The private directory: `data`, `log`, the socket directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of the server's Unix socket, for `psql -h`.
    pub fn socket_dir(&self) -> PathBuf {
        self.root.join("s")
    }

    /// The port, which is only part of the socket's name.
    pub fn port(&self) -> u16 {
        PORT
    }

    /// The database superuser; no password is asked for.
    pub fn superuser(&self) -> &'static str {
        SUPERUSER
    }

    /// The server's version, such as `15.18`.
    pub fn version(&self) -> &str {
        &self.binaries.version
    }

    /// The binaries it runs.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// How to connect: the superuser, the database `postgres`.
    pub fn config(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config
            .host_path(self.socket_dir())
            .port(PORT)
            .user(SUPERUSER)
            .dbname("postgres");
        config
    }

    /// The process that looks after the server.
    pub fn supervisor_pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's main process, unless it is down.
    pub fn postmaster_pid(&self) -> Option<u32> {
        self.pipes().postmaster
    }

    /// Takes the server down, its data stay: at once, like a crash, or by closing all sessions.
    pub fn down(&self, immediate: bool) -> Result<(), Error> {
        let mut pipes = self.pipes();
        pipes.order(if immediate {
            "stop immediate"
        } else {
            "stop fast"
        })?;
        pipes.wait_for("stopped")?;
        pipes.postmaster = None;
        Ok(())
    }

    /// Starts the server again after [`Cluster::down`], or after it died; waits until it takes
    /// connections.
    pub fn up(&self) -> Result<(), Error> {
        let mut pipes = self.pipes();
        pipes.order("start")?;
        pipes.wait_for("ready")
    }

    /// [`Cluster::down`] and [`Cluster::up`].
    pub fn restart(&self, immediate: bool) -> Result<(), Error> {
        self.down(immediate)?;
        self.up()
    }

    /// Ends the server and removes its directory; returns when both are gone.
    pub fn stop(self) {}

    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.pipes().orders = None;
        let _ = self.child.wait();
    }
}

impl Pipes {
    fn order(&mut self, line: &str) -> Result<(), Error> {
        let lost = || Error::Server("its supervisor is gone".to_owned());
        let pipe = self.orders.as_mut().ok_or_else(lost)?;
        writeln!(pipe, "{line}")
            .and_then(|()| pipe.flush())
            .map_err(|_| lost())
    }

    /// Reads answers up to the awaited one.
    fn wait_for(&mut self, awaited: &str) -> Result<(), Error> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).unwrap_or(0);
            if read == 0 {
                return Err(Error::Server(
                    "its supervisor ended without a word".to_owned(),
                ));
            }
            let (what, text) = line
                .trim_end()
                .split_once(' ')
                .unwrap_or((line.trim_end(), ""));
            match what {
                "root" => self.root = Some(PathBuf::from(text)),
                "error" => return Err(Error::Server(text.to_owned())),
                "ready" => self.postmaster = text.parse().ok(),
                _ => {}
            }
            if what == awaited {
                return Ok(());
            }
        }
    }
}
