//! Release, run now, reprioritize and requeue with fresh tries: what each changes, what it refuses, and with which word.

use super::operators::six;
use super::*;

/// The four, as calls on these ids.
fn calls(ids: &str, rest: &str) -> [String; 4] {
    [
        format!("release('{{{ids}}}'{rest})"),
        format!("run_now('{{{ids}}}'{rest})"),
        format!("reprioritize('{{{ids}}}'{rest}, priority => 7)"),
        format!("requeue_fresh('{{{ids}}}'{rest})"),
    ]
}

/// Makes a running task's lease look expired.
async fn expire(client: &Client, id: i64) {
    run(
        client,
        &format!("UPDATE tasks SET lease_expires_at = now() - interval '1 s' WHERE id = {id}"),
    )
    .await;
}

#[tokio::test]
async fn release_sends_an_expired_task_where_reclaim_would() {
    let (client, _) = six("release").await;
    run(
        &client,
        "SELECT enqueue('r', 'k') FROM generate_series(1, 3); SELECT claim('r', 'w', 3);
         INSERT INTO limits (queue, max_running) VALUES ('r', 3)",
    )
    .await;
    run(&client, "SELECT cancel('{8}')").await;
    for id in [7, 8] {
        expire(&client, id).await;
    }
    assert_eq!(
        lines(
            &client,
            "SELECT * FROM release('{8,9,7,1,2,3,4,5,6,99,7}', reason => 'that worker is gone')"
        )
        .await,
        [
            "8|changed|cancelled|1",
            "9|lease has not expired|processing|1",
            "7|changed|enqueued|1",
            "1|lease has not expired|processing|1",
            "2|changed|failed|1",
            "3|is completed|completed|1",
            "4|is failed|failed|1",
            "5|is cancelled|cancelled|1",
            "6|is enqueued|enqueued|0",
            "99|no such task|-|-"
        ],
        "one row per id, in the order asked; no tries left is failed, a pending cancel is honoured"
    );
    assert_eq!(
        lines(
            &client,
            "SELECT id, lease_token, locked_by, deferred, run_after > now() + interval '3 s', last_error, attempts_before
               FROM tasks WHERE id IN (2, 7, 8) ORDER BY id"
        )
        .await,
        [
            "2|2|-|f|f|lease expired, last held by w|0",
            "7|2|-|t|t|lease expired, last held by w|0",
            "8|2|-|f|f|lease expired, last held by w|0"
        ],
        "the token has risen, and a retry backs off"
    );
    assert_eq!(
        lines(&client, "SELECT task_id, outcome, error FROM task_attempts WHERE task_id IN (2, 7, 8) ORDER BY task_id").await,
        [
            "2|lease expired|lease expired, last held by w",
            "7|lease expired|lease expired, last held by w",
            "8|lease expired|lease expired, last held by w"
        ]
    );
    assert_eq!(
        lines(
            &client,
            "SELECT task_id FROM slots WHERE task_id IS NOT NULL"
        )
        .await,
        ["9"],
        "their slots are free"
    );
    // The zombies come back, and change nothing.
    for id in [2, 7, 8] {
        let before = one(
            &client,
            &format!("SELECT t::text FROM tasks t WHERE id = {id}"),
        )
        .await;
        for call in [
            format!("complete({id}, 1, '\"late\"')"),
            format!("fail({id}, 1, 'late')"),
            format!("cancelled({id}, 1)"),
        ] {
            assert_eq!(
                one(&client, &format!("SELECT {call}")).await,
                "stale lease token",
                "{call}"
            );
        }
        assert_eq!(
            one(
                &client,
                &format!("SELECT t::text FROM tasks t WHERE id = {id}")
            )
            .await,
            before
        );
    }
    assert!(
        lines(&client, "SELECT * FROM reclaim()").await.is_empty(),
        "nothing is left to reclaim"
    );
}

