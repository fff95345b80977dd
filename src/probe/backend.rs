//! One session as the server has it now, with its statement: fetched only when somebody asks for it.

use super::ServerTime;
use crate::connect::{Cells, Fault, Session as Db};
use crate::sql::copyable;
use tokio_postgres::types::Type;

/// `permitted` is the server's own rule for pg_cancel_backend and pg_terminate_backend; a right that this version
/// does not know (pg_signal_autovacuum_worker is of 18) is held by nobody.
const BACKEND: &str = "
SELECT (extract(epoch FROM a.backend_start) * 1000000)::int8 AS started_us,
       (extract(epoch FROM a.query_start) * 1000000)::int8 AS statement_us,
       coalesce(a.backend_type, '')::text AS kind,
       coalesce(a.usename, '')::text AS role,
       coalesce(a.application_name, '')::text AS app,
       coalesce(a.datname, '')::text AS db,
       host(a.client_addr)::text AS client,
       a.state::text AS state,
       coalesce(a.query, '')::text AS query,
       extract(epoch FROM a.xact_start)::float8 AS xact_start,
       extract(epoch FROM a.query_start)::float8 AS query_start,
       extract(epoch FROM a.state_change)::float8 AS state_change,
       extract(epoch FROM clock_timestamp())::float8 AS now,
       coalesce(them.rolsuper, false) AS superuser,
       CASE WHEN me.rolsuper THEN true
            WHEN a.backend_type = 'autovacuum worker' THEN
              coalesce((SELECT pg_has_role(me.oid, w.oid, 'usage') FROM pg_roles w
                         WHERE w.rolname = 'pg_signal_autovacuum_worker'), false)
            WHEN them.oid IS NULL OR them.rolsuper THEN false
            ELSE pg_has_role(me.oid, them.oid, 'usage') OR pg_has_role(me.oid, 'pg_signal_backend', 'usage')
       END AS permitted,
       quote_ident(me.rolname)::text AS me,
       current_setting('server_version_num')::int8 AS version_num
  FROM pg_stat_activity a
  JOIN pg_roles me ON me.rolname = current_user
  LEFT JOIN pg_roles them ON them.oid = a.usesysid
 WHERE a.pid = $1::int8
   AND ($2::int8 IS NULL OR (extract(epoch FROM a.backend_start) * 1000000)::int8 = $2)";

/// One session as the server has it now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backend {
    /// backend_start in microseconds since 1970; `None` where privileges hide it.
    pub started_us: Option<i64>,
    /// query_start in microseconds since 1970: names the statement.
    pub statement_us: Option<i64>,
    /// backend_type: `client backend`, `walsender`, `autovacuum worker`, …; empty where privileges hide it.
    pub kind: String,
    /// Its role; empty for a process of the server.
    pub role: String,
    /// application_name.
    pub application: String,
    /// Database; empty for a process of the server.
    pub database: String,
    /// Client address; `None` on a socket.
    pub client: Option<String>,
    /// `active`, `idle in transaction`, …; `None` where privileges hide it.
    pub state: Option<String>,
    /// The statement it runs, or ran last.
    pub statement: String,
    /// Age of its transaction, in seconds; `None` outside of one.
    pub xact_s: Option<f64>,
    /// Age of its statement, in seconds.
    pub statement_s: Option<f64>,
    /// Time in the present state, in seconds.
    pub state_s: Option<f64>,
    /// Its role is a superuser.
    pub superuser: bool,
    /// Our role may signal it.
    pub permitted: bool,
    /// Our role, quoted.
    pub me: String,
    /// `150018`.
    pub version_num: i32,
}

impl Backend {
    /// The session of that pid, if it is the one that started then (in microseconds since 1970; `None` takes any).
    /// `None` when it has ended.
    pub async fn read(db: &Db, pid: i32, started_us: Option<i64>) -> Result<Option<Self>, Fault> {
        let pid = i64::from(pid);
        let params = [(&pid as _, Type::INT8), (&started_us as _, Type::INT8)];
        let rows = db.query(BACKEND, &params).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let now = row.time("now")?;
        let age = |then: Option<ServerTime>| Some(now?.since(then?)?.max(0.0));
        Ok(Some(Self {
            started_us: row.int("started_us")?,
            statement_us: row.int("statement_us")?,
            kind: row.word("kind")?,
            role: row.word("role")?,
            application: row.word("app")?,
            database: row.word("db")?,
            client: row.text("client")?,
            state: row.text("state")?,
            statement: row.word("query")?,
            xact_s: age(row.time("xact_start")?),
            statement_s: age(row.time("query_start")?),
            state_s: age(row.time("state_change")?),
            superuser: row.flag("superuser")?.unwrap_or(false),
            permitted: row.flag("permitted")?.unwrap_or(false),
            me: copyable(&row.word("me")?),
            version_num: row.int("version_num")?.unwrap_or(0) as i32,
        }))
    }

    /// The right that our role lacks to signal it, with the statement that gives it; `None` where it has it.
    pub fn lacks(&self) -> Option<String> {
        if self.permitted {
            return None;
        }
        let me = &self.me;
        Some(match self.kind.as_str() {
            "autovacuum worker" if self.version_num >= 180_000 => {
                format!("to signal autovacuum needs GRANT pg_signal_autovacuum_worker TO {me}")
            }
            "autovacuum worker" => {
                "before Postgres 18 only a superuser may signal autovacuum".into()
            }
            _ if self.role.is_empty() => {
                "a process of the server itself: only a superuser may signal it".into()
            }
            _ if self.superuser => {
                format!(
                    "{} is a superuser: only a superuser may end its sessions",
                    self.role
                )
            }
            _ => format!(
                "sessions of {} are not {me}'s to end: GRANT pg_signal_backend TO {me}",
                self.role
            ),
        })
    }

    /// A replication sender.
    pub fn replicates(&self) -> bool {
        self.kind == "walsender"
    }

    /// Runs a statement now.
    pub fn active(&self) -> bool {
        matches!(
            self.state.as_deref(),
            Some("active" | "fastpath function call")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Backend;

    #[test]
    fn a_missing_right_is_named_by_version_and_kind() {
        let lacks = |kind: &str, role: &str, superuser: bool, version_num: i32| {
            let backend = Backend {
                kind: kind.into(),
                role: role.into(),
                superuser,
                version_num,
                me: "\"On Call\"".into(),
                ..Backend::default()
            };
            backend.lacks().expect("a right is missing")
        };
        let text = lacks("client backend", "app", false, 150_000);
        assert!(
            text.ends_with("GRANT pg_signal_backend TO \"On Call\""),
            "{text}"
        );
        let text = lacks("client backend", "postgres", true, 150_000);
        assert!(text.contains("only a superuser"), "{text}");
        let text = lacks("autovacuum worker", "", false, 170_000);
        assert!(text.contains("before Postgres 18"), "{text}");
        let text = lacks("autovacuum worker", "", false, 180_000);
        assert!(
            text.contains("GRANT pg_signal_autovacuum_worker TO"),
            "{text}"
        );
        assert!(lacks("checkpointer", "", false, 180_000).contains("server itself"));
        let mine = Backend {
            permitted: true,
            ..Backend::default()
        };
        assert_eq!(mine.lacks(), None);
    }
}
