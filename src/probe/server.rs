//! The server: version, role, limits.

use super::{ServerTime, Snapshot};
use crate::connect::{Cells, Fault, Session};
use serde::{Deserialize, Serialize};

/// Settings that an ordinary role may read, once a connection and then slowly.
const SERVER: &str = "
SELECT current_setting('server_version')::text AS version,
       current_setting('server_version_num')::int8 AS version_num,
       current_database()::text AS database,
       (SELECT a.datid FROM pg_stat_get_activity(pg_backend_pid()) a)::int8 AS database_oid,
       current_user::text AS role,
       pg_is_in_recovery() AS in_recovery,
       current_setting('port')::int8 AS port,
       extract(epoch FROM pg_postmaster_start_time())::float8 AS started_at,
       pg_has_role(current_user, 'pg_read_all_stats', 'usage') AS sees_all,
       current_setting('TimeZone')::text AS time_zone,
       current_setting('max_connections')::int8 AS max,
       (current_setting('superuser_reserved_connections')::int8
         + coalesce(nullif(current_setting('reserved_connections', true), '')::int8, 0)) AS reserved,
       extract(epoch FROM clock_timestamp())::float8 AS now";

/// Why nothing can be written on a standby, and what to do instead.
pub const STANDBY: &str = "a standby cannot be written to: connect to the primary";

/// The server and how we reached it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// `15.18`.
    pub version: String,
    /// `150018`.
    pub version_num: i32,
    /// Database name.
    pub database: String,
    /// Its pg_database.oid, which a database made anew under that name does not have; 0 where it is not known. Told by
    /// our own backend, since pg_database itself is closed to some.
    #[serde(default)]
    pub database_oid: u32,
    /// Host name, address or socket directory, as connected to.
    pub host: String,
    /// What protects the connection: `TLS 1.3, verified`, `TLS 1.3, not verified`, `none (socket)`, `NOT ENCRYPTED`.
    #[serde(default)]
    pub tls: String,
    /// Why it is not encrypted, where that was tried first (`sslmode=prefer`).
    #[serde(default)]
    pub tls_failed: Option<String>,
    /// Role we are logged in as.
    pub user: String,
    /// A standby.
    pub in_recovery: bool,
    /// Of a standby: when the last change that it shows was committed, by its primary's clock.
    #[serde(default)]
    pub replayed_at: Option<ServerTime>,
    /// Of a standby: it has a WAL receiver (pg_stat_wal_receiver), so its primary is connected. `None` where that is not
    /// known, and on a primary.
    #[serde(default)]
    pub wal_receiver: Option<bool>,
    /// Of a standby: it has a `restore_command`, so an archive may feed it.
    #[serde(default)]
    pub restores: bool,
    /// Nothing can be written: writes are not allowed, or it is a standby. (The polling session never can.)
    pub read_only: bool,
    /// `listen`, `polling`, or `off: reason`.
    pub push: String,
    /// A pooler is on the way that refuses or drops the settings of a session: `session` where it keeps a session for us
    /// all the same, `transaction` where it shares them between clients, `unknown` where that was not tried.
    #[serde(default)]
    pub pooler: Option<String>,
    /// The server's own port; a pooler has another.
    #[serde(default)]
    pub port: u16,
    /// When the postmaster started.
    pub started_at: Option<ServerTime>,
    /// May see the sessions of all roles (pg_read_all_stats).
    pub sees_all: bool,
    /// Server's clock minus the local clock, in seconds; shown, never used.
    pub clock_skew_s: Option<f64>,
    /// A step of the server's clock while we looked, of the last five minutes.
    #[serde(default)]
    pub clock_step: Option<ClockStep>,
    /// Processor cores of the server's machine; known only where that is this one (a socket or loopback).
    #[serde(default)]
    pub cores: Option<u32>,
    /// The server's `TimeZone` setting.
    pub time_zone: String,
}

/// The server's clock was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockStep {
    /// By so many seconds, forward or (negative) back.
    pub by_s: f64,
    /// So many seconds before the snapshot, by a clock that was not set.
    pub ago_s: f64,
}

impl Server {
    /// Reads the server's settings; `max` and `reserved` go to the connections of the snapshot.
    pub async fn read(db: &Session, snapshot: &mut Snapshot) -> Result<(), Fault> {
        let rows = db.query(SERVER, &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| Fault::own("the server returned no row"))?;
        let local = chrono::Utc::now().timestamp_micros() as f64 / 1e6;
        let version = row.word("version")?;
        snapshot.server = Server {
            version: version.split(' ').next().unwrap_or_default().to_string(),
            version_num: row.int("version_num")?.unwrap_or(0) as i32,
            database: row.word("database")?,
            database_oid: row.int("database_oid")?.unwrap_or(0) as u32,
            host: db.reached.host.clone(),
            tls: db.reached.protection.clone(),
            tls_failed: db.reached.unencrypted.as_ref().map(Fault::to_string),
            clock_step: snapshot.server.clock_step,
            cores: cores(db.reached.local),
            user: row.word("role")?,
            in_recovery: row.flag("in_recovery")?.unwrap_or(false),
            replayed_at: snapshot.server.replayed_at,
            wal_receiver: snapshot.server.wal_receiver,
            restores: snapshot.server.restores,
            read_only: true,
            push: std::mem::take(&mut snapshot.server.push),
            pooler: snapshot.server.pooler.take(),
            port: row.count("port")? as u16,
            started_at: row.time("started_at")?,
            sees_all: row.flag("sees_all")?.unwrap_or(false),
            clock_skew_s: row.time("now")?.map(|now| now.epoch() - local),
            time_zone: row.word("time_zone")?,
        };
        snapshot.connections.max = row.count("max")? as u32;
        snapshot.connections.reserved = row.count("reserved")? as u32;
        Ok(())
    }
}

/// Postgres does not tell how many cores it has; only for a server on this machine they can be counted.
fn cores(local: bool) -> Option<u32> {
    let count = || std::thread::available_parallelism().ok();
    local.then(count)?.map(|n| n.get() as u32)
}
