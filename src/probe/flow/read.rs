//! The statements behind history: tries that ended, summed by the server into time slots, by queue and kind, tenant,
//! worker, error, and by the length of each stage; and arrivals by queue.

use super::slots::{Cell, Key, Name, STAGES, Slots, bin_sql};
use crate::connect::{Cells as _, Fault, Session};
use crate::probe::stages::StageName;
use crate::queue::columns::{ARRIVAL, ATTEMPT};
use crate::queue::profile::{Ends, Source};
use crate::queue::statement::{Value, Values, each};
use crate::queue::{Branch, Instance};
use tokio_postgres::Row;

/// Rows read by one statement at most, for each branch.
pub const ROWS: i64 = 30_000;

/// What is read, and how finely.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// From here, in seconds since 1970.
    pub since: f64,
    /// Up to here.
    pub until: f64,
    /// Seconds of a slot of counts.
    pub slot: i64,
    /// Seconds of a slot of everything else.
    pub wide: i64,
    /// Read tries.
    pub attempts: bool,
    /// Read arrivals.
    pub arrivals: bool,
}

/// One answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// Tries.
    pub tries: Slots,
    /// Arrivals: slot, queue, how many, first, last.
    pub arrivals: Vec<(i64, String, u64, f64, f64)>,
    /// Tries read.
    pub rows: i64,
    /// Arrivals read.
    pub arrived: i64,
}

/// Seconds between two neutral times; NULL unless the first is not after the second.
fn between(from: &str, to: &str) -> String {
    format!("CASE WHEN x.{from} <= x.{to} THEN x.{to} - x.{from} END")
}

fn stage_sql(stage: StageName) -> String {
    match stage {
        StageName::Wait => between("eligible_at", "claimed_at"),
        StageName::Start => between("claimed_at", "started_at"),
        StageName::Run => between("started_at", "finished_at"),
        StageName::Total => format!(
            "CASE WHEN x.task_state IS NOT NULL THEN {} END",
            between("created_at", "finished_at")
        ),
    }
}

/// Why a stage of an instance cannot be known; `None` where it can.
pub fn unknown_stage(
    instance: &Instance,
    source: Result<&Source, &String>,
    stage: StageName,
) -> Option<String> {
    let (name, needs): (&str, [&str; 2]) = match stage {
        StageName::Wait => ("wait", ["eligible_at", "claimed_at"]),
        StageName::Start => ("start", ["claimed_at", "started_at"]),
        StageName::Run => ("run", ["started_at", "finished_at"]),
        StageName::Total => ("total", ["created_at", "finished_at"]),
    };
    if let Some(why) = instance.profile.unknown.get(name) {
        return Some(why.clone());
    }
    match source {
        Err(why) => Some(why.clone()),
        Ok(source) if source.ends == Ends::Claimed && stage != StageName::Wait => {
            let why = instance.profile.unknown.get("finished");
            Some(
                why.cloned()
                    .unwrap_or_else(|| format!("{} has no finished time", instance.system)),
            )
        }
        Ok(source) => needs
            .into_iter()
            .find(|n| !source.row.contains_key(*n))
            .map(|n| format!("{} does not record {n}", instance.system)),
    }
}

const NORMAL: &str = "regexp_replace(left(split_part(x.error, E'\\n', 1), 160), \
    '[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0[xX][0-9a-fA-F]+|[0-9]+', '#', 'g')";

