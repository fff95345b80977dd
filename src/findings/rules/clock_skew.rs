//! A worker whose clock differs from the server's, where it writes its own times into the queue.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{count, name, precise};
use crate::probe::leases::Worker;
use std::collections::BTreeMap;

/// Claims that the difference must rest on.
const CLAIMS: u32 = 3;
/// Time zones differ by multiples of this, in seconds; the clock itself may be off by `ZONE_SLACK`.
const ZONE: f64 = 900.0;
const ZONE_SLACK: f64 = 5.0;
/// Seconds up to which the difference is told in seconds.
const IN_SECONDS: f64 = 600.0;

/// See the module.
pub struct ClockSkew;

impl Rule for ClockSkew {
    fn name(&self) -> &'static str {
        "clock-skew"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "The times that this worker writes differ from the server's: leases, delays and ages are off by as much.",
            "Fix its clock (NTP) or its time zone; better, let the database write the times: now().",
        )
    }

    fn place(&self) -> Place {
        Place::Workers
    }

    /// leases-expired: a clock that is behind writes lease ends that have passed; only where every expired lease is
    /// such a worker's.
    fn explains(&self) -> &'static [&'static str] {
        &["leases-expired"]
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut zones: BTreeMap<(&str, &str, i64), Vec<&Worker>> = BTreeMap::new();
        let mut triggers = Vec::new();
        for worker in &ctx.snapshot.workers {
            let Some(skew) = worker.clock_skew_s.filter(|s| s.is_finite()) else {
                continue;
            };
            if skew.abs() <= ctx.limits().clock_skew || worker.clock_samples < CLAIMS {
                continue;
            }
            let quarters = (skew / ZONE).round();
            if quarters != 0.0 && (skew - quarters * ZONE).abs() <= ZONE_SLACK {
                let zone = (&*worker.system, &*worker.schema, quarters as i64);
                zones.entry(zone).or_default().push(worker);
            } else {
                triggers.push(alone(ctx, worker, skew));
            }
        }
        triggers.extend(zones.into_iter().map(|((_, _, quarters), workers)| {
            let skew = quarters as f64 * ZONE;
            let whose = match workers.as_slice() {
                [one] => format!("{}'s clock is", name(&one.worker)),
                many => format!("the clocks of {} workers are", count(many.len() as u64)),
            };
            trigger(
                ctx,
                workers[0],
                format!("zone/{quarters}"),
                format!("{whose} {}: time zones differ", off(skew)),
                skew,
            )
        }));
        triggers
    }
}

fn alone(ctx: &Ctx, worker: &Worker, skew: f64) -> Trigger {
    let effect = if skew < 0.0 {
        "its leases expire early"
    } else {
        "its leases end late"
    };
    let sentence = format!(
        "{}'s clock is {}: {effect}",
        name(&worker.worker),
        off(skew)
    );
    trigger(ctx, worker, worker.worker.clone(), sentence, skew)
}

fn trigger(ctx: &Ctx, worker: &Worker, key: String, sentence: String, skew: f64) -> Trigger {
    let behind = |name: Option<&str>| {
        ctx.snapshot.workers.iter().any(|w| {
            Some(w.worker.as_str()) == name
                && w.clock_skew_s.is_some_and(|s| s < -ctx.limits().clock_skew)
        })
    };
    let mut of_home = ctx
        .snapshot
        .leases
        .iter()
        .filter(|l| l.system == worker.system && l.schema == worker.schema);
    let all_early = skew < 0.0 && of_home.all(|l| behind(l.worker.as_deref()));
    Trigger::new(
        format!("{}/{}/{key}", worker.system, worker.schema),
        Severity::Warning,
        sentence,
    )
    .brief(format!("clock {}", off(skew)))
    .culprit(RowId::Worker {
        system: worker.system.clone(),
        schema: worker.schema.clone(),
        worker: worker.worker.clone(),
    })
    .scope(Scope::home(&worker.system, &worker.schema))
    .weight(skew.abs())
    .explains_if(all_early, &["leases-expired"])
}

fn off(skew: f64) -> String {
    let size = skew.abs();
    let size = if size < IN_SECONDS {
        format!("{size:.0}s")
    } else {
        precise(size)
    };
    format!("{size} {}", if skew < 0.0 { "behind" } else { "ahead" })
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "clock-skew";

    fn skewed(skew: f64, claims: u32) -> Snapshot {
        with(|s| {
            s.workers[0].clock_skew_s = Some(skew);
            s.workers[0].clock_samples = claims;
        })
    }

    #[test]
    fn more_than_five_seconds_over_three_claims() {
        silent(RULE, &skewed(5.0, 3));
        silent(RULE, &skewed(-5.0, 3));
        silent(RULE, &skewed(60.0, 2));
        assert!(says(RULE, &skewed(5.1, 3)).contains("5s ahead: its leases end late"));
        assert!(says(RULE, &skewed(-5.1, 3)).contains("5s behind: its leases expire early"));
    }

    #[test]
    fn quarters_of_an_hour_are_time_zones() {
        assert!(says(RULE, &skewed(-900.2, 3)).ends_with("15m behind: time zones differ"));
        assert!(says(RULE, &skewed(19_800.0, 3)).ends_with("5h30m ahead: time zones differ"));
        assert!(says(RULE, &skewed(905.0, 3)).ends_with("time zones differ"));
        assert!(says(RULE, &skewed(906.0, 3)).ends_with("15m06s ahead: its leases end late"));
        assert!(says(RULE, &skewed(599.0, 3)).contains("599s ahead"));
        assert!(says(RULE, &skewed(600.0, 3)).contains("10m ahead"));
    }

    #[test]
    fn it_explains_expired_leases_only_of_its_own() {
        let mut s = skewed(-240.0, 3);
        s.leases = vec![lease("1", "agent-1", 60.0)];
        assert!(of("leases-expired", &s)[0].explained_by.is_some());
        s.leases.push(lease("2", "agent-2", 60.0));
        assert!(of("leases-expired", &s)[0].explained_by.is_none());
    }
}
