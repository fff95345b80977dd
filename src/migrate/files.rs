//! The SQL files themselves, compiled in.

use sha2::{Digest as _, Sha256};

/// One numbered file of `migrations/`.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// The number its name begins with; rises by one.
    pub version: i64,
    /// The file's name.
    pub name: &'static str,
    /// Its text, run as it is.
    pub sql: &'static str,
}

impl Migration {
    /// SHA-256 of the text, in hex, whatever line ends the checkout has given it.
    #[must_use]
    pub fn checksum(&self) -> String {
        let digest = Sha256::digest(self.sql.replace("\r\n", "\n").as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// All of them, in the order in which they are applied. A released file is never changed; what comes later gets a new number.
pub const FILES: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_tables.sql",
        sql: include_str!("../../migrations/0001_tables.sql"),
    },
    Migration {
        version: 2,
        name: "0002_functions.sql",
        sql: include_str!("../../migrations/0002_functions.sql"),
    },
    Migration {
        version: 3,
        name: "0003_claim.sql",
        sql: include_str!("../../migrations/0003_claim.sql"),
    },
    Migration {
        version: 4,
        name: "0004_operate.sql",
        sql: include_str!("../../migrations/0004_operate.sql"),
    },
    Migration {
        version: 5,
        name: "0005_roles.sql",
        sql: include_str!("../../migrations/0005_roles.sql"),
    },
    Migration {
        version: 6,
        name: "0006_adjust.sql",
        sql: include_str!("../../migrations/0006_adjust.sql"),
    },
];

/// The optional trigger.
pub const NOTIFY: &str = include_str!("../../migrations/optional_notify.sql");
/// What takes it back.
pub const NOTIFY_REMOVE: &str = include_str!("../../migrations/optional_notify_remove.sql");
