//! The `where` line: in two seconds, which layer to look at.
//!
//! A layer with a finding shows the gravest one's mark and words, also of a finding that another explains: the cause
//! may be in one layer and be felt in the next. A layer without shows a figure that says why it is calm.

use super::order::graver;
use super::rule::{Ctx, Place, USUAL_SAMPLES};
use super::rules::{slow_outside, standby_cut_off};
use super::tracker::Active;
use super::words::{count, duration, name, plural, rate};
use super::{Layer, Mark, Severity, Where};
use crate::probe::flow::Flow;
use crate::probe::leases::{Seen, Worker};
use crate::probe::{ProbeHealth, State};

/// Seconds after which a probe's data is too old to call anything good.
const STALE: f64 = 15.0;
/// Seconds of waiting for a lock from which on it is worth a mark.
const WAITS: f64 = 5.0;

/// Seconds without a finished task from which on a queue that used to finish them is worth a mark, and from which on
/// it is the worst one where something else is wrong, too.
const STANDSTILL: f64 = 120.0;
const DEAD: f64 = 300.0;

/// All four layers.
pub fn layers(ctx: &Ctx, active: &[Active]) -> Where {
    let layer =
        |place: Place, calm: fn(&Ctx) -> Layer| found(active, place).unwrap_or_else(|| calm(ctx));
    // what findings make of data that is not read any more says nothing of now
    let cut = cut_off(ctx, active);
    let fed = |probe: &str, place: Place, calm: fn(&Ctx) -> Layer| {
        let unknown = unreadable(ctx, probe).or_else(|| cut.clone());
        unknown.unwrap_or_else(|| layer(place, calm))
    };
    let queue = fed("queues", Place::Queue, queue);
    Where {
        queue: match cut {
            Some(_) => queue,
            None => standstill(ctx, active, queue),
        },
        workers: fed("leases", Place::Workers, workers),
        database: layer(Place::Database, database),
        outside: fed("leases", Place::Outside, outside),
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
    let gravest = of_layer.min_by(|a, b| graver(a, b))?;
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

/// A right, a table or a column is missing to read it.
fn unreadable(ctx: &Ctx, probe: &str) -> Option<Layer> {
    let mut probes = ctx.snapshot.probes.iter();
    let lasting = probes.any(|p| p.name == probe && p.lasting());
    lasting.then(|| layer(Mark::Unknown, "cannot be read"))
}

/// A standby that gets no changes shows tasks of then. A finding that lingers is no reason once it gets some again.
fn cut_off(ctx: &Ctx, active: &[Active]) -> Option<Layer> {
    active.iter().find(|a| a.rule == standby_cut_off::NAME)?;
    let age = ctx.snapshot.silence()?.age_s;
    Some(layer(Mark::Unknown, format!("as of {} ago", duration(age))))
}

/// Why a probe's data is not worth a mark, if so.
pub fn stale(ctx: &Ctx, probe: &str) -> Option<Layer> {
    if ctx.snapshot.all_gone().is_some() {
        return Some(layer(Mark::Unknown, "gone"));
    }
    if ctx.snapshot.all_half().is_some() {
        return Some(layer(Mark::Unknown, "cannot be read"));
    }
    let health = ctx.snapshot.probes.iter().find(|p| p.name == probe)?;
    // behind a lock it is known that the next tries will fail, too
    let locked = health.error.is_some() && !ctx.snapshot.exclusive.is_empty();
    let limit = match locked {
        true => WAITS,
        false => STALE.max(ctx.patience() / 2.0),
    };
    match health.age_s {
        Some(age) if age > limit => {
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

/// A queue that finished tasks all along, has some, and finishes none any more says so whatever else is wrong with it.
fn standstill(ctx: &Ctx, active: &[Active], said: Layer) -> Layer {
    let read = ["queues", "finished"];
    let unreadable = |p: &ProbeHealth| read.contains(&p.name.as_str()) && p.lasting();
    if ctx.snapshot.probes.iter().any(unreadable) {
        return said;
    }
    let Some(since) = ctx
        .snapshot
        .flow
        .iter()
        .filter_map(|flow| nothing_done_s(ctx, flow))
        .reduce(f64::max)
    else {
        return said;
    };
    let told = active
        .iter()
        .any(|a| a.trigger.severity > Severity::Info && a.place != Place::Nowhere);
    let mark = if told && since >= DEAD {
        Mark::Bad
    } else {
        Mark::Warn
    };
    Layer {
        mark: if said.mark == Mark::Bad {
            Mark::Bad
        } else {
            mark
        },
        text: format!("0 done in {}", duration(since)),
    }
}

/// Seconds for which nothing was finished, where that is out of the ordinary: it used to finish one a minute and more.
fn nothing_done_s(ctx: &Ctx, flow: &Flow) -> Option<f64> {
    let queue =
        ctx.snapshot.queues.iter().find(|q| {
            q.queue == flow.queue && q.schema == flow.schema && q.system == flow.system
        })?;
    let done = flow.finished.as_ref()?;
    let busy = done.len() - done.iter().rev().take_while(|n| **n == 0).count();
    let before: u64 = done[..busy].iter().map(|n| u64::from(*n)).sum();
    let has_work = queue.n(State::Ready).max(queue.n(State::Running)) > 0;
    let usual = before >= USUAL_SAMPLES && before >= busy as u64;
    let last = flow.from?.plus(60.0 * busy as f64);
    let since = ctx.snapshot.taken_at?.since(last)?;
    (has_work && usual && !queue.paused && since >= STANDSTILL).then_some(since)
}

fn workers(ctx: &Ctx) -> Layer {
    if let Some(stale) = stale(ctx, "leases") {
        return stale;
    }
    let workers = ctx.snapshot.workers.len() as u64;
    if workers == 0 {
        return layer(Mark::Unknown, "none seen");
    }
    // Tries are counted for ten minutes: who holds nothing and has no session may be gone for nine of them.
    let sign = |w: &Worker| w.holds > 0 || w.session == Seen::Seen;
    let known = ctx
        .snapshot
        .workers
        .iter()
        .any(|w| w.session != Seen::Unknown);
    let due = ctx.snapshot.queues.iter().any(|q| q.n(State::Ready) > 0);
    if (known || silent(ctx)) && due && !ctx.snapshot.workers.iter().any(sign) {
        return layer(Mark::Warn, "none seen now");
    }
    let expired = ctx.snapshot.leases.len() as u64;
    if expired > 0 {
        // Younger than the reclaim interval: nobody is late yet.
        return layer(Mark::Good, format!("{} just expired", count(expired)));
    }
    layer(Mark::Good, plural(workers, "worker", "workers"))
}

/// Nothing was finished in this minute and the one before, anywhere: who has no session that we may see is not heard either.
fn silent(ctx: &Ctx) -> bool {
    let none = |flow: &Flow| {
        let done = flow.finished.as_ref();
        done.is_some_and(|done| done.iter().rev().take(2).all(|n| *n == 0))
    };
    !ctx.snapshot.flow.is_empty() && ctx.snapshot.flow.iter().all(none)
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
    if let Some(lock) = ctx.snapshot.exclusive.first() {
        let table = lock.relation.split_once('.');
        let table = name(table.map_or(&*lock.relation, |(_, bare)| bare));
        return layer(Mark::Warn, format!("{table} locked"));
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
    if let Some(stale) = stale(ctx, "leases") {
        return stale;
    }
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
