//! The private Postgres: it serves, and it leaves nothing behind however its program ends.

mod common;

use std::path::Path;

use jobtop::demo::cluster::{Cluster, Options};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

async fn ask(config: &Config, sql: &str) -> String {
    let client = common::connect(config).await;
    let rows = client.simple_query(sql).await.expect(sql);
    let row = rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).expect("a value").to_owned()),
        _ => None,
    });
    row.expect("a row")
}

#[tokio::test]
async fn a_database_of_ones_own_is_served_on_a_socket_only() {
    let (name, config) = common::database("serves");
    assert_eq!(ask(&config, "SELECT current_database()").await, name);
    assert_eq!(ask(&config, "SHOW listen_addresses").await, "");
    assert_eq!(ask(&config, "SHOW max_connections").await, "100");
    assert_eq!(ask(&config, "SHOW timezone").await, "UTC");
    let version = ask(&config, "SHOW server_version").await;
    assert!(
        version.starts_with(common::cluster().version()),
        "{version}"
    );
}

#[test]
fn two_clusters_live_side_by_side_and_one_outlives_the_other() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let first = Cluster::start(&common::options()).expect("the first");
    let settings = vec![("max_connections".to_owned(), "20".to_owned())];
    let second = Cluster::start(&Options {
        settings,
        ..common::options()
    })
    .expect("the second");
    assert_ne!(first.root(), second.root());
    assert_eq!(
        runtime.block_on(ask(&first.config(), "SHOW max_connections")),
        "100"
    );
    let root = first.root().to_owned();
    first.stop();
    assert!(!root.exists());
    assert_eq!(
        runtime.block_on(ask(&second.config(), "SHOW max_connections")),
        "20"
    );
}

#[test]
fn a_server_taken_down_comes_back_with_its_data() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cluster = Cluster::start(&common::options()).expect("a cluster");
    runtime.block_on(async {
        let client = common::connect(&cluster.config()).await;
        client
            .batch_execute("CREATE TABLE kept AS SELECT 7 AS x; CHECKPOINT")
            .await
            .expect("a table");
    });
    for immediate in [false, true] {
        let before = cluster.postmaster_pid();
        cluster.down(immediate).expect("down");
        assert_eq!(cluster.postmaster_pid(), None);
        assert!(runtime.block_on(cluster.config().connect(NoTls)).is_err());
        cluster.up().expect("up");
        assert_ne!(cluster.postmaster_pid(), before);
        assert_eq!(
            runtime.block_on(ask(&cluster.config(), "SELECT x::text FROM kept")),
            "7"
        );
    }
}

