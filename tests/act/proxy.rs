//! A line to the server that can lose the answer to a commit.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// What happens to the next COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Next {
    /// It goes through.
    Passes = 0,
    /// The server gets it, and its answer is lost with the line.
    AnswerLost = 1,
    /// The line is lost before the server gets it.
    NeverSent = 2,
    /// The server does not get it, and the line stays as it is; until it passes again, nobody gets another line.
    Kept = 3,
}

/// The line.
pub struct Proxy {
    next: Arc<AtomicU8>,
    /// Where it listens, on this machine.
    pub port: u16,
}

impl Proxy {
    /// Listens on a port of its own.
    pub async fn to(socket_dir: &Path, server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let next = Arc::new(AtomicU8::new(Next::Passes as u8));
        let socket = socket_dir.join(format!(".s.PGSQL.{server_port}"));
        let flag = next.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if flag.load(Ordering::SeqCst) == Next::Kept as u8 {
                    continue;
                }
                tokio::spawn(carry(client, socket.clone(), flag.clone()));
            }
        });
        Self { next, port }
    }

    /// What happens to the next COMMIT; the one after it passes.
    pub fn next(&self, next: Next) {
        self.next.store(next as u8, Ordering::SeqCst);
    }

    /// Nothing happens to the next COMMIT: what was to happen to one has happened.
    pub fn done(&self) -> bool {
        self.next.load(Ordering::SeqCst) == Next::Passes as u8
    }
}

async fn carry(client: TcpStream, socket: PathBuf, next: Arc<AtomicU8>) {
    let Ok(server) = UnixStream::connect(socket).await else {
        // it is down: so is the line
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut up = vec![0; 1 << 16];
    let mut down = vec![0; 1 << 16];
    loop {
        tokio::select! {
            n = from_client.read(&mut up) => {
                let n = n.unwrap_or(0);
                if n == 0 {
                    return;
                }
                let commit = up[..n].windows(7).any(|w| w == b"COMMIT\0");
                let what = match commit {
                    true if next.load(Ordering::SeqCst) == Next::Kept as u8 => continue,
                    true => next.swap(Next::Passes as u8, Ordering::SeqCst),
                    false => Next::Passes as u8,
                };
                if what == Next::NeverSent as u8 || to_server.write_all(&up[..n]).await.is_err() {
                    return;
                }
                if what == Next::AnswerLost as u8 {
                    // it has been committed when the answer is here
                    let _ = from_server.read(&mut down).await;
                    return;
                }
            }
            n = from_server.read(&mut down) => {
                let n = n.unwrap_or(0);
                if n == 0 || to_client.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}
