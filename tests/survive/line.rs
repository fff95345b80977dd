//! A network between the monitor and its server that can be cut, swallow everything, or lead to another server.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The network.
pub struct Line {
    state: Arc<State>,
    /// Where it listens, on this machine.
    pub port: u16,
}

struct State {
    to: Mutex<PathBuf>,
    open: Mutex<Vec<TcpStream>>,
    swallows: AtomicBool,
    refuses: AtomicBool,
    attempts: AtomicU32,
}

impl Line {
    /// Leads to the server that listens on this socket.
    pub fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            to: Mutex::new(socket),
            open: Mutex::default(),
            swallows: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            attempts: AtomicU32::new(0),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                shared.attempts.fetch_add(1, Ordering::SeqCst);
                shared.carry(client);
            }
        });
        Self { state, port }
    }

    /// Cuts what is open; from now on it leads there.
    pub fn switch(&self, socket: PathBuf) {
        *self.state.to.lock().expect("the way") = socket;
        self.cut();
    }

    /// Cuts what is open.
    pub fn cut(&self) {
        for client in self.state.open.lock().expect("what is open").drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Nothing arrives any more, and nobody is told; or everything that was sent meanwhile.
    pub fn swallow(&self, on: bool) {
        self.state.swallows.store(on, Ordering::SeqCst);
    }

    /// New connections are closed at once.
    pub fn refuse(&self, on: bool) {
        self.state.refuses.store(on, Ordering::SeqCst);
    }

    /// Connections that were tried so far.
    pub fn attempts(&self) -> u32 {
        self.state.attempts.load(Ordering::SeqCst)
    }
}

impl State {
    fn carry(self: &Arc<Self>, client: TcpStream) {
        let to = self.to.lock().expect("the way").clone();
        let server = match self.refuses.load(Ordering::SeqCst) {
            true => return,
            false => UnixStream::connect(to),
        };
        // as if nobody listened there
        let Ok(server) = server else { return };
        let mut open = self.open.lock().expect("what is open");
        open.push(client.try_clone().expect("a handle"));
        drop(open);
        let (up, down) = (self.clone(), self.clone());
        let (mut from, mut to) = (
            client.try_clone().expect("a reader"),
            server.try_clone().expect("a writer"),
        );
        std::thread::spawn(move || {
            up.copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let (mut from, mut to) = (server, client);
        std::thread::spawn(move || {
            down.copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }

    fn copy(&self, from: &mut impl Read, to: &mut impl Write) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            while self.swallows.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            if to.write_all(&bytes[..n]).is_err() {
                return;
            }
        }
    }
}
