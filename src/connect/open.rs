//! Opens one connection: host after host, address after address, as libpq does it.

use super::endpoint::Endpoint;
use super::gate::{Gate, Gated};
use super::password::Source;
use super::person::Lack;
use super::target::{Attrs, Target};
use super::tls::{self, Locked, Mode};
use super::wire::{self, Address, Wire};
use super::{Fault, Secret};
use crate::log::told;
use rand::seq::SliceRandom;
use std::time::Duration;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::{error, info};

/// What has to be polled for a client to get answers.
pub type Line = Connection<Gate<Wire>, Gate<Protected>>;

/// A line with TLS.
type Protected = <MakeRustlsConnect as MakeTlsConnect<Gate<Wire>>>::Stream;

/// Where a connection ended up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Host as it was given.
    pub host: String,
    /// This machine: a socket or a loopback address.
    pub local: bool,
    /// What protects it: `TLS 1.3, verified`, `TLS 1.3, not verified`, `none (socket)` or `NOT ENCRYPTED`.
    pub protection: String,
}

/// A connection.
pub struct Opened {
    /// For statements.
    pub client: Client,
    /// To be polled.
    pub line: Line,
    /// Where it goes.
    pub reached: Reached,
}

/// Why one endpoint did not do, and whether the next may be tried: not where a server answered and said no.
struct Miss {
    fault: Fault,
    next: bool,
}

impl Target {
    /// Opens a connection by the name of `application`, with options beside those of the target. Where a password is lacking,
    /// the person at the terminal is asked, and the connection tried again.
    pub async fn connect(&self, application: &str, options: &str) -> Result<Opened, Fault> {
        let user = self.config.get_user().unwrap_or_default();
        loop {
            let fault = match self.attempt(application, options).await {
                Ok(opened) => return Ok(opened),
                Err(fault) => fault,
            };
            match &fault.lacks {
                Some(lack) if self.route.person.add(lack, user).await? => {}
                _ => return Err(fault),
            }
        }
    }

    async fn attempt(&self, application: &str, options: &str) -> Result<Opened, Fault> {
        let mut config = self.config.clone();
        let application = match (&self.route.application, application.strip_prefix("jobtop")) {
            (Some(own), Some(rest)) => format!("{own}{rest}"),
            _ => application.to_string(),
        };
        config.application_name(application);
        let theirs = self.config.get_options().unwrap_or_default();
        let options = format!("{theirs} {options}");
        // an empty value would be sent as well, and poolers refuse the very name
        if !options.trim().is_empty() {
            config.options(options.trim());
        }
        let passes = match self.route.attrs {
            Attrs::PreferStandby => vec![Attrs::Standby, Attrs::Any],
            attrs => vec![attrs],
        };
        let mut misses = Vec::new();
        for attrs in passes {
            misses.clear();
            let mut endpoints = self.route.endpoints.clone();
            if self.route.shuffle {
                endpoints.shuffle(&mut rand::rng());
            }
            for endpoint in endpoints {
                let name = endpoint.place();
                let mut attempt = Attempt {
                    target: self.clone(),
                    endpoint,
                    password: None,
                };
                match attempt.everywhere(&config, attrs).await {
                    Ok(opened) => return Ok(opened),
                    Err(miss) if miss.next => misses.push((name, miss.fault)),
                    Err(miss) => return Err(miss.fault),
                }
            }
        }
        Err(together(misses))
    }
}

/// One endpoint, tried.
struct Attempt {
    target: Target,
    endpoint: Endpoint,
    /// Asked for once an endpoint, and only when somebody listens there.
    password: Option<Option<Secret>>,
}

impl Attempt {
    /// At each of its addresses.
    async fn everywhere(&mut self, config: &Config, attrs: Attrs) -> Result<Opened, Miss> {
        let miss = |fault, next| Miss { fault, next };
        let route = self.target.route.clone();
        let addresses = within(route.limit, wire::addresses(&self.endpoint, route.shuffle)).await;
        let addresses = addresses.map_err(|fault| {
            let (host, reason) = (self.endpoint.host.as_str(), told(&fault));
            error!(host, reason, "the host's name is not known");
            miss(fault, true)
        })?;
        let mut last = miss(Fault::own("the host's name has no address"), true);
        for address in addresses {
            self.announce(&address, config, attrs);
            let tried = self.suitable(&address, config, attrs).await;
            self.tell(&tried);
            match tried {
                Ok(opened) => return Ok(opened),
                Err(missed) if missed.next => last = missed,
                missed => return missed,
            }
        }
        Err(last)
    }

    /// Says in the log where is connected to, as whom and how. Options may hold secrets, and are left out.
    fn announce(&self, address: &Address, config: &Config, attrs: Attrs) {
        let (address, sslmode) = match address {
            Address::Socket => ("a socket".to_string(), None),
            Address::Tcp(address) => (address.to_string(), Some(self.target.route.tls.mode)),
        };
        info!(
            host = self.endpoint.host,
            port = self.endpoint.port,
            address,
            role = config.get_user(),
            database = config.get_dbname(),
            application = config.get_application_name(),
            sslmode = sslmode.and_then(Mode::name),
            wanted = Some(attrs)
                .filter(|a| *a != Attrs::Any)
                .and_then(Attrs::name),
            "connecting"
        );
    }

