//! What keeps our own statements from the tables of a queue: somebody who has a table for himself, or a right that is
//! missing. Both are asked about only when statements fail for them, and those are tried again as soon as it is over.

use super::slots::Slots;
use crate::connect::{Fault, Session};
use crate::log;
use crate::probe::locks::{self, Exclusive};
use crate::probe::rights::Denied;
use crate::probe::{ProbeHealth, QueueProbes, Snapshot};
use std::time::Instant;
use tracing::Instrument;

/// SQLSTATE of a statement that waited for a lock in vain.
pub(super) const LOCKED: &str = "55P03";
/// SQLSTATE of a statement that a right is missing for.
const DENIED: &str = "42501";

/// Asks who has the tables that our statements wait for. One statement, none while nothing fails for that.
pub(super) async fn by_locks(
    db: &Session,
    slots: &mut Slots,
    queues: &QueueProbes,
    snapshot: &mut Snapshot,
) -> Result<(), Fault> {
    let locked = format!("({LOCKED})");
    let mut notes = queues.instances().flat_map(|i| &i.notes);
    if !slots.any_failed_with(LOCKED) && !notes.any(|note| note.contains(&locked)) {
        snapshot.exclusive.clear();
        return Ok(());
    }
    let slot = &mut slots.locks;
    if !slot.due(Instant::now()) {
        return Ok(());
    }
    db.within(slot.deadline());
    let read = read(db, queues, snapshot.server.version_num);
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

/// The locks on the tables of all systems.
pub(super) async fn read(
    db: &Session,
    queues: &QueueProbes,
    version_num: i32,
) -> Result<Vec<Exclusive>, Fault> {
    let tables = queues.instances().flat_map(|i| i.tables());
    let tables: Vec<String> = tables.map(|(name, _)| name).collect();
    Exclusive::read(db, version_num, &tables).await
}

fn same(a: &Exclusive, b: &Exclusive) -> bool {
    (a.pid, &a.relation) == (b.pid, &b.relation)
}

/// Failures for a lock name who holds it, in front of what the server said.
pub(super) fn explain(probes: &mut [ProbeHealth], found: &[Exclusive]) {
    let Some(why) = locks::why(found) else {
        return;
    };
    let locked = format!("({LOCKED})");
    let errors = probes.iter_mut().filter_map(|p| p.error.as_mut());
    for error in errors.filter(|e| e.contains(&locked)) {
        *error = format!("{why}: {error}");
    }
}

/// Notes which tables our role may not read, by the rights as just seen.
pub(super) fn by_rights(
    slots: &mut Slots,
    queues: &QueueProbes,
    snapshot: &mut Snapshot,
) -> Result<(), Fault> {
    let mut denied = Vec::new();
    for instance in queues.instances() {
        denied.extend(Denied::of(instance, &snapshot.server.user)?);
    }
    let before = std::mem::replace(&mut snapshot.denied, denied);
    if before.iter().any(|d| !snapshot.denied.contains(d)) {
        slots.retry_failed_with(DENIED);
    }
    Ok(())
}
