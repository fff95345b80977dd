//! The statement behind leases and workers: stuck tasks by the profile's rules (oldest first, bounded), who holds how
//! many running tasks, how many of them run longer than usual, and which claims are new.

use super::Lease;
use super::skew::Claim;
use crate::connect::{Cells, Fault, Session};
use crate::probe::queues::depth::{BRANCHES, later};
use crate::probe::tasks::row::{Want, read as read_task, selected};
use crate::probe::{ServerTime, State};
use crate::queue::columns::{Cast, TASK, listed};
use crate::queue::profile::{Clock, Live};
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};
use std::collections::BTreeMap;

/// Stuck tasks listed at most, by rule.
const STUCK: i64 = 100;
/// Running tasks looked at, by source and branch.
const RUNNING: i64 = 10_000;

/// What one worker holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Running tasks.
    pub holds: u64,
    /// The version it reports.
    pub version: Option<String>,
    /// Its next lease to end.
    pub next_expiry: Option<ServerTime>,
    /// Its newest heartbeat.
    pub heartbeat: Option<ServerTime>,
}

/// Running tasks of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Running {
    /// How many.
    pub running: u64,
    /// Of those whose lease has not ended (else nobody may be at them), those whose kind has a usual time.
    pub of: u64,
    /// Of those, over it.
    pub over: u64,
    /// The newest claim.
    pub claimed: Option<ServerTime>,
}

/// One look at the running tasks of an instance.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Stuck tasks, longest stuck first.
    pub stuck: Vec<Lease>,
    /// By worker.
    pub workers: BTreeMap<String, Held>,
    /// By queue and kind (empty: none).
    pub kinds: BTreeMap<(String, String), Running>,
    /// Claims, where the worker's clock writes them.
    pub claims: Vec<Claim>,
}

fn col(instance: &Instance, live: &Live, name: &str, branch: &Branch) -> Result<String, Fault> {
    let cast = TASK
        .iter()
        .find(|(n, _)| *n == name)
        .map_or(Cast::Text(200), |(_, c)| *c);
    instance.column(&live.row, name, cast, true, branch)
}

/// All parts of the statement have the columns of a stuck task; those not given are NULL.
fn padded(part: &str, given: &[(&str, &str)]) -> String {
    let find = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, e)| *e);
    let mut out = vec![format!(
        "'{part}'::text AS part, {} AS rule",
        find("rule").unwrap_or("NULL::text")
    )];
    for (name, cast) in listed() {
        out.push(format!("{} AS {name}", find(name).unwrap_or(cast.null())));
    }
    out.push("NULL::text AS stuck, NULL::float8 AS since".into());
    for name in ["n", "over", "of"] {
        out.push(format!("{} AS {name}", find(name).unwrap_or("NULL::int8")));
    }
    out.join(", ")
}

/// The running tasks of a source, each read once: `jt_run`.
fn running(instance: &Instance, live: &Live, branch: &Branch) -> Result<String, Fault> {
    let c = |name: &str| col(instance, live, name, branch);
    let claims =
        instance.profile.clock == Clock::Worker && instance.profile.row.contains_key("worker");
    let (id, attempt) = match claims {
        true => (c("id")?, c("attempt")?),
        false => ("NULL::text".into(), "NULL::int8".into()),
    };
    Ok(format!(
        "SELECT {id} AS id, {attempt} AS attempt, {} AS queue, {} AS kind, {} AS state, {} AS worker, {} AS version, {} AS lease, \
           {} AS beat, {} AS started, {} AS claimed {} LIMIT {RUNNING}",
        c("queue")?,
        c("kind")?,
        c("state")?,
        c("worker")?,
        c("worker_version")?,
        c("lease_until")?,
        c("heartbeat_at")?,
        c("started_at")?,
        c("claimed_at")?,
        instance.live_from(live, false, branch)?,
    ))
}

