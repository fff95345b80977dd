//! No queue runs more, or spends more, than its limits say: however many claim at once, and while the limits move.

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const CLIENTS: usize = 24;

/// `CLIENTS` claims of `batch` tasks at the same time, `times` in a row each: the ids they got.
async fn claim_at_once(clients: &[std::sync::Arc<Client>], batch: usize, times: usize) -> Vec<i64> {
    let claims = clients.iter().enumerate().map(|(n, client)| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut got = Vec::new();
            for _ in 0..times {
                let sql = format!("SELECT id FROM claim('q', 'w{n}', {batch})");
                got.extend(
                    lines(&client, &sql)
                        .await
                        .iter()
                        .map(|id| id.parse::<i64>().unwrap()),
                );
                tokio::task::yield_now().await;
            }
            got
        })
    });
    let mut all = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        all.extend(claim.await.unwrap());
    }
    all
}

/// The same until nothing is left: claims that meet in the decision about tokens go away empty-handed, and ask again.
async fn claim_out(clients: &[std::sync::Arc<Client>]) -> Vec<i64> {
    let mut all = claim_at_once(clients, 2, 3).await;
    all.extend(claim_at_once(&clients[..1], 100, 1).await);
    all
}

async fn many(config: &Config) -> Vec<std::sync::Arc<Client>> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(std::sync::Arc::new(session(config).await));
    }
    clients
}

async fn complete(client: &Client, ids: &[i64]) {
    for id in ids {
        let sql = format!("SELECT complete({id}, (SELECT lease_token FROM tasks WHERE id = {id}))");
        assert_eq!(one(client, &sql).await, "ok");
    }
}

const RUNNING: &str = "SELECT count(*) FROM tasks WHERE status = 'processing'";