fn tries(instance: &Instance, source: &Source, branch: &Branch) -> Result<String, Fault> {
    let at = match &source.at {
        Some(at) => instance.fill(at.get_ref(), branch)?,
        None => return Err(Fault::own("an attempt source without a time")),
    };
    let known = ATTEMPT.iter().filter(|(n, _)| *n != "cost" && *n != "task");
    let columns = instance.columns(&source.row, known, false, branch)?;
    let claims = source.ends == Ends::Claimed;
    let mut stages = Vec::new();
    let mut bins = Vec::new();
    for (i, stage) in STAGES.into_iter().enumerate() {
        let out = unknown_stage(instance, Ok(source), stage).is_some();
        let sql = if out {
            "NULL::float8".into()
        } else {
            stage_sql(stage)
        };
        stages.push(format!("({sql})::float8 AS s{i}"));
        bins.push(format!("{} AS b{i}", bin_sql(&format!("y.s{i}"))));
    }
    let failed = match claims {
        true => "false".to_string(),
        false => "coalesce(x.outcome = 'failed', false)".into(),
    };
    let of_state = |s: &str| format!("count(*) FILTER (WHERE z.task_state = '{s}')");
    Ok(format!(
        "SELECT 'try'::text AS part, grouping(z.kind, z.tenant, z.worker, z.error, z.b0, z.b1, z.b2, z.b3)::int8 AS g, \
           coalesce(z.slot, z.wide)::int8 AS slot, z.queue::text AS queue, z.kind::text AS kind, \
           coalesce(z.tenant, z.worker)::text AS name, z.error::text AS error, coalesce(z.b0, z.b1, z.b2, z.b3)::int8 AS bin, \
           count(*)::int8 AS n, (count(*) FILTER (WHERE z.failed))::int8 AS failed, {}::int8 AS f0, {}::int8 AS f1, {}::int8 AS f2, \
           max(z.s0)::float8 AS m0, max(z.s1)::float8 AS m1, max(z.s2)::float8 AS m2, max(z.s3)::float8 AS m3, \
           max(z.claimed_at)::float8 AS claimed, NULL::float8 AS first \
         FROM (SELECT y.*, {} FROM (SELECT (floor(x.at / :slot) * :slot)::int8 AS slot, \
             (floor(x.at / :wide) * :wide)::int8 AS wide, coalesce(x.queue, '') AS queue, coalesce(x.kind, '') AS kind, x.tenant, x.worker, x.task_state, x.claimed_at, {failed} AS failed, \
             CASE WHEN {failed} THEN coalesce({NORMAL}, '(no message)') END AS error, {} \
           FROM (SELECT date_part('epoch', {at}) AS at, {columns} {} LIMIT :rows) x WHERE x.at < :end) y) z \
         GROUP BY GROUPING SETS ((z.slot, z.queue, z.kind), (z.wide, z.queue, z.tenant), (z.wide, z.queue, z.worker), \
           (z.wide, z.queue, z.kind, z.error), (z.wide, z.queue, z.tenant, z.error), \
           (z.wide, z.queue, z.kind, z.b0), (z.wide, z.queue, z.kind, z.b1), (z.wide, z.queue, z.kind, z.b2), (z.wide, z.queue, z.kind, z.b3))",
        of_state("succeeded"),
        of_state("failed"),
        of_state("cancelled"),
        bins.join(", "),
        stages.join(", "),
        instance.from(source, branch)?,
    ))
}

fn arrivals(instance: &Instance, source: &Source, branch: &Branch) -> Result<String, Fault> {
    let at = match &source.at {
        Some(at) => instance.fill(at.get_ref(), branch)?,
        None => return Err(Fault::own("an arrival source without a time")),
    };
    let columns = instance.columns(&source.row, ARRIVAL, false, branch)?;
    Ok(format!(
        "SELECT 'in'::text AS part, NULL::int8 AS g, (floor(x.at / :slot) * :slot)::int8 AS slot, coalesce(x.queue, '')::text AS queue, \
           NULL::text AS kind, NULL::text AS name, NULL::text AS error, NULL::int8 AS bin, count(*)::int8 AS n, NULL::int8 AS failed, \
           NULL::int8 AS f0, NULL::int8 AS f1, NULL::int8 AS f2, NULL::float8 AS m0, NULL::float8 AS m1, NULL::float8 AS m2, \
           NULL::float8 AS m3, max(x.at)::float8 AS claimed, min(x.at)::float8 AS first \
         FROM (SELECT date_part('epoch', {at}) AS at, {columns} {} LIMIT :rows) x \
         WHERE x.at < :end GROUP BY 3, 4",
        instance.from(source, branch)?
    ))
}

/// Which cell a grouping set fills, by its bit mask (kind tenant worker error b0 b1 b2 b3; a set bit is absent).
fn key(
    mask: i64,
    queue: Name,
    kind: Name,
    name: Option<Name>,
    error: Option<Name>,
    bin: Option<i64>,
) -> Option<Key> {
    let bin = bin.and_then(|b| u16::try_from(b).ok());
    Some(match mask {
        0b0111_1111 => Key::Kind(queue, kind),
        0b1011_1111 => Key::Tenant(queue, name?),
        0b1101_1111 => Key::Worker(queue, name?),
        0b0110_1111 => Key::KindError(queue, kind, error?),
        0b1010_1111 => Key::TenantError(queue, name?, error?),
        0b0111_0111 => Key::Bin((queue, kind, 0, bin?)),
        0b0111_1011 => Key::Bin((queue, kind, 1, bin?)),
        0b0111_1101 => Key::Bin((queue, kind, 2, bin?)),
        0b0111_1110 => Key::Bin((queue, kind, 3, bin?)),
        _ => return None,
    })
}

