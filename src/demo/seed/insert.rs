//! Writes a plan: a few statements, each with one array a column.

use tokio_postgres::types::{ToSql, Type};

use super::plan::Plan;
use crate::connect::Fault;
use crate::demo::catalog::LIMITS;
use crate::demo::link::Link;

/// A parameter of [`Columns::times`] as a time.
fn at(column: &str) -> String {
    format!("timestamptz 'epoch' + {column} * interval '1 microsecond'")
}

/// Arrays, one a column, in the order of the parameters.
#[derive(Default)]
struct Columns(Vec<(Box<dyn ToSql + Sync + Send>, Type)>);

impl Columns {
    fn text<T: AsRef<str>>(&mut self, values: impl Iterator<Item = Option<T>>) {
        let values: Vec<Option<String>> =
            values.map(|v| v.map(|v| v.as_ref().to_owned())).collect();
        self.0.push((Box::new(values), Type::TEXT_ARRAY));
    }

    fn words<T: AsRef<str>>(&mut self, values: impl Iterator<Item = T>) {
        self.text(values.map(Some));
    }

    fn ints(&mut self, values: impl Iterator<Item = i64>) {
        self.0
            .push((Box::new(values.collect::<Vec<_>>()), Type::INT8_ARRAY));
    }

    /// Times, as microseconds after 1970: exact, so that the same plan gives the same distances.
    fn times(&mut self, now_us: i64, values: impl Iterator<Item = Option<f64>>) {
        let values: Vec<Option<i64>> = values
            .map(|v| v.map(|v| now_us + (v * 1e6).round() as i64))
            .collect();
        self.0.push((Box::new(values), Type::INT8_ARRAY));
    }

    async fn run(self, db: &Link, sql: &str) -> Result<(), Fault> {
        let params: Vec<(&(dyn ToSql + Sync), Type)> = self
            .0
            .iter()
            .map(|(value, ty)| (&**value as &(dyn ToSql + Sync), ty.clone()))
            .collect();
        db.rows(sql, &params).await.map(|_| ())
    }
}

/// Writes everything. `s`: the schema, quoted; `now`: the server's clock, in microseconds
/// after 1970.
pub async fn write(db: &Link, s: &str, now: i64, plan: &Plan) -> Result<(), Fault> {
    limits(db, s).await?;
    tasks(db, s, now, plan).await?;
    attempts(db, s, now, plan).await?;
    usage(db, s, now, plan).await?;
    actions(db, s, now, plan).await
}

async fn limits(db: &Link, s: &str) -> Result<(), Fault> {
    let mut c = Columns::default();
    c.words(LIMITS.iter().map(|l| l.0));
    for column in [1, 2] {
        let values: Vec<Option<i64>> = LIMITS
            .iter()
            .map(|l| if column == 1 { l.1 } else { l.2 })
            .collect();
        c.0.push((Box::new(values), Type::INT8_ARRAY));
    }
    c.ints(LIMITS.iter().map(|l| l.3));
    c.run(
        db,
        &format!(
            "INSERT INTO {s}.limits (queue, max_running, tokens_per_minute, tokens_per_task, note) \
             SELECT q, r::int4, t, e, 'fixture data' FROM unnest($1, $2, $3, $4) AS n (q, r, t, e) \
             ON CONFLICT (queue) DO NOTHING"
        ),
    )
    .await
}

