//! The log of the conversation with the server: what stands in it at each level, over a restart, and what never does.

mod common;
#[path = "survive/line.rs"]
#[allow(dead_code, reason = "nothing is swallowed here")]
mod line;

use common::place::Place;
use common::pty::Pty;
use jobtop::demo::cluster::Cluster;
use line::Line;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A role whose name would forge a line and clear a screen.
const ROLE: &str = "evil\n2026-01-01T00:00:00.000Z INFO  forged \u{1b}[2J\u{202e}";
const PASSWORD: &str = "CANARY-password";

/// A server that asks for a password, and how jobtop gets there.
struct Here {
    place: Place,
    /// Without a password.
    url: String,
    directory: PathBuf,
}

fn start(cluster: &Cluster) -> Here {
    let place = Place::on(cluster, "postgres", cluster.config());
    place.sql(&format!(
        "SET password_encryption = 'scram-sha-256';
         CREATE ROLE scrammed; CREATE ROLE \"{ROLE}\" LOGIN PASSWORD '{PASSWORD}' IN ROLE scrammed;
         GRANT agent_queue_operator, pg_monitor TO \"{ROLE}\";
         SET search_path = agent_queue;
         SELECT enqueue('parser', 'parse', payload => '{{\"prompt\": \"CANARY-payload\"}}', max_attempts => 1) FROM generate_series(1, 3);
         SELECT fail(id, lease_token, 'CANARY-error') FROM claim('parser', 'w3', batch => 2);
         CREATE FUNCTION public.says() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'not %', NEW.payload USING ERRCODE = '23514'; END $$;"
    ));
    let rules = "local all +scrammed scram-sha-256\nlocal all all trust\n";
    std::fs::write(cluster.root().join("data/pg_hba.conf"), rules).expect("written");
    // a new session is made by a postmaster that has read them
    cluster.restart(false).expect("restarted");
    let socket = format!(".s.PGSQL.{}", cluster.port());
    let line = Line::to(cluster.socket_dir().join(socket));
    let directory = cluster.root().join("logs");
    std::fs::create_dir(&directory).expect("a directory");
    Here {
        place,
        url: format!(
            "host=127.0.0.1 port={} user='{ROLE}' dbname=postgres",
            line.port
        ),
        directory,
    }
}

impl Here {
    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Exit code, and what it prints.
    fn run(&self, args: &[&str], env: &[(&str, &Path)]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_jobtop"))
            .args(args)
            .env("PGPASSWORD", PASSWORD)
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("XDG_STATE_HOME", &self.directory)
            .envs(env.iter().copied())
            .output()
            .expect("ran");
        let text = [output.stdout, output.stderr].concat();
        let code = output.status.code().unwrap_or(-1);
        (code, String::from_utf8_lossy(&text).into_owned())
    }

    /// The log of a command at this level.
    fn log(&self, name: &str, level: &str, args: &[&str]) -> String {
        let file = self.file(name);
        let path = file.display().to_string();
        let log = ["--log", &path, "--log-level", level];
        self.run(&[args, &log].concat(), &[]);
        read(&file)
    }
}

/// A log, of which each line must be one event of ours, and none may hold what is private.
fn read(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("a log in UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    for line in text.lines() {
        let (time, rest) = line.split_at(24);
        let time = chrono::DateTime::parse_from_rfc3339(time).expect(line);
        let away = chrono::Utc::now().signed_duration_since(time);
        assert!(
            away.num_seconds() < 600 && line[..24].ends_with('Z'),
            "{line}"
        );
        let number = |p: &str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit());
        let (process, rest) = rest
            .strip_prefix(" [")
            .and_then(|r| r.split_once(']'))
            .expect(line);
        assert!(number(process), "{line}");
        let levels = [" ERROR ", " INFO  ", " DEBUG ", " TRACE "];
        assert!(levels.iter().any(|l| rest.starts_with(l)), "{line}");
        assert!(!line.contains("CANARY"), "{line}");
        assert!(
            !line.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{line}"
        );
    }
    text
}

/// The first line with all of these words, and that it comes after `from`.
fn find(log: &str, from: usize, words: &[&str]) -> usize {
    let mut at = 0;
    for line in log.split_inclusive('\n') {
        at += line.len();
        if at > from && words.iter().all(|w| line.contains(w)) {
            return at;
        }
    }
    panic!("{words:?} is not in\n{log}");
}

#[test]
fn a_log_tells_the_conversation_and_keeps_its_secrets() {
    let cluster = Cluster::start(&common::options()).expect("a private Postgres");
    let here = start(&cluster);
    levels(&here);
    two(&here);
    level(&here);
    secrets(&here);
    settings(&here);
    life(&here, &cluster);
    full(&here);
}

