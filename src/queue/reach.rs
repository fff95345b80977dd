//! What a found system offers besides its rows: the tables to keep an eye on, the channels it speaks on, the
//! statements behind an action.

use super::action::{ActionSql, action_sql, journal};
use super::instance::Instance;
use super::statement::run;
use crate::action::{Plan, Target};
use crate::connect::{Cells, Fault, Session};

/// A plan's statements with their targets, and the journal table where there is one.
pub type Steps = (Vec<(ActionSql, Vec<Target>)>, Option<String>);

impl Instance {
    /// Schema-qualified tables, the main one with its claim index.
    pub fn tables(&self) -> impl Iterator<Item = (String, Option<String>)> {
        self.relations.iter().map(|r| {
            let index = (r.name == self.anchor).then(|| self.claim_index.clone());
            (format!("{}.{}", r.schema, r.name), index.flatten())
        })
    }

    /// The channels on which it announces changes. One statement, none where it announces nothing.
    pub async fn channels(&self, db: &Session) -> Result<Vec<String>, Fault> {
        let mut expressions = Vec::new();
        for notify in &self.profile.notify {
            for branch in &self.branches {
                let sql = self.fill(notify.channel.get_ref(), branch)?;
                if !expressions.contains(&sql) {
                    expressions.push(sql);
                }
            }
        }
        if expressions.is_empty() {
            return Ok(vec![]);
        }
        let list: Vec<String> = expressions.iter().map(|e| format!("({e})::text")).collect();
        let sql = format!("SELECT unnest(ARRAY[{}])::text AS channel", list.join(", "));
        let rows = run(db, &sql, &self.values).await?;
        rows.iter().map(|row| row.word("channel")).collect()
    }

    /// The statements that carry a plan out, or why there are none.
    pub fn steps(&self, plan: &Plan) -> Result<Steps, String> {
        let mut steps: Vec<(String, Vec<Target>)> = Vec::new();
        for target in &plan.targets {
            let queue = if self.fans_out() {
                &target.key.queue
            } else {
                ""
            };
            match steps.iter_mut().find(|(q, _)| q == queue) {
                Some((_, targets)) => targets.push(target.clone()),
                None => steps.push((queue.to_string(), vec![target.clone()])),
            }
        }
        let mut ready = Vec::new();
        for (queue, targets) in steps {
            match action_sql(self, plan.verb, &queue).map_err(|f| f.to_string())? {
                ActionSql::Refuse { why } => return Err(why),
                sql => ready.push((sql, targets)),
            }
        }
        let journal = journal(self).map_err(|f| f.to_string())?;
        Ok((ready, journal))
    }
}