async fn tasks(db: &Link, s: &str, now: i64, plan: &Plan) -> Result<(), Fault> {
    let t = || plan.tasks.iter();
    let mut c = Columns::default();
    c.ints(t().map(|t| t.id));
    c.words(t().map(|t| t.kind.queue));
    c.words(t().map(|t| t.kind.name));
    c.words(t().map(|t| t.kind.agent));
    c.words(t().map(|t| t.tenant));
    c.words(t().map(|t| t.kind.application));
    c.text(t().map(|t| t.batch.as_deref()));
    c.words(t().map(|t| t.payload.as_str()));
    c.words(t().map(|t| t.status));
    c.ints(t().map(|t| i64::from(t.kind.priority)));
    c.times(now, t().map(|t| Some(t.created)));
    c.times(now, t().map(|t| Some(t.run_after)));
    c.times(now, t().map(|t| t.claimed));
    c.times(now, t().map(|t| t.started));
    c.times(now, t().map(|t| t.finished));
    c.times(now, t().map(|t| t.heartbeat));
    c.text(t().map(|t| t.worker.as_deref()));
    c.text(t().map(|t| t.version));
    c.times(now, t().map(|t| t.lease_ends));
    c.ints(t().map(|t| t.token));
    c.ints(t().map(|t| t.attempt));
    c.text(t().map(|t| t.error.as_deref()));
    c.text(t().map(|t| t.result.as_ref().map(|r| r.0.as_str())));
    c.text(t().map(|t| t.result.as_ref().map(|r| format!("{:.2}", r.1))));
    c.text(t().map(|t| t.key.as_deref()));
    c.times(now, t().map(|t| t.cancel.map(|c| c.0)));
    c.text(t().map(|t| t.cancel.map(|c| c.1)));
    c.text(t().map(|t| t.cancel.map(|c| c.2)));
    let [c_at, r_at, cl_at, sa_at, fi_at, h_at, le_at, ca_at] =
        ["c", "r", "cl", "sa", "fi", "h", "le", "ca"].map(at);
    c.run(
        db,
        &format!(
            "INSERT INTO {s}.tasks (id, queue, kind, agent, tenant, application, batch_id, payload, status, priority, \
                created_at, run_after, deferred, claimed_at, started_at, finished_at, heartbeat_at, locked_by, \
                worker_version, lease_expires_at, lease_token, attempt, last_error, result, confidence, \
                idempotency_key, cancel_requested_at, cancel_requested_by, cancel_reason) \
             OVERRIDING SYSTEM VALUE \
             SELECT id, q, k, a, t, p, b, payload::jsonb, st, prio::int4, {c_at}, {r_at}, \
                    st = 'enqueued' AND {r_at} > clock_timestamp(), {cl_at}, {sa_at}, \
                    {fi_at}, {h_at}, w, v, {le_at}, tok, att::int4, err, \
                    res::jsonb, conf::numeric, key, {ca_at}, cb, cr \
               FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, \
                           $20, $21, $22, $23, $24, $25, $26, $27, $28) \
                 AS n (id, q, k, a, t, p, b, payload, st, prio, c, r, cl, sa, fi, h, w, v, le, tok, att, err, res, \
                       conf, key, ca, cb, cr)"
        ),
    )
    .await?;
    // The sequence knows nothing of ids given by hand.
    let last = plan.tasks.iter().map(|t| t.id).max().unwrap_or(0);
    db.rows(
        "SELECT setval(pg_get_serial_sequence($1, 'id'), $2)::int8 AS id",
        &[(&format!("{s}.tasks"), Type::TEXT), (&last, Type::INT8)],
    )
    .await?;
    // Who runs holds a slot, as if it had been claimed.
    db.rows(
        &format!(
            "UPDATE {s}.slots f SET task_id = n.id \
               FROM (SELECT t.id, t.queue, row_number() OVER (PARTITION BY t.queue ORDER BY t.id) AS n \
                       FROM {s}.tasks t \
                      WHERE t.status = 'processing' AND NOT EXISTS (SELECT FROM {s}.slots o WHERE o.task_id = t.id)) n \
               JOIN (SELECT s.queue, s.slot, row_number() OVER (PARTITION BY s.queue ORDER BY s.slot) AS n \
                       FROM {s}.slots s WHERE s.task_id IS NULL) g ON g.queue = n.queue AND g.n = n.n \
              WHERE f.queue = g.queue AND f.slot = g.slot"
        ),
        &[],
    )
    .await
    .map(|_| ())
}