fn levels(here: &Here) {
    let url = here.url.as_str();
    let once = |level: &str| here.log(level, level, &[url, "--once"]);
    let count = |log: &str, level: &str| log.matches(&format!("Z {level} ")).count();
    let error = here.log("error", "error", &["tasks", url]);
    assert_eq!(error, "", "nothing failed");
    let info = once("info");
    let at = find(
        &info,
        0,
        &[
            "INFO  jobtop begins version=",
            "command=watch",
            "level=info",
        ],
    );
    let role = r#"role="evil\n2026-01-01T00:00:00.000Z INFO  forged \u{1b}[2J\u{202e}""#;
    let at = find(
        &info,
        at,
        &[
            "connecting host=127.0.0.1",
            role,
            "database=postgres application=jobtop sslmode=prefer",
        ],
    );
    let at = find(
        &info,
        at,
        &["logged in", r#"protection="NOT ENCRYPTED""#, "server="],
    );
    let at = find(
        &info,
        at,
        &[
            "settings read back session=poll pid=",
            r#"settings="on 3s 100ms 5s""#,
        ],
    );
    let at = find(&info, at, &["connected session=poll pid="]);
    let at = find(&info, at, &["writes allowed=false"]);
    let at = find(&info, at, &["queue found", "agent_queue", "probe=detect"]);
    let at = find(&info, at, &["push state=listen channels=agent_queue_tasks"]);
    let at = find(&info, at, &["connection closed session=poll"]);
    find(&info, at, &["jobtop ends code=0"]);
    assert_eq!(count(&info, "DEBUG") + count(&info, "ERROR"), 0, "{info}");
    let debug = once("debug");
    find(
        &debug,
        0,
        &[
            "DEBUG statement session=poll pid=",
            "sql=",
            "ms=",
            "server_us=",
            "rows=",
            "probe=queues",
        ],
    );
    find(
        &debug,
        0,
        &[
            "DEBUG refresh statements=",
            "ms=",
            "server_us=",
            "interval_s=",
        ],
    );
    assert_eq!(count(&debug, "TRACE"), 0);
    let trace = once("trace");
    find(
        &trace,
        0,
        &[
            "TRACE sends session=poll",
            "parameters=3 types=text,text,text",
        ],
    );
    let text = find(
        &trace,
        0,
        &[
            "TRACE statement text sql=",
            r#"text="SELECT pg_backend_pid()"#,
        ],
    );
    find(&trace, text, &["DEBUG statement", "what=SELECT"]);
    let ids = trace.split("statement text sql=").skip(1);
    let ids: Vec<&str> = ids.map(|rest| &rest[..8]).collect();
    let distinct: BTreeSet<&&str> = ids.iter().collect();
    assert!(
        distinct.len() > 10 && distinct.len() == ids.len(),
        "each text once: {ids:?}"
    );
    let mode = std::fs::metadata(here.file("info"))
        .expect("a file")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    // it is appended to, from any command
    let both = here.log("info", "info", &["grants", url]);
    assert!(both.starts_with(&info) && both.len() > info.len());
    find(&both, info.len(), &["jobtop begins", "command=grants"]);
}

/// Two at a time, one file: each line tells whose it is.
fn two(here: &Here) {
    let file = here.file("two");
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_jobtop"))
            .args([&here.url, "--once", "--log-level", "debug", "--log"])
            .arg(&file)
            .env("PGPASSWORD", PASSWORD)
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("ran")
    };
    let mut both = [start(), start()];
    let ended = both.each_mut().map(|child| child.wait().expect("ended"));
    assert!(ended.iter().all(|status| status.success()), "{ended:?}");
    let log = read(&file);
    let own = both.map(|child| format!(" [{}] ", child.id()));
    for mark in &own {
        let lines: Vec<&str> = log.lines().filter(|l| l[24..].starts_with(mark)).collect();
        let (first, last) = (lines.first(), lines.last());
        assert!(first.is_some_and(|l| l.contains("jobtop begins")), "{log}");
        assert!(
            last.is_some_and(|l| l.contains("jobtop ends code=0")),
            "{log}"
        );
    }
    let stray = log
        .lines()
        .find(|l| !own.iter().any(|mark| l[24..].starts_with(mark)));
    assert_eq!(stray, None);
}

/// A level without a log is a slip, but not where it is only a preference.
fn level(here: &Here) {
    let url = here.url.as_str();
    let said = "jobtop: --log-level says how much is logged, and there is no log: add --log FILE, or leave it out\n";
    for args in [
        &[url, "--once", "--log-level", "debug"][..],
        &["tasks", url, "--log-level=trace"],
        &["cancel", "1", "-d", url, "--log-level", "info"],
    ] {
        let (code, text) = here.run(args, &[]);
        assert_eq!((code, text.as_str()), (2, said), "{args:?}");
    }
    let preference = [("JOBTOP_LOG_LEVEL", Path::new("debug"))];
    let (code, text) = here.run(&["tasks", url], &preference);
    assert_eq!(code, 0, "{text}");
    let file = here.file("level");
    let log = [("JOBTOP_LOG", file.as_path())];
    let (code, text) = here.run(&["tasks", url, "--log-level", "debug"], &log);
    assert_eq!(code, 0, "{text}");
    assert!(read(&file).contains("level=debug"));
}

