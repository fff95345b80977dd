//! The statements behind cost: spend by minute and by agent, tenant, application and model; the most expensive tasks;
//! and what the running ones have spent so far.

use super::ledger::{Key, Spend};
use crate::connect::{Cells, Fault, Session};
use crate::probe::{State, Usd};
use crate::queue::columns::{COST, Cast};
use crate::queue::instance::param_as;
use crate::queue::profile::Source;
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};

/// Rows read by one statement at most.
pub const ROWS: i64 = 20_000;
/// Running tasks whose spend is added up at most.
const RUNNING: i64 = 500;
/// Most expensive tasks.
const TOP: usize = 20;

/// A task and its spend.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// Id.
    pub task: String,
    /// Queue, where the task is still there.
    pub queue: Option<String>,
    /// Kind.
    pub kind: Option<String>,
    /// Spent over the window.
    pub usd: Usd,
    /// Attempts that spent it.
    pub attempts: u32,
}

fn source<'a>(instance: &'a Instance, branch: &Branch) -> Result<&'a Source, String> {
    instance.source(&instance.profile.cost, branch)
}

/// Why an instance has no cost; `None` where it has.
pub fn missing(instance: &Instance) -> Option<String> {
    let none = Branch::new();
    source(instance, instance.branches.first().unwrap_or(&none)).err()
}

fn money(
    instance: &Instance,
    source: &Source,
    name: &str,
    branch: &Branch,
) -> Result<String, Fault> {
    let text = instance.column(&source.row, name, Cast::Money, false, branch)?;
    Ok(format!("nullif(({text})::numeric, 'NaN')"))
}

fn at(instance: &Instance, source: &Source, branch: &Branch) -> Result<String, Fault> {
    match &source.at {
        Some(at) => Ok(format!(
            "date_part('epoch', {})",
            instance.fill(at.get_ref(), branch)?
        )),
        None => Err(Fault::own("a cost source without a time")),
    }
}

/// Spend from `since` to `until` in slots of so many seconds, and how many records it was.
pub async fn spend(
    session: &Session,
    instance: &Instance,
    since: f64,
    until: f64,
    slot: i64,
) -> Result<(Vec<(i64, Key, Spend)>, i64), Fault> {
    let branches = &instance.branches[..instance
        .branches
        .len()
        .min(crate::probe::queues::depth::BRANCHES)];
    let sql = instance.union(&[], branches, |_, branch| {
        let Ok(source) = source(instance, branch) else {
            return Ok(Vec::new());
        };
        let c = |name: &str| {
            let cast = COST.iter().find(|(n, _)| *n == name).map_or(Cast::Text(200), |(_, c)| *c);
            instance.column(&source.row, name, cast, false, branch)
        };
        Ok(vec![format!(
            "SELECT grouping(y.agent, y.tenant, y.application, y.model)::int8 AS g, y.slot::int8 AS slot, \
               coalesce(y.agent, y.tenant, y.application, y.model)::text AS name, count(*)::int8 AS n, \
               sum(y.model_usd)::text AS model_usd, sum(y.compute_usd)::text AS compute_usd, \
               (sum(coalesce(y.model_usd, 0) + coalesce(y.compute_usd, 0)) FILTER (WHERE y.failed))::text AS failed_usd, \
               least(coalesce(sum(y.input), 0), 9e18)::int8 AS input, least(coalesce(sum(y.output), 0), 9e18)::int8 AS output, \
               least(coalesce(sum(coalesce(y.input, 0) + coalesce(y.output, 0)) FILTER (WHERE y.unpriced), 0), 9e18)::int8 AS unpriced \
             FROM (SELECT (floor(x.at / :slot) * :slot)::int8 AS slot, coalesce(x.agent, '(none)') AS agent, coalesce(x.tenant, '(none)') AS tenant, \
                 coalesce(x.application, '(none)') AS application, coalesce(x.model, '(none)') AS model, x.model_usd, x.compute_usd, \
                 x.input, x.output, x.failed, x.unpriced \
               FROM (SELECT {} AS at, {} AS agent, {} AS tenant, {} AS application, {} AS model, {} AS model_usd, {} AS compute_usd, \
                   {}::numeric AS input, {}::numeric AS output, {} AS failed, {} AS unpriced {} LIMIT :rows) x WHERE x.at < :end) y \
             GROUP BY GROUPING SETS ((y.slot), (y.slot, y.agent), (y.slot, y.tenant), (y.slot, y.application), (y.slot, y.model))",
            at(instance, source, branch)?,
            c("agent")?,
            c("tenant")?,
            c("application")?,
            c("model")?,
            money(instance, source, "model_usd", branch)?,
            money(instance, source, "compute_usd", branch)?,
            c("input_tokens")?,
            c("output_tokens")?,
            c("failed")?,
            c("unpriced")?,
            instance.from(source, branch)?,
        )])
    })?;
    let Some(sql) = sql else {
        return Ok((Vec::new(), 0));
    };
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("since".into(), Value::Time(since)),
        ("until".into(), Value::Time(until)),
        ("slot".into(), Value::Int(slot)),
        ("end".into(), Value::Float(until)),
        ("rows".into(), Value::Int(ROWS)),
    ]));
    let (mut out, mut records) = (Vec::new(), 0);
    for row in run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?
    {
        let name = row.word("name")?;
        let key = match row.int("g")?.unwrap_or(0) {
            0b1111 => Key::All,
            0b0111 => Key::Agent(name),
            0b1011 => Key::Tenant(name),
            0b1101 => Key::Application(name),
            0b1110 => Key::Model(name),
            _ => continue,
        };
        let usd = |column: &str| Ok::<_, Fault>(row.usd(column)?.unwrap_or_default());
        let spend = Spend {
            records: row.count("n")?,
            model: usd("model_usd")?,
            compute: usd("compute_usd")?,
            failed: usd("failed_usd")?,
            input: row.count("input")?,
            output: row.count("output")?,
            unpriced: row.count("unpriced")?,
        };
        if key == Key::All {
            records += spend.records as i64;
        }
        out.push((row.int("slot")?.unwrap_or(0), key, spend));
    }
    Ok((out, records))
}

