//! What the simulated clients share: the state of the world outside Postgres (is the provider slow, which workers
//! are dead, who has stopped sending), and what has happened so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;
use tokio::time::sleep;

use super::link::seconds;
use crate::connect::Fault;

/// The state of the world. Acts change it; clients look at it and are told when it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Orders {
    /// Everybody goes home.
    pub stop: bool,
    /// Nobody claims or enqueues any more; what is held is finished.
    pub draining: bool,
    /// How many times longer than usual a model call takes.
    pub slowdown: f64,
    /// A kind of task whose every try fails, and with which error.
    pub failing: Option<(String, String)>,
    /// Places of workers whose process is dead.
    pub dead: BTreeSet<usize>,
    /// Nobody takes expired leases back.
    pub reclaimer_off: bool,
    /// Queues into which nobody enqueues.
    pub muted: BTreeSet<String>,
    /// The importers stream rows instead of enqueueing.
    pub copying: bool,
}

impl Default for Orders {
    fn default() -> Self {
        Self {
            stop: false,
            draining: false,
            slowdown: 1.0,
            failing: None,
            dead: BTreeSet::new(),
            reclaimer_off: false,
            muted: BTreeSet::new(),
            copying: false,
        }
    }
}

/// What the clients did, since they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// By name: `claimed`, `completed`, `retried`, `failed`, `cancelled`, `stale`, `enqueued`, `billed`, …
    pub counts: BTreeMap<&'static str, u64>,
    /// Statements that the server refused, beside lost connections.
    pub faults: u64,
    /// The last such refusal.
    pub last_fault: Option<String>,
}

/// Shared by all clients of one database.
pub struct World {
    orders: watch::Sender<Orders>,
    deeds: Mutex<Deeds>,
    workers: AtomicU64,
    calls: AtomicU64,
    held: AtomicU64,
    /// What chance depends on.
    pub seed: u64,
}

impl World {
    /// An ordinary day, on which `workers` are at their places.
    pub fn new(seed: u64, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            orders: watch::Sender::new(Orders::default()),
            deeds: Mutex::default(),
            workers: AtomicU64::new(workers as u64),
            calls: AtomicU64::new(0),
            held: AtomicU64::new(0),
            seed,
        })
    }

    /// The state of the world, and a way to hear of its changes.
    pub fn orders(&self) -> watch::Receiver<Orders> {
        self.orders.subscribe()
    }

    /// The state of the world now.
    pub fn now(&self) -> Orders {
        self.orders.borrow().clone()
    }

    /// Changes it.
    pub fn order(&self, change: impl FnOnce(&mut Orders)) {
        self.orders.send_if_modified(|orders| {
            let before = orders.clone();
            change(orders);
            *orders != before
        });
    }

    /// Waits until this holds; for ever if the world ends first.
    pub async fn when(&self, holds: impl FnMut(&Orders) -> bool) {
        let mut orders = self.orders();
        if orders.wait_for(holds).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Work outside Postgres that takes `s` seconds on an ordinary day.
    pub async fn outside(&self, s: f64) {
        let mut orders = self.orders();
        let mut left = s;
        while left > 0.0 {
            let slowdown = orders.borrow_and_update().slowdown.max(0.01);
            let begun = Instant::now();
            tokio::select! {
                () = sleep(seconds(left * slowdown)) => return,
                _ = orders.changed() => left -= begun.elapsed().as_secs_f64() / slowdown,
            }
        }
    }

    /// The number of the next worker process: a restarted one has a new name, as with any scheduler of today.
    pub fn next_worker(&self) -> u64 {
        self.workers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A number for the next model call.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a task that a worker holds, until the guard is dropped.
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.held.fetch_add(1, Ordering::Relaxed);
        Hold(self.clone())
    }

    /// Tasks that workers hold.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Notes that something was done.
    pub fn did(&self, what: &'static str, n: u64) {
        if n > 0 {
            *self.lock().counts.entry(what).or_default() += n;
        }
    }

    /// Notes a refused statement. A lost connection is no refusal: its client comes back.
    pub fn fault(&self, who: &str, fault: &Fault) {
        if fault.closed || fault.not_ready() {
            return;
        }
        let mut deeds = self.lock();
        deeds.faults += 1;
        deeds.last_fault = Some(format!("{who}: {fault}"));
    }

    /// What happened so far.
    pub fn deeds(&self) -> Deeds {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Deeds> {
        self.deeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task in a worker's hands.
pub struct Hold(Arc<World>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deeds {
    /// How often something was done.
    pub fn n(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }
}
