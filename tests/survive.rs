//! What a server, a network, or other people can do to the monitor while somebody watches: keys answer throughout, the
//! last data stay, the reason is on the screen, and it is live again by itself.

mod common;
#[path = "survive/crowd.rs"]
mod crowd;
#[path = "survive/line.rs"]
mod line;

use common::place::Place;
use common::pty::Pty;
use jobtop::demo::cluster::{Cluster, Options};
use line::Line;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// By hand 100 ms; machines under test are slow and noisy.
const AT_ONCE: Duration = Duration::from_millis(500 * 5);

fn own_cluster(settings: &[(&str, &str)]) -> Cluster {
    let settings = settings.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    let options = Options {
        settings: settings.collect(),
        ..common::options()
    };
    Cluster::start(&options).expect("a private Postgres")
}

fn place_on(cluster: &Cluster) -> Place {
    Place::on(cluster, "postgres", cluster.config())
}

fn socket(cluster: &Cluster) -> PathBuf {
    cluster
        .socket_dir()
        .join(format!(".s.PGSQL.{}", cluster.port()))
}

/// Keys answer, now.
fn answers(pty: &mut Pty) {
    pty.keys("?");
    pty.wait_within(AT_ONCE, "help", |s| s.contains("LOOK CLOSER"));
    pty.keys("\x1b");
    pty.wait_within(AT_ONCE, "end of help", |s| !s.contains("LOOK CLOSER"));
}

fn live(screen: &str) -> bool {
    screen.contains("LIVE") && !screen.contains("STALE") && !screen.contains("SLOW")
}

/// Waits for live data, and prints a line of the table: the fault, what was said, how long it took to come back.
fn back(pty: &Pty, fault: &str, said: &str, since: Instant) {
    pty.wait("live data", live);
    let seconds = since.elapsed().as_secs_f64();
    eprintln!("| {fault} | {said} | live again after {seconds:.1}s |");
}

/// What the screen says in place of the verdict while the database is away.
fn lost(pty: &Pty) -> String {
    let screen = pty.wait("the loss", |s| {
        s.contains("STALE") && s.contains("NO DATABASE")
    });
    assert!(screen.contains("parser"), "the last data stays:\n{screen}");
    let line = screen.lines().find(|l| l.contains("NO DATABASE"));
    line.unwrap_or_default().trim().to_string()
}

fn quit(pty: &mut Pty) {
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0, "{}", pty.screen());
}

/// Memory that the program holds, in MiB.
fn resident(pty: &Pty) -> u64 {
    let path = format!("/proc/{}/status", pty.pid());
    let status = std::fs::read_to_string(path).expect("a status");
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1));
    kib.expect("a figure").parse::<u64>().expect("a number") / 1024
}

/// Every slot that a role may have, until dropped.
struct Hogs {
    _held: Vec<tokio_postgres::Client>,
    _runtime: tokio::runtime::Runtime,
}

impl Hogs {
    fn of(cluster: &Cluster, role: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let mut config = cluster.config();
        config.user(role).application_name("hog");
        let held = runtime.block_on(async {
            let mut held = Vec::new();
            while let Ok((client, connection)) = config.connect(tokio_postgres::NoTls).await {
                tokio::spawn(connection);
                held.push(client);
            }
            held
        });
        Self {
            _held: held,
            _runtime: runtime,
        }
    }
}

#[test]
fn a_key_is_answered_without_waiting_for_the_next_refresh() {
    let place = Place::new("keys");
    let mut pty = place.watch(&[], 160, 45);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    let begun = Instant::now();
    for _ in 0..20 {
        answers(&mut pty);
    }
    let spent = begun.elapsed();
    eprintln!(
        "| 40 keys | help | {:.0} ms a key |",
        spent.as_secs_f64() * 25.0
    );
    // each would wait for half a second on average, until something else is drawn
    assert!(spent < Duration::from_secs(10), "{spent:?}");
    quit(&mut pty);
}

