//! What a standby shows is as old as the newest change it replayed, and grows old when no more arrive.

use super::server::Server;
use super::{ServerTime, Snapshot};
use crate::connect::{Cells, Fault};
use tokio_postgres::Row;

/// The columns that [`Replay::decode`] reads, asked beside those of a statement that runs every refresh. The receiver's
/// row is there for every role, only its figures are not. Aurora refuses the view: its readers share the storage.
pub(super) const COLUMNS: &str = r#"
       pg_is_in_recovery() AS in_recovery,
       extract(epoch FROM pg_last_xact_replay_timestamp())::float8 AS replayed_at,
       (SELECT EXISTS (SELECT FROM pg_stat_wal_receiver)
         WHERE pg_is_in_recovery() AND to_regproc('pg_catalog.aurora_version') IS NULL) AS wal_receiver,
       (SELECT current_setting('restore_command') <> '' WHERE pg_is_in_recovery()) AS restores"#;

/// Seconds without a change from which on a standby without a WAL receiver is cut off. One that lost its connection tries
/// again every five (`wal_retrieve_retry_interval`).
pub const QUIET: f64 = 10.0;
/// The same for one that an archive feeds: a segment comes each `archive_timeout`, a minute to five by custom.
pub const ARCHIVE: f64 = 360.0;

/// Where a server stands in replication.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Replay {
    /// It is a standby: it may become a primary while we look, and our session stays.
    pub in_recovery: bool,
    replayed_at: Option<ServerTime>,
    wal_receiver: Option<bool>,
    restores: bool,
}

impl Replay {
    /// Reads [`COLUMNS`].
    pub(super) fn decode(row: &Row) -> Result<Self, Fault> {
        let in_recovery = row.flag("in_recovery")?.unwrap_or(false);
        Ok(Self {
            in_recovery,
            replayed_at: row.time("replayed_at")?.filter(|_| in_recovery),
            wal_receiver: row.flag("wal_receiver")?,
            restores: row.flag("restores")?.unwrap_or(false),
        })
    }

    /// Writes all but the role, which is read with what follows from it.
    pub(super) fn fill(&self, server: &mut Server) {
        server.replayed_at = self.replayed_at;
        server.wal_receiver = self.wal_receiver;
        server.restores = self.restores;
    }
}

/// A standby that has no WAL receiver, and replayed nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Silence {
    /// Age of the newest change, in seconds; of the server where it has replayed none.
    pub age_s: f64,
    /// It has replayed none since it was started.
    pub none: bool,
    /// It may be fed by an archive (`restore_command`).
    pub restores: bool,
}

impl Silence {
    /// Has it lasted longer than one segment of an archive takes to come, where there is one?
    pub fn is_long(&self) -> bool {
        !self.restores || self.age_s >= ARCHIVE
    }

    /// Why it is one, by words that tell a duration: `last change 38s ago, no WAL receiver`.
    pub fn words(&self, duration: fn(f64) -> String) -> String {
        let age = duration(self.age_s);
        match self.none {
            true => format!("no change since its start {age} ago, no WAL receiver"),
            false => format!("last change {age} ago, no WAL receiver"),
        }
    }

    /// What feeds it, as settings to look at.
    pub fn settings(&self) -> &'static str {
        match self.restores {
            true => "primary_conninfo and restore_command",
            false => "primary_conninfo",
        }
    }
}

impl Snapshot {
    /// Age of the newest change that a standby shows, in seconds. An idle primary makes none, so this is no delay.
    pub fn last_change_s(&self) -> Option<f64> {
        let replayed_at = self.server.replayed_at?;
        self.taken_at?.since(replayed_at).map(|age| age.max(0.0))
    }

    /// A standby with nobody to send it changes, and none for [`QUIET`] seconds; also an archive's, between two segments.
    pub fn silence(&self) -> Option<Silence> {
        let server = &self.server;
        if !server.in_recovery || server.wal_receiver != Some(false) {
            return None;
        }
        let up = self.taken_at?.since(server.started_at?)?;
        let age_s = self.last_change_s();
        let silence = Silence {
            age_s: age_s.unwrap_or(up),
            none: age_s.is_none(),
            restores: server.restores,
        };
        (up >= QUIET && silence.age_s >= QUIET).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standby(up: f64, age: Option<f64>, wal_receiver: Option<bool>) -> Snapshot {
        let now = ServerTime::from_epoch(1_800_000_000.0).expect("a time");
        let mut s = Snapshot {
            taken_at: Some(now),
            ..Snapshot::default()
        };
        s.server.in_recovery = true;
        s.server.started_at = Some(now.plus(-up));
        s.server.replayed_at = age.map(|age| now.plus(-age));
        s.server.wal_receiver = wal_receiver;
        s
    }

    #[test]
    fn silent_is_who_has_no_receiver_and_no_change_since_a_while() {
        let age = |s: Snapshot| s.silence().map(|silence| silence.age_s);
        assert_eq!(age(standby(99.0, Some(38.0), Some(false))), Some(38.0));
        assert_eq!(age(standby(99.0, Some(9.0), Some(false))), None);
        assert_eq!(age(standby(99.0, Some(38.0), Some(true))), None, "idle");
        assert_eq!(age(standby(99.0, Some(38.0), None)), None, "not known");
        assert_eq!(age(standby(9.0, Some(38.0), Some(false))), None, "starts");
        assert_eq!(age(standby(99.0, None, Some(false))), Some(99.0));
        let mut promoted = standby(99.0, Some(38.0), Some(false));
        promoted.server.in_recovery = false;
        assert_eq!(age(promoted), None);
    }

    #[test]
    fn an_archive_has_time_for_its_next_segment() {
        let long = |age, restores| {
            let mut s = standby(9e5, Some(age), Some(false));
            s.server.restores = restores;
            s.silence().expect("silent").is_long()
        };
        assert!(long(38.0, false) && !long(38.0, true) && long(400.0, true));
    }
}
