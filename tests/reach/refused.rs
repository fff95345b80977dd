//! Handshakes that fail, and what is done and said then.

use crate::server::{jobtop, server};
use crate::tls::{SSL, agrees};
use jobtop::connect::session::Purpose;
use jobtop::connect::{Session, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_us_gets_no_password_in_the_clear() {
    let server = server();
    let _turn = server.shows("good").await;
    let c = &server.certificates;
    let key = c.copy("impostor.key", &server.directory("refused"), 0o600);
    // the server sees it only after the handshake of 1.3
    let string = format!(
        "host=127.0.0.1 port={} user=clear password='s3cret:\\\\' dbname=app sslcert={} sslkey={key}",
        server.port,
        c.path("impostor.crt")
    );
    let error = server.string(&string, &[], SSL).await.expect_err("refused");
    assert!(
        error.contains("its authority is not in the server's ssl_ca_file"),
        "{error}"
    );
    server.psql(&["-d", &string], &[], SSL).expect_err("libpq");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_of_tls_in_common_is_not_laid_at_a_certificate() {
    let server = server();
    let _turn = server.shows("good").await;
    let string = format!(
        "host=localhost hostaddr=127.0.0.1 port={} user=anybody dbname=app sslmode=require",
        server.port
    );
    server.set("ssl_ecdh_curve = 'secp521r1'").await;
    let error = server.string(&string, &[], SSL).await;
    server.set("ssl_ecdh_curve = DEFAULT").await;
    let error = error.expect_err("nothing in common");
    assert!(error.contains("have nothing in common"), "{error}");
    server.string(&string, &[], SSL).await.expect("again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_postgres_is_not_spoken_to_in_the_clear() {
    let server = server();
    for (answer, words) in [
        (b'H', "does not speak Postgres's protocol"),
        (b'E', "answered with an error"),
    ] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let heard = tokio::spawn(async move {
            let (mut line, _) = listener.accept().await.expect("a line");
            let mut question = [0; 8];
            line.read_exact(&mut question).await.expect("asked for TLS");
            line.write_all(&[answer]).await.expect("answered");
            let mut more = Vec::new();
            let _ = line.read_to_end(&mut more).await;
            more.len()
        });
        let string = format!("host=127.0.0.1 port={port} user=anybody password=s dbname=app");
        let error = server.string(&string, &[], SSL).await.expect_err("nobody");
        assert!(error.contains(words), "{error}");
        assert_eq!(heard.await.expect("heard"), 0, "nothing more was said");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_a_name_for_certificates_has_tls_all_the_same() {
    let server = server();
    let _turn = server.shows("good").await;
    for host in ["-x.example", "/tmp/anywhere"] {
        let string = format!(
            "host={host} hostaddr=127.0.0.1 port={} user=anybody dbname=app sslmode=",
            server.port
        );
        let ours = server.string(&format!("{string}require"), &[], SSL).await;
        agrees(&ours);
        ours.expect("as libpq");
        server
            .psql(&["-d", &format!("{string}require")], &[], SSL)
            .expect("libpq");
        let full = format!(
            "{string}verify-full sslrootcert={}",
            server.certificates.path("ca.crt")
        );
        let error = server.string(&full, &[], SSL).await.expect_err("no name");
        assert!(
            error.contains(&format!("no certificate can be for {host}")),
            "{error}"
        );
        server.psql(&["-d", &full], &[], SSL).expect_err("libpq");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn going_on_without_tls_is_told_with_its_reason() {
    let server = server();
    let _turn = server.shows("expired").await;
    let string = format!(
        "host=localhost hostaddr=127.0.0.1 port={} user=anybody dbname=app sslrootcert={}",
        server.port,
        server.certificates.path("ca.crt")
    );
    let log = server.directory("unencrypted").join("log");
    let why = "the server's certificate has expired";
    let told = format!("not encrypted; with TLS: {why}");
    let path = log.to_str().expect("a path");
    let output = jobtop(server, &["--once", "--log", path, &string], &[]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(said.matches(&told).count(), 1, "{said}");
    let log = std::fs::read_to_string(log).expect("a log");
    let entry = log.lines().find(|l| l.contains("going on without it"));
    let entry = entry.expect("an entry");
    let error = entry.contains(" ERROR ") && entry.contains(&format!("reason=\"{why}"));
    assert!(error, "{entry}");
    let output = jobtop(server, &["doctor", &string], &[]);
    let page = String::from_utf8(output.stdout).expect("text");
    assert!(page.contains("TLS was tried first: the"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_cut_under_tls_is_told_in_plain_words() {
    let server = server();
    let _turn = server.shows("good").await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let here = listener.local_addr().expect("an address").port();
    let there = server.port;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let carry = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.expect("a client");
        let mut server = TcpStream::connect(("127.0.0.1", there))
            .await
            .expect("a line");
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            _ = stopped => {}
        }
        // as the system does it for a process that was killed
        client.shutdown().await.expect("the end");
        client
    });
    let string = format!("host=127.0.0.1 port={here} user=anybody dbname=app sslmode=require");
    let target = Target::parse(Some(&string)).expect("reads");
    let session = Session::open(&target, Purpose::Poll, "jobtop")
        .await
        .expect("open");
    assert!(session.reached.protection.starts_with("TLS"));
    stop.send(()).expect("heard");
    let _open = carry.await.expect("carried");
    let error = session.query("SELECT 1", &[]).await.expect_err("cut");
    assert!(error.closed, "{error:?}");
    assert_eq!(
        error.message,
        "the connection was cut: did the server's process crash?"
    );
}