#[test]
fn a_restart_and_a_crash_are_outlived() {
    let cluster = own_cluster(&[]);
    let place = place_on(&cluster);
    let mut pty = place.watch(&[], 160, 45);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    cluster.down(false).expect("down");
    let said = lost(&pty);
    answers(&mut pty);
    pty.wait_text("next try in");
    cluster.up().expect("up");
    back(&pty, "fast restart", &said, Instant::now());
    // the server ends all sessions and recovers when one of its processes is killed
    let (client, runtime) = place.client();
    let pid = runtime.block_on(async {
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
        row.expect("a pid").get::<_, i32>(0)
    });
    let begun = Instant::now();
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
    let said = lost(&pty);
    back(&pty, "kill -9 of a backend", &said, begun);
    answers(&mut pty);
    quit(&mut pty);
    place.wait_no_session();
}

#[test]
fn another_server_may_answer_at_the_same_address() {
    let settings = [("wal_level", "replica"), ("hot_standby", "on")];
    let (first, second) = (own_cluster(&settings), own_cluster(&settings));
    let (place, other) = (place_on(&first), place_on(&second));
    let line = Line::to(socket(&first));
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", line.port);
    let mut pty = Pty::jobtop(&[&url, "--allow-writes"], 160, 45);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    place.sql("CHECKPOINT");
    // the first one dies, and nobody answers for a while: at most two attempts a second
    line.refuse(true);
    line.cut();
    let said = lost(&pty);
    let (begun, before) = (Instant::now(), line.attempts());
    for _ in 0..3 {
        answers(&mut pty);
        std::thread::sleep(Duration::from_millis(800));
    }
    let (tried, span) = (line.attempts() - before, begun.elapsed().as_secs_f64());
    assert!(
        tried > 0 && f64::from(tried) <= 2.0 * span + 1.0,
        "{tried} in {span}s"
    );
    line.switch(socket(&second));
    line.refuse(false);
    back(&pty, "failover to a new primary", &said, Instant::now());
    assert!(pty.screen().contains("primary"), "{}", pty.screen());
    other.value("SELECT 1");
    // and then as a standby that only reads
    second.down(false).expect("down");
    let said = lost(&pty);
    std::fs::write(second.root().join("data/standby.signal"), "").expect("a standby");
    second.up().expect("up");
    back(&pty, "failover to a standby", &said, Instant::now());
    pty.wait_text("standby");
    pty.keys("6R");
    pty.wait_text("standby");
    pty.wait("no writes", |s| {
        s.contains("READ-ONLY") && s.contains("requeue is off")
    });
    quit(&mut pty);
}

#[test]
fn a_network_that_swallows_everything_is_noticed_and_outlived() {
    let place = Place::new("blackhole");
    let line = Line::to(socket(common::cluster()));
    let database = place.value("SELECT current_database()");
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", line.port);
    let mut pty = Pty::jobtop(&[&url], 160, 45);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    line.swallow(true);
    pty.wait("old data", |s| s.contains("SLOW") || s.contains("STALE"));
    answers(&mut pty);
    let said = lost(&pty);
    answers(&mut pty);
    line.swallow(false);
    back(&pty, "black hole", &said, Instant::now());
    line.swallow(true);
    pty.wait("old data", |s| s.contains("SLOW"));
    let begun = Instant::now();
    quit(&mut pty);
    eprintln!(
        "| q in a black hole | ends | {:.1}s |",
        begun.elapsed().as_secs_f64()
    );
    line.swallow(false);
    place.wait_no_session();
}

#[test]
fn a_frozen_server_is_noticed_and_outlived() {
    let cluster = own_cluster(&[]);
    let place = place_on(&cluster);
    let mut pty = place.watch(&[], 160, 45);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    let postmaster = cluster.postmaster_pid().expect("a server") as i32;
    let own = place.value("SELECT pid FROM pg_stat_activity WHERE application_name = 'jobtop'");
    let frozen = [postmaster, own.parse().expect("a pid")];
    let all = |signal| frozen.map(|pid| kill(Pid::from_raw(pid), signal).expect("sent"));
    all(Signal::SIGSTOP);
    let said = lost(&pty);
    answers(&mut pty);
    all(Signal::SIGCONT);
    back(&pty, "SIGSTOP of the server", &said, Instant::now());
    quit(&mut pty);
}

