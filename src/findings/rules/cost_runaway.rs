//! An agent or a tenant spends money many times faster than usual.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Trigger};
use crate::findings::words::{money, name, percent};
use crate::probe::cost::Spender;
use std::collections::BTreeMap;

/// Share lost to failed attempts from which on it is worth saying.
const LOST: f64 = 0.1;
/// The same money seen from two sides: the side with this share of the other's excess tells it.
const SAME_MONEY: f64 = 0.8;
/// What was spent counts as recent for so long, in seconds: as the cost probe has it.
const RECENT: f64 = 600.0;

/// See the module.
#[derive(Default)]
pub struct CostRunaway(BTreeMap<String, Pause>);

/// A spender whose last ten minutes are dear, but who spends little now.
struct Pause {
    /// When that began, by the server's clock, in seconds.
    from: f64,
    /// When it was last so.
    to: f64,
    /// The least that the last ten minutes have come to since, in dollars an hour.
    left: f64,
}

impl Rule for CostRunaway {
    fn name(&self) -> &'static str {
        "cost-runaway"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "The burn rate of the last ten minutes is many times that of the hour before, and has not fallen since. Late bills do not bring it back: it must rise by as much again.",
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
        self.0.retain(|_, pause| ctx.now - pause.to <= RECENT);
        let mut over = |by: &str, list: &'_ [Spender]| -> Vec<Spender> {
            let runs_away = |s: &&Spender| self.runs_away(ctx, by, s);
            list.iter().filter(runs_away).cloned().collect()
        };
        let tenants = over("tenant", &cost.by_tenant);
        let agents = over("agent", &cost.by_agent);
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

    fn forget(&mut self) {
        self.0.clear();
    }
}

impl CostRunaway {
    /// What ten minutes add up to stays that for ten minutes: it is over when the spending is. From then on what they
    /// still hold of it does not count, or each late bill and each ordinary task would bring it back.
    fn runs_away(&mut self, ctx: &Ctx, by: &str, s: &Spender) -> bool {
        let key = key(by, s);
        let now = s.usd_per_hour.dollars();
        let Some(usual) = s.usual_usd_per_hour.map(|u| u.dollars()) else {
            return false;
        };
        let alarm = (ctx.limits().cost_factor * usual).max(ctx.limits().cost_floor);
        if now < alarm {
            self.0.remove(&key);
            return false;
        }
        if s.usd_per_hour_now.is_some_and(|n| n.dollars() < alarm) {
            let pause = self.0.entry(key).or_insert(Pause {
                from: ctx.now,
                to: ctx.now,
                left: now,
            });
            (pause.to, pause.left) = (ctx.now, now);
            return false;
        }
        let Some(pause) = self.0.get_mut(&key) else {
            return true;
        };
        pause.left = pause.left.min(now);
        let short = pause.to - pause.from < ctx.limits().clear_after;
        let again = now - pause.left >= alarm - usual;
        if short || again {
            self.0.remove(&key);
        }
        short || again
    }
}

fn key(by: &str, s: &Spender) -> String {
    format!("{by}/{}", s.name)
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
        key(by, s),
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
    use super::{CostRunaway, Spender};
    use crate::config::Config;
    use crate::findings::rule::{Ctx, Rule};
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

    /// Tenant acme at so many dollars an hour over ten minutes, and at the moment; usual are 2.
    fn burns(t: f64, recent: f64, moment: f64) -> Snapshot {
        let usd = |d: f64| Usd((d * 1e6) as i64);
        let spender = Spender {
            usd_per_hour_now: Some(usd(moment)),
            ..spender("acme", recent, Some(2.0))
        };
        Snapshot {
            taken_at: Some(at(t)),
            ..cost(vec![spender], vec![])
        }
    }

    fn runs_away(rule: &mut CostRunaway, s: &Snapshot) -> bool {
        let config = Config::default();
        let now = s.taken_at.map_or(0.0, |t| t.epoch());
        !rule.check(&Ctx::new(s, &config, now, false)).is_empty()
    }

    #[test]
    fn a_late_bill_does_not_bring_it_back_but_as_much_again_does() {
        let mut rule = CostRunaway::default();
        let mut look = |t, recent, moment| runs_away(&mut rule, &burns(t, recent, moment));
        assert!(look(0.0, 20.0, 30.0));
        // A breath is no end.
        assert!(!look(2.0, 20.0, 9.0));
        assert!(look(4.0, 20.0, 11.0));
        // Less than the time in which a finding clears is a breath, more is the end.
        assert!(!look(6.0, 20.0, 9.0));
        assert!(!look(40.0, 19.0, 0.0));
        assert!(!look(42.0, 20.0, 15.0), "a late bill");
        assert!(!look(44.0, 14.0, 15.0), "what leaves the ten minutes");
        assert!(!look(46.0, 21.9, 40.0));
        assert!(look(48.0, 22.0, 40.0), "8 above the least");
        assert!(look(50.0, 22.0, 40.0));
    }

    #[test]
    fn after_ten_minutes_all_money_is_new() {
        let mut rule = CostRunaway::default();
        let mut look = |t, recent, moment| runs_away(&mut rule, &burns(t, recent, moment));
        assert!(!look(0.0, 20.0, 0.0));
        assert!(!look(60.0, 20.0, 0.0));
        assert!(!look(660.0, 12.0, 12.0));
        assert!(look(661.0, 12.0, 12.0));
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
