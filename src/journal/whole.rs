//! What became of all that an action asks for, from its lines: each target is counted once, as in the action's report.

use super::{Entry, Phase, Tried};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Targets of an action. `asked` is the other four together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// Targets that the whole action asks for; where its lines do not say (an older jobtop), those they name.
    pub asked: u64,
    /// Targets changed, or asked to stop.
    pub changed: u64,
    /// Targets that the server would not change.
    pub skipped: u64,
    /// Targets whose transaction was begun and whose end is not known.
    pub unknown: u64,
    /// Targets that no transaction was begun for, or whose transaction was rolled back.
    pub not_reached: u64,
}

impl Tried {
    /// What became of all that it asks for.
    pub fn whole(&self) -> Whole {
        let mut whole = Whole::default();
        // those may come again in a later transaction, and are counted by their last
        let mut locked: BTreeMap<&str, u64> = BTreeMap::new();
        for lines in self.transactions().values() {
            let Some(last) = lines.last() else {
                continue;
            };
            for id in &last.ids {
                if let Some(n) = locked.get_mut(id.as_str()) {
                    *n = n.saturating_sub(1);
                }
            }
            let ids = last.ids.len() as u64;
            let (changed, skipped) = (last.changed.unwrap_or(0), last.skipped.unwrap_or(0));
            whole.changed += changed;
            whole.unknown += match (last.phase, last.unknown) {
                (Phase::Ended, Some(n)) => n,
                // an older line does not say whether its transaction was rolled back
                _ => ids.saturating_sub(changed + skipped),
            };
            let again = last.outcomes.iter().filter(|(_, o)| *o == "locked");
            whole.skipped += skipped.saturating_sub(again.clone().count() as u64);
            for (id, _) in again {
                *locked.entry(id).or_default() += 1;
            }
        }
        whole.skipped += locked.values().sum::<u64>();
        let answered = whole.changed + whole.skipped;
        let of = self.entries.iter().find_map(|e| e.of);
        whole.asked = of.unwrap_or(self.ids().len() as u64).max(answered);
        // those of an older line may have come again
        whole.unknown = whole.unknown.min(whole.asked - answered);
        whole.not_reached = whole.asked - answered - whole.unknown;
        whole
    }

    /// The lines of each of its transactions, in the order in which they began.
    fn transactions(&self) -> BTreeMap<u64, Vec<&Entry>> {
        let mut all: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            all.entry(number(entry)).or_default().push(entry);
        }
        all
    }
}

/// Chunks of one action are `id/1`, `id/2`, …; an action of one transaction has no number.
fn number(entry: &Entry) -> u64 {
    let number = entry.action_id.split_once('/').map(|(_, n)| n.parse());
    number.and_then(Result::ok).unwrap_or(0)
}
