//! What an operator may do to tasks, and what is refused.

use super::*;

/// Six tasks: enqueued, running, expired, completed, failed, cancelled.
pub(super) async fn six(hint: &str) -> (Client, Config) {
    let (client, config) = queue(hint).await;
    run(
        &client,
        "SELECT enqueue('q', 'k', max_attempts => 1) FROM generate_series(1, 5)",
    )
    .await;
    run(&client, "SELECT claim('q', 'w', 5)").await;
    run(
        &client,
        "SELECT complete(3, 1), fail(4, 1, 'boom'), cancel('{5}')",
    )
    .await;
    run(&client, "SELECT cancelled(5, 1)").await;
    run(
        &client,
        "UPDATE tasks SET lease_expires_at = now() - interval '1 s' WHERE id = 2",
    )
    .await;
    assert_eq!(one(&client, "SELECT enqueue('q', 'k')").await, "6");
    (client, config)
}

#[tokio::test]
async fn requeue_takes_what_is_over_or_abandoned_and_nothing_else() {
    let (client, _) = six("requeue").await;
    assert_eq!(
        lines(
            &client,
            "SELECT * FROM requeue('{5,1,2,3,4,6,99,4}', reason => 'provider is back')"
        )
        .await,
        [
            "5|changed|enqueued|1",
            "1|lease has not expired|processing|1",
            "2|changed|enqueued|1",
            "3|is completed|completed|1",
            "4|changed|enqueued|1",
            "6|is enqueued|enqueued|0",
            "99|no such task|-|-"
        ],
        "one row per id, in the order asked"
    );
    assert_eq!(
        lines(
            &client,
            "SELECT id, lease_token, attempt, max_attempts, deferred, locked_by, finished_at, cancel_requested_at, cancel_reason
               FROM tasks WHERE id IN (2, 4, 5) ORDER BY id"
        )
        .await,
        ["2|2|1|2|f|-|-|-|-", "4|2|1|2|f|-|-|-|-", "5|2|1|2|f|-|-|-|-"],
        "token and max_attempts rise, the stale cancel is gone"
    );
    assert_eq!(
        one(
            &client,
            "SELECT outcome FROM task_attempts WHERE task_id = 2"
        )
        .await,
        "lease expired"
    );
    assert_eq!(
        one(&client, "SELECT complete(2, 1)").await,
        "stale lease token",
        "the old owner is shut out"
    );
    // More attempts only where they were used up.
    run(&client, "SELECT enqueue('more', 'k')").await;
    let (id, token) = claim_one(&client, "more").await;
    run(
        &client,
        &format!("SELECT fail({id}, {token}, 'x', permanent => true)"),
    )
    .await;
    assert_eq!(
        one(&client, &format!("SELECT outcome FROM requeue('{{{id}}}')")).await,
        "changed"
    );
    assert_eq!(
        one(
            &client,
            &format!("SELECT attempt, max_attempts FROM tasks WHERE id = {id}")
        )
        .await,
        "1|5"
    );
    assert_eq!(claim_one(&client, "more").await, (id, 3));
    assert_eq!(
        one(&client, &format!("SELECT attempt, eligible_at > (SELECT max(finished_at) FROM task_attempts WHERE task_id = {id}) FROM task_attempts WHERE task_id = {id} AND finished_at IS NULL")).await,
        "2|t",
        "the new try is eligible from the requeue on"
    );
}

#[tokio::test]
async fn cancel_ends_what_waits_and_asks_what_runs() {
    let (client, _) = six("cancel_ids").await;
    run(&client, "SELECT park('{6}')").await;
    run(
        &client,
        "SELECT enqueue('q', 'k', run_after => now() + interval '1 h')",
    )
    .await;
    assert_eq!(
        lines(
            &client,
            "SELECT * FROM cancel('{1,2,3,4,5,6,7,99}', reason => 'stop')"
        )
        .await,
        [
            "1|requested|processing|1",
            "2|requested|processing|1",
            "3|is completed|completed|1",
            "4|is failed|failed|1",
            "5|is cancelled|cancelled|1",
            "6|changed|cancelled|0",
            "7|changed|cancelled|0",
            "99|no such task|-|-"
        ]
    );
    assert_eq!(
        lines(&client, "SELECT cancel_requested_by = session_user, cancel_reason, lease_token, deferred FROM tasks WHERE id IN (1, 6, 7) ORDER BY id").await,
        ["t|stop|1|f", "t|stop|0|f", "t|stop|0|f"]
    );
    let asked = one(
        &client,
        "SELECT cancel_requested_at FROM tasks WHERE id = 1",
    )
    .await;
    assert_eq!(
        one(
            &client,
            "SELECT outcome FROM cancel('{1}', reason => 'again')"
        )
        .await,
        "already requested"
    );
    assert_eq!(
        one(
            &client,
            "SELECT cancel_requested_at, cancel_reason FROM tasks WHERE id = 1"
        )
        .await,
        format!("{asked}|stop")
    );
    assert_eq!(
        lines(&client, "SELECT * FROM reclaim()").await,
        ["2|cancelled"],
        "nobody answers: reclaim honours it"
    );
    assert_eq!(
        one(&client, "SELECT outcome FROM requeue('{6}')").await,
        "changed"
    );
    assert_eq!(
        one(
            &client,
            "SELECT cancel_requested_at, cancel_requested_by FROM tasks WHERE id = 6"
        )
        .await,
        "-|-"
    );
}

