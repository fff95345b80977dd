//! What history says: flow by minute, stages, tries by kind and tenant, rates, and what is usual.

use super::history::History;
use super::read::unknown_stage;
use super::slots::{Cell, Cells, FINE, Histogram, Key, RECENT, STAGES, quantile};
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

struct Durations {
    recent: Histogram,
    before: Histogram,
    max: f64,
}

type ByKind<'a> = BTreeMap<(&'a str, &'a str, usize), Durations>;

impl Default for Durations {
    fn default() -> Self {
        Self {
            recent: Histogram::new(),
            before: Histogram::new(),
            max: -1.0,
        }
    }
}

impl Durations {
    fn add(&mut self, other: &Durations) {
        for (mine, theirs) in [
            (&mut self.recent, &other.recent),
            (&mut self.before, &other.before),
        ] {
            for (bin, n) in theirs {
                *mine.entry(*bin).or_default() += n;
            }
        }
        self.max = self.max.max(other.max);
    }

    fn n(&self) -> u64 {
        self.recent.values().chain(self.before.values()).sum()
    }

    fn all(&self) -> Histogram {
        let mut all = self.before.clone();
        for (bin, n) in &self.recent {
            *all.entry(*bin).or_default() += n;
        }
        all
    }
}

/// Start of the first slot that counts as recent.
fn recent_from(now: f64) -> i64 {
    let from = now as i64 - RECENT;
    from - from.rem_euclid(FINE)
}

/// Everything but durations, which come last.
fn not_bins(cells: &Cells) -> impl Iterator<Item = (&Key, &Cell)> {
    cells
        .iter()
        .take_while(|(key, _)| !matches!(key, Key::Bin(..)))
}

