//! What each function promises to producers and workers, called by one client at a time.

use super::*;

#[tokio::test]
async fn enqueue_keeps_every_argument_and_is_idempotent_by_key_within_a_queue() {
    let (client, _) = queue("enqueue").await;
    run(
        &client,
        "SELECT enqueue('q', 'k', '{\"a\": 1}', 7, '2030-01-02 03:04:05Z', 9, 'ag', 'te', 'ap', 'ba', 'key')",
    )
    .await;
    assert_eq!(
        one(
            &client,
            "SELECT queue, kind, payload, priority, run_after, max_attempts, agent, tenant, application, batch_id, idempotency_key,
                    status, deferred, attempt, lease_token FROM tasks"
        )
        .await,
        "q|k|{\"a\": 1}|7|2030-01-02 03:04:05+00|9|ag|te|ap|ba|key|enqueued|t|0|0"
    );
    assert_eq!(
        one(
            &client,
            "SELECT enqueue('q', 'other', idempotency_key => 'key')"
        )
        .await,
        "1"
    );
    assert_ne!(
        one(
            &client,
            "SELECT enqueue('q2', 'k', idempotency_key => 'key')"
        )
        .await,
        "1"
    );
    let first = number(&client, "SELECT enqueue('q', 'k')").await;
    assert_ne!(
        number(&client, "SELECT enqueue('q', 'k')").await,
        first,
        "no key: two tasks"
    );
    assert_eq!(
        one(&client, &format!("SELECT deferred, run_after >= created_at - interval '1 s' FROM tasks WHERE id = {first}")).await,
        "f|t"
    );
    // A key stays taken when its task is over.
    run(&client, "SELECT cancel('{1}')").await;
    assert_eq!(
        one(
            &client,
            "SELECT enqueue('q', 'k', idempotency_key => 'key')"
        )
        .await,
        "1"
    );
    assert_eq!(refusal(&client, "SELECT enqueue(NULL, 'k')").await, "23502");
    assert_eq!(
        refusal(&client, "SELECT enqueue('q', 'k', max_attempts => 0)").await,
        "23514"
    );
}

#[tokio::test]
async fn many_are_enqueued_in_the_order_of_the_array() {
    let (client, _) = queue("many").await;
    let known = number(
        &client,
        "SELECT enqueue('q', 'k', idempotency_key => 'known')",
    )
    .await;
    let ids: Vec<i64> = lines(
        &client,
        r#"SELECT * FROM enqueue_many('[
            {"queue": "q", "kind": "z", "idempotency_key": "zz"},
            {"queue": "q", "kind": "a", "priority": 4, "payload": [1], "tenant": "t", "run_after": "2030-01-01T00:00:00Z"},
            {"queue": "q", "kind": "k", "idempotency_key": "known"},
            {"queue": "q", "kind": "again", "idempotency_key": "zz"},
            {"queue": "other", "kind": "k", "idempotency_key": "aa"}]')"#,
    )
    .await
    .iter()
    .map(|id| id.parse().unwrap())
    .collect();
    assert_eq!(ids.len(), 5);
    assert_eq!(ids[2], known);
    assert_eq!(ids[0], ids[3], "one key, one task, also within a call");
    assert!(
        ids[0] < ids[1] && ids[1] < ids[4],
        "ids rise in the order of the array: {ids:?}"
    );
    assert_eq!(
        lines(
            &client,
            "SELECT kind, priority, payload, tenant, deferred FROM tasks ORDER BY id"
        )
        .await,
        ["k|0|{}|-|f", "z|0|{}|-|f", "a|4|[1]|t|t", "k|0|{}|-|f"]
    );
    assert!(
        lines(&client, "SELECT * FROM enqueue_many('[]')")
            .await
            .is_empty()
    );
    let before = one(&client, "SELECT count(*) FROM tasks").await;
    for wrong in [
        r#"'[{"queue": "q", "kind": "k"}, {"queue": "q", "kind": "k", "run_at": "2030-01-01"}]'"#,
        r#"'{"queue": "q", "kind": "k"}'"#,
        r#"'[{"queue": "q", "kind": "k"}, {"queue": "q"}]'"#,
        r#"'[{"queue": "q", "kind": "k"}, 5]'"#,
        "NULL",
    ] {
        assert!(
            try_rows(&client, &format!("SELECT enqueue_many({wrong})"))
                .await
                .is_err(),
            "{wrong}"
        );
    }
    assert_eq!(
        one(&client, "SELECT count(*) FROM tasks").await,
        before,
        "all or nothing"
    );
}

