//! Which statements of a session the server keeps prepared. Four fifths of what a refresh costs the server is parsing
//! and planning the same long statements again; a prepared one is parsed once and planned until the server sees that a
//! plan for any parameters is as good. Behind a pooler that hands out another session for each statement this fails
//! (26000, 42P05): then nothing is prepared any more.

use super::Fault;
use crate::log::told;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use tokio_postgres::Statement;
use tracing::info;

/// Statements kept at most: each costs the server memory. Several times what three queue systems need.
const ROOM: usize = 96;
/// A statement is prepared when it is sent so often: those sent once or twice are not worth it.
const OFTEN: u8 = 3;
/// How many statements are remembered by their hash until they come again.
const MEMORY: usize = 512;

/// What to do with a statement.
pub(super) enum Way {
    /// Send it unnamed.
    Plain,
    /// Prepare it, then run it.
    Prepare,
    /// It is prepared.
    Ready(Statement),
}

/// The prepared statements of a session, and what was sent lately.
#[derive(Default)]
pub(super) struct Kept {
    statements: BTreeMap<String, (u64, Statement)>,
    seen: VecDeque<(u64, u8)>,
    clock: u64,
    off: bool,
}

impl Kept {
    /// How to send this statement.
    pub fn way(&mut self, sql: &str) -> Way {
        if self.off {
            return Way::Plain;
        }
        self.clock += 1;
        if let Some((used, statement)) = self.statements.get_mut(sql) {
            *used = self.clock;
            return Way::Ready(statement.clone());
        }
        let mut hasher = DefaultHasher::new();
        sql.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(at) = self.seen.iter().position(|(h, _)| *h == hash) {
            self.seen[at].1 += 1;
            if self.seen[at].1 < OFTEN {
                return Way::Plain;
            }
            self.seen.remove(at);
            return Way::Prepare;
        }
        self.seen.push_back((hash, 1));
        if self.seen.len() > MEMORY {
            self.seen.pop_front();
        }
        Way::Plain
    }

    /// Keeps a statement; the one that was not used for longest goes where there is no room.
    pub fn keep(&mut self, sql: &str, statement: &Statement) {
        if self.statements.len() >= ROOM {
            let oldest = self.statements.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(sql, _)| sql.clone()) {
                self.statements.remove(&oldest);
            }
        }
        self.statements
            .insert(sql.to_string(), (self.clock, statement.clone()));
    }

    /// A prepared statement failed. `true` where sending it unnamed may help.
    pub fn failed(&mut self, sql: &str, fault: &Fault) -> bool {
        // not there, there already: another server session than the one that prepared it
        let pooled = fault.is("26000") || fault.is("42P05");
        // "cached plan must not change result type"
        let stale = fault.is("0A000");
        if pooled {
            let (sqlstate, reason) = (fault.code.as_deref(), told(fault));
            info!(
                sqlstate,
                reason,
                "statements are prepared no more: a pooler hands out one server session after another"
            );
            self.off = true;
            self.statements.clear();
        } else if stale {
            self.statements.remove(sql);
        }
        (pooled || stale) && !fault.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(kept: &mut Kept, sql: &str) -> bool {
        matches!(kept.way(sql), Way::Plain)
    }

    #[test]
    fn only_what_comes_again_is_prepared() {
        let mut kept = Kept::default();
        assert!(plain(&mut kept, "a") && plain(&mut kept, "b") && plain(&mut kept, "a"));
        assert!(matches!(kept.way("a"), Way::Prepare));
        assert!(plain(&mut kept, "b"));
        for i in 0..MEMORY {
            assert!(plain(&mut kept, &format!("c{i}")));
        }
        assert!(plain(&mut kept, "b"), "it was long ago");
        assert!(kept.seen.len() <= MEMORY);
    }

    #[test]
    fn a_pooler_ends_it() {
        let mut kept = Kept::default();
        let fault = |code: &str| Fault {
            code: Some(code.into()),
            ..Fault::own("no")
        };
        assert!(!kept.failed("a", &fault("55P03")));
        assert!(kept.failed("a", &fault("0A000")));
        assert!(!kept.off);
        assert!(kept.failed("a", &fault("26000")));
        for _ in 0..9 {
            assert!(plain(&mut kept, "a"));
        }
    }
}
