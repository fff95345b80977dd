//! Everybody at once, on a server that crashes once: workers, some of which die or come back too late; a reclaimer;
//! operators who act the product's own way, over a line that loses answers to commits. Afterwards the tables, the
//! journals and what everybody was told must tell one story.

mod check;
mod line;
mod operator;
mod worker;

use super::common;
use super::proxy::{Next, Proxy};
use jobtop::demo::cluster::{Cluster, Options};
use jobtop::migrate::{NotifyChange, apply};
use line::Line;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::Config;

/// How long a claim lasts: short, so that many are overrun.
const LEASE: &str = "300 ms";

/// How often each thing happened: calls by answer, ids by outcome.
#[derive(Clone, Debug, Default)]
struct Counts {
    by: BTreeMap<String, u64>,
    /// Of all who take part.
    total: Arc<AtomicU64>,
    seen: Arc<Mutex<BTreeSet<String>>>,
}

impl Counts {
    fn add(&mut self, what: &str) {
        *self.by.entry(what.into()).or_default() += 1;
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.seen.lock().expect("nobody panicked");
        if !seen.contains(what) {
            seen.insert(what.into());
        }
    }

    /// All that must have happened for the race to be one has.
    fn full(&self) -> bool {
        let seen = self.seen.lock().expect("nobody panicked");
        TOOK_PLACE.iter().all(|what| seen.contains(*what))
    }
}

/// What all who take part share.
#[derive(Clone)]
struct Race {
    name: &'static str,
    config: Config,
    /// The line that loses answers.
    through: Config,
    /// Tasks that may run at once.
    limit: u64,
    stop: Arc<AtomicBool>,
    counts: Counts,
}

