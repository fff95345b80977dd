//! The line to one endpoint: a TCP stream or a Unix socket, with the keepalives that libpq sets.

use super::Fault;
use super::endpoint::{Endpoint, Way};
use super::settings::Settings;
use anyhow::{Result, bail};
use rand::seq::SliceRandom;
use socket2::{SockRef, TcpKeepalive};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio_util::either::Either;

/// A line, of whichever kind.
pub type Wire = Either<TcpStream, UnixStream>;

/// What keeps a TCP line from being taken for alive.
#[derive(Clone, Debug, Default)]
pub struct Keepalive {
    off: bool,
    idle: Option<Duration>,
    interval: Option<Duration>,
    count: Option<u32>,
    /// libpq's `tcp_user_timeout`, in milliseconds there.
    user_timeout: Option<Duration>,
}

impl Keepalive {
    /// As the settings have it. Zero and less is the system's own value.
    pub fn read(settings: &Settings) -> Result<Self> {
        let some = |key: &str| -> Result<Option<u64>> {
            let number = settings.number(key)?.filter(|n| *n > 0);
            Ok(number.and_then(|n| u64::try_from(n).ok()))
        };
        let seconds = |key: &str| some(key).map(|n| n.map(Duration::from_secs));
        Ok(Self {
            off: settings.number("keepalives")? == Some(0),
            idle: seconds("keepalives_idle")?,
            interval: seconds("keepalives_interval")?,
            count: match some("keepalives_count")?.map(u32::try_from) {
                Some(Err(_)) => bail!("keepalives_count is too large"),
                count => count.transpose()?,
            },
            user_timeout: some("tcp_user_timeout")?.map(Duration::from_millis),
        })
    }

    fn set(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(self.user_timeout)?;
        if self.off {
            return Ok(());
        }
        socket.set_keepalive(true)?;
        let mut keepalive = TcpKeepalive::new();
        if let Some(idle) = self.idle {
            keepalive = keepalive.with_time(idle);
        }
        if let Some(interval) = self.interval {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(count) = self.count {
            keepalive = keepalive.with_retries(count);
        }
        socket.set_tcp_keepalive(&keepalive)
    }
}

/// An address of an endpoint.
#[derive(Clone, Debug)]
pub enum Address {
    /// The endpoint's socket.
    Socket,
    /// One of the addresses that its name has.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket => f.write_str("a socket"),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// The addresses of an endpoint, in any order where load is to be balanced.
pub async fn addresses(endpoint: &Endpoint, shuffle: bool) -> io::Result<Vec<Address>> {
    let Way::Tcp(name) = &endpoint.way else {
        return Ok(vec![Address::Socket]);
    };
    let found = lookup_host((name.as_str(), endpoint.port)).await?;
    let mut found: Vec<Address> = found.map(Address::Tcp).collect();
    if shuffle {
        found.shuffle(&mut rand::rng());
    }
    Ok(found)
}

/// Is the process at the other end of a socket that user's? libpq asks this of nothing but sockets.
pub fn belongs_to(wire: &Wire, user: &str) -> Result<(), Fault> {
    let Either::Right(socket) = wire else {
        return Ok(());
    };
    let unknown = |why: &dyn std::fmt::Display| {
        Fault::own(format!(
            "requirepeer={user} cannot be checked: {why}; leave it out"
        ))
    };
    let uid = socket.peer_cred().map_err(|e| unknown(&e))?.uid();
    let found = nix::unistd::User::from_uid(uid.into()).map_err(|e| unknown(&e))?;
    match found {
        Some(found) if found.name == user => Ok(()),
        Some(found) => Err(Fault::own(format!(
            "the server runs as {}, and requirepeer asks for {user}: is it the right socket?",
            found.name
        ))),
        None => Err(unknown(&format!("user id {uid} has no name"))),
    }
}

/// Opens a line.
pub async fn open(
    endpoint: &Endpoint,
    address: &Address,
    keepalive: &Keepalive,
) -> io::Result<Wire> {
    let file = format!(".s.PGSQL.{}", endpoint.port);
    Ok(match (address, &endpoint.way) {
        (Address::Tcp(address), _) => {
            let stream = TcpStream::connect(address).await.map_err(in_words)?;
            keepalive.set(&stream)?;
            Either::Left(stream)
        }
        (_, Way::Socket(directory)) => Either::Right(socket(directory.join(file)).await?),
        // tokio takes a path that begins with a zero byte for such a name
        (_, Way::Abstract(name)) => Either::Right(socket(format!("\0{name}/{file}")).await?),
        (Address::Socket, Way::Tcp(_)) => return Err(io::ErrorKind::InvalidInput.into()),
    })
}

async fn socket(path: impl AsRef<Path>) -> io::Result<UnixStream> {
    UnixStream::connect(path).await.map_err(in_words)
}

/// What the system says of a server that is not there, for those who do not know its words by heart.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("nothing listens there: {error}"))
        }
        _ => error,
    }
}
