//! The simulated agents: workers that claim, call a model outside of any transaction, and tell the queue how it
//! went, each over a connection of its own.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::calls::{Bill, Calls, Held};
use super::catalog::{self, Kind};
use super::dice::Dice;
use super::link::{Line, seconds};
use super::world::World;
use crate::connect::{Fault, Target};
use tokio_postgres::types::Type;

/// How long a lease lasts here: short, so that a lost worker is noticed while somebody watches.
pub const LEASE_S: f64 = 20.0;

/// Tasks that one worker runs at a time.
const HANDS: usize = 3;

/// What all workers of one database have in common.
pub struct Shop {
    /// The world around.
    pub world: Arc<World>,
    /// The queue's functions.
    pub calls: Calls,
    /// How the workers connect.
    pub target: Target,
    /// Where bills go: whoever reports them does so over another connection.
    pub bills: UnboundedSender<Bill>,
    /// Keep `public.batch_progress` up to date.
    pub progress: bool,
}

/// One place for a worker: when its process is dead and may live again, another one with a new name takes it.
pub async fn place(shop: Arc<Shop>, at: usize, queues: Vec<&'static str>) {
    let mut name = format!("agent-{}", at + 1);
    loop {
        let dead = shop.world.when(|o| o.dead.contains(&at));
        tokio::select! {
            () = work(shop.clone(), &name, &queues) => {}
            // Its connection and its tasks are dropped here as a kill would end them: nothing is said to anybody.
            () = dead => {}
        }
        shop.world.when(|o| !o.dead.contains(&at)).await;
        name = format!("agent-{}", shop.world.next_worker());
    }
}

