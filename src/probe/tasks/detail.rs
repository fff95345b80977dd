//! One task whole, on demand: its tries, its payload, result and error (cut on the server, redacted here), the progress
//! of its batch.

use super::redact::redact;
use super::row::{Want, read, selected};
use super::{Attempt, TaskDetail, TaskKey, Text};
use crate::connect::{Cells, Fault, Session};
use crate::probe::{ServerTime, State};
use crate::queue::columns::{Cast, TRY};
use crate::queue::statement::{Value, run};
use crate::queue::{Branch, Instance};
use tokio_postgres::Row;

const LONG: [&str; 3] = ["payload", "result", "error"];

/// Everything about one task; `None` where it is gone.
pub async fn detail(
    session: &Session,
    instance: &Instance,
    key: &TaskKey,
    keys: &[String],
    now: ServerTime,
) -> Result<Option<TaskDetail>, Fault> {
    let gone = || {
        Fault::own(format!(
            "{} has no queue {} any more",
            instance.system, key.queue
        ))
    };
    let branch = instance.branch_of(&key.queue).ok_or_else(gone)?;
    let p = &instance.profile;
    let source = instance.source(&p.by_id, branch).map_err(Fault::own)?;
    let mut list = selected(instance, &source.row, None, Want::Whole, branch)?;
    for name in LONG {
        let own = source.row.get(name).or_else(|| p.row.get(name));
        let cut = match own {
            Some(sql) => {
                let expr = instance.fill(sql.get_ref(), branch)?;
                let cut = Cast::Long.of("x.whole");
                // made into text once: of 100 MB that takes a good part of a second
                format!(
                    "(SELECT octet_length(x.whole) || ' ' || {cut} FROM (SELECT ({expr})::text AS whole OFFSET 0) x)"
                )
            }
            None => Cast::Long.null().to_string(),
        };
        list += &format!(", {cut} AS {name}");
    }
    let confidence = instance.column(&source.row, "confidence", Cast::Float, true, branch)?;
    let more = instance.column(&source.row, "more", Cast::Long, true, branch)?;
    let sql = format!(
        "{}SELECT {list}, {confidence} AS confidence, {more} AS more {} LIMIT 1",
        instance.with("")?,
        instance.from(source, branch)?
    );
    let mut values = instance.values.clone();
    values.insert("id".into(), Value::Text(Some(key.id.clone())));
    let rows = run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let task = read(row, instance, keys, now)?;
    let batch = match &task.batch {
        Some(batch) => progress(session, instance, branch, batch).await?,
        None => Vec::new(),
    };
    Ok(Some(TaskDetail {
        attempts: tries(session, instance, branch, key, keys).await?,
        payload: long(row, "payload", keys)?,
        result: long(row, "result", keys)?,
        error: long(row, "error", keys)?,
        confidence: row.float("confidence")?,
        batch,
        more: pairs(&row.word("more")?, keys),
        task,
    }))
}

fn long(row: &Row, name: &str, keys: &[String]) -> Result<Option<Text>, Fault> {
    let whole = row.text(name)?;
    let parts = whole.as_deref().and_then(|whole| whole.split_once(' '));
    Ok(parts.map(|(bytes, text)| Text {
        text: redact(text, keys),
        bytes: bytes.parse().unwrap_or(0),
    }))
}

/// The members of a JSON object as text, redacted by key.
fn pairs(json: &str, keys: &[String]) -> Vec<(String, String)> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(json).unwrap_or_default();
    let secret = |name: &str| {
        let name = name.to_lowercase();
        keys.iter()
            .any(|k| !k.is_empty() && name.contains(&k.to_lowercase()))
    };
    let show = |(name, value): (String, serde_json::Value)| {
        let text = match value {
            _ if secret(&name) => super::redact::HIDDEN.to_string(),
            serde_json::Value::String(text) => redact(&text, keys),
            other => redact(&other.to_string(), keys),
        };
        (name, text)
    };
    object.into_iter().map(show).collect()
}

async fn tries(
    session: &Session,
    instance: &Instance,
    branch: &Branch,
    key: &TaskKey,
    keys: &[String],
) -> Result<Vec<Attempt>, Fault> {
    let Ok(source) = instance.source(&instance.profile.attempts_of, branch) else {
        return Ok(Vec::new());
    };
    let sql = format!(
        "{}SELECT {} {}{} LIMIT 200",
        instance.with("")?,
        instance.columns(&source.row, TRY, false, branch)?,
        instance.from(source, branch)?,
        instance.order(&source.order, branch)?
    );
    let mut values = instance.values.clone();
    values.insert("id".into(), Value::Text(Some(key.id.clone())));
    let tokens = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
    let read = |row: &Row| {
        Ok(Attempt {
            attempt: row.int("attempt")?,
            worker: row.text("worker")?,
            claimed_at: row.time("claimed_at")?,
            started_at: row.time("started_at")?,
            finished_at: row.time("finished_at")?,
            outcome: row.text("outcome")?,
            error: row
                .text("error")?
                .and_then(|e| e.lines().next().map(|l| redact(l, keys))),
            run_id: row.text("run_id")?,
            trace_id: row.text("trace_id")?,
            input_tokens: tokens(row.int("input_tokens")?),
            output_tokens: tokens(row.int("output_tokens")?),
            cost_usd: row.usd("cost")?,
        })
    };
    let rows = run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?;
    rows.iter().map(read).collect()
}

async fn progress(
    session: &Session,
    instance: &Instance,
    branch: &Branch,
    batch: &str,
) -> Result<Vec<(State, u64)>, Fault> {
    let Ok(source) = instance.source(&instance.profile.batch, branch) else {
        return Ok(Vec::new());
    };
    let sql = format!(
        "{}SELECT b.state, count(*)::int8 AS n FROM (SELECT {} AS state {} LIMIT 10000) b GROUP BY 1",
        instance.with("")?,
        instance.column(&source.row, "state", Cast::Text(20), true, branch)?,
        instance.from(source, branch)?
    );
    let mut values = instance.values.clone();
    values.insert("batch".into(), Value::Text(Some(batch.to_string())));
    let rows = run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?;
    let mut counts = Vec::new();
    for row in &rows {
        counts.push((State::parse(&row.word("state")?), row.count("n")?));
    }
    counts.sort();
    Ok(counts)
}
