//! What has happened: every task with its tries and its bills, in seconds before now (negative) and after.

use super::SeedOptions;
use super::trouble;
use crate::demo::catalog::{self, KINDS, Kind};
use crate::demo::dice::Dice;

/// Share of the usual traffic in the quiet hours.
const QUIET: f64 = 0.025;

/// Seconds between two pages of the crawl in the quiet hours: it never sleeps, which is how one can tell that it
/// has stopped.
const CRAWL_S: f64 = 11.0;

/// A row of `tasks`; times in seconds from now.
#[derive(Clone, Debug)]
pub struct Task {
    pub id: i64,
    pub kind: &'static Kind,
    pub tenant: &'static str,
    pub batch: Option<String>,
    pub payload: String,
    pub status: &'static str,
    pub created: f64,
    pub run_after: f64,
    pub claimed: Option<f64>,
    pub started: Option<f64>,
    pub finished: Option<f64>,
    pub heartbeat: Option<f64>,
    pub lease_ends: Option<f64>,
    pub worker: Option<String>,
    pub version: Option<&'static str>,
    pub token: i64,
    pub attempt: i64,
    pub error: Option<String>,
    pub result: Option<(String, f64)>,
    pub key: Option<String>,
    pub cancel: Option<(f64, &'static str, &'static str)>,
}

/// A row of `task_attempts`.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub task: i64,
    pub attempt: i64,
    pub worker: String,
    pub version: &'static str,
    pub eligible: f64,
    pub claimed: f64,
    pub started: Option<f64>,
    pub finished: Option<f64>,
    pub outcome: Option<&'static str>,
    pub error: Option<String>,
    pub run: String,
    pub trace: String,
}

/// A row of `usage`.
#[derive(Clone, Debug)]
pub struct Usage {
    pub call: String,
    pub task: i64,
    pub attempt: i64,
    pub queue: &'static str,
    pub model: &'static str,
    pub tokens: (i64, i64),
    pub llm: Option<f64>,
    pub compute: Option<f64>,
    pub reported: f64,
}

/// A row of `operator_actions`.
#[derive(Clone, Debug)]
pub struct Action {
    pub id: String,
    pub at: f64,
    pub who: &'static str,
    pub action: &'static str,
    pub ids: Vec<i64>,
    pub changed: i64,
    pub reason: &'static str,
}

/// Everything.
#[derive(Debug, Default)]
pub struct Plan {
    pub tasks: Vec<Task>,
    pub attempts: Vec<Attempt>,
    pub usage: Vec<Usage>,
    pub actions: Vec<Action>,
    /// Since when there has been full traffic.
    busy: f64,
}

impl Plan {
    /// The same for the same options and first id.
    pub fn new(options: &SeedOptions, first_id: i64) -> Self {
        let busy = -60.0 * options.busy_minutes;
        let mut arrivals = arrivals(options, busy);
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut plan = Self {
            busy,
            ..Self::default()
        };
        let mut dice = Dice::branch(options.seed, "life");
        for (id, (created, kind)) in (first_id..).zip(arrivals) {
            plan.live(id, created, kind, options.running, &mut dice);
        }
        let next = first_id + plan.tasks.len() as i64;
        trouble::add(&mut plan, next, options, &mut dice);
        plan
    }

    /// One task from its arrival on, as far as time allows.
    fn live(&mut self, id: i64, created: f64, kind: &'static Kind, running: bool, dice: &mut Dice) {
        let mut task = Task::new(id, kind, created, dice);
        let mut eligible = created;
        loop {
            let claimed = eligible + dice.about(0.55, 0.6).min(4.0);
            let started = claimed + dice.about(0.05, 0.6).min(1.0);
            let fails = dice.chance(kind.fails).then(|| kind.error(dice));
            let time = kind.run_time(dice);
            let time = if fails.is_some() { time * 0.3 } else { time };
            let finished = started + time;
            if finished > -0.2 {
                // It would still be running. Where workers are about to start, they had better find it waiting.
                if running && started < -0.1 {
                    self.run(&mut task, eligible, claimed, Some(started), 600.0, dice);
                }
                break;
            }
            let again = fails.as_ref().is_some_and(|f| !f.1) && task.attempt < 4;
            let outcome = if fails.is_some() {
                "failed"
            } else {
                "completed"
            };
            self.attempt(
                &mut task,
                (eligible, claimed, started, finished),
                outcome,
                fails.as_ref().map(|f| f.0.clone()),
                dice,
            );
            task.error = fails.map(|f| f.0).or(task.error);
            if again {
                let wait = 5.0 * f64::from(1u32 << (task.attempt - 1)) * dice.between(0.75, 1.25);
                eligible = finished + wait;
                task.wait_for_retry(eligible);
                if eligible > 0.0 {
                    break;
                }
                continue;
            }
            task.end(outcome, claimed, started, finished);
            if outcome == "completed" {
                task.result = Some(kind.result(dice));
            }
            break;
        }
        self.tasks.push(task);
    }

