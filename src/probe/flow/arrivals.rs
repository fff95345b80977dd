//! What is remembered of arrivals: by ten seconds while recent, by minute for a day, with the first and the last of
//! each, so that gaps are exact.

use std::collections::BTreeMap;

/// Arrivals of one slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Few {
    /// How many.
    pub n: u64,
    /// The first, in seconds since 1970.
    pub first: f64,
    /// The last.
    pub last: f64,
}

/// Arrivals by slot and queue.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    fine: BTreeMap<i64, BTreeMap<String, Few>>,
    minutes: BTreeMap<i64, BTreeMap<String, Few>>,
    /// They are complete from here on, in seconds since 1970.
    pub known_from: Option<f64>,
}

/// Seconds of arrivals that are kept.
pub const KEPT: f64 = 86_400.0;
/// Queues that are kept apart at most.
const QUEUES: usize = 1000;

fn put(slots: &mut BTreeMap<i64, BTreeMap<String, Few>>, slot: i64, queue: &str, few: Few) {
    let queues = slots.entry(slot).or_default();
    let room = queues.len() < QUEUES;
    match queues.get_mut(queue) {
        Some(known) => {
            known.n += few.n;
            known.first = known.first.min(few.first);
            known.last = known.last.max(few.last);
        }
        None if room => {
            queues.insert(queue.to_string(), few);
        }
        None => {}
    }
}

impl Arrivals {
    /// Forgets fine slots from `from` on (of these queues, where given).
    pub fn forget(&mut self, from: i64, queues: Option<&[String]>) {
        for slot in self.fine.range_mut(from..).map(|(_, s)| s) {
            match queues {
                None => slot.clear(),
                Some(queues) => slot.retain(|q, _| !queues.contains(q)),
            }
        }
    }

    /// Adds to a fine slot.
    pub fn add(&mut self, slot: i64, queue: &str, few: Few) {
        put(&mut self.fine, slot, queue, few);
    }

    /// Adds to the past.
    pub fn add_old(&mut self, slot: i64, queue: &str, few: Few) {
        put(&mut self.minutes, slot - slot.rem_euclid(60), queue, few);
    }

    /// Folds fine slots older than this into minutes, and drops what is older than a day.
    pub fn age(&mut self, now: f64, edge: i64) {
        let keep = self.fine.split_off(&edge);
        for (slot, queues) in std::mem::replace(&mut self.fine, keep) {
            for (queue, few) in queues {
                put(&mut self.minutes, slot - slot.rem_euclid(60), &queue, few);
            }
        }
        let out = (now - KEPT) as i64;
        self.minutes = self.minutes.split_off(&out);
        self.known_from = self.known_from.map(|t| t.max(now - KEPT));
    }

    fn of<'a>(&'a self, queue: &'a str, from: i64) -> impl Iterator<Item = (i64, &'a Few)> {
        let one = move |(slot, queues): (&i64, &'a BTreeMap<String, Few>)| {
            Some((*slot, queues.get(queue)?))
        };
        let old = self.minutes.range(from..).filter_map(one);
        old.chain(self.fine.range(from..).filter_map(one))
    }

    /// Queues with arrivals.
    pub fn queues(&self) -> impl Iterator<Item = &String> {
        self.minutes
            .values()
            .chain(self.fine.values())
            .flat_map(BTreeMap::keys)
    }

    /// Arrivals by minute from `from` on, which is the start of a minute.
    pub fn by_minute(&self, queue: &str, from: i64, minutes: usize) -> Vec<u32> {
        let mut out = vec![0u32; minutes];
        for (slot, few) in self.of(queue, from) {
            if let Some(n) = out.get_mut(((slot - from) / 60) as usize) {
                *n += few.n as u32;
            }
        }
        out
    }

    /// Arrivals since a time, by whole slots.
    pub fn since(&self, queue: &str, from: i64) -> u64 {
        self.of(queue, from).map(|(_, few)| few.n).sum()
    }

    /// The last arrival, and the longest gap between two.
    pub fn gaps(&self, queue: &str) -> (Option<f64>, Option<f64>) {
        let mut slots: Vec<&Few> = self.of(queue, i64::MIN).map(|(_, few)| few).collect();
        slots.sort_by(|a, b| a.first.total_cmp(&b.first));
        let mut last: Option<f64> = None;
        let mut longest: Option<f64> = None;
        for few in slots {
            if let Some(before) = last {
                let gap = (few.first - before).max(0.0);
                longest = Some(longest.map_or(gap, |l| l.max(gap)));
            }
            if few.n > 1 {
                // within a slot the arrivals are at most its length apart
                let within = (few.last - few.first) / (few.n - 1) as f64;
                longest = Some(longest.map_or(within, |l| l.max(within)));
            }
            last = Some(last.map_or(few.last, |l| l.max(few.last)));
        }
        (last, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_exact_across_slots_and_ageing() {
        let mut a = Arrivals::default();
        let at = |t: f64| Few {
            n: 1,
            first: t,
            last: t,
        };
        for t in [100.0, 130.0, 600.0, 605.0] {
            a.add((t as i64) / 10 * 10, "q", at(t));
        }
        assert_eq!(a.gaps("q"), (Some(605.0), Some(470.0)));
        a.age(700.0, 300);
        assert_eq!(a.gaps("q"), (Some(605.0), Some(470.0)));
        assert_eq!(a.by_minute("q", 60, 10), [1, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        a.forget(600, None);
        assert_eq!(a.gaps("q").0, Some(130.0));
        assert_eq!(a.gaps("other"), (None, None));
    }
}