fn secrets(here: &Here) {
    let url = here.url.as_str();
    let tasks = here.log("tasks", "trace", &["tasks", url, "--queue", "CANARY-queue"]);
    find(&tasks, 0, &["TRACE sends", "types="]);
    let yes = ["--yes", "--reason", "CANARY-reason", "-d", url];
    let failed = here
        .place
        .value("SELECT string_agg(id::text, ' ') FROM agent_queue.tasks WHERE status = 'failed'");
    let mut ids: Vec<&str> = failed.split(' ').collect();
    assert_eq!(ids.len(), 3, "{failed}");
    let last = ids.pop().expect("an id");
    let act = here.log("act", "trace", &[&["requeue"][..], &ids, &yes].concat());
    let at = find(&act, 0, &["connected session=write pid="]);
    let at = find(
        &act,
        at,
        &["INFO  write begins verb=requeue tasks=2 action="],
    );
    let at = find(
        &act,
        at,
        &["statement session=write", "what=COMMIT", "action="],
    );
    let at = find(&act, at, &["write committed tasks=2 changed=2 action="]);
    let at = find(
        &act,
        at,
        &[
            "write ends action=",
            "asked=2 changed=2 skipped=0 unknown=0",
        ],
    );
    find(&act, at, &["connection closed session=write"]);
    // what a function of somebody's says is not repeated, whatever its code is
    here.place.sql("CREATE TRIGGER says BEFORE UPDATE ON agent_queue.tasks FOR EACH ROW EXECUTE FUNCTION public.says()");
    let act = here.log("raised", "trace", &[&["requeue", last][..], &yes].concat());
    here.place.sql("DROP TRIGGER says ON agent_queue.tasks");
    find(
        &act,
        0,
        &[
            "ERROR statement failed session=write",
            "sqlstate=23514",
            "a function of the database raised it",
        ],
    );
    find(
        &act,
        0,
        &["ERROR write rolled back sqlstate=23514", "action="],
    );
    let wrong = url.replace("user=", "password=CANARY-wrong user=");
    let options = format!("{url} options='-c jobtop.token=CANARY-token -cCANARY-option'");
    let command = "echo CANARY-out; echo CANARY-err >&2; exit 3";
    for (name, args, said) in [
        ("wrong", &["tasks", &wrong][..], "sqlstate=28P01"),
        (
            "options",
            &["tasks", &options],
            "sqlstate=42601 reason=\"the server refuses the options\"",
        ),
        (
            "command",
            &["tasks", url, "--password-command", command],
            "the password command failed with exit code 3",
        ),
    ] {
        let log = here.log(name, "trace", args);
        find(&log, 0, &["ERROR no connection host=127.0.0.1", said]);
        find(&log, 0, &["jobtop ends code=2"]);
    }
}

fn settings(here: &Here) {
    let [flag, variable, key] = ["flag", "variable", "key"].map(|n| here.file(n));
    let config = here.file("config.toml");
    std::fs::write(&config, format!("log = {key:?}\nlog_level = \"error\"\n")).expect("written");
    let given = flag.display().to_string();
    let missing = "host=/nonexistent user=u";
    let env = [
        ("JOBTOP_CONFIG", config.as_path()),
        ("JOBTOP_LOG", &variable),
        ("JOBTOP_LOG_LEVEL", Path::new("INFO")),
    ];
    here.run(
        &["tasks", missing, "--log", &given, "--log-level", "trace"],
        &env,
    );
    assert!(read(&flag).contains("level=trace") && !variable.exists() && !key.exists());
    here.run(&["tasks", missing], &env);
    assert!(read(&variable).contains("level=info") && !key.exists());
    here.run(&["tasks", missing], &env[..1]);
    let log = read(&key);
    assert!(
        log.lines().count() == 1 && log.contains("ERROR no connection host=/nonexistent"),
        "{log}"
    );
    let (_, printed) = here.run(&["config"], &env[..2]);
    assert!(
        printed.contains(&format!("log = {variable:?}\nlog_level = \"error\"\n")),
        "{printed}"
    );
    let none = here.file("none").join("log").display().to_string();
    let said = format!(
        "the log {none} cannot be written: No such file or directory (os error 2): name another file with --log"
    );
    let (code, text) = here.run(&["tasks", missing, "--log", &none], &[]);
    assert!(
        code == 2 && text.contains(&said) && text.lines().count() == 1,
        "{text}"
    );
    let mut pty = Pty::jobtop(&[missing, "--log", &none], 250, 24);
    assert_eq!(pty.exit_code(), 2);
    let bytes = String::from_utf8_lossy(&pty.bytes()).into_owned();
    assert!(
        bytes.contains(&said) && !bytes.contains('\u{1b}'),
        "{bytes}"
    );
}

