//! `jobtop demo` as a newcomer meets it: the real binary in a real terminal, on a server of its own, with workers that
//! race; and nothing of it is left, however it ends.

mod common;

use common::pty::Pty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_postgres::{Config, SimpleQueryMessage};

/// Five times what is promised: the first act within 20 s of the command, and all the rest before.
const PATIENCE: Duration = Duration::from_secs(100);

/// All processes below one.
fn family(root: i32) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')')
            .next()?
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let all: Vec<(i32, i32)> = std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(
            all.iter()
                .filter(|(_, p)| *p == parent)
                .map(|(pid, _)| *pid),
        );
        at += 1;
    }
    found.split_off(1)
}

fn command_line(pid: i32) -> Vec<String> {
    let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = text.split(|byte| *byte == 0);
    words
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect()
}

/// Still there, and not merely waiting for its parent to notice its end.
fn alive(pid: &i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| Some(!stat.rsplit(')').next()?.trim_start().starts_with('Z')))
        .unwrap_or(false)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What belongs to a running demo.
struct Belongings {
    root: PathBuf,
    processes: Vec<i32>,
}

impl Belongings {
    /// Those of the program with this pid.
    fn of(program: i32) -> Self {
        let processes = family(program);
        let words: Vec<Vec<String>> = processes.iter().map(|pid| command_line(*pid)).collect();
        let data = words.iter().find_map(|words| {
            let at = words.iter().position(|word| word == "-D")?;
            words.get(at + 1)
        });
        let root = data.and_then(|d| PathBuf::from(d).parent().map(PathBuf::from));
        Self {
            root: root.unwrap_or_else(|| panic!("no server below {program}: {words:?}")),
            processes,
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::new();
        config
            .host_path(self.root.join("s"))
            .port(5432)
            .user("demo_oncall")
            .dbname("demo");
        config
    }

    fn url(&self) -> String {
        let socket = self.root.join("s");
        format!(
            "host={} port=5432 user=demo_oncall dbname=demo",
            socket.display()
        )
    }

    /// The first column of the first row.
    fn value(&self, sql: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let client = common::connect(&self.config()).await;
            let messages = client.simple_query(sql).await.expect(sql);
            let first = messages.iter().find_map(|m| match m {
                SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_string()),
                _ => None,
            });
            first.unwrap_or_default()
        })
    }

    fn assert_gone(&self) {
        let left = || self.processes.iter().filter(|pid| alive(pid)).count();
        eventually("no process is left", || left() == 0);
        eventually("no directory is left", || !self.root.exists());
    }
}

/// The whole screen with a queue's figures in it.
fn full(screen: &str) -> bool {
    [
        "LIVE",
        "STAGES",
        "CONNECTIONS",
        "TASKS",
        "parser",
        "crawler",
        "agent_jobs",
    ]
    .iter()
    .all(|word| screen.contains(word))
}

fn demo(scenario: &[&str]) -> Pty {
    let mut args = vec!["demo"];
    args.extend(scenario);
    Pty::jobtop(&args, 160, 45)
}

#[test]
fn a_calm_demo_draws_and_leaves_nothing() {
    let begun = Instant::now();
    let mut pty = demo(&["--scenario", "calm"]);
    let program = pty.pid();
    let mut initdb = None;
    eventually("a full frame", || {
        let here = family(program).iter().any(|pid| {
            command_line(*pid)
                .first()
                .is_some_and(|c| c.ends_with("initdb"))
        });
        match (initdb, here) {
            (None, true) => initdb = Some((Instant::now(), Instant::now())),
            (Some((from, _)), true) => initdb = Some((from, Instant::now())),
            _ => {}
        }
        full(&pty.screen())
    });
    let (from, to) = initdb.expect("initdb was seen");
    eprintln!(
        "full frame after {:.1} s, of which initdb took {:.1} s",
        begun.elapsed().as_secs_f64(),
        (to - from).as_secs_f64()
    );
    let screen = pty.wait_text("WRITES ALLOWED");
    let ours = Belongings::of(program);
    let socket = ours.root.join("s");
    assert!(screen.contains(&socket.display().to_string()), "{screen}");
    // one is held; the one that sends a notification to ourselves is there for a moment
    let held = "SELECT string_agg(application_name, ' ') FROM pg_stat_activity WHERE application_name LIKE 'jobtop%'";
    let end = Instant::now() + Duration::from_secs(5);
    while ours.value(held) != "jobtop" {
        assert!(Instant::now() < end, "{}", ours.value(held));
        std::thread::sleep(Duration::from_millis(50));
    }
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    assert!(pty.cooked() && !pty.alternate());
    ours.assert_gone();
}

