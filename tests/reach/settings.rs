//! Connection settings, psql being the reference.

use crate::server::server;
use jobtop::connect::Given;

/// Everything that a connection setting can change, in one answer.
const ABOUT: &str = "SELECT concat_ws('|', current_user, current_database(), \
    coalesce(host(inet_server_addr()), 'socket'), current_setting('search_path'), \
    replace(replace(current_setting('application_name'), 'psql', ''), 'jobtop', ''))";

type Case<'a> = (&'a str, [&'a str; 3], &'a [(&'a str, &'a str)]);

#[tokio::test(flavor = "multi_thread")]
async fn they_come_out_as_libpqs_do() {
    let server = server();
    let here = server.directory("settings");
    let port = server.port.to_string();
    let p = port.as_str();
    let socket = server.socket();
    let s = socket.as_str();
    let encoded = s.replace('/', "%2F");
    let service = here.join("service.conf").display().to_string();
    let nothing = here.join("nothing").display().to_string();
    std::fs::write(
        &service,
        format!("[one]\nhost=127.0.0.1\nport={p}\nuser=anybody\ndbname=app\n[two]\nhost={s}\nport={p}\nuser=reader\n[bad]\nschema=x\n[nested]\nservice=one\n"),
    )
    .expect("written");
    let system = server.directory("sysconf");
    std::fs::write(
        system.join("pg_service.conf"),
        format!("# of the machine\n[system]\nhost={s}\nport={p}\ndbname=app\nuser=anybody\n"),
    )
    .expect("written");
    let system = system.display().to_string();
    let tcp: &[(&str, &str)] = &[
        ("PGHOST", "127.0.0.1"),
        ("PGPORT", p),
        ("PGUSER", "anybody"),
        ("PGDATABASE", "app"),
    ];
    let more = |extra: &[(&'static str, &'static str)]| [tcp, extra].concat();
    let with = [
        more(&[
            ("PGAPPNAME", "watcher"),
            ("PGOPTIONS", "-c search_path=x,y"),
        ]),
        more(&[("PGHOST", "nowhere.invalid"), ("PGHOSTADDR", "127.0.0.1")]),
        more(&[("PGCONNECT_TIMEOUT", "x")]),
        more(&[("PGSSLMODE", "sometimes")]),
        more(&[("PGTARGETSESSIONATTRS", "primary")]),
        more(&[("PGUSER", "")]),
        more(&[("PGUSER", "only_plain")]),
        more(&[("PGUSER", "only_plain"), ("PGREQUIRESSL", "1")]),
        more(&[
            ("PGUSER", "only_plain"),
            ("PGREQUIRESSL", "1"),
            ("PGSSLMODE", "prefer"),
        ]),
        more(&[("PGDATABASE", "")]),
    ];
    let file: &[(&str, &str)] = &[("PGSERVICEFILE", &service)];
    let file_and_name: &[(&str, &str)] = &[
        ("PGSERVICEFILE", &service),
        ("PGSERVICE", "one"),
        ("PGUSER", "reader"),
        ("PGDATABASE", "x"),
    ];
    let gone: &[(&str, &str)] = &[("PGSERVICEFILE", &nothing)];
    let sysconf: &[(&str, &str)] = &[("PGSYSCONFDIR", &system)];
    let mut strings = vec![
        format!("postgres://anybody@127.0.0.1:{p}/app"),
        format!("postgresql://anybody@localhost:{p}/app?hostaddr=127.0.0.1"),
        format!("postgres://anybody@{encoded}:{p}/app"),
        format!("postgres:///app?host={encoded}&port={p}&user=anybody"),
        format!(
            "postgres://%61nybody@127.0.0.1:{p}/%61pp?options=-csearch_path%3Dq&application_name=a%20b"
        ),
        format!("postgres://anybody@127.0.0.1:1,127.0.0.1:{p}/app"),
        format!("postgres://anybody@127.0.0.1:{p},127.0.0.1/app"),
        format!("host=127.0.0.1,127.0.0.1 port=1,{p} user=anybody dbname=app"),
        format!(
            "host='127.0.0.1' port = {p} user=reader user=anybody dbname='a\\pp' application_name='it\\'s'"
        ),
        format!("hostaddr=127.0.0.1 port={p} user=anybody dbname=app"),
        format!("host={s} port={p} user=anybody dbname=app options='-c search_path=x\\\\ y'"),
        format!(
            "postgres://anybody@127.0.0.1:{p}/app?sslmode=disable&connect_timeout=3&keepalives_idle=10&keepalives_count=2&tcp_user_timeout=5000"
        ),
        format!(
            "postgres://anybody@127.0.0.1:{p}/app?client_encoding=auto&gssencmode=disable&krbsrvname=x"
        ),
    ];
    if std::net::TcpListener::bind(("::1", 0)).is_ok() {
        strings.push(format!("postgres://anybody@[::1]:{p}/app"));
        strings.push(format!("postgres://anybody@127.0.0.1:1,[::1]:{p}/app"));
        strings.push(format!("host=::1 port={p} user=anybody dbname=app"));
    }
    if let Some(name) = server.abstract_socket() {
        strings.push(format!("postgres://anybody@%40{name}:{p}/app"));
        strings.push(format!("host=@{name} port={p} user=anybody dbname=app"));
    }
    let mut cases: Vec<Case<'_>> = strings
        .iter()
        .map(|s| (s.as_str(), ["", "", ""], &[] as &[_]))
        .collect();
    let wrong = [
        format!("postgres://anybody@127.0.0.1:{p}x/app"),
        format!("postgres://anybody@127.0.0.1:{p}/app?schema=x"),
        format!("postgres://anybody@[127.0.0.1:{p}/app"),
        format!("postgres://any%body@127.0.0.1:{p}/app"),
        format!("host=127.0.0.1 port={p},{p} user=anybody dbname=app"),
        format!("host=127.0.0.1 port={p} user=anybody dbname=app 'x'"),
        format!("host=127.0.0.1 port={p} user='anybody"),
        format!("host=127.0.0.1,127.0.0.1 hostaddr=127.0.0.1 port={p} user=anybody dbname=app"),
        format!("host=127.0.0.1 port={p} user=anybody dbname=app sslmode=on"),
        format!("host=127.0.0.1 port={p} user=anybody dbname=app connect_timeout=soon"),
        format!("host=127.0.0.1 port={p} user=anybody dbname=app channel_binding=maybe"),
        format!("host=127.0.0.1 port={p} user=anybody dbname=app target_session_attrs=best"),
        format!("service=nobody port={p}"),
    ];
    cases.extend(
        wrong
            .iter()
            .map(|s| (s.as_str(), ["", "", ""], &[] as &[_])),
    );
    let flagged = [
        format!("postgres://anybody@127.0.0.1:{p}/app"),
        format!("port={p} dbname=app"),
    ];
    cases.extend([
        ("", ["", "", ""], tcp),
        ("app", [s, p, "anybody"], &[]),
        ("app", [s, p, "anybody"], &[("PGUSER", "reader")]),
        // the string beats flags of the same meaning
        (flagged[0].as_str(), ["nowhere.invalid", "1", "reader"], &[]),
        (flagged[1].as_str(), ["127.0.0.1", "1", "anybody"], &[]),
        ("host='' dbname=app", ["", "", ""], tcp),
        ("user=reader", ["", "", ""], tcp),
        ("dbname=postgres", ["", "", ""], tcp),
        ("service=one", ["", "", ""], file),
        ("service=one user=reader", ["", "", ""], file),
        ("postgres:///?service=two", ["", "", ""], file),
        ("service=two", ["", "", ""], file),
        ("service=one", [s, "", "reader"], file),
        ("", ["", "", ""], file_and_name),
        ("service=bad", ["", "", ""], file),
        ("service=nested", ["", "", ""], file),
        ("service=three", ["", "", ""], file),
        ("service=one", ["", "", ""], gone),
        ("service=system", ["", "", ""], sysconf),
    ]);
    cases.extend(with.iter().map(|env| ("", ["", "", ""], env.as_slice())));
    let mut reached = 0;
    for (string, flags, env) in cases {
        let flag = |at: usize| Some(flags[at].to_string()).filter(|f| !f.is_empty());
        let given = Given {
            string: Some(string.into()),
            host: flag(0),
            port: flag(1),
            user: flag(2),
            ..Given::default()
        };
        let ours = server.ours(&given, env, ABOUT).await;
        let mut args = Vec::new();
        for (name, value) in ["-h", "-p", "-U", "-d"]
            .iter()
            .zip(flags.iter().chain([&string]))
        {
            if !value.is_empty() {
                args.extend([*name, *value]);
            }
        }
        let theirs = server.psql(&args, env, ABOUT);
        match (&ours, &theirs) {
            (Ok((_, ours)), Ok(theirs)) => {
                assert_eq!(ours, theirs, "{string} {flags:?} {env:?}");
                reached += 1;
            }
            (Err(_), Err(_)) => {}
            _ => panic!("{string} {flags:?} {env:?}: {ours:?}, and libpq {theirs:?}"),
        }
    }
    assert!(reached > 25, "both sides refuse too much");
}

