//! The `where` line: in two seconds, which layer to look at.
//!
//! A layer with a finding shows the gravest one's mark and words, also of a finding that another explains: the cause
//! may be in one layer and be felt in the next. A layer without shows a figure that says why it is calm.

use super::rule::{Ctx, Place};
use super::rules::slow_outside;
use super::tracker::Active;
use super::words::{count, duration, plural, rate};
use super::{Layer, Mark, Severity, Where};
use crate::probe::State;

/// Seconds after which a probe's data is too old to call anything good.
const STALE: f64 = 15.0;
/// Seconds of waiting for a lock from which on it is worth a mark.
const WAITS: f64 = 5.0;

/// All four layers.
pub fn layers(ctx: &Ctx, active: &[Active]) -> Where {
    let layer =
        |place: Place, calm: fn(&Ctx) -> Layer| found(active, place).unwrap_or_else(|| calm(ctx));
    Where {
        queue: layer(Place::Queue, queue),
        workers: layer(Place::Workers, workers),
        database: layer(Place::Database, database),
        outside: layer(Place::Outside, outside),
    }
}

/// Before anything was read.
pub fn unread() -> Where {
    let unread = || layer(Mark::Unknown, "not read");
    Where {
        queue: unread(),
        workers: unread(),
        database: unread(),
        outside: unread(),
    }
}

fn found(active: &[Active], place: Place) -> Option<Layer> {
    let of_layer = active.iter().filter(|a| a.place == place);
    let gravest = of_layer.min_by(|a, b| {
        (b.trigger.severity.cmp(&a.trigger.severity))
            .then(a.rank.cmp(&b.rank))
            .then(b.trigger.weight.total_cmp(&a.trigger.weight))
    })?;
    let mark = match gravest.trigger.severity {
        Severity::Critical => Mark::Bad,
        Severity::Warning => Mark::Warn,
        Severity::Info => Mark::Good,
    };
    Some(Layer {
        mark,
        text: gravest.trigger.brief.clone(),
    })
}

fn layer(mark: Mark, text: impl Into<String>) -> Layer {
    Layer {
        mark,
        text: text.into(),
    }
}

/// Why a probe's data is not worth a mark, if so.
fn stale(ctx: &Ctx, probe: &str) -> Option<Layer> {
    let health = ctx.snapshot.probes.iter().find(|p| p.name == probe)?;
    match health.age_s {
        Some(age) if age > STALE.max(ctx.patience() / 2.0) => {
            Some(layer(Mark::Unknown, format!("seen {} ago", duration(age))))
        }
        None => Some(layer(Mark::Unknown, "not read")),
        _ => None,
    }
}

fn queue(ctx: &Ctx) -> Layer {
    if let Some(stale) = stale(ctx, "queues") {
        return stale;
    }
    let queues = &ctx.snapshot.queues;
    if queues.is_empty() {
        return layer(Mark::Unknown, "none found");
    }
    let done: Vec<f64> = queues.iter().filter_map(|q| q.finished_per_min).collect();
    let running: u64 = queues
        .iter()
        .map(|q| q.n(State::Running))
        .fold(0, u64::saturating_add);
    if done.is_empty() {
        return layer(Mark::Good, format!("{} running", count(running)));
    }
    layer(Mark::Good, format!("{} done/min", rate(done.iter().sum())))
}

fn workers(ctx: &Ctx) -> Layer {
    if let Some(stale) = stale(ctx, "leases") {
        return stale;
    }
    let workers = ctx.snapshot.workers.len() as u64;
    if workers == 0 {
        return layer(Mark::Unknown, "none seen");
    }
    let expired = ctx.snapshot.leases.len() as u64;
    if expired > 0 {
        // Younger than the reclaim interval: nobody is late yet.
        return layer(Mark::Good, format!("{} just expired", count(expired)));
    }
    layer(Mark::Good, plural(workers, "worker", "workers"))
}

fn database(ctx: &Ctx) -> Layer {
    let waiting = ctx
        .snapshot
        .blocked
        .iter()
        .filter(|b| b.waiting_s >= WAITS)
        .count() as u64;
    if waiting > 0 {
        return layer(Mark::Warn, format!("{} on locks", count(waiting)));
    }
    let c = &ctx.snapshot.connections;
    if c.max == 0 {
        return layer(Mark::Unknown, "not read");
    }
    let active = c.states.get("active").copied().unwrap_or_default();
    layer(
        Mark::Good,
        format!("{} active, 0 on locks", count(active.into())),
    )
}

/// While the database is not idle, slow runs cannot be laid at anybody else's door.
fn outside(ctx: &Ctx) -> Layer {
    let queues = &ctx.snapshot.queues;
    let known: Vec<_> = queues.iter().filter(|q| q.over_usual.is_some()).collect();
    let worst = queues
        .iter()
        .filter_map(slow_outside::over_usual)
        .max_by_key(|(over, _)| *over);
    if let Some((over, of)) = worst {
        let text = format!("{over} of {of} runs over usual");
        return layer(Mark::Unknown, text);
    }
    if known.is_empty() {
        return layer(Mark::Unknown, "usual not known yet");
    }
    let over: u64 = known
        .iter()
        .filter_map(|q| q.over_usual)
        .map(u64::from)
        .sum();
    let of: u64 = known.iter().map(|q| u64::from(q.over_usual_of)).sum();
    layer(
        Mark::Good,
        format!("{} of {} over usual", count(over.min(of)), count(of)),
    )
}