#[tokio::test]
async fn parked_tasks_wait_for_unpark() {
    let (client, _) = six("park").await;
    run(
        &client,
        "SELECT enqueue('q', 'k', run_after => now() + interval '1 h')",
    )
    .await;
    assert_eq!(
        lines(
            &client,
            "SELECT id, outcome, status FROM park('{1,2,3,6,7,99}', reason => 'poison')"
        )
        .await,
        [
            "1|is processing|processing",
            "2|is processing|processing",
            "3|is completed|completed",
            "6|changed|parked",
            "7|changed|parked",
            "99|no such task|-"
        ]
    );
    assert!(
        lines(&client, "SELECT id FROM claim('q', 'w', 9)")
            .await
            .is_empty()
    );
    assert_eq!(
        lines(&client, "SELECT id, outcome, status FROM unpark('{7,6,1}')").await,
        [
            "7|changed|enqueued",
            "6|changed|enqueued",
            "1|is processing|processing"
        ]
    );
    assert_eq!(
        lines(&client, "SELECT id, deferred, run_after > now() + interval '50 min' FROM tasks WHERE id > 5 ORDER BY id").await,
        ["6|f|f", "7|t|t"],
        "what was to run later still runs later"
    );
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w', 9)").await,
        ["6"]
    );
    assert_eq!(
        one(&client, "SELECT eligible_at > created_at FROM task_attempts JOIN tasks t ON t.id = task_id WHERE task_id = 6").await,
        "t",
        "time in the park is not waiting"
    );
}

#[tokio::test]
async fn only_what_was_seen_is_changed() {
    let (client, _) = six("seen").await;
    assert_eq!(
        lines(
            &client,
            "SELECT id, outcome FROM requeue('{4,5}', '{failed,failed}', '{1,1}')"
        )
        .await,
        ["4|changed", "5|changed since it was seen"]
    );
    assert_eq!(
        lines(
            &client,
            "SELECT id, outcome FROM requeue('{5,2}', NULL, '{7,1}')"
        )
        .await,
        ["5|changed since it was seen", "2|changed"]
    );
    assert_eq!(
        one(
            &client,
            "SELECT outcome FROM cancel('{2}', '{processing}', '{1}')"
        )
        .await,
        "changed since it was seen"
    );
    assert_eq!(
        one(
            &client,
            "SELECT outcome FROM requeue('{5}', '{NULL}', '{NULL}')"
        )
        .await,
        "changed",
        "NULL is not compared"
    );
    assert_eq!(
        refusal(&client, "SELECT requeue('{1,2}', '{failed}')").await,
        "22023"
    );
    assert_eq!(
        refusal(&client, "SELECT requeue('{1,2}', NULL, '{1}')").await,
        "22023"
    );
    assert_eq!(
        refusal(
            &client,
            "SELECT cancel(ARRAY(SELECT generate_series(1, 1001)))"
        )
        .await,
        "22023"
    );
    assert!(
        lines(&client, "SELECT * FROM requeue('{}')")
            .await
            .is_empty()
    );
    assert!(
        lines(&client, "SELECT * FROM requeue(NULL)")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn nobody_waits_for_a_row_that_somebody_else_is_changing() {
    let (client, config) = six("locked").await;
    let other = session(&config).await;
    run(
        &other,
        "BEGIN; SELECT 1 FROM tasks WHERE id IN (2, 4, 6) FOR UPDATE",
    )
    .await;
    run(&client, "SET lock_timeout = '1ms'").await;
    assert_eq!(
        lines(&client, "SELECT id, outcome FROM requeue('{4,5}')").await,
        ["4|locked by another session", "5|changed"]
    );
    assert_eq!(
        one(&client, "SELECT outcome FROM cancel('{6}')").await,
        "locked by another session"
    );
    assert!(lines(&client, "SELECT * FROM reclaim()").await.is_empty());
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w', 9)").await,
        ["5"]
    );
    run(&other, "ROLLBACK").await;
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w', 9)").await,
        ["6"]
    );
}

#[tokio::test]
async fn the_journal_says_who_it_was_whatever_the_client_says() {
    let (client, _) = six("journal").await;
    run(&client, "GRANT agent_queue_operator TO CURRENT_USER; SET ROLE agent_queue_operator; SET application_name = 'jobtop'").await;
    run(
        &client,
        "BEGIN; SELECT requeue('{4}');
         INSERT INTO operator_actions (action_id, who, from_host, action, ids, asked, changed, skipped, outcomes, reason)
         VALUES ('a-1', 'ada', 'laptop', 'requeue', '{4}', 1, 1, 0, '{\"4\": \"changed\"}', 'why not'); COMMIT",
    )
    .await;
    assert_eq!(
        one(&client, "SELECT who, db_user = session_user, client_addr, application_name, database = current_database(), at <= clock_timestamp() FROM operator_actions").await,
        "ada|t|-|jobtop|t|t"
    );
    let insert =
        "INSERT INTO operator_actions (action_id, who, action, ids, asked, changed, skipped";
    assert_eq!(
        refusal(
            &client,
            &format!("{insert}, db_user) VALUES ('a-2', 'x', 'requeue', '{{}}', 0, 0, 0, 'eve')")
        )
        .await,
        "42501"
    );
    assert_eq!(
        refusal(
            &client,
            &format!("{insert}, at) VALUES ('a-2', 'x', 'requeue', '{{}}', 0, 0, 0, now())")
        )
        .await,
        "42501"
    );
    assert_eq!(
        refusal(
            &client,
            &format!("{insert}) VALUES ('a-1', 'x', 'requeue', '{{}}', 0, 0, 0)")
        )
        .await,
        "23505",
        "a repeat is noticed"
    );
}
