//! Where to connect and how, for any number of sessions.

use super::endpoint::Endpoint;
use super::gate::Rule;
use super::passfile::{self, Whose};
use super::password::Source;
use super::person::Person;
use super::settings::{self, Env, Given, Origin, Settings};
use super::tls::Tls;
use super::wire::Keepalive;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::ChannelBinding;

/// What a server must be to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attrs {
    /// Anything.
    #[default]
    Any,
    /// Sessions can write.
    ReadWrite,
    /// Sessions cannot.
    ReadOnly,
    /// No standby.
    Primary,
    /// A standby.
    Standby,
    /// A standby, or else anything.
    PreferStandby,
}

const ATTRS: [(&str, Attrs); 6] = [
    ("any", Attrs::Any),
    ("read-write", Attrs::ReadWrite),
    ("read-only", Attrs::ReadOnly),
    ("primary", Attrs::Primary),
    ("standby", Attrs::Standby),
    ("prefer-standby", Attrs::PreferStandby),
];

impl Attrs {
    /// As in `target_session_attrs`.
    pub fn name(self) -> Option<&'static str> {
        let found = ATTRS.iter().find(|(_, attrs)| *attrs == self);
        found.map(|(name, _)| *name)
    }
}

/// How long one address may take, where nothing else is said. libpq waits for ever.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server and database to connect to.
#[derive(Clone, Debug)]
pub struct Target {
    /// User, database, options and channel binding; session settings are added when connecting. It has no password.
    pub config: Config,
    /// Host name, address or socket directory, for messages and dialogs: of the first one, where there are several.
    pub host: String,
    /// This machine: a socket or a loopback address.
    pub local: bool,
    /// What the person at the terminal should know, each one sentence.
    pub warnings: Vec<String>,
    pub(super) route: Arc<Route>,
    /// A pooler on the way has refused startup options.
    bare: Arc<AtomicBool>,
}

/// What does not change from session to session.
#[derive(Debug)]
pub(super) struct Route {
    pub endpoints: Vec<Endpoint>,
    pub attrs: Attrs,
    pub shuffle: bool,
    /// For each address: to connect, and again to log in. `None`: for ever.
    pub limit: Option<Duration>,
    pub keepalive: Keepalive,
    pub tls: Tls,
    pub password: Source,
    /// Who may be asked for what is missing.
    pub person: Person,
    /// `require_auth`.
    pub rule: Option<Rule>,
    /// `requirepeer`: whose the server's process must be, on a socket.
    pub peer: Option<String>,
    /// In the place of `jobtop` in the names of our sessions.
    pub application: Option<String>,
}

impl Target {
    /// Reads a URL, key=value pairs or the name of a database; what it leaves out comes from where libpq takes it.
    pub fn parse(string: Option<&str>) -> Result<Self> {
        let given = Given {
            string: string.map(String::from),
            ..Given::default()
        };
        Self::read(&given, &|name| std::env::var(name).ok())
    }

    /// The same with flags and any environment.
    pub fn read(given: &Given, env: &Env<'_>) -> Result<Self> {
        let s = Settings::gather(given, env)?;
        let mut config = Config::new();
        let login = || login_name().or_else(|| env("USER"));
        let user = s.text("user").map(String::from).or_else(login);
        let user =
            user.context("no user name is known: give one with -U, in the URL or in PGUSER")?;
        config.dbname(s.text("dbname").unwrap_or(&user));
        config.user(user);
        if let Some(options) = s.text("options") {
            config.options(options);
        }
        let bindings = [
            ("disable", ChannelBinding::Disable),
            ("prefer", ChannelBinding::Prefer),
            ("require", ChannelBinding::Require),
        ];
        config.channel_binding(
            s.word("channel_binding", &bindings)?
                .unwrap_or(ChannelBinding::Prefer),
        );
        let endpoints = Endpoint::list(&s)?;
        let (password, mut warnings) = password(&s, given, env)?;
        let tls = Tls::read(&s, env)?;
        warnings.extend(tls.warnings());
        let shuffle = s.word(
            "load_balance_hosts",
            &[("disable", false), ("random", true)],
        )?;
        let limit = match s.number("connect_timeout")? {
            None => Some(CONNECT_TIMEOUT),
            Some(seconds) => u64::try_from(seconds)
                .ok()
                .filter(|n| *n > 0)
                .map(Duration::from_secs),
        };
        let route = Route {
            attrs: s.word("target_session_attrs", &ATTRS)?.unwrap_or_default(),
            shuffle: shuffle.unwrap_or_default(),
            limit,
            keepalive: Keepalive::read(&s)?,
            tls,
            password,
            person: Person::new(given.ask),
            rule: s.text("require_auth").map(Rule::read).transpose()?,
            peer: s.text("requirepeer").map(String::from),
            application: s.text("application_name").map(String::from),
            endpoints,
        };
        Ok(Self::of(config, route, warnings))
    }

