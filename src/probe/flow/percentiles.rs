//! Stages: how long tries took, from merged bins.

use super::history::History;
use super::read::unknown_stage;
use super::report::{SAMPLES, attempt_source, kinds, recent_from};
use super::slots::{Histogram, Key, STAGES, quantile};
use crate::probe::stages::{Stage, StageName};
use crate::queue::Instance;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds whose stages are shown, the busiest first.
const KINDS: usize = 50;

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

impl History {
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
            for ((queue, kind, stage, bin), n) in &cells.bins {
                let d = out.entry((queue, kind, usize::from(*stage))).or_default();
                let part = if recent { &mut d.recent } else { &mut d.before };
                *part.entry(*bin).or_default() += n;
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