/// The most expensive tasks since then, among the first 20,000 records.
pub async fn top(
    session: &Session,
    instance: &Instance,
    since: f64,
    until: f64,
) -> Result<Vec<Top>, Fault> {
    let Some(branch) = instance.branches.first() else {
        return Ok(Vec::new());
    };
    let Ok(source) = source(instance, branch) else {
        return Ok(Vec::new());
    };
    let task = instance.column(&source.row, "task", Cast::Text(200), false, branch)?;
    let attempt = instance.column(&source.row, "attempt", Cast::Int, false, branch)?;
    // queue and kind only of those that are shown: without them the joins of the source are not even made
    let of_task = |name: &str| match instance.source(&instance.profile.by_id, branch) {
        Ok(by_id) => Ok(format!(
            "(SELECT {} {} LIMIT 1)",
            instance.column(&by_id.row, name, Cast::Text(200), true, branch)?,
            param_as(&instance.from(by_id, branch)?, "id", "jt_w.task")
        )),
        Err(_) => Ok::<_, Fault>("NULL::text".into()),
    };
    let (queue, kind) = (of_task("queue")?, of_task("kind")?);
    let sql = format!(
        "{}SELECT jt_w.task::text AS task, {queue}::text AS queue, {kind}::text AS kind, jt_w.usd::text AS usd, jt_w.attempts::int8 AS attempts FROM (SELECT x.task, \
           sum(x.usd) AS usd, count(DISTINCT x.attempt) AS attempts \
         FROM (SELECT {task} AS task, {attempt} AS attempt, coalesce({}, 0) + coalesce({}, 0) AS usd {} LIMIT :rows) x \
         WHERE x.task IS NOT NULL GROUP BY 1 HAVING sum(x.usd) > 0 ORDER BY 2 DESC LIMIT {TOP}) jt_w",
        instance.with("")?,
        money(instance, source, "model_usd", branch)?,
        money(instance, source, "compute_usd", branch)?,
        instance.from(source, branch)?,
    );
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("since".into(), Value::Time(since)),
        ("until".into(), Value::Time(until)),
        ("rows".into(), Value::Int(ROWS)),
    ]));
    let mut out = Vec::new();
    for row in run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?
    {
        out.push(Top {
            task: row.word("task")?,
            queue: row.text("queue")?,
            kind: row.text("kind")?,
            usd: row.usd("usd")?.unwrap_or_default(),
            attempts: row.count("attempts")? as u32,
        });
    }
    Ok(out)
}

/// What the tasks that run now have spent so far, over the first five hundred of them.
pub async fn running(session: &Session, instance: &Instance) -> Result<Usd, Fault> {
    let p = &instance.profile;
    if !p.row.contains_key("cost") {
        return Ok(Usd::default());
    }
    let branches = &instance.branches[..instance
        .branches
        .len()
        .min(crate::probe::queues::depth::BRANCHES)];
    let sql = instance.union(&[], branches, |_, branch| {
        let mut out = Vec::new();
        for live in p.live.iter().filter(|l| l.states.contains(&State::Running)) {
            out.push(format!(
                "SELECT sum(nullif((x.cost)::numeric, 'NaN'))::text AS usd FROM (SELECT {} AS cost, {} AS state {} LIMIT {RUNNING}) x \
                 WHERE x.state = 'running'",
                instance.column(&live.row, "cost", Cast::Money, true, branch)?,
                instance.column(&live.row, "state", Cast::Text(20), true, branch)?,
                instance.live_from(live, false, branch)?,
            ));
        }
        Ok(out)
    })?;
    let Some(sql) = sql else {
        return Ok(Usd::default());
    };
    let mut sum = Usd::default();
    for row in run(session, &sql, &instance.values)
        .await
        .map_err(|f| instance.blame(f))?
    {
        sum += row.usd("usd")?.unwrap_or_default();
    }
    Ok(sum)
}
