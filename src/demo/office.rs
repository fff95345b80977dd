//! Everybody else who is connected: those who enqueue, the webhook that reports bills, the reclaimer, importers,
//! an idle pool, a person at psql.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::types::Type;

use super::agents::Shop;
use super::calls::Bill;
use super::catalog::{self, KINDS, Kind};
use super::copy;
use super::dice::Dice;
use super::link::{Line, seconds};
use crate::connect::{Fault, Target};

/// A task to be enqueued, as `enqueue_many` takes it.
pub fn order(kind: &Kind, tenant: &str, batch: Option<&str>, dice: &mut Dice) -> serde_json::Value {
    let payload: serde_json::Value =
        serde_json::from_str(&kind.payload(dice)).unwrap_or_else(|_| json!({}));
    json!({
        "queue": kind.queue, "kind": kind.name, "agent": kind.agent, "tenant": tenant,
        "application": kind.application, "priority": kind.priority, "batch_id": batch, "payload": payload,
    })
}

/// The application servers: `part` of `parts`, each with its share of the kinds.
pub async fn enqueuer(shop: Arc<Shop>, target: Target, part: usize, parts: usize) {
    let line = Line::new(&target, format!("api-web-{}", part + 1));
    let mut dice = Dice::branch(shop.world.seed, line.application());
    let mine: Vec<&Kind> = KINDS.iter().skip(part).step_by(parts).collect();
    let gap = |kind: &Kind, dice: &mut Dice| {
        let mean = 60.0 / kind.per_minute;
        // A crawl has a steady pace, people do not.
        if kind.queue == "crawler" {
            seconds(mean * dice.between(0.6, 1.4))
        } else {
            seconds(dice.gap(mean).min(6.0 * mean))
        }
    };
    let mut next: Vec<Instant> = mine
        .iter()
        .map(|kind| Instant::now() + gap(kind, &mut dice))
        .collect();
    while let Some(at) = (0..mine.len()).min_by_key(|i| next[*i]) {
        sleep_until(next[at]).await;
        let kind = mine[at];
        // Not counted on from the due time: after an outage there is no flood of what was not sent.
        next[at] = Instant::now() + gap(kind, &mut dice);
        let orders = shop.world.now();
        if orders.draining || orders.muted.contains(kind.queue) {
            continue;
        }
        let tenant = catalog::tenant(&mut dice);
        let tasks = json!([order(kind, tenant, None, &mut dice)]).to_string();
        match shop.calls.enqueue_many(&line, &tasks).await {
            Ok(n) => shop.world.did("enqueued", n),
            Err(fault) => shop.world.fault(line.application(), &fault),
        }
    }
}

/// Reports bills as the providers' webhooks do: sometimes late, sometimes twice.
pub async fn webhook(shop: Arc<Shop>, target: Target, mut bills: UnboundedReceiver<Bill>) {
    let lines = [1, 2].map(|n| Arc::new(Line::new(&target, format!("api-webhook-{n}"))));
    let mut dice = Dice::branch(shop.world.seed, "webhook");
    let mut under_way: JoinSet<()> = JoinSet::new();
    while let Some(bill) = bills.recv().await {
        let late = if dice.chance(0.06) {
            dice.between(8.0, 40.0)
        } else {
            dice.between(0.05, 0.6)
        };
        let again = dice.chance(0.05).then(|| dice.between(0.1, 3.0));
        let line = dice.pick(&lines).clone();
        let shop = shop.clone();
        under_way.spawn(async move {
            for wait in std::iter::once(late).chain(again) {
                sleep(seconds(wait)).await;
                match shop.calls.report_usage(&line, &bill).await {
                    Ok(answer) if answer == "duplicate" => shop.world.did("billed twice", 1),
                    Ok(_) => shop.world.did("billed", 1),
                    Err(fault) => shop.world.fault(line.application(), &fault),
                }
            }
        });
        while under_way.try_join_next().is_some() {}
    }
}

/// Takes expired leases back, every two seconds.
pub async fn reclaimer(shop: Arc<Shop>, target: Target) {
    let line = Line::new(&target, "reclaimer");
    loop {
        if !shop.world.now().reclaimer_off {
            match shop.calls.reclaim(&line).await {
                Ok(n) => shop.world.did("reclaimed", n),
                Err(fault) => shop.world.fault(line.application(), &fault),
            }
        }
        sleep(seconds(2.0)).await;
    }
}

/// Brings batches of tasks in, and now and then streams rows.
pub async fn importer(shop: Arc<Shop>, target: Target, number: usize) {
    let line = Line::new(&target, format!("batch-import-{number}"));
    let mut dice = Dice::branch(shop.world.seed, line.application());
    let mut batch = 0;
    let mut pause = dice.between(5.0, 12.0);
    loop {
        // The connection is there from the start, as a scheduler's is.
        let link = line.link().await;
        tokio::select! {
            () = sleep(seconds(pause)) => {}
            () = shop.world.when(|o| o.copying) => {
                copy::stream(&shop.world, &link, &mut dice).await;
                drop(link);
                shop.world.when(|o| !o.copying).await;
                continue;
            }
        }
        drop(link);
        pause = dice.between(50.0, 80.0);
        batch += 1;
        let name = format!("import-{}-{number}{batch:02}", catalog::tenant(&mut dice));
        let kind =
            catalog::kind(dice.pick::<&str>(&["parse_invoice", "embed_chunk", "summarise_thread"]));
        let n = dice.whole(10, 18);
        if let Err(fault) = bring(&shop, &line, kind, &name, (n, 5), &mut dice).await {
            shop.world.fault(line.application(), &fault);
        }
    }
}

/// Enqueues a batch of `n` tasks of one tenant, each with so many tries.
pub async fn bring(
    shop: &Shop,
    line: &Line,
    kind: &Kind,
    batch: &str,
    (n, tries): (i64, i64),
    dice: &mut Dice,
) -> Result<(), Fault> {
    if shop.progress {
        line.rows(
            "INSERT INTO public.batch_progress (batch_id, total) VALUES ($1, $2) \
             ON CONFLICT (batch_id) DO UPDATE SET total = batch_progress.total + excluded.total",
            &[(&batch, Type::TEXT), (&n, Type::INT8)],
        )
        .await?;
    }
    let tenant = catalog::TENANTS
        .iter()
        .map(|t| t.0)
        .find(|t| batch.contains(t))
        .unwrap_or("acme");
    let tasks: Vec<_> = (0..n)
        .map(|_| {
            let mut task = order(kind, tenant, Some(batch), dice);
            task["max_attempts"] = json!(tries);
            task
        })
        .collect();
    let tasks = serde_json::Value::Array(tasks).to_string();
    shop.world
        .did("enqueued", shop.calls.enqueue_many(line, &tasks).await?);
    Ok(())
}

/// A connection that is open and does next to nothing: a pool's spare, a prompt that somebody left open.
pub async fn idler(shop: Arc<Shop>, target: Target, name: String, statement: String, every: f64) {
    let line = Line::new(&target, name.clone());
    let mut dice = Dice::branch(shop.world.seed, &name);
    loop {
        let next = Instant::now() + seconds(every * dice.between(0.5, 1.5));
        while Instant::now() < next {
            // A lost connection is replaced although nobody needs it now.
            line.link().await;
            sleep(seconds(3.0)).await;
        }
        if let Err(fault) = line.rows(&statement, &[]).await {
            shop.world.fault(&name, &fault);
        }
    }
}
