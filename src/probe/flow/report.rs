//! What history says: flow by minute, stages, tries by kind and tenant, rates, and what is usual.

use super::history::History;
use super::read::unknown_stage;
use super::slots::{Cell, FINE, Histogram, Key, RECENT, STAGES, quantile};
use super::{Attempts, Flow};
use crate::probe::ServerTime;
use crate::probe::stages::{Stage, StageName};
use crate::queue::profile::{Ends, Source};
use crate::queue::{Branch, Instance};
use std::collections::{BTreeMap, BTreeSet};

/// "Usual" needs so many samples.
pub const SAMPLES: u64 = 50;
/// Minutes of flow.
pub const MINUTES: usize = 60;
/// Kinds whose stages are shown, the busiest first.
const KINDS: usize = 50;

/// The attempt source of an instance, or why there is none.
pub fn attempt_source(instance: &Instance) -> Result<&Source, String> {
    let none = Branch::new();
    let branch = instance.branches.first().unwrap_or(&none);
    instance.source(&instance.profile.attempts, branch)
}

#[derive(Default)]
struct Durations {
    all: Histogram,
    recent: Histogram,
    before: Histogram,
    max: f64,
}

/// Counts over a while, of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Arrivals a minute over five minutes.
    pub arrived: Option<f64>,
    /// Tasks finished a minute.
    pub finished: Option<f64>,
    /// Tries that failed a minute.
    pub failed: Option<f64>,
}

impl History {
    /// Queues that history knows.
    pub fn queues(&self) -> BTreeSet<String> {
        let tries = self
            .slots
            .fine
            .values()
            .flat_map(|c| c.keys())
            .map(|k| k.queue().to_string());
        let minutes = self.slots.minutes.values().flat_map(|m| m.keys().cloned());
        tries
            .chain(minutes)
            .chain(self.arrivals.queues().cloned())
            .collect()
    }

    fn ends_known(&self, instance: &Instance) -> Result<(), String> {
        let unknown = &instance.profile.unknown;
        match attempt_source(instance) {
            Err(why) => Err(why),
            Ok(source) if source.ends == Ends::Claimed => Err(unknown
                .get("finished")
                .cloned()
                .unwrap_or_else(|| "there is no finished time".into())),
            Ok(_) => Ok(()),
        }
    }

    fn arrivals_known(&self, instance: &Instance) -> Result<(), String> {
        let none = Branch::new();
        let branch = instance.branches.first().unwrap_or(&none);
        instance
            .source(&instance.profile.arrivals, branch)
            .map(|_| ())
    }

    /// Final states by minute of a queue; the last minute is the running one.
    fn minutes(&self, queue: &str, first: i64) -> (Vec<u32>, Vec<u32>) {
        let (mut finished, mut failed) = (vec![0u32; MINUTES], vec![0u32; MINUTES]);
        let mut add = |slot: i64, f: u64, x: u64| {
            if let Some(at) = usize::try_from((slot - first).div_euclid(60))
                .ok()
                .filter(|at| *at < MINUTES)
            {
                finished[at] += f as u32;
                failed[at] += x as u32;
            }
        };
        for (minute, queues) in self.slots.minutes.range(first..) {
            if let Some(m) = queues.get(queue) {
                add(*minute, m.final_states.iter().sum(), m.failed);
            }
        }
        for (slot, cells) in &self.slots.fine {
            for (key, cell) in cells {
                if matches!(key, Key::Kind(q, _) if q == queue) {
                    add(*slot, cell.finished(), cell.failed);
                }
            }
        }
        (finished, failed)
    }

    /// Flow of one queue.
    pub fn flow(&self, instance: &Instance, queue: &str, now: ServerTime) -> Flow {
        let running = now.epoch() as i64 - (now.epoch() as i64).rem_euclid(60);
        let first = running - 60 * (MINUTES as i64 - 1);
        let ends = self.ends_known(instance);
        let arrivals = self.arrivals_known(instance);
        let (finished, failed) = self.minutes(queue, first);
        let unknown: Vec<String> = [
            arrivals.as_ref().err().map(|w| format!("arrivals: {w}")),
            ends.as_ref().err().map(|w| format!("finished: {w}")),
            self.cut.clone(),
        ]
        .into_iter()
        .flatten()
        .collect();
        Flow {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            queue: queue.to_string(),
            from: ServerTime::from_epoch(first as f64),
            arrived: arrivals
                .is_ok()
                .then(|| self.arrivals.by_minute(queue, first, MINUTES)),
            finished: ends.is_ok().then_some(finished),
            failed_attempts: ends.is_ok().then_some(failed),
            unknown: (!unknown.is_empty()).then(|| unknown.join("; ")),
        }
    }

