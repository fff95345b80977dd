//! The demo's settings: budgets for its 60 connections, and thresholds in compressed time, so that a newcomer need
//! not wait minutes for what an incident does in minutes. The rules are the same as everywhere.

use crate::config::{BudgetRule, Config, Thresholds};

/// `max_connections` of the demo's server: three of them are reserved for the superuser, the budgets share the rest.
pub const MAX_CONNECTIONS: u32 = 60;

/// Sessions that importers and reports may hold.
pub const BATCH_LIMIT: u32 = 8;

/// Share of one core that watching the demo's server may take.
const SERVER_SHARE: f64 = 0.05;

/// The defaults with [`apply`].
pub fn settings() -> Config {
    let mut config = Config::default();
    apply(&mut config);
    config
}

/// Puts the demo's budgets and thresholds over others, and allows writes: it is the demo's own database. For the same
/// reason a busy laptop may spend a little more on it before refreshes come less often than acts change.
pub fn apply(config: &mut Config) {
    config.allow_writes = true;
    config.max_server_share = config.max_server_share.max(SERVER_SHARE);
    config.budgets = vec![
        budget(
            "agents",
            22,
            &["agent-*", "jobs-*", "flow-*", "reclaimer"],
            "demo_agents",
        ),
        budget("api", 20, &["api-*"], "demo_api"),
        budget("batch", BATCH_LIMIT, &["batch-*", "report-*"], "demo_batch"),
        BudgetRule {
            name: "people".into(),
            limit: 7,
            applications: vec!["psql".into(), "jobtop*".into()],
            roles: vec!["demo_people".into(), "demo_oncall".into()],
        },
    ];
    config.thresholds = Thresholds {
        // compressed five times: what is over should leave the screen before the next act
        clear_after: 6.0,
        // twice: a worker that thinks inside a transaction for 5 s
        idle_in_transaction: 5.0,
        // a migration that waits for 3 s instead of 5
        table_lock: 3.0,
        // leases last 20 s here instead of a minute, and are reclaimed every 2 s instead of every 10
        owner_gone: 4.0,
        reclaim_interval: 5.0,
        // the crawl has a page every two seconds: 20 s without one are long
        inflow_stopped: 20.0,
        // a snapshot of 15 s here does what one of 5 min does in production, to a tenth of the dead rows
        xmin_held: 15.0,
        // what a recovery brings in one minute here it brings in five; a runaway is over after seconds, not minutes
        cost_floor: 10.0,
        cost_still: 30.0,
        dead_rows: 1_500,
        cancel_unheard: 20.0,
        ..Thresholds::default()
    };
}

fn budget(name: &str, limit: u32, applications: &[&str], role: &str) -> BudgetRule {
    BudgetRule {
        name: name.into(),
        limit,
        applications: applications.iter().map(|a| (*a).to_owned()).collect(),
        roles: vec![role.into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_share_exactly_what_ordinary_roles_can_have() {
        let config = settings();
        config.check().expect("valid settings");
        let sum: u32 = config.budgets.iter().map(|b| b.limit).sum();
        assert_eq!(sum, MAX_CONNECTIONS - 3);
    }
}
