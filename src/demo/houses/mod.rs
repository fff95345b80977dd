//! Two more queues beside the reference queue, as teams write their own: `agent_jobs` and `workflow_jobs`, with
//! history, and with workers that claim and retry as those designs do.

mod agent_jobs;
mod workflow_jobs;

use std::sync::Arc;

use tokio::task::JoinSet;

use super::link::Link;
use super::world::World;
use crate::connect::{Fault, Target};

/// Creates both with some history. Does nothing to tables that are there.
pub async fn create(db: &Link, seed: u64) -> Result<(), Fault> {
    agent_jobs::create(db, seed).await?;
    workflow_jobs::create(db, seed).await
}

/// Starts those who enqueue and those who work.
pub fn start(
    clients: &mut JoinSet<()>,
    world: &Arc<World>,
    agents: &Target,
    api: &Target,
    workers: usize,
) {
    clients.spawn(agent_jobs::enqueue(world.clone(), api.clone()));
    clients.spawn(workflow_jobs::enqueue(world.clone(), api.clone()));
    for n in 1..=workers {
        clients.spawn(agent_jobs::work(world.clone(), agents.clone(), n));
        clients.spawn(workflow_jobs::work(world.clone(), agents.clone(), n));
    }
}