/// A setting, and what becomes of it.
enum Fate {
    /// The connection is made, by psql too.
    Made,
    /// It is not, and psql's is not either.
    Refused(&'static str),
    /// It is not, and psql's would be (or its server's fault is another).
    OnlyHere(&'static str),
}

#[tokio::test(flavor = "multi_thread")]
async fn every_setting_of_libpq_is_honoured_or_ignored_or_refused() {
    use Fate::{Made, OnlyHere, Refused};
    let server = server();
    let _turn = server.shows("good").await;
    let me = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let me = me.expect("read").expect("a user").name;
    let owner = server.owner();
    let stranger = if me == owner { "nobody".into() } else { me };
    let peer = format!("socket requirepeer={owner}");
    let not_peer = format!("socket requirepeer={stranger}");
    let far_peer = format!("anybody requirepeer={stranger}");
    let keys = "give the password itself";
    let (auth, gss) = ("require_auth", "gssencmode");
    let cases: &[(&str, Fate)] = &[
        // the first word is who logs in, or where
        (
            "anybody application_name=x fallback_application_name=y client_encoding=auto",
            Made,
        ),
        (
            "anybody keepalives=1 keepalives_idle=9 keepalives_interval=9 keepalives_count=3",
            Made,
        ),
        (
            "anybody keepalives=0 tcp_user_timeout=9000 connect_timeout=9",
            Made,
        ),
        ("anybody keepalives=x", Refused("keepalives")),
        ("anybody keepalives_count=x", Refused("keepalives_count")),
        (
            "anybody krbsrvname=x gsslib=gssapi gssencmode=disable",
            Made,
        ),
        ("anybody gssdelegation=1", Made),
        ("anybody gssencmode=prefer", Made),
        ("anybody gssencmode=require", Refused(gss)),
        ("anybody gssencmode=perhaps", Refused(gss)),
        ("anybody sslcompression=1", Made),
        ("only_plain requiressl=0", Made),
        ("only_plain requiressl=1", Refused("pg_hba.conf")),
        ("anybody sslmode=require sslsni=0", Made),
        ("anybody sslmode=require sslsni=1", Made),
        ("anybody sslmode=require sslsni=no", Made),
        ("anybody sslcertmode=disable", Made),
        ("anybody sslcertmode=allow", Made),
        (
            "anybody sslcertmode=require",
            Refused("sslcertmode=require"),
        ),
        ("anybody sslcertmode=perhaps", Refused("sslcertmode")),
        ("anybody sslkeylogfile=/nonexistent/log", Made),
        (
            "anybody ssl_min_protocol_version=tlsv1.2 ssl_max_protocol_version=TLSV1.3",
            Made,
        ),
        (
            "anybody sslmode=disable ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=TLSv1.1",
            Made,
        ),
        (
            "anybody ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
            Refused("ssl_max_protocol_version"),
        ),
        (
            "anybody ssl_min_protocol_version=1.2",
            Refused("ssl_min_protocol_version"),
        ),
        (
            "anybody min_protocol_version=3.0 max_protocol_version=latest",
            Made,
        ),
        ("anybody max_protocol_version=3.0", Made),
        (
            "anybody min_protocol_version=3.2 max_protocol_version=3.0",
            Refused("max_protocol_version"),
        ),
        ("anybody min_protocol_version=3.2", OnlyHere("3.0")),
        (
            "anybody max_protocol_version=4",
            Refused("max_protocol_version"),
        ),
        ("anybody load_balance_hosts=random", Made),
        (
            "anybody load_balance_hosts=best",
            Refused("load_balance_hosts"),
        ),
        ("anybody replication=false", Made),
        ("anybody replication=off", Made),
        (
            "anybody replication=database",
            OnlyHere("leave replication out"),
        ),
        ("anybody scram_client_key=AAAA", OnlyHere(keys)),
        ("anybody scram_server_key=AAAA", OnlyHere(keys)),
        (
            "anybody oauth_issuer=https://i oauth_client_id=c oauth_client_secret=s oauth_scope=o",
            Made,
        ),
        (&peer, Made),
        (&not_peer, Refused("requirepeer asks for")),
        // it is a question for sockets
        (&far_peer, Made),
        ("anybody require_auth=none", Made),
        ("anybody require_auth=scram-sha-256", Refused(auth)),
        ("anybody require_auth=!none", Refused(auth)),
        ("scram require_auth=scram-sha-256", Made),
        ("scram require_auth=scram-sha-256 sslmode=disable", Made),
        ("scram require_auth=scram-sha-256 sslmode=require", Made),
        ("scram require_auth=md5,password", Refused(auth)),
        ("clear require_auth=password sslmode=require", Made),
        (
            "clear require_auth=!password sslmode=require",
            Refused(auth),
        ),
        (
            "clear require_auth=!password sslmode=disable",
            Refused(auth),
        ),
        ("clear require_auth=scram-sha-256", Refused(auth)),
        ("clear require_auth=oath", Refused(auth)),
        ("clear require_auth=md5,!none", Refused(auth)),
    ];
    let mut compared = 0;
    for (case, fate) in cases {
        let (who, settings) = case.split_once(' ').expect("a first word");
        let (host, user) = match who {
            "socket" => (server.socket(), "anybody"),
            user => ("127.0.0.1".to_string(), user),
        };
        let string = format!(
            "host={host} port={} user={user} dbname=app password='s3cret:\\\\' {settings}",
            server.port
        );
        let ours = server.string(&string, &[], "SELECT 1").await;
        match (&ours, fate) {
            (Ok(_), Made) => {}
            (Err(error), Refused(part) | OnlyHere(part)) => {
                assert!(
                    error.contains(part) && !error.contains("s3cret"),
                    "{case}: {error}"
                );
            }
            _ => panic!("{case}: {ours:?}"),
        }
        let theirs = server.psql(&["-d", &string], &[], "SELECT 1");
        // an older psql does not know them all
        if matches!(&theirs, Err(e) if e.contains("invalid connection option")) {
            continue;
        }
        match fate {
            Made => assert!(theirs.is_ok(), "{case}: {theirs:?}"),
            Refused(_) => assert!(theirs.is_err(), "{case}: {theirs:?}"),
            OnlyHere(_) => {}
        }
        compared += 1;
    }
    assert!(compared > 15, "psql knows too little: {compared}");
}
