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
