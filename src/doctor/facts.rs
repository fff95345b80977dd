//! What one statement tells about the session, its role and the server's slots.

use crate::connect::{Cells, Fault, Session};
use crate::feed::push::shared;

/// pg_use_reserved_connections and reserved_connections exist since 16.
const FACTS: &str = "
SELECT current_user::text AS me, r.rolsuper AS superuser,
       pg_has_role(current_user, 'pg_signal_backend', 'usage') AS signals,
       (SELECT pg_has_role(current_user, x.oid, 'usage') FROM pg_roles x
         WHERE x.rolname = 'pg_use_reserved_connections') AS reserve,
       r.rolconnlimit::int8 AS role_limit, d.datconnlimit::int8 AS database_limit,
       current_setting('superuser_reserved_connections')::int8 AS for_superusers,
       coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::int8 AS for_reserve,
       inet_server_port()::int8 AS port
  FROM pg_roles r, pg_database d
 WHERE r.rolname = current_user AND d.datname = current_database()";

/// The session, its role, the slots.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Our role.
    pub me: String,
    /// It is a superuser.
    pub superuser: bool,
    /// It may signal sessions of other roles.
    pub signals: bool,
    /// It may take a slot of `reserved_connections`; `None` before Postgres 16.
    pub reserve: Option<bool>,
    /// Sessions that the role may have; `None` without a limit.
    pub role_limit: Option<u32>,
    /// Sessions that the database may have; `None` without a limit.
    pub database_limit: Option<u32>,
    /// superuser_reserved_connections.
    pub for_superusers: u32,
    /// reserved_connections.
    pub for_reserve: u32,
    /// The server's own port; `None` on a socket.
    pub port: Option<u16>,
    /// Statements came from more than one backend.
    pub shared: bool,
}

impl Facts {
    /// A few short statements.
    pub async fn read(db: &Session) -> Result<Self, Fault> {
        let rows = db.query(FACTS, &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| Fault::own("the server returned no row"))?;
        let limit = |column: &str| Ok::<_, Fault>(row.int(column)?.and_then(|n| n.try_into().ok()));
        Ok(Self {
            me: row.word("me")?,
            superuser: row.flag("superuser")?.unwrap_or(false),
            signals: row.flag("signals")?.unwrap_or(false),
            reserve: row.flag("reserve")?,
            role_limit: limit("role_limit")?,
            database_limit: limit("database_limit")?,
            for_superusers: row.count("for_superusers")? as u32,
            for_reserve: row.count("for_reserve")? as u32,
            port: row.int("port")?.and_then(|n| n.try_into().ok()),
            shared: shared(db, None).await?,
        })
    }
}
