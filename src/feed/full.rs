//! Why there is no session, in one sentence: where no connection slot is free, with the arithmetic, and with who held
//! the slots when they were last seen; where a pooler is on the way, that it may be the one that keeps us waiting.

use crate::connect::Fault;
use crate::connect::session::SILENT;
use crate::probe::Snapshot;

/// A pooler lets clients in and keeps them waiting for a session of the server.
const NO_ANSWER: &str =
    "no answer through the pooler: its pool may be full, or the server behind it silent";

/// The fault in words. Nothing can be asked of a full server: what is known is what `seen` last had, if anything.
pub fn why(fault: &Fault, seen: &Snapshot) -> String {
    let text = &fault.message;
    let what = match fault.no_slot() {
        // the other limits are of a role or a database, and their messages name it
        true if text.starts_with("sorry") => {
            "every connection slot is taken, the reserved ones too (53300)"
        }
        true if text.contains("reserved") => {
            "every connection slot but the reserved ones is taken (53300)"
        }
        false if text == SILENT && seen.server.pooler.is_some() => return NO_ANSWER.into(),
        _ => return fault.to_string(),
    };
    let c = &seen.connections;
    let sum = match c.max {
        0 => "max_connections less superuser_reserved_connections and reserved_connections are for everyone".into(),
        _ => format!("{}; last seen {}", c.arithmetic(), c.holders()),
    };
    // only a server that has this role names it
    let way_in = match text.contains("pg_use_reserved_connections") {
        true => "; a role with pg_use_reserved_connections gets a reserved one",
        false => "",
    };
    format!("{what}: {sum}{way_in}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::slots::Application;

    fn full(message: &str) -> Fault {
        Fault {
            code: Some("53300".into()),
            closed: true,
            ..Fault::own(message)
        }
    }

    fn seen() -> Snapshot {
        let mut seen = Snapshot::default();
        seen.connections.max = 60;
        seen.connections.reserved = 3;
        seen.connections.used = 57;
        seen.connections.applications = vec![Application {
            name: "api".into(),
            used: 56,
        }];
        seen
    }

    #[test]
    fn a_full_server_is_told_by_its_own_words() {
        let none = Snapshot::default();
        let text = why(&full("sorry, too many clients already"), &none);
        assert!(
            text.starts_with("every connection slot is taken, the reserved ones too (53300)"),
            "{text}"
        );
        assert!(text.contains("max_connections less"), "{text}");
        let new = "remaining connection slots are reserved for roles with privileges of the \"pg_use_reserved_connections\" role";
        assert_eq!(
            why(&full(new), &seen()),
            "every connection slot but the reserved ones is taken (53300): 57 of max_connections 60 are for everyone, 3 reserved; \
             last seen 57 used: api 56; a role with pg_use_reserved_connections gets a reserved one"
        );
        let old =
            "remaining connection slots are reserved for non-replication superuser connections";
        assert!(!why(&full(old), &seen()).contains("pg_use"));
    }

    #[test]
    fn anything_else_is_told_as_it_is() {
        let limit = full("too many connections for role \"mona\"");
        assert_eq!(why(&limit, &seen()), limit.to_string());
        let gone = Fault::own("connection refused");
        assert_eq!(why(&gone, &seen()), "connection refused");
    }

    #[test]
    fn silence_behind_a_pooler_may_be_the_poolers() {
        let silent = Fault::own(SILENT);
        assert_eq!(why(&silent, &seen()), "the server does not answer");
        let mut pooled = seen();
        pooled.server.pooler = Some("transaction".into());
        assert_eq!(why(&silent, &pooled), NO_ANSWER);
        let refused = Fault::own("connection refused");
        assert_eq!(why(&refused, &pooled), "connection refused");
    }
}
