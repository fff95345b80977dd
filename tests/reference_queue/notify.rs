//! The optional notification: that it comes, how seldom, and that it goes.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, NoTls};

use super::*;

/// Listens to a channel; what arrives comes as (channel, payload).
async fn listen(config: &Config, channel: &str) -> (Client, UnboundedReceiver<(String, String)>) {
    let (client, mut connection) = config.connect(NoTls).await.expect("a connection");
    let (send, receive) = unbounded_channel();
    tokio::spawn(async move {
        let mut messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(n) = message {
                let _ = send.send((n.channel().to_owned(), n.payload().to_owned()));
            }
        }
    });
    client
        .batch_execute(&format!("LISTEN \"{channel}\""))
        .await
        .expect("LISTEN");
    (client, receive)
}

/// All that has arrived so far: a round trip on the listener's own connection brings what is pending.
async fn arrived(
    listener: &Client,
    receive: &mut UnboundedReceiver<(String, String)>,
) -> Vec<(String, String)> {
    run(listener, "SELECT pg_sleep(0.02)").await;
    run(listener, "SELECT 1").await;
    std::iter::from_fn(|| receive.try_recv().ok()).collect()
}

/// Shuts the gate as if something had been announced `ms` from now.
fn last(ms: i64) -> String {
    format!(
        "SELECT setval('notify_gate', (extract(epoch FROM clock_timestamp()) * 1000)::bigint + {ms})"
    )
}