impl Race {
    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Every change of a task, in the transaction that makes it.
const LOG: &str = "SET search_path = agent_queue, pg_temp;
     CREATE TABLE log (n bigint GENERATED ALWAYS AS IDENTITY, xid xid, by text, id bigint, was text, is_now text, old_token bigint, new_token bigint,
                       old_attempt int, new_attempt int, lease timestamptz, at timestamptz);
     CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         INSERT INTO agent_queue.log (xid, by, id, was, is_now, old_token, new_token, old_attempt, new_attempt, lease, at)
         VALUES (pg_current_xact_id()::xid, current_setting('application_name'), NEW.id, OLD.status, NEW.status, OLD.lease_token, NEW.lease_token,
                 OLD.attempt, NEW.attempt, OLD.lease_expires_at, clock_timestamp());
         RETURN NULL; END $$;
     CREATE TRIGGER log AFTER UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION log();
     CREATE OR REPLACE FUNCTION backoff(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '10 ms' $$;";

/// Enqueues whenever little is left, each batch under keys of its own so that it may be sent twice. Returns all ids.
async fn produce(race: Race) -> Vec<i64> {
    let mut line = Line::open(&race.config).await;
    let mut counts = race.counts.clone();
    let mut ids = Vec::new();
    let mut batch = 0;
    while !race.over() {
        let left = "SELECT count(*) FROM tasks WHERE status = 'enqueued'";
        if line.rows(left).await[0][0].parse::<i64>().expect("a count") < 300 {
            batch += 1;
            let sql = format!(
                "SELECT enqueue('q', 'k' || n % 3, priority => n % 3, max_attempts => 3, idempotency_key => '{batch}-' || n)
                   FROM generate_series(1, 100) n"
            );
            let new = line.rows(&sql).await;
            for row in new {
                counts.add("enqueue");
                ids.push(row[0].parse().expect("an id"));
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ids
}

/// Takes tasks away from the lost, though not all at once: operators shall find some. Looks whether the limit is kept.
async fn reclaim(race: Race) -> Counts {
    let mut line = Line::open(&race.config).await;
    let mut counts = race.counts.clone();
    while !race.over() {
        let got = line.call("SELECT outcome FROM reclaim(20)").await;
        counts.add("reclaim");
        for row in got.unwrap_or_default() {
            counts.add(&format!("reclaim: {}", row[0]));
        }
        let running = "SELECT count(*) FROM tasks WHERE status = 'processing'";
        let running = line.rows(running).await;
        let running: u64 = running[0][0].parse().expect("a count");
        assert!(running <= race.limit, "{running} run at once");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    counts
}

/// Crashes the server while an answer to a commit is on its way.
async fn crash(cluster: &Arc<Cluster>, proxy: &Proxy) {
    proxy.next(Next::AnswerLost);
    while !proxy.done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let cluster = cluster.clone();
    let restart = tokio::task::spawn_blocking(move || cluster.restart(true));
    restart.await.expect("a thread").expect("a restart");
}

/// How long a race may go on until everything has taken place.
const PATIENCE: Duration = Duration::from_secs(90);

/// So many workers, for so long and until so many things have happened; returns how often each did.
async fn race(name: &'static str, workers: u64, lasts: Duration, least: u64) -> Counts {
    let cluster = Arc::new(
        Cluster::start(&Options {
            // what was told to be committed stays, also when the server crashes
            settings: vec![("synchronous_commit".into(), "on".into())],
            ..common::options()
        })
        .expect("a private Postgres"),
    );
    let mut config = cluster.config();
    let mut admin = common::connect(&config).await;
    apply(&mut admin, "agent_queue", NotifyChange::Install)
        .await
        .expect("migrated");
    let limit = workers * 2;
    let sql = format!("{LOG} INSERT INTO limits (queue, max_running) VALUES ('q', {limit})");
    admin.batch_execute(&sql).await.expect("a log and a limit");
    config.application_name("worker");
    let proxy = Proxy::to(&cluster.socket_dir(), cluster.port()).await;
    let mut through = Config::new();
    through
        .host("127.0.0.1")
        .port(proxy.port)
        .user(cluster.superuser())
        .dbname("postgres");
    let race = Race {
        name,
        config: config.clone(),
        through,
        limit,
        stop: Arc::default(),
        counts: Counts::default(),
    };
    let producer = tokio::spawn(produce(race.clone()));
    let reclaimer = tokio::spawn(reclaim(race.clone()));
    let workers: Vec<_> = (0..workers)
        .map(|seed| tokio::spawn(worker::work(race.clone(), seed)))
        .collect();
    let operators: Vec<_> = (100..104)
        .map(|seed| {
            let journal = format!("stress_{name}_{seed}");
            common::journal(&journal);
            tokio::spawn(operator::operate(race.clone(), seed))
        })
        .collect();
    let begun = Instant::now();
    let mut crashed = false;
    for next in [Next::AnswerLost, Next::NeverSent].into_iter().cycle() {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let many = race.counts.total.load(Ordering::Relaxed) >= least;
        // a slow machine needs longer, and does not get for ever
        if begun.elapsed() >= lasts && many && (race.counts.full() || begun.elapsed() >= PATIENCE) {
            break;
        }
        if !crashed && begun.elapsed() >= lasts / 2 {
            crash(&cluster, &proxy).await;
            crashed = true;
        }
        proxy.next(next);
    }
    proxy.next(Next::Passes);
    race.stop.store(true, Ordering::Relaxed);
    let mut story = check::Story {
        line: Line::open(&config).await,
        enqueued: producer.await.expect("the producer"),
        workers: Vec::new(),
        operators: Vec::new(),
    };
    let mut counts = reclaimer.await.expect("the reclaimer");
    for worker in workers {
        story.workers.push(worker.await.expect("a worker"));
    }
    for operator in operators {
        story.operators.push(operator.await.expect("an operator"));
    }
    let those = story.workers.iter().map(|w| &w.counts);
    for more in those.chain(story.operators.iter().map(|o| &o.counts)) {
        for (what, n) in &more.by {
            *counts.by.entry(what.clone()).or_default() += n;
        }
    }
    counts
        .by
        .insert("enqueue".into(), story.enqueued.len() as u64);
    for (what, n) in &counts.by {
        println!("{n:>8}  {what}");
    }
    let total: u64 = counts.by.values().sum();
    assert_eq!(total, counts.total.load(Ordering::Relaxed));
    println!("{total:>8}  in all, {:?}", begun.elapsed());
    story.holds().await;
    counts
}

/// What must have happened for the race to be one.
const TOOK_PLACE: [&str; 11] = [
    "complete: ok",
    "complete: stale lease token",
    "fail: retry scheduled",
    "fail: failed",
    "heartbeat: ok|f",
    "report_usage: duplicate",
    "reclaim: retry scheduled",
    "requeue: changed",
    "cancel: requested",
    "priority: changed since it was seen",
    "park: changed",
];

fn took_place(counts: &Counts) {
    for what in TOOK_PLACE {
        assert!(counts.by.contains_key(what), "no {what:?} in {counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_what_is_not_so_while_all_race_and_the_server_crashes() {
    took_place(&race("short", 6, Duration::from_secs(7), 2_000).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn nobody_is_told_what_is_not_so_in_a_hundred_thousand_operations() {
    took_place(&race("long", 20, Duration::from_secs(60), 100_000).await);
}