    /// A target from a ready configuration, whose TLS settings are not looked at: there is none.
    pub fn new(mut config: Config) -> Result<Self> {
        let endpoints = Endpoint::of(&config);
        ensure!(
            !endpoints.is_empty(),
            "no host is known: give one in the URL or in PGHOST"
        );
        let password = config
            .get_password()
            .map(|p| String::from_utf8_lossy(p).into_owned());
        let limit = config
            .get_connect_timeout()
            .copied()
            .unwrap_or(CONNECT_TIMEOUT);
        if password.is_some() {
            config.password("");
        }
        let route = Route {
            endpoints,
            attrs: Attrs::Any,
            shuffle: false,
            limit: Some(limit),
            keepalive: Keepalive::default(),
            tls: Tls::off(),
            password: password.map_or(Source::Nobody, |p| Source::Known(super::Secret::new(p))),
            person: Person::default(),
            rule: None,
            peer: None,
            application: None,
        };
        Ok(Self::of(config, route, Vec::new()))
    }

    fn of(config: Config, route: Route, warnings: Vec<String>) -> Self {
        Self {
            config,
            host: route
                .endpoints
                .first()
                .map_or(String::new(), |e| e.host.clone()),
            local: route.endpoints.iter().all(Endpoint::local),
            warnings,
            route: Arc::new(route),
            bare: Arc::default(),
        }
    }

    /// Whether startup options are known to be refused on the way.
    pub(super) fn refuses_options(&self) -> bool {
        self.bare.load(Ordering::Relaxed)
    }

    /// A connection without options came about where one with options was refused: the next need not try.
    pub(super) fn options_refused(&self) {
        self.bare.store(true, Ordering::Relaxed);
    }

    /// A first connection may have to ask the person at the terminal for a password, so it must be made before there is a
    /// screen.
    pub fn may_ask(&self) -> bool {
        let route = &self.route;
        if !route.person.exists() {
            return false;
        }
        let unknown = |endpoint| match &route.password {
            Source::Nobody => true,
            Source::Known(_) | Source::Command(..) => false,
            Source::File(path) => passfile::lookup(path, self.whose(endpoint)).is_none(),
        };
        let asked = route.person.password().is_some();
        (!asked && route.endpoints.iter().any(unknown)) || route.tls.locked()
    }

    /// From now on nobody is asked, since there is a screen; or somebody may be again. Was something lacking meanwhile?
    pub fn hush(&self, hushed: bool) -> bool {
        self.route.person.hush(hushed)
    }

    /// Whose password an endpoint wants.
    pub(super) fn whose<'a>(&'a self, endpoint: &'a Endpoint) -> Whose<'a> {
        Whose {
            host: endpoint.in_passfile(),
            port: endpoint.port,
            database: self.config.get_dbname().unwrap_or_default(),
            user: self.config.get_user().unwrap_or_default(),
        }
    }

    /// Host and port of each endpoint, for messages about what did not come about.
    pub fn place(&self) -> String {
        let all = self.route.endpoints.iter().map(Endpoint::place);
        all.collect::<Vec<_>>().join(" or ")
    }

    /// The port of the first endpoint.
    pub fn port(&self) -> u16 {
        self.route.endpoints.first().map_or(5432, |e| e.port)
    }
}