fn watch(here: &Here, log: &str) -> Pty {
    let args = [
        env!("CARGO_BIN_EXE_jobtop"),
        &here.url,
        "--log",
        log,
        "--log-level",
        "debug",
    ];
    Pty::start(&args, 160, 45, &[("PGPASSWORD", PASSWORD)])
}

fn live(screen: &str) -> bool {
    screen.contains("LIVE") && !screen.contains("STALE") && screen.contains("parser")
}

/// A restart of the server and a right that was lost for a while.
fn life(here: &Here, cluster: &Cluster) {
    let file = here.file("life");
    let mut pty = watch(here, &file.display().to_string());
    pty.wait("data", live);
    cluster.down(false).expect("down");
    pty.wait_text("NO DATABASE");
    pty.wait("a try in vain", |s| {
        // it may be read while a line is being written
        let so_far = std::fs::read_to_string(&file).unwrap_or_default();
        s.contains("one a second") && so_far.matches("INFO  next try").count() >= 2
    });
    cluster.up().expect("up");
    pty.wait("data", live);
    here.place
        .sql("REVOKE SELECT ON agent_queue.tasks FROM agent_queue_monitor");
    pty.wait_text("permission denied");
    here.place
        .sql("GRANT SELECT ON agent_queue.tasks TO agent_queue_monitor");
    pty.wait_no_text("permission denied");
    // servers count refused logins, and lock accounts
    let other = format!("ALTER ROLE \"{ROLE}\" PASSWORD 'CANARY-other'");
    here.place.sql(&other);
    here.place.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobtop'",
    );
    pty.wait_text("tried ever less often");
    let refused = || {
        let log = std::fs::read_to_string(&file).unwrap_or_default();
        let tries = log
            .lines()
            .filter(|l| l.contains("next try sqlstate=28P01"));
        tries.map(String::from).collect::<Vec<_>>()
    };
    pty.wait("a second try", |_| refused().len() >= 2);
    here.place.sql(&other.replace("CANARY-other", PASSWORD));
    let pauses: Vec<f64> = refused()
        .iter()
        .map(|line| {
            let (_, pause) = line.split_once("retry_s=").expect(line);
            pause.trim().parse().expect("seconds")
        })
        .collect();
    assert!(pauses[0] >= 4.0 && pauses[1] >= 8.0, "{pauses:?}");
    pty.wait("data", live);
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    let log = read(&file);
    let at = find(&log, 0, &["connected session=poll"]);
    let at = find(
        &log,
        at,
        &[
            "ERROR connection lost session=poll pid=",
            "sqlstate=57P01",
            "administrator command",
        ],
    );
    let at = find(&log, at, &["INFO  next try", "sqlstate=57P01", "retry_s="]);
    let at = find(&log, at, &["connecting host=127.0.0.1"]);
    let at = find(&log, at, &["ERROR no connection host=127.0.0.1"]);
    let at = find(&log, at, &["INFO  next try", "retry_s="]);
    let at = find(&log, at, &["connected session=poll"]);
    let at = find(&log, at, &["push state=listen"]);
    let at = find(
        &log,
        at,
        &[
            "ERROR statement failed session=poll",
            "sqlstate=42501",
            "probe=",
        ],
    );
    let at = find(
        &log,
        at,
        &[
            "INFO  breaker open probe=",
            "sqlstate=42501",
            "failures=1 retry_s=",
        ],
    );
    let at = find(&log, at, &["INFO  breaker closed probe="]);
    let at = find(&log, at, &["connection closed session=poll"]);
    find(&log, at, &["jobtop ends code=0"]);
}

/// A disk without room: it is said, and nothing else happens.
fn full(here: &Here) {
    let said = "the log /dev/full cannot be written: No space left on device (os error 28)";
    let mut pty = watch(here, "/dev/full");
    pty.wait("what is wrong with the log", |s| {
        live(s) && s.contains(said)
    });
    // a key has read it, but not within the same half second; it is not said again
    std::thread::sleep(Duration::from_millis(600));
    pty.keys("\x1b");
    pty.wait_no_text(said);
    pty.keys("?");
    pty.wait_text("LOOK CLOSER");
    pty.keys("\x1b");
    pty.wait("data", |s| live(s) && !s.contains(said));
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    let (code, text) = here.run(&["tasks", &here.url, "--log", "/dev/full"], &[]);
    assert!(code == 0 && text.matches(said).count() == 1, "{text}");
}
