//! How we got there, and what answered.

use super::Seen;
use super::page::{Level, Part};
use crate::connect::Target;
use crate::probe::Snapshot;
use crate::probe::replay::Silence;
use crate::sql;
use crate::text::clean;
use crate::ui::fmt;
use std::ops::RangeInclusive;

/// Versions of Postgres that jobtop supports.
const SUPPORTED: RangeInclusive<i32> = 13..=18;

/// How we got there, and what answered.
pub fn part(seen: &Seen<'_>) -> Part {
    let mut part = Part::new("CONNECTION");
    address(&mut part, seen.target);
    let server = &seen.snapshot.server;
    match (server.tls.as_str(), &server.tls_failed) {
        (_, Some(why)) => {
            let text = format!("none, although TLS was tried first: {}", clean(why));
            part.say(Level::NeedsDoing, "encryption", text);
        }
        ("none (socket)", _) => {
            part.say(Level::Ok, "encryption", "none: it stays on this machine");
        }
        ("NOT ENCRYPTED", _) if seen.target.local => {
            let text = "none to a port of this machine; what a tunnel or a proxy there does beyond it is not known here";
            part.say(Level::Ok, "encryption", text);
        }
        ("NOT ENCRYPTED", _) => {
            let text = "none: names, statements and rows travel readable; sslmode=require or an ssh tunnel hides them";
            part.say(Level::Note, "encryption", text);
        }
        (how, _) => part.say(Level::Ok, "encryption", how),
    }
    let major = server.version_num / 10_000;
    let (level, word) = match major {
        m if SUPPORTED.contains(&m) => (Level::Ok, "supported"),
        m if m < *SUPPORTED.start() => (Level::NeedsDoing, "too old"),
        _ => (Level::Note, "newer than what jobtop was made for"),
    };
    let up = match (seen.snapshot.taken_at, server.started_at) {
        (Some(now), Some(start)) => now.since(start).map_or(String::new(), |s| {
            format!(", up {}", fmt::duration(s.max(0.0)))
        }),
        _ => String::new(),
    };
    let (first, last) = (SUPPORTED.start(), SUPPORTED.end());
    let text = format!(
        "Postgres {}, {word} ({first} to {last}){up}",
        server.version
    );
    part.say(level, "server", text);
    state(&mut part, seen.snapshot);
    between(&mut part, seen);
    part
}

fn address(part: &mut Part, target: &Target) {
    let place = match target.host.starts_with('/') {
        true => format!("socket {}", target.host),
        false => target.host.clone(),
    };
    let (user, database) = (
        target.config.get_user().unwrap_or_default(),
        target.config.get_dbname().unwrap_or_default(),
    );
    let text = format!(
        "{place}, port {}, as {}, database {}",
        target.port(),
        sql::name(user),
        sql::name(database)
    );
    part.say(Level::Ok, "address", text);
}

fn state(part: &mut Part, snapshot: &Snapshot) {
    let standby = "a standby: nothing can be changed here, and it cannot LISTEN";
    let silence = snapshot.silence().filter(Silence::is_long);
    let (level, text) = match (snapshot.server.in_recovery, silence) {
        (false, _) => (Level::Ok, "primary".into()),
        (true, None) => (Level::Note, standby.into()),
        (true, Some(silence)) => {
            let text = format!(
                "{standby}; it gets nothing from its primary: {}; check {}, the primary and its log",
                silence.words(fmt::duration),
                silence.settings()
            );
            (Level::NeedsDoing, text)
        }
    };
    part.say(level, "state", text);
}

fn between(part: &mut Part, seen: &Seen<'_>) {
    let asked = seen.target.port();
    let server = &seen.snapshot.server;
    if let Some(mode) = &server.pooler {
        let whose = match mode.as_str() {
            "session" => "keeps a session of the server for us",
            "transaction" => "shares the server's sessions between clients",
            _ => "may share the server's sessions between clients",
        };
        let text = format!(
            "one is on the way that refuses or drops session settings, and {whose}: each statement is a transaction of its own with \
             its limits (more work for the server); without it, the server itself listens on port {}",
            server.port
        );
        return part.say(Level::Note, "pooler", text);
    }
    match seen.facts.port {
        _ if seen.facts.shared => {
            let text = "statements came from more than one backend: a pooler in transaction mode; connect to the server itself";
            part.say(Level::NeedsDoing, "pooler", text);
        }
        Some(port) if port != asked => {
            let text = format!(
                "the server listens on port {port}, we connected to {asked}: a proxy, tunnel or pooler is on the way"
            );
            part.say(Level::Note, "pooler", text);
        }
        _ => {
            let text = "none noticed: one backend throughout, and the session's settings arrived";
            part.say(Level::Ok, "pooler", text);
        }
    }
}
