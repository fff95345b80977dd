//! What a claim, a worker's call and a refresh read, in buffers: counts that do not depend on the machine. With 100,000 retries that are
//! not due and 200,000 finished tasks each must cost what it costs in an empty queue.

use super::*;

/// Shared buffers that a statement touches, and its plan as text.
async fn buffers(client: &Client, sql: &str) -> (u64, String) {
    let text = one(
        client,
        &format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}"),
    )
    .await;
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let top = &plan[0]["Plan"];
    let count = |name: &str| top[name].as_u64().unwrap_or(0);
    (
        count("Shared Hit Blocks") + count("Shared Read Blocks"),
        text,
    )
}

/// The usual cost of a call: the least of five, after its plans have been made.
async fn usual(client: &Client, sql: &str) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..7 {
        least = least.min(buffers(client, sql).await.0);
    }
    least
}

const CLAIM: &str = "SELECT id FROM claim('q', 'w', 5)";
const CLAIM_KIND: &str = "SELECT id FROM claim('q', 'w', 5, kinds => '{rare,rarer}')";
const WORK: &str = "SELECT complete(c.id, c.lease_token) FROM claim('q', 'w') c";

#[tokio::test]
async fn cost_follows_what_is_alive_not_what_is_stored() {
    let (client, config) = queue("plans").await;
    run(
        &client,
        "SET jit = off; INSERT INTO limits (queue, max_running) VALUES ('q', 10000)",
    )
    .await;
    run(&client, "SELECT enqueue('q', CASE WHEN n % 3 = 0 THEN 'rare' ELSE 'k' END) FROM generate_series(1, 1000) n").await;
    run(&client, "VACUUM ANALYZE tasks").await;
    let empty = (
        usual(&client, CLAIM).await,
        usual(&client, CLAIM_KIND).await,
        usual(&client, WORK).await,
    );

    // No statistics come after this load: the plans must hold without. What waits is of another time, so that windows of the
    // last minute hold the same rows however slow the machine is. The retries would be first in line if they were due.
    run(
        &client,
        "ALTER TABLE tasks SET (autovacuum_enabled = false); ALTER TABLE task_attempts SET (autovacuum_enabled = false);
         SET session_replication_role = replica;
         INSERT INTO tasks (queue, kind, agent, status, created_at, claimed_at, started_at, finished_at, attempt, lease_token)
         SELECT 'q', 'k', 'agent-' || n % 40, (ARRAY['completed', 'completed', 'completed', 'failed', 'cancelled'])[1 + n % 5],
                t, t + interval '1 s', t + interval '2 s', t + interval '9 s', 1, 1
           FROM generate_series(1, 200000) n, LATERAL (SELECT now() - interval '1 s' * (n * 3 + 10) AS t) x;
         INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, finished_at, outcome)
         SELECT id, 1, 1, 'w', created_at, claimed_at, finished_at, 'completed' FROM tasks WHERE status = 'completed' AND claimed_at IS NOT NULL
             ON CONFLICT DO NOTHING;
         INSERT INTO tasks (queue, kind, agent, created_at, run_after, deferred, attempt, priority)
         SELECT 'q', 'k', 'agent-' || n % 40, now() - interval '1 d', now() + interval '1 h', true, 1, 9 FROM generate_series(1, 100000) n;
         INSERT INTO tasks (queue, kind, agent, created_at, priority)
         SELECT 'q', CASE WHEN n > 4900 THEN 'rarer' ELSE 'k' END, 'agent-' || n % 40, now() + interval '1 h', -n % 3 FROM generate_series(1, 5000) n;
         SET session_replication_role = DEFAULT",
    )
    .await;
    let other = session(&config).await;
    run(&other, "SET jit = off").await;
    for session in [&client, &other] {
        let full = (
            usual(session, CLAIM).await,
            usual(session, CLAIM_KIND).await,
            usual(session, WORK).await,
        );
        println!(
            "buffers of a claim of 5, of two kinds, of a claim and its completion: {empty:?} before, {full:?} after"
        );
        assert!(
            full.0 <= empty.0 + 60 && full.0 < 300,
            "claim: {full:?}, {empty:?} before"
        );
        assert!(
            full.1 <= empty.1 + 150 && full.1 < 600,
            "claim by kind: {full:?}, {empty:?} before"
        );
        assert!(
            full.2 <= empty.2 + 60 && full.2 < 250,
            "claim and complete: {full:?}, {empty:?} before"
        );
    }

    // A limited queue that is full costs next to nothing to ask, whatever waits in it.
    run(
        &client,
        "INSERT INTO limits (queue, max_running) VALUES ('full', 3)",
    )
    .await;
    run(
        &client,
        "SELECT enqueue('full', 'k') FROM generate_series(1, 2000); SELECT claim('full', 'w', 9)",
    )
    .await;
    let full = usual(&client, "SELECT id FROM claim('full', 'w', 9)").await;
    assert!(full < 40, "{full} buffers to learn that a queue is full");

    // Retries that come due all at once are moved in bounded batches.
    run(&client, "UPDATE tasks SET run_after = now() - interval '1 s' WHERE id IN (SELECT id FROM tasks WHERE deferred LIMIT 3000)").await;
    run(&client, "SELECT id FROM claim('q', 'w', 5)").await;
    assert_eq!(
        number(
            &client,
            "SELECT count(*) FROM tasks WHERE deferred AND run_after < now()"
        )
        .await,
        3000 - 105
    );

    // A refresh: everything that a monitor asks each second.
    // Twice: the first marks pages that it has just cleaned, and skips indexes with few dead entries, as autovacuum does.
    for _ in 0..2 {
        run(
            &client,
            "VACUUM (ANALYZE, INDEX_CLEANUP ON) tasks, task_attempts",
        )
        .await;
    }
    let mut total = 0;
    for (index, most, sql) in [
        (
            "tasks_live",
            1000,
            "SELECT status, queue, agent, count(*) FILTER (WHERE deferred AND attempt > 0), count(*) FROM tasks WHERE status IN ('enqueued', 'processing', 'parked') GROUP BY 1, 2, 3",
        ),
        (
            "tasks_deferred",
            200,
            "SELECT count(*) FROM (SELECT FROM tasks WHERE queue = 'q' AND status = 'enqueued' AND deferred LIMIT 10001) x",
        ),
        (
            "tasks_lease",
            60,
            "SELECT id FROM tasks WHERE status = 'processing' ORDER BY lease_expires_at LIMIT 50",
        ),
        (
            "tasks_lease",
            60,
            "SELECT count(*) FROM tasks WHERE status = 'processing' AND lease_expires_at < now()",
        ),
        (
            "tasks_cancel",
            10,
            "SELECT id FROM tasks WHERE status = 'processing' AND cancel_requested_at < now() - interval '1 min'",
        ),
        (
            "tasks_created",
            60,
            "SELECT count(*) FROM tasks WHERE created_at >= now() - interval '60 s' AND created_at < now() - interval '15 s'",
        ),
        (
            "tasks_finished",
            60,
            "SELECT id FROM tasks WHERE finished_at >= now() - interval '60 s'",
        ),
        (
            "tasks_failed",
            60,
            "SELECT id FROM tasks WHERE status = 'failed' ORDER BY finished_at DESC LIMIT 50",
        ),
        (
            "task_attempts_finished",
            60,
            "SELECT count(*) FROM task_attempts WHERE finished_at >= now() - interval '60 s' AND finished_at < now() - interval '15 s'",
        ),
        (
            "task_attempts_task_id",
            10,
            "SELECT * FROM task_attempts WHERE task_id = 4000",
        ),
        (
            "usage_reported",
            10,
            "SELECT sum(llm_cost) FROM usage WHERE reported_at >= now() - interval '60 s'",
        ),
        (
            "usage_task",
            10,
            "SELECT sum(llm_cost) FROM usage WHERE task_id = 4000",
        ),
    ] {
        let (read, plan) = buffers(&client, sql).await;
        println!("{read:>5} buffers: {sql}");
        // Tables that are still empty may be scanned: what counts is what is read.
        assert!(
            read <= most,
            "{read} buffers, at most {most}: {sql}\n{plan}"
        );
        // From 18 on the small index of everything alive serves where it lacks the leading column, too.
        let served = [index, "tasks_live"].iter().any(|i| plan.contains(i));
        assert!(
            served || index.starts_with("usage"),
            "{index} is not used: {sql}\n{plan}"
        );
        total += read;
    }
    assert!(total < 1000, "a refresh reads {total} buffers");
}

#[tokio::test]
async fn no_call_is_compiled() {
    // With sequential scans off, the least plan that needs one counts as dear enough for JIT, which costs more than a hundred claims.
    let (client, _) = queue("jit").await;
    let names = "SELECT string_agg(proname, ',') FROM pg_proc
                  WHERE pronamespace = 'agent_queue'::regnamespace AND 'enable_seqscan=off' = ANY (proconfig)";
    assert_eq!(
        one(
            &client,
            &format!("{names} AND NOT 'jit=off' = ANY (proconfig)")
        )
        .await,
        "-"
    );
    assert!(one(&client, names).await.contains("claim"));
}
