//! What keeps our own statements from the tables of a queue: somebody who has a table for himself, or a right that is
//! missing. Both are asked about only when statements fail for them, and those are tried again as soon as it is over.

use super::slots::Slots;
use crate::connect::{Fault, Session};
use crate::log;
use crate::probe::locks::{self, Exclusive, LOCKED, Tables};
use crate::probe::rights::Denied;
use crate::probe::{ProbeHealth, QueueProbes, Snapshot};
use crate::queue::Instance;
use std::time::Instant;
use tracing::Instrument;

/// SQLSTATE of a statement that a right is missing for.
const DENIED: &str = "42501";

/// Asks who has the tables that our statements wait for. One statement, none while nothing fails for that.
pub(super) async fn by_locks(
    db: &Session,
    slots: &mut Slots,
    queues: &QueueProbes,
    snapshot: &mut Snapshot,
) -> Result<(), Fault> {
    let mut notes = queues.instances().flat_map(|i| &i.notes);
    if !slots.any_failed_with(LOCKED) && !notes.any(|note| locks::failed_for_one(note)) {
        snapshot.exclusive.clear();
        return Ok(());
    }
    let slot = &mut slots.locks;
    if !slot.due(Instant::now()) {
        return Ok(());
    }
    db.within(slot.deadline());
    let tables = Tables::of(queues.instances(), snapshot.server.version_num);
    let read = tables.locks(db);
    let read = read.instrument(log::probe(slot.name())).await;
    let mut over = false;
    let result = read.map(|found| {
        let gone = |lock: &Exclusive| !found.iter().any(|f| same(f, lock));
        over = snapshot.exclusive.iter().any(gone);
        snapshot.exclusive = found;
    });
    slot.done(Instant::now(), result)?;
    if over {
        slots.retry_failed_with(LOCKED);
    }
    Ok(())
}

fn same(a: &Exclusive, b: &Exclusive) -> bool {
    (a.pid, &a.relation) == (b.pid, &b.relation)
}

/// Failures for a lock name who holds it, in front of what the server said.
pub(super) fn explain(probes: &mut [ProbeHealth], found: &[Exclusive]) {
    let Some(why) = locks::why(found) else {
        return;
    };
    let errors = probes.iter_mut().filter_map(|p| p.error.as_mut());
    for error in errors.filter(|e| locks::failed_for_one(e)) {
        *error = format!("{why}: {error}");
    }
}

/// Notes which tables our role may not read, by the rights as just seen. `known` tells whether a system was there before.
pub(super) fn by_rights(
    slots: &mut Slots,
    queues: &QueueProbes,
    known: impl Fn(&Instance) -> bool,
    snapshot: &mut Snapshot,
) -> Result<(), Fault> {
    let before = std::mem::take(&mut snapshot.denied);
    for instance in queues.instances() {
        let Some(mut denied) = Denied::of(instance, &snapshot.server.user)? else {
            continue;
        };
        let old = before.iter().find(|old| old.home() == denied.home());
        let fewer = |old: &Denied| denied.tables.iter().any(|t| !old.tables.contains(t));
        denied.taken = old.map_or_else(|| known(instance), |old| old.taken || fewer(old));
        snapshot.denied.push(denied);
    }
    let regained = |old: &Denied| {
        let now = snapshot.denied.iter().find(|now| now.home() == old.home());
        let still = |table: &String| now.is_some_and(|now| now.tables.contains(table));
        !old.tables.iter().all(still)
    };
    if before.iter().any(regained) {
        slots.retry_failed_with(DENIED);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_for_a_lock_name_who_holds_it_and_others_stay() {
        let probe = |error: Option<&str>| ProbeHealth {
            error: error.map(String::from),
            ..ProbeHealth::default()
        };
        let mut probes = [
            probe(Some("canceling statement due to lock timeout (55P03)")),
            probe(Some("permission denied (42501)")),
            probe(None),
        ];
        let before = probes.clone();
        explain(&mut probes, &[]);
        assert_eq!(probes, before);
        let lock = Exclusive {
            relation: "q.tasks".into(),
            granted: true,
            ..Exclusive::default()
        };
        explain(&mut probes, &[lock]);
        let error = probes[0].error.as_deref().unwrap_or_default();
        assert!(error.starts_with("a prepared transaction holds q.tasks: canceling"));
        assert_eq!(probes[1..], before[1..]);
    }
}