#[test]
fn kill_minus_9_leaves_nothing() {
    let mut pty = demo(&["--scenario", "calm"]);
    pty.wait_within(PATIENCE, "a full frame", full);
    let ours = Belongings::of(pty.pid());
    assert!(ours.processes.len() > 30, "{:?}", ours.processes);
    pty.signal(Signal::SIGKILL);
    pty.exit_code();
    ours.assert_gone();
}

#[test]
fn the_first_act_shows_soon() {
    let begun = Instant::now();
    let mut pty = demo(&[]);
    let act = |screen: &str| screen.contains("waits for its client inside a transaction");
    let screen = pty.wait_within(PATIENCE, "the first act", act);
    eprintln!("first act after {:.1} s", begun.elapsed().as_secs_f64());
    assert!(screen.contains("holds 3 tasks"), "{screen}");
    let ours = Belongings::of(pty.pid());
    // As the finding advises.
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE state = 'idle in transaction' AND application_name LIKE 'agent-%'";
    assert_eq!(ours.value(end), "1");
    pty.wait_within(PATIENCE, "the end of the first act", |screen| !act(screen));
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    ours.assert_gone();
}

#[test]
fn the_session_in_the_way_is_ended_from_the_screen() {
    let mut pty = demo(&["--scenario", "idle-in-transaction"]);
    let act = |screen: &str| screen.contains("waits for its client inside a transaction");
    pty.wait_within(PATIENCE, "the act", act);
    let ours = Belongings::of(pty.pid());
    // The finding's culprit.
    pty.keys("7");
    pty.wait_text("FINDINGS");
    pty.keys("g\x0b");
    let screen = pty.wait_text("terminate: rolls back");
    assert!(
        screen.contains("End session") && screen.contains("get the lock"),
        "{screen}"
    );
    assert!(
        screen.contains("cancel its statement is off: it is idle in transaction"),
        "{screen}"
    );
    let session = "SELECT pid FROM pg_stat_activity \
                   WHERE state = 'idle in transaction' AND application_name LIKE 'agent-%'";
    let pid = ours.value(session);
    pty.keys("t");
    pty.wait_text(&format!("type {pid}"));
    pty.keys(&format!("{pid} the first act\r"));
    pty.wait_text(": gone");
    pty.wait_within(PATIENCE, "the end of the act", |screen| {
        !screen.contains("CRITICAL") && !screen.contains("WARNING")
    });
    assert_eq!(ours.value(session), "");
    let log = "SELECT concat_ws(' ', action, ids[1], changed, reason) \
               FROM agent_queue.operator_actions WHERE action = 'terminate'";
    assert_eq!(ours.value(log), format!("terminate {pid} 1 the first act"));
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    ours.assert_gone();
}

/// Filters tasks, presses a key for the first, answers the question; the id that the journal has for it.
fn act(pty: &mut Pty, ours: &Belongings, filter: &str, key: &str, yes: [&str; 2]) -> String {
    let [question, answer] = yes;
    let last = "SELECT max(at) FROM agent_queue.operator_actions";
    let before = ours.value(last);
    pty.keys("6");
    pty.keys(&format!("/{filter}\r"));
    pty.wait_text(&format!("filter {filter}"));
    // What was seen may have changed before it is confirmed: workers race. Nothing is overwritten then, and said so.
    for _ in 0..20 {
        if pty.screen().contains("asked 1") {
            // A report with something skipped stays until a key is pressed.
            std::thread::sleep(Duration::from_millis(700));
            pty.keys("k");
            pty.wait_no_text("asked 1");
        }
        pty.keys(key);
        let end = Instant::now() + Duration::from_secs(5);
        while !pty.screen().contains(question) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !pty.screen().contains(question) {
            // The row had just gone.
            continue;
        }
        pty.keys(answer);
        pty.wait_text("asked 1");
        let done = format!(
            "SELECT ids[1] FROM agent_queue.operator_actions WHERE at > '{before}' AND changed = 1"
        );
        let id = ours.value(&done);
        if !id.is_empty() {
            // No filter for the next one.
            pty.keys("\x1b");
            pty.wait_no_text("filter ");
            return id;
        }
    }
    panic!(
        "no task with {filter} was changed in 20 tries:\n{}",
        pty.screen()
    );
}