async fn attempts(db: &Link, s: &str, now: i64, plan: &Plan) -> Result<(), Fault> {
    let a = || plan.attempts.iter();
    let mut c = Columns::default();
    c.ints(a().map(|a| a.task));
    c.ints(a().map(|a| a.attempt));
    c.words(a().map(|a| a.worker.as_str()));
    c.words(a().map(|a| a.version));
    c.times(now, a().map(|a| Some(a.eligible)));
    c.times(now, a().map(|a| Some(a.claimed)));
    c.times(now, a().map(|a| a.started));
    c.times(now, a().map(|a| a.finished));
    c.text(a().map(|a| a.outcome));
    c.text(a().map(|a| a.error.as_deref()));
    c.words(a().map(|a| a.run.as_str()));
    c.words(a().map(|a| a.trace.as_str()));
    let [e_at, c_at, sa_at, f_at] = ["e", "c", "sa", "f"].map(at);
    c.run(
        db,
        &format!(
            "INSERT INTO {s}.task_attempts (task_id, attempt, lease_token, worker, worker_version, eligible_at, \
                claimed_at, started_at, finished_at, outcome, error, job_run_id, trace_id) \
             SELECT t, a::int4, a, w, v, {e_at}, {c_at}, {sa_at}, {f_at}, o, er, r, tr \
               FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
                 AS n (t, a, w, v, e, c, sa, f, o, er, r, tr) ORDER BY c"
        ),
    )
    .await
}

async fn usage(db: &Link, s: &str, now: i64, plan: &Plan) -> Result<(), Fault> {
    let u = || plan.usage.iter();
    let money = |usd: Option<f64>| usd.map(|usd| format!("{usd:.6}"));
    let mut c = Columns::default();
    c.words(u().map(|u| u.call.as_str()));
    c.ints(u().map(|u| u.task));
    c.ints(u().map(|u| u.attempt));
    c.words(u().map(|u| u.queue));
    c.words(u().map(|u| u.model));
    c.ints(u().map(|u| u.tokens.0));
    c.ints(u().map(|u| u.tokens.1));
    c.text(u().map(|u| money(u.llm)));
    c.text(u().map(|u| money(u.compute)));
    c.times(now, u().map(|u| Some(u.reported)));
    let r_at = at("r");
    c.run(
        db,
        &format!(
            "INSERT INTO {s}.usage (call_id, task_id, attempt, queue, model, input_tokens, output_tokens, llm_cost, \
                compute_cost, reported_at) \
             SELECT id, t, a::int4, q, m, i, o, l::numeric, c::numeric, {r_at} \
               FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS n (id, t, a, q, m, i, o, l, c, r) ORDER BY r"
        ),
    )
    .await
}

async fn actions(db: &Link, s: &str, now: i64, plan: &Plan) -> Result<(), Fault> {
    let at = at("$2");
    for action in &plan.actions {
        let ids: Vec<String> = action.ids.iter().map(i64::to_string).collect();
        let (asked, when) = (ids.len() as i64, now + (action.at * 1e6).round() as i64);
        db.rows(
            &format!(
                "INSERT INTO {s}.operator_actions (action_id, at, who, from_host, action, ids, asked, changed, skipped, reason) \
                 VALUES ($1 || '-' || (extract(epoch FROM clock_timestamp()) * 1000)::bigint, {at}, $3, \
                         'oncall-laptop', $4, $5, $6::int4, $7::int4, ($6 - $7)::int4, $8)"
            ),
            &[
                (&action.id, Type::TEXT),
                (&when, Type::INT8),
                (&action.who, Type::TEXT),
                (&action.action, Type::TEXT),
                (&ids, Type::TEXT_ARRAY),
                (&asked, Type::INT8),
                (&action.changed, Type::INT8),
                (&action.reason, Type::TEXT),
            ],
        )
        .await?;
    }
    Ok(())
}