    fn tell(&self, tried: &Result<Opened, Miss>) {
        let host = self.endpoint.host.as_str();
        match tried {
            Ok(opened) => {
                let server = opened.line.parameter("server_version");
                let protection = opened.reached.protection.as_str();
                info!(host, protection, server, "logged in");
            }
            Err(Miss { fault, .. }) => {
                let (sqlstate, reason) = (fault.code.as_deref(), told(fault));
                error!(host, sqlstate, reason, "no connection");
            }
        }
    }

    async fn suitable(
        &mut self,
        address: &Address,
        config: &Config,
        attrs: Attrs,
    ) -> Result<Opened, Miss> {
        if matches!(attrs, Attrs::ReadWrite | Attrs::ReadOnly) {
            // our own options may make the session read-only: the server's word is wanted without them
            let bare = self.target.config.clone();
            let opened = self.open(address, &bare).await?;
            suits(attrs, opened).await?;
            return self.open(address, config).await;
        }
        let opened = self.open(address, config).await?;
        suits(attrs, opened).await
    }

    /// With TLS or without, as the mode has it.
    async fn open(&mut self, address: &Address, config: &Config) -> Result<Opened, Miss> {
        let mode = match self.endpoint.socket() {
            true => Mode::Disable,
            false => self.target.route.tls.mode,
        };
        match mode {
            Mode::Disable => self.protected(address, config, SslMode::Disable).await,
            Mode::Allow => match self.protected(address, config, SslMode::Disable).await {
                Err(miss) if miss.fault.is("28000") => {
                    self.protected(address, config, SslMode::Require).await
                }
                done => done,
            },
            Mode::Prefer => match self.protected(address, config, SslMode::Prefer).await {
                // a person can make the handshake succeed
                Err(miss) if miss.fault.lacks.is_some() && self.target.route.person.exists() => {
                    Err(miss)
                }
                // the handshake failed, or the server has no rule for connections with TLS
                Err(miss) if miss.fault.is("28000") || miss.fault.tls => {
                    self.protected(address, config, SslMode::Disable).await
                }
                done => done,
            },
            _ => self.protected(address, config, SslMode::Require).await,
        }
    }

    async fn protected(
        &mut self,
        address: &Address,
        config: &Config,
        mode: SslMode,
    ) -> Result<Opened, Miss> {
        let own = |error: anyhow::Error| Miss {
            fault: Fault::own(format!("{error:#}")),
            next: false,
        };
        let last = |fault| Miss { fault, next: false };
        let route = self.target.route.clone();
        let protected = match mode {
            SslMode::Disable => tls::Tls::off().config(None),
            _ => route.tls.config(route.person.phrase().as_ref()),
        };
        let (tls, witness) = protected.map_err(|error| {
            let locked = error.downcast_ref::<Locked>().map(|l| l.0.clone());
            let mut miss = own(error);
            miss.fault.tls = !route.tls.named;
            miss.fault.lacks = locked.map(Lack::Phrase);
            miss
        })?;
        let wire = wire::open(&self.endpoint, address, &route.keepalive);
        let wire = within(route.limit, wire).await;
        let wire = wire.map_err(|fault| Miss { fault, next: true })?;
        if let Some(peer) = &route.peer {
            wire::belongs_to(&wire, peer).map_err(last)?;
        }
        let mut config = config.clone();
        config.ssl_mode(mode);
        if route.tls.direct && mode == SslMode::Require {
            config.ssl_negotiation(SslNegotiation::Direct);
        }
        if let Some(password) = self.secret().await.map_err(last)? {
            config.password(password.reveal());
        }
        let host = self.endpoint.host.as_str();
        let connector =
            MakeTlsConnect::<Gate<Wire>>::make_tls_connect(&mut MakeRustlsConnect::new(tls), host);
        let connector = Gated {
            inner: connector.map_err(|e| own(e.into()))?,
            rule: route.rule.clone(),
        };
        let login = config.connect_raw(Gate::outer(wire, route.rule.clone(), mode), connector);
        let (client, line) = match limited(route.limit, login).await {
            Some(Ok(opened)) => opened,
            Some(Err(error)) => return Err(self.missed(&error)),
            None => {
                return Err(Miss {
                    fault: silent(),
                    next: true,
                });
            }
        };
        if let Some(words) = route.tls.unproved(witness.asked()) {
            return Err(last(Fault::own(words)));
        }
        let protection = match witness.words() {
            _ if self.endpoint.socket() => "none (socket)".to_string(),
            Some(words) => words,
            None => "NOT ENCRYPTED".to_string(),
        };
        Ok(Opened {
            client,
            line,
            reached: Reached {
                host: self.endpoint.host.clone(),
                local: self.endpoint.local(),
                protection,
            },
        })
    }

