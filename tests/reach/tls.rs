//! Every sslmode against every kind of certificate.

use crate::certificates::{KEY, PHRASE, SERVERS};
use crate::server::{Outcome, jobtop, server};

/// What the server says about it.
pub const SSL: &str = "SELECT CASE WHEN ssl THEN version ELSE 'plain' END FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

const MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

pub fn agrees(outcome: &Outcome) {
    if let Ok((words, server)) = outcome {
        let said = match server.strip_prefix("TLSv") {
            Some(version) => words.starts_with(&format!("TLS {version}, ")),
            None => words == "NOT ENCRYPTED" || words == "none (socket)",
        };
        assert!(said, "we say {words}, the server says {server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mode_does_what_libpqs_does() {
    let server = server();
    let mut seen = String::new();
    for certificate in SERVERS.iter().copied().chain(["off"]) {
        let _turn = server.shows(certificate).await;
        let own = match certificate {
            "own" => "own.crt",
            "v1own" => "v1own.crt",
            "v1ca" => "v1root.crt",
            _ => "ca.crt",
        };
        for root in ["", own, "stranger.crt"] {
            let mut line = Vec::new();
            for mode in MODES {
                let mut string = format!(
                    "host=localhost hostaddr=127.0.0.1 port={} user=anybody dbname=app sslmode={mode}",
                    server.port
                );
                if !root.is_empty() {
                    string += &format!(" sslrootcert={}", server.certificates.path(root));
                }
                let outcome = server.string(&string, &[], SSL).await;
                agrees(&outcome);
                let theirs = server.psql(&["-d", &string], &[], SSL);
                let ours = outcome.as_ref().map(|(_, version)| version.clone());
                assert_eq!(
                    ours.as_ref().ok(),
                    theirs.as_ref().ok(),
                    "{certificate} {root} {mode}: {ours:?}, and libpq {theirs:?}"
                );
                line.push(match outcome {
                    Ok((words, _)) => words,
                    Err(error) => {
                        let home = server.home.display().to_string();
                        let certificates = server.certificates.0.display().to_string();
                        error
                            .replace(&home, "HOME")
                            .replace(&certificates, "CERTIFICATES")
                    }
                });
            }
            let root = root.trim_end_matches(".crt");
            for (mode, outcome) in MODES.iter().zip(line) {
                seen += &format!("{certificate:<8} {root:<9} {mode:<12} {outcome}\n");
            }
        }
    }
    insta::assert_snapshot!(seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_certificate_in_its_usual_place_counts() {
    let server = server();
    let home = server.directory("home-with-root");
    std::fs::create_dir_all(home.join(".postgresql")).expect("a directory");
    let env = [("HOME", home.to_str().expect("a path"))];
    let string = format!(
        "host=127.0.0.1 port={} user=anybody dbname=app sslmode=require",
        server.port
    );
    let _turn = server.shows("good").await;
    for (root, expected) in [
        ("ca.crt", true),
        ("stranger.crt", false),
        ("namesake.crt", false),
    ] {
        std::fs::copy(
            server.certificates.path(root),
            home.join(".postgresql/root.crt"),
        )
        .expect("copied");
        let ours = server.string(&string, &env, SSL).await;
        assert_eq!(ours.is_ok(), expected, "{root}: {ours:?}");
        assert_eq!(server.psql(&["-d", &string], &env, SSL).is_ok(), expected);
        match ours {
            Ok((words, _)) => assert_eq!(words, "TLS 1.3, verified, name not checked"),
            Err(error) => {
                let file = home.join(".postgresql/root.crt");
                let file = file.display();
                let words = format!("no authority in {file}, which counts because it is there:");
                assert!(error.contains(&words), "{error}");
                let way_out = "sslmode=require without that file encrypts without verifying";
                assert!(error.contains(way_out), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_both_ways_tells_both_reasons() {
    let server = server();
    let stranger = server.certificates.path("stranger.crt");
    let unknown =
        format!("the server's certificate comes from no authority in {stranger} (sslrootcert):");
    let (with, without) = ("; with TLS: ", "; without TLS: ");
    for (certificate, user, mode, root, parts) in [
        (
            "good",
            "only_tls",
            "prefer",
            stranger.as_str(),
            ["with TLS: ", &unknown, without, "no encryption (28000)"].as_slice(),
        ),
        (
            "good",
            "only_tls",
            "allow",
            &stranger,
            &["without TLS: ", "no encryption (28000)", with, &unknown],
        ),
        (
            "good",
            "unwanted",
            "prefer",
            "",
            &["SSL encryption or no encryption: allow it in pg_hba.conf (28000)"],
        ),
        (
            "good",
            "unwanted",
            "allow",
            "",
            &["no encryption or SSL encryption: allow it in pg_hba.conf (28000)"],
        ),
        (
            "off",
            "unwanted",
            "prefer",
            "",
            &["no encryption: allow it in pg_hba.conf (28000)"],
        ),
        (
            "good",
            "nobody",
            "prefer",
            "",
            &["role \"nobody\" does not exist (28000)"],
        ),
    ] {
        let _turn = server.shows(certificate).await;
        let string = format!(
            "host=localhost hostaddr=127.0.0.1 port={} user={user} dbname=app sslmode={mode} sslrootcert='{root}'",
            server.port
        );
        let error = server.string(&string, &[], SSL).await.expect_err(&string);
        let theirs = server.psql(&["-d", &string], &[], SSL);
        let theirs = theirs.expect_err(&string).to_lowercase();
        // as versions before 14 say it
        let modern = |text: &str, case: fn(&str) -> String| {
            let text = text.replace(&case("SSL on"), &case("SSL encryption"));
            text.replace(&case("SSL off"), "no encryption")
        };
        let theirs = modern(&theirs, str::to_lowercase);
        let mut rest = modern(&error, str::to_string);
        for part in parts {
            let at = rest.find(part);
            let at = at.unwrap_or_else(|| panic!("{user} {mode}: no {part:?} in {error}"));
            rest = rest.split_off(at + part.len());
        }
        assert!(rest.is_empty() || rest.starts_with(" give"), "{rest}");
        let user_said = error.matches(&format!("\"{user}\"")).count();
        assert_eq!(user_said, 1, "{error}");
        // psql, too, says both
        let both = ["ssl encryption", "no encryption"].map(|w| theirs.contains(w));
        assert!(
            !parts[0].contains(" or ") || both == [true, true],
            "{theirs}"
        );
    }
}

/// A name with two addresses: nobody listens at the one, and at the other somebody is silent.
#[tokio::test(flavor = "multi_thread")]
async fn every_address_of_a_host_tells_its_reason_once() {
    let server = server();
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let string = format!("host=localhost port={port} user=anybody dbname=app connect_timeout=1");
    let two = tokio::net::lookup_host(("localhost", port)).await;
    let two = two.expect("known").filter(|a| a.is_ipv6()).count() > 0;
    let error = server.string(&string, &[], SSL).await.expect_err("refused");
    if two {
        let first =
            format!("[::1]:{port}: nothing listens there: Connection refused (os error 111)");
        let second = format!("127.0.0.1:{port}: it does not answer");
        assert!(error.contains(&first) && error.contains(&second), "{error}");
    }
    // nobody ever listens there: a port just left may still be held by a process that is being started
    let nobody = string.replace(&format!("port={port}"), "port=1");
    let error = server.string(&nobody, &[], SSL).await.expect_err("refused");
    assert!(
        error.starts_with("nothing listens there: Connection refused"),
        "{error}"
    );
    assert_eq!(error.matches("Connection refused").count(), 1, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_system_s_authorities_verify_the_whole_name() {
    let server = server();
    let _turn = server.shows("good").await;
    let string = format!(
        "host=localhost port={} user=anybody dbname=app sslrootcert=system",
        server.port
    );
    // the machine does not know our authority
    let error = server.string(&string, &[], SSL).await.expect_err("refused");
    let words = "no authority in what this machine trusts (sslrootcert=system)";
    assert!(error.contains(words), "{error}");
    // rustls-native-certs takes what OpenSSL would: here a machine that knows it
    let ca = server.certificates.path("ca.crt");
    for (host, words) in [
        ("localhost", "TLS 1.3, verified"),
        ("elsewhere hostaddr=127.0.0.1", "is for localhost"),
    ] {
        let string = format!(
            "host={host} port={} user=anybody dbname=app sslrootcert=system",
            server.port
        );
        let args = ["--once", "--json", string.as_str()];
        let output = jobtop(server, &args, &[("SSL_CERT_FILE", &ca)]);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains(words), "{host}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_may_have_a_pass_phrase() {
    let server = server();
    let _turn = server.shows("good").await;
    let here = server.directory("locked");
    let put = |name: &str, bytes: &[u8]| {
        use std::os::unix::fs::PermissionsExt;
        let path = here.join(name);
        std::fs::write(&path, bytes).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
        path.display().to_string()
    };
    let der = rcgen::KeyPair::from_pem(KEY)
        .expect("a key")
        .serialize_der();
    let tries = |key: &str, phrase: &str| {
        format!(
            "host=127.0.0.1 port={} user=certified dbname=app sslmode=require sslcert={} sslkey={key} sslpassword='{phrase}'",
            server.port,
            server.certificates.path("client.crt"),
        )
    };
    for (name, bytes, known) in [
        ("plain.pem", KEY.as_bytes(), true),
        ("plain.der", &der, true),
        (
            "pkcs8-aes256",
            include_bytes!("keys/pkcs8-aes256.pem"),
            true,
        ),
        (
            "pkcs8-des3-sha1",
            include_bytes!("keys/pkcs8-des3-sha1.pem"),
            true,
        ),
        (
            "pkcs8-scrypt",
            include_bytes!("keys/pkcs8-scrypt.pem"),
            true,
        ),
        ("pkcs8-v1", include_bytes!("keys/pkcs8-v1.pem"), false),
        ("old-aes128", include_bytes!("keys/old-aes128.pem"), true),
        ("old-aes256", include_bytes!("keys/old-aes256.pem"), true),
        ("old-des3", include_bytes!("keys/old-des3.pem"), true),
        (
            "old-camellia",
            include_bytes!("keys/old-camellia.pem"),
            false,
        ),
    ] {
        let key = put(name, bytes);
        let string = tries(&key, PHRASE);
        let ours = server.string(&string, &[], "SELECT current_user").await;
        if known {
            assert_eq!(ours.expect(name).1, "certified", "{name}");
            let theirs = server.psql(&["-d", &string], &[], "SELECT current_user");
            assert_eq!(theirs.as_deref(), Ok("certified"), "{name}");
        } else {
            let error = ours.expect_err(name);
            assert!(error.contains("openssl pkcs8 -topk8"), "{name}: {error}");
        }
        if name.starts_with("plain") || !known {
            continue;
        }
        for (phrase, words) in [
            ("wr0ng", "the pass phrase does not open the key file"),
            ("", "is encrypted: give its pass phrase in sslpassword"),
        ] {
            let string = tries(&key, phrase);
            let error = server
                .string(&string, &[], "SELECT 1")
                .await
                .expect_err(name);
            assert!(error.contains(words) && error.contains(name), "{error}");
            assert!(!error.contains("wr0ng"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_that_is_required_must_be_asked_for() {
    let server = server();
    let _turn = server.shows("good").await;
    let key = server
        .certificates
        .copy("client.key", &server.directory("asked"), 0o600);
    let pair = format!(
        "sslcert={} sslkey={key}",
        server.certificates.path("client.crt")
    );
    for (user, mode, fine) in [
        ("certified", "require", true),
        // the server has an authority for client certificates, so it asks everybody
        ("anybody", "require", true),
        ("anybody", "disable", false),
    ] {
        let string = format!(
            "host=127.0.0.1 port={} user={user} dbname=app sslmode={mode} sslcertmode=require {pair}",
            server.port
        );
        let ours = server.string(&string, &[], "SELECT current_user").await;
        match ours {
            Ok((_, found)) => assert!(fine && found == user, "{user} {mode}"),
            Err(error) => {
                assert!(
                    !fine && error.contains("asks for no client certificate"),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_the_server_decide_where_the_mode_leaves_it_open() {
    let server = server();
    let _turn = server.shows("good").await;
    for (user, mode, expected) in [
        ("only_tls", "disable", None),
        ("only_tls", "allow", Some("TLSv1.3")),
        ("only_tls", "prefer", Some("TLSv1.3")),
        ("only_plain", "allow", Some("plain")),
        ("only_plain", "prefer", Some("plain")),
        ("only_plain", "require", None),
        ("anybody", "allow", Some("plain")),
        ("anybody", "prefer", Some("TLSv1.3")),
    ] {
        let string = format!(
            "host=127.0.0.1 port={} user={user} dbname=app sslmode={mode}",
            server.port
        );
        let ours = server.string(&string, &[], SSL).await;
        agrees(&ours);
        let theirs = server.psql(&["-d", &string], &[], SSL);
        assert_eq!(
            ours.as_ref().ok().map(|o| o.1.as_str()),
            expected,
            "{user} {mode}: {ours:?}"
        );
        assert_eq!(theirs.ok().as_deref(), expected, "{user} {mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_stop_it_only_where_they_were_named() {
    let server = server();
    let _turn = server.shows("good").await;
    let home = server.directory("home-with-rubbish");
    std::fs::create_dir_all(home.join(".postgresql")).expect("a directory");
    std::fs::write(home.join(".postgresql/root.crt"), "rubbish").expect("written");
    let env = [("HOME", home.to_str().expect("a path"))];
    let string = format!(
        "host=127.0.0.1 port={} user=anybody dbname=app sslmode=",
        server.port
    );
    let prefer = server.string(&format!("{string}prefer"), &env, SSL).await;
    assert_eq!(prefer.expect("as libpq").0, "NOT ENCRYPTED");
    for mode in ["prefer", "require"] {
        let string = format!("{string}{mode} sslrootcert=/nonexistent");
        let ours = server.string(&string, &env, SSL).await.expect("as libpq");
        assert_eq!(ours.0, "TLS 1.3, not verified");
        server.psql(&["-d", &string], &env, SSL).expect("libpq");
        let said = jobtop(server, &["--once", &string], &env).stderr;
        let said = String::from_utf8(said).expect("text");
        assert!(
            said.contains("there is no file /nonexistent (sslrootcert)"),
            "{said}"
        );
    }
    for more in [
        "require",
        "verify-ca sslrootcert=/nonexistent",
        "prefer sslcert=/proc/self/exe",
    ] {
        let error = server.string(&format!("{string}{more}"), &env, SSL).await;
        let error = error.expect_err(more);
        assert!(error.contains("the certificate file"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_can_be_bounded() {
    let server = server();
    let _turn = server.shows("good").await;
    let base = format!(
        "host=127.0.0.1 port={} user=anybody dbname=app sslmode=require",
        server.port
    );
    for (bound, version) in [
        ("ssl_max_protocol_version=TLSv1.2", "TLSv1.2"),
        ("ssl_min_protocol_version=TLSv1.3", "TLSv1.3"),
        ("ssl_min_protocol_version=TLSv1", "TLSv1.3"),
    ] {
        let outcome = server.string(&format!("{base} {bound}"), &[], SSL).await;
        agrees(&outcome);
        assert_eq!(outcome.expect(bound).1, version);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_negotiation_needs_a_server_that_knows_it() {
    let server = server();
    let _turn = server.shows("good").await;
    let string = format!(
        "host=127.0.0.1 port={} user=anybody dbname=app sslmode=require sslnegotiation=direct",
        server.port
    );
    let outcome = server
        .string(&string, &[], "SELECT current_setting('server_version_num')")
        .await;
    match outcome {
        Ok((words, version)) => {
            assert!(version.as_str() >= "170000", "{version}");
            assert_eq!(words, "TLS 1.3, not verified");
        }
        Err(error) => assert!(error.contains("sslnegotiation=direct"), "{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_needs_no_tls_whatever_the_mode() {
    let server = server();
    for mode in MODES {
        let string = format!(
            "host={} port={} user=anybody dbname=app sslmode={mode}",
            server.socket(),
            server.port
        );
        let (words, ssl) = server.string(&string, &[], SSL).await.expect(mode);
        assert_eq!((words.as_str(), ssl.as_str()), ("none (socket)", "plain"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_prove_who_we_are() {
    let server = server();
    let _turn = server.shows("good").await;
    let here = server.directory("client");
    let c = &server.certificates;
    let (good, key) = (c.path("client.crt"), c.copy("client.key", &here, 0o600));
    let open_key = c.copy("client.key", &here, 0o644);
    let shared = c.copy("client.key", &here, 0o640);
    let impostor = c.copy("impostor.key", &here, 0o600);
    let root = nix::unistd::geteuid().is_root();
    let group = if root { "" } else { "chmod 0600" };
    for (settings, error) in [
        (format!("sslcert={good} sslkey={key}"), ""),
        (format!("sslcert={good} sslkey={shared}"), group),
        (format!("sslcert={good} sslkey={open_key}"), "chmod 0600"),
        (
            format!("sslcert={good} sslkey=/nonexistent"),
            "has no key file",
        ),
        (
            format!("sslcert={} sslkey={impostor}", c.path("impostor.crt")),
            "refuses the client certificate",
        ),
        (
            format!("sslcert={good} sslkey={impostor}"),
            "is not the one of",
        ),
        (
            format!("sslcert={} sslkey={impostor}", c.path("stranger.crt")),
            "is not the one of",
        ),
        ("sslcert=/nonexistent".into(), "client certificate"),
        (
            format!("sslcert={good} sslkey={key} sslcertmode=disable"),
            "client certificate",
        ),
        (String::new(), "client certificate"),
    ] {
        let string = format!(
            "host=127.0.0.1 port={} user=certified dbname=app sslmode=require {settings}",
            server.port
        );
        let ours = server.string(&string, &[], "SELECT current_user").await;
        match &ours {
            Ok((_, user)) => assert!(error.is_empty() && user == "certified", "{settings}"),
            Err(said) => {
                assert!(
                    !error.is_empty() && said.contains(error),
                    "{settings}: {said}"
                );
                // the file is named, also where it is the usual one that is not there
                let home = server.home.join(".postgresql/postgresql.crt");
                let set = settings.split(['=', ' ']).filter(|w| w.starts_with('/'));
                let set: Vec<&str> = set.collect();
                let named = match set.as_slice() {
                    [] => said.contains(home.to_str().expect("a path")),
                    files if !settings.contains("sslcertmode") => {
                        files.iter().any(|file| said.contains(file))
                    }
                    _ => said.contains("sslcertmode=disable"),
                };
                assert!(named, "{settings}: {said}");
            }
        }
        // a setting of libpq 16
        if !settings.contains("sslcertmode") {
            let theirs = server.psql(&["-d", &string], &[], "SELECT current_user");
            assert_eq!(ours.is_ok(), theirs.is_ok(), "{settings}: {theirs:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scram_is_bound_to_the_channel() {
    let server = server();
    let _turn = server.shows("good").await;
    for (user, binding, mode, fine) in [
        ("scram", "require", "require", true),
        ("scram", "prefer", "require", true),
        ("scram", "disable", "require", true),
        ("scram", "require", "disable", false),
        ("scram", "prefer", "disable", true),
        ("clear", "require", "require", false),
        ("anybody", "require", "require", false),
        ("clear", "prefer", "require", true),
    ] {
        let string = format!(
            "host=127.0.0.1 port={} user={user} dbname=app sslmode={mode} channel_binding={binding} password='s3cret:\\\\'",
            server.port
        );
        let ours = server.string(&string, &[], "SELECT current_user").await;
        let theirs = server.psql(&["-d", &string], &[], "SELECT current_user");
        assert_eq!(ours.is_ok(), fine, "{user} {binding} {mode}: {ours:?}");
        assert_eq!(theirs.is_ok(), fine, "{user} {binding} {mode}: {theirs:?}");
        if let Err(error) = ours {
            assert!(error.contains("channel_binding=require"), "{error}");
        }
    }
}
