//! What a refresh costs the server, counted in buffers of the queue's own tables and indexes, not in time.

mod common;
#[path = "profiles/setup.rs"]
mod setup;

use jobtop::config::Config;
use jobtop::connect::Session;
use jobtop::probe::{QueueProbes, ServerTime, Snapshot};
use setup::{agent_queue, open};

/// Refreshes measured, a second apart.
const N: usize = 60;

/// `finished` tasks at four a second, up to a little after now (time is moved on while measuring), one in seven tried twice, and a bill for each try, and 5,000 live ones in five queues.
fn load(finished: u32) -> String {
    format!(
        "SET search_path = agent_queue, pg_temp; SET synchronous_commit = on;
         INSERT INTO tasks (queue, kind, agent, tenant, application, payload, status, created_at, run_after, claimed_at, started_at, finished_at, attempt, result)
         SELECT 'q' || i % 5, 'k' || i % 12, 'agent-' || i % 40, 'tenant-' || i % 500, 'app', jsonb_build_object('n', i, 'text', repeat('x', 100)), 
                CASE WHEN i::bigint * 7919 % 1009 % 30 = 0 THEN 'failed' WHEN i % 77 = 0 THEN 'cancelled' ELSE 'completed' END,
                f - interval '90 s', f - interval '60 s', f - interval '20 s', f - interval '19 s', f, 1 + (i % 7 = 0)::int, '{{}}'
           FROM (SELECT i, now() + interval '200 s' - ({finished} - i) * interval '0.25 s' AS f FROM generate_series(1, {finished}) i) x;
         INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, started_at, finished_at, outcome, error)
         SELECT t.id, a, a, 'w' || t.id % 40, t.run_after, t.claimed_at, t.started_at, t.finished_at,
                CASE WHEN a < t.attempt THEN 'failed' WHEN t.status = 'completed' THEN 'completed' ELSE t.status END, CASE WHEN a < t.attempt THEN 'timeout' END
           FROM tasks t, generate_series(1, t.attempt) a ORDER BY t.id;
         INSERT INTO usage (call_id, task_id, attempt, queue, model, input_tokens, output_tokens, llm_cost, compute_cost, reported_at)
         SELECT 'c' || a.id, a.task_id, a.attempt, 'q', 'm', 1000, 100, 0.01, 0.001, a.finished_at FROM task_attempts a ORDER BY a.id;
         INSERT INTO tasks (queue, kind, agent, tenant, payload, status, priority, created_at, run_after, deferred, attempt, claimed_at, started_at, heartbeat_at, locked_by, lease_expires_at, lease_token)
         SELECT 'q' || i % 5, 'k' || i % 12, 'agent-' || i % 40, 'tenant-' || i % 500, jsonb_build_object('n', i, 'text', repeat('x', 100)),
                CASE WHEN i % 5 = 4 THEN 'processing' ELSE 'enqueued' END, i % 4, now() - i * interval '20 ms', now() + CASE WHEN i % 10 = 0 THEN interval '1 h' ELSE - i * interval '20 ms' END,
                i % 10 = 0, (i % 5 = 4 OR i % 20 = 0)::int, CASE WHEN i % 5 = 4 THEN now() - interval '9 s' END, CASE WHEN i % 5 = 4 THEN now() - interval '9 s' END,
                CASE WHEN i % 5 = 4 THEN now() END, CASE WHEN i % 5 = 4 THEN 'w' || i % 40 END, CASE WHEN i % 5 = 4 THEN now() + i * interval '10 ms' END, (i % 5 = 4)::int
           FROM generate_series(1, 5000) i;
         INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, started_at)
         SELECT t.id, t.attempt, t.lease_token, t.locked_by, t.run_after, t.claimed_at, t.started_at FROM tasks t WHERE status = 'processing';"
    )
}

async fn buffers(client: &tokio_postgres::Client, session: &Session) -> i64 {
    // the statistics of this session are written now, not in a second
    session
        .execute("SELECT pg_stat_force_next_flush()")
        .await
        .expect("flush");
    client
        .query_one(
            "SELECT sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0) + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0)
               + coalesce(toast_blks_hit, 0) + coalesce(toast_blks_read, 0))::int8 FROM pg_statio_user_tables",
            &[],
        )
        .await
        .expect("buffers")
        .get(0)
}

