//! More about kinds and tenants that fail: what it cost, and how many tries each task takes. Read only while something
//! fails, and only about that.

use super::Attempts;
use super::report::attempt_source;
use crate::connect::{Cells, Fault, Session};
use crate::probe::Usd;
use crate::queue::Instance;
use crate::queue::columns::Cast;
use crate::queue::statement::{Value, Values, run};
use std::collections::BTreeMap;

/// Tries looked at, newest first where the source has an order.
const ROWS: i64 = 5_000;
/// Groups looked at, the most failing first.
const GROUPS: usize = 20;

/// Money lost and tries per task, by `kind`/`tenant`, queue and name.
pub type Failing = BTreeMap<(String, String, String), (Option<Usd>, Option<f64>)>;

/// Is it worth asking?
pub fn fails(a: &Attempts) -> bool {
    a.recent >= 20 && a.recent_failed * 5 >= a.recent * 2
}

/// Asks about the groups that fail.
pub async fn poll(
    session: &Session,
    instance: &Instance,
    attempts: &[Attempts],
    now: f64,
) -> Result<Failing, Fault> {
    let mut worst: Vec<&Attempts> = attempts.iter().filter(|a| fails(a)).collect();
    worst.sort_by_key(|a| std::cmp::Reverse(a.recent_failed));
    worst.truncate(GROUPS);
    let Ok(source) = attempt_source(instance) else {
        return Ok(Failing::new());
    };
    if worst.is_empty() || !source.row.contains_key("task") {
        return Ok(Failing::new());
    }
    let of = |by: &str| {
        worst
            .iter()
            .filter(|a| a.by == by)
            .map(|a| Some(a.name.clone()))
            .collect::<Vec<_>>()
    };
    let sql = instance.union(&[], &instance.branches[..1.min(instance.branches.len())], |_, branch| {
        let column = |name: &str, cast: Cast| instance.column(&source.row, name, cast, false, branch);
        let (kind, tenant) = (column("kind", Cast::Text(200))?, column("tenant", Cast::Text(200))?);
        Ok(vec![format!(
            "SELECT (CASE WHEN grouping(x.kind) = 0 THEN 'kind' ELSE 'tenant' END)::text AS by, coalesce(x.queue, '')::text AS queue, \
               coalesce(x.kind, x.tenant)::text AS name, count(DISTINCT x.task)::int8 AS tasks, count(*)::int8 AS tries, \
               (sum(x.cost) FILTER (WHERE x.outcome = 'failed'))::numeric::text AS lost \
             FROM (SELECT {} AS task, {} AS queue, coalesce({kind}, '') AS kind, {tenant} AS tenant, {} AS outcome, \
                 CASE WHEN {} = 'failed' THEN ({})::numeric END AS cost {} AND (coalesce({kind}, '') = ANY (:kinds) OR {tenant} = ANY (:tenants)) \
               LIMIT :rows) x \
             GROUP BY GROUPING SETS ((x.queue, x.kind), (x.tenant))",
            column("task", Cast::Text(200))?,
            column("queue", Cast::Text(200))?,
            column("outcome", Cast::Text(20))?,
            column("outcome", Cast::Text(20))?,
            column("cost", Cast::Money)?,
            instance.from(source, branch)?,
        )])
    })?;
    let Some(sql) = sql else {
        return Ok(Failing::new());
    };
    let mut values = instance.values.clone();
    values.extend(Values::from([
        (
            "since".into(),
            Value::Time(now - super::slots::RECENT as f64),
        ),
        ("until".into(), Value::Time(now + 10.0)),
        ("rows".into(), Value::Int(ROWS)),
        ("kinds".into(), Value::Texts(of("kind"))),
        ("tenants".into(), Value::Texts(of("tenant"))),
    ]));
    let mut out = Failing::new();
    for row in run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?
    {
        let (tasks, tries) = (row.count("tasks")?, row.count("tries")?);
        let per_task = (tasks > 0).then(|| tries as f64 / tasks as f64);
        let lost = match source.row.contains_key("cost") {
            true => row.usd("lost")?,
            false => None,
        };
        out.insert(
            (row.word("by")?, row.word("queue")?, row.word("name")?),
            (lost, per_task),
        );
    }
    Ok(out)
}

/// Writes what was learnt into the groups.
pub fn apply(failing: &Failing, attempts: &mut [Attempts]) {
    for a in attempts {
        let key = (a.by.clone(), a.queue.clone(), a.name.clone());
        if let Some((lost, tries)) = failing.get(&key) {
            a.lost = *lost;
            a.tries_per_task = *tries;
        }
    }
}