/// Whence the password comes. What the connection string or a person at the terminal gives counts most, then a command, then
/// the service file and PGPASSWORD, then `.pgpass`.
fn password(s: &Settings, given: &Given, env: &Env<'_>) -> Result<(Source, Vec<String>)> {
    let mut warnings = Vec::new();
    let origin = s.origin("password");
    let mut seen = |what: &str, instead: &str| {
        warnings.push(format!(
            "a {what} on the command line can be seen by everybody on this machine: {instead}"
        ));
    };
    if origin == Some(Origin::String) {
        seen(
            "password",
            "use ~/.pgpass, PGPASSWORD or --password-command",
        );
    }
    if s.origin("sslpassword") == Some(Origin::String) {
        seen(
            "pass phrase",
            "leave it out and answer the question, or use pg_service.conf",
        );
    }
    let explicit = matches!(origin, Some(Origin::String | Origin::Flag));
    if let (false, Some((command, seconds))) = (explicit, &given.command) {
        let limit = Duration::try_from_secs_f64(*seconds)
            .context("the time for the password command is no time")?;
        return Ok((Source::Command(command.clone(), limit), warnings));
    }
    if let Some(known) = s.text("password") {
        return Ok((Source::Known(super::Secret::new(known)), warnings));
    }
    let file = s.text("passfile").map(PathBuf::from);
    let Some(file) = file.or_else(|| settings::home(env).map(|h| h.join(".pgpass"))) else {
        return Ok((Source::Nobody, warnings));
    };
    warnings.extend(passfile::refused(&file));
    Ok((Source::File(file), warnings))
}

/// libpq takes the name of the process's user, whatever USER says.
fn login_name() -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    user.ok().flatten().map(|u| u.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(string: &str, env: &[(&str, &str)]) -> Result<Target> {
        let given = Given {
            string: Some(string.into()),
            command: (string.contains("command")).then(|| ("echo x".into(), 10.0)),
            ..Given::default()
        };
        Target::read(&given, &|name| {
            let found = env.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| v.to_string())
        })
    }

    #[test]
    fn knows_what_is_local() {
        for (dsn, local) in [
            ("postgres://u@localhost/d", true),
            ("postgres://u@127.0.0.1/d", true),
            ("host=/tmp user=u", true),
            ("host=@jobs user=u", true),
            ("postgres://u@db.internal/d", false),
            ("host=localhost,db user=u", false),
            ("host=localhost hostaddr=10.0.0.1 user=u", false),
        ] {
            assert_eq!(read(dsn, &[]).expect(dsn).local, local, "{dsn}");
        }
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let target = read("postgres://u:s3cret@h/d", &[]).expect("reads");
        assert!(!format!("{target:?}").contains("s3cret"));
        assert_eq!(target.warnings.len(), 1);
        let target = read("postgres://u@h/d", &[("PGPASSWORD", "s3cret")]).expect("reads");
        assert!(!format!("{target:?}").contains("s3cret"));
        assert!(target.warnings.is_empty());
        let mut config = Config::new();
        config.host("h").password("s3cret");
        let target = Target::new(config).expect("reads");
        assert!(!format!("{target:?}").contains("s3cret"));
        for wrong in [
            "postgres://u:s3cret@h:notaport/d",
            "postgres://u:s3cret/@h/d",
            "postgres://u:12345/s3cret@h/d",
            "host=h password=a s3cret",
            "host=h port=s3cret",
            "host=h sslmode=s3cret",
            "host=h connect_timeout=s3cret",
        ] {
            let text = format!("{:#}", read(wrong, &[]).expect_err(wrong));
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_command_comes_after_what_is_typed_and_before_what_is_kept() {
        let source = |dsn: &str| {
            let target = read(dsn, &[("PGPASSWORD", "p"), ("HOME", "/nonexistent")]);
            format!("{:?}", target.expect(dsn).route.password)
        };
        assert!(source("host=h user=command password=p").starts_with("Known"));
        assert!(source("host=h user=command").starts_with("Command"));
        assert!(source("host=h user=u").starts_with("Known"));
        let target = read("host=h user=u", &[("HOME", "/nonexistent")]).expect("reads");
        assert!(matches!(&target.route.password, Source::File(f) if f.ends_with(".pgpass")));
    }
}
