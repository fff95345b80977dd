//! Tasks by state: what is counted, what is estimated, and why the rest is unknown.

use super::Watched;
use crate::probe::queues::depth::One;
use crate::probe::{Bound, Count, ServerTime, State};
use std::collections::BTreeMap;

impl Watched {
    /// Live states as counted, final ones as finished within the window, else as estimated where this is the only
    /// queue of its table, else unknown with the reason.
    pub(super) fn states(
        &self,
        name: &str,
        one: &One,
        now: ServerTime,
        window: f64,
        notes: &mut Vec<String>,
    ) -> BTreeMap<State, Option<Count>> {
        let unknown = &self.instance.profile.unknown;
        let mut states: BTreeMap<State, Option<Count>> =
            one.states.iter().map(|(s, c)| (*s, Some(*c))).collect();
        let finished = self.by_queue.get(name).and_then(|d| d.final_states);
        let whole = self
            .history
            .known_from
            .is_some_and(|t| t <= now.epoch() - window + 61.0);
        let alone = !self.instance.fans_out() && self.depth.queues.len() == 1;
        for (i, state) in [State::Succeeded, State::Failed, State::Cancelled]
            .into_iter()
            .enumerate()
        {
            let count = match (finished, self.estimates.get(&state)) {
                (Some(counts), _) => Some(Count {
                    count: counts[i],
                    bound: if whole { Bound::Exact } else { Bound::AtLeast },
                }),
                (None, Some(estimate)) if alone => Some(*estimate),
                _ => None,
            };
            if count.is_none() {
                let why = unknown
                    .get(state.name())
                    .map_or("it is not recorded when tasks end", String::as_str);
                notes.push(format!("{state}: {why}"));
            }
            states.insert(state, count);
        }
        states
    }
}
