//! Everything at once: workers, workers that overrun their lease and come back, reclaimers, operators with stale screens, and somebody who
//! moves the limit. Every change of a task is logged by a trigger in the same transaction, every answer is kept by who got it, and the two
//! must tell the same story.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const TASKS: i64 = 2400;
const WORKERS: u64 = 12;
const LEASE: &str = "80 ms";
/// How long the race may go on until everything has taken place.
const PATIENCE: Duration = Duration::from_secs(90);

/// What must have been the answer to an operator at least once.
const OUTCOMES: [&str; 11] = [
    "changed",
    "requested",
    "changed since it was seen",
    "lease has not expired",
    "requeue_fresh: changed",
    "release: changed",
    "release: lease has not expired",
    "run_now: changed",
    "run_now: is due already",
    "reprioritize: changed",
    "reprioritize: has that priority already",
];

type Outcomes = Arc<Mutex<HashMap<String, usize>>>;

/// What one client did: claimed (task, token), and which of these it ended, with what answer.
#[derive(Default)]
struct Diary {
    claimed: Vec<(i64, i64)>,
    ended: HashMap<(i64, i64), String>,
    refused: usize,
}

async fn worker(client: Client, seed: u64, stop: Arc<AtomicBool>) -> Diary {
    let mut random = StdRng::seed_from_u64(seed);
    let mut diary = Diary::default();
    while !stop.load(Ordering::Relaxed) {
        let batch = random.random_range(1..4);
        let sql = format!(
            "SELECT id, lease_token, attempt FROM claim('q', 'w{seed}', {batch}, '{LEASE}')"
        );
        let got = rows(&client, &sql).await;
        if got.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for row in got {
            let (id, token): (i64, i64) = (row[0].parse().unwrap(), row[1].parse().unwrap());
            diary.claimed.push((id, token));
            let call = |name: &str, rest: &str| format!("SELECT {name}({id}, {token}{rest})");
            if random.random_bool(0.5) {
                run(&client, &call("started", "")).await;
            }
            let usage = format!(
                "SELECT report_usage('{id}-{}', {id}, {}, 'm', 10, 10)",
                row[2], row[2]
            );
            run(&client, &usage).await;
            if random.random_bool(0.05) {
                // A zombie: longer than the lease, without a heartbeat.
                tokio::time::sleep(Duration::from_millis(random.random_range(60..160))).await;
            } else if random.random_bool(0.3) {
                tokio::time::sleep(Duration::from_millis(random.random_range(0..5))).await;
                let heard = one(
                    &client,
                    &format!(
                        "SELECT outcome, cancel_requested FROM heartbeat({id}, {token}, '{LEASE}')"
                    ),
                )
                .await;
                if heard == "ok|t" {
                    let answer = one(&client, &call("cancelled", "")).await;
                    diary.note(id, token, &answer, "cancelled");
                    continue;
                }
            }
            if random.random_bool(0.3) {
                let answer =
                    one(&client, &call("fail", ", 'stress', retry_after => '20 ms'")).await;
                let word = answer.clone();
                diary.note(id, token, &answer, &word);
            } else {
                let answer = one(&client, &call("complete", &format!(", '\"{token}\"'"))).await;
                diary.note(id, token, &answer, "completed");
            }
        }
    }
    diary
}

impl Diary {
    /// Keeps an answer; nobody may be told twice that he has ended the same try.
    fn note(&mut self, id: i64, token: i64, answer: &str, meaning: &str) {
        if [
            "stale lease token",
            "not running",
            "no such task",
            "no cancel requested",
        ]
        .contains(&answer)
        {
            self.refused += 1;
        } else {
            let twice = self.ended.insert((id, token), meaning.to_owned());
            assert_eq!(twice, None, "task {id} was ended twice under token {token}");
        }
    }
}

