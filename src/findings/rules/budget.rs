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
    let limit = budget.limit.filter(|limit| *limit > 0)?;
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