fn stuck(instance: &Instance, branch: &Branch) -> Result<Vec<String>, Fault> {
    let p = &instance.profile;
    let mut out = Vec::new();
    for rule in &p.stuck {
        let Some(live) = p.live.iter().find(|l| l.name == rule.live) else {
            continue;
        };
        let since = match &rule.since {
            Some(since) => Cast::Time.of(&instance.fill(since.get_ref(), branch)?),
            None => "NULL::float8".into(),
        };
        out.push(format!(
            "SELECT 'stuck'::text AS part, {}::text AS rule, h.*, NULL::int8 AS n, NULL::int8 AS over, NULL::int8 AS of \
             FROM (SELECT {}, {since} AS since {} AND ({}){} LIMIT {STUCK}) h",
            crate::queue::template::literal(&rule.name),
            selected(instance, &live.row, Some(live), Want::Cheap, branch)?,
            instance.live_from(live, false, branch)?,
            instance.fill(rule.r#where.get_ref(), branch)?,
            instance.order(&rule.order, branch)?,
        ));
    }
    Ok(out)
}

/// The statement for some branches.
fn statement(
    instance: &Instance,
    branches: &[Branch],
    whole: bool,
) -> Result<Option<String>, Fault> {
    let p = &instance.profile;
    if !whole {
        return instance.union(&[], branches, |_, branch| stuck(instance, branch));
    }
    let mut rows = Vec::new();
    for branch in branches {
        for live in p.live.iter().filter(|l| l.holds(State::Running)) {
            rows.push(format!("({})", running(instance, live, branch)?));
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let run = format!(
        "jt_run AS MATERIALIZED (SELECT y.*, (y.lease IS NULL OR y.lease > date_part('epoch', now())) AS lasts \
           FROM ({}) y WHERE y.state = 'running')",
        rows.join(" UNION ALL ")
    );
    let worker = padded(
        "worker",
        &[
            ("worker", "x.worker"),
            ("worker_version", "max(x.version)"),
            ("lease_until", "min(x.lease)"),
            ("heartbeat_at", "max(x.beat)"),
            ("n", "count(*)::int8"),
        ],
    );
    let kind = padded(
        "kind",
        &[
            ("queue", "x.queue"),
            ("kind", "x.kind"),
            ("claimed_at", "max(x.claimed)"),
            ("n", "count(*)::int8"),
            (
                "over",
                "(count(*) FILTER (WHERE x.lasts AND date_part('epoch', now()) - coalesce(x.started, x.claimed) > u.p95))::int8",
            ),
            ("of", "(count(u.p95) FILTER (WHERE x.lasts))::int8"),
        ],
    );
    let claim = padded(
        "claim",
        &[
            ("id", "x.id"),
            ("queue", "x.queue"),
            ("worker", "x.worker"),
            ("attempt", "x.attempt"),
            ("claimed_at", "x.claimed"),
        ],
    );
    let whole = format!(
        "(SELECT {worker} FROM jt_run x WHERE x.worker IS NOT NULL GROUP BY x.worker ORDER BY count(*) DESC LIMIT 1000) \
         UNION ALL (SELECT {kind} FROM jt_run x LEFT JOIN unnest(:queues::text[], :kinds::text[], :usual::float8[]) AS u(queue, kind, p95) \
           ON u.queue = x.queue AND u.kind = coalesce(x.kind, '') GROUP BY x.queue, x.kind LIMIT 2000) \
         UNION ALL (SELECT {claim} FROM jt_run x WHERE x.id IS NOT NULL AND x.worker IS NOT NULL AND x.claimed IS NOT NULL LIMIT 2000)"
    );
    let stuck = instance.union(&[&run], branches, |_, branch| stuck(instance, branch))?;
    Ok(Some(match stuck {
        Some(stuck) => format!("{stuck} UNION ALL {whole}"),
        None => format!("{}{whole}", instance.with(&run)?),
    }))
}

/// Looks at the running tasks; `usual` are queue, kind and usual seconds. Only at the stuck ones unless `whole`.
pub async fn look(
    session: &Session,
    instance: &Instance,
    usual: &[(String, String, f64)],
    whole: bool,
    keys: &[String],
    now: ServerTime,
) -> Result<Look, Fault> {
    let mut look = Look::default();
    let mut values = instance.values.clone();
    values.extend(Values::from([
        (
            "queues".into(),
            Value::Texts(usual.iter().map(|u| Some(u.0.clone())).collect()),
        ),
        (
            "kinds".into(),
            Value::Texts(usual.iter().map(|u| Some(u.1.clone())).collect()),
        ),
        (
            "usual".into(),
            Value::Floats(usual.iter().map(|u| u.2).collect()),
        ),
    ]));
    for chunk in instance.branches.chunks(BRANCHES).take(8) {
        let make = || statement(instance, chunk, whole);
        let Some(sql) = instance.made.get("leases", whole.into(), chunk, make)? else {
            continue;
        };
        for row in run(session, &sql, &values)
            .await
            .map_err(|f| instance.blame(f))?
        {
            let n = row.count("n")?;
            match row.word("part")?.as_str() {
                "stuck" => {
                    let task = read_task(&row, instance, keys, now)?;
                    let age =
                        |t: Option<ServerTime>| t.and_then(|t| now.since(t)).map(|s| s.max(0.0));
                    look.stuck.push(Lease {
                        system: task.key.system,
                        schema: task.key.schema,
                        queue: task.key.queue,
                        task: task.key.id,
                        kind: task.kind,
                        worker: task.worker,
                        overdue_s: age(row.time("since")?),
                        attempt: task.attempt,
                        lease_token: task.lease_token,
                        cancel_requested_s: age(task.cancel_requested_at),
                        rule: row.word("rule")?,
                        session: super::Seen::Unknown,
                    });
                }
                "worker" => {
                    let held = look.workers.entry(row.word("worker")?).or_default();
                    held.holds += n;
                    held.version = row.text("worker_version")?.or(held.version.take());
                    held.next_expiry = crate::probe::queues::depth::earlier(
                        held.next_expiry,
                        row.time("lease_until")?,
                    );
                    held.heartbeat = later(held.heartbeat, row.time("heartbeat_at")?);
                }
                "kind" => {
                    let key = (row.word("queue")?, row.word("kind")?);
                    let kind = look.kinds.entry(key).or_default();
                    kind.running += n;
                    kind.over += row.count("over")?;
                    kind.of += row.count("of")?;
                    kind.claimed = later(kind.claimed, row.time("claimed_at")?);
                }
                _ => {
                    if let Some(at) = row.time("claimed_at")? {
                        look.claims.push(Claim {
                            task: (row.word("queue")?, row.word("id")?, row.int("attempt")?),
                            worker: row.word("worker")?,
                            at,
                        });
                    }
                }
            }
        }
    }
    let overdue = |l: &Lease| l.overdue_s.unwrap_or(f64::INFINITY);
    look.stuck.sort_by(|a, b| overdue(b).total_cmp(&overdue(a)));
    look.stuck.truncate(STUCK as usize);
    Ok(look)
}