#[tokio::test]
async fn release_asks_the_clock_and_not_the_transaction() {
    let (client, _) = queue("release_clock").await;
    run(&client, "SELECT enqueue('q', 'k')").await;
    run(&client, "SELECT claim('q', 'w')").await;
    run(
        &client,
        "BEGIN; UPDATE tasks SET lease_expires_at = clock_timestamp() + interval '20 ms'; SELECT pg_sleep(0.05)",
    )
    .await;
    assert_eq!(
        one(&client, "SELECT now() < lease_expires_at FROM tasks").await,
        "t",
        "by the time of the transaction the lease is alive"
    );
    assert_eq!(
        one(&client, "SELECT outcome FROM release('{1}')").await,
        "changed"
    );
    run(&client, "COMMIT").await;
}

#[tokio::test]
async fn run_now_makes_what_waits_for_its_time_claimable() {
    let (client, _) = six("run_now").await;
    run(
        &client,
        "SELECT enqueue('later', 'k', run_after => now() + interval '1 h')",
    )
    .await;
    run(&client, "SELECT enqueue('retry', 'k')").await;
    let (retry, token) = claim_one(&client, "retry").await;
    run(
        &client,
        &format!("SELECT fail({retry}, {token}, '429', retry_after => '1 h')"),
    )
    .await;
    run(
        &client,
        "SELECT enqueue('aside', 'k', run_after => now() + interval '1 h'); SELECT park('{9}')",
    )
    .await;
    for queue in ["later", "retry"] {
        assert!(
            lines(&client, &format!("SELECT id FROM claim('{queue}', 'w')"))
                .await
                .is_empty()
        );
    }
    assert_eq!(
        lines(&client, "SELECT * FROM run_now('{9,8,7,6,5,4,3,2,1,99}')").await,
        [
            "9|is parked|parked|0",
            "8|changed|enqueued|1",
            "7|changed|enqueued|0",
            "6|is due already|enqueued|0",
            "5|is cancelled|cancelled|1",
            "4|is failed|failed|1",
            "3|is completed|completed|1",
            "2|is processing|processing|1",
            "1|is processing|processing|1",
            "99|no such task|-|-"
        ]
    );
    assert_eq!(
        lines(&client, "SELECT id, deferred, attempt, max_attempts, lease_token, last_error FROM tasks WHERE id IN (7, 8) ORDER BY id").await,
        ["7|f|0|5|0|-", "8|f|1|5|1|429"],
        "tries and token are not touched"
    );
    assert_eq!(
        one(&client, "SELECT outcome FROM run_now('{7}')").await,
        "is due already"
    );
    for (queue, id) in [("later", 7), ("retry", 8)] {
        assert_eq!(claim_one(&client, queue).await.0, id);
    }
    assert_eq!(
        lines(&client, "SELECT task_id, attempt, eligible_at > now() - interval '1 min' AND eligible_at <= claimed_at
            FROM task_attempts WHERE task_id IN (7, 8) AND finished_at IS NULL ORDER BY task_id").await,
        ["7|1|t", "8|2|t"],
        "they wait since they were made due, and not for a negative time"
    );
    // Came due by itself, and no claim has moved it yet: nothing to do.
    run(&client, "SELECT enqueue('soon', 'k', run_after => now() + interval '1 h'); UPDATE tasks SET run_after = now() - interval '1 s' WHERE queue = 'soon'").await;
    assert_eq!(
        one(
            &client,
            "SELECT r.outcome, t.deferred FROM tasks t, run_now(ARRAY[t.id]) r WHERE t.queue = 'soon'"
        )
        .await,
        "is due already|t"
    );
}

#[tokio::test]
async fn a_new_priority_moves_a_task_in_the_order_of_claims() {
    let (client, _) = six("priority").await;
    run(&client, "SELECT enqueue('p', 'k', priority => p) FROM unnest('{5,5,5,5}'::int[]) p; SELECT park('{10}')").await;
    assert_eq!(
        lines(
            &client,
            "SELECT * FROM reprioritize('{10,9,7,3,2,99}', priority => 9)"
        )
        .await,
        [
            "10|changed|parked|0",
            "9|changed|enqueued|0",
            "7|changed|enqueued|0",
            "3|is completed|completed|1",
            "2|is processing|processing|1",
            "99|no such task|-|-"
        ]
    );
    assert_eq!(
        lines(
            &client,
            "SELECT id, outcome FROM reprioritize('{7,8}', priority => 5)"
        )
        .await,
        ["7|changed", "8|has that priority already"]
    );
    run(&client, "SELECT reprioritize('{7}', priority => -1)").await;
    run(&client, "SELECT unpark('{10}')").await;
    assert_eq!(
        lines(&client, "SELECT id FROM claim('p', 'w', 9)").await,
        ["9", "10", "8", "7"]
    );
    // The same by kinds, and of what waits for its time.
    run(&client, "SELECT enqueue('kinds', k) FROM unnest('{a,b}'::text[]) k; SELECT reprioritize('{12}', priority => 1)").await;
    assert_eq!(
        lines(
            &client,
            "SELECT id FROM claim('kinds', 'w', 9, kinds => '{a,b}')"
        )
        .await,
        ["12", "11"]
    );
    run(&client, "SELECT enqueue('wait', 'k', run_after => now() + interval '1 h'); SELECT reprioritize('{13}', priority => 1)").await;
    assert_eq!(
        one(
            &client,
            "SELECT priority, deferred FROM tasks WHERE id = 13"
        )
        .await,
        "1|t"
    );
    for none in [
        "reprioritize('{6}')",
        "reprioritize('{6}', priority => NULL)",
    ] {
        assert_eq!(
            refusal(&client, &format!("SELECT {none}")).await,
            "22023",
            "{none}"
        );
    }
}

#[tokio::test]
async fn requeue_fresh_gives_as_many_tries_again_and_keeps_the_history() {
    let (client, _) = six("fresh").await;
    assert_eq!(
        lines(
            &client,
            "SELECT * FROM requeue_fresh('{5,1,2,3,4,6,99,4}', reason => 'provider is back')"
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
        "what requeue takes and refuses"
    );
    assert_eq!(
        lines(
            &client,
            "SELECT id, lease_token, attempt, max_attempts, attempts_before, deferred, locked_by, finished_at, cancel_requested_at
               FROM tasks WHERE id IN (2, 4, 5) ORDER BY id"
        )
        .await,
        ["2|2|1|2|1|f|-|-|-", "4|2|1|2|1|f|-|-|-", "5|2|1|2|1|f|-|-|-"]
    );
    assert_eq!(
        one(&client, "SELECT complete(2, 1, '\"late\"')").await,
        "stale lease token",
        "the old owner is shut out"
    );
    assert_eq!(
        one(&client, "SELECT status, result FROM tasks WHERE id = 2").await,
        "enqueued|-"
    );

    // Three tries a round, round after round. Their numbers go on rising, and none is lost.
    run(&client, "SELECT enqueue('round', 'k', max_attempts => 3)").await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        loop {
            let (id, token) = claim_one(&client, "round").await;
            let answer = one(
                &client,
                &format!("SELECT fail({id}, {token}, 'x', retry_after => '0 s')"),
            )
            .await;
            let over = answer == "failed";
            answers.push(answer);
            if over {
                break;
            }
        }
        assert_eq!(
            one(&client, "SELECT outcome FROM requeue_fresh('{7}')").await,
            "changed"
        );
    }
    assert_eq!(
        answers,
        ["retry scheduled", "retry scheduled", "failed"].repeat(3)
    );
    assert_eq!(
        one(&client, "SELECT attempt, attempts_before, max_attempts, attempt - attempts_before, max_attempts - attempts_before FROM tasks WHERE id = 7").await,
        "9|9|12|0|3",
        "try 0 of 3"
    );
    assert_eq!(
        one(&client, "SELECT string_agg(attempt::text, ',' ORDER BY attempt) FROM task_attempts WHERE task_id = 7 AND outcome = 'failed'").await,
        "1,2,3,4,5,6,7,8,9"
    );
    // Half way: the rest of the round is not added to the next. And a plain requeue goes on from here.
    let (id, token) = claim_one(&client, "round").await;
    run(
        &client,
        &format!("SELECT fail({id}, {token}, 'x', permanent => true)"),
    )
    .await;
    run(&client, "SELECT requeue_fresh('{7}')").await;
    assert_eq!(
        one(
            &client,
            "SELECT attempt, attempts_before, max_attempts FROM tasks WHERE id = 7"
        )
        .await,
        "10|10|13"
    );
    let (id, token) = claim_one(&client, "round").await;
    run(
        &client,
        &format!("SELECT fail({id}, {token}, 'x', permanent => true)"),
    )
    .await;
    run(&client, "SELECT requeue('{7}')").await;
    assert_eq!(
        one(
            &client,
            "SELECT attempt, attempts_before, max_attempts FROM tasks WHERE id = 7"
        )
        .await,
        "11|10|13"
    );
    // As many tries as a number can hold are not more than that.
    run(&client, "UPDATE tasks SET max_attempts = 2147483647, status = 'failed', finished_at = now() WHERE id = 7; UPDATE tasks SET attempts_before = 0 WHERE id = 7").await;
    assert_eq!(
        one(&client, "SELECT outcome FROM requeue_fresh('{7}')").await,
        "changed"
    );
    assert_eq!(
        one(
            &client,
            "SELECT attempts_before, max_attempts FROM tasks WHERE id = 7"
        )
        .await,
        "11|2147483647"
    );
}

#[tokio::test]
async fn each_changes_only_what_was_seen_and_says_so_per_id() {
    let (client, _) = six("adjust_seen").await;
    run(
        &client,
        "SELECT enqueue('q', 'k', run_after => now() + interval '1 h')",
    )
    .await;
    let before = lines(&client, "SELECT t::text FROM tasks t ORDER BY id").await;
    for call in calls("2,4,7", ", '{processing,failed,enqueued}', '{9,9,9}'")
        .iter()
        .chain(&calls("2,4,7", ", '{completed,enqueued,failed}'"))
    {
        assert_eq!(
            lines(&client, &format!("SELECT id, outcome FROM {call}")).await,
            [2, 4, 7].map(|id| format!("{id}|changed since it was seen")),
            "{call}"
        );
    }
    assert_eq!(
        lines(&client, "SELECT t::text FROM tasks t ORDER BY id").await,
        before
    );
    // What was seen rightly is changed, each in the same call as one that was not.
    for (call, expected) in [
        (
            "release('{4,2}', '{enqueued,processing}', '{1,1}')",
            ["4|changed since it was seen", "2|changed"],
        ),
        (
            "run_now('{7,6}', '{enqueued,enqueued}', '{0,3}')",
            ["7|changed", "6|changed since it was seen"],
        ),
        (
            "reprioritize('{6,7}', '{enqueued,parked}', '{NULL,0}', priority => 3)",
            ["6|changed", "7|changed since it was seen"],
        ),
        (
            "requeue_fresh('{5,4}', '{failed,failed}', '{1,NULL}')",
            ["5|changed since it was seen", "4|changed"],
        ),
    ] {
        assert_eq!(
            lines(&client, &format!("SELECT id, outcome FROM {call}")).await,
            expected,
            "{call}"
        );
    }
    for call in calls("1,2", ", '{failed}'")
        .iter()
        .chain(&calls("1,2", ", NULL, '{1}'"))
    {
        assert_eq!(
            refusal(&client, &format!("SELECT {call}")).await,
            "22023",
            "{call}"
        );
    }
    let many: Vec<String> = (1..=1001).map(|id| id.to_string()).collect();
    for call in calls(&many.join(","), "") {
        assert_eq!(
            refusal(&client, &format!("SELECT {call}")).await,
            "22023",
            "1001 ids"
        );
    }
    for call in calls("", "") {
        assert!(
            lines(&client, &format!("SELECT * FROM {call}"))
                .await
                .is_empty(),
            "{call}"
        );
    }
}

#[tokio::test]
async fn a_thousand_tasks_are_one_call() {
    let (client, _) = queue("thousand").await;
    run(&client, "SELECT enqueue('q', 'k', max_attempts => 1) FROM generate_series(1, 1000); SELECT claim('q', 'w', 1000, '1 ms'); SELECT pg_sleep(0.01)").await;
    let ids = "ARRAY(SELECT id FROM tasks ORDER BY id DESC)";
    for call in [
        format!("requeue_fresh({ids})"),
        format!("reprioritize({ids}, priority => 3)"),
    ] {
        assert_eq!(
            lines(
                &client,
                &format!("SELECT outcome, status, count(*) FROM {call} GROUP BY 1, 2")
            )
            .await,
            ["changed|enqueued|1000"],
            "{call}"
        );
    }
    assert_eq!(
        lines(
            &client,
            &format!("SELECT id FROM run_now({ids}) WITH ORDINALITY ORDER BY ordinality LIMIT 3")
        )
        .await,
        ["1000", "999", "998"]
    );
}

#[tokio::test]
async fn nobody_waits_for_a_row_that_somebody_else_holds() {
    let (client, config) = six("adjust_locked").await;
    run(
        &client,
        "SELECT enqueue('q', 'k', run_after => now() + interval '1 h') FROM generate_series(1, 2)",
    )
    .await;
    let other = session(&config).await;
    run(
        &other,
        "BEGIN; SELECT 1 FROM tasks WHERE id IN (2, 4, 7) FOR UPDATE",
    )
    .await;
    run(&client, "SET lock_timeout = '1ms'").await;
    for call in calls("2,4,7", "") {
        assert_eq!(
            lines(&client, &format!("SELECT id, outcome FROM {call}")).await,
            [2, 4, 7].map(|id| format!("{id}|locked by another session")),
            "{call}"
        );
    }
    assert_eq!(
        lines(&client, "SELECT id, outcome FROM run_now('{7,8}')").await,
        ["7|locked by another session", "8|changed"],
        "the others are changed"
    );
    run(&other, "ROLLBACK").await;
    assert_eq!(
        lines(&client, "SELECT id, outcome FROM run_now('{7}')").await,
        ["7|changed"]
    );
}

#[tokio::test]
async fn all_rows_are_locked_before_the_first_is_changed() {
    let (client, config) = six("adjust_order").await;
    run(
        &client,
        "SELECT enqueue('q', 'k') FROM generate_series(1, 4);
         CREATE TABLE seen (n bigint GENERATED ALWAYS AS IDENTITY, id bigint, locked bigint[])",
    )
    .await;
    // When the first row is changed, all that were asked for are locked already: their xmax is this transaction.
    run(
        &client,
        "CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO agent_queue.seen (id, locked)
             SELECT NEW.id, array_agg(t.id ORDER BY t.id) FROM agent_queue.tasks t WHERE t.xmax = pg_current_xact_id()::xid;
             RETURN NULL; END $$;
         CREATE TRIGGER seen AFTER UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION seen()",
    )
    .await;
    run(&client, "SELECT reprioritize('{9,7,8}', priority => 1)").await;
    assert_eq!(
        one(&client, "SELECT id, locked FROM seen ORDER BY n LIMIT 1").await,
        "9|{7,8,9}"
    );
    let other = session(&config).await;
    run(
        &client,
        "BEGIN; SELECT reprioritize('{10,8}', priority => 2)",
    )
    .await;
    assert_eq!(
        lines(
            &other,
            "SELECT id, outcome FROM reprioritize('{8,9,10}', priority => 3)"
        )
        .await,
        [
            "8|locked by another session",
            "9|changed",
            "10|locked by another session"
        ]
    );
    run(&client, "ROLLBACK").await;
}
