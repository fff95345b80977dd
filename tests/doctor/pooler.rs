//! Something on the way to the server that drops the options of a session, as poolers do.

use jobtop::demo::cluster::Cluster;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

/// Listens on a port of its own.
pub fn listen(cluster: &Cluster) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let socket = cluster
        .socket_dir()
        .join(format!(".s.PGSQL.{}", cluster.port()));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = UnixStream::connect(&socket).expect("the server");
            std::thread::spawn(move || carry(client, server));
        }
    });
    port
}

fn carry(mut client: TcpStream, mut server: UnixStream) {
    let mut startup = packet(&mut client);
    // a request for encryption comes first: there is none here
    if startup[..4] == 80_877_103_u32.to_be_bytes() {
        client.write_all(b"N").expect("answered");
        startup = packet(&mut client);
    }
    let startup = without_options(&startup);
    let length = (startup.len() as u32 + 4).to_be_bytes();
    server
        .write_all(&[&length, &startup[..]].concat())
        .expect("sent");
    let (mut up, mut down) = (
        client.try_clone().expect("a reader"),
        server.try_clone().expect("a writer"),
    );
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut up, &mut down);
        let _ = down.shutdown(std::net::Shutdown::Both);
    });
    let _ = std::io::copy(&mut server, &mut client);
}

/// A message without a type: its length, itself included, then what follows.
fn packet(from: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    from.read_exact(&mut length).expect("a length");
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    from.read_exact(&mut body).expect("a message");
    body
}

/// Version, then names and values that each end in a zero, then a zero.
fn without_options(startup: &[u8]) -> Vec<u8> {
    let (version, rest) = startup.split_at(4);
    let mut kept = version.to_vec();
    let mut words = rest.split(|b| *b == 0);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        if !name.is_empty() && name != b"options" {
            kept.extend([name, b"\0", value, b"\0"].concat());
        }
    }
    kept.push(0);
    kept
}