#[test]
fn a_full_server_is_waited_for_at_start_and_afterwards() {
    let cluster = own_cluster(&[
        ("max_connections", "12"),
        ("superuser_reserved_connections", "3"),
    ]);
    let place = place_on(&cluster);
    place.sql("CREATE ROLE oncall LOGIN; GRANT agent_queue_monitor, pg_monitor TO oncall");
    let url = place.url.replace("user=postgres", "user=oncall");
    let hogs = Hogs::of(&cluster, "oncall");
    let mut pty = Pty::jobtop(&[&url], 160, 45);
    let screen = pty.wait_text("every connection slot but the reserved ones is taken (53300)");
    assert!(
        screen.contains("superuser_reserved_connections"),
        "{screen}"
    );
    // also those of the superusers
    let kings = Hogs::of(&cluster, cluster.superuser());
    let mut second = Pty::jobtop(&[&url], 160, 45);
    second.wait_text("every connection slot is taken, the reserved ones too (53300)");
    quit(&mut second);
    drop(kings);
    drop(hogs);
    let said = "every connection slot but the reserved ones is taken";
    back(&pty, "too many clients at start", said, Instant::now());
    // its session is ended, and somebody takes the slot before it is back
    let hogs = Hogs::of(&cluster, "oncall");
    pty.wait("who holds them", |s| {
        s.contains("9/9") || s.contains("9 of 9")
    });
    let (client, runtime) = place.client();
    assert_eq!(place.sessions(), "1", "it takes no more than one");
    runtime.block_on(async {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobtop'";
        client.execute(sql, &[]).await.expect("ended");
    });
    let last = Hogs::of(&cluster, "oncall");
    let screen = pty.wait_text("9 of max_connections 12 are for everyone, 3 reserved");
    let words: Vec<&str> = screen.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("last seen 9 used: hog 8, jobtop 1"),
        "{screen}"
    );
    let said = lost(&pty);
    answers(&mut pty);
    drop((hogs, last));
    back(&pty, "too many clients at reconnect", &said, Instant::now());
    quit(&mut pty);
}

#[test]
fn a_reserved_slot_is_taken_where_it_was_granted() {
    let version = common::cluster().version();
    let major = version
        .split('.')
        .next()
        .and_then(|m| m.parse::<u32>().ok());
    if major.is_none_or(|m| m < 16) {
        eprintln!("reserved_connections exists since Postgres 16, this is {version}");
        return;
    }
    let cluster = own_cluster(&[("max_connections", "12"), ("reserved_connections", "2")]);
    let place = place_on(&cluster);
    place.sql(
        "CREATE ROLE plain LOGIN; GRANT agent_queue_monitor, pg_monitor TO plain;
         CREATE ROLE oncall LOGIN; GRANT plain, pg_use_reserved_connections TO oncall",
    );
    let _hogs = Hogs::of(&cluster, "plain");
    let url = |role: &str| place.url.replace("user=postgres", &format!("user={role}"));
    let mut out = Pty::jobtop(&[&url("plain")], 160, 45);
    let screen = out.wait_text("every connection slot but the reserved ones is taken (53300)");
    assert!(screen.contains("pg_use_reserved_connections"), "{screen}");
    let mut pty = Pty::jobtop(&[&url("oncall")], 160, 45);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    quit(&mut pty);
    quit(&mut out);
}

