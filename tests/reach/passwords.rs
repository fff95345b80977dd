//! Passwords: from files and commands, anew for each connection.

use crate::server::server;
use jobtop::connect::session::Purpose;
use jobtop::connect::{Given, Session, Target};
use std::os::unix::fs::PermissionsExt;

fn put(path: &std::path::Path, text: &str, mode: u32) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_file_is_read_as_libpq_does() {
    let server = server();
    let here = server.directory("pgpass");
    let path = here.join("pass");
    let p = server.port;
    let file = path.display().to_string();
    let env = [("PGPASSFILE", file.as_str())];
    let right = r"s3cret\:\\";
    for (text, mode, fine) in [
        (format!("127.0.0.1:{p}:app:scram:{right}\n"), 0o600, true),
        (format!("*:*:*:*:{right}"), 0o600, true),
        (format!("*:*:*:scram:{right}:what follows\r\n"), 0o400, true),
        (r"*:*:*:scram:s3cret:\\".into(), 0o600, false),
        (
            format!("# *:*:*:*:no\n\nlocalhost:*:*:*:no\n127.0.0.1:*:app:*:{right}\n"),
            0o600,
            true,
        ),
        (format!("*:*:*:*:no\n*:*:*:*:{right}\n"), 0o600, false),
        (
            format!("127.0.0.1:{p}:postgres:scram:{right}\n"),
            0o600,
            false,
        ),
        (format!("*:*:*:*:{right}"), 0o640, false),
        (format!("*:*:*:*:{right}"), 0o604, false),
        ("*:*:*:*:\n".into(), 0o600, false),
    ] {
        put(&path, &text, mode);
        let string = format!("host=127.0.0.1 port={p} user=scram dbname=app");
        let ours = server.string(&string, &env, "SELECT current_user").await;
        let theirs = server.psql(&["-d", &string], &env, "SELECT current_user");
        assert_eq!(ours.is_ok(), fine, "{text}: {ours:?}");
        assert_eq!(theirs.is_ok(), fine, "{text}: {theirs:?}");
        if let Err(error) = ours {
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
    // PGPASSWORD counts more than the file
    put(&path, "*:*:*:*:no\n", 0o600);
    let env = [("PGPASSFILE", file.as_str()), ("PGPASSWORD", "s3cret:\\")];
    let string = format!("host=127.0.0.1 port={p} user=clear dbname=app");
    server
        .string(&string, &env, "SELECT 1")
        .await
        .expect("logged in");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_password_the_error_says_how_to_give_one() {
    let server = server();
    for user in ["scram", "clear"] {
        let string = format!("host=127.0.0.1 port={} user={user} dbname=app", server.port);
        let error = server
            .string(&string, &[], "SELECT 1")
            .await
            .expect_err("refused");
        assert!(error.contains("--password-command"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gives_each_connection_its_own_token() {
    let server = server();
    let here = server.directory("token");
    let token = here.join("token");
    let count = here.join("count");
    server.sql("SET password_encryption = 'scram-sha-256'; CREATE ROLE rotating LOGIN PASSWORD 'first'; GRANT CONNECT ON DATABASE app TO rotating").await;
    let hba = server
        .home
        .parent()
        .expect("a root")
        .join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).expect("rules");
    std::fs::write(
        &hba,
        format!("host all rotating 127.0.0.1/32 scram-sha-256\n{rules}"),
    )
    .expect("written");
    server.sql("SELECT pg_reload_conf()").await;
    let given = Given {
        string: Some(format!(
            "host=127.0.0.1 port={} user=rotating dbname=app",
            server.port
        )),
        command: Some((
            format!(
                "echo $PGUSER >> {}; cat {}",
                count.display(),
                token.display()
            ),
            60.0,
        )),
        ..Given::default()
    };
    let target = Target::read(&given, &|_| None).expect("a target");
    let open = async || Session::open(&target, Purpose::Poll, "jobtop").await;
    // until the rule is in force, anything goes
    put(&token, "wrong\n", 0o600);
    let refused = loop {
        match open().await {
            Ok(session) => session.close().await,
            Err(fault) => break fault,
        }
    };
    assert!(
        refused.is("28P01") && !refused.to_string().contains("wrong"),
        "{refused}"
    );
    put(&token, "first\n", 0o600);
    put(&count, "", 0o600);
    let session = open().await.expect("with the first token");
    server
        .sql("SET password_encryption = 'scram-sha-256'; ALTER ROLE rotating PASSWORD 'second'")
        .await;
    put(&token, "second", 0o600);
    open().await.expect("with the second token").close().await;
    session.close().await;
    let asked = std::fs::read_to_string(&count).expect("a count");
    assert_eq!(asked, "rotating\nrotating\n");
    std::fs::remove_file(&token).expect("removed");
    let fault = open().await.err().expect("no token").to_string();
    assert!(
        fault.contains("the password command failed with exit code 1: cat: "),
        "{fault}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_not_run_for_a_server_that_is_not_there() {
    let server = server();
    let mark = server.directory("unused").join("mark");
    let given = Given {
        string: Some("host=127.0.0.1 port=1 user=u dbname=d".into()),
        command: Some((format!("touch {}", mark.display()), 60.0)),
        ..Given::default()
    };
    let target = Target::read(&given, &|_| None).expect("a target");
    let fault = Session::open(&target, Purpose::Poll, "jobtop")
        .await
        .err()
        .expect("nobody there");
    assert!(fault.message.contains("refused"), "{fault}");
    assert!(!mark.exists());
}
