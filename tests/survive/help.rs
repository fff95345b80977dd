//! What the tests of this binary share: clusters of their own, what a person checks first, and the table.

pub use crate::common::own_cluster;
use crate::common::{self, place::Place, pty::Pty};
use jobtop::demo::cluster::Cluster;
use std::path::PathBuf;
use std::sync::Once;
use std::time::{Duration, Instant};

/// By hand 100 ms; machines under test are slow and noisy.
const AT_ONCE: Duration = Duration::from_millis(500 * 5);

/// Nothing was lost: what the fourth column says most of the time.
pub const NOTHING: &str = "nothing: the last data stay";

/// The reference queue in its database `postgres`.
pub fn place_on(cluster: &Cluster) -> Place {
    Place::on(cluster, "postgres", cluster.config())
}

/// The file of a server's socket.
pub fn socket(cluster: &Cluster) -> PathBuf {
    cluster
        .socket_dir()
        .join(format!(".s.PGSQL.{}", cluster.port()))
}

/// The version of the server that tests share: 13, 14, …
pub fn major() -> u32 {
    let version = common::cluster().version();
    let major = version.split('.').next().expect("a version");
    major.parse().expect("a number")
}

/// The binary in a terminal, as large as a person on call likes it, once it has data.
pub fn watching(url: &str, args: &[&str]) -> Pty {
    let mut all = vec![url];
    all.extend(args);
    let pty = Pty::jobtop(&all, 160, 45);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    pty
}

/// Keys answer, now.
pub fn answers(pty: &mut Pty) {
    pty.keys("?");
    pty.wait_within(AT_ONCE, "help", |s| s.contains("LOOK CLOSER"));
    pty.keys("\x1b");
    pty.wait_within(AT_ONCE, "end of help", |s| !s.contains("LOOK CLOSER"));
}

/// The data are of now.
pub fn live(screen: &str) -> bool {
    screen.contains("LIVE") && !screen.contains("STALE") && !screen.contains("SLOW")
}

/// A line of the table: the fault, what the screen said, when it was live again, and what was lost by it.
pub fn row(fault: &str, said: &str, again: &str, lost: &str) {
    static HEAD: Once = Once::new();
    HEAD.call_once(|| {
        eprintln!("| fault | what the screen said | live again after | lost |");
        eprintln!("| --- | --- | --- | --- |");
    });
    let said = said.replace('|', "/");
    eprintln!("| {fault} | {said} | {again} | {lost} |");
}

/// Waits for live data, and prints a line of the table.
pub fn back(pty: &Pty, fault: &str, said: &str, since: Instant, lost: &str) {
    pty.wait("live data", |s| live(s) && s.contains("parser"));
    row(fault, said, &seconds(since), lost);
}

/// For the third column.
pub fn seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}

/// What the screen says in place of the verdict while the database is away.
pub fn lost(pty: &Pty) -> String {
    let screen = pty.wait("the loss", |s| {
        s.contains("STALE") && s.contains("NO DATABASE")
    });
    assert!(screen.contains("parser"), "the last data stay:\n{screen}");
    line_with(&screen, "NO DATABASE")
}

/// The line of the screen that has this text.
pub fn line_with(screen: &str, text: &str) -> String {
    let line = screen.lines().find(|l| l.contains(text));
    let line = line.unwrap_or_default().trim();
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
}

/// The most important thing that it says.
pub fn verdict(screen: &str) -> String {
    let line = screen.lines().nth(2).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
}

/// Escape, and a pause: what follows at once would be Alt and that key.
pub fn escape(pty: &mut Pty) {
    pty.keys("\x1b");
    std::thread::sleep(Duration::from_millis(200));
}

/// Asks for a requeue of the one task that a filter finds, and confirms it.
pub fn ask_requeue(pty: &mut Pty, filter: &str) {
    pty.keys(&format!("6/{filter}\r"));
    pty.wait_text(&format!("{filter}  1/"));
    pty.keys("R");
    pty.wait_text("Requeue 1 task?");
    pty.keys("y");
}

/// The same, and it is done: the line that says so.
pub fn requeue(pty: &mut Pty, filter: &str) -> String {
    ask_requeue(pty, filter);
    let screen = pty.wait_text("asked 1, 1 changed");
    escape(pty);
    line_with(&screen, "asked 1, 1 changed")
}

/// It ends by `q`.
pub fn quit(pty: &mut Pty) {
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0, "{}", pty.screen());
}

/// Waits for something that is not on the screen.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + common::pty::PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "no {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Memory that the program holds, in KiB.
pub fn resident_kib(pid: i32) -> u64 {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(path).expect("a status");
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1));
    kib.expect("a figure").parse().expect("a number")
}

/// The state of a process: `R`, `S`, `T`, …
pub fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let after = stat.rsplit(')').next().unwrap_or_default();
    after.trim_start().chars().next().expect("a state")
}

/// A configuration whose profile of `agent_jobs` sleeps so long for each running task.
pub fn slow_profile(cluster: &Cluster, seconds: f64) -> String {
    let directory = cluster.root().join(format!("sleeps-{seconds}"));
    std::fs::create_dir(&directory).expect("a directory");
    let good = include_str!("../../src/queue/builtin/agent_jobs.toml");
    let slow = good.replace(
        "where = \"j.status = 'running'\"",
        &format!("where = \"j.status = 'running' AND pg_sleep({seconds}) IS NOT NULL\""),
    );
    assert_ne!(good, slow);
    std::fs::write(directory.join("slow.toml"), slow).expect("written");
    let file = directory.join("config.conf");
    let config = format!(
        "profiles = [{:?}]\nmax_server_share = 1.0\n",
        directory.display().to_string()
    );
    std::fs::write(&file, config).expect("written");
    file.display().to_string()
}
