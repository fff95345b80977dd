//! One endpoint tried: address after address, with TLS and without.

use super::endpoint::Endpoint;
use super::gate::{Gate, Gated};
use super::open::{Opened, Reached};
use super::password::Source;
use super::person::Lack;
use super::suits::suits;
use super::target::{Attrs, Target};
use super::tls::{self, Locked, Mode};
use super::wire::{self, Address, Wire};
use super::{Fault, Secret, advice, reasons};
use crate::log::told;
use rustls::pki_types::ServerName;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::{error, info};

/// Why one endpoint did not do, and whether the next may be tried: not where a server answered and said no.
pub(super) struct Miss {
    pub(super) fault: Fault,
    pub(super) next: bool,
}

/// The two ways of `sslmode=prefer` and `allow`.
const WITH: &str = "with TLS";
const WITHOUT: &str = "without TLS";

impl Miss {
    /// The second way failed as well as the first.
    fn after(self, first: Fault, way: &str, other_way: &str) -> Self {
        Self {
            fault: reasons::both_ways((way, first), (other_way, self.fault)),
            ..self
        }
    }
}

/// One endpoint, tried.
pub(super) struct Attempt {
    target: Target,
    endpoint: Endpoint,
    /// Asked for once an endpoint, and only when somebody listens there.
    password: Option<Option<Secret>>,
}

impl Attempt {
    pub(super) fn new(target: Target, endpoint: Endpoint) -> Self {
        Self {
            target,
            endpoint,
            password: None,
        }
    }

    /// At each of its addresses.
    pub(super) async fn everywhere(
        &mut self,
        config: &Config,
        attrs: Attrs,
    ) -> Result<Opened, Miss> {
        let miss = |fault, next| Miss { fault, next };
        let route = self.target.route.clone();
        let addresses = within(route.limit, wire::addresses(&self.endpoint, route.shuffle)).await;
        let addresses = addresses.map_err(|fault| {
            let (host, reason) = (self.endpoint.host.as_str(), told(&fault));
            error!(host, reason, "the host's name is not known");
            miss(fault, true)
        })?;
        let mut misses: Vec<(String, Fault)> = Vec::new();
        for address in addresses {
            self.announce(&address, config, attrs);
            let tried = self.suitable(&address, config, attrs).await;
            self.tell(&tried);
            match tried {
                Ok(opened) => return Ok(opened),
                Err(missed) if missed.next => misses.push((address.to_string(), missed.fault)),
                missed => return missed,
            }
        }
        if misses.is_empty() {
            return Err(miss(Fault::own("the host's name has no address"), true));
        }
        Err(miss(reasons::addresses(misses), true))
    }

    /// Says in the log where is connected to, as whom and how. Options may hold secrets, and are left out.
    fn announce(&self, address: &Address, config: &Config, attrs: Attrs) {
        let sslmode = match address {
            Address::Socket => None,
            Address::Tcp(_) => Some(self.target.route.tls.mode),
        };
        info!(
            host = self.endpoint.host,
            port = self.endpoint.port,
            address = address.to_string(),
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
                if let Some(reason) = opened.reached.unencrypted.as_ref().map(told) {
                    error!(host, reason, "TLS failed: going on without it");
                }
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
                    let tried = self.protected(address, config, SslMode::Require).await;
                    tried.map_err(|last| last.after(miss.fault, WITHOUT, WITH))
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
                    match self.protected(address, config, SslMode::Disable).await {
                        Ok(mut opened) => {
                            opened.reached.unencrypted = Some(miss.fault);
                            Ok(opened)
                        }
                        Err(last) => Err(last.after(miss.fault, WITH, WITHOUT)),
                    }
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
        let direct = route.tls.direct && mode == SslMode::Require;
        if direct {
            config.ssl_negotiation(SslNegotiation::Direct);
        }
        if let Some(password) = self.secret().await.map_err(last)? {
            config.password(password.reveal());
        }
        let host = self.server_name(address).map_err(last)?;
        let connector =
            MakeTlsConnect::<Gate<Wire>>::make_tls_connect(&mut MakeRustlsConnect::new(tls), &host);
        let connector = Gated {
            inner: connector.map_err(|e| own(e.into()))?,
            rule: route.rule.clone(),
        };
        let ask = mode != SslMode::Disable && !direct;
        let gate = Gate::outer(wire, route.rule.clone(), mode, ask);
        let login = config.connect_raw(gate, connector);
        let (client, line) = match limited(route.limit, login).await {
            Some(Ok(opened)) => opened,
            Some(Err(error)) => return Err(self.missed(&error, &witness)),
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
        let version = line.parameter("server_version").unwrap_or_default();
        if version.ends_with("/bouncer") {
            return Err(last(Fault::own(advice::CONSOLE)));
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
                unencrypted: None,
            },
        })
    }

    /// The name that the server's certificate is to be for. Where that is not looked at, a host that has no such name goes by
    /// its address.
    fn server_name(&self, address: &Address) -> Result<String, Fault> {
        let host = &self.endpoint.host;
        match (ServerName::try_from(host.as_str()), address) {
            (Err(_), Address::Tcp(at)) if self.target.route.tls.mode < Mode::VerifyFull => {
                Ok(at.ip().to_string())
            }
            (Err(_), Address::Tcp(_)) => Err(Fault::own(format!(
                "no certificate can be for {host}: connect by another name, or use sslmode=verify-ca"
            ))),
            _ => Ok(host.clone()),
        }
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

    fn missed(&self, error: &tokio_postgres::Error, witness: &tls::Witness) -> Miss {
        let handshake = error
            .to_string()
            .starts_with("error performing TLS handshake");
        let direct = handshake && self.target.route.tls.direct;
        let words = tls::words(error, &self.endpoint, &self.target.route.tls, witness);
        let words = words.or_else(|| direct.then(tls::not_direct));
        let mut fault = Fault::from_ref(error);
        // with 1.3 a server that refuses our certificate says so after the handshake, and libpq does not go on without TLS then
        fault.tls = handshake;
        if fault.code.is_none() && fault.message == "password missing" {
            fault.lacks = Some(Lack::Password);
        }
        if let Some(words) = words {
            fault.message = words;
        } else if let Some(advice) = advice::login(&fault, &self.target) {
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

pub(super) fn silent() -> Fault {
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