#[test]
fn a_lost_right_and_a_changed_table_cost_their_panes_only() {
    let place = Place::new("changed");
    place.sql(common::load::HOUSES);
    let database = place.value("SELECT current_database()");
    place.sql(
        "CREATE ROLE changing LOGIN; GRANT agent_queue_monitor, pg_monitor TO changing;
         GRANT SELECT ON agent_jobs, workflow_jobs TO changing",
    );
    let url = place.url.replace("user=postgres", "user=changing");
    let mut pty = Pty::jobtop(&[&url], 160, 45);
    pty.wait("data", |s| {
        live(s) && s.contains("agent_jobs") && s.contains("parser")
    });
    // statements that the server keeps prepared must not outlive the columns they name
    std::thread::sleep(Duration::from_secs(3));
    place.sql("ALTER TABLE agent_jobs DROP COLUMN tenant, ADD COLUMN kind text DEFAULT 'new_kind', ADD COLUMN max_attempts int");
    place.sql("REVOKE SELECT ON workflow_jobs FROM changing");
    let begun = Instant::now();
    pty.wait_text("permission denied");
    answers(&mut pty);
    let screen = pty.wait("the others", |s| s.contains("LIVE") && s.contains("parser"));
    assert!(!screen.contains("STALE"), "{screen}");
    place.sql("GRANT SELECT ON workflow_jobs TO changing");
    pty.wait_no_text("permission denied");
    back(
        &pty,
        "right revoked, column dropped",
        "permission denied … (42501)",
        begun,
    );
    pty.keys("6/kind:new_kind\r");
    pty.wait_text("new_kind");
    // somebody who cancels its statements is no reason to give up
    pty.keys("\x1b");
    std::thread::sleep(Duration::from_millis(200));
    pty.keys("0");
    for _ in 0..20 {
        place.sql(&format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobtop' AND datname = '{database}' AND state = 'active'"
        ));
    }
    answers(&mut pty);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    quit(&mut pty);
    place.wait_no_session();
}

#[test]
fn a_probe_that_never_ends_says_so_and_the_others_go_on() {
    let place = Place::new("slow");
    place.sql(common::load::HOUSES);
    let directory = common::cluster().root().join("profiles");
    std::fs::create_dir(&directory).expect("a directory");
    let good = include_str!("../src/queue/builtin/agent_jobs.toml");
    let slow = good.replace(
        "where = \"j.status = 'running'\"",
        "where = \"j.status = 'running' AND pg_sleep(1) IS NOT NULL\"",
    );
    assert_ne!(good, slow);
    std::fs::write(directory.join("slow.toml"), slow).expect("written");
    let file = directory.join("config.conf");
    let config = format!("profiles = [{:?}]\n", directory.display().to_string());
    std::fs::write(&file, config).expect("written");
    let mut pty = place.watch(&["--config", &file.display().to_string()], 160, 45);
    pty.wait_text("statement timeout (57014)");
    answers(&mut pty);
    let screen = pty.wait("the others", |s| {
        s.contains("parser") && s.contains("workflow_jobs")
    });
    assert!(!screen.contains("STALE"), "{screen}");
    eprintln!("| statement timeout for ever | statement timeout (57014) | the others go on |");
    quit(&mut pty);
}

#[test]
fn a_full_queue_of_notifications_is_blamed_on_who_does_not_read() {
    let version = common::cluster().version();
    let major = version
        .split('.')
        .next()
        .and_then(|m| m.parse::<u32>().ok());
    if major.is_none_or(|m| m < 17) {
        eprintln!("before Postgres 17 the queue has 8 GB, this is {version}");
        return;
    }
    let cluster = own_cluster(&[("max_notify_queue_pages", "64")]);
    let place = place_on(&cluster);
    let mut pty = place.watch(&[], 160, 45);
    pty.wait("data", |s| live(s) && s.contains("parser"));
    let mut config = cluster.config();
    config.application_name("sleeper");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sleeper = runtime.block_on(common::connect(&config));
    for sql in ["LISTEN anything", "BEGIN; SELECT 1"] {
        runtime.block_on(async { sleeper.batch_execute(sql).await.expect(sql) });
    }
    let half = "SELECT pg_notification_queue_usage() > 0.5";
    let notify =
        "SELECT pg_notify('anything', repeat('x', 4000) || i) FROM generate_series(1, 20) i";
    for _ in 0..100 {
        if place.value(half) == "t" {
            break;
        }
        place.sql(notify);
    }
    assert_eq!(place.value(half), "t");
    let screen = pty.wait_text("jobtop listens no more");
    assert!(
        screen.contains("sleeper") && screen.contains("NOTIFY queue"),
        "{screen}"
    );
    answers(&mut pty);
    drop(sleeper);
    quit(&mut pty);
}