#[test]
fn requeue_and_cancel_do_what_they_say_while_workers_race() {
    // Model calls are slow: whatever runs, runs long enough to be cancelled.
    let mut pty = demo(&["--scenario", "provider-slow"]);
    pty.wait_within(PATIENCE, "a slow provider", |screen| {
        screen.contains("look outside")
    });
    let ours = Belongings::of(pty.pid());

    let id = act(
        &mut pty,
        &ours,
        "state:failed fetch_page",
        "R",
        ["Requeue 1 task?", "y"],
    );
    let task = |what: &str| {
        ours.value(&format!(
            "SELECT {what} FROM agent_queue.tasks WHERE id = {id}"
        ))
    };
    assert_ne!(task("status"), "failed", "{id}");
    // A worker takes it like any other.
    eventually("a new attempt", || {
        !task(
            "(SELECT max(a.attempt) FROM agent_queue.task_attempts a WHERE a.task_id = tasks.id AND a.claimed_at > \
              (SELECT max(at) FROM agent_queue.operator_actions))",
        ).is_empty()
    });

    // Requested is not cancelled: its worker says so at its next heartbeat, unless the task ends before.
    let mut requests = 0;
    let cancelled = loop {
        requests += 1;
        let id = act(
            &mut pty,
            &ours,
            "state:running parse_contract",
            "X",
            ["Cancel 1 task?", "1\r"],
        );
        let task = |what: &str| {
            ours.value(&format!(
                "SELECT {what} FROM agent_queue.tasks WHERE id = {id}"
            ))
        };
        assert_ne!(task("cancel_requested_at"), "");
        eventually("the worker's answer", || task("status") != "processing");
        if task("status") == "cancelled" {
            break id;
        }
        assert!(requests < 8, "no worker hears");
    };
    assert_eq!(
        ours.value(&format!(
            "SELECT outcome FROM agent_queue.task_attempts WHERE task_id = {cancelled} ORDER BY attempt DESC LIMIT 1"
        )),
        "cancelled"
    );
    let log = "SELECT count(*) FROM agent_queue.operator_actions \
               WHERE db_user = 'demo_oncall' AND asked = 1 AND changed = 1";
    assert_eq!(ours.value(log), (1 + requests).to_string());
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    ours.assert_gone();
}

/// `jobtop demo --headless`, and what it prints.
struct Headless {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Headless {
    fn start(scenario: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_jobtop"))
            .args(["demo", "--headless", "--scenario", scenario])
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, out }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }
}

impl Drop for Headless {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn jobtop(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_jobtop"))
        .args(args)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .expect("ran");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_second_jobtop_can_watch_a_demo_without_a_screen() {
    let mut demo = Headless::start("idle-in-transaction");
    let mut line = String::new();
    demo.out.read_line(&mut line).expect("a line");
    let quoted: Vec<&str> = line.split('\'').collect();
    let &[says, url, flags] = quoted.as_slice() else {
        panic!("how to connect? {line:?}");
    };
    assert!(
        says.ends_with("jobtop ") && flags.trim() == "--allow-writes",
        "{line}"
    );
    let ours = Belongings::of(demo.pid());
    assert_eq!(url, ours.url());

    let (code, out, err) = jobtop(&[url, "--check"]);
    assert_eq!(code, 0, "calm before the act: {out}{err}");
    let (code, out, err) = jobtop(&[url, "--once", "--json"]);
    assert_eq!(code, 0, "{err}");
    let seen: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let names: Vec<&str> = seen["queues"]
        .as_array()
        .expect("queues")
        .iter()
        .filter_map(|q| q["queue"].as_str())
        .collect();
    for queue in ["parser", "crawler", "mail", "embed", "nightly"] {
        assert!(names.contains(&queue), "{queue} in {names:?}");
    }
    assert_eq!(seen["server"]["database"], "demo");
    assert_eq!(seen["connections"]["max"], 60);

    eventually("a critical finding", || jobtop(&[url, "--check"]).0 == 3);
    let (_, out, _) = jobtop(&[url, "--check"]);
    assert!(out.contains("inside a transaction"), "{out}");

    kill(Pid::from_raw(demo.pid()), Signal::SIGTERM).expect("a signal");
    let code = demo.child.wait().expect("its end").code();
    assert_eq!(code, Some(143));
    let mut rest = String::new();
    demo.out.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest, "");
    ours.assert_gone();
}
