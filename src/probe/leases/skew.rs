//! Whose clock is wrong: a claim first seen between two polls was made between them, so the clock that wrote its time
//! is off by something within an interval. Several claims of a worker narrow it down.

use crate::probe::ServerTime;
use std::collections::{BTreeMap, BTreeSet};

/// A claim as a worker's clock wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Queue, task, attempt.
    pub task: (String, String, Option<i64>),
    /// Who.
    pub worker: String,
    /// When, by its clock.
    pub at: ServerTime,
}

/// Claims kept for one worker.
const SAMPLES: usize = 20;
/// Workers kept.
const WORKERS: usize = 1000;
/// Polls further apart say too little.
const APART: f64 = 30.0;

/// What is remembered of claims.
#[derive(Clone, Debug, Default)]
pub struct Skew {
    seen: BTreeSet<(String, String, Option<i64>, i64)>,
    last: Option<ServerTime>,
    /// Worker to intervals in which its clock's error lies.
    intervals: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Skew {
    /// Takes in the claims that a poll at `now` saw.
    pub fn take(&mut self, claims: &[Claim], now: ServerTime) {
        let key = |c: &Claim| {
            let (queue, task, attempt) = c.task.clone();
            (queue, task, attempt, (c.at.epoch() * 1e3) as i64)
        };
        let seen: BTreeSet<_> = claims.iter().map(key).collect();
        let close = self
            .last
            .and_then(|t| now.since(t))
            .filter(|s| (0.0..APART).contains(s));
        if let (Some(before), Some(_)) = (self.last, close) {
            for claim in claims.iter().filter(|c| !self.seen.contains(&key(c))) {
                let (Some(low), Some(high)) = (claim.at.since(now), claim.at.since(before)) else {
                    continue;
                };
                if self.intervals.len() >= WORKERS && !self.intervals.contains_key(&claim.worker) {
                    continue;
                }
                let list = self.intervals.entry(claim.worker.clone()).or_default();
                list.push((low, high));
                if list.len() > SAMPLES {
                    list.remove(0);
                }
            }
        }
        self.seen = seen;
        self.last = Some(now);
    }

    /// A worker's clock minus the server's, in seconds, and the claims it rests on. The middle of what all its claims
    /// agree on, or their median where they do not.
    pub fn of(&self, worker: &str) -> Option<(f64, u32)> {
        let list = self.intervals.get(worker).filter(|l| !l.is_empty())?;
        let low = list.iter().map(|i| i.0).fold(f64::NEG_INFINITY, f64::max);
        let high = list.iter().map(|i| i.1).fold(f64::INFINITY, f64::min);
        let n = list.len() as u32;
        if low <= high {
            // an interval around zero is no sign of any skew
            let nearest = if low > 0.0 || high < 0.0 {
                (low + high) / 2.0
            } else {
                0.0
            };
            return Some((nearest, n));
        }
        let mut middles: Vec<f64> = list.iter().map(|(l, h)| (l + h) / 2.0).collect();
        middles.sort_by(f64::total_cmp);
        Some((middles[middles.len() / 2], n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(s: f64) -> ServerTime {
        ServerTime::from_epoch(1e9 + s).expect("time")
    }

    fn claim(task: &str, worker: &str, at: f64) -> Claim {
        Claim {
            task: ("q".into(), task.into(), Some(1)),
            worker: worker.into(),
            at: t(at),
        }
    }

    #[test]
    fn a_clock_that_is_behind_shows_after_a_few_claims() {
        let mut skew = Skew::default();
        skew.take(&[claim("old", "b2", -900.0)], t(0.0));
        assert_eq!(skew.of("b2"), None);
        // claims made at 0.9, 1.2 and 2.9 by a clock that is 240 s behind; an exact one beside it
        skew.take(
            &[
                claim("old", "b2", -900.0),
                claim("1", "b2", 0.9 - 240.0),
                claim("9", "a1", 0.5),
            ],
            t(1.0),
        );
        skew.take(&[claim("2", "b2", 1.2 - 240.0)], t(2.0));
        skew.take(&[claim("3", "b2", 2.9 - 240.0)], t(3.0));
        let (s, n) = skew.of("b2").expect("known");
        assert_eq!(n, 3);
        assert!((s + 240.0).abs() < 0.2, "{s}");
        assert_eq!(skew.of("a1"), Some((0.0, 1)));
    }
}
