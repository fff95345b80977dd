//! What actions are given to work with on sessions of their own.

use super::Round;
use crate::action::strike::With;
use crate::action::{Asker, Choice, Outcome, Plan, Run, Verb};
use crate::journal::Journal;
use crate::probe::locks::Tables;
use crate::queue::Instance;
use tracing::info;

impl Round {
    /// What reads the tasks that an action is about, on any session.
    pub fn asker(&self, verb: Verb, choice: Choice) -> Result<Asker, String> {
        let (system, schema) = choice.home().ok_or("no task was chosen")?;
        Asker::new(self.whole(system, schema)?, self.tables(), verb, choice)
    }

    /// What statements on the systems may wait for.
    pub(super) fn tables(&self) -> Tables {
        Tables::of(self.queues.instances(), self.snapshot.server.version_num)
    }

    /// A system whose tasks can be acted on, or why they cannot.
    fn whole(&self, system: &str, schema: &str) -> Result<&Instance, String> {
        let is = |s: &str, n: &str| s == system && n == schema;
        let mut halves = self.queues.halves();
        if let Some(half) = halves.find(|h| is(h.profile.system.get_ref(), &h.schema)) {
            return Err(half.why());
        }
        let instance = self.queues.instance(system, schema);
        instance.ok_or_else(|| format!("{system} is not there any more"))
    }

    /// What ending a session needs to know: among it the journal table of the first system that has one. `poll` is the
    /// pid of our polling session.
    pub fn with(&self, poll: i32) -> Result<With, String> {
        let mut tables = self.queues.instances().map(crate::queue::action::journal);
        Ok(With {
            poll,
            server: self.target.host.clone(),
            table: tables.find_map(|table| table.ok().flatten()),
            journal: self.local_journal()?,
        })
    }

    fn local_journal(&self) -> Result<Journal, String> {
        Journal::open(&self.config).map_err(|e| format!("{e:#}: set journal_file"))
    }

    /// What carries a plan out, on any session.
    pub fn prepare(&self, plan: Plan) -> Result<Run, Outcome> {
        let steps = match plan.targets.first() {
            None => Err("no task was chosen".to_string()),
            Some(t) => {
                let instance = self.whole(&t.key.system, &t.key.schema);
                instance.and_then(|instance| instance.steps(&plan))
            }
        };
        match steps.and_then(|s| Ok((s, self.local_journal()?))) {
            Ok(((steps, table), journal)) => {
                let rate = self.config.rows_per_second;
                let tables = self.tables();
                Ok(Run::new(plan, steps, tables, table, journal, rate))
            }
            Err(why) => {
                info!(
                    action = plan.action_id,
                    verb = plan.verb.name(),
                    reason = why,
                    "write refused"
                );
                let why = format!("nothing was written: {why}");
                Err(Outcome::nothing(plan.verb, plan.targets.len(), why))
            }
        }
    }
}