/// The slowest machines under test must draw ten thousand rows in this: nothing may take their square.
const MUCH: Duration = Duration::from_secs(5 * 5);

#[test]
#[ignore = "a minute and a half in a debug build"]
fn ten_thousand_sessions_neither_fill_it_nor_stop_it() {
    let place = Place::new("crowd");
    crowd::gather(&place);
    let file = common::cluster().root().join("share.toml");
    std::fs::write(&file, "max_server_share = 0.5\n").expect("written");
    let file = file.display().to_string();
    let mut pty = place.watch(&["--config", &file], 160, 45);
    let behind = (crowd::WAITING - 1).to_string();
    pty.wait("the crowd", |s| s.contains("parser") && s.contains(&behind));
    let mut sizes = Vec::new();
    for round in 0..2 {
        for (key, shown) in [
            ("1", "IO DataFileRead"),
            ("G", "Lock tuple"),
            ("2", "who blocks whom"),
            ("G", "IO DataFileRead"),
            ("0", "TASKS"),
        ] {
            pty.keys(key);
            pty.wait_within(MUCH, shown, |s| s.contains(shown));
        }
        pty.keys("1/9876\r");
        pty.wait_within(MUCH, "one of them", |s| s.contains("1/100"));
        pty.keys("\x1b");
        pty.wait_within(MUCH, "all of them", |s| !s.contains("1/100"));
        pty.keys("0");
        sizes.push(resident(&pty));
        assert!(!pty.screen().contains("panicked"), "round {round}");
    }
    eprintln!(
        "| {} sessions, {behind} behind one | none of it | {sizes:?} MiB resident |",
        crowd::SESSIONS
    );
    // a debug build's own code alone takes 24 MiB
    let most = if cfg!(debug_assertions) { 96 } else { 64 };
    assert!(sizes.iter().all(|mib| *mib <= most), "{sizes:?} MiB");
    assert!(sizes[1] <= sizes[0] + 4, "it grows: {sizes:?} MiB");
    quit(&mut pty);
}

/// What strangers may write.
const NASTY: &str = "evil\x1b]0;PWNED\x07\u{202e}\x1b[2J\u{200b}\u{9b}31m";

/// Kinds of tasks, each with a tenant of its own: a million by hand (JOBTOP_KINDS=1000000).
fn kinds() -> u32 {
    let asked = std::env::var("JOBTOP_KINDS").ok();
    asked.map_or(200_000, |n| n.parse().expect("a number"))
}