/// Reads tries and arrivals of some branches.
pub async fn read(
    session: &Session,
    instance: &Instance,
    branches: &[Branch],
    span: Span,
) -> Result<Answer, Fault> {
    let p = &instance.profile;
    let make = || {
        instance.union(&[], branches, |_, branch| {
            let mut bodies = Vec::new();
            if let (true, Ok(source)) = (span.attempts, instance.source(&p.attempts, branch)) {
                bodies.push(tries(instance, source, branch)?);
            }
            if let (true, Ok(source)) = (span.arrivals, instance.source(&p.arrivals, branch)) {
                bodies.push(arrivals(instance, source, branch)?);
            }
            Ok(bodies)
        })
    };
    let which = u8::from(span.attempts) + 2 * u8::from(span.arrivals);
    let sql = instance.made.get("flow", which, branches, make)?;
    let mut answer = Answer::default();
    let Some(sql) = sql else { return Ok(answer) };
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("since".into(), Value::Time(span.since)),
        ("until".into(), Value::Time(span.until)),
        ("end".into(), Value::Float(span.until)),
        ("slot".into(), Value::Int(span.slot)),
        ("wide".into(), Value::Int(span.wide)),
        ("rows".into(), Value::Int(ROWS)),
    ]));
    each(session, &sql, &values, |row| answer.add(&row))
        .await
        .map_err(|f| instance.blame(f))?;
    Ok(answer)
}

impl Answer {
    fn add(&mut self, row: &Row) -> Result<(), Fault> {
        let slot = row.int("slot")?.unwrap_or(0);
        let queue = row.word("queue")?;
        let n = row.count("n")?;
        if row.word("part")? == "in" {
            self.arrived += n as i64;
            let (first, last) = (row.float("first")?, row.float("claimed")?);
            if let (Some(first), Some(last)) = (first, last) {
                self.arrivals.push((slot, queue, n, first, last));
            }
            return Ok(());
        }
        let found = key(
            row.int("g")?.unwrap_or(0),
            queue.into(),
            row.word("kind")?.into(),
            row.text("name")?.map(Name::from),
            row.text("error")?.map(Name::from),
            row.int("bin")?,
        );
        let Some(key) = found else { return Ok(()) };
        if matches!(key, Key::Kind(..)) {
            self.rows += n as i64;
        }
        let mut cell = Cell {
            n,
            failed: row.count("failed")?,
            ..Cell::default()
        };
        for (i, name) in ["f0", "f1", "f2"].into_iter().enumerate() {
            cell.final_states[i] = row.count(name)?;
        }
        for (i, name) in ["m0", "m1", "m2", "m3"].into_iter().enumerate() {
            cell.max[i] = row.float(name)?.unwrap_or(-1.0);
        }
        cell.claimed = row.float("claimed")?.unwrap_or(f64::NEG_INFINITY);
        self.tries.add(slot, key, cell);
        Ok(())
    }
}

/// When the oldest transaction that may still write began, in seconds since 1970, and how many sessions hide theirs. One
/// that has written nothing yet (a dump, a report, somebody who went for lunch) counts as a minute old at most.
pub async fn oldest_writer(session: &Session) -> Result<(Option<f64>, u64), Fault> {
    let rows = session
        .query(
            "SELECT extract(epoch FROM min(CASE WHEN a.backend_xid IS NOT NULL THEN a.xact_start \
                 ELSE greatest(a.xact_start, now() - interval '1 minute') END))::float8 AS oldest, \
               (count(*) FILTER (WHERE a.backend_type IS NULL))::int8 AS hidden \
             FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() \
               AND (a.xact_start IS NOT NULL AND a.backend_type NOT IN ('autovacuum worker', 'walsender') OR a.backend_type IS NULL)",
            &[],
        )
        .await?;
    match rows.first() {
        Some(row) => Ok((row.float("oldest")?, row.count("hidden")?)),
        None => Ok((None, 0)),
    }
}
