//! Tasks by state and queue, for `jobtop tasks`.

use super::Task;
use super::row::{finished, read, selected};
use crate::connect::{Fault, Session};
use crate::probe::queues::depth::BRANCHES;
use crate::probe::{ServerTime, State};
use crate::queue::profile::Sql;
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};
use std::collections::{BTreeMap, BTreeSet};

/// What `jobtop tasks` asks for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this state.
    pub state: Option<State>,
    /// Only this queue.
    pub queue: Option<String>,
    /// At most so many tasks.
    pub limit: u32,
}

/// Tasks by state and queue: live ones in their sources' order, then those finished within a day, newest first (failed
/// ones however old, where an index serves them).
pub async fn query(
    session: &Session,
    instance: &Instance,
    filter: &Filter,
    keys: &[String],
    now: ServerTime,
) -> Result<Vec<Task>, Fault> {
    let served = !instance.profile.failed.is_empty() && filter.state == Some(State::Failed);
    let since = if served { 0.0 } else { now.epoch() - 86_400.0 };
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("limit".into(), Value::Int(i64::from(filter.limit))),
        ("since".into(), Value::Time(since)),
        ("queue".into(), Value::Text(filter.queue.clone())),
        (
            "state".into(),
            Value::Text(filter.state.map(|s| s.name().to_string())),
        ),
    ]));
    let wanted = |states: &[State]| filter.state.is_none_or(|s| states.contains(&s));
    let chosen = |b: &&Branch| match (&filter.queue, b.get("q")) {
        (Some(queue), Some(q)) => queue == q,
        _ => true,
    };
    let branches: Vec<Branch> = instance.branches.iter().filter(chosen).cloned().collect();
    let mut tasks = Vec::new();
    for chunk in branches.chunks(BRANCHES) {
        let sql = instance.union(&[], chunk, |q, branch| {
            let p = &instance.profile;
            let fill = |name: &str, own: &BTreeMap<String, Sql>| {
                let sql = own.get(name).or_else(|| p.row.get(name));
                sql.map_or(Ok("NULL".into()), |s| instance.fill(s.get_ref(), branch))
            };
            let only = |own: &BTreeMap<String, Sql>| {
                let mut cond = String::new();
                if filter.state.is_some() {
                    cond += &format!(" AND ({})::text = :state", fill("state", own)?);
                }
                if filter.queue.is_some() {
                    cond += &format!(" AND ({})::text = :queue", fill("queue", own)?);
                }
                Ok::<_, Fault>(cond)
            };
            let mut bodies = Vec::new();
            for live in p.live.iter().filter(|l| wanted(&l.states)) {
                let row = selected(instance, &live.row, Some(live), true, branch)?;
                let from = instance.live_from(live, true, branch)?;
                let order = instance.order(&live.order, branch)?;
                bodies.push(format!(
                    "SELECT h.* FROM {q} CROSS JOIN LATERAL (SELECT {row} {from}{}{order} LIMIT :limit) h LIMIT :limit",
                    only(&live.row)?
                ));
            }
            let failed = instance.source(&p.failed, branch).ok();
            let failed = failed.filter(|_| filter.state == Some(State::Failed));
            if wanted(&[State::Succeeded, State::Failed, State::Cancelled, State::Other])
                && let Some(source) = failed.or(instance.source(&p.finished, branch).ok())
            {
                bodies.push(format!(
                    "SELECT {} {}{}{} LIMIT :limit",
                    finished(instance, &source.row, true, branch)?,
                    instance.from(source, branch)?,
                    only(&source.row)?,
                    instance.order(&source.order, branch)?
                ));
            }
            Ok(bodies)
        })?;
        let Some(sql) = sql else { continue };
        for row in run(session, &sql, &values)
            .await
            .map_err(|f| instance.blame(f))?
        {
            tasks.push(read(&row, instance, keys, now)?);
        }
    }
    let mut seen = BTreeSet::new();
    tasks.retain(|t| seen.insert(t.key.clone()));
    tasks.truncate(filter.limit as usize);
    Ok(tasks)
}
