//! What is known about a connection, and from where. The order is psql's: a setting in the connection string counts more than
//! the flag of the same meaning; then what the flags say; then the service file; then the environment; then libpq's defaults.

use super::person::Ask;
use super::{Secret, encoding, keyvalue, service, url};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// An environment variable, if it is set.
pub type Env<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// What a command line says about a connection.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// A URL, key=value pairs, or the name of a database.
    pub string: Option<String>,
    /// `-h`.
    pub host: Option<String>,
    /// `-p`.
    pub port: Option<String>,
    /// `-U`.
    pub user: Option<String>,
    /// Typed after `-W`.
    pub password: Option<Secret>,
    /// A command whose output is the password, and how many seconds it may take.
    pub command: Option<(String, f64)>,
    /// Asks the person at the terminal, where there is one who may be asked.
    pub ask: Option<Ask>,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The connection string.
    String,
    /// A flag, or typed.
    Flag,
    /// A service file.
    Service,
    /// The environment.
    Environment,
}

/// How an option of libpq is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// As libpq does.
    Full,
    /// Accepted, and without effect here: it tunes what is not used, or changes nothing about what is reached.
    None,
    /// It would weaken what was asked for to go on without it; what to do instead.
    Refused(&'static str),
}

const KEYS: Use = Use::Refused("give the password itself, in PGPASSWORD or ~/.pgpass");

/// libpq's options (those of version 18), and their environment variables.
const OPTIONS: &[(&str, &str, Use)] = &[
    ("application_name", "PGAPPNAME", Use::Full),
    ("channel_binding", "PGCHANNELBINDING", Use::Full),
    // ours is UTF-8 always; only the name is looked at
    ("client_encoding", "PGCLIENTENCODING", Use::None),
    ("connect_timeout", "PGCONNECT_TIMEOUT", Use::Full),
    ("dbname", "PGDATABASE", Use::Full),
    // psql's own name counts more there, and ours here
    ("fallback_application_name", "", Use::None),
    ("gssdelegation", "PGGSSDELEGATION", Use::None),
    ("gssencmode", "PGGSSENCMODE", Use::Full),
    ("gsslib", "PGGSSLIB", Use::None),
    ("host", "PGHOST", Use::Full),
    ("hostaddr", "PGHOSTADDR", Use::Full),
    ("keepalives", "", Use::Full),
    ("keepalives_count", "", Use::Full),
    ("keepalives_idle", "", Use::Full),
    ("keepalives_interval", "", Use::Full),
    ("krbsrvname", "PGKRBSRVNAME", Use::None),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS", Use::Full),
    ("max_protocol_version", "PGMAXPROTOCOLVERSION", Use::Full),
    ("min_protocol_version", "PGMINPROTOCOLVERSION", Use::Full),
    // looked at only where the server asks for OAuth, which is refused then
    ("oauth_client_id", "", Use::None),
    ("oauth_client_secret", "", Use::None),
    ("oauth_issuer", "", Use::None),
    ("oauth_scope", "", Use::None),
    ("options", "PGOPTIONS", Use::Full),
    ("passfile", "PGPASSFILE", Use::Full),
    ("password", "PGPASSWORD", Use::Full),
    ("port", "PGPORT", Use::Full),
    ("replication", "", Use::Full),
    ("require_auth", "PGREQUIREAUTH", Use::Full),
    ("requirepeer", "PGREQUIREPEER", Use::Full),
    ("scram_client_key", "", KEYS),
    ("scram_server_key", "", KEYS),
    ("service", "PGSERVICE", Use::Full),
    ("servicefile", "PGSERVICEFILE", Use::Full),
    (
        "ssl_max_protocol_version",
        "PGSSLMAXPROTOCOLVERSION",
        Use::Full,
    ),
    (
        "ssl_min_protocol_version",
        "PGSSLMINPROTOCOLVERSION",
        Use::Full,
    ),
    ("sslcert", "PGSSLCERT", Use::Full),
    ("sslcertmode", "PGSSLCERTMODE", Use::Full),
    // no TLS of today compresses
    ("sslcompression", "PGSSLCOMPRESSION", Use::None),
    ("sslcrl", "PGSSLCRL", Use::Full),
    ("sslcrldir", "PGSSLCRLDIR", Use::Full),
    ("sslkey", "PGSSLKEY", Use::Full),
    ("sslkeylogfile", "", Use::None),
    ("sslmode", "PGSSLMODE", Use::Full),
    ("sslnegotiation", "PGSSLNEGOTIATION", Use::Full),
    ("sslpassword", "", Use::Full),
    ("sslrootcert", "PGSSLROOTCERT", Use::Full),
    ("sslsni", "PGSSLSNI", Use::Full),
    ("target_session_attrs", "PGTARGETSESSIONATTRS", Use::Full),
    ("tcp_user_timeout", "", Use::Full),
];