async fn work(shop: Arc<Shop>, name: &str, queues: &[&'static str]) {
    let line = Arc::new(Line::new(&shop.target, name));
    let mut dice = Dice::branch(shop.world.seed, name);
    let version = catalog::VERSIONS[usize::from(dice.chance(0.2))];
    let mut hands: JoinSet<()> = JoinSet::new();
    let mut first = 0;
    sleep(seconds(dice.between(0.0, 0.6))).await;
    loop {
        let mut got = 0;
        if shop.world.now().draining {
            hands.join_all().await;
            return std::future::pending().await;
        }
        for turn in 0..queues.len() {
            let queue = queues[(first + turn) % queues.len()];
            let free = HANDS - hands.len().min(HANDS);
            if free == 0 {
                break;
            }
            match shop
                .calls
                .claim(&line, queue, free.min(2), LEASE_S, version)
                .await
            {
                Ok(tasks) => {
                    got += tasks.len();
                    shop.world.did("claimed", tasks.len() as u64);
                    for task in tasks {
                        let (shop, line) = (shop.clone(), line.clone());
                        let dice = Dice::new(dice.bits());
                        let hold = shop.world.hold();
                        hands.spawn(async move {
                            let _hold = hold;
                            if let Err(fault) = run(&shop, &line, &task, dice).await {
                                shop.world.fault(line.application(), &fault);
                            }
                        });
                    }
                }
                Err(fault) => shop.world.fault(name, &fault),
            }
        }
        first += 1;
        let pause = match got {
            0 => dice.between(0.9, 1.6),
            _ => dice.between(0.1, 0.25),
        };
        if hands.len() >= HANDS {
            hands.join_next().await;
            sleep(seconds(dice.between(0.01, 0.08))).await;
        } else {
            sleep(seconds(pause)).await;
        }
        while hands.try_join_next().is_some() {}
    }
}

/// How a try ended, as its worker sees it.
enum End {
    Done,
    Failed(String, bool),
}

async fn run(shop: &Shop, line: &Line, task: &Held, mut dice: Dice) -> Result<(), Fault> {
    sleep(seconds(dice.about(0.05, 0.6))).await;
    let run_id = format!("run-{:012x}", dice.bits() >> 16);
    let trace_id = format!("{:016x}{:016x}", dice.bits(), dice.bits());
    if shop.calls.started(line, task, &run_id, &trace_id).await? != "ok" {
        shop.world.did("stale", 1);
        return Ok(());
    }
    let kind = catalog::kind(&task.kind);
    let mut effort = std::pin::pin!(effort(shop, task, kind, dice.clone(), &run_id));
    dice.bits();
    let end = loop {
        tokio::select! {
            end = &mut effort => break end,
            () = sleep(seconds(LEASE_S / 4.0)) => {
                match shop.calls.heartbeat(line, task, LEASE_S).await? {
                    (answer, _) if answer != "ok" => {
                        shop.world.did("stale", 1);
                        return Ok(());
                    }
                    (_, true) => {
                        shop.calls.cancelled(line, task).await?;
                        shop.world.did("cancelled", 1);
                        return Ok(());
                    }
                    _ => {}
                }
            }
        }
    };
    let answer = match &end {
        End::Done => {
            let (result, confidence) = kind.result(&mut dice);
            shop.calls.complete(line, task, &result, confidence).await?
        }
        End::Failed(error, hopeless) => {
            // A provider that is down is asked again soon: that is what makes a storm of retries.
            let storm = shop.world.now().failing.is_some();
            let retry = storm.then(|| dice.between(3.0, 7.0));
            shop.calls.fail(line, task, error, retry, *hopeless).await?
        }
    };
    shop.world.did(
        match answer.as_str() {
            "ok" => "completed",
            "retry scheduled" => "retried",
            "failed" => "failed",
            "cancelled" => "cancelled",
            _ => "stale",
        },
        1,
    );
    if answer == "ok"
        && shop.progress
        && let Some(batch) = &task.batch
    {
        line.insist(
            "UPDATE public.batch_progress SET done = done + 1, changed_at = clock_timestamp() WHERE batch_id = $1",
            &[(batch, Type::TEXT)],
        )
        .await?;
    }
    Ok(())
}

/// The work itself: model calls, each with its bill.
async fn effort(shop: &Shop, task: &Held, kind: &Kind, mut dice: Dice, run_id: &str) -> End {
    let (steps, size) = steps(task, kind);
    let mut time = kind.run_time(&mut dice);
    let begun = tokio::time::Instant::now();
    let fails = match &shop.world.now().failing {
        Some((failing, error)) if *failing == task.kind => Some((error.clone(), false)),
        _ => dice.chance(kind.fails).then(|| kind.error(&mut dice)),
    };
    if fails.is_some() {
        time *= dice.between(0.15, 0.4);
    }
    // A longer task is more calls, not longer ones.
    let each = time / f64::from(kind.calls);
    for step in 0..steps {
        shop.world.outside(each).await;
        let (input, output) = kind.spend(&mut dice);
        let tokens = (input * size, output * size);
        let last = step + 1 == steps || fails.is_some();
        let bill = Bill {
            call: format!("call-{run_id}-{}", shop.world.next_call()),
            task: task.id,
            attempt: task.attempt,
            model: Some(kind.model.name),
            tokens: Some(tokens),
            llm: kind.model.cost(tokens.0, tokens.1),
            compute: last.then(|| catalog::compute_cost(begun.elapsed().as_secs_f64())),
        };
        let _ = shop.bills.send(bill);
        if let Some((error, hopeless)) = fails {
            return End::Failed(error, hopeless);
        }
    }
    End::Done
}

/// An agent that was told to go on and on makes more calls, and its context grows: what the payload asks for.
fn steps(task: &Held, kind: &Kind) -> (u32, i64) {
    let payload: serde_json::Value = serde_json::from_str(&task.payload).unwrap_or_default();
    let number = |name: &str| payload.get(name).and_then(serde_json::Value::as_u64);
    let steps = number("max_steps").map_or(kind.calls, |n| n.clamp(1, 200) as u32);
    let size = number("context").map_or(1, |n| n.clamp(1, 50) as i64);
    (steps, size)
}