/// Buffers, statements and microseconds of each probe, in the mean of some refreshes.
type Parts = Vec<(&'static str, f64, f64, f64)>;

/// What the parts of a refresh cost at rest; and the buffers of one depth of queues that no vacuum has seen yet.
async fn measure(finished: u32) -> (Parts, i64) {
    let (client, session, _) = open("cost", &format!("{}{}", agent_queue(), load(finished))).await;
    client.batch_execute("ANALYZE").await.expect("analyze");
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let before = buffers(&client, &session).await;
    let now = setup::now(&session).await;
    probes.queues(&session, now).await.expect("the depth");
    let fresh = buffers(&client, &session).await - before;
    common::vacuum(&client).await;
    // a minute that ends a little before the last task: tries, arrivals and bills go on through it
    let last = client
        .query_one(
            "SELECT extract(epoch FROM max(finished_at))::float8 FROM tasks",
            &[],
        )
        .await
        .expect("the last")
        .get::<_, f64>(0);
    let begin = ServerTime::from_epoch(last - N as f64 - 10.0).expect("a time");
    // the past is read in pieces, two seconds apart
    for i in (1..=30).rev() {
        let at = begin.plus(-f64::from(i) * 2.0);
        probes.finished(&session, at).await.expect("backfill");
        probes.cost(&session, at).await.expect("backfill");
    }
    let mut sums = [
        ("queues", 0.0, 0.0, 0.0),
        ("finished", 0.0, 0.0, 0.0),
        ("leases", 0.0, 0.0, 0.0),
        ("cost", 0.0, 0.0, 0.0),
        ("tasks", 0.0, 0.0, 0.0),
    ];
    for i in 0..N {
        let at = begin.plus(i as f64);
        for (name, blocks, statements, us) in &mut sums {
            let before = buffers(&client, &session).await;
            session.take_cost();
            match *name {
                "queues" => probes.queues(&session, at).await,
                "finished" => probes.finished(&session, at).await,
                "leases" => probes.leases(&session, at).await,
                "cost" => probes.cost(&session, at).await,
                _ => probes.tasks(&session, at).await,
            }
            .expect("a probe");
            let (n, server) = session.take_cost();
            *blocks += (buffers(&client, &session).await - before) as f64 / N as f64;
            *statements += f64::from(n) / N as f64;
            *us += server as f64 / N as f64;
        }
    }
    let mut snapshot = Snapshot::default();
    probes.fill(&mut snapshot);
    assert_eq!(snapshot.queues.len(), 5);
    (sums.to_vec(), fresh)
}

async fn stays_cheap(finished: u32) {
    let (parts, fresh) = measure(finished).await;
    let total: f64 = parts.iter().map(|p| p.1).sum();
    println!(
        "{finished} finished, 5,000 live: {total:.0} buffers a refresh, {fresh} of a depth before vacuum"
    );
    for (name, blocks, statements, us) in &parts {
        println!("  {name:10} {blocks:8.0} buffers {statements:5.1} statements {us:8.0} us");
    }
    assert!(total <= 1000.0, "{total:.0} buffers a refresh");
    // indexes alone answer for the depth; for rows newer than the last vacuum each page is looked at
    assert!(
        parts[0].1 <= 200.0,
        "{:.0} buffers of the depth",
        parts[0].1
    );
    assert!(fresh <= 5500, "{fresh} buffers of a depth before vacuum");
}

#[tokio::test]
async fn a_refresh_at_ten_thousand_tasks() {
    stays_cheap(10_000).await;
}

#[tokio::test]
#[ignore = "a minute to load"]
async fn a_refresh_at_a_million_tasks() {
    stays_cheap(1_000_000).await;
}

/// Failed tasks are read through their own index: each costs its row and what it has spent, however many others there are.
#[tokio::test]
async fn failures_cost_what_failed() {
    let others = "UPDATE tasks SET last_error = 'timeout after ' || id || ' s' WHERE status = 'failed';
        INSERT INTO tasks (queue, kind, status, created_at, run_after, finished_at, attempt)
        SELECT 'old', 'k', CASE WHEN i % 2 = 0 THEN 'failed' ELSE 'completed' END, f, f, f, 1
          FROM (SELECT i, now() - interval '2 days' - i * interval '1 s' AS f FROM generate_series(1, 20000) i) x;";
    let sql = format!("{}{}{others}", agent_queue(), load(10_000));
    let (client, session, _) = open("failures", &sql).await;
    common::vacuum(&client).await;
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let now = setup::now(&session).await;
    let before = buffers(&client, &session).await;
    session.take_cost();
    probes.failures(&session, now).await.expect("failures");
    let (statements, us) = session.take_cost();
    let blocks = buffers(&client, &session).await - before;
    let mut snapshot = Snapshot::default();
    probes.fill(&mut snapshot);
    let read = snapshot.failures[0].read.expect("read").count;
    println!("{read} failed of 30,000 finished: {blocks} buffers, {us} us");
    assert!((300..400).contains(&read), "{read}");
    assert_eq!(statements, 1);
    assert!(blocks <= read as i64 * 8 + 50, "{blocks} buffers");
}