#[test]
fn what_cannot_work_is_said_in_one_sentence() {
    let failure = |change: fn(&mut Options)| {
        let mut options = common::options();
        change(&mut options);
        let text = Cluster::start(&options)
            .expect_err("no cluster")
            .to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    let text = failure(|options| options.bindir = Some("/nonexistent/bin".into()));
    assert!(
        text.contains("/nonexistent/bin") && text.contains("initdb and postgres"),
        "{text}"
    );
    let text = failure(|options| options.bindir = Some("/usr/bin/env/..".into()));
    assert!(text.contains("no such directory"), "{text}");
    let text =
        failure(|options| options.settings = vec![("max_conections".to_owned(), "9".to_owned())]);
    assert!(text.contains("max_conections"), "{text}");
    let text = failure(|options| options.supervisor = "/nonexistent/jobtop".into());
    assert!(text.contains("/nonexistent/jobtop"), "{text}");
}

/// Deaths, seen through `/proc`.
#[cfg(target_os = "linux")]
mod deaths {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    /// Half a second is promised.
    const DEADLINE: Duration = Duration::from_millis(2500);
    const SUPERVISOR: &str = "JOBTOP_TEST_SUPERVISOR";

    /// Not a test by itself: the program that the others kill.
    #[test]
    #[ignore = "run by the other tests as a process of its own"]
    fn the_program_that_dies() {
        let Some(supervisor) = std::env::var_os(SUPERVISOR) else {
            return;
        };
        let mut options = common::options();
        options.supervisor = supervisor.into();
        options.progress = Some(Box::new(|text| println!("\nprogress {text}")));
        let cluster = Cluster::start(&options).expect("a cluster");
        let postmaster = cluster.postmaster_pid().expect("a running server");
        println!(
            "\nup {} {postmaster} {}",
            cluster.supervisor_pid(),
            cluster.root().display()
        );
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .expect("the end of the test");
    }

    struct App {
        child: Child,
        lines: std::io::Lines<BufReader<ChildStdout>>,
    }

    struct Up {
        supervisor: i32,
        postmaster: i32,
        root: PathBuf,
    }

    impl App {
        fn start() -> Self {
            let program = std::env::current_exe().expect("this program");
            Self::run(
                &mut Command::new(program),
                Path::new(env!("CARGO_BIN_EXE_jobtop")),
            )
        }

        fn run(command: &mut Command, supervisor: &Path) -> Self {
            let mut child = command
                .args([
                    "--ignored",
                    "--exact",
                    "--nocapture",
                    "deaths::the_program_that_dies",
                ])
                .env(SUPERVISOR, supervisor)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the program");
            let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
            Self { child, lines }
        }

        fn line(&mut self, start: &str) -> String {
            let mut lines = self.lines.by_ref().map(|line| line.expect("a line"));
            let line = lines.find(|line| line.starts_with(start));
            line.unwrap_or_else(|| panic!("the program ended before it said {start}"))
        }

        fn up(&mut self) -> Up {
            let line = self.line("up ");
            let words: Vec<&str> = line.split(' ').collect();
            Up {
                supervisor: words[1].parse().expect("a process"),
                postmaster: words[2].parse().expect("a process"),
                root: words[3].into(),
            }
        }

        fn kill(&mut self, signal: Signal) {
            kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("a signal");
            self.child.wait().expect("its end");
        }
    }

    fn stat(pid: i32) -> Option<(char, i32)> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut rest = text.rsplit_once(')')?.1.split_whitespace();
        Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
    }

    fn children(parent: i32) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| stat(*pid).is_some_and(|(_, ppid)| ppid == parent))
            .collect()
    }

    fn family(root: i32) -> Vec<i32> {
        let mut all = vec![root];
        let mut next = 0;
        while next < all.len() {
            all.extend(children(all[next]));
            next += 1;
        }
        all
    }

    /// A zombie is dead: who buries it is not ours to say.
    fn alive(pids: &[i32]) -> Vec<i32> {
        let lives = |pid: &i32| stat(*pid).is_some_and(|(state, _)| !"ZX".contains(state));
        pids.iter().copied().filter(lives).collect()
    }

    fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(
                began.elapsed() < DEADLINE,
                "not within {DEADLINE:?}: {what}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        eprintln!("{what}: {:?}", began.elapsed());
    }

    fn config(root: &Path) -> Config {
        let mut config = Config::new();
        config
            .host_path(root.join("s"))
            .user("postgres")
            .dbname("postgres");
        config
    }

    #[test]
    fn a_killed_program_leaves_neither_process_nor_directory() {
        for signal in [Signal::SIGKILL, Signal::SIGTERM] {
            let mut app = App::start();
            let up = app.up();
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            let clients: Vec<_> = (0..8)
                .map(|_| {
                    let client = runtime.block_on(common::connect(&config(&up.root)));
                    runtime.spawn(async move { client.batch_execute("SELECT pg_sleep(60)").await })
                })
                .collect();
            eventually("eight busy sessions", || {
                family(up.supervisor).len() > 8 + 5
            });
            let pids = family(up.supervisor);
            app.kill(signal);
            eventually(
                &format!(
                    "{} processes and {} gone after {signal}",
                    pids.len(),
                    up.root.display()
                ),
                || alive(&pids).is_empty() && !up.root.exists(),
            );
            for client in clients {
                assert!(runtime.block_on(client).expect("no panic").is_err());
            }
        }
    }

    #[test]
    fn a_program_killed_during_initdb_leaves_nothing() {
        let mut app = App::start();
        app.line("progress starting");
        let app_pid = app.child.id().cast_signed();
        let mut data = None;
        eventually("initdb runs", || {
            let initdb = family(app_pid).into_iter().find_map(|pid| {
                let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
                let mut words = line.split('\0');
                words.next().filter(|name| name.ends_with("/initdb"))?;
                words
                    .find(|word| *word == "-D")
                    .and_then(|_| words.next())
                    .map(PathBuf::from)
            });
            data = initdb;
            // Far enough to have processes of its own.
            data.as_ref()
                .is_some_and(|data| data.join("global").exists())
        });
        let root = data
            .as_ref()
            .and_then(|data| data.parent())
            .expect("the directory")
            .to_owned();
        let pids: Vec<i32> = family(app_pid)
            .into_iter()
            .filter(|pid| *pid != app_pid)
            .collect();
        assert!(pids.len() >= 2, "a supervisor and initdb: {pids:?}");
        app.kill(Signal::SIGKILL);
        eventually("all gone after a kill during initdb", || {
            alive(&pids).is_empty() && !root.exists()
        });
    }

    #[test]
    fn a_killed_supervisor_takes_the_server_along_and_the_next_run_sweeps() {
        let not_ours = PathBuf::from(format!("/tmp/jobtop-test-{}", std::process::id()));
        std::fs::create_dir(&not_ours).expect("a directory");
        std::fs::write(not_ours.join("lock"), "something else").expect("a file");
        let mut app = App::start();
        let up = app.up();
        let pids = family(up.supervisor);
        kill(Pid::from_raw(up.supervisor), Signal::SIGKILL).expect("a signal");
        eventually("the server is gone without its supervisor", || {
            alive(&pids).is_empty()
        });
        let next = Cluster::start(&common::options()).expect("another cluster");
        eventually("the directory is swept", || !up.root.exists());
        assert!(next.root().exists() && not_ours.exists());
        std::fs::remove_dir_all(not_ours).expect("its removal");
        app.kill(Signal::SIGKILL);
    }

    #[test]
    fn a_killed_server_can_be_started_again() {
        let cluster = Cluster::start(&common::options()).expect("a cluster");
        let postmaster = cluster.postmaster_pid().expect("a server").cast_signed();
        let pids = family(postmaster);
        kill(Pid::from_raw(postmaster), Signal::SIGKILL).expect("a signal");
        eventually("the server's processes follow it", || {
            alive(&pids).is_empty()
        });
        cluster.up().expect("the server again");
        assert_ne!(cluster.postmaster_pid(), Some(postmaster.cast_unsigned()));
    }

    #[test]
    fn root_gives_the_server_away_and_lets_nobody_else_in() {
        let cluster = common::cluster();
        let mode = |path: &Path| {
            let meta = std::fs::metadata(path).expect("a file");
            (meta.uid(), meta.permissions().mode() & 0o777)
        };
        let postmaster = cluster.postmaster_pid().expect("a server");
        let server = std::fs::metadata(format!("/proc/{postmaster}"))
            .expect("its process")
            .uid();
        let us = nix::unistd::geteuid().as_raw();
        assert_ne!(server, 0);
        assert_eq!(mode(&cluster.socket_dir()), (server, 0o700));
        assert_eq!(mode(&cluster.root().join("data")), (server, 0o700));
        assert_eq!(
            mode(cluster.root()),
            (us, if us == 0 { 0o710 } else { 0o700 })
        );
    }

    #[test]
    fn an_ordinary_user_can_do_the_same() {
        let Some(nobody) = nix::unistd::User::from_name("nobody").expect("the user list") else {
            return;
        };
        if !nix::unistd::geteuid().is_root() {
            return; // Then all the other tests show it.
        }
        // The build directory may be closed to others.
        let place = PathBuf::from(format!("/tmp/jobtop-test-user-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a directory");
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        let copy = |from: &Path, name: &str| {
            let to = place.join(name);
            // By another process: none of our own children can hold the copy open for writing.
            let status = Command::new("cp").arg(from).arg(&to).status().expect("cp");
            assert!(status.success());
            to
        };
        let supervisor = copy(Path::new(env!("CARGO_BIN_EXE_jobtop")), "jobtop");
        let program = copy(&std::env::current_exe().expect("this program"), "program");
        let mut command = Command::new(program);
        command
            .uid(nobody.uid.as_raw())
            .gid(nobody.gid.as_raw())
            .current_dir("/");
        let mut app = App::run(&mut command, &supervisor);
        let up = app.up();
        let owner = std::fs::metadata(&up.root).expect("the directory");
        assert_eq!(
            (owner.uid(), owner.permissions().mode() & 0o777),
            (nobody.uid.as_raw(), 0o700)
        );
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        assert_eq!(
            runtime.block_on(ask(&config(&up.root), "SELECT 'in'")),
            "in"
        );
        let pids = family(up.supervisor);
        assert!(pids.contains(&up.postmaster));
        app.kill(Signal::SIGKILL);
        eventually("all gone", || alive(&pids).is_empty() && !up.root.exists());
        std::fs::remove_dir_all(place).expect("its removal");
    }
}