#[tokio::test]
async fn claim_takes_due_tasks_by_priority_then_age() {
    let (client, _) = queue("claim").await;
    run(
        &client,
        "SELECT enqueue('q', 'old'), enqueue('q', 'new'), enqueue('q', 'urgent', priority => 5)",
    )
    .await;
    run(&client, "SELECT enqueue('q', 'later', priority => 9, run_after => now() + interval '1 h'), enqueue('elsewhere', 'k')").await;
    // The age is created_at, not the id.
    run(
        &client,
        "UPDATE tasks SET created_at = created_at - interval '1 min' WHERE kind = 'new'",
    )
    .await;
    assert_eq!(
        lines(
            &client,
            "SELECT kind, attempt, max_attempts, lease_token, lease_expires_at > clock_timestamp() + interval '29 s'
               FROM claim('q', 'w1', 2, '30 s', 'v1')"
        )
        .await,
        ["urgent|1|5|1|t", "new|1|5|1|t"]
    );
    assert_eq!(
        lines(&client, "SELECT kind FROM claim('q', 'w1', 10)").await,
        ["old"]
    );
    assert!(
        lines(&client, "SELECT kind FROM claim('q', 'w1', 10)")
            .await
            .is_empty()
    );
    assert_eq!(
        one(
            &client,
            "SELECT status, locked_by, worker_version, attempt, claimed_at = heartbeat_at, started_at, finished_at
               FROM tasks WHERE kind = 'urgent'"
        )
        .await,
        "processing|w1|v1|1|t|-|-"
    );
    assert_eq!(
        one(
            &client,
            "SELECT a.attempt, a.lease_token, a.worker, a.worker_version, a.eligible_at = greatest(t.run_after, t.created_at),
                    a.claimed_at = t.claimed_at, a.started_at, a.finished_at, a.outcome
               FROM task_attempts a JOIN tasks t ON t.id = a.task_id WHERE t.kind = 'urgent'"
        )
        .await,
        "1|1|w1|v1|t|t|-|-|-"
    );
    // What comes due is moved into sight by the next claim.
    run(
        &client,
        "UPDATE tasks SET run_after = now() - interval '1 s' WHERE kind = 'later'",
    )
    .await;
    assert_eq!(
        one(&client, "SELECT deferred FROM tasks WHERE kind = 'later'").await,
        "t"
    );
    assert_eq!(
        lines(&client, "SELECT kind FROM claim('q', 'w1', 10)").await,
        ["later"]
    );
    for wrong in [
        "claim(NULL, 'w')",
        "claim('q', NULL)",
        "claim('q', 'w', 0)",
        "claim('q', 'w', 1, '0 s')",
        "claim('q', 'w', 1, NULL)",
    ] {
        assert_eq!(
            refusal(&client, &format!("SELECT {wrong}")).await,
            "22023",
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn claim_by_kinds_merges_their_order() {
    let (client, _) = queue("kinds").await;
    run(&client, "SELECT enqueue('q', k, priority => p) FROM (VALUES ('a', 0), ('b', 1), ('c', 9), ('a', 2), ('b', 0)) v(k, p)").await;
    assert_eq!(
        lines(
            &client,
            "SELECT kind, id FROM claim('q', 'w', 3, kinds => '{b,a,b,none}')"
        )
        .await,
        ["a|4", "b|2", "a|1"]
    );
    assert!(
        lines(&client, "SELECT id FROM claim('q', 'w', 3, kinds => '{}')")
            .await
            .is_empty()
    );
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w', 9)").await,
        ["3", "5"]
    );
}

#[tokio::test]
async fn a_try_runs_from_claim_to_completion() {
    let (client, _) = queue("complete").await;
    run(&client, "SELECT enqueue('q', 'k')").await;
    let (id, token) = claim_one(&client, "q").await;
    assert_eq!(
        one(
            &client,
            &format!("SELECT started({id}, {token}, 'run-1', 'trace-1')")
        )
        .await,
        "ok"
    );
    let first = one(&client, "SELECT started_at FROM tasks").await;
    assert_eq!(
        one(&client, &format!("SELECT started({id}, {token})")).await,
        "ok"
    );
    assert_eq!(
        one(&client, "SELECT t.started_at, a.started_at, a.job_run_id, a.trace_id FROM tasks t JOIN task_attempts a ON a.task_id = t.id").await,
        format!("{first}|{first}|run-1|trace-1"),
        "the first start counts, and what is known is kept"
    );
    assert_eq!(
        one(
            &client,
            &format!("SELECT outcome, cancel_requested, lease_expires_at > now() + interval '4 min' FROM heartbeat({id}, {token}, '5 min')")
        )
        .await,
        "ok|f|t"
    );
    assert_eq!(
        one(
            &client,
            &format!(
                "SELECT lease_expires_at > now() + interval '4 min' FROM heartbeat({id}, {token})"
            )
        )
        .await,
        "t",
        "a heartbeat never shortens a lease"
    );
    assert_eq!(
        one(
            &client,
            &format!("SELECT complete({id}, {token}, '{{\"answer\": 42}}', 0.75)")
        )
        .await,
        "ok"
    );
    assert_eq!(
        one(
            &client,
            "SELECT t.status, t.result, t.confidence, t.locked_by, t.lease_expires_at, a.outcome, a.error, t.finished_at = a.finished_at,
                    t.claimed_at <= t.started_at AND t.started_at <= t.finished_at
               FROM tasks t JOIN task_attempts a ON a.task_id = t.id"
        )
        .await,
        "completed|{\"answer\": 42}|0.75|-|-|completed|-|t|t"
    );
    let after = one(&client, "SELECT md5(string_agg(t::text || a::text, '')) FROM tasks t JOIN task_attempts a ON a.task_id = t.id").await;
    for (id, token, word) in [
        (id, token, "not running"),
        (id, token + 1, "stale lease token"),
        (999, token, "no such task"),
    ] {
        for call in [
            format!("SELECT started({id}, {token})"),
            format!("SELECT outcome FROM heartbeat({id}, {token})"),
            format!("SELECT complete({id}, {token}, '1')"),
            format!("SELECT fail({id}, {token}, 'late')"),
            format!("SELECT cancelled({id}, {token})"),
        ] {
            assert_eq!(one(&client, &call).await, word, "{call}");
        }
    }
    assert_eq!(
        one(&client, "SELECT complete(1, NULL)").await,
        "stale lease token"
    );
    assert_eq!(
        one(&client, "SELECT md5(string_agg(t::text || a::text, '')) FROM tasks t JOIN task_attempts a ON a.task_id = t.id").await,
        after,
        "nothing was changed"
    );
}

#[tokio::test]
async fn failed_tries_come_back_later_each_time_until_they_are_used_up() {
    let (client, _) = queue("fail").await;
    run(&client, "SELECT enqueue('q', 'k', max_attempts => 3)").await;
    for (attempt, low, high) in [(1, 3.7, 6.3), (2, 7.4, 12.6)] {
        let (id, token) = claim_one(&client, "q").await;
        assert_eq!(token, attempt);
        assert_eq!(
            one(
                &client,
                &format!("SELECT fail({id}, {token}, 'error {attempt}')")
            )
            .await,
            "retry scheduled"
        );
        let wait: f64 = one(
            &client,
            "SELECT extract(epoch FROM t.run_after - a.finished_at) FROM tasks t JOIN task_attempts a ON a.task_id = t.id AND a.attempt = t.attempt",
        )
        .await
        .parse()
        .unwrap();
        assert!(wait > low && wait < high, "try {attempt} waits {wait} s");
        assert_eq!(
            one(&client, "SELECT status, deferred, last_error, claimed_at, started_at, finished_at, locked_by FROM tasks").await,
            format!("enqueued|t|error {attempt}|-|-|-|-")
        );
        assert!(
            lines(&client, "SELECT id FROM claim('q', 'w')")
                .await
                .is_empty(),
            "not before its time"
        );
        run(
            &client,
            "UPDATE tasks SET run_after = now() - interval '1 ms'",
        )
        .await;
    }
    let (id, token) = claim_one(&client, "q").await;
    assert_eq!(
        one(&client, "SELECT a.eligible_at = t.run_after FROM tasks t JOIN task_attempts a ON a.task_id = t.id AND a.attempt = 3").await,
        "t",
        "a retry is eligible from its own time"
    );
    assert_eq!(
        one(&client, &format!("SELECT fail({id}, {token}, 'error 3')")).await,
        "failed"
    );
    assert_eq!(
        one(
            &client,
            "SELECT status, attempt, finished_at IS NOT NULL, last_error FROM tasks"
        )
        .await,
        "failed|3|t|error 3"
    );
    assert_eq!(
        lines(
            &client,
            "SELECT attempt, outcome, error FROM task_attempts ORDER BY attempt"
        )
        .await,
        ["1|failed|error 1", "2|failed|error 2", "3|failed|error 3"]
    );
}

#[tokio::test]
async fn fail_takes_the_workers_word_for_when_and_whether() {
    let (client, _) = queue("fail_how").await;
    run(&client, "SELECT enqueue('q', 'k')").await;
    let (id, token) = claim_one(&client, "q").await;
    assert_eq!(
        one(
            &client,
            &format!("SELECT fail({id}, {token}, 'busy', retry_after => '0')")
        )
        .await,
        "retry scheduled"
    );
    let (id, token) = claim_one(&client, "q").await;
    assert_eq!(
        one(
            &client,
            &format!("SELECT fail({id}, {token}, 'busy', '1 h')")
        )
        .await,
        "retry scheduled"
    );
    assert_eq!(
        one(
            &client,
            "SELECT run_after > now() + interval '59 min', deferred FROM tasks"
        )
        .await,
        "t|t"
    );
    run(&client, "UPDATE tasks SET run_after = now()").await;
    let (id, token) = claim_one(&client, "q").await;
    assert_eq!(
        one(
            &client,
            &format!("SELECT fail({id}, {token}, 'never', permanent => true)")
        )
        .await,
        "failed"
    );
    assert_eq!(
        one(&client, "SELECT attempt, max_attempts FROM tasks").await,
        "3|5"
    );
    // A pending cancel outranks the retry.
    run(&client, "SELECT enqueue('q', 'k')").await;
    let (id, token) = claim_one(&client, "q").await;
    run(
        &client,
        &format!("SELECT cancel('{{{id}}}', reason => 'too dear')"),
    )
    .await;
    assert_eq!(
        one(&client, &format!("SELECT fail({id}, {token}, 'stopped')")).await,
        "cancelled"
    );
    assert_eq!(
        one(
            &client,
            &format!("SELECT status, cancel_reason FROM tasks WHERE id = {id}")
        )
        .await,
        "cancelled|too dear"
    );
    // The back-off grows, is bounded, and spreads.
    assert_eq!(
        one(
            &client,
            "SELECT bool_and(backoff(n) BETWEEN least(interval '45 min', interval '5 s' * 2 ^ (n - 1) * 0.75) AND interval '75 min'),
                    count(DISTINCT backoff(1)) > 1, backoff(2147483647) <= interval '75 min', backoff(0) > interval '0'
               FROM generate_series(1, 30) n"
        )
        .await,
        "t|t|t|t"
    );
}

#[tokio::test]
async fn a_cancel_is_requested_heard_and_acknowledged() {
    let (client, _) = queue("cancel").await;
    run(&client, "SELECT enqueue('q', 'k'), enqueue('q', 'k')").await;
    let (id, token) = claim_one(&client, "q").await;
    assert_eq!(
        one(&client, &format!("SELECT cancelled({id}, {token})")).await,
        "no cancel requested"
    );
    assert_eq!(
        one(&client, &format!("SELECT outcome FROM cancel('{{{id}}}')")).await,
        "requested"
    );
    assert_eq!(
        one(
            &client,
            &format!("SELECT outcome, cancel_requested FROM heartbeat({id}, {token})")
        )
        .await,
        "ok|t"
    );
    assert_eq!(
        one(&client, &format!("SELECT cancelled({id}, {token})")).await,
        "ok"
    );
    assert_eq!(
        one(&client, "SELECT t.status, t.locked_by, a.outcome FROM tasks t JOIN task_attempts a ON a.task_id = t.id").await,
        "cancelled|-|cancelled"
    );
    // Work that is done is kept, whatever was asked meanwhile.
    let (id, token) = claim_one(&client, "q").await;
    run(&client, &format!("SELECT cancel('{{{id}}}')")).await;
    assert_eq!(
        one(&client, &format!("SELECT complete({id}, {token})")).await,
        "ok"
    );
    assert_eq!(
        one(
            &client,
            &format!("SELECT status, cancel_requested_at IS NULL FROM tasks WHERE id = {id}")
        )
        .await,
        "completed|f"
    );
}

#[tokio::test]
async fn expired_leases_are_taken_away_oldest_first_and_bounded() {
    let (client, _) = queue("reclaim").await;
    run(&client, "SELECT enqueue('q', 'k', max_attempts => CASE WHEN n = 2 THEN 1 ELSE 5 END) FROM generate_series(1, 5) n").await;
    run(&client, "SELECT claim('q', 'w', 10)").await;
    run(&client, "SELECT cancel('{3}')").await;
    assert!(
        lines(&client, "SELECT * FROM reclaim()").await.is_empty(),
        "no lease has expired"
    );
    run(
        &client,
        "UPDATE tasks SET lease_expires_at = now() - interval '1 min' * id WHERE id < 5",
    )
    .await;
    assert_eq!(
        lines(&client, "SELECT id, outcome FROM reclaim(2)").await,
        ["4|retry scheduled", "3|cancelled"]
    );
    // An expired lease that nobody has reclaimed is still its holder's.
    assert_eq!(
        one(&client, "SELECT outcome FROM heartbeat(1, 1)").await,
        "ok"
    );
    assert_eq!(
        lines(&client, "SELECT id, outcome FROM reclaim()").await,
        ["2|failed"]
    );
    assert_eq!(
        lines(&client, "SELECT id, status, lease_token, deferred, coalesce(last_error, '') FROM tasks ORDER BY id").await,
        [
            "1|processing|1|f|",
            "2|failed|2|f|lease expired, last held by w",
            "3|cancelled|2|f|lease expired, last held by w",
            "4|enqueued|2|t|lease expired, last held by w",
            "5|processing|1|f|"
        ]
    );
    assert_eq!(
        lines(
            &client,
            "SELECT task_id, outcome, finished_at IS NOT NULL FROM task_attempts ORDER BY task_id"
        )
        .await,
        [
            "1|-|f",
            "2|lease expired|t",
            "3|lease expired|t",
            "4|lease expired|t",
            "5|-|f"
        ]
    );
    for id in 2..5 {
        assert_eq!(
            one(&client, &format!("SELECT complete({id}, 1)")).await,
            "stale lease token"
        );
    }
    run(
        &client,
        "UPDATE tasks SET lease_expires_at = now() - interval '1 min' WHERE id = 5",
    )
    .await;
    assert_eq!(
        one(&client, "SELECT complete(5, 1)").await,
        "ok",
        "done work is not thrown away"
    );
}

#[tokio::test]
async fn the_old_owner_of_a_running_task_changes_nothing() {
    let (client, _) = queue("fence").await;
    run(&client, "SELECT enqueue('q', 'k')").await;
    let (id, old) = claim_one(&client, "q").await;
    run(
        &client,
        "UPDATE tasks SET lease_expires_at = now() - interval '1 s'",
    )
    .await;
    run(&client, &format!("SELECT requeue('{{{id}}}')")).await;
    let (same, new) = claim_one(&client, "q").await;
    assert_eq!(
        (same, new),
        (id, old + 2),
        "the token rose with the requeue and with the claim"
    );
    run(&client, &format!("SELECT cancel('{{{id}}}')")).await;
    let both = "SELECT string_agg(t::text || a::text, ',' ORDER BY a.id) FROM tasks t JOIN task_attempts a ON a.task_id = t.id";
    let before = one(&client, both).await;
    for call in [
        format!("SELECT started({id}, {old})"),
        format!("SELECT outcome FROM heartbeat({id}, {old}, '1 h')"),
        format!("SELECT complete({id}, {old}, '1')"),
        format!("SELECT fail({id}, {old}, 'late')"),
        format!("SELECT cancelled({id}, {old})"),
    ] {
        assert_eq!(one(&client, &call).await, "stale lease token", "{call}");
    }
    assert_eq!(one(&client, both).await, before);
    assert_eq!(
        one(&client, &format!("SELECT cancelled({id}, {new})")).await,
        "ok"
    );
}
