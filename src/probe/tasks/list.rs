//! The tasks most in need of attention (stuck, locked, running longest, to be retried, failed lately, waiting longest),
//! and tasks by state and queue for `jobtop tasks`. Every part is bounded and uses the source's own order, so that an
//! index serves it.

use super::Task;
use super::row::{read, selected};
use crate::connect::{Cells, Fault, Session};
use crate::probe::queues::depth::{BRANCHES, Depth};
use crate::probe::{ServerTime, State};
use crate::queue::instance::param_as;
use crate::queue::profile::Live;
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};
use std::collections::{BTreeMap, BTreeSet};

/// Rows at most in the list.
pub const LIST: usize = 200;
/// Failed tasks count as lately for an hour.
const LATELY: f64 = 3600.0;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Stuck,
    Locked,
    Running,
    Retryable,
    Failed,
    Ready,
}

impl Class {
    const ALL: [Class; 6] = [
        Class::Stuck,
        Class::Locked,
        Class::Running,
        Class::Retryable,
        Class::Failed,
        Class::Ready,
    ];
}

/// One part of the list: rows of a live source.
fn part(
    instance: &Instance,
    live: &Live,
    class: Class,
    only: Option<&str>,
    order: &Option<crate::queue::profile::Sql>,
    q: Option<&str>,
    branch: &Branch,
) -> Result<String, Fault> {
    let row = selected(instance, &live.row, Some(live), branch)?;
    let from = instance.live_from(live, q.is_some(), branch)?;
    let only = only.map(|o| format!(" AND ({o})")).unwrap_or_default();
    let order = instance.order(order, branch)?;
    let n = class as u8;
    Ok(match q {
        Some(q) => format!(
            "SELECT {n}::int8 AS class, h.* FROM {q} CROSS JOIN LATERAL (SELECT {row} {from}{only}{order} LIMIT :each) h"
        ),
        None => format!("SELECT {n}::int8 AS class, {row} {from}{only}{order} LIMIT :limit"),
    })
}

/// A column of a live source, uncast, for conditions.
fn native(
    instance: &Instance,
    live: &Live,
    name: &str,
    branch: &Branch,
) -> Result<Option<String>, Fault> {
    let sql = live
        .row
        .get(name)
        .or_else(|| instance.profile.row.get(name));
    sql.map(|s| instance.fill(s.get_ref(), branch)).transpose()
}

