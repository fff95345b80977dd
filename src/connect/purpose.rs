//! What a session may do and for how long, in the three forms that the ways to a server take: options of the startup
//! packet, what the server then says it has, and (where a pooler refuses or drops options) a transaction of its own
//! for each statement, so that no setting of ours stays behind in a session that others use next.

/// What a session may do, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Polling: read-only, short deadlines.
    Poll,
    /// One write: read-write, short deadlines.
    Write,
    /// Migration, seeding, simulated workers: the server's own defaults.
    Plain,
}

/// Milliseconds after which the server ends things by itself.
struct Limits {
    statement: u32,
    lock: u32,
    idle_in_transaction: u32,
}

impl Purpose {
    fn limits(self) -> Option<Limits> {
        let limits = |statement, lock, idle_in_transaction| Limits {
            statement,
            lock,
            idle_in_transaction,
        };
        match self {
            Purpose::Poll => Some(limits(3000, 100, 5000)),
            Purpose::Write => Some(limits(2000, 250, 2000)),
            Purpose::Plain => None,
        }
    }

    /// The `statement_timeout` among its settings, in milliseconds.
    pub(super) fn deadline_ms(self) -> u32 {
        self.limits().map_or(0, |l| l.statement)
    }

    /// What may be set for a transaction as well as for a session; `deadline` is the `statement_timeout` in milliseconds.
    fn settings(self, deadline: u32) -> Vec<(&'static str, String)> {
        let Some(limits) = self.limits() else {
            return Vec::new();
        };
        let mut all = vec![
            ("statement_timeout", deadline.to_string()),
            ("lock_timeout", limits.lock.to_string()),
            (
                "idle_in_transaction_session_timeout",
                limits.idle_in_transaction.to_string(),
            ),
        ];
        if self == Purpose::Poll {
            all.push(("jit", "off".into()));
            all.push(("max_parallel_workers_per_gather", "0".into()));
        }
        all
    }

    fn read_only(self) -> &'static str {
        match self {
            Purpose::Poll => "on",
            _ => "off",
        }
    }

    /// For the startup packet.
    pub(super) fn options(self) -> String {
        if self == Purpose::Plain {
            return String::new();
        }
        let mut all = self.settings(self.deadline_ms());
        all.push(("default_transaction_read_only", self.read_only().into()));
        let keepalives = [("idle", 30), ("interval", 10), ("count", 3)];
        let all = all.iter().map(|(n, v)| format!("-c {n}={v}"));
        let keepalives = keepalives.map(|(n, v)| format!("-c tcp_keepalives_{n}={v}"));
        all.chain(keepalives).collect::<Vec<_>>().join(" ")
    }

    /// What [`READ_BACK`] says where the options arrived.
    pub(super) fn read_back(self) -> Option<String> {
        let l = self.limits()?;
        let shown = |ms: u32| match ms % 1000 {
            0 => format!("{}s", ms / 1000),
            _ => format!("{ms}ms"),
        };
        let times = [l.statement, l.lock, l.idle_in_transaction].map(shown);
        Some(format!("{} {}", self.read_only(), times.join(" ")))
    }

    /// Begins a transaction that is all of this, for itself alone. `encoding` is the client's, where it needs another
    /// than the usual. Two statements.
    pub(super) fn begin(self, deadline: u32, encoding: Option<&str>) -> String {
        let access = match self {
            Purpose::Poll => "READ ONLY",
            _ => "READ WRITE",
        };
        let mut settings = self.settings(deadline);
        settings.extend(encoding.map(|name| ("client_encoding", name.to_string())));
        let set = |(name, value): &(&str, String)| {
            format!("pg_catalog.set_config('{name}', '{value}', true)")
        };
        let all: Vec<String> = settings.iter().map(set).collect();
        match all.is_empty() {
            true => format!("BEGIN {access}"),
            false => format!("BEGIN {access}; SELECT {}", all.join(", ")),
        }
    }
}

/// An expression: what a session has of the settings that make it safe.
pub(super) const READ_BACK: &str = "concat_ws(' ', current_setting('default_transaction_read_only'), \
    current_setting('statement_timeout'), current_setting('lock_timeout'), \
    current_setting('idle_in_transaction_session_timeout'))::text";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_list_makes_all_three_forms() {
        let options = Purpose::Poll.options();
        assert!(
            options.starts_with("-c statement_timeout=3000 -c lock_timeout=100 "),
            "{options}"
        );
        assert!(
            options.contains(" -c default_transaction_read_only=on "),
            "{options}"
        );
        assert!(options.ends_with(" -c tcp_keepalives_count=3"), "{options}");
        assert_eq!(Purpose::Poll.read_back().as_deref(), Some("on 3s 100ms 5s"));
        assert_eq!(
            Purpose::Write.read_back().as_deref(),
            Some("off 2s 250ms 2s")
        );
        let begin = Purpose::Write.begin(1500, Some("SQL_ASCII"));
        assert!(begin.starts_with("BEGIN READ WRITE; SELECT pg_catalog.set_config('statement_timeout', '1500', true), "), "{begin}");
        assert!(
            begin.ends_with("pg_catalog.set_config('client_encoding', 'SQL_ASCII', true)"),
            "{begin}"
        );
        assert_eq!(Purpose::Plain.options(), "");
        assert_eq!(Purpose::Plain.begin(0, None), "BEGIN READ WRITE");
    }
}