    /// A try that has ended, with its bills.
    pub fn attempt(
        &mut self,
        task: &mut Task,
        (eligible, claimed, started, finished): (f64, f64, f64, f64),
        outcome: &'static str,
        error: Option<String>,
        dice: &mut Dice,
    ) {
        let worker = worker(task.kind.queue, dice);
        let version = catalog::VERSIONS[usize::from(claimed < -2400.0 || dice.chance(0.15))];
        task.attempt += 1;
        task.token += 1;
        task.worker = None;
        task.version = Some(version);
        task.heartbeat = Some(started);
        let run = format!("run-{:012x}", dice.bits() >> 16);
        let calls = match outcome {
            // Pages that have not changed since the last crawl are answered from a cache; nearly all at night.
            "completed" if task.kind.name == "fetch_page" && claimed < self.busy => 0,
            "completed" => task.kind.calls,
            _ => 1,
        };
        for call in 1..=calls {
            let (input, output) = task.kind.spend(dice);
            let share = f64::from(call) / f64::from(calls);
            let late = if dice.chance(0.06) {
                dice.between(8.0, 40.0)
            } else {
                0.3
            };
            self.usage.push(Usage {
                call: format!("call-{}-{}-{call}", task.id, task.attempt),
                task: task.id,
                attempt: task.attempt,
                queue: task.kind.queue,
                model: task.kind.model.name,
                tokens: (input, output),
                llm: task.kind.model.cost(input, output),
                compute: (call == calls).then(|| catalog::compute_cost(finished - started)),
                reported: (started + (finished - started) * share + late).min(-0.1),
            });
        }
        self.attempts.push(Attempt {
            task: task.id,
            attempt: task.attempt,
            worker,
            version,
            eligible,
            claimed,
            started: Some(started),
            finished: Some(finished),
            outcome: Some(outcome),
            error,
            run,
            trace: format!("{:016x}{:016x}", dice.bits(), dice.bits()),
        });
    }

    /// A try that is under way, its lease ending `lease` seconds from now.
    pub fn run(
        &mut self,
        task: &mut Task,
        eligible: f64,
        claimed: f64,
        started: Option<f64>,
        lease: f64,
        dice: &mut Dice,
    ) {
        let worker = worker(task.kind.queue, dice);
        let version = catalog::VERSIONS[0];
        task.attempt += 1;
        task.token += 1;
        task.status = "processing";
        task.run_after = eligible;
        task.claimed = Some(claimed);
        task.started = started;
        task.heartbeat = started.or(Some(claimed));
        task.lease_ends = Some(lease);
        task.worker = Some(worker.clone());
        task.version = Some(version);
        self.attempts.push(Attempt {
            task: task.id,
            attempt: task.attempt,
            worker,
            version,
            eligible,
            claimed,
            started,
            finished: None,
            outcome: None,
            error: None,
            run: format!("run-{:012x}", dice.bits() >> 16),
            trace: format!("{:016x}{:016x}", dice.bits(), dice.bits()),
        });
    }
}

impl Task {
    /// Enqueued and due.
    pub fn new(id: i64, kind: &'static Kind, created: f64, dice: &mut Dice) -> Self {
        Self {
            id,
            kind,
            tenant: catalog::tenant(dice),
            batch: None,
            payload: kind.payload(dice),
            status: "enqueued",
            created,
            run_after: created,
            claimed: None,
            started: None,
            finished: None,
            heartbeat: None,
            lease_ends: None,
            worker: None,
            version: None,
            token: 0,
            attempt: 0,
            error: None,
            result: None,
            key: None,
            cancel: None,
        }
    }

    /// Failed, and due again at a time.
    pub fn wait_for_retry(&mut self, due: f64) {
        self.status = "enqueued";
        self.run_after = due;
        self.heartbeat = None;
        self.version = None;
    }

    /// Over.
    pub fn end(&mut self, status: &'static str, claimed: f64, started: f64, finished: f64) {
        self.status = status;
        self.claimed = Some(claimed);
        self.started = Some(started);
        self.finished = Some(finished);
    }
}

fn arrivals(options: &SeedOptions, busy: f64) -> Vec<(f64, &'static Kind)> {
    let mut all = Vec::new();
    for kind in KINDS {
        let mut dice = Dice::branch(options.seed, kind.name);
        let quiet_until = busy.min(0.0);
        let mut at = quiet_until - 3600.0 * options.quiet_hours;
        while at < 0.0 {
            if at > -3600.0 * options.quiet_hours + quiet_until {
                all.push((at, kind));
            }
            at += match (kind.name, at < quiet_until) {
                ("fetch_page", true) => CRAWL_S * dice.between(0.9, 1.1),
                ("fetch_page", false) => 60.0 / kind.per_minute * dice.between(0.6, 1.4),
                (_, true) => {
                    let next = dice.gap(60.0 / (kind.per_minute * QUIET));
                    next.min((quiet_until - at).max(0.01))
                }
                (_, false) => dice.gap(60.0 / kind.per_minute),
            };
        }
    }
    all
}

/// One of those that serve the queue.
fn worker(queue: &str, dice: &mut Dice) -> String {
    let serve: Vec<usize> = (0..catalog::WORKERS.len())
        .filter(|i| catalog::WORKERS[*i].contains(&queue))
        .collect();
    format!("agent-{}", dice.pick(&serve) + 1)
}
