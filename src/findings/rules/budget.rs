//! A budget is full and none of its sessions idles; or the budgets promise more than the server has.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Trigger};
use crate::findings::words::{count, name};
use crate::probe::activity::Budget as Row;

/// See the module.
pub struct Budget;

impl Rule for Budget {
    fn name(&self) -> &'static str {
        "budget"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "A named share of the connections is used up (or all shares together exceed what the server has).",
            "Shorten what its sessions do (Enter shows their states) or move its limit; the limits must add up to max_connections less the reserved.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let c = &ctx.snapshot.connections;
        let mut triggers: Vec<Trigger> = c.budgets.iter().filter_map(full).collect();
        let promised: u64 = c
            .budgets
            .iter()
            .filter_map(|b| b.limit)
            .map(u64::from)
            .sum();
        let usable = u64::from(c.max.saturating_sub(c.reserved));
        if usable > 0 && promised > usable {
            triggers.push(
                Trigger::new(
                    "sum",
                    Severity::Warning,
                    format!(
                        "budgets add up to {}, the server has {}",
                        count(promised),
                        count(usable)
                    ),
                )
                .brief(format!("budgets {} of {}", count(promised), count(usable))),
            );
        }
        triggers
    }
}

fn full(budget: &Row) -> Option<Trigger> {
    let limit = match budget.limit? {
        0 => return banned(budget),
        limit => limit,
    };
    let here = budget.active.saturating_add(budget.idle_in_transaction);
    if budget.used < limit || budget.idle > 0 || here == 0 {
        return None;
    }
    let of_them = if here < budget.used {
        // Other databases' sessions count, but their states are not this database's to see.
        format!("none of its {} here idle", count(here.into()))
    } else {
        "none idle".into()
    };
    let who = name(&budget.name);
    let numbers = format!("{} of {}", count(budget.used.into()), count(limit.into()));
    Some(
        Trigger::new(
            format!("full/{}", budget.name),
            Severity::Warning,
            format!("{who} use {numbers}, {of_them}"),
        )
        .brief(format!("{who} {numbers}"))
        .culprit(RowId::Budget(budget.name.clone()))
        .weight(f64::from(budget.used) / f64::from(limit)),
    )
}

/// A share of nothing: whose sessions nobody should see here.
fn banned(budget: &Row) -> Option<Trigger> {
    let n = count(budget.used.into());
    let who = name(&budget.name);
    let trigger = Trigger::new(
        format!("full/{}", budget.name),
        Severity::Warning,
        format!("{who} may hold no connection (limit 0) and hold {n}"),
    );
    let trigger = trigger.brief(format!("{who} {n} of 0"));
    let trigger = trigger.culprit(RowId::Budget(budget.name.clone()));
    (budget.used > 0).then(|| trigger.weight(f64::from(budget.used)))
}

#[cfg(test)]
mod tests {
    use super::Row;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "budget";

    fn budgets(budgets: Vec<Row>) -> Snapshot {
        with(|s| s.connections.budgets = budgets)
    }

    #[test]
    fn full_and_nobody_idle() {
        says(RULE, &budgets(vec![budget("agents", 40, 40)]));
        silent(RULE, &budgets(vec![budget("agents", 40, 39)]));
        let idle = Row {
            active: 39,
            idle: 1,
            ..budget("agents", 40, 40)
        };
        silent(RULE, &budgets(vec![idle]));
        let rest = Row {
            limit: None,
            ..budget("unbudgeted", 0, 40)
        };
        silent(RULE, &budgets(vec![rest]));
    }

    #[test]
    fn a_budget_of_nothing_is_used_up_by_anybody() {
        silent(RULE, &budgets(vec![budget("old", 0, 0)]));
        let idle = Row {
            active: 0,
            idle: 3,
            ..budget("old", 0, 3)
        };
        assert_eq!(
            says(RULE, &budgets(vec![idle])),
            "old may hold no connection (limit 0) and hold 3"
        );
    }

    #[test]
    fn sessions_of_other_databases_are_not_judged() {
        let here = |active| Row {
            active,
            ..budget("agents", 40, 40)
        };
        assert_eq!(
            says(RULE, &budgets(vec![here(22)])),
            "agents use 40 of 40, none of its 22 here idle"
        );
        silent(RULE, &budgets(vec![here(0)]));
    }

    #[test]
    fn the_limits_must_fit_the_server() {
        silent(RULE, &budgets(vec![budget("a", 90, 1), budget("b", 7, 1)]));
        says(RULE, &budgets(vec![budget("a", 90, 1), budget("b", 8, 1)]));
    }
}