/// Values by keyword.
#[derive(Debug, Default)]
pub struct Settings(BTreeMap<&'static str, (String, Origin)>);

impl Settings {
    /// Puts together what was given and what the environment and service files add.
    pub fn gather(given: &Given, env: &Env<'_>) -> Result<Self> {
        let mut settings = Self::default();
        let string = given.string.as_deref().unwrap_or_default();
        let pairs = if url::is_url(string) {
            url::pairs(string)?
        } else if string.contains('=') {
            keyvalue::pairs(string)?
        } else if string.is_empty() {
            Vec::new()
        } else {
            vec![("dbname".to_string(), string.to_string())]
        };
        settings.add(pairs, Origin::String)?;
        let password = given.password.as_ref().map(|p| p.reveal().to_string());
        let flags = [
            ("host", given.host.clone()),
            ("port", given.port.clone()),
            ("user", given.user.clone()),
            ("password", password),
        ];
        for (key, value) in flags {
            if let Some(value) = value.filter(|v| !v.is_empty()) {
                settings.0.entry(key).or_insert((value, Origin::Flag));
            }
        }
        let named = |key: &str, variable: &str| {
            let value = settings.0.get(key).map(|v| v.0.clone());
            value.or_else(|| env(variable)).filter(|v| !v.is_empty())
        };
        if let Some(name) = named("service", "PGSERVICE") {
            let file = named("servicefile", "PGSERVICEFILE");
            let pairs = service::find(&name, file.as_deref(), env)?;
            let wrong = || format!("the service {name:?} of the service file is wrong");
            settings.add(pairs, Origin::Service).with_context(wrong)?;
        }
        for (key, variable, _) in known() {
            if let Some(value) = env(variable).filter(|_| !variable.is_empty()) {
                settings
                    .0
                    .entry(key)
                    .or_insert((value, Origin::Environment));
            }
        }
        if env("PGREQUIRESSL").is_some_and(|on| on.starts_with('1')) {
            let value = ("require".to_string(), Origin::Environment);
            settings.0.entry("sslmode").or_insert(value);
        }
        settings.refuse()?;
        Ok(settings)
    }

    /// Within one origin the last value of a keyword counts; what is known from a better one stays.
    fn add(&mut self, pairs: Vec<(String, String)>, origin: Origin) -> Result<()> {
        let password = pairs.iter().any(|(key, _)| key == "password");
        for (key, value) in pairs {
            // what it was called before version 8.0, which libpq still takes
            let (key, value) = match (key.as_str(), value.starts_with('1')) {
                ("requiressl", true) => ("sslmode".to_string(), "require".to_string()),
                ("requiressl", false) => ("sslmode".to_string(), "prefer".to_string()),
                _ => (key, value),
            };
            let Some((name, _, _)) = known().find(|(name, _, _)| *name == key) else {
                // after a password that was not quoted, a word may be a piece of it
                match password {
                    true => bail!(
                        "one of the connection settings has a name that libpq does not know: a value with spaces needs 'quotes'"
                    ),
                    false => bail!("{key:?} is no connection setting of libpq"),
                }
            };
            match self.0.get(name) {
                Some((_, earlier)) if *earlier != origin => {}
                _ => {
                    self.0.insert(name, (value, origin));
                }
            }
        }
        Ok(())
    }

    fn refuse(&self) -> Result<()> {
        ensure!(
            self.text("client_encoding").is_none_or(encoding::known),
            "client_encoding (PGCLIENTENCODING) is no encoding of Postgres: leave it out, jobtop's is UTF8"
        );
        for (key, _, how) in known() {
            if let (Use::Refused(instead), Some(_)) = (how, self.text(key)) {
                bail!("jobtop does not support the connection setting {key}: {instead}");
            }
        }
        let gss = [("disable", false), ("prefer", false), ("require", true)];
        ensure!(
            self.word("gssencmode", &gss)? != Some(true),
            "jobtop does not support gssencmode=require: leave it out, and use sslmode=verify-full"
        );
        let off = ["false", "off", "no", "0"].map(|word| (word, ()));
        ensure!(
            self.word("replication", &off).is_ok(),
            "a replication connection runs no statements of a monitor: leave replication out"
        );
        // ours is 3.0, which every server speaks
        let versions = [("3.0", 30), ("3.2", 32), ("latest", 32)];
        let least = self.word("min_protocol_version", &versions)?.unwrap_or(30);
        let most = self.word("max_protocol_version", &versions)?;
        ensure!(
            least <= most.unwrap_or(32),
            "min_protocol_version is above max_protocol_version: leave one of them out"
        );
        ensure!(
            least == 30,
            "jobtop speaks version 3.0 of the protocol only: leave min_protocol_version out"
        );
        Ok(())
    }

    /// A value; empty is not set.
    pub fn text(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key).map(|v| v.0.as_str());
        value.filter(|v| !v.is_empty())
    }

    /// Where a value comes from.
    pub fn origin(&self, key: &str) -> Option<Origin> {
        self.text(key).and_then(|_| self.0.get(key)).map(|v| v.1)
    }

    /// A whole number.
    pub fn number(&self, key: &str) -> Result<Option<i64>> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => bail!("{key} is no whole number"),
        }
    }

    /// One of several words.
    pub fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        // an empty one is an error with libpq, too: a variable that a script forgot to set must not lower the protection
        let Some((text, _)) = self.0.get(key) else {
            return Ok(None);
        };
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let what = if text.is_empty() {
                    "empty, not one"
                } else {
                    "none"
                };
                bail!("{key} is {what} of {}", words.join(", "))
            }
        }
    }
}

