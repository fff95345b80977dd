//! One statement an instance: the newest failed tasks, grouped where they are.

use super::groups::{Found, merge};
use super::{DAY, Failures, GROUPS, ROWS, normalised};
use crate::connect::{Cells, Fault, Session};
use crate::probe::ServerTime;
use crate::probe::queues::depth::BRANCHES;
use crate::probe::tasks::list::gave_up;
use crate::queue::columns::Cast;
use crate::queue::profile::Source;
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};
use tokio_postgres::Row;

/// Times of a failed task, the one that tells best when it failed first.
const TIMES: [&str; 4] = ["finished_at", "started_at", "claimed_at", "created_at"];

/// The failed tasks of one instance within a day before `now`, by kind and error.
pub async fn poll(
    session: &Session,
    instance: &Instance,
    keys: &[String],
    now: ServerTime,
) -> Result<Failures, Fault> {
    let branches = &instance.branches[..instance.branches.len().min(BRANCHES)];
    let mut out = Failures {
        system: instance.system.clone(),
        schema: instance.schema.clone(),
        read_at: Some(now),
        ..Failures::default()
    };
    let mut unknown = None;
    for branch in branches {
        match gave_up(instance, branch) {
            Ok((source, _)) => out.notes.extend(source.note.clone()),
            Err(why) => unknown = unknown.or(Some(why)),
        }
    }
    out.notes.sort();
    out.notes.dedup();
    if instance.branches.len() > BRANCHES {
        let of = instance.branches.len();
        out.notes
            .push(format!("the first {BRANCHES} of {of} queues only"));
    }
    let sql = instance.union(&[], branches, |_, branch| {
        let Ok((source, only)) = gave_up(instance, branch) else {
            return Ok(Vec::new());
        };
        Ok(vec![grouped(instance, source, &only, branch)?])
    })?;
    let Some(sql) = sql else {
        out.unknown = unknown;
        return Ok(out);
    };
    out.notes.extend(unknown);
    let rows = (ROWS / branches.len().max(1) as u64).max(100);
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("since".into(), Value::Time(now.epoch() - DAY)),
        ("rows".into(), Value::Int(rows as i64)),
        ("limit".into(), Value::Int(GROUPS as i64)),
    ]));
    let found = run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?;
    let found: Vec<Found> = found.iter().map(decode).collect::<Result<_, _>>()?;
    merge(&mut out, found, rows, keys);
    Ok(out)
}

/// The failed tasks of one branch, grouped. What each has spent is looked up in the same pass over them.
fn grouped(
    instance: &Instance,
    source: &Source,
    only: &str,
    branch: &Branch,
) -> Result<String, Fault> {
    let expr = |name: &str| {
        let own = source.row.get(name);
        let sql = own.or_else(|| instance.profile.row.get(name));
        sql.map(|sql| instance.fill(sql.get_ref(), branch))
            .transpose()
    };
    let text = |name: &str| instance.column(&source.row, name, Cast::Text(200), true, branch);
    let mut times = Vec::new();
    for name in TIMES {
        times.extend(expr(name)?.map(|e| format!("({e})::timestamptz")));
    }
    let cost = expr("cost")?.unwrap_or_else(|| "NULL".into());
    times.push(":since".into());
    let newest = |what: &str| format!("to_json((array_agg({what} ORDER BY r.at DESC))[1:5])::text");
    Ok(format!(
        "SELECT r.kind AS kind, {error} AS error, count(*)::int8 AS n24, \
           (count(*) FILTER (WHERE r.at >= :since + interval '21 hours'))::int8 AS n3, \
           (count(*) FILTER (WHERE r.at >= :since + interval '23 hours'))::int8 AS n1, \
           date_part('epoch', min(r.at)) AS first_seen, date_part('epoch', max(r.at)) AS last_seen, \
           sum(r.cost)::numeric::text AS cost, to_json((array_agg(DISTINCT r.queue))[1:8])::text AS among, \
           {queues} AS queues, {ids} AS ids, {errors} AS errors, {ats} AS ats, \
           row_number() OVER (ORDER BY count(*) DESC, max(r.at) DESC)::int8 AS place, count(*) OVER ()::int8 AS found, \
           (sum(count(*)) OVER ())::int8 AS read, date_part('epoch', min(min(r.at)) OVER ()) AS oldest \
         FROM (SELECT {kind} AS kind, {queue} AS queue, {id} AS id, {raw} AS error, coalesce({times}) AS at, \
             ({cost})::numeric AS cost {from}{only}{order} LIMIT :rows) r \
         GROUP BY 1, 2 ORDER BY place LIMIT :limit",
        error = normalised("r.error"),
        queues = newest("r.queue"),
        ids = newest("r.id"),
        errors = newest("r.error"),
        ats = newest("date_part('epoch', r.at)"),
        kind = text("kind")?,
        queue = text("queue")?,
        id = text("id")?,
        raw = text("last_error")?,
        times = times.join(", "),
        from = instance.from(source, branch)?,
        order = instance.order(&source.order, branch)?,
    ))
}

fn decode(row: &Row) -> Result<Found, Fault> {
    let list = |column: &str| -> Result<Vec<serde_json::Value>, Fault> {
        serde_json::from_str(&row.word(column)?)
            .map_err(|e| Fault::own(format!("column {column} cannot be read: {e}")))
    };
    let words = |column: &str| -> Result<Vec<Option<String>>, Fault> {
        let word = |v: serde_json::Value| v.as_str().map(String::from);
        Ok(list(column)?.into_iter().map(word).collect())
    };
    let ats = list("ats")?.into_iter();
    let ats = ats.map(|v| v.as_f64().and_then(ServerTime::from_epoch));
    let tasks = words("queues")?.into_iter().zip(words("ids")?);
    let told = words("errors")?.into_iter().zip(ats);
    Ok(Found {
        kind: row.text("kind")?,
        error: row.word("error")?,
        counts: [row.count("n1")?, row.count("n3")?, row.count("n24")?],
        first: row.time("first_seen")?,
        last: row.time("last_seen")?,
        usd: row.usd("cost")?,
        queues: words("among")?.into_iter().flatten().collect(),
        samples: tasks.zip(told).collect(),
        first_of_branch: row.int("place")? == Some(1),
        groups: row.count("found")?,
        read: row.count("read")?,
        oldest: row.time("oldest")?,
    })
}
