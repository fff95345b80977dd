//! Which certificates come from whom they must come from.

use crate::certificates::{BELOW, HASHED, UNFIT};
use crate::server::{jobtop, server};
use crate::tls::{SSL, agrees};

#[tokio::test(flavor = "multi_thread")]
async fn authorities_above_a_certificate_of_version_1_must_have_the_right_to_sign_it() {
    let server = server();
    for (name, taken) in BELOW {
        let _turn = server.shows(&format!("below-{name}")).await;
        let root = if name == "pinned" {
            "pinned.crt"
        } else {
            "ca.crt"
        };
        let string = format!(
            "host=localhost hostaddr=127.0.0.1 port={} user=anybody dbname=app sslmode=verify-full sslrootcert={}",
            server.port,
            server.certificates.path(root)
        );
        let ours = server.string(&string, &[], SSL).await;
        agrees(&ours);
        assert_eq!(ours.is_ok(), taken, "{name}: {ours:?}");
        let theirs = server.psql(&["-d", &string], &[], SSL);
        assert_eq!(theirs.is_ok(), taken, "{name}: libpq {theirs:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_certificate_that_is_no_authoritys_signs_nobody() {
    let server = server();
    for (name, why) in UNFIT {
        let _turn = server.shows(&format!("under-{name}")).await;
        let root = server.certificates.path(&format!("root-{name}.crt"));
        for mode in ["require", "verify-full"] {
            let string = format!(
                "host=localhost hostaddr=127.0.0.1 port={} user=anybody dbname=app sslmode={mode} sslrootcert={root}",
                server.port
            );
            let ours = server.string(&string, &[], SSL).await;
            let theirs = server.psql(&["-d", &string], &[], SSL);
            assert_eq!(
                (ours.is_ok(), theirs.is_ok()),
                (why.is_empty(), why.is_empty()),
                "{name}: {ours:?} {theirs:?}"
            );
            if let Err(error) = ours {
                assert!(error.contains(why), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_version_1_proves_itself_and_us() {
    let server = server();
    let c = &server.certificates;
    let base = format!(
        "host=localhost hostaddr=127.0.0.1 port={} dbname=app",
        server.port
    );
    {
        let _turn = server.shows("v1").await;
        for version in ["TLSv1.2", "TLSv1.3"] {
            let string =
                format!("{base} user=anybody sslmode=require ssl_max_protocol_version={version}");
            let outcome = server.string(&string, &[], SSL).await;
            agrees(&outcome);
            assert_eq!(outcome.expect("as libpq").1, version);
        }
        let bound = format!(
            "{base} user=scram password='s3cret:\\\\' sslmode=require channel_binding=require"
        );
        server
            .string(&bound, &[], SSL)
            .await
            .expect("bound to that certificate");
        let lists = format!(
            "{base} user=anybody sslmode=verify-full sslrootcert={} sslcrl={}",
            c.path("ca.crt"),
            c.path("none.crl")
        );
        let error = server
            .string(&lists, &[], SSL)
            .await
            .expect_err("not looked for");
        assert!(error.contains("made without extensions"), "{error}");
    }
    let _turn = server.shows("good").await;
    let here = server.directory("v1client");
    let key = c.copy("client.key", &here, 0o600);
    let stranger = c.copy("impostor.key", &here, 0o600);
    for (key, fine) in [(&key, true), (&stranger, false)] {
        let string = format!(
            "{base} user=certified sslmode=require sslcert={} sslkey={key}",
            c.path("v1client.crt")
        );
        let ours = server.string(&string, &[], "SELECT current_user").await;
        let theirs = server.psql(&["-d", &string], &[], "SELECT current_user");
        assert_eq!(
            (ours.is_ok(), theirs.is_ok()),
            (fine, fine),
            "{ours:?} {theirs:?}"
        );
    }
}

/// Settings, the mode, the environment, and what is said where it is refused.
type Case<'a> = (String, &'a str, &'a [(&'a str, &'a str)], &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn revoked_certificates_are_refused_where_libpq_refuses_them() {
    let server = server();
    let _turn = server.shows("good").await;
    let c = &server.certificates;
    let directory = |name: &str, file: &str, list: &str| {
        let path = server.directory(name);
        std::fs::copy(c.path(list), path.join(file)).expect("copied");
        path.display().to_string()
    };
    let hashed_none = directory("crl-none", HASHED, "none.crl");
    let hashed = directory("crl-revoked", HASHED, "revoked.crl");
    let plain = directory("crl-plain", "revoked.crl", "none.crl");
    let home = server.directory("home-with-crl");
    std::fs::create_dir_all(home.join(".postgresql")).expect("a directory");
    std::fs::copy(c.path("revoked.crl"), home.join(".postgresql/root.crl")).expect("copied");
    let home = [("HOME", home.to_str().expect("a path"))];
    let file = |name: &str| format!("sslcrl={}", c.path(name));
    let rubbish = server.directory("crl-plain").join("rubbish");
    std::fs::write(&rubbish, "rubbish").expect("written");
    let rubbish = format!("sslcrl={}", rubbish.display());
    let in_env = [
        [("PGSSLCRL", c.path("revoked.crl"))],
        [("PGSSLCRLDIR", hashed.clone())],
    ];
    let in_env = in_env.each_ref().map(|e| [(e[0].0, e[0].1.as_str())]);
    let (gone, both) = ("revoked", "sslmode=verify-full");
    let unknown = "has no list from the authority";
    let mut cases: Vec<Case<'_>> = vec![
        (String::new(), both, &[], ""),
        (file("none.crl"), both, &[], ""),
        (file("revoked.crl"), both, &[], gone),
        (file("revoked.crl"), "sslmode=verify-ca", &[], gone),
        (file("revoked.crl"), "sslmode=require", &[], gone),
        // as with any certificate that is not trusted, without TLS then
        (file("revoked.crl"), "sslmode=prefer", &[], ""),
        (file("expired.crl"), both, &[], "has expired"),
        (file("stranger.crl"), both, &[], unknown),
        (file("ca.crt"), both, &[], unknown),
        ("sslcrl=/nonexistent".into(), both, &[], ""),
        (rubbish, both, &[], ""),
        (format!("sslcrldir={hashed_none}"), both, &[], ""),
        (format!("sslcrldir={hashed}"), both, &[], gone),
        (
            format!("{} sslcrldir={hashed}", file("stranger.crl")),
            both,
            &[],
            gone,
        ),
        (format!("sslcrldir={plain}"), both, &[], unknown),
        ("sslcrldir=/nonexistent".into(), both, &[], unknown),
        (String::new(), both, &home, gone),
        (file("none.crl"), both, &home, ""),
    ];
    cases.extend(
        in_env
            .iter()
            .map(|env| (String::new(), both, env.as_slice(), gone)),
    );
    for (settings, mode, env, error) in &cases {
        for root in [format!("sslrootcert={}", c.path("ca.crt")), String::new()] {
            if root.is_empty() && mode != &"sslmode=require" {
                continue;
            }
            let string = format!(
                "host=localhost hostaddr=127.0.0.1 port={} user=anybody dbname=app {mode} {root} {settings}",
                server.port
            );
            let ours = server.string(&string, env, SSL).await;
            let theirs = server.psql(&["-d", &string], env, SSL);
            let version = ours.as_ref().map(|o| o.1.as_str()).ok();
            assert_eq!(
                version,
                theirs.as_deref().ok(),
                "{string}: {ours:?}, libpq {theirs:?}"
            );
            match ours {
                // nothing is verified without authorities
                Ok(_) => assert!(error.is_empty() || root.is_empty(), "{string}"),
                Err(said) => {
                    assert!(
                        !error.is_empty() && said.contains(error),
                        "{string}: {said}"
                    );
                    // by its name, wherever it was given
                    let set = settings.split(['=', ' ']).filter(|w| w.starts_with('/'));
                    let mut files = set.chain(env.iter().map(|(_, path)| *path));
                    assert!(files.all(|file| said.contains(file)), "{string}: {said}");
                }
            }
        }
    }
    // who is its own authority has no list
    drop(_turn);
    let _turn = server.shows("own").await;
    let string = format!(
        "host=localhost port={} user=anybody dbname=app sslmode=verify-ca sslrootcert={} {}",
        server.port,
        c.path("own.crt"),
        file("none.crl")
    );
    let error = server.string(&string, &[], SSL).await.expect_err("refused");
    assert!(error.contains(unknown), "{error}");
    server
        .psql(&["-d", &string], &[], SSL)
        .expect_err("refused");
    // said where it was named
    let string = format!(
        "host={} port={} user=anybody dbname=app sslcrl=/nonexistent",
        server.socket(),
        server.port
    );
    let output = jobtop(server, &["tasks", &string], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("no revoked certificate is refused"), "{text}");
}
