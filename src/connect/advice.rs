//! What to do about a connection that did not come about: all the advice there is.

use super::tls::Mode;
use super::{Fault, Target};

/// Against a refusal that only the server's side can lift.
pub const ALLOW: &str = "allow it in pg_hba.conf";

/// Of a pooler that lets us in to itself.
pub const CONSOLE: &str =
    "this is PgBouncer's own console, no database: give the name of one behind it";

/// What to do about a refused login, or one that broke off. With a mode that tries both ways the other one was tried, too.
pub fn login(fault: &Fault, target: &Target) -> Option<String> {
    let tls = &target.route.tls;
    let has = |text: &str| fault.message.contains(text);
    let both = matches!(tls.mode, Mode::Allow | Mode::Prefer);
    let advice = match fault.code.as_deref() {
        None if broke_off(fault) => "it ended before a word of Postgres: does that listen there?",
        None if has("password missing") => {
            "give one by -W, PGPASSWORD, ~/.pgpass or --password-command"
        }
        None if has("does not support TLS") => {
            "turn ssl on there, or give sslmode=disable where nobody can listen on the way"
        }
        None if has("channel binding") => {
            "it needs TLS and SCRAM; else leave channel_binding=require out"
        }
        None if has("unsupported authentication method") || has("unsupported SASL mechanism") => {
            "the server asks for GSSAPI, SSPI or OAuth, which jobtop does not speak; allow scram-sha-256 or cert in pg_hba.conf"
        }
        // on a socket there is no other way
        Some("28000") if has("\"[local]\"") => ALLOW,
        Some("28000") if !both && unencrypted(fault) => {
            "use sslmode=require, or allow it in pg_hba.conf"
        }
        // its administrators only
        Some("08P01") if has("not allowed") && target.config.get_dbname() == Some("pgbouncer") => {
            CONSOLE
        }
        Some("08P01") if has("options") => {
            "a pooler is on the way: leave options and PGOPTIONS out"
        }
        Some("28000") if has("client certificate") => {
            return Some(format!(
                "{}; give sslcert=FILE and sslkey=FILE",
                tls.shows()
            ));
        }
        Some("28000") if !both && has("pg_hba.conf") => ALLOW,
        Some("28000") if has("certificate authentication failed") => return Some(tls.shows()),
        _ => return None,
    };
    Some(advice.into())
}

/// Refused by pg_hba.conf, and it names that there was no TLS.
pub fn unencrypted(fault: &Fault) -> bool {
    // as versions before 14 say it
    let ends = ["no encryption", "SSL off"];
    fault.is("28000") && ends.iter().any(|end| fault.message.ends_with(end))
}

/// What to look at where nothing was ever reached. A file that cannot be read is no matter of the server.
pub fn reach(fault: &Fault) -> Option<&'static str> {
    let system = fault.message.ends_with(')') && fault.message.contains("(os error");
    let network = fault.code.is_none() && fault.closed && system;
    network.then_some("does the server run, and are host and port right?")
}

/// The other side went away, or said what is no message of Postgres, while we logged in.
fn broke_off(fault: &Fault) -> bool {
    let words = [
        "early eof",
        "bytes remaining on stream",
        "reset by peer",
        "invalid message",
    ];
    words.iter().any(|words| fault.message.contains(words))
}
