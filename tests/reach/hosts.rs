//! Several hosts, and what the one that is taken must be.

use crate::server::server;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_taken_for_what_it_is() {
    let server = server();
    for (user, attrs, fine) in [
        ("anybody", "any", true),
        ("anybody", "primary", true),
        ("anybody", "standby", false),
        ("anybody", "prefer-standby", true),
        // although our own session is read-only
        ("anybody", "read-write", true),
        ("anybody", "read-only", false),
        ("reader", "read-write", false),
        ("reader", "read-only", true),
    ] {
        let string = format!(
            "host=127.0.0.1,{} port={} user={user} dbname=app target_session_attrs={attrs}",
            server.socket(),
            server.port
        );
        let ours = server.string(&string, &[], "SELECT current_user").await;
        let theirs = server.psql(&["-d", &string], &[], "SELECT current_user");
        assert_eq!(ours.is_ok(), fine, "{user} {attrs}: {ours:?}");
        assert_eq!(theirs.is_ok(), fine, "{user} {attrs}: {theirs:?}");
        if let Err(error) = ours {
            // both of them, each with its reason
            assert_eq!(error.matches("target_session_attrs").count(), 2, "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_host_is_for_servers_that_are_not_there() {
    let server = server();
    let p = server.port;
    let socket = server.socket();
    for (hosts, ports, user, answer) in [
        (
            format!("127.0.0.1,{socket}"),
            format!("1,{p}"),
            "anybody",
            Ok("socket"),
        ),
        (
            format!("/nonexistent,127.0.0.1,{socket}"),
            format!("{p}"),
            "anybody",
            Ok("127.0.0.1"),
        ),
        // a server that refuses us is an answer
        (
            format!("127.0.0.1,{socket}"),
            format!("{p}"),
            "nobody",
            Err("nobody"),
        ),
    ] {
        let string = format!("host={hosts} port={ports} user={user} dbname=app");
        let question = "SELECT coalesce(host(inet_server_addr()), 'socket')";
        let ours = server.string(&string, &[], question).await;
        let theirs = server.psql(&["-d", &string], &[], question);
        match answer {
            Ok(place) => {
                assert_eq!(ours.expect(&string).1, place);
                assert_eq!(theirs.as_deref(), Ok(place));
            }
            Err(word) => {
                let error = ours.expect_err(&string);
                assert!(error.contains(word) && !error.contains(';'), "{error}");
                assert!(theirs.is_err());
            }
        }
    }
    let string = format!(
        "host=127.0.0.1,{socket} port={p} user=anybody dbname=app load_balance_hosts=random"
    );
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 2 {
        seen.insert(
            server
                .string(&string, &[], "SELECT 1")
                .await
                .expect("a connection")
                .0,
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_silent_is_left_in_time() {
    let server = server();
    // it takes connections and says nothing
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let string = format!(
        "host=127.0.0.1,127.0.0.1 port={port},{} user=anybody dbname=app connect_timeout=2",
        server.port
    );
    server
        .string(&string, &[], "SELECT 1")
        .await
        .expect("the second one");
    let string = format!("host=127.0.0.1 port={port} user=anybody dbname=app connect_timeout=1");
    let error = server
        .string(&string, &[], "SELECT 1")
        .await
        .expect_err("nobody answers");
    assert!(error.contains("does not answer"), "{error}");
}
