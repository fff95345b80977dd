//! Who waits behind whom. `pg_blocking_pids` names holders and those ahead in the queue; the one to blame is at
//! the root: it waits for nobody.

use crate::probe::activity::Blocked;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The blocking tree of one snapshot.
pub struct Tree<'a> {
    waits: BTreeMap<i32, &'a Blocked>,
    behind: BTreeMap<i32, Vec<i32>>,
    roots: BTreeMap<i32, Vec<i32>>,
}

impl<'a> Tree<'a> {
    /// Reads the tree out of the waiting sessions.
    pub fn new(blocked: &'a [Blocked]) -> Self {
        let mut tree = Self {
            waits: BTreeMap::new(),
            behind: BTreeMap::new(),
            roots: BTreeMap::new(),
        };
        for wait in blocked {
            tree.waits.insert(wait.pid, wait);
            for holder in &wait.blocked_by {
                tree.behind.entry(*holder).or_default().push(wait.pid);
            }
        }
        // From the roots down: in a long queue everyone names all those ahead, so walking up from each would cost
        // the cube of its length.
        let mut roots: Vec<(usize, i32, BTreeSet<i32>)> = tree
            .behind
            .keys()
            .filter(|pid| !tree.waits.contains_key(pid))
            .map(|pid| (*pid, tree.behind(*pid)))
            .map(|(pid, behind)| (behind.len(), pid, behind))
            .collect();
        roots.sort_by_key(|(n, pid, _)| (Reverse(*n), *pid));
        for (_, root, behind) in roots {
            for pid in behind {
                tree.roots.entry(pid).or_default().push(root);
            }
        }
        tree
    }

    /// Everyone who waits behind this session, directly or not, without itself.
    pub fn behind(&self, pid: i32) -> BTreeSet<i32> {
        let mut seen = BTreeSet::new();
        let mut open = vec![pid];
        while let Some(holder) = open.pop() {
            for &waiter in self.behind.get(&holder).into_iter().flatten() {
                if waiter != pid && seen.insert(waiter) {
                    open.push(waiter);
                }
            }
        }
        seen
    }

    /// The waits of everyone behind this session.
    pub fn waits_behind(&self, pid: i32) -> Vec<&'a Blocked> {
        self.behind(pid)
            .iter()
            .filter_map(|pid| self.waits.get(pid).copied())
            .collect()
    }

    /// Those at the root above a waiting session, the one with most waiters first; empty within a deadlock.
    pub fn roots(&self, pid: i32) -> &[i32] {
        self.roots.get(&pid).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pid: i32, blocked_by: &[i32]) -> Blocked {
        Blocked {
            pid,
            blocked_by: blocked_by.to_vec(),
            ..Blocked::default()
        }
    }

    #[test]
    fn the_root_waits_for_nobody() {
        let waits = [
            wait(2, &[1]),
            wait(3, &[2, 1]),
            wait(4, &[3]),
            wait(9, &[8]),
        ];
        let tree = Tree::new(&waits);
        assert_eq!(tree.behind(1).into_iter().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(tree.roots(4), [1]);
        assert_eq!(tree.roots(9), [8]);
        assert_eq!(tree.waits_behind(3).len(), 1);
    }

    #[test]
    fn the_root_with_most_behind_it_comes_first() {
        let waits = [wait(5, &[1, 2]), wait(6, &[2])];
        assert_eq!(Tree::new(&waits).roots(5), [2, 1]);
    }

    #[test]
    fn a_deadlock_has_no_root_and_no_end() {
        let waits = [wait(1, &[2]), wait(2, &[1]), wait(3, &[3])];
        let tree = Tree::new(&waits);
        assert!(tree.roots(1).is_empty() && tree.roots(3).is_empty());
        assert_eq!(tree.behind(1).len(), 1);
        assert!(tree.behind(3).is_empty());
    }
}
