//! The login roles of the demo: each kind of client connects as its own, with exactly what it needs.

use super::calls::quoted;
use super::link::Link;
use crate::connect::{Fault, Target};

/// Workers.
pub const AGENTS: &str = "demo_agents";
/// Application servers and webhooks.
pub const API: &str = "demo_api";
/// Importers and reports.
pub const BATCH: &str = "demo_batch";
/// People at psql.
pub const PEOPLE: &str = "demo_people";
/// The person who watches: reads everything, requeues and cancels, may end sessions.
pub const ONCALL: &str = "demo_oncall";
/// Owns the task table, and runs migrations.
pub const OWNER: &str = "demo_owner";

/// How each kind of client connects.
#[derive(Clone)]
pub struct Logins {
    /// Workers.
    pub agents: Target,
    /// Application servers and webhooks.
    pub api: Target,
    /// Importers and reports.
    pub batch: Target,
    /// People.
    pub people: Target,
    /// Whoever runs migrations.
    pub owner: Target,
}

impl Logins {
    /// With the demo's roles.
    pub fn roles(target: &Target) -> Self {
        Self {
            agents: login(target, AGENTS),
            api: login(target, API),
            batch: login(target, BATCH),
            people: login(target, PEOPLE),
            owner: login(target, OWNER),
        }
    }

    /// Everybody as the same role: a database that is not ours to give roles to.
    pub fn alike(target: &Target) -> Self {
        Self {
            agents: target.clone(),
            api: target.clone(),
            batch: target.clone(),
            people: target.clone(),
            owner: target.clone(),
        }
    }
}

/// The same target for another role.
pub fn login(target: &Target, role: &str) -> Target {
    let mut target = target.clone();
    target.config.user(role);
    target
}

/// Creates the roles where they are missing, and what the clients share beside the queue: the importers' table and
/// the batches' progress. Needs a superuser; the queue and the houses must be there.
pub async fn create(db: &Link, schema: &str) -> Result<(), Fault> {
    let s = quoted(schema);
    let [worker, operator, monitor] =
        ["worker", "operator", "monitor"].map(|name| quoted(&format!("{schema}_{name}")));
    let mut sql = String::from("SET client_min_messages = warning;\n");
    for role in [AGENTS, API, BATCH, PEOPLE, ONCALL, OWNER] {
        sql += &format!(
            "DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;\n"
        );
    }
    sql += &format!(
        "GRANT {worker} TO {AGENTS}, {API}, {BATCH};
         GRANT {monitor} TO {API}, {BATCH}, {PEOPLE}, {ONCALL};
         GRANT {operator} TO {ONCALL};
         GRANT pg_monitor, pg_signal_backend TO {ONCALL};
         GRANT UPDATE (priority) ON {s}.tasks TO {API}, {BATCH};
         CREATE TABLE IF NOT EXISTS public.batch_progress (
             batch_id text PRIMARY KEY, total bigint NOT NULL, done bigint NOT NULL DEFAULT 0,
             changed_at timestamptz NOT NULL DEFAULT clock_timestamp()) WITH (fillfactor = 50);
         CREATE TABLE IF NOT EXISTS public.import_rows (line text, at timestamptz NOT NULL DEFAULT clock_timestamp());
         GRANT SELECT, INSERT, UPDATE ON public.batch_progress TO {BATCH};
         GRANT SELECT, UPDATE ON public.batch_progress TO {AGENTS};
         GRANT INSERT ON public.import_rows TO {BATCH};
         GRANT SELECT, INSERT, UPDATE ON public.agent_jobs, public.workflow_jobs TO {AGENTS}, {API}, {ONCALL};
         GRANT SELECT ON public.agent_jobs, public.workflow_jobs, public.batch_progress TO {PEOPLE}, {BATCH}, {ONCALL};
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {AGENTS}, {API};
         GRANT USAGE ON SCHEMA {s} TO {OWNER};
         ALTER TABLE {s}.tasks OWNER TO {OWNER};"
    );
    db.run(&sql).await
}