    /// Rates of one queue over five minutes (or since we know, if that is less).
    pub fn rates(&self, instance: &Instance, queue: &str, now: f64) -> Rates {
        let over = |known: Option<f64>| known.map(|t| (now - t).clamp(FINE as f64, 300.0));
        let from = |over: f64| {
            let t = (now - over) as i64;
            t - t.rem_euclid(FINE)
        };
        let mut rates = Rates::default();
        if let (Ok(()), Some(over)) = (
            self.arrivals_known(instance),
            over(self.arrivals.known_from),
        ) {
            let seconds = now - from(over) as f64;
            rates.arrived = Some(self.arrivals.since(queue, from(over)) as f64 * 60.0 / seconds);
        }
        if let (Ok(()), Some(over)) = (self.ends_known(instance), over(self.known_from)) {
            let seconds = now - from(over) as f64;
            let mut sum = Cell::default();
            for (slot, key, cell) in self.slots.recent(now) {
                if slot >= from(over) && matches!(key, Key::Kind(q, _) if q == queue) {
                    sum.add(cell);
                }
            }
            rates.finished = Some(sum.finished() as f64 * 60.0 / seconds);
            rates.failed = Some(sum.failed as f64 * 60.0 / seconds);
        }
        rates
    }

    /// Tasks of a queue that reached succeeded, failed, cancelled within the last `seconds`; `None` where unknown.
    pub fn final_states(
        &self,
        instance: &Instance,
        queue: &str,
        now: f64,
        seconds: f64,
    ) -> Option<[u64; 3]> {
        self.ends_known(instance).ok()?;
        let from = (now - seconds) as i64;
        let mut sum = [0; 3];
        let mut add = |states: [u64; 3]| sum.iter_mut().zip(states).for_each(|(a, b)| *a += b);
        for (_, queues) in self.slots.minutes.range(from - from.rem_euclid(60)..) {
            if let Some(m) = queues.get(queue) {
                add(m.final_states);
            }
        }
        for (_, cells) in self.slots.fine.range(from..) {
            for (key, cell) in cells {
                if matches!(key, Key::Kind(q, _) if q == queue) {
                    add(cell.final_states);
                }
            }
        }
        Some(sum)
    }

    /// The newest claim that ended tries show, for a queue or one kind of it.
    pub fn claimed(&self, queue: &str, kind: Option<&str>) -> Option<ServerTime> {
        let cells = self
            .slots
            .fine
            .values()
            .chain(self.slots.old.values())
            .flatten();
        let of = cells.filter(|(key, _)| match key {
            Key::Kind(q, k) => q == queue && kind.is_none_or(|kind| kind == k),
            _ => false,
        });
        let newest = of.map(|(_, c)| c.claimed).fold(f64::NEG_INFINITY, f64::max);
        newest
            .is_finite()
            .then(|| ServerTime::from_epoch(newest))
            .flatten()
    }

    fn durations(&self, now: f64) -> BTreeMap<(String, Option<String>, usize), Durations> {
        let mut out: BTreeMap<(String, Option<String>, usize), Durations> = BTreeMap::new();
        let mut add = |recent: bool, key: &Key, cell: &Cell| match key {
            Key::Bin(queue, kind, stage, bin) => {
                for kind in [None, Some(kind.clone()).filter(|k| !k.is_empty())] {
                    let whole = kind.is_none();
                    let d = out
                        .entry((queue.clone(), kind, usize::from(*stage)))
                        .or_default();
                    *d.all.entry(*bin).or_default() += cell.n;
                    let part = if recent { &mut d.recent } else { &mut d.before };
                    *part.entry(*bin).or_default() += cell.n;
                    if whole && matches!(key, Key::Bin(_, k, _, _) if k.is_empty()) {
                        break;
                    }
                }
            }
            Key::Kind(queue, kind) => {
                for kind in [None, Some(kind.clone()).filter(|k| !k.is_empty())] {
                    for (stage, max) in cell.max.iter().enumerate().filter(|(_, m)| **m >= 0.0) {
                        let d = out.entry((queue.clone(), kind.clone(), stage)).or_default();
                        d.max = d.max.max(*max);
                    }
                }
            }
            _ => {}
        };
        for (_, key, cell) in self.slots.recent(now) {
            add(true, key, cell);
        }
        for (key, cell) in self.slots.before(now) {
            add(false, key, cell);
        }
        out
    }

    /// Every stage of every queue given, and of its busiest kinds.
    pub fn stages(&self, instance: &Instance, queues: &BTreeSet<String>, now: f64) -> Vec<Stage> {
        let source = attempt_source(instance);
        let durations = self.durations(now);
        let mut out = Vec::new();
        for queue in queues {
            let mut kinds: BTreeMap<Option<String>, u64> = BTreeMap::from([(None, u64::MAX)]);
            for ((q, kind, _), d) in &durations {
                if q == queue && kind.is_some() {
                    let n = kinds.entry(kind.clone()).or_default();
                    *n = (*n).max(d.all.values().sum());
                }
            }
            let mut kinds: Vec<(Option<String>, u64)> = kinds.into_iter().collect();
            kinds.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
            for (kind, _) in kinds.into_iter().take(KINDS + 1) {
                for (i, stage) in STAGES.into_iter().enumerate() {
                    let unknown = unknown_stage(instance, source.as_ref().copied(), stage);
                    if kind.is_some() && unknown.is_some() {
                        continue;
                    }
                    let d = durations
                        .get(&(queue.clone(), kind.clone(), i))
                        .filter(|_| unknown.is_none());
                    out.push(one_stage(instance, queue, kind.clone(), stage, d, unknown));
                }
            }
        }
        out
    }