async fn operator(client: Client, seed: u64, stop: Arc<AtomicBool>, outcomes: Outcomes) {
    let mut random = StdRng::seed_from_u64(seed);
    while !stop.load(Ordering::Relaxed) {
        let verbs = [
            ("requeue", "status IN ('failed', 'cancelled')", ""),
            ("requeue", "status = 'processing'", ""),
            ("requeue_fresh", "status IN ('failed', 'cancelled')", ""),
            ("requeue_fresh", "status = 'processing'", ""),
            ("cancel", "status = 'processing'", ""),
            ("cancel", "status = 'processing'", ""),
            ("cancel", "status = 'enqueued'", ""),
            ("park", "status = 'enqueued'", ""),
            ("unpark", "status = 'parked'", ""),
            ("release", "status = 'processing'", ""),
            (
                "release",
                "lease_expires_at < clock_timestamp() + interval '10 ms'",
                "",
            ),
            ("run_now", "status = 'enqueued'", ""),
            ("run_now", "status = 'enqueued' AND deferred", ""),
            (
                "reprioritize",
                "status IN ('enqueued', 'parked')",
                ", priority => 1",
            ),
        ];
        let (verb, state, rest) = verbs[random.random_range(0..verbs.len())];
        let seen = rows(
            &client,
            &format!("SELECT id, status, lease_token FROM tasks WHERE {state} ORDER BY md5(id::text || '{}') LIMIT 6", random.random::<u32>()),
        )
        .await;
        // The screen is old by the time the key is pressed.
        tokio::time::sleep(Duration::from_millis(random.random_range(0..10))).await;
        let column = |i: usize| {
            seen.iter()
                .map(|row| row[i].as_str())
                .collect::<Vec<_>>()
                .join(",")
        };
        let sql = format!(
            "SELECT outcome FROM {verb}('{{{}}}', '{{{}}}', '{{{}}}'{rest})",
            column(0),
            column(1),
            column(2)
        );
        let answers = lines(&client, &sql).await;
        for outcome in answers {
            let mut outcomes = outcomes.lock().unwrap();
            *outcomes.entry(format!("{verb}: {outcome}")).or_default() += 1;
            *outcomes.entry(outcome).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A twelfth of the tasks.
async fn enqueue(client: &Client, chunk: i64) {
    run(client, &format!("SELECT enqueue('q', 'k', priority => n % 3, idempotency_key => {chunk} || '-' || n) FROM generate_series(1, {}) n", TASKS / 12)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_run_twice_or_overwritten_while_everybody_races() {
    let (client, config) = queue("stress").await;
    run(
        &client,
        "CREATE TABLE log (n bigint GENERATED ALWAYS AS IDENTITY, id bigint, was text, is_now text, old_token bigint, new_token bigint,
                           old_attempt int, new_attempt int);
         CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO agent_queue.log (id, was, is_now, old_token, new_token, old_attempt, new_attempt)
             VALUES (NEW.id, OLD.status, NEW.status, OLD.lease_token, NEW.lease_token, OLD.attempt, NEW.attempt);
             RETURN NULL; END $$;
         CREATE TRIGGER log AFTER UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION log();
         CREATE OR REPLACE FUNCTION backoff(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '10 ms' $$;
         INSERT INTO limits (queue, max_running) VALUES ('q', 16)",
    )
    .await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for seed in 0..WORKERS {
        workers.push(tokio::spawn(worker(
            session(&config).await,
            seed,
            stop.clone(),
        )));
    }
    let outcomes = Outcomes::default();
    let mut operators = Vec::new();
    for seed in 100..103 {
        operators.push(tokio::spawn(operator(
            session(&config).await,
            seed,
            stop.clone(),
            outcomes.clone(),
        )));
    }
    let mut others = Vec::new();
    for _ in 0..2 {
        let (client, stop) = (session(&config).await, stop.clone());
        others.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                run(&client, "SELECT reclaim(20)").await;
                // Seldom enough that operators find something to release.
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        }));
    }
    let (limiter, stopped) = (session(&config).await, stop.clone());
    others.push(tokio::spawn(async move {
        for limit in [5, 16, 0, 9].iter().cycle() {
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            run(
                &limiter,
                &format!("UPDATE limits SET max_running = {limit}"),
            )
            .await;
            tokio::time::sleep(Duration::from_millis(if *limit == 0 { 5 } else { 100 })).await;
        }
    }));

    // Tasks come in while all this goes on, and the race lasts until thousands of things have happened, and each that can.
    for chunk in 0..12 {
        enqueue(&client, chunk).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (mut chunks, mut events) = (12, 0);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        events = number(&client, "SELECT count(*) FROM log").await;
        let left = number(
            &client,
            "SELECT count(*) FROM tasks WHERE status IN ('enqueued', 'processing')",
        )
        .await;
        if left < TASKS / 4 {
            let all = OUTCOMES
                .iter()
                .all(|o| outcomes.lock().unwrap().contains_key(*o));
            if events > 8000 && all {
                break;
            }
            enqueue(&client, chunks).await;
            chunks += 1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let tasks = chunks * (TASKS / 12);
    stop.store(true, Ordering::Relaxed);
    let mut told: HashMap<(i64, i64), String> = HashMap::new();
    let mut claims = HashMap::new();
    let mut refused = 0;
    for worker in workers {
        let diary = worker.await.unwrap();
        refused += diary.refused;
        for claim in diary.claimed {
            assert_eq!(
                claims.insert(claim, ()),
                None,
                "{claim:?} was given to two owners"
            );
        }
        for (key, meaning) in diary.ended {
            assert_eq!(told.insert(key, meaning), None, "{key:?} was ended by two");
        }
    }
    for operator in operators {
        operator.await.unwrap();
    }
    let outcomes = outcomes.lock().unwrap().clone();
    for other in others {
        other.await.unwrap();
    }
    println!(
        "{events} changes, {} claims, {} ends, {refused} refused, operators: {outcomes:?}",
        claims.len(),
        told.len()
    );

    // The race was one.
    assert!(events > 8000, "only {events} changes");
    assert!(refused > 20, "only {refused} late workers were refused");
    for outcome in OUTCOMES {
        assert!(
            outcomes.get(outcome).is_some_and(|n| *n > 0),
            "{outcome}: {outcomes:?}"
        );
    }
    // Nothing was lost.
    assert_eq!(number(&client, "SELECT count(*) FROM tasks").await, tasks);
    // Each task's changes are one chain: what a change found is what the previous one left.
    let none: Vec<String> = Vec::new();
    assert_eq!(
        lines(
            &client,
            "SELECT * FROM (SELECT id, was, lag(is_now, 1, 'enqueued') OVER w AS before, old_token, lag(new_token, 1, 0::bigint) OVER w AS token
                              FROM log WINDOW w AS (PARTITION BY id ORDER BY n)) x WHERE was <> before OR old_token <> token"
        )
        .await,
        none
    );
    // Ownership changes hands only where it may: a claim takes what is enqueued, a new token comes with it, nothing else starts a try, and
    // what is completed stays.
    assert_eq!(
        lines(
            &client,
            "SELECT DISTINCT was, is_now, new_token - old_token, new_attempt - old_attempt FROM log
              WHERE was <> is_now AND (was, is_now, new_token - old_token, new_attempt - old_attempt) NOT IN (
                  ('enqueued', 'processing', 1, 1), ('processing', 'completed', 0, 0), ('processing', 'failed', 0, 0),
                  ('processing', 'cancelled', 0, 0), ('processing', 'enqueued', 0, 0), ('processing', 'enqueued', 1, 0),
                  ('failed', 'enqueued', 1, 0), ('cancelled', 'enqueued', 1, 0), ('enqueued', 'cancelled', 0, 0),
                  ('parked', 'cancelled', 0, 0), ('enqueued', 'parked', 0, 0), ('parked', 'enqueued', 0, 0))"
        )
        .await,
        none
    );
    // What workers were told is what happened, no more and no less.
    let ends = rows(
        &client,
        "SELECT id, old_token, CASE WHEN is_now = 'enqueued' THEN 'retry scheduled' ELSE is_now END
           FROM log WHERE was = 'processing' AND is_now <> 'processing' AND new_token = old_token
            AND NOT EXISTS (SELECT FROM task_attempts a WHERE a.task_id = log.id AND a.lease_token = log.old_token AND a.outcome = 'lease expired')",
    )
    .await;
    assert_eq!(ends.len(), told.len());
    for row in &ends {
        let key = (row[0].parse().unwrap(), row[1].parse().unwrap());
        assert_eq!(told.get(&key), Some(&row[2]), "task {key:?}");
    }
    assert_eq!(
        lines(&client, "SELECT id FROM tasks WHERE status = 'completed' AND result #>> '{}' <> lease_token::text").await,
        none,
        "a result was written by somebody else than the owner"
    );
    // Nobody has had more tries than he was given.
    assert_eq!(
        lines(&client, "SELECT id FROM tasks WHERE attempt > max_attempts OR attempts_before > attempt OR max_attempts <= attempts_before").await,
        none
    );
    // The tries are all there, and only running tasks have an open one.
    assert_eq!(
        lines(
            &client,
            "SELECT t.id FROM tasks t LEFT JOIN task_attempts a ON a.task_id = t.id GROUP BY t.id
             HAVING count(a.id) <> t.attempt OR count(*) FILTER (WHERE a.id IS NOT NULL AND a.finished_at IS NULL) <> (t.status = 'processing')::int"
        )
        .await,
        none
    );
    assert_eq!(
        number(&client, "SELECT count(*) FROM task_attempts").await,
        claims.len() as i64
    );
    assert_eq!(
        number(&client, "SELECT count(*) FROM usage").await,
        claims.len() as i64
    );
    assert_eq!(
        lines(&client, "SELECT task_id FROM slots WHERE task_id IS NOT NULL EXCEPT SELECT id FROM tasks WHERE status = 'processing'").await,
        none,
        "a slot was not given back"
    );
    // Left alone, the queue drains, and all is free again.
    run(&client, "UPDATE limits SET max_running = 10; SELECT unpark(ARRAY(SELECT id FROM tasks WHERE status = 'parked' LIMIT 1000))").await;
    for _ in 0..400 {
        run(&client, "SELECT reclaim(1000)").await;
        run(&client, "SELECT complete(c.id, c.lease_token, to_jsonb(c.lease_token::text)) FROM claim('q', 'w', 10) c").await;
        if number(
            &client,
            "SELECT count(*) FROM tasks WHERE status IN ('enqueued', 'processing')",
        )
        .await
            == 0
        {
            break;
        }
    }
    assert_eq!(
        number(
            &client,
            "SELECT count(*) FROM tasks WHERE status NOT IN ('completed', 'failed', 'cancelled')"
        )
        .await,
        0
    );
    assert_eq!(
        one(&client, "SELECT count(task_id), count(*) FROM slots").await,
        "0|10"
    );
    // The statistics of a session arrive when it ends or idles; the deadlock itself would have failed somebody's call above.
    assert_eq!(
        one(
            &client,
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        .await,
        "0"
    );
}
