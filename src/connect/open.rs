//! Opens one connection: host after host, address after address, as libpq does it.

use super::attempt::Attempt;
use super::gate::Gate;
use super::target::{Attrs, Target};
use super::wire::Wire;
use super::{Fault, reasons};
use rand::seq::SliceRandom;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection};
use tokio_postgres_rustls::MakeRustlsConnect;

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
    /// Why it is not encrypted, where that was tried.
    pub unencrypted: Option<Fault>,
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
                let mut attempt = Attempt::new(self.clone(), endpoint);
                match attempt.everywhere(&config, attrs).await {
                    Ok(opened) => return Ok(opened),
                    Err(miss) if miss.next => misses.push((name, miss.fault)),
                    Err(miss) => return Err(miss.fault),
                }
            }
        }
        Err(reasons::everywhere(misses))
    }
}