fn known() -> impl Iterator<Item = (&'static str, &'static str, Use)> {
    let user = ("user", "PGUSER", Use::Full);
    OPTIONS.iter().copied().chain([user])
}

/// The user's home directory.
pub fn home(env: &Env<'_>) -> Option<PathBuf> {
    let home = env("HOME").filter(|h| !h.is_empty()).map(PathBuf::from);
    let user = || nix::unistd::User::from_uid(nix::unistd::geteuid());
    home.or_else(|| user().ok().flatten().map(|u| u.dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(string: &str, flags: [&str; 3], env: &[(&str, &str)]) -> Result<Settings> {
        let flag = |text: &str| Some(text.to_string());
        let given = Given {
            string: Some(string.into()),
            host: flag(flags[0]),
            port: flag(flags[1]),
            user: flag(flags[2]),
            ..Given::default()
        };
        let env = |name: &str| {
            let found = env.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| v.to_string())
        };
        Settings::gather(&given, &env)
    }

    #[test]
    fn the_string_beats_flags_and_they_the_environment() {
        let env = [
            ("PGHOST", "e"),
            ("PGPORT", "3"),
            ("PGUSER", "e"),
            ("PGDATABASE", "e"),
        ];
        let s = gather("postgres://s/", ["f", "2", ""], &env).expect("gathers");
        assert_eq!(s.text("host"), Some("s"));
        assert_eq!(s.text("port"), Some("2"));
        assert_eq!(s.text("user"), Some("e"));
        assert_eq!(s.text("dbname"), Some("e"));
        assert_eq!(s.origin("port"), Some(Origin::Flag));
        let s = gather("host='' user=a user=b", ["", "", ""], &env).expect("gathers");
        assert_eq!(
            s.text("host"),
            None,
            "an empty value hides the environment's"
        );
        assert_eq!(s.text("user"), Some("b"), "the last one counts");
        let s = gather("app", ["", "", ""], &env).expect("gathers");
        assert_eq!(s.text("dbname"), Some("app"));
    }

    #[test]
    fn unknown_and_unsupported_settings_are_refused() {
        for (string, part) in [
            ("postgres://h/d?schema=x", "\"schema\""),
            ("scram_client_key=f", "PGPASSWORD"),
            ("replication=database", "replication"),
            ("min_protocol_version=3.2", "3.0"),
            ("gssencmode=require", "gssencmode"),
            ("client_encoding=nonsense", "no encoding of Postgres"),
            ("gssencmode=''", "gssencmode is empty"),
        ] {
            let error = gather(string, ["", "", ""], &[]).expect_err(string);
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = gather("password=a s3cret=b", ["", "", ""], &[]).expect_err("refused");
        assert!(!error.to_string().contains("s3cret"), "{error}");
        gather(
            "gssencmode=prefer client_encoding=auto sslcrl=''",
            ["", "", ""],
            &[],
        )
        .expect("gathers");
    }
}
