//! Who waits behind whom. A queue of waiters lists everybody ahead of each one, so the edges grow with the square of
//! the sessions: they are indexed once a table, not searched once a row.

use crate::probe::Snapshot;
use crate::probe::activity::Blocked;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// Waiting sessions and those they wait for.
pub struct Chains<'a> {
    blocked: &'a [Blocked],
    /// Number of each pid.
    number: BTreeMap<i32, usize>,
    pids: Vec<i32>,
    /// Numbers of those who wait for each.
    waiters: Vec<Vec<usize>>,
    /// Position in `blocked` of each that waits.
    waits: Vec<Option<usize>>,
    /// How many wait for each, directly or not.
    counts: OnceCell<Vec<usize>>,
    /// Those listed under each.
    listed: OnceCell<Vec<Vec<i32>>>,
}

/// A set of numbers, one bit each.
type Bits = Vec<u64>;

fn has(bits: &Bits, n: usize) -> bool {
    bits[n / 64] & 1 << (n % 64) != 0
}

impl<'a> Chains<'a> {
    /// Indexes a snapshot.
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let mut chains = Self {
            blocked: &snapshot.blocked,
            number: BTreeMap::new(),
            pids: Vec::new(),
            waiters: Vec::new(),
            waits: Vec::new(),
            counts: OnceCell::new(),
            listed: OnceCell::new(),
        };
        for (at, b) in snapshot.blocked.iter().enumerate() {
            let waiter = chains.number(b.pid);
            chains.waits[waiter] = Some(at);
            for holder in &b.blocked_by {
                let holder = chains.number(*holder);
                chains.waiters[holder].push(waiter);
            }
        }
        chains
    }

    fn number(&mut self, pid: i32) -> usize {
        *self.number.entry(pid).or_insert_with(|| {
            self.pids.push(pid);
            self.waiters.push(Vec::new());
            self.waits.push(None);
            self.pids.len() - 1
        })
    }

    /// What a session waits for, if it waits.
    pub fn waiting(&self, pid: i32) -> Option<&'a Blocked> {
        let number = *self.number.get(&pid)?;
        self.waits[number].map(|at| &self.blocked[at])
    }

    /// Those who wait for a session, directly or behind others, nearest first.
    pub fn behind(&self, pid: i32) -> Vec<i32> {
        let Some(start) = self.number.get(&pid) else {
            return Vec::new();
        };
        let mut seen = vec![false; self.pids.len()];
        seen[*start] = true;
        let mut found = vec![*start];
        let mut at = 0;
        while let Some(holder) = found.get(at).copied() {
            for waiter in &self.waiters[holder] {
                if !seen[*waiter] {
                    seen[*waiter] = true;
                    found.push(*waiter);
                }
            }
            at += 1;
        }
        found[1..].iter().map(|n| self.pids[*n]).collect()
    }

    /// How many wait for a session, directly or behind others.
    pub fn count(&self, pid: i32) -> usize {
        let counts = self.counts.get_or_init(|| self.count_all());
        self.number.get(&pid).map_or(0, |n| counts[*n])
    }

    /// All counts at once: what waits behind a waiter is known before what waits behind the one it waits for, and not
    /// walked again.
    fn count_all(&self) -> Vec<usize> {
        let words = self.pids.len().div_ceil(64);
        let mut sets: Vec<Bits> = vec![vec![0; words]; self.pids.len()];
        let order = self.waiters_first();
        loop {
            let mut changed = false;
            for n in &order {
                let mut mine = std::mem::take(&mut sets[*n]);
                for waiter in self.waiters[*n].iter().filter(|w| *w != n) {
                    let theirs = &sets[*waiter];
                    let news = |(a, b): (&u64, &u64)| b & !a != 0;
                    if !has(&mine, *waiter) || mine.iter().zip(theirs).any(news) {
                        mine.iter_mut().zip(theirs).for_each(|(a, b)| *a |= b);
                        mine[waiter / 64] |= 1 << (waiter % 64);
                        changed = true;
                    }
                }
                sets[*n] = mine;
            }
            // a second time shows that nothing is missing, also in the circle of a deadlock
            if !changed {
                break;
            }
        }
        let own = |(n, bits): (usize, &Bits)| {
            let all: u32 = bits.iter().map(|b| b.count_ones()).sum();
            all as usize - usize::from(has(bits, n))
        };
        sets.iter().enumerate().map(own).collect()
    }

    /// Every session after those that wait for it, but for circles.
    fn waiters_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.pids.len());
        let mut seen = vec![false; self.pids.len()];
        for start in 0..self.pids.len() {
            // a session, and how many of its waiters were looked at
            let mut path = vec![(start, 0)];
            if std::mem::replace(&mut seen[start], true) {
                continue;
            }
            while let Some((n, at)) = path.last_mut() {
                match self.waiters[*n].get(*at).copied() {
                    Some(waiter) => {
                        *at += 1;
                        if !std::mem::replace(&mut seen[waiter], true) {
                            path.push((waiter, 0));
                        }
                    }
                    None => {
                        order.push(*n);
                        path.pop();
                    }
                }
            }
        }
        order
    }

    /// Those who wait for nobody while others wait for them, most waited for first.
    pub fn roots(&self) -> Vec<i32> {
        let mut roots: Vec<i32> = (0..self.pids.len())
            .filter(|n| self.waits[*n].is_none() && !self.waiters[*n].is_empty())
            .map(|n| self.pids[n])
            .collect();
        // A deadlock about to be resolved has no root: show it from one of its own.
        if roots.is_empty() {
            roots.extend(self.blocked.first().map(|b| b.pid));
        }
        roots.sort_by_cached_key(|pid| (std::cmp::Reverse(self.count(*pid)), *pid));
        roots
    }

    /// Whom a session waits for in the end; itself when it waits for nobody.
    pub fn root_of(&self, pid: i32) -> i32 {
        let mut seen = vec![pid];
        let mut at = pid;
        while let Some(next) = self
            .waiting(at)
            .and_then(|b| self.nearest(b))
            .filter(|p| !seen.contains(p))
        {
            at = next;
            seen.push(at);
        }
        at
    }

    /// Of those a session waits for, the one it is listed under: one who waits for nobody, else the first.
    pub fn nearest(&self, b: &Blocked) -> Option<i32> {
        let free = b.blocked_by.iter().find(|p| self.waiting(**p).is_none());
        free.or_else(|| b.blocked_by.first()).copied()
    }

    /// Each waiting session under the one that it is listed under.
    fn list(&self) -> Vec<Vec<i32>> {
        let mut listed = vec![Vec::new(); self.pids.len()];
        for (waiter, at) in self.waits.iter().enumerate() {
            let above = at.and_then(|at| self.nearest(&self.blocked[at]));
            if let Some(holder) = above.and_then(|pid| self.number.get(&pid)) {
                listed[*holder].push(self.pids[waiter]);
            }
        }
        listed
    }

    /// The sessions listed under one in the tree, most waited for first.
    pub fn children(&self, pid: i32) -> Vec<i32> {
        let Some(number) = self.number.get(&pid) else {
            return Vec::new();
        };
        let listed = self.listed.get_or_init(|| self.list());
        let mut children = listed[*number].clone();
        children.sort_by_cached_key(|p| std::cmp::Reverse(self.count(*p)));
        children
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(edges: &[(i32, &[i32])]) -> Snapshot {
        let blocked = edges.iter().map(|(pid, by)| Blocked {
            pid: *pid,
            blocked_by: by.to_vec(),
            ..Blocked::default()
        });
        Snapshot {
            blocked: blocked.collect(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_chain_leads_to_its_root_and_back() {
        let s = snapshot(&[(2, &[1]), (3, &[2]), (4, &[2, 1]), (9, &[8])]);
        let c = Chains::of(&s);
        assert_eq!(c.behind(1), [2, 4, 3]);
        assert_eq!(c.behind(4), [] as [i32; 0]);
        assert_eq!(c.behind(77), [] as [i32; 0]);
        assert_eq!(c.roots(), [1, 8]);
        assert_eq!((c.root_of(3), c.root_of(4), c.root_of(1)), (1, 1, 1));
        assert_eq!(c.children(1), [2, 4]);
        assert_eq!(c.children(2), [3]);
    }

    #[test]
    fn a_deadlock_ends() {
        let s = snapshot(&[(1, &[2]), (2, &[3]), (3, &[1])]);
        let c = Chains::of(&s);
        assert_eq!(c.roots(), [1]);
        assert_eq!(c.behind(1), [3, 2]);
        assert_eq!(c.root_of(1), 3);
        assert_eq!([1, 2, 3].map(|pid| c.count(pid)), [2, 2, 2]);
    }

    proptest::proptest! {
        #[test]
        fn counting_all_is_counting_each(edges in proptest::collection::vec((0i32..40, proptest::collection::vec(0i32..40, 0..5)), 0..30)) {
            let edges: Vec<(i32, &[i32])> = edges.iter().map(|(pid, by)| (*pid, by.as_slice())).collect();
            let s = snapshot(&edges);
            let c = Chains::of(&s);
            for pid in 0..40 {
                proptest::prop_assert_eq!(c.count(pid), c.behind(pid).len());
            }
        }
    }
}
