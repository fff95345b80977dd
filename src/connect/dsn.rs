//! Where to connect: a URL or key=value string, filled up from libpq's environment variables.

use anyhow::{Context, Result, bail};
use std::env::var;
use std::path::PathBuf;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// A server and database to connect to.
#[derive(Clone, Debug)]
pub struct Target {
    /// For tokio-postgres; session settings are added when connecting.
    pub config: Config,
    /// Host name, address or socket directory, for the header and for dialogs.
    pub host: String,
    /// This machine: a socket or a loopback address.
    pub local: bool,
}

impl Target {
    /// Reads a URL or a key=value string; what it leaves out comes from PGHOST, PGPORT, PGDATABASE, PGUSER,
    /// PGPASSWORD, then from libpq's defaults (the local socket, the user's own name).
    pub fn parse(dsn: Option<&str>) -> Result<Self> {
        let dsn = dsn.unwrap_or_default();
        let mut config: Config = dsn.parse().map_err(|e: tokio_postgres::Error| {
            anyhow::anyhow!(
                "the connection string cannot be read ({}): give postgres://USER@HOST:PORT/DATABASE or key=value pairs",
                crate::connect::Fault::from(e)
            )
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            match var("PGHOST").ok().filter(|h| !h.is_empty()) {
                Some(host) => config.host(&host),
                None => config.host_path(default_socket_dir()),
            };
        }
        if config.get_ports().is_empty()
            && let Ok(port) = var("PGPORT")
        {
            config.port(
                port.parse().with_context(|| {
                    format!("PGPORT is {port:?}: give a number from 1 to 65535")
                })?,
            );
        }
        if config.get_user().is_none() {
            let user = var("PGUSER")
                .or_else(|_| var("USER"))
                .or_else(|_| var("LOGNAME"));
            let user = user.or_else(|_| {
                login_name().context("no user name is known: give one in the URL or in PGUSER")
            })?;
            config.user(&user);
        }
        if config.get_dbname().is_none() {
            let dbname = var("PGDATABASE")
                .ok()
                .or(config.get_user().map(String::from));
            config.dbname(dbname.unwrap_or_default());
        }
        if config.get_password().is_none()
            && let Ok(password) = var("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(std::time::Duration::from_secs(5));
        }
        Self::new(config)
    }

    /// A target from a ready configuration.
    pub fn new(config: Config) -> Result<Self> {
        let host = match config.get_hosts() {
            [Host::Tcp(name), ..] => name.clone(),
            [Host::Unix(path), ..] => path.display().to_string(),
            [] => match config.get_hostaddrs() {
                [address, ..] => address.to_string(),
                [] => bail!("no host is known: give one in the URL or in PGHOST"),
            },
        };
        let local = config.get_hosts().iter().all(|h| match h {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                name == "localhost"
                    || name
                        .parse()
                        .is_ok_and(|a: std::net::IpAddr| a.is_loopback())
            }
        }) && config.get_hostaddrs().iter().all(|a| a.is_loopback());
        if config.get_ssl_mode() == SslMode::Require
            && !config
                .get_hosts()
                .iter()
                .all(|h| matches!(h, Host::Unix(_)))
        {
            bail!("sslmode=require is not supported yet: use an ssh tunnel and sslmode=disable");
        }
        Ok(Self {
            config,
            host,
            local,
        })
    }
}

/// Where Debian, then everybody else, puts the server's socket.
fn default_socket_dir() -> PathBuf {
    let debian = PathBuf::from("/var/run/postgresql");
    if debian.is_dir() {
        debian
    } else {
        "/tmp".into()
    }
}

fn login_name() -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    user.ok().flatten().map(|u| u.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_is_local() {
        for (dsn, local) in [
            ("postgres://u@localhost/d", true),
            ("postgres://u@127.0.0.1/d", true),
            ("host=/tmp user=u", true),
            ("postgres://u@db.internal/d", false),
            ("host=localhost,db user=u", false),
        ] {
            assert_eq!(Target::parse(Some(dsn)).expect(dsn).local, local, "{dsn}");
        }
    }

    #[test]
    fn a_bad_string_is_one_sentence_without_the_password() {
        let error = Target::parse(Some("postgres://u:s3cret@h:notaport/d")).expect_err("refused");
        let text = format!("{error:#}");
        assert!(text.contains("postgres://USER@HOST"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
