//! The acts: one file each. An act makes real trouble with real sessions and rows, watches until its time is over or
//! somebody has removed the cause by hand, and never brings back what somebody removed.

mod budget_full;
mod cost_runaway;
mod enqueuer_stopped;
mod idle_in_transaction;
mod migration_waits;
mod old_snapshot;
mod provider_slow;
mod retry_storm;
mod workers_killed;

use super::stage::Stage;
use crate::connect::Fault;

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A worker waits for its model inside a transaction.
    IdleInTransaction,
    /// Model calls take far longer than usual.
    ProviderSlow,
    /// Workers die, and nobody reclaims.
    WorkersKilled,
    /// One kind of task fails again and again.
    RetryStorm,
    /// A tenant's agents spend without end.
    CostRunaway,
    /// A migration and all others wait behind a report.
    MigrationWaits,
    /// A report's snapshot stops vacuum.
    OldSnapshot,
    /// A budget is used up, none of its sessions idle.
    BudgetFull,
    /// Nothing arrives any more.
    EnqueuerStopped,
}

/// All acts, in the order of an incident.
pub const ACTS: &[Act] = &[
    Act::IdleInTransaction,
    Act::ProviderSlow,
    Act::WorkersKilled,
    Act::RetryStorm,
    // Before any act that keeps the crawl waiting: the longest pause so far is what is usual.
    Act::EnqueuerStopped,
    Act::MigrationWaits,
    Act::CostRunaway,
    Act::OldSnapshot,
    Act::BudgetFull,
];

impl Act {
    /// The name that it is asked for by.
    pub fn name(self) -> &'static str {
        match self {
            Self::IdleInTransaction => "idle-in-transaction",
            Self::ProviderSlow => "provider-slow",
            Self::WorkersKilled => "workers-killed",
            Self::RetryStorm => "retry-storm",
            Self::CostRunaway => "cost-runaway",
            Self::MigrationWaits => "migration-waits",
            Self::OldSnapshot => "old-snapshot",
            Self::BudgetFull => "budget-full",
            Self::EnqueuerStopped => "enqueuer-stopped",
        }
    }

    /// One line about it.
    pub fn about(self) -> &'static str {
        match self {
            Self::IdleInTransaction => {
                "an agent waits for its model inside a transaction; others queue behind its rows"
            }
            Self::ProviderSlow => "model calls take fifteen times as long, while Postgres idles",
            Self::WorkersKilled => "five workers die and nobody reclaims: their leases expire",
            Self::RetryStorm => "every try of one kind of task fails and is tried again at once",
            Self::CostRunaway => "agents of one tenant go on and on, with ever larger contexts",
            Self::MigrationWaits => {
                "ALTER TABLE waits behind a report's open transaction, and everybody behind it"
            }
            Self::OldSnapshot => "a report's snapshot stops vacuum: claims read past dead rows",
            Self::BudgetFull => "importers take all connections of their budget, none of them idle",
            Self::EnqueuerStopped => "the crawl sends nothing any more, so that all looks calm",
        }
    }

    pub(super) async fn play(self, stage: &Stage) -> Result<(), Fault> {
        match self {
            Self::IdleInTransaction => idle_in_transaction::play(stage).await,
            Self::ProviderSlow => provider_slow::play(stage).await,
            Self::WorkersKilled => workers_killed::play(stage).await,
            Self::RetryStorm => retry_storm::play(stage).await,
            Self::CostRunaway => cost_runaway::play(stage).await,
            Self::MigrationWaits => migration_waits::play(stage).await,
            Self::OldSnapshot => old_snapshot::play(stage).await,
            Self::BudgetFull => budget_full::play(stage).await,
            Self::EnqueuerStopped => enqueuer_stopped::play(stage).await,
        }
    }
}
