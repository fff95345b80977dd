//! The places where a server may be: hosts, ports and addresses, each list with a comma, as libpq pairs them up.

use super::settings::Settings;
use anyhow::{Result, bail, ensure};
use std::path::{Path, PathBuf};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Where one server may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As it was given: a name, an address, a socket directory; for the screen, for certificates and for `.pgpass`.
    pub host: String,
    /// How to get there.
    pub way: Way,
    /// Port, also in the name of a socket.
    pub port: u16,
}

/// How to get to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// A socket in this directory.
    Socket(PathBuf),
    /// A socket of Linux without a file, by this name (without its port, and without the `@`).
    Abstract(String),
    /// TCP to this name or address.
    Tcp(String),
}

impl Endpoint {
    /// `host:port`, for messages.
    pub fn place(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// `host` as libpq reads it, `address` where `hostaddr` is given too.
    fn new(host: &str, address: &str, port: u16) -> Self {
        let way = if !address.is_empty() {
            Way::Tcp(address.into())
        } else if host.is_empty() {
            Way::Socket(default_directory())
        } else if host.starts_with('/') {
            Way::Socket(host.into())
        } else if let Some(name) = host.strip_prefix('@') {
            Way::Abstract(name.into())
        } else {
            Way::Tcp(host.into())
        };
        let host = match (&way, host) {
            (Way::Socket(directory), "") => directory.display().to_string(),
            (_, "") => address.to_string(),
            (_, host) => host.to_string(),
        };
        Self { host, way, port }
    }

    /// The endpoints of the settings, at least one.
    pub fn list(settings: &Settings) -> Result<Vec<Self>> {
        let hosts = split(settings.text("host"));
        let addresses = split(settings.text("hostaddr"));
        let ports = split(settings.text("port"));
        let n = hosts.len().max(addresses.len()).max(1);
        ensure!(
            hosts.is_empty() || addresses.is_empty() || hosts.len() == addresses.len(),
            "there are {} hosts and {} addresses in hostaddr: give as many of the one as of the other",
            hosts.len(),
            addresses.len()
        );
        ensure!(
            ports.len() <= 1 || ports.len() == n,
            "there are {n} hosts and {} ports: give one port for all, or one for each",
            ports.len()
        );
        let nth = |list: &[&str], at: usize| list.get(at).map_or(String::new(), |s| s.to_string());
        let mut found = Vec::new();
        for at in 0..n {
            let port = ports.get(if ports.len() == 1 { 0 } else { at });
            let (host, address) = (nth(&hosts, at), nth(&addresses, at));
            ensure!(
                !host.contains('@') || host.starts_with('@'),
                "a host has an @ in its name: write the @ of a user name or password in a URL as %40"
            );
            let ip = address.split('%').next().unwrap_or_default();
            ensure!(
                address.is_empty() || ip.parse::<std::net::IpAddr>().is_ok(),
                "hostaddr is no IP address: give one, or the name in host"
            );
            found.push(Self::new(&host, &address, number(port.copied())?));
        }
        Ok(found)
    }

    /// The endpoints of a ready configuration.
    pub fn of(config: &Config) -> Vec<Self> {
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        let ports = config.get_ports();
        let one = |at: usize| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            let host = match hosts.get(at) {
                Some(Host::Tcp(name)) => name.clone(),
                Some(Host::Unix(path)) => path.display().to_string(),
                None => String::new(),
            };
            let address = addresses.get(at).map_or(String::new(), |a| a.to_string());
            Self::new(&host, &address, port)
        };
        (0..hosts.len().max(addresses.len())).map(one).collect()
    }

    /// A socket: no network, and never TLS.
    pub fn socket(&self) -> bool {
        !matches!(self.way, Way::Tcp(_))
    }

    /// On this machine: a socket or a loopback address.
    pub fn local(&self) -> bool {
        match &self.way {
            Way::Tcp(name) => {
                let address = name.parse::<std::net::IpAddr>();
                name == "localhost" || address.is_ok_and(|a| a.is_loopback())
            }
            _ => true,
        }
    }

    /// The host as `.pgpass` has it.
    pub fn in_passfile(&self) -> &str {
        match &self.way {
            Way::Socket(directory) if *directory == default_directory() => "localhost",
            _ => &self.host,
        }
    }
}

fn split(text: Option<&str>) -> Vec<&str> {
    text.map_or(Vec::new(), |t| t.split(',').map(str::trim).collect())
}

fn number(port: Option<&str>) -> Result<u16> {
    match port.filter(|p| !p.is_empty()).map(str::parse) {
        None => Ok(5432),
        Some(Ok(port @ 1..)) => Ok(port),
        // not repeated: it may be a piece of a password with a colon
        _ => bail!(
            "a port is no number from 1 to 65535; in a URL, write a : in a user name or password as %3A and a / as %2F"
        ),
    }
}

/// Where Debian, then everybody else, puts the server's socket.
fn default_directory() -> PathBuf {
    let debian = Path::new("/var/run/postgresql");
    if debian.is_dir() {
        debian
    } else {
        Path::new("/tmp")
    }
    .to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::settings::Given;

    fn list(string: &str) -> Result<Vec<String>> {
        let given = Given {
            string: Some(string.into()),
            ..Given::default()
        };
        let settings = Settings::gather(&given, &|_| None)?;
        let list = Endpoint::list(&settings)?;
        let words = |e: &Endpoint| match &e.way {
            Way::Socket(directory) => format!("{}+{}", directory.display(), e.port),
            Way::Abstract(name) => format!("@{name}+{}", e.port),
            Way::Tcp(name) => format!("{}>{name}+{}", e.host, e.port),
        };
        Ok(list.iter().map(words).collect())
    }

    #[test]
    fn hosts_ports_and_addresses_are_paired_up() {
        let here = format!("{}+5432", default_directory().display());
        for (string, expected) in [
            ("", vec![here.as_str()]),
            ("host=h", vec!["h>h+5432"]),
            ("host=a,b port=1", vec!["a>a+1", "b>b+1"]),
            ("host=a,b port=1,2", vec!["a>a+1", "b>b+2"]),
            ("host=a,b port=1,", vec!["a>a+1", "b>b+5432"]),
            ("host=a, hostaddr=", vec!["a>a+5432", here.as_str()]),
            ("host=a,b hostaddr=::1,", vec!["a>::1+5432", "b>b+5432"]),
            ("hostaddr=10.0.0.1 port=7", vec!["10.0.0.1>10.0.0.1+7"]),
            ("host=/s,@x,::1", vec!["/s+5432", "@x+5432", "::1>::1+5432"]),
            ("postgres://[::1]:7,h/d", vec!["::1>::1+7", "h>h+5432"]),
        ] {
            assert_eq!(list(string).expect(string), expected, "{string}");
        }
        for string in [
            "host=a,b port=1,2,3",
            "host=a,b hostaddr=::1",
            "host=a port=0",
            "host=a port=65536",
            "host=a port=x",
            "hostaddr=localhost",
            "host=s3cret@h",
        ] {
            let error = list(string).expect_err(string).to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
