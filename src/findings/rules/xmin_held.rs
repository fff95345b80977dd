//! An old snapshot keeps vacuum from removing dead rows, and each claim wades through them.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Held, Place, Rule, Scope, Trigger};
use crate::findings::words::{duration, name, rate};
use crate::probe::maintenance::{Table, XminHolder};

/// How many times more a claim must read than after a vacuum.
const FACTOR: f64 = 20.0;

/// See the module.
#[derive(Default)]
pub struct XminHeld {
    /// Holders of which Postgres does not tell since when.
    seen: Held,
}

impl Rule for XminHeld {
    fn name(&self) -> &'static str {
        "xmin-held"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Vacuum may not remove rows that an old snapshot could still see, so claims read past ever more dead ones.",
            "End whoever holds the snapshot: commit or end the session, drop the unused slot, ROLLBACK PREPARED, or look at the standby's feedback.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    /// budget: claims that read thousands of entries keep their sessions busy.
    fn explains(&self) -> &'static [&'static str] {
        &["budget"]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let holder = ctx.snapshot.maintenance.xmin_holder.as_ref();
        let key = |h: &XminHolder| format!("{}/{}/{:?}", h.kind, h.name, h.pid);
        self.seen.keep(ctx, holder.map(key));
        let Some(holder) = holder else {
            return Vec::new();
        };
        let key = key(holder);
        let held = holder.held_s.unwrap_or(self.seen.for_s(ctx, &key));
        if held < ctx.limits().xmin_held {
            return Vec::new();
        }
        let slow = |t: &&Table| {
            let usual = t.reads_per_claim_usual.map(|u| u.max(1.0));
            t.dead >= ctx.limits().dead_rows
                && usual
                    .zip(t.reads_per_claim)
                    .is_some_and(|(usual, now)| now >= FACTOR * usual)
        };
        ctx.snapshot
            .maintenance
            .tables
            .iter()
            .filter(slow)
            .map(|table| trigger(ctx, holder, &key, table))
            .collect()
    }

    fn forget(&mut self) {
        self.seen.clear();
    }
}

fn trigger(ctx: &Ctx, holder: &XminHolder, key: &str, table: &Table) -> Trigger {
    let age = holder
        .held_s
        .map_or(String::new(), |s| format!(", {},", duration(s)));
    let who = match holder.kind.as_str() {
        "session" => format!("{}'s snapshot", name(&holder.who())),
        _ => name(&holder.who()),
    };
    let reads = rate(table.reads_per_claim.unwrap_or_default());
    let usual = rate(table.reads_per_claim_usual.unwrap_or_default());
    let row = holder.pid.and_then(|pid| ctx.session_row(pid));
    let schema = table.name.split_once('.').map_or("", |(schema, _)| schema);
    let mut systems = ctx.snapshot.queues.iter().filter(|q| q.schema == schema);
    let scope = systems
        .next()
        .filter(|first| systems.all(|q| q.system == first.system))
        .map(|q| Scope::home(&q.system, &q.schema));
    Trigger::new(
        format!("{key}/{}", table.name),
        Severity::Warning,
        format!("claims read {reads} entries (usual {usual}): {who}{age} stops vacuum"),
    )
    .brief(format!("{reads} reads a claim"))
    .culprit(row.unwrap_or_else(|| RowId::Table(table.name.clone())))
    .began(holder.held_s)
    .scope(scope.unwrap_or_default())
    .weight(table.dead as f64)
    .explains(&["budget"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::findings::Tracker;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "xmin-held";

    fn held(change: impl FnOnce(&mut XminHolder, &mut Table)) -> Snapshot {
        let mut s = example(RULE);
        let maintenance = &mut s.maintenance;
        let holder = maintenance.xmin_holder.as_mut().expect("a holder");
        change(holder, &mut maintenance.tables[0]);
        s
    }

    #[test]
    fn held_long_enough_over_enough_dead_rows_and_felt_by_claims() {
        says(RULE, &held(|h, _| h.held_s = Some(300.0)));
        silent(RULE, &held(|h, _| h.held_s = Some(299.0)));
        silent(RULE, &held(|_, t| t.dead = 9_999));
        says(RULE, &held(|_, t| t.reads_per_claim = Some(60.0)));
        silent(RULE, &held(|_, t| t.reads_per_claim = Some(59.0)));
        silent(RULE, &held(|_, t| t.reads_per_claim = None));
        silent(RULE, &held(|_, t| t.reads_per_claim_usual = None));
        let mut nobody = example(RULE);
        nobody.maintenance.xmin_holder = None;
        silent(RULE, &nobody);
    }

    #[test]
    fn where_postgres_does_not_tell_since_when_we_watch() {
        let mut tracker = Tracker::new(&Config::default());
        for s in 0..=302 {
            let mut snap = held(|h, _| h.held_s = None);
            snap.taken_at = Some(at(f64::from(s)));
            let fired = !tracker.update(&snap).findings.is_empty();
            // Reached at 300, believed at the look after.
            assert_eq!(fired, s >= 301, "{s}");
        }
    }

    #[test]
    fn the_session_is_the_culprit_else_the_table() {
        assert_eq!(of(RULE, &example(RULE))[0].culprit, session_row(6100));
        let slot = held(|h, _| h.pid = None);
        let table = RowId::Table("agent_queue.tasks".into());
        assert_eq!(of(RULE, &slot)[0].culprit, Some(table));
    }
}
