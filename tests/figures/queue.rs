//! What the optional trigger costs those who work: the same clients with and without it, in turns.

use crate::common::{self, load};
use crate::place;
use futures_util::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{AsyncMessage, Config, NoTls};

const CLIENTS: usize = 8;
const ROUNDS: usize = 6;
const SECONDS: f64 = 3.0;

fn schema(trigger: bool) -> String {
    let trigger = match trigger {
        true => format!(
            "SET search_path = agent_queue, pg_temp; {}; RESET search_path;",
            include_str!("../../migrations/optional_notify.sql")
        ),
        false => String::new(),
    };
    format!("{}{trigger}", load::agent_queue())
}

/// Counts notifications until it is told to stop.
async fn listen(config: &Config, channel: &str) -> (tokio_postgres::Client, Arc<AtomicU64>) {
    let (client, mut connection) = config.connect(NoTls).await.expect("a listener");
    let heard = Arc::new(AtomicU64::new(0));
    let count = heard.clone();
    tokio::spawn(async move {
        let mut messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if matches!(message, AsyncMessage::Notification(_)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    client
        .batch_execute(&format!("LISTEN {channel}"))
        .await
        .expect("listening");
    (client, heard)
}

/// Tasks a second through claim and complete.
async fn round(config: &Config, synchronous: bool) -> f64 {
    let admin = common::connect(config).await;
    admin
        .batch_execute(
            "TRUNCATE agent_queue.tasks, agent_queue.task_attempts CASCADE;
             INSERT INTO agent_queue.tasks (queue, kind, created_at, run_after) SELECT 'q', 'k', now(), now() FROM generate_series(1, 40000);",
        )
        .await
        .expect("tasks");
    place::settle(&admin).await;
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut work = Vec::new();
    for n in 0..CLIENTS {
        let mut config = config.clone();
        config.options(format!(
            "-c synchronous_commit={}",
            if synchronous { "on" } else { "off" }
        ));
        let client = common::connect(&config).await;
        let (stop, done) = (stop.clone(), done.clone());
        work.push(tokio::spawn(async move {
            let claim = client
                .prepare("SELECT id, lease_token FROM agent_queue.claim('q', $1)")
                .await
                .expect("claim");
            let complete = client
                .prepare("SELECT agent_queue.complete($1, $2)")
                .await
                .expect("complete");
            let name = format!("w{n}");
            while !stop.load(Ordering::Relaxed) {
                let rows = client.query(&claim, &[&name]).await.expect("claimed");
                for row in rows {
                    let (id, token): (i64, i64) = (row.get(0), row.get(1));
                    client
                        .query(&complete, &[&id, &token])
                        .await
                        .expect("completed");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(SECONDS)).await;
    let rate = (done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for task in work {
        task.await.expect("a worker");
    }
    rate
}

#[test]
#[ignore = "prints figures"]
fn throughput_with_and_without_the_trigger() {
    place::runtime().block_on(async {
        let (plain, _a) = place::database("plain", &schema(false)).await;
        let (gated, _b) = place::database("gated", &schema(true)).await;
        for synchronous in [true, false] {
            let (_client, heard) = listen(&gated, "agent_queue_tasks").await;
            let (mut ratios, mut rates) = (Vec::new(), (Vec::new(), Vec::new()));
            let mut seconds = 0.0;
            for n in 0..ROUNDS {
                // who goes first takes turns
                let (mut with, mut without) = (0.0, 0.0);
                for trigger in [n % 2 == 0, n % 2 == 1] {
                    let begun = Instant::now();
                    if trigger {
                        with = round(&gated, synchronous).await;
                        seconds += begun.elapsed().as_secs_f64();
                    } else {
                        without = round(&plain, synchronous).await;
                    }
                }
                ratios.push(with / without);
                rates.0.push(without);
                rates.1.push(with);
            }
            let heard = heard.load(Ordering::Relaxed) as f64 / seconds;
            let shown: Vec<String> = ratios.iter().map(|r| format!("{r:.2}")).collect();
            println!(
                "{CLIENTS} clients, synchronous_commit {}: {:.0} tasks a second without, {:.0} with the trigger; ratio {:.2} ({}); {heard:.1} notifications a second",
                if synchronous { "on" } else { "off" },
                place::median(&rates.0),
                place::median(&rates.1),
                place::median(&ratios),
                shown.join(" "),
            );
            assert!(heard > 0.0 && heard <= 11.0, "{heard:.1} notifications a second");
        }
    });
}
