//! The tasks that an action is about, as they are now: by their ids, or all that match a filter.

use super::row::{Want, read, selected};
use super::{Filter, Task, TaskKey, query};
use crate::connect::{Cells, Fault, Session};
use crate::probe::{ServerTime, Usd};
use crate::queue::columns::ATTEMPT;
use crate::queue::instance::param_as;
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};
use std::collections::BTreeMap;

/// Ids asked for in one statement.
const PAGE: usize = 1000;
/// Attempts that the usual cost of a re-run is taken from, at most.
const ATTEMPTS: i64 = 1000;
/// They ended within so many seconds.
const BACK: f64 = 86_400.0;

/// The tasks of these keys that still exist. Fails where the system's tasks cannot be found by id.
pub async fn by_keys(
    session: &Session,
    instance: &Instance,
    wanted: &[TaskKey],
    now: ServerTime,
) -> Result<Vec<Task>, Fault> {
    let mut tasks = Vec::with_capacity(wanted.len());
    let mut by_queue: BTreeMap<&str, Vec<&TaskKey>> = BTreeMap::new();
    for key in wanted {
        let queue = match instance.fans_out() {
            true => key.queue.as_str(),
            false => "",
        };
        by_queue.entry(queue).or_default().push(key);
    }
    for (queue, keys) in by_queue {
        // a queue that is gone has taken its tasks along
        let Some(branch) = instance.branch_of(queue) else {
            continue;
        };
        let sql = statement(instance, branch)?;
        for page in keys.chunks(PAGE) {
            let ids = page.iter().map(|k| Some(k.id.clone())).collect();
            let mut values = instance.values.clone();
            values.insert("ids".into(), Value::Texts(ids));
            let rows = run(session, &sql, &values).await;
            for row in &rows.map_err(|f| instance.blame(f))? {
                tasks.push(read(row, instance, &[], now)?);
            }
        }
    }
    Ok(tasks)
}

fn statement(instance: &Instance, branch: &Branch) -> Result<String, Fault> {
    let by_id = instance
        .source(&instance.profile.by_id, branch)
        .map_err(Fault::own)?;
    Ok(format!(
        "{}SELECT h.* FROM unnest(:ids::text[]) AS jt_w(id) CROSS JOIN LATERAL (SELECT {} {} LIMIT 1) h",
        instance.with("")?,
        selected(instance, &by_id.row, None, Want::Judge, branch)?,
        param_as(&instance.from(by_id, branch)?, "id", "jt_w.id"),
    ))
}

/// All that match, at most `filter.limit`.
pub async fn matching(
    session: &Session,
    instance: &Instance,
    filter: &Filter,
    now: ServerTime,
) -> Result<Vec<Task>, Fault> {
    let filter = Filter {
        slim: true,
        ..filter.clone()
    };
    query(session, instance, &filter, &[], now).await
}

/// What one try of each kind usually costs: the median of the last attempts that ended within a day, where they are
/// priced.
pub async fn usual_cost(
    session: &Session,
    instance: &Instance,
    now: ServerTime,
) -> Result<BTreeMap<String, Usd>, Fault> {
    let chosen = &instance.branches[..instance.branches.len().min(32)];
    let sql = instance.union(&[], chosen, |_, branch| {
        let Ok(source) = instance.source(&instance.profile.attempts, branch) else {
            return Ok(Vec::new());
        };
        if !source.row.contains_key("cost") {
            return Ok(Vec::new());
        }
        let at = source.at.as_ref();
        let at = at.map_or(Ok("NULL".into()), |a| instance.fill(a.get_ref(), branch))?;
        let columns = ATTEMPT.iter().filter(|(n, _)| matches!(*n, "kind" | "cost"));
        Ok(vec![format!(
            "SELECT a.kind, percentile_disc(0.5) WITHIN GROUP (ORDER BY a.cost::numeric)::text AS cost FROM \
               (SELECT {} {} ORDER BY {at} DESC LIMIT :rows) a WHERE a.cost IS NOT NULL GROUP BY 1",
            instance.columns(&source.row, columns, false, branch)?,
            instance.from(source, branch)?,
        )])
    })?;
    let Some(sql) = sql else {
        return Ok(BTreeMap::new());
    };
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("rows".into(), Value::Int(ATTEMPTS)),
        ("since".into(), Value::Time(now.epoch() - BACK)),
        ("until".into(), Value::Time(now.epoch())),
    ]));
    let mut usual = BTreeMap::new();
    for row in run(session, &sql, &values).await? {
        if let (Some(kind), Some(usd)) = (row.text("kind")?, row.usd("cost")?) {
            usual.insert(kind, usd);
        }
    }
    Ok(usual)
}
