//! Through a real PgBouncer: what it does not carry is noticed and said, all the rest works, and nothing of ours stays
//! in the sessions that others use next.

mod bouncer;
#[path = "../common/mod.rs"]
mod common;

use bouncer::Bouncer;
use common::place::Place;
use common::pty::Pty;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::SimpleQueryMessage;

/// What another client of the pooler finds in the session it is given.
const LEFT_BEHIND: &str = "SELECT concat_ws(' ', current_setting('default_transaction_read_only'), \
    current_setting('statement_timeout'), current_setting('lock_timeout'), \
    current_setting('idle_in_transaction_session_timeout'), current_setting('jit'), \
    current_setting('max_parallel_workers_per_gather'), current_setting('client_encoding'), \
    (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_prepared_statements))";

/// Another client of the same pool, which writes: it finds its session as if nobody else had ever had it.
struct Neighbour {
    stop: Arc<AtomicBool>,
    rounds: std::thread::JoinHandle<u32>,
}

impl Neighbour {
    fn of(url: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (url, stopped) = (url.to_string(), stop.clone());
        let work = async move || {
            let config: tokio_postgres::Config = url.parse().expect("a URL");
            let client = common::connect(&config).await;
            let create = "CREATE TABLE IF NOT EXISTS neighbour (n int)";
            client.batch_execute(create).await.expect("a table");
            let mut rounds = 0;
            while !stopped.load(Ordering::Relaxed) {
                client
                    .batch_execute("INSERT INTO neighbour VALUES (1)")
                    .await
                    .expect("the neighbour may write");
                let found = client.simple_query(LEFT_BEHIND).await.expect("settings");
                let found = found.iter().find_map(|message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(String::from),
                    _ => None,
                });
                assert_eq!(found.as_deref(), Some("off 0 0 0 on 2 UTF8 0 0"));
                rounds += 1;
                tokio::time::sleep(std::time::Duration::from_millis(7)).await;
            }
            rounds
        };
        let rounds = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(work())
        });
        Self { stop, rounds }
    }

    /// How often it looked.
    fn leave(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.rounds.join().expect("it found nothing of ours")
    }
}

fn database(place: &Place) -> String {
    place.value("SELECT current_database()")
}

fn live(screen: &str) -> bool {
    screen.contains("LIVE") && !screen.contains("STALE") && screen.contains("parser")
}