/// The cells of kinds: they come first.
fn kinds(cells: &Cells) -> impl Iterator<Item = (&Key, &Cell)> {
    cells
        .iter()
        .take_while(|(key, _)| matches!(key, Key::Kind(..)))
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
            for (key, cell) in kinds(cells) {
                if key.queue() == queue {
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
            for (key, cell) in self
                .slots
                .fine
                .range(from(over)..)
                .flat_map(|(_, cells)| kinds(cells))
            {
                if key.queue() == queue {
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
            for (key, cell) in kinds(cells) {
                if key.queue() == queue {
                    add(cell.final_states);
                }
            }
        }
        Some(sum)
    }

    /// The newest claims that ended tries show, by queue and kind; for the whole queue by an empty kind.
    pub fn claims(&self) -> BTreeMap<(String, String), ServerTime> {
        let mut newest: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for (key, cell) in self
            .slots
            .fine
            .values()
            .chain(self.slots.old.values())
            .flat_map(kinds)
        {
            if let Key::Kind(queue, kind) = key
                && cell.claimed.is_finite()
            {
                for kind in [kind.as_str(), ""] {
                    let at = newest.entry((queue, kind)).or_insert(cell.claimed);
                    *at = at.max(cell.claimed);
                }
            }
        }
        let owned = |((q, k), t): ((&str, &str), f64)| {
            Some(((q.to_string(), k.to_string()), ServerTime::from_epoch(t)?))
        };
        newest.into_iter().filter_map(owned).collect()
    }

    /// Durations by queue, kind and stage.
    fn durations(&self, now: f64) -> ByKind<'_> {
        let edge = recent_from(now);
        let mut out = ByKind::new();
        let fine = self
            .slots
            .fine
            .iter()
            .map(|(slot, cells)| (*slot >= edge, cells));
        for (recent, cells) in fine.chain(self.slots.old.values().map(|cells| (false, cells))) {
            for (key, cell) in kinds(cells) {
                let Key::Kind(queue, kind) = key else {
                    continue;
                };
                for (stage, max) in cell.max.iter().enumerate().filter(|(_, m)| **m >= 0.0) {
                    let d = out.entry((queue, kind, stage)).or_default();
                    d.max = d.max.max(*max);
                }
            }
            for (key, cell) in cells.range(Key::Bin(String::new(), String::new(), 0, 0)..) {
                let Key::Bin(queue, kind, stage, bin) = key else {
                    continue;
                };
                let d = out.entry((queue, kind, usize::from(*stage))).or_default();
                let part = if recent { &mut d.recent } else { &mut d.before };
                *part.entry(*bin).or_default() += cell.n;
            }
        }
        out
    }

    /// Every stage of every queue given and of its busiest kinds; and the usual 95th percentile of run times by queue
    /// and kind, from before the last ten minutes.
    pub fn stages(
        &self,
        instance: &Instance,
        queues: &BTreeSet<String>,
        now: f64,
    ) -> (Vec<Stage>, Vec<(String, String, f64)>) {
        let source = attempt_source(instance);
        let unknown = STAGES.map(|stage| unknown_stage(instance, source.as_ref().copied(), stage));
        let durations = self.durations(now);
        let mut out = Vec::new();
        let mut usual = Vec::new();
        for queue in queues {
            let of_queue = durations
                .range((queue.as_str(), "", 0)..)
                .take_while(|((q, _, _), _)| q == queue);
            let mut whole: [Durations; 4] = Default::default();
            let mut by_kind: BTreeMap<&str, [Option<&Durations>; 4]> = BTreeMap::new();
            for ((_, kind, stage), d) in of_queue {
                whole[*stage].add(d);
                if !kind.is_empty() {
                    by_kind.entry(kind).or_default()[*stage] = Some(d);
                }
                if STAGES[*stage] == StageName::Run
                    && d.before.values().sum::<u64>() >= SAMPLES
                    && let Some(p95) = quantile(&d.before, 0.95, d.max)
                {
                    usual.push((queue.clone(), kind.to_string(), p95));
                }
            }
            let mut busiest: Vec<_> = by_kind.into_iter().collect();
            busiest
                .sort_by_key(|(_, d)| std::cmp::Reverse(d.iter().flatten().map(|d| d.n()).max()));
            busiest.truncate(KINDS);
            for (i, stage) in STAGES.into_iter().enumerate() {
                let d = Some(&whole[i]).filter(|_| unknown[i].is_none());
                out.push(one_stage(
                    instance,
                    queue,
                    None,
                    stage,
                    d,
                    unknown[i].clone(),
                ));
            }
            for (kind, d) in busiest {
                for (i, stage) in STAGES
                    .into_iter()
                    .enumerate()
                    .filter(|(i, _)| unknown[*i].is_none())
                {
                    out.push(one_stage(
                        instance,
                        queue,
                        Some(kind.to_string()),
                        stage,
                        d[i],
                        None,
                    ));
                }
            }
        }
        (out, usual)
    }

    /// Tries and failures of each worker over ten minutes, and the minutes that were seen.
    pub fn workers(&self, now: f64) -> (BTreeMap<String, Cell>, f64) {
        let mut out: BTreeMap<String, Cell> = BTreeMap::new();
        let recent = self
            .slots
            .fine
            .range(recent_from(now)..)
            .flat_map(|(_, cells)| not_bins(cells));
        for (key, cell) in recent {
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
        let edge = recent_from(now);
        let recent = self.slots.fine.range(edge..);
        for (slot, key, cell) in
            recent.flat_map(|(s, cells)| not_bins(cells).map(|(k, c)| (*s, k, c)))
        {
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
        let older = self
            .slots
            .old
            .values()
            .chain(self.slots.fine.range(..edge).map(|(_, cells)| cells));
        for (key, cell) in older.flat_map(not_bins) {
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
    let n = d.map_or(0, Durations::n);
    let all = d.map(Durations::all).unwrap_or_default();
    let max = d.map_or(-1.0, |d| d.max);
    let none = || (n == 0).then(|| "no try ended within the window".to_string());
    Stage {
        system: instance.system.clone(),
        schema: instance.schema.clone(),
        queue: queue.to_string(),
        kind,
        stage,
        n,
        p50_s: quantile(&all, 0.5, max),
        p95_s: quantile(&all, 0.95, max),
        max_s: (n > 0 && max >= 0.0).then_some(max),
        recent_p50_s: d.and_then(|d| quantile(&d.recent, 0.5, max)),
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