    /// The usual 95th percentile of run times by queue and kind, from before the last ten minutes.
    pub fn usual_run(&self, now: f64) -> Vec<(String, String, f64)> {
        let mut out = Vec::new();
        for ((queue, kind, stage), d) in self.durations(now) {
            let (Some(kind), true) = (kind, STAGES[stage] == StageName::Run) else {
                continue;
            };
            if d.before.values().sum::<u64>() >= SAMPLES
                && let Some(p95) = quantile(&d.before, 0.95, d.max)
            {
                out.push((queue, kind, p95));
            }
        }
        out
    }

    /// Tries and failures of each worker over ten minutes, and the minutes that were seen.
    pub fn workers(&self, now: f64) -> (BTreeMap<String, Cell>, f64) {
        let mut out: BTreeMap<String, Cell> = BTreeMap::new();
        for (_, key, cell) in self.slots.recent(now) {
            if let Key::Worker(_, worker) = key {
                out.entry(worker.clone()).or_default().add(cell);
            }
        }
        let seen = self
            .known_from
            .map_or(0.0, |t| now - t)
            .clamp(FINE as f64, RECENT as f64);
        (out, seen / 60.0)
    }

    /// Tries by kind and by tenant: the last ten minutes against those before.
    pub fn attempts(&self, instance: &Instance, now: f64) -> Vec<Attempts> {
        if self.ends_known(instance).is_err() {
            return Vec::new();
        }
        let mut all: BTreeMap<(&str, String, String), Group> = BTreeMap::new();
        for (slot, key, cell) in self.slots.recent(now) {
            let Some(name) = group(key) else { continue };
            let g = all.entry(name).or_default();
            match key {
                Key::KindError(_, _, error) | Key::TenantError(_, _, error) => {
                    *g.errors.entry(error.clone()).or_default() += cell.failed;
                }
                _ => {
                    g.recent.add(cell);
                    g.slots.entry(slot).or_default().add(cell);
                }
            }
        }
        for (key, cell) in self.slots.before(now) {
            if let (Some(name), Key::Kind(..) | Key::Tenant(..)) = (group(key), key) {
                all.entry(name).or_default().before.add(cell);
            }
        }
        all.into_iter()
            .map(|((by, queue, name), g)| g.shown(instance, by, queue, name))
            .collect()
    }
}

fn one_stage(
    instance: &Instance,
    queue: &str,
    kind: Option<String>,
    stage: StageName,
    d: Option<&Durations>,
    unknown: Option<String>,
) -> Stage {
    let n = d.map_or(0, |d| d.all.values().sum());
    let none = || (n == 0).then(|| "no try ended within the window".to_string());
    Stage {
        system: instance.system.clone(),
        schema: instance.schema.clone(),
        queue: queue.to_string(),
        kind,
        stage,
        n,
        p50_s: d.and_then(|d| quantile(&d.all, 0.5, d.max)),
        p95_s: d.and_then(|d| quantile(&d.all, 0.95, d.max)),
        max_s: d.filter(|_| n > 0).map(|d| d.max),
        recent_p50_s: d.and_then(|d| quantile(&d.recent, 0.5, d.max)),
        unknown: unknown.or_else(none),
    }
}

#[derive(Default)]
struct Group {
    recent: Cell,
    before: Cell,
    errors: BTreeMap<String, u64>,
    slots: BTreeMap<i64, Cell>,
}

fn group(key: &Key) -> Option<(&'static str, String, String)> {
    Some(match key {
        Key::Kind(q, k) | Key::KindError(q, k, _) => ("kind", q.clone(), k.clone()),
        Key::Tenant(_, t) | Key::TenantError(_, t, _) => ("tenant", String::new(), t.clone()),
        _ => return None,
    })
}

impl Group {
    fn shown(self, instance: &Instance, by: &str, queue: String, name: String) -> Attempts {
        let worst = self.errors.iter().max_by_key(|(_, n)| **n);
        // backwards from the newest slot: since when has at least half failed?
        let mut since = None;
        for (slot, cell) in self.slots.iter().rev() {
            if cell.n > 0 && cell.failed * 2 < cell.n {
                break;
            }
            if cell.failed > 0 {
                since = ServerTime::from_epoch(*slot as f64);
            }
        }
        Attempts {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            queue,
            by: by.to_string(),
            name,
            recent: self.recent.n as u32,
            recent_failed: self.recent.failed as u32,
            before: self.before.n as u32,
            before_failed: self.before.failed as u32,
            error: worst.map(|(e, _)| e.clone()),
            error_n: worst.map_or(0, |(_, n)| *n as u32),
            lost: None,
            tries_per_task: None,
            failing_since: since,
        }
    }
}
