//! What is said once when a lost connection is back: how long it was away, and whether it is the same server. One that was
//! restarted has forgotten what it counted, and whoever was connected has lost a transaction. A change that our session
//! outlived (a promotion; a restart behind a pooler) is said too.

use crate::probe::Snapshot;
use crate::probe::server::Server;
use crate::ui::fmt;

/// Seconds by which the clocks of two servers may differ.
const SLACK: f64 = 1.0;

const OTHER: &str = "another database of that name";

/// Is it a database that was made anew, or one of another server? What was known of the one before is of no use.
pub fn another_database(before: &Snapshot, now: &Snapshot) -> bool {
    let (old, new) = (before.server.database_oid, now.server.database_oid);
    old != 0 && new != 0 && old != new
}

/// What became of the server meanwhile, in words; `None` where it is the one from before, or was never read.
pub fn changed(before: &Snapshot, now: &Snapshot) -> Option<String> {
    let (old, new) = (&before.server, &now.server);
    if old.host.is_empty() {
        return None;
    }
    if old.host != new.host {
        return Some(format!("another server answers now, {}", new.host));
    }
    let same = old
        .started_at
        .zip(new.started_at)
        .is_none_or(|(a, b)| a == b);
    if same && another_database(before, now) {
        return Some(format!("{OTHER} answers now"));
    }
    if same {
        let promoted = old.in_recovery && !new.in_recovery;
        return promoted.then(|| with("the server was promoted", [writes(old, new)]));
    }
    // whoever ran while the old one was still seen is not the old one
    let ran = before.taken_at.zip(new.started_at);
    let other = ran
        .and_then(|(seen, start)| seen.since(start))
        .is_some_and(|s| s > SLACK);
    let what = match other {
        true => "another server answers now",
        false => "the server was restarted",
    };
    let database = (!other && another_database(before, now)).then(|| format!("{OTHER} answers"));
    Some(with(
        what,
        [
            standby(old, new),
            version(old, new),
            writes(old, new),
            database,
        ],
    ))
}

fn with(what: &str, notes: impl IntoIterator<Item = Option<String>>) -> String {
    let notes = notes.into_iter().flatten();
    notes.fold(what.into(), |text, note| text + ", " + &note)
}

fn standby(old: &Server, new: &Server) -> Option<String> {
    (old.in_recovery != new.in_recovery).then(|| match new.in_recovery {
        true => "a standby".into(),
        false => "a primary".into(),
    })
}

fn version(old: &Server, new: &Server) -> Option<String> {
    (old.version != new.version).then(|| format!("Postgres {}", new.version))
}

fn writes(old: &Server, new: &Server) -> Option<String> {
    (old.read_only != new.read_only).then(|| match new.read_only {
        true => "read-only now".into(),
        false => "writes are possible now".into(),
    })
}

/// What a loss with that reason meant for others, where the server is the one from before.
pub fn crashed(reason: &str) -> Option<String> {
    // crash_shutdown: the postmaster ends every session
    let crash = reason.contains("(57P02)");
    crash.then(|| "a server process had crashed, and all sessions with it".into())
}

const BACK: &str = "back after ";

/// Is it such a sentence?
pub fn is_it(text: &str) -> bool {
    text.starts_with(BACK)
}

/// The sentence, after so many seconds.
pub fn sentence(away: f64, changed: Option<&str>) -> String {
    let back = format!("{BACK}{}", fmt::duration(away));
    changed.map_or(back.clone(), |what| format!("{back}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::ServerTime;

    fn seen(started: f64, taken: f64, change: impl FnOnce(&mut Server)) -> Snapshot {
        let mut snapshot = Snapshot {
            taken_at: ServerTime::from_epoch(taken),
            ..Snapshot::default()
        };
        snapshot.server.started_at = ServerTime::from_epoch(started);
        snapshot.server.version = "15.18".into();
        snapshot.server.host = "db1".into();
        change(&mut snapshot.server);
        snapshot
    }

    #[test]
    fn a_restart_is_told_from_another_server_and_from_nothing() {
        let before = seen(1e9, 2e9, |_| {});
        let told = |now: &Snapshot| changed(&before, now);
        let says = |now: Snapshot| told(&now).unwrap_or_default();
        assert_eq!(says(seen(1e9, 2e9 + 9.0, |_| {})), "");
        let restarted = seen(2e9 + 3.0, 2e9 + 9.0, |_| {});
        assert_eq!(says(restarted), "the server was restarted");
        let newer = seen(2e9 + 3.0, 2e9 + 9.0, |s| s.version = "15.19".into());
        assert_eq!(says(newer), "the server was restarted, Postgres 15.19");
        let other = seen(15e8, 2e9 + 9.0, |s| s.in_recovery = true);
        assert_eq!(says(other), "another server answers now, a standby");
        let host = seen(15e8, 2e9 + 9.0, |s| s.host = "db2".into());
        assert_eq!(says(host), "another server answers now, db2");
        let standby = |read_only| {
            seen(1e9, 2e9, |s| {
                (s.in_recovery, s.read_only) = (true, read_only)
            })
        };
        let now = seen(1e9, 2e9 + 9.0, |_| {});
        let promoted = changed(&standby(false), &now);
        assert_eq!(promoted.as_deref(), Some("the server was promoted"));
        let promoted = changed(&standby(true), &now);
        let said = "the server was promoted, writes are possible now";
        assert_eq!(promoted.as_deref(), Some(said));
        assert_eq!(changed(&Snapshot::default(), &now), None, "never read");
        let was = seen(1e9, 2e9, |s| s.database_oid = 16384);
        let anew = |started| seen(started, 2e9 + 9.0, |s| s.database_oid = 17000);
        assert_eq!(
            changed(&was, &anew(1e9)).as_deref(),
            Some("another database of that name answers now")
        );
        assert_eq!(
            changed(&was, &anew(2e9 + 3.0)).as_deref(),
            Some("the server was restarted, another database of that name answers")
        );
        assert_eq!(
            changed(&was, &anew(15e8)).as_deref(),
            Some("another server answers now")
        );
        assert!(another_database(&was, &anew(1e9)) && !another_database(&before, &anew(1e9)));
        // what is not known is no news
        let mut unknown = seen(1e9, 2e9 + 9.0, |_| {});
        unknown.server.started_at = None;
        assert_eq!(told(&unknown), None);
        assert_eq!(sentence(1.14, None), "back after 1.1s");
    }
}
