//! An agent or a tenant spends money many times faster than usual.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Trigger};
use crate::findings::words::{money, name, percent};
use crate::probe::cost::Spender;

/// Share lost to failed attempts from which on it is worth saying.
const LOST: f64 = 0.1;
/// The same money seen from two sides: the side with this share of the other's excess tells it.
const SAME_MONEY: f64 = 0.8;

/// See the module.
pub struct CostRunaway;

impl Rule for CostRunaway {
    fn name(&self) -> &'static str {
        "cost-runaway"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "The burn rate of the last ten minutes is many times that of the hour before, and has not fallen since.",
            "See its tasks (t): retries of the same task, a loop, or a dearer model; cancel what should not run (X).",
        )
    }

    fn place(&self) -> Place {
        Place::Queue
    }

    /// A tenant's money is some agent's money: where both sides account for about the same, the side with fewer
    /// names tells it.
    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let Some(cost) = &ctx.snapshot.cost else {
            return Vec::new();
        };
        let over = |list: &'_ [Spender]| -> Vec<Spender> {
            list.iter().filter(|s| runs_away(ctx, s)).cloned().collect()
        };
        let (tenants, agents) = (over(&cost.by_tenant), over(&cost.by_agent));
        let excess = |list: &[Spender]| list.iter().map(excess).sum::<f64>();
        let (by_tenant, by_agent) = (excess(&tenants), excess(&agents));
        let same = by_tenant >= SAME_MONEY * by_agent && by_agent >= SAME_MONEY * by_tenant;
        let tell_agents = !same || agents.len() < tenants.len();
        let tell_tenants = !same || !tell_agents;
        let tenants = tenants.iter().filter(|_| tell_tenants);
        let agents = agents.iter().filter(|_| tell_agents);
        tenants
            .map(|s| trigger("tenant", s))
            .chain(agents.map(|s| trigger("agent", s)))
            .collect()
    }
}

fn runs_away(ctx: &Ctx, s: &Spender) -> bool {
    let now = s.usd_per_hour.dollars();
    s.usual_usd_per_hour.is_some_and(|usual| {
        let alarm = (ctx.limits().cost_factor * usual.dollars()).max(ctx.limits().cost_floor);
        // What ten minutes add up to stays that for ten minutes; it is over when the spending is.
        let still = s.usd_per_hour_now.is_none_or(|n| n.dollars() >= alarm);
        now >= alarm && still
    })
}

fn excess(s: &Spender) -> f64 {
    s.usd_per_hour.dollars() - s.usual_usd_per_hour.unwrap_or_default().dollars()
}

fn trigger(by: &str, s: &Spender) -> Trigger {
    let lost = s.usd_failed_attempts.dollars() / s.usd.dollars().max(1e-6);
    let lost = if lost >= LOST {
        format!("; {} lost to retries", percent(lost))
    } else {
        String::new()
    };
    let usual = money(s.usual_usd_per_hour.unwrap_or_default());
    let rate = money(s.usd_per_hour);
    Trigger::new(
        format!("{by}/{}", s.name),
        Severity::Warning,
        format!("{by} {} burns {rate}/h, usual {usual}{lost}", name(&s.name)),
    )
    .brief(format!("{} {rate}/h", name(&s.name)))
    .culprit(RowId::Spender {
        by: by.into(),
        name: s.name.clone(),
    })
    .weight(excess(s))
}

#[cfg(test)]
mod tests {
    use super::Spender;
    use crate::findings::tests::*;
    use crate::probe::cost::Cost;
    use crate::probe::{Snapshot, Usd};

    const RULE: &str = "cost-runaway";

    fn spender(name: &str, now: f64, usual: Option<f64>) -> Spender {
        let usd = |d: f64| Usd((d * 1e6) as i64);
        Spender {
            name: name.into(),
            usd: usd(now),
            usd_per_hour: usd(now),
            usual_usd_per_hour: usual.map(usd),
            ..Spender::default()
        }
    }

    fn cost(tenants: Vec<Spender>, agents: Vec<Spender>) -> Snapshot {
        with(|s| {
            s.cost = Some(Cost {
                by_tenant: tenants,
                by_agent: agents,
                ..Cost::default()
            });
        })
    }

    #[test]
    fn five_times_usual_and_above_the_floor() {
        let one = |now, usual| cost(vec![spender("acme", now, usual)], vec![]);
        says(RULE, &one(5.0, Some(1.0)));
        silent(RULE, &one(4.99, Some(0.1)));
        silent(RULE, &one(50.0, Some(10.1)));
        silent(RULE, &one(50.0, None));
        silent(RULE, &with(|s| s.cost = None));
    }

    #[test]
    fn over_as_soon_as_hardly_anything_is_spent() {
        let burns = |now| {
            let spender = Spender {
                usd_per_hour_now: Some(Usd(now)),
                ..spender("acme", 20.0, Some(2.0))
            };
            cost(vec![spender], vec![])
        };
        says(RULE, &burns(10_000_000));
        silent(RULE, &burns(9_990_000));
    }

    #[test]
    fn the_same_money_is_told_once_by_the_side_with_fewer_names() {
        let t = |n: &str, d| spender(n, d, Some(1.0));
        let s = cost(vec![t("acme", 20.0)], vec![t("crawler", 20.0)]);
        assert!(says(RULE, &s).starts_with("tenant acme"));
        let s = cost(
            vec![t("acme", 10.0), t("globex", 10.0)],
            vec![t("crawler", 20.0)],
        );
        assert!(says(RULE, &s).starts_with("agent crawler"));
        let s = cost(vec![t("acme", 10.0)], vec![t("crawler", 90.0)]);
        assert_eq!(of(RULE, &s).len(), 2);
    }
}
