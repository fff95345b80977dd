//! The reference queue's functions as its clients call them: one statement, one short transaction each.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::link::Line;
use crate::connect::{Cells, Fault};

/// The statements, for one schema.
pub struct Calls {
    claim: String,
    started: String,
    heartbeat: String,
    complete: String,
    fail: String,
    cancelled: String,
    enqueue_many: String,
    report_usage: String,
    reclaim: String,
}

/// A task that a worker holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// Task.
    pub id: i64,
    /// The proof of ownership.
    pub token: i64,
    /// Which try.
    pub attempt: i64,
    /// Kind.
    pub kind: String,
    /// JSON.
    pub payload: String,
    /// Batch that it is part of.
    pub batch: Option<String>,
}

/// A bill for one model call.
#[derive(Clone, Debug)]
pub struct Bill {
    /// The provider's own id.
    pub call: String,
    /// Task.
    pub task: i64,
    /// Which try.
    pub attempt: i64,
    /// Model; `None` for our own machines' time.
    pub model: Option<&'static str>,
    /// Input and output tokens.
    pub tokens: Option<(i64, i64)>,
    /// Dollars, where there is a price.
    pub llm: Option<f64>,
    /// Dollars for machines.
    pub compute: Option<f64>,
}

/// An identifier, quoted.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Calls {
    /// For this schema.
    pub fn new(schema: &str) -> Self {
        let s = quoted(schema);
        Self {
            claim: format!(
                "SELECT id::int8, lease_token::int8, attempt::int8, kind::text, payload::text, batch_id::text \
                   FROM {s}.claim($1, $2, $3::int4, make_interval(secs => $4), $5)"
            ),
            started: format!("SELECT {s}.started($1, $2, $3, $4)::text AS outcome"),
            heartbeat: format!(
                "SELECT outcome::text, cancel_requested \
                   FROM {s}.heartbeat($1, $2, make_interval(secs => $3))"
            ),
            complete: format!(
                "SELECT {s}.complete($1, $2, $3::text::jsonb, $4::text::numeric)::text AS outcome"
            ),
            fail: format!(
                "SELECT {s}.fail($1, $2, $3, make_interval(secs => $4), $5)::text AS outcome"
            ),
            cancelled: format!("SELECT {s}.cancelled($1, $2)::text AS outcome"),
            enqueue_many: format!(
                "SELECT count(*)::int8 AS n FROM {s}.enqueue_many($1::text::jsonb)"
            ),
            report_usage: format!(
                "SELECT {s}.report_usage($1, $2, $3::int4, $4, $5, $6, $7::text::numeric, $8::text::numeric)::text \
                   AS outcome"
            ),
            reclaim: format!("SELECT count(*)::int8 AS n FROM {s}.reclaim(100)"),
        }
    }

    /// Claims up to `batch` tasks. Not repeated after a lost answer: what it claimed then comes back by its lease.
    pub async fn claim(
        &self,
        line: &Line,
        queue: &str,
        batch: usize,
        lease_s: f64,
        version: &str,
    ) -> Result<Vec<Held>, Fault> {
        let batch = batch as i64;
        let rows = line
            .rows(
                &self.claim,
                &[
                    (&queue, Type::TEXT),
                    (&line.application(), Type::TEXT),
                    (&batch, Type::INT8),
                    (&lease_s, Type::FLOAT8),
                    (&version, Type::TEXT),
                ],
            )
            .await?;
        rows.iter().map(held).collect()
    }

    /// Work begins.
    pub async fn started(
        &self,
        line: &Line,
        task: &Held,
        run: &str,
        trace: &str,
    ) -> Result<String, Fault> {
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
            (&task.id, Type::INT8),
            (&task.token, Type::INT8),
            (&run, Type::TEXT),
            (&trace, Type::TEXT),
        ];
        word(line.insist(&self.started, &params).await?)
    }

    /// Still alive: what the queue says to it, and whether a cancel was requested.
    pub async fn heartbeat(
        &self,
        line: &Line,
        task: &Held,
        lease_s: f64,
    ) -> Result<(String, bool), Fault> {
        let rows = line
            .insist(
                &self.heartbeat,
                &[
                    (&task.id, Type::INT8),
                    (&task.token, Type::INT8),
                    (&lease_s, Type::FLOAT8),
                ],
            )
            .await?;
        let row = rows.first().ok_or_else(nothing)?;
        Ok((
            row.word("outcome")?,
            row.flag("cancel_requested")?.unwrap_or(false),
        ))
    }

    /// Done.
    pub async fn complete(
        &self,
        line: &Line,
        task: &Held,
        result: &str,
        confidence: f64,
    ) -> Result<String, Fault> {
        let confidence = format!("{confidence:.2}");
        let rows = line
            .insist(
                &self.complete,
                &[
                    (&task.id, Type::INT8),
                    (&task.token, Type::INT8),
                    (&result, Type::TEXT),
                    (&confidence, Type::TEXT),
                ],
            )
            .await?;
        word(rows)
    }

    /// The try failed; `retry_s`: when to try again, else by the queue's own back-off.
    pub async fn fail(
        &self,
        line: &Line,
        task: &Held,
        error: &str,
        retry_s: Option<f64>,
        permanent: bool,
    ) -> Result<String, Fault> {
        let rows = line
            .insist(
                &self.fail,
                &[
                    (&task.id, Type::INT8),
                    (&task.token, Type::INT8),
                    (&error, Type::TEXT),
                    (&retry_s, Type::FLOAT8),
                    (&permanent, Type::BOOL),
                ],
            )
            .await?;
        word(rows)
    }

    /// Stopped, because that was asked for.
    pub async fn cancelled(&self, line: &Line, task: &Held) -> Result<String, Fault> {
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&task.id, Type::INT8), (&task.token, Type::INT8)];
        word(line.insist(&self.cancelled, &params).await?)
    }

    /// Adds tasks, given as a JSON array; how many.
    pub async fn enqueue_many(&self, line: &Line, tasks: &str) -> Result<u64, Fault> {
        n(line
            .rows(&self.enqueue_many, &[(&tasks, Type::TEXT)])
            .await?)
    }

    /// Reports what a call cost, as often as its bill comes.
    pub async fn report_usage(&self, line: &Line, bill: &Bill) -> Result<String, Fault> {
        let (input, output) = bill.tokens.unzip();
        let money = |usd: Option<f64>| usd.map(|usd| format!("{usd:.6}"));
        let (llm, compute) = (money(bill.llm), money(bill.compute));
        let rows = line
            .insist(
                &self.report_usage,
                &[
                    (&bill.call, Type::TEXT),
                    (&bill.task, Type::INT8),
                    (&bill.attempt, Type::INT8),
                    (&bill.model, Type::TEXT),
                    (&input, Type::INT8),
                    (&output, Type::INT8),
                    (&llm, Type::TEXT),
                    (&compute, Type::TEXT),
                ],
            )
            .await?;
        word(rows)
    }

    /// Takes expired leases back; how many.
    pub async fn reclaim(&self, line: &Line) -> Result<u64, Fault> {
        n(line.rows(&self.reclaim, &[]).await?)
    }
}

fn held(row: &Row) -> Result<Held, Fault> {
    let number = |name| Ok::<_, Fault>(row.int(name)?.unwrap_or(0));
    Ok(Held {
        id: number("id")?,
        token: number("lease_token")?,
        attempt: number("attempt")?,
        kind: row.word("kind")?,
        payload: row.word("payload")?,
        batch: row.text("batch_id")?,
    })
}

fn word(rows: Vec<Row>) -> Result<String, Fault> {
    rows.first().ok_or_else(nothing)?.word("outcome")
}

fn n(rows: Vec<Row>) -> Result<u64, Fault> {
    rows.first().ok_or_else(nothing)?.count("n")
}

fn nothing() -> Fault {
    Fault::own("the function returned no row")
}
