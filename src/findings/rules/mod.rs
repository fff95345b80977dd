//! The rules, causes before symptoms: one file each.

mod budget;
mod cancel_unheard;
mod clock_skew;
mod clock_step;
mod connections;
mod cost_runaway;
mod failing;
mod idle_in_transaction;
mod inflow_stopped;
mod invariants;
mod leases_expired;
mod limited_view;
mod lock_wait;
mod notify_queue;
mod overdue_retryable;
mod owners_gone;
mod poison;
pub mod slow_outside;
mod stalled;
pub mod standby_cut_off;
mod stuck;
mod table_lock;
mod throttled;
mod unreadable;
mod xmin_held;

use super::rule::Rule;

/// Every rule. A rule may explain only those after it.
pub fn all() -> Vec<Box<dyn Rule>> {
    vec![
        Box::new(clock_step::ClockStep),
        Box::new(idle_in_transaction::IdleInTransaction),
        Box::new(table_lock::TableLock::default()),
        Box::new(lock_wait::LockWait),
        Box::new(standby_cut_off::StandbyCutOff::default()),
        Box::new(unreadable::Unreadable),
        Box::new(clock_skew::ClockSkew),
        Box::new(poison::Poison),
        Box::new(owners_gone::OwnersGone::default()),
        Box::new(leases_expired::LeasesExpired),
        Box::new(stuck::Stuck),
        Box::new(slow_outside::SlowOutside::default()),
        Box::new(failing::Failing),
        Box::new(xmin_held::XminHeld::default()),
        Box::new(notify_queue::NotifyQueue),
        Box::new(connections::Connections::default()),
        Box::new(budget::Budget),
        Box::new(stalled::Stalled::default()),
        Box::new(throttled::Throttled),
        Box::new(inflow_stopped::InflowStopped),
        Box::new(cost_runaway::CostRunaway::default()),
        Box::new(overdue_retryable::OverdueRetryable),
        Box::new(cancel_unheard::CancelUnheard),
        Box::new(invariants::Invariants::default()),
        Box::new(limited_view::LimitedView::default()),
    ]
}
