//! The statement of one session, fetched only when somebody asks for it.

use super::ServerTime;
use crate::connect::{Cells, Fault, Session as Db};

/// The statement a session runs, or ran last: fetched only when somebody asks for it.
pub async fn query_text(db: &Db, pid: i32, backend_start: ServerTime) -> Result<String, Fault> {
    let rows = db
        .query(
            "SELECT query::text AS query FROM pg_stat_activity \
              WHERE pid = $1::int8 AND abs(extract(epoch FROM backend_start)::float8 - $2) < 0.001",
            &[
                (&i64::from(pid), tokio_postgres::types::Type::INT8),
                (&backend_start.epoch(), tokio_postgres::types::Type::FLOAT8),
            ],
        )
        .await?;
    match rows.first() {
        Some(row) => row.word("query"),
        None => Err(Fault::own("this session has ended")),
    }
}
