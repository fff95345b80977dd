//! Whoever is in the way of a table, in words: what is needed to act first, the rest at the end of the sentence.

use crate::app::row::RowId;
use crate::findings::rule::Ctx;
use crate::findings::words::{duration, name};
use crate::probe::locks::Blame;
use std::fmt;

/// A session or prepared transaction.
pub struct Who {
    called: String,
    /// What it does, and its pid.
    does: Vec<String>,
    more: Vec<String>,
}

impl Who {
    /// The one of that pid, 0 for a prepared transaction; `found` is what was asked for together with its lock.
    pub fn of(ctx: &Ctx, pid: i32, found: Option<&Blame>) -> Self {
        let found = found.filter(|b| b.pid == pid);
        if ctx.session(pid).is_some() {
            return Self::session(ctx, pid);
        }
        let prepared = found.and_then(|b| b.prepared.as_ref());
        if let Some(gid) = prepared {
            return Self::plain(format!("prepared transaction {}", name(gid)));
        }
        if ctx.snapshot.server.in_recovery && found.is_some_and(nameless) {
            return Self::plain(format!("the replay (pid {pid})"));
        }
        match found.filter(|b| pid != 0 && !nameless(b)) {
            Some(blame) => Self::unlisted(ctx, blame),
            None => Self::plain(ctx.short(pid)),
        }
    }

    fn plain(called: String) -> Self {
        Self {
            called,
            does: Vec::new(),
            more: Vec::new(),
        }
    }

    fn session(ctx: &Ctx, pid: i32) -> Self {
        let mut who = Self::plain(ctx.short(pid));
        let Some(session) = ctx.session(pid) else {
            return who;
        };
        let verb = session.verb.as_ref().map(|verb| name(verb));
        let open = session.xact_s.map(duration);
        who.role(&session.user);
        if session.idle_in_transaction() {
            let idle = session.state_s.map(duration).unwrap_or_default();
            let longer = open.filter(|open| *open != idle);
            who.does.push(format!("idle in tx {idle}"));
            who.more.extend(longer.map(|open| format!("open {open}")));
            who.more.extend(verb.map(|verb| format!("last ran {verb}")));
        } else {
            let bare = verb.is_none();
            who.does.extend(verb);
            who.does.extend(open.map(|open| match bare {
                true => format!("tx {open}"),
                false => open,
            }));
        }
        who.does.push(format!("pid {pid}"));
        who
    }

    /// One whose state is hidden from us, or that is no client of this database.
    fn unlisted(ctx: &Ctx, blame: &Blame) -> Self {
        let mut who = Self::plain(match blame.application.trim() {
            "" => name(&blame.user),
            application => name(application),
        });
        who.does.push(format!("pid {}", blame.pid));
        who.role(&blame.user);
        let server = &ctx.snapshot.server;
        if !server.sees_all {
            let role = name(&server.user);
            who.more
                .push(format!("the rest is hidden: GRANT pg_monitor TO {role}"));
        }
        who
    }

    fn role(&mut self, user: &str) {
        let role = name(user);
        if !user.is_empty() && role != self.called {
            self.more.push(format!("role {role}"));
        }
    }

    /// For the end of the sentence: `; psql: role alice, last ran LOCK tasks`.
    pub fn more(&self) -> String {
        match self.more.is_empty() {
            true => String::new(),
            false => format!("; {}: {}", self.called, self.more.join(", ")),
        }
    }
}

/// `psql (idle in tx 2m, pid 4711)`.
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.called)?;
        match self.does.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", self.does.join(", ")),
        }
    }
}

/// No session of a client's, as far as every role may see.
fn nameless(blame: &Blame) -> bool {
    blame.application.trim().is_empty() && blame.user.is_empty()
}

/// The row of a session, also of one that is not listed; the replay of a standby is none.
pub fn row(ctx: &Ctx, pid: i32) -> Option<RowId> {
    let may_be = pid != 0 && !ctx.snapshot.server.in_recovery;
    let unlisted = may_be.then_some(RowId::Session { pid, started_us: 0 });
    ctx.session_row(pid).or(unlisted)
}
