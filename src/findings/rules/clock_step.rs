//! Somebody set the server's clock while we looked. All ages are by that clock, so those from before are off.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Trigger};
use crate::findings::words::precise;

/// Rules that rest on how long something lasts.
const AGES: &[&str] = &[
    "idle-in-transaction",
    "table-lock",
    "lock-wait",
    "standby-cut-off",
    "clock-skew",
    "poison",
    "owners-gone",
    "leases-expired",
    "stuck",
    "slow-outside",
    "failing",
    "xmin-held",
    "connections",
    "stalled",
    "throttled",
    "inflow-stopped",
    "cost-runaway",
    "overdue-retryable",
    "cancel-unheard",
    "invariants",
];

/// See the module.
pub struct ClockStep;

impl Rule for ClockStep {
    fn name(&self) -> &'static str {
        "clock-step"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "The server's clock was set. Ages of what began before are off by as much, leases end early or late, tasks become due early or late.",
            "Find out who sets the clock (NTP should slew it). Wait until what began before is over; then trust ages again.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    /// Every rule that goes by an age.
    fn explains(&self) -> &'static [&'static str] {
        AGES
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let Some(step) = ctx.snapshot.server.clock_step else {
            return Vec::new();
        };
        if !step.by_s.is_finite() {
            return Vec::new();
        }
        let size = precise(step.by_s.abs());
        let (way, ages) = match step.by_s < 0.0 {
            true => ("back", "short"),
            false => ("forward", "long"),
        };
        vec![
            Trigger::new(
                "",
                Severity::Warning,
                format!(
                    "the server's clock jumped {size} {way}: ages from before are as much too {ages}"
                ),
            )
            .brief(format!("clock jumped {size} {way}"))
            .began(step.ago_s)
            .explains(AGES),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;
    use crate::probe::Snapshot;
    use crate::probe::server::ClockStep;

    const RULE: &str = "clock-step";

    fn step(by_s: f64) -> Snapshot {
        with(|s| {
            s.server.clock_step = Some(ClockStep { by_s, ago_s: 12.0 });
            s.leases = vec![lease("1", "agent-1", 3600.0)];
        })
    }

    #[test]
    fn both_ways_and_what_follows_from_it() {
        silent(RULE, &calm());
        silent(RULE, &step(f64::INFINITY));
        assert_eq!(
            says(RULE, &step(3600.0)),
            "the server's clock jumped 1h forward: ages from before are as much too long"
        );
        assert!(
            says(RULE, &step(-61.0)).contains("1m01s back: ages from before are as much too short")
        );
        assert!(
            of("leases-expired", &step(3600.0))[0]
                .explained_by
                .is_some()
        );
    }
}