fn bodies(
    instance: &Instance,
    q: &str,
    locked: bool,
    branch: &Branch,
) -> Result<Vec<String>, Fault> {
    let p = &instance.profile;
    let mut out = Vec::new();
    for rule in &p.stuck {
        if let Some(live) = p.live.iter().find(|l| l.name == rule.live) {
            let only = instance.fill(rule.r#where.get_ref(), branch)?;
            out.push(part(
                instance,
                live,
                Class::Stuck,
                Some(&only),
                &rule.order,
                None,
                branch,
            )?);
        }
    }
    if locked && let Ok(source) = instance.source(&p.by_id, branch) {
        let row = selected(instance, &source.row, None, branch)?;
        let from = param_as(&instance.from(source, branch)?, "id", "jt_w.id");
        out.push(format!(
            "SELECT {}::int8 AS class, h.* FROM unnest(:locked) AS jt_w(id) CROSS JOIN LATERAL (SELECT {row} {from} LIMIT 1) h",
            Class::Locked as u8
        ));
    }
    for live in &p.live {
        let only =
            |state: State| match (live.states.len(), native(instance, live, "state", branch)?) {
                (1, _) | (_, None) => Ok::<_, Fault>(None),
                (_, Some(expr)) => Ok(Some(format!("({expr}) = '{state}'"))),
            };
        for (state, class) in [
            (State::Running, Class::Running),
            (State::Retryable, Class::Retryable),
            (State::Ready, Class::Ready),
        ] {
            if live.states.contains(&state) {
                let q = (!live.spans).then_some(q);
                out.push(part(
                    instance,
                    live,
                    class,
                    only(state)?.as_deref(),
                    &live.order,
                    q,
                    branch,
                )?);
            }
        }
    }
    let failed = instance.source(&p.failed, branch).ok().map(|s| (s, None));
    let finished = || {
        let source = instance.source(&p.finished, branch).ok()?;
        let expr = source.row.get("state").or_else(|| p.row.get("state"))?;
        Some((source, instance.fill(expr.get_ref(), branch).ok()))
    };
    if let Some((source, state)) = failed.or_else(finished) {
        let row = selected_final(instance, &source.row, branch)?;
        let only = state
            .map(|s| format!(" AND ({s}) = 'failed'"))
            .unwrap_or_default();
        out.push(format!(
            "SELECT {}::int8 AS class, {row} {}{only}{} LIMIT :limit",
            Class::Failed as u8,
            instance.from(source, branch)?,
            instance.order(&source.order, branch)?
        ));
    }
    Ok(out)
}

/// As [`selected`], for rows that are finished and so cannot be stuck.
fn selected_final(
    instance: &Instance,
    own: &BTreeMap<String, crate::queue::profile::Sql>,
    branch: &Branch,
) -> Result<String, Fault> {
    let list = instance.columns(own, crate::queue::columns::listed(), true, branch)?;
    Ok(format!("{list}, NULL::text AS stuck"))
}

/// The tasks of one instance that most need attention, most urgent first.
pub async fn poll(
    session: &Session,
    instance: &Instance,
    depth: &Depth,
    keys: &[String],
    now: ServerTime,
) -> Result<Vec<Task>, Fault> {
    let busy = |b: &&Branch| match b.get("q") {
        Some(q) if instance.branches.len() > BRANCHES => depth
            .queues
            .get(q)
            .is_some_and(|one| one.states.values().any(|c| c.count > 0)),
        _ => true,
    };
    let branches: Vec<Branch> = instance
        .branches
        .iter()
        .filter(busy)
        .take(BRANCHES)
        .cloned()
        .collect();
    let pids: BTreeMap<(&str, &str), i32> = depth
        .queues
        .values()
        .flat_map(|one| &one.locked)
        .map(|l| ((l.queue.as_str(), l.task.as_str()), l.pid))
        .collect();
    let Some(sql) = instance.union(&[], &branches, |q, branch| {
        bodies(instance, q, !pids.is_empty(), branch)
    })?
    else {
        return Ok(Vec::new());
    };
    let queues = depth.queues.len().max(1);
    let limit = (LIST / 4).max(1) as i64;
    let locked = pids
        .keys()
        .map(|(_, id)| Some(id.to_string()))
        .take(LIST / 4)
        .collect();
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("limit".into(), Value::Int(limit)),
        ("each".into(), Value::Int((limit / queues as i64).max(3))),
        ("locked".into(), Value::Texts(locked)),
        ("since".into(), Value::Time(now.epoch() - LATELY)),
    ]));
    let rows = run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?;
    let mut classed = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut task = read(row, instance, keys, now)?;
        task.locked_by_pid = pids
            .get(&(task.key.queue.as_str(), task.key.id.as_str()))
            .copied();
        let at = row.count("class")? as usize;
        let class = Class::ALL.get(at).copied().unwrap_or(Class::Ready);
        classed.push((class, task));
    }
    Ok(urgent_first(classed))
}

fn urgent_first(mut classed: Vec<(Class, Task)>) -> Vec<Task> {
    let time = |t: Option<ServerTime>| t.map_or(f64::NEG_INFINITY, ServerTime::epoch);
    let key = |(class, t): &(Class, Task)| match class {
        Class::Stuck => time(t.lease_until),
        Class::Running => time(t.started_at.or(t.claimed_at)),
        Class::Failed => -time(t.finished_at),
        Class::Locked | Class::Retryable | Class::Ready => time(t.eligible_at),
    };
    classed.sort_by(|a, b| a.0.cmp(&b.0).then(key(a).total_cmp(&key(b))));
    let mut seen = BTreeSet::new();
    classed.retain(|(_, t)| seen.insert(t.key.clone()));
    classed.truncate(LIST);
    classed.into_iter().map(|(_, t)| t).collect()
}

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
            let fill = |name: &str, own: &BTreeMap<String, crate::queue::profile::Sql>| {
                let sql = own.get(name).or_else(|| p.row.get(name));
                sql.map_or(Ok("NULL".into()), |s| instance.fill(s.get_ref(), branch))
            };
            let only = |own: &BTreeMap<String, crate::queue::profile::Sql>| {
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
                let row = selected(instance, &live.row, Some(live), branch)?;
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
                    selected_final(instance, &source.row, branch)?,
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