    async fn secret(&mut self) -> Result<Option<Secret>, Fault> {
        if self.password.is_none() {
            let route = &self.target.route;
            let given = match route.password {
                Source::Command(..) => None,
                // as with psql, it counts for every host
                _ => route.person.password(),
            };
            self.password = Some(match given {
                None => {
                    let whose = self.target.whose(&self.endpoint);
                    route.password.ask(whose).await?
                }
                given => given,
            });
        }
        Ok(self.password.clone().flatten())
    }

    fn missed(&self, error: &tokio_postgres::Error) -> Miss {
        let handshake = error
            .to_string()
            .starts_with("error performing TLS handshake");
        let direct = handshake && self.target.route.tls.direct;
        let words = tls::words(error, &self.endpoint, &self.target.route.tls);
        let words = words.or_else(|| direct.then(tls::not_direct));
        let mut fault = Fault::from_ref(error);
        fault.tls = words.is_some() || handshake;
        if fault.code.is_none() && fault.message == "password missing" {
            fault.lacks = Some(Lack::Password);
        }
        if let Some(words) = words {
            fault.message = words;
        } else if handshake_only(&fault) {
            fault.message += ": it ended before a word of Postgres: does that listen there?";
        } else if let Some(advice) = advice(&fault) {
            fault.message = format!("{}: {advice}", fault.message);
        }
        // the server repeats what it does not understand or like
        let options = self.target.config.get_options().is_some();
        if options && (fault.is("42") || fault.is("22")) {
            fault.logged = Some("the server refuses the options".into());
        }
        Miss {
            // the server is not ready, but it may be the standby of one that is
            next: fault.is("57P03"),
            fault,
        }
    }
}

/// The other side went away, or said what is no message of Postgres, while we logged in.
fn handshake_only(fault: &Fault) -> bool {
    let words = [
        "early eof",
        "bytes remaining on stream",
        "reset by peer",
        "invalid message",
    ];
    fault.code.is_none() && words.iter().any(|words| fault.message.contains(words))
}

/// What to do about a refusal.
fn advice(fault: &Fault) -> Option<&'static str> {
    let has = |text: &str| fault.message.contains(text);
    Some(match fault.code.as_deref() {
        None if has("password missing") => {
            "give one by -W, PGPASSWORD, ~/.pgpass or --password-command"
        }
        None if has("does not support TLS") => "turn ssl on there, or leave sslmode out",
        None if has("channel binding") => {
            "it needs TLS and SCRAM; else leave channel_binding=require out"
        }
        None if has("unsupported authentication method") || has("unsupported SASL mechanism") => {
            "the server asks for GSSAPI, SSPI or OAuth, which jobtop does not speak; allow scram-sha-256 or cert in pg_hba.conf"
        }
        Some("28000") if has("no encryption") => "use sslmode=require, or allow it in pg_hba.conf",
        Some("08P01") if has("options") => {
            "a pooler is on the way: leave options and PGOPTIONS out"
        }
        Some("28000") if has("client certificate") => "give sslcert=FILE and sslkey=FILE",
        _ => return None,
    })
}

/// Is it a server as is wanted?
async fn suits(attrs: Attrs, mut opened: Opened) -> Result<Opened, Miss> {
    let (question, wanted, otherwise) = match attrs {
        Attrs::Any | Attrs::PreferStandby => return Ok(opened),
        Attrs::Primary => ("SELECT pg_is_in_recovery()", false, "it is a standby"),
        Attrs::Standby => ("SELECT pg_is_in_recovery()", true, "it is no standby"),
        Attrs::ReadWrite => ("SHOW transaction_read_only", false, "it is read-only"),
        Attrs::ReadOnly => ("SHOW transaction_read_only", true, "it is not read-only"),
    };
    let answer = tokio::select! {
        answer = opened.client.simple_query(question) => answer.map_err(Fault::from),
        end = &mut opened.line => Err(end.map_or_else(Fault::from, |()| silent())),
    };
    let answer = answer.map_err(|fault| Miss { fault, next: true })?;
    let yes = answer.iter().any(|message| match message {
        SimpleQueryMessage::Row(row) => matches!(row.get(0), Some("t" | "on")),
        _ => false,
    });
    match yes == wanted {
        true => Ok(opened),
        false => Err(Miss {
            fault: Fault::own(format!(
                "{otherwise}, and target_session_attrs asks for another"
            )),
            next: true,
        }),
    }
}

fn silent() -> Fault {
    Fault::own("it does not answer")
}

async fn limited<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, Fault> {
    match limited(limit, work).await {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(Fault {
            closed: true,
            ..Fault::own(error.to_string())
        }),
        None => Err(silent()),
    }
}

/// All that were tried in vain, in one sentence.
fn together(mut misses: Vec<(String, Fault)>) -> Fault {
    if misses.len() == 1 {
        return misses.remove(0).1;
    }
    let each = |words: fn(&Fault) -> String| -> String {
        let each = misses
            .iter()
            .map(|(place, fault)| format!("{place}: {}", words(fault)));
        each.collect::<Vec<_>>().join("; ")
    };
    Fault {
        logged: Some(each(told)),
        // worth waiting for, if one of them is
        code: misses.iter().find_map(|(_, f)| f.code.clone()),
        closed: true,
        ..Fault::own(each(|fault| fault.message.clone()))
    }
}