#[tokio::test]
async fn twenty_four_clients_never_run_more_than_the_limit() {
    let (client, config) = queue("limit").await;
    run(
        &client,
        "SELECT enqueue('q', 'k') FROM generate_series(1, 2000)",
    )
    .await;
    run(
        &client,
        "INSERT INTO limits (queue, max_running) VALUES ('q', 20)",
    )
    .await;
    let clients = many(&config).await;
    for round in 0..10 {
        let got = claim_at_once(&clients, 1 + round % 3, 4).await;
        assert_eq!(got.len(), 20, "round {round}");
        assert_eq!(number(&client, RUNNING).await, 20);
        complete(&client, &got).await;
    }
    // And while tasks end all the time: every snapshot anybody takes has at most 20.
    let workers = clients.iter().take(12).cloned().map(|client| {
        tokio::spawn(async move {
            for _ in 0..40 {
                run(
                    &client,
                    "SELECT complete(c.id, c.lease_token) FROM claim('q', 'w', 3) c",
                )
                .await;
                let got = rows(&client, "SELECT id, lease_token FROM claim('q', 'w', 3)").await;
                let seen = number(&client, RUNNING).await;
                assert!(seen <= 20, "{seen} run");
                for row in got {
                    run(&client, &format!("SELECT complete({}, {})", row[0], row[1])).await;
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(number(&client, RUNNING).await, 0);
    assert_eq!(
        one(&client, "SELECT count(*), count(task_id) FROM slots").await,
        "20|0"
    );
}

#[tokio::test]
async fn a_limit_may_move_while_tasks_run() {
    let (client, config) = queue("moving").await;
    run(
        &client,
        "SELECT enqueue('q', 'k') FROM generate_series(1, 5000)",
    )
    .await;
    let clients = many(&config).await;
    let mut random = StdRng::seed_from_u64(7);
    // Six run before there is any limit: they count.
    let mut running = claim_at_once(&clients[..6], 1, 1).await;
    assert_eq!(running.len(), 6);
    let mut seen = (0, 0);
    for step in 0..60 {
        let limit = random.random_range(0..30usize);
        if random.random_bool(0.1) {
            run(
                &client,
                if step % 2 == 0 {
                    "DELETE FROM limits"
                } else {
                    "UPDATE limits SET max_running = NULL"
                },
            )
            .await;
            running.extend(claim_at_once(&clients[..3], 1, 1).await);
        }
        run(
            &client,
            &format!("INSERT INTO limits (queue, max_running) VALUES ('q', {limit}) ON CONFLICT (queue) DO UPDATE SET max_running = {limit}"),
        )
        .await;
        for _ in 0..2 {
            let got = claim_at_once(&clients[..8], 2, 3).await;
            let room = limit.saturating_sub(running.len());
            assert!(
                got.len() <= room,
                "step {step}: {} claimed, room for {room}",
                got.len()
            );
            // One client alone takes exactly what is left.
            let rest = claim_at_once(&clients[..1], 100, 1).await;
            assert_eq!(
                got.len() + rest.len(),
                room,
                "step {step}: limit {limit}, {} ran",
                running.len()
            );
            seen = (
                seen.0 + usize::from(room == 0),
                seen.1 + usize::from(room > 0),
            );
            running.extend(got);
            running.extend(rest);
            running.shuffle(&mut random);
            let ending = random.random_range(0..=running.len());
            complete(&client, &running.split_off(ending)).await;
        }
        assert_eq!(number(&client, RUNNING).await, running.len() as i64);
    }
    assert!(
        seen.0 > 20 && seen.1 > 20,
        "both sides of the limit were seen: {seen:?}"
    );
    complete(&client, &running).await;
    assert_eq!(one(&client, "SELECT count(task_id) FROM slots").await, "0");
}

#[tokio::test]
async fn a_limit_lowered_in_the_middle_of_claims_holds_from_its_commit_on() {
    let (client, config) = queue("lowered").await;
    run(
        &client,
        "SELECT enqueue('q', 'k') FROM generate_series(1, 20000)",
    )
    .await;
    run(
        &client,
        "INSERT INTO limits (queue, max_running) VALUES ('q', 20)",
    )
    .await;
    let mut workers = Vec::new();
    for worker in many(&config).await.into_iter().take(12) {
        workers.push(tokio::spawn(async move {
            for _ in 0..60 {
                for row in rows(&worker, "SELECT id, lease_token FROM claim('q', 'w', 2)").await {
                    assert_eq!(
                        one(&worker, &format!("SELECT complete({}, {})", row[0], row[1])).await,
                        "ok"
                    );
                }
            }
        }));
    }
    let mut changes = 0;
    while !workers.iter().all(tokio::task::JoinHandle::is_finished) {
        let limit = [2, 20, 5][changes % 3];
        run(&client, &format!("UPDATE limits SET max_running = {limit}")).await;
        let mut most = i64::MAX;
        for _ in 0..5 {
            // Running tasks above the limit only become fewer: once at or below it, never above it again.
            let now = number(&client, RUNNING).await;
            assert!(
                now <= most.max(limit),
                "limit {limit}: {now} run after {most}"
            );
            most = now;
        }
        changes += 1;
    }
    for worker in workers {
        worker.await.unwrap();
    }
    assert!(changes > 5);
}

#[tokio::test]
async fn a_limits_change_left_open_stops_claims_but_blocks_nobody() {
    let (client, config) = queue("gate").await;
    run(&client, "SELECT enqueue('q', 'k'), enqueue('other', 'k')").await;
    run(
        &client,
        "INSERT INTO limits (queue, max_running) VALUES ('q', 1)",
    )
    .await;
    let admin = session(&config).await;
    run(&admin, "BEGIN; UPDATE limits SET max_running = 2").await;
    run(&client, "SET lock_timeout = '1ms'").await;
    assert!(
        lines(&client, "SELECT id FROM claim('q', 'w')")
            .await
            .is_empty()
    );
    assert_eq!(
        lines(&client, "SELECT id FROM claim('other', 'w')").await,
        ["2"]
    );
    run(&admin, "ROLLBACK").await;
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w')").await,
        ["1"]
    );
    assert_eq!(
        refusal(&client, "UPDATE limits SET max_running = -1").await,
        "23514"
    );
    assert_eq!(
        refusal(&client, "UPDATE limits SET tokens_per_minute = 10").await,
        "23514",
        "one task must fit"
    );
    run(&client, "UPDATE limits SET max_running = 0").await;
    run(&client, "SELECT enqueue('q', 'k')").await;
    assert!(
        lines(&client, "SELECT id FROM claim('q', 'w')")
            .await
            .is_empty(),
        "0 stops a queue"
    );
}

#[tokio::test]
async fn every_end_of_a_try_gives_its_slot_back() {
    let (client, _) = queue("slots").await;
    run(
        &client,
        "INSERT INTO limits (queue, max_running) VALUES ('q', 6)",
    )
    .await;
    run(
        &client,
        "SELECT enqueue('q', 'k', max_attempts => 1) FROM generate_series(1, 6)",
    )
    .await;
    run(&client, "SELECT claim('q', 'w', 6)").await;
    assert_eq!(one(&client, "SELECT count(task_id) FROM slots").await, "6");
    run(&client, "SELECT cancel('{3}')").await;
    run(
        &client,
        "UPDATE tasks SET lease_expires_at = now() - interval '1 s' WHERE id IN (5, 6)",
    )
    .await;
    for (call, held) in [
        ("complete(1, 1)", 5),
        ("fail(2, 1, 'x')", 4),
        ("cancelled(3, 1)", 3),
        ("requeue('{5}')", 2),
        ("reclaim()", 1),
        ("fail(4, 1, 'x', '0')", 0),
    ] {
        run(&client, &format!("SELECT {call}")).await;
        assert_eq!(
            number(&client, "SELECT count(task_id) FROM slots").await,
            held,
            "{call}"
        );
    }
}

#[tokio::test]
async fn twenty_four_clients_never_promise_more_tokens_than_there_are() {
    let (client, config) = queue("tokens").await;
    run(
        &client,
        "SELECT enqueue('q', 'k') FROM generate_series(1, 500)",
    )
    .await;
    run(
        &client,
        "INSERT INTO limits (queue, tokens_per_minute, tokens_per_task) VALUES ('q', 10000, 1000)",
    )
    .await;
    let clients = many(&config).await;
    let first = claim_out(&clients).await;
    assert_eq!(first.len(), 10);
    // Reported: 6 of 10 tries spent 400 of the 1,000 they were expected to. As long as they run, they may spend the rest.
    for id in &first[..6] {
        run(
            &client,
            &format!("SELECT report_usage('call-{id}', {id}, 1, 'm', 300, 100)"),
        )
        .await;
        run(
            &client,
            &format!("SELECT report_usage('call-{id}', {id}, 1, 'm', 300, 100)"),
        )
        .await;
    }
    assert_eq!(claim_out(&clients).await.len(), 0);
    // They end: 6 x 400 are spent, 4 x 1,000 may still come, which leaves room for three more.
    complete(&client, &first[..6]).await;
    let second = claim_out(&clients).await;
    assert_eq!(second.len(), 3);
    // A try that ended without a report keeps its share for a minute.
    complete(&client, &first[6..]).await;
    assert_eq!(claim_out(&clients).await.len(), 0);
    run(
        &client,
        "UPDATE token_reservations SET until = until - interval '1 min' WHERE until < 'infinity'",
    )
    .await;
    let third = claim_out(&clients).await;
    assert_eq!(third.len(), 4);
    assert_eq!(
        number(&client, "SELECT count(*) FROM token_reservations").await,
        7,
        "past ones are removed"
    );
    // And what was spent counts for a minute.
    run(
        &client,
        "UPDATE usage SET reported_at = reported_at - interval '1 min'",
    )
    .await;
    assert_eq!(claim_out(&clients).await.len(), 3, "10 of 10 reserved");
    // A try that spends more than was expected is seen as soon as it is reported.
    run(
        &client,
        &format!("SELECT report_usage('big', {}, 1, 'm', 5000, 0)", third[0]),
    )
    .await;
    complete(&client, &second).await;
    complete(&client, &third).await;
    run(
        &client,
        "UPDATE token_reservations SET until = now() WHERE until < 'infinity'",
    )
    .await;
    assert_eq!(claim_out(&clients).await.len(), 2, "5,000 spent, 3 running");
}

#[tokio::test]
async fn a_token_limit_counts_what_ran_before_it() {
    let (client, _) = queue("tokens_late").await;
    run(
        &client,
        "SELECT enqueue('q', 'k') FROM generate_series(1, 20)",
    )
    .await;
    run(&client, "SELECT claim('q', 'w', 4)").await;
    run(&client, "SELECT report_usage('c', 1, 1, 'm', 2000, 0)").await;
    run(&client, "INSERT INTO limits (queue, tokens_per_minute, tokens_per_task, max_running) VALUES ('q', 10000, 1000, 7)").await;
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w', 20)")
            .await
            .len(),
        3,
        "the slots are the tighter limit"
    );
    run(&client, "UPDATE limits SET max_running = NULL").await;
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w', 20)")
            .await
            .len(),
        1,
        "2,000 spent, 7 x 1,000 expected"
    );
    run(&client, "UPDATE limits SET tokens_per_minute = 0").await;
    run(
        &client,
        "SELECT complete(id, lease_token) FROM tasks WHERE status = 'processing'",
    )
    .await;
    assert!(
        lines(&client, "SELECT id FROM claim('q', 'w', 20)")
            .await
            .is_empty()
    );
    run(&client, "DELETE FROM limits").await;
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w', 20)")
            .await
            .len(),
        12
    );
}

#[tokio::test]
async fn what_is_changed_by_hand_gives_its_slot_back_at_the_next_reclaim() {
    let (client, config) = queue("by_hand").await;
    run(
        &client,
        "INSERT INTO limits (queue, max_running, tokens_per_minute) VALUES ('q', 4, 4000)",
    )
    .await;
    run(
        &client,
        "SELECT enqueue('q', 'k') FROM generate_series(1, 20)",
    )
    .await;
    run(&client, "SELECT claim('q', 'w', 4)").await;
    run(&client, "DELETE FROM tasks WHERE id = 1").await;
    run(
        &client,
        "UPDATE tasks SET status = 'failed', finished_at = now() WHERE id = 2",
    )
    .await;
    // Not while somebody is in the middle of it.
    let other = session(&config).await;
    run(&other, "BEGIN; SELECT complete(3, 1)").await;
    run(&client, "SET lock_timeout = '1ms'; SELECT reclaim()").await;
    assert_eq!(
        lines(
            &client,
            "SELECT task_id FROM slots WHERE task_id IS NOT NULL ORDER BY 1"
        )
        .await,
        ["3", "4"]
    );
    assert_eq!(
        lines(
            &client,
            "SELECT task_id FROM token_reservations WHERE until = 'infinity' ORDER BY 1"
        )
        .await,
        ["3", "4"]
    );
    run(&other, "ROLLBACK").await;
    run(&client, "SELECT reclaim()").await;
    assert_eq!(
        number(&client, "SELECT count(task_id) FROM slots").await,
        2,
        "what runs keeps its slot"
    );
    run(
        &client,
        "UPDATE token_reservations SET until = now() WHERE until < 'infinity'",
    )
    .await;
    assert_eq!(
        lines(&client, "SELECT id FROM claim('q', 'w', 9)").await,
        ["5", "6"]
    );
    run(&client, "SET lock_timeout = 0; TRUNCATE tasks CASCADE").await;
    run(&client, "SELECT reclaim()").await;
    assert_eq!(
        one(&client, "SELECT count(*), count(task_id) FROM slots").await,
        "4|0"
    );
    run(
        &client,
        "UPDATE token_reservations SET until = now() WHERE until < 'infinity'",
    )
    .await;
    // Set back to the beginning by hand: the queue goes on.
    run(&client, "SELECT enqueue('q', 'k')").await;
    let (id, token) = claim_one(&client, "q").await;
    run(
        &client,
        &format!("UPDATE tasks SET status = 'enqueued', attempt = 0 WHERE id = {id}"),
    )
    .await;
    assert_eq!(claim_one(&client, "q").await, (id, token + 1));
    assert_eq!(
        one(&client, &format!("SELECT complete({id}, {})", token + 1)).await,
        "ok"
    );
    assert_eq!(
        one(&client, "SELECT count(*), count(task_id) FROM slots").await,
        "4|0"
    );
}
