//! What makes an ordinary day interesting: batches under way, work for later, parked, cancelled and failed tasks, a
//! lost worker, and what operators did about it.

use super::SeedOptions;
use super::plan::{Action, Plan, Task};
use crate::demo::catalog::{self, PEOPLE};
use crate::demo::dice::Dice;

/// Adds to a plan, with ids from `next` on.
pub fn add(plan: &mut Plan, mut next: i64, options: &SeedOptions, dice: &mut Dice) {
    let mut id = || {
        next += 1;
        next - 1
    };
    for (number, begin) in [(1, -3300.0), (2, -2100.0), (3, -420.0)] {
        batch(plan, &mut id, number, begin, dice);
    }
    later(plan, &mut id, dice);
    let parked = parked(plan, &mut id, dice);
    let cancelled = cancelled(plan, &mut id, dice);
    let failed = failed(plan, &mut id, dice);
    if options.running {
        expired(plan, &mut id, dice);
    }
    actions(plan, &parked, &cancelled, &failed);
}

/// A batch of documents; one that began lately still has some to do.
fn batch(plan: &mut Plan, id: &mut impl FnMut() -> i64, number: u32, begin: f64, dice: &mut Dice) {
    let (tenant, _) = catalog::TENANTS[number as usize - 1];
    let kind = catalog::kind("parse_invoice");
    for place in 0..40 {
        let created = begin + f64::from(place) * 0.02;
        let mut task = Task::new(id(), kind, created, dice);
        task.tenant = tenant;
        task.batch = Some(format!("import-{tenant}-{number}"));
        task.key = Some(format!("{tenant}-{number}-{}", task.id));
        // Released one every twelve seconds, as a provider's rate limit has it.
        let due = begin + f64::from(place) * 12.0;
        task.run_after = due;
        let (claimed, started) = (due + dice.between(0.2, 0.9), due + 1.0);
        let finished = started + kind.run_time(dice);
        if finished < -1.0 {
            plan.attempt(
                &mut task,
                (due, claimed, started, finished),
                "completed",
                None,
                dice,
            );
            task.end("completed", claimed, started, finished);
            task.result = Some(kind.result(dice));
        } else if place % 13 == 0 {
            task.run_after = dice.between(200.0, 900.0);
        } else {
            // What is left is due over the next minutes.
            task.run_after = dice.between(20.0, 400.0);
        }
        plan.tasks.push(task);
    }
}

/// Tonight's work, and retries that wait for their time.
fn later(plan: &mut Plan, id: &mut impl FnMut() -> i64, dice: &mut Dice) {
    for place in 0..24 {
        let kind = catalog::kind(["audit_tenant", "research_topic"][place % 2]);
        let mut task = Task::new(id(), kind, dice.between(-3000.0, -60.0), dice);
        task.run_after = dice.between(300.0, 9.0 * 3600.0);
        plan.tasks.push(task);
    }
    for place in 0..6 {
        let kind = catalog::kind(["parse_contract", "fetch_page", "draft_reply"][place % 3]);
        let mut task = Task::new(id(), kind, dice.between(-900.0, -300.0), dice);
        fail(plan, &mut task, 1 + place % 3, dice);
        task.wait_for_retry(dice.between(30.0, 600.0));
        plan.tasks.push(task);
    }
}

/// `times` failed tries from the task's creation on; when the last one ended.
fn fail(plan: &mut Plan, task: &mut Task, times: usize, dice: &mut Dice) -> (f64, f64, f64) {
    let mut eligible = task.created;
    let mut last = (eligible, eligible, eligible);
    for n in 0..times {
        let claimed = eligible + dice.between(0.2, 0.8);
        let started = claimed + 0.06;
        let finished = started + task.kind.run_time(dice).min(6.0);
        // A hopeless one would not have been tried again.
        let error = loop {
            let (error, hopeless) = task.kind.error(dice);
            if !hopeless {
                break error;
            }
        };
        task.error = Some(error.clone());
        plan.attempt(
            task,
            (eligible, claimed, started, finished),
            "failed",
            Some(error),
            dice,
        );
        last = (claimed, started, finished);
        eligible = finished + 5.0 * f64::from(1u32 << n);
    }
    last
}

fn parked(plan: &mut Plan, id: &mut impl FnMut() -> i64, dice: &mut Dice) -> Vec<i64> {
    let kind = catalog::kind("parse_scan");
    let park = |_| {
        let mut task = Task::new(id(), kind, dice.between(-5000.0, -2500.0), dice);
        fail(plan, &mut task, 2, dice);
        task.wait_for_retry(task.created + 60.0);
        task.status = "parked";
        let id = task.id;
        plan.tasks.push(task);
        id
    };
    (0..3).map(park).collect()
}

fn cancelled(plan: &mut Plan, id: &mut impl FnMut() -> i64, dice: &mut Dice) -> Vec<i64> {
    let kind = catalog::kind("research_topic");
    let cancel = |_| {
        let created = dice.between(-2400.0, -1800.0);
        let mut task = Task::new(id(), kind, created, dice);
        task.status = "cancelled";
        task.run_after = created + 7200.0;
        task.cancel = Some((-1500.0, PEOPLE[0], "asked for twice"));
        task.finished = Some(-1500.0);
        let id = task.id;
        plan.tasks.push(task);
        id
    };
    (0..6).map(cancel).collect()
}

fn failed(plan: &mut Plan, id: &mut impl FnMut() -> i64, dice: &mut Dice) -> Vec<i64> {
    let give_up = |place: usize| {
        let kind = catalog::kind(["fetch_page", "parse_contract", "draft_reply"][place % 3]);
        let mut task = Task::new(id(), kind, dice.between(-3200.0, -700.0), dice);
        let (claimed, started, finished) = fail(plan, &mut task, 5, dice);
        task.end("failed", claimed, started, finished);
        let id = task.id;
        plan.tasks.push(task);
        id
    };
    (0..9).map(give_up).collect()
}

/// A worker that is gone, and its leases.
fn expired(plan: &mut Plan, id: &mut impl FnMut() -> i64, dice: &mut Dice) {
    for overdue in [95.0, 94.0, 31.0] {
        let kind = catalog::kind("parse_contract");
        let created = -overdue - 190.0;
        let mut task = Task::new(id(), kind, created, dice);
        let started = Some(created + 1.0);
        plan.run(&mut task, created, created + 0.9, started, -overdue, dice);
        plan.tasks.push(task);
    }
}

fn actions(plan: &mut Plan, parked: &[i64], cancelled: &[i64], failed: &[i64]) {
    let mut add = |at, who, action, ids: &[i64], changed, reason| {
        plan.actions.push(Action {
            id: format!("seed-{action}-{}", ids.first().copied().unwrap_or(0)),
            at,
            who,
            action,
            ids: ids.to_vec(),
            changed,
            reason,
        });
    };
    let n = |ids: &[i64]| ids.len() as i64;
    add(
        -3400.0,
        PEOPLE[1],
        "park",
        parked,
        n(parked),
        "scans without a text layer; waiting for the vendor",
    );
    add(
        -1500.0,
        PEOPLE[0],
        "cancel",
        cancelled,
        n(cancelled),
        "asked for twice",
    );
    let (first, rest) = failed.split_at(failed.len() / 2);
    add(
        -640.0,
        PEOPLE[2],
        "requeue",
        first,
        0,
        "origin is back: too early",
    );
    add(
        -600.0,
        PEOPLE[2],
        "requeue",
        rest,
        0,
        "still failing, left as it is",
    );
}
