//! The statement behind leases and workers: stuck tasks by the profile's rules (oldest first, bounded), who holds how
//! many running tasks, how many of them run longer than usual, and which claims are new.

use super::Lease;
use super::skew::Claim;
use crate::connect::{Cells, Fault, Session};
use crate::probe::ServerTime;
use crate::probe::queues::depth::{BRANCHES, later};
use crate::probe::tasks::row::{read as read_task, selected};
use crate::queue::columns::{Cast, TASK, listed};
use crate::queue::profile::{Clock, Live};
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};
use std::collections::BTreeMap;

/// Stuck tasks listed at most, by rule.
const STUCK: i64 = 200;
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

/// Running tasks of a queue whose lease has not ended (else nobody may be at them), and how many run longer than their
/// kind usually does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Over {
    /// Running tasks whose kind has a usual time.
    pub of: u64,
    /// Of those, over it.
    pub over: u64,
}

/// One look at the running tasks of an instance.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Stuck tasks, longest stuck first.
    pub stuck: Vec<Lease>,
    /// By worker.
    pub workers: BTreeMap<String, Held>,
    /// By queue.
    pub over: BTreeMap<String, Over>,
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

fn padded(part: &str, extra: &[(&str, &str)]) -> String {
    let nulls = listed().map(|(name, cast)| {
        let given = extra.iter().find(|(n, _)| n == name);
        match given {
            Some((_, expr)) => format!("{expr} AS {name}"),
            None => format!("{} AS {name}", cast.null()),
        }
    });
    let nulls: Vec<String> = nulls.collect();
    let own = |name: &str, null: &str| {
        let expr = extra
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(null, |(_, e)| e);
        format!("{expr} AS {name}")
    };
    format!(
        "'{part}'::text AS part, {}, {}, NULL::text AS stuck, NULL::float8 AS since, {}, {}",
        own("rule", "NULL::text"),
        nulls.join(", "),
        own("n", "NULL::int8"),
        own("over", "NULL::int8")
    )
}

fn bodies(instance: &Instance, branch: &Branch) -> Result<Vec<String>, Fault> {
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
            "SELECT 'stuck'::text AS part, {}::text AS rule, h.*, NULL::int8 AS n, NULL::int8 AS over FROM (SELECT {}, {since} AS since \
             {} AND ({}){} LIMIT {STUCK}) h",
            crate::queue::template::literal(&rule.name),
            selected(instance, &live.row, Some(live), branch)?,
            instance.live_from(live, false, branch)?,
            instance.fill(rule.r#where.get_ref(), branch)?,
            instance.order(&rule.order, branch)?,
        ));
    }
    for live in p
        .live
        .iter()
        .filter(|l| l.states.contains(&crate::probe::State::Running))
    {
        let c = |name: &str| col(instance, live, name, branch);
        let mut rows = format!(
            "SELECT {} AS queue, {} AS kind, {} AS state, {} AS worker, {} AS version, {} AS lease, {} AS beat, {} AS started {} LIMIT {RUNNING}",
            c("queue")?,
            c("kind")?,
            c("state")?,
            c("worker")?,
            c("worker_version")?,
            c("lease_until")?,
            c("heartbeat_at")?,
            format_args!("coalesce({}, {})", c("started_at")?, c("claimed_at")?),
            instance.live_from(live, false, branch)?,
        );
        rows = format!("(SELECT * FROM ({rows}) y WHERE y.state = 'running') x");
        let shown = padded(
            "worker",
            &[
                ("worker", "x.worker"),
                ("worker_version", "max(x.version)"),
                ("lease_until", "min(x.lease)"),
                ("heartbeat_at", "max(x.beat)"),
                ("n", "count(*)::int8"),
            ],
        );
        if p.row.contains_key("worker") || live.row.contains_key("worker") {
            out.push(format!(
                "SELECT {shown} FROM {rows} WHERE x.worker IS NOT NULL GROUP BY x.worker ORDER BY count(*) DESC LIMIT 1000"
            ));
        }
        let shown = padded(
            "over",
            &[
                ("queue", "x.queue"),
                ("n", "count(*)::int8"),
                (
                    "over",
                    "(count(*) FILTER (WHERE extract(epoch FROM now())::float8 - x.started > u.p95))::int8",
                ),
            ],
        );
        out.push(format!(
            "SELECT {shown} FROM {rows} JOIN unnest(:queues::text[], :kinds::text[], :usual::float8[]) AS u(queue, kind, p95) \
             ON u.queue = x.queue AND u.kind = x.kind \
             WHERE x.lease IS NULL OR x.lease > extract(epoch FROM now())::float8 GROUP BY x.queue"
        ));
        if p.clock == Clock::Worker && p.row.contains_key("worker") {
            let shown = padded(
                "claim",
                &[
                    ("id", "y.id"),
                    ("queue", "y.queue"),
                    ("worker", "y.worker"),
                    ("attempt", "y.attempt"),
                    ("claimed_at", "y.claimed"),
                ],
            );
            out.push(format!(
                "SELECT {shown} FROM (SELECT {} AS id, {} AS queue, {} AS worker, {} AS attempt, {} AS claimed {} LIMIT 2000) y \
                 WHERE y.worker IS NOT NULL AND y.claimed IS NOT NULL",
                c("id")?,
                c("queue")?,
                c("worker")?,
                c("attempt")?,
                c("claimed_at")?,
                instance.live_from(live, false, branch)?,
            ));
        }
    }
    Ok(out)
}

/// Looks at the running tasks; `usual` are queue, kind and usual seconds.
pub async fn look(
    session: &Session,
    instance: &Instance,
    usual: &[(String, String, f64)],
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
        let Some(sql) = instance.union(&[], chunk, |_, branch| bodies(instance, branch))? else {
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
                "over" => {
                    let over = look.over.entry(row.word("queue")?).or_default();
                    over.of += n;
                    over.over += row.count("over")?;
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