#[tokio::test]
async fn changes_are_announced_with_an_empty_payload_and_not_too_often() {
    let (client, config) = queue("notify").await;
    let mut admin = common::connect(&config).await;
    let (listener, mut receive) = listen(&config, "agent_queue_tasks").await;
    run(&client, "SELECT enqueue('q', 'k')").await;
    assert!(
        arrived(&listener, &mut receive).await.is_empty(),
        "off unless asked for"
    );
    for _ in 0..2 {
        let report = apply(&mut admin, SCHEMA, NotifyChange::Install)
            .await
            .unwrap();
        assert!(report.notify);
    }
    assert!(
        apply(&mut admin, SCHEMA, NotifyChange::Keep)
            .await
            .unwrap()
            .notify,
        "kept"
    );

    let announced = [("agent_queue_tasks".to_owned(), String::new())];
    // An insert, and an update of the status; each after a quiet time (also one in the future, after the clock was set back).
    for (quiet, sql) in [
        (-1000, "SELECT enqueue('q', 'k')"),
        (-1000, "SELECT claim('q', 'w')"),
        (3_600_000, "SELECT complete(1, 1)"),
        (-1000, "SELECT cancel('{2}')"),
    ] {
        run(&client, &last(quiet)).await;
        run(&client, sql).await;
        assert_eq!(arrived(&listener, &mut receive).await, announced, "{sql}");
    }
    // Other columns are not announced.
    run(&client, "SELECT enqueue('q', 'k'), claim('q', 'w')").await;
    let _ = arrived(&listener, &mut receive).await;
    run(&client, &last(-1000)).await;
    assert_eq!(one(&client, "SELECT outcome FROM tasks t, heartbeat(t.id, t.lease_token) WHERE t.status = 'processing' LIMIT 1").await, "ok");
    assert!(arrived(&listener, &mut receive).await.is_empty());
    // A cancel that a worker must be told of is, and so is what an operator makes due; a word that changes nothing is not.
    run(
        &client,
        "SELECT enqueue('later', 'k', run_after => now() + interval '1 h')",
    )
    .await;
    let _ = arrived(&listener, &mut receive).await;
    let running = one(
        &client,
        "SELECT id FROM tasks WHERE status = 'processing' LIMIT 1",
    )
    .await;
    let later = one(&client, "SELECT id FROM tasks WHERE queue = 'later'").await;
    for (sql, outcome, heard) in [
        (format!("cancel('{{{running}}}')"), "requested", true),
        (
            format!("cancel('{{{running}}}')"),
            "already requested",
            false,
        ),
        (format!("run_now('{{{later}}}')"), "changed", true),
        (format!("run_now('{{{later}}}')"), "is due already", false),
    ] {
        run(&client, &last(-1000)).await;
        assert_eq!(
            one(&client, &format!("SELECT outcome FROM {sql}")).await,
            outcome
        );
        let announced = if heard { &announced[..] } else { &[] };
        assert_eq!(arrived(&listener, &mut receive).await, announced, "{sql}");
    }
    // The gate is the same for them.
    let mut silent = false;
    for n in 0..20 {
        let sql = format!(
            "SELECT run_now(ARRAY[enqueue('later', 'k', run_after => now() + interval '1 h')]), {n}"
        );
        run(&client, &format!("{}; {sql}", last(95))).await;
        silent |= arrived(&listener, &mut receive).await.is_empty();
    }
    assert!(silent, "the gate never shut for what is made due");
    // What is rolled back is not announced.
    run(&client, &last(-1000)).await;
    run(&client, "BEGIN; SELECT enqueue('q', 'k'); ROLLBACK").await;
    assert!(arrived(&listener, &mut receive).await.is_empty());

    // While the gate is shut nothing is said. It opens by itself after 100 ms; a machine that stood still for as long may try again.
    let mut silent = false;
    for _ in 0..20 {
        run(&client, &format!("{}; SELECT enqueue('q', 'k')", last(95))).await;
        silent |= arrived(&listener, &mut receive).await.is_empty();
    }
    assert!(silent, "the gate never shut");
    // Many changes: at most one announcement per 100 ms.
    run(&client, &last(-1000)).await;
    let begun = Instant::now();
    let mut workers = Vec::new();
    for _ in 0..4 {
        let client = session(&config).await;
        workers.push(tokio::spawn(async move {
            for _ in 0..100 {
                run(&client, "SELECT enqueue('q', 'k')").await;
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    let most = begun.elapsed().as_millis() as usize / 100 + 1;
    let heard = arrived(&listener, &mut receive).await.len();
    // Two may pass the gate in the same instant: the sequence is read and set without a lock, on purpose.
    assert!(
        heard >= 1 && heard <= most * 4,
        "{heard} announcements, {most} expected at most, 400 changes"
    );

    let report = apply(&mut admin, SCHEMA, NotifyChange::Remove)
        .await
        .unwrap();
    assert!(!report.notify && report.applied.is_empty());
    apply(&mut admin, SCHEMA, NotifyChange::Remove)
        .await
        .expect("again");
    assert_eq!(
        one(
            &client,
            "SELECT to_regclass('notify_gate') IS NULL, count(*) FROM pg_trigger WHERE tgname LIKE '%notify%' AND NOT tgisinternal"
        )
        .await,
        "t|0"
    );
    run(&client, "SELECT enqueue('q', 'k')").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(arrived(&listener, &mut receive).await.is_empty());
}

#[tokio::test]
async fn the_trigger_asks_no_right_of_the_workers_and_follows_the_schemas_name() {
    let (_, config) = common::database("notify_roles");
    let mut admin = common::connect(&config).await;
    let report = apply(&mut admin, "Agent Queue-2", NotifyChange::Install)
        .await
        .unwrap();
    assert!(report.notify);
    let (listener, mut receive) = listen(&config, "Agent Queue-2_tasks").await;
    let worker = common::connect(&config).await;
    run(&worker, "SET ROLE \"Agent Queue-2_worker\"").await;
    run(&worker, "SELECT \"Agent Queue-2\".enqueue('q', 'k')").await;
    assert_eq!(
        arrived(&listener, &mut receive).await,
        [("Agent Queue-2_tasks".to_owned(), String::new())]
    );
    assert_eq!(
        refusal(
            &worker,
            "SELECT last_value FROM \"Agent Queue-2\".notify_gate"
        )
        .await,
        "42501"
    );
    assert_eq!(
        refusal(&worker, "SELECT \"Agent Queue-2\"._notify_tasks()").await,
        "42501"
    );
}