fn json(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

/// The page of `jobtop doctor`, in one line.
fn doctor(place: &Place, url: &str) -> String {
    let page = place.run(&["doctor", url]).1;
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn shared_sessions_are_polled_in_transactions_and_nothing_stays_behind() {
    if !bouncer::here() {
        return;
    }
    let (cluster, place) = Place::alone("shared");
    let mut bouncer = Bouncer::start(&cluster, "transaction", 2);
    let url = bouncer.url(&database(&place));
    let neighbour = Neighbour::of(&url);
    let mut pty = Pty::jobtop(&[&url, "--allow-writes"], 160, 45);
    pty.wait("data", live);
    pty.wait_text("LIVE 1s, no push");
    pty.keys("7");
    pty.wait_text("behind a pooler in transaction mode: no push");
    // the same guards, in one transaction
    pty.keys("6/state:failed\r");
    pty.wait_text("1/");
    pty.keys("R");
    pty.wait_text("Requeue 1 task?");
    pty.keys("y");
    pty.wait_text("asked 1, 1 changed");
    let state = "SELECT status FROM agent_queue.tasks WHERE id = 1";
    assert_eq!(place.value(state), "enqueued");
    let (code, out, err) = place.run(&["cancel", "1", "--yes", "-d", &url]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(place.value(state), "cancelled");
    let (code, out, err) = place.run(&["--once", "--json", &url]);
    assert_eq!((code, err.as_str()), (0, ""));
    let once = json(&out);
    assert_eq!(once["server"]["pooler"], "unknown");
    assert!(
        once["queues"].as_array().is_some_and(|q| !q.is_empty()),
        "{once}"
    );
    let page = doctor(&place, &url);
    for words in [
        "shares the server's sessions between clients",
        "would stay with the next one",
    ] {
        assert!(page.contains(words), "{words:?} in {page}");
    }
    assert!(
        page.contains(&format!(
            "the server itself listens on port {}",
            cluster.port()
        )),
        "{page}"
    );
    assert!(neighbour.leave() > 100);
    // nothing of ours waits in a transaction, however long the screen is looked at
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
    assert_eq!(place.value(idle), "0");

    // the server goes while the pooler stays: a connection proves nothing then
    cluster.down(false).expect("down");
    pty.wait("the loss", |s| {
        s.contains("STALE") && s.contains("NO DATABASE")
    });
    cluster.up().expect("up");
    pty.wait("data", live);
    // and the pooler itself
    bouncer.down();
    pty.wait("the loss", |s| {
        s.contains("STALE") && s.contains("NO DATABASE")
    });
    bouncer.up();
    pty.wait("data", live);
    let log = bouncer.log();
    assert!(!log.contains("FATAL"), "{log}");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn a_restart_behind_a_pooler_that_keeps_our_session_is_said() {
    if !bouncer::here() {
        return;
    }
    let (cluster, place) = Place::alone("restarted");
    let bouncer = Bouncer::start(&cluster, "transaction", 2);
    let url = bouncer.url(&database(&place));
    // nothing is asked while the server is away
    let mut pty = Pty::jobtop(&[&url, "--interval", "60"], 160, 45);
    pty.wait("data", live);
    place.sql("CHECKPOINT");
    cluster.restart(false).expect("restarted");
    pty.keys("r");
    pty.wait_text("the server was restarted");
    pty.keys("L");
    let screen = pty.wait_text("the server was restarted");
    assert!(!screen.contains("connection lost"), "{screen}");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn the_poolers_own_console_is_told_from_a_database() {
    if !bouncer::here() {
        return;
    }
    let place = Place::new("console");
    place.sql("CREATE ROLE passer_by LOGIN");
    let bouncer = Bouncer::start(common::cluster(), "transaction", 1);
    let url = bouncer.url("pgbouncer");
    let advice = "this is PgBouncer's own console, no database: give the name of one behind it";
    for url in [&url, &url.replace("postgres@", "passer_by@")] {
        let (code, out, err) = place.run(&["--once", url]);
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.contains(advice) && err.lines().count() == 1, "{err}");
    }
    let (code, _, err) = place.run(&["migrate", &url]);
    assert_eq!(code, 2);
    assert!(err.contains(advice), "{err}");
}

#[test]
fn a_session_of_our_own_is_pushed_through_a_pooler() {
    if !bouncer::here() {
        return;
    }
    let place = Place::new("kept");
    let bouncer = Bouncer::start(common::cluster(), "session", 3);
    let url = bouncer.url(&database(&place));
    let mut pty = Pty::jobtop(&[&url, "--interval", "60"], 160, 45);
    pty.wait("data", live);
    pty.keys("7");
    pty.wait_text("behind a pooler in session mode: a transaction");
    // far within the minute that the next poll is away
    place.sql("SELECT agent_queue.enqueue('pushed', 'parse', tenant => 'acme')");
    pty.keys("6");
    pty.wait_text("pushed");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    assert!(doctor(&place, &url).contains("keeps a session of the server for us"));
    // the pooler gives the session that was ours to the next client
    let neighbour = Neighbour::of(&url);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(neighbour.leave() > 0);
}

#[test]
fn a_pool_that_is_full_is_not_called_a_silent_server() {
    if !bouncer::here() {
        return;
    }
    let (cluster, place) = Place::alone("pool");
    let bouncer = Bouncer::start(&cluster, "transaction", 1);
    let url = bouncer.url(&database(&place));
    let pty = Pty::jobtop(&[&url], 160, 45);
    pty.wait("data", live);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let hog = runtime.block_on(async {
        let config: tokio_postgres::Config = url.parse().expect("a URL");
        let hog = common::connect(&config).await;
        hog.batch_execute("BEGIN").await.expect("the only session");
        hog
    });
    // two tries hang for eight seconds each
    let limit = std::time::Duration::from_secs(85);
    let shown = pty.wait_within(limit, "tries without a pace", |s| {
        s.contains("no answer through the pooler: its pool may be full") && s.contains("1 try")
    });
    assert!(!shown.contains("one a second"), "{shown}");
    runtime
        .block_on(hog.batch_execute("ROLLBACK"))
        .expect("given back");
    pty.wait_within(limit, "data", live);
}