/// A table of jobs as nobody should have it: NULL everywhere, times without end and before Christ, invalid text, hundreds
/// of thousands of kinds, a payload of 100 MB, costs that are no number.
fn hostile(place: &Place) {
    let kinds = kinds();
    place.sql(&format!(
        "CREATE TABLE agent_jobs (id bigserial PRIMARY KEY, payload jsonb, status text, priority int, run_after timestamptz,
           leased_until timestamptz, started_at timestamptz, created_at timestamptz, attempt int, finished_at timestamptz,
           max_attempts int, tenant text, kind text, agent text, failure_reason text, result jsonb);
         INSERT INTO agent_jobs (status) SELECT unnest(ARRAY[NULL, '', 'queued', 'running', 'failed', 'succeeded', 'cancelled', 'what']);
         INSERT INTO agent_jobs (status, run_after, leased_until, started_at, created_at, finished_at, attempt, priority, kind)
         SELECT s, t, t, t, t, t, 2147483647, -2147483648, E'\\xff\\xfe'
           FROM unnest(ARRAY['queued', 'running', 'failed', 'succeeded']) s,
                unnest(ARRAY['infinity', '-infinity', '4713-01-01 00:00 BC', '294276-12-31 00:00']::timestamptz[]) t;
         INSERT INTO agent_jobs (status, kind, tenant, created_at, run_after)
         SELECT 'queued', 'k' || i, 't' || i, now() - interval '1 min', now() - interval '1 min' FROM generate_series(1, {kinds}) i;
         INSERT INTO agent_jobs (status, kind, created_at, started_at, leased_until, payload)
         SELECT 'running', 'huge', now(), now(), now() - interval '1 h', to_jsonb(repeat('x', 100 << 20));
         UPDATE agent_queue.tasks SET kind = E'\\xff', tenant = E'\\xfe';
         ALTER TABLE agent_queue.usage DROP CONSTRAINT usage_llm_cost_check, DROP CONSTRAINT usage_compute_cost_check;
         INSERT INTO agent_queue.usage (call_id, task_id, attempt, queue, model, input_tokens, output_tokens, llm_cost, compute_cost, reported_at)
         VALUES ('nan', 1, 1, 'parser', 'm', 9223372036854775807, 1, 'NaN', 'NaN', now());"
    ));
    place.sql(&format!(
        "INSERT INTO agent_jobs (status, kind, tenant, failure_reason, created_at, finished_at, started_at, attempt)
         SELECT s, '{NASTY}', '{NASTY}', '{NASTY}', now() - interval '2 min', now() - interval '1 min', now() - interval '2 min', 1
           FROM unnest(ARRAY['failed', 'running', 'queued']) s"
    ));
}

#[test]
fn hostile_data_neither_ends_it_nor_fill_it_nor_reach_the_terminal() {
    let name = format!("hostile_{}", std::process::id());
    let admin = Place::new("hostile_admin");
    admin.sql(&format!(
        "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII'"
    ));
    let mut config = common::cluster().config();
    config.dbname(&name);
    let place = Place::on(common::cluster(), &name, config.clone());
    hostile(&place);
    admin.sql(&format!("CREATE ROLE \"{NASTY}\" LOGIN SUPERUSER"));
    config.user(NASTY).application_name(NASTY);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stranger = runtime.block_on(common::connect(&config));
    runtime.block_on(async {
        let lock = "BEGIN; SELECT FROM agent_jobs WHERE kind = 'huge' FOR UPDATE";
        stranger.batch_execute(lock).await.expect("locked");
    });
    let file = common::cluster().root().join("budget.toml");
    let budgets = "[[budgets]]\nname = \"nobody\"\nlimit = 0\napplications = [\"*\"]\n";
    std::fs::write(&file, budgets).expect("written");
    let file = file.display().to_string();
    let mut pty = place.watch(&["--config", &file], 160, 45);
    pty.wait("data", |s| {
        live(s) && s.contains("agent_jobs") && s.contains("nobody")
    });
    for pane in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        pty.keys(pane);
        pty.keys("\r");
        std::thread::sleep(Duration::from_millis(400));
        pty.keys("\x1b");
        // what follows at once would be Alt and that key
        std::thread::sleep(Duration::from_millis(200));
        answers(&mut pty);
    }
    // the huge one in all its detail: never fetched whole
    pty.keys("6/kind:huge\r");
    pty.wait("the huge one", |s| s.contains("1/"));
    pty.keys("\r");
    pty.wait_text("105 MB");
    pty.keys("\x1b");
    std::thread::sleep(Duration::from_millis(200));
    pty.keys("0");
    let screen = pty.wait("data", |s| s.contains("CONNECTIONS"));
    assert!(!screen.contains("panicked"), "{screen}");
    let mib = resident(&pty);
    let kinds = kinds();
    eprintln!("| hostile data, {kinds} kinds, 100 MB | none of it | {mib} MiB resident |");
    assert!(mib <= 64, "{mib} MiB");
    quit(&mut pty);
    let bytes = pty.bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("\x1b]0;"), "a title was set");
    for bad in ['\u{202e}', '\u{200b}', '\u{9b}', '\u{7}'] {
        assert!(!text.contains(bad), "{bad:?} reached the terminal");
    }
    drop(stranger);
    admin.sql(&format!("DROP ROLE \"{NASTY}\""));
}
