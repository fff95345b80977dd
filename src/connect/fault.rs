//! What went wrong with the server, in one sentence. tokio-postgres prints only "db error".

use super::person::Lack;
use super::tls;
use std::error::Error as _;
use std::fmt;

/// Source files of procedural languages, as an error's own fields have them.
const LANGUAGES: [&str; 4] = ["pl_exec.", "plpy_", "plperl.", "pltcl."];

/// A failure of a connection or a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// SQLSTATE, where the server sent one.
    pub code: Option<String>,
    /// The server's or the system's words.
    pub message: String,
    /// The session is gone.
    pub closed: bool,
    /// TLS failed.
    pub tls: bool,
    /// What a person could add.
    pub lacks: Option<Lack>,
    /// What a log says in place of the message, where that may hold a secret or what rows hold.
    pub logged: Option<String>,
}

impl Fault {
    /// A failure of our own making, without SQLSTATE.
    pub fn own(message: impl Into<String>) -> Self {
        Self {
            code: None,
            message: message.into(),
            closed: false,
            tls: false,
            lacks: None,
            logged: None,
        }
    }

    /// Does the SQLSTATE start like this?
    pub fn is(&self, code: &str) -> bool {
        self.code.as_deref().is_some_and(|c| c.starts_with(code))
    }

    /// No free connection slot: trying often would only make it worse.
    pub fn no_slot(&self) -> bool {
        self.is("53300")
    }

    /// The server is starting, stopping or recovering: worth waiting for.
    pub fn not_ready(&self) -> bool {
        self.is("57P")
    }

    /// A first connection is worth trying again.
    pub fn may_pass(&self) -> bool {
        self.no_slot() || self.not_ready()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = crate::text::clean(&self.message);
        match self.code.as_deref() {
            Some(code) => write!(f, "{text} ({code})"),
            None => f.write_str(&text),
        }
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// What the client library complains of.
    pub fn from_ref(error: &tokio_postgres::Error) -> Self {
        if let Some(db) = error.as_db_error() {
            // words of a function that somebody wrote
            let raised = db.code().code().starts_with("P0")
                || db
                    .file()
                    .is_some_and(|f| LANGUAGES.iter().any(|l| f.starts_with(l)));
            return Self {
                code: Some(db.code().code().to_string()),
                closed: error.is_closed() || db.severity() == "FATAL" || db.severity() == "PANIC",
                logged: raised
                    .then(|| "a function of the database raised it, in words of its own".into()),
                ..Self::own(db.message())
            };
        }
        let source = error.source();
        let message = source.and_then(tls::cut);
        let message = message
            .or(source.map(|s| s.to_string()))
            .unwrap_or_else(|| error.to_string());
        Self {
            closed: error.is_closed() || source.is_some_and(|s| s.is::<std::io::Error>()),
            ..Self::own(message)
        }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::from_ref(&error)
    }
}
