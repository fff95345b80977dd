//! A real standby that follows a real primary, and takes its place.

use crate::common::{load, place::Place};
use crate::help::{
    NOTHING, answers, back, line_with, live, lost, own_cluster, place_on, quit, requeue, row,
    seconds, slow_profile, until, watching,
};
use jobtop::demo::cluster::Cluster;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;

/// A standby of this primary. Its data are a copy of those of the stopped primary, which every Postgres can start from: no
/// pg_basebackup is needed, which the packages fetched for tests lack.
fn follow(primary: &Cluster) -> Cluster {
    let way = format!(
        "host={} port={} user={}",
        primary.socket_dir().display(),
        primary.port(),
        primary.superuser()
    );
    let settings = [
        ("wal_level", "replica"),
        ("max_wal_senders", "4"),
        ("hot_standby", "on"),
        ("max_standby_streaming_delay", "0"),
        ("primary_conninfo", way.as_str()),
    ];
    let standby = own_cluster(&settings);
    standby.down(false).expect("down");
    primary.down(false).expect("down");
    let (from, to) = (primary.root().join("data"), standby.root().join("data"));
    for entry in std::fs::read_dir(&to).expect("its files").flatten() {
        let gone = match entry.path().is_dir() {
            true => std::fs::remove_dir_all(entry.path()),
            false => std::fs::remove_file(entry.path()),
        };
        gone.expect("removed");
    }
    let copied = Command::new("cp")
        .args(["-pR", &format!("{}/.", from.display())])
        .arg(&to)
        .status();
    assert!(copied.expect("cp").success());
    std::fs::write(to.join("standby.signal"), "").expect("a standby");
    primary.up().expect("up");
    standby.up().expect("up");
    standby
}

/// Hosts and ports of two servers, for a connection string.
fn both(first: &Cluster, second: &Cluster, attrs: &str) -> String {
    format!(
        "host={},{} port={},{} user=postgres dbname=postgres target_session_attrs={attrs}",
        first.socket_dir().display(),
        second.socket_dir().display(),
        first.port(),
        second.port()
    )
}

/// What `--once --json` says of the server.
fn server(place: &Place, url: &str) -> Value {
    let (code, out, err) = place.run(&[url, "--once", "--json"]);
    assert_eq!(code, 0, "{err}");
    let all: Value = serde_json::from_str(&out).expect("JSON");
    all["server"].clone()
}

#[test]
fn a_lock_that_a_standby_replays_is_laid_at_the_primarys_door() {
    let a = own_cluster(&[("wal_level", "replica"), ("max_wal_senders", "4")]);
    let place = place_on(&a);
    let b = follow(&a);
    let url = format!(
        "host={} port={} user=postgres dbname=postgres",
        b.socket_dir().display(),
        b.port()
    );
    let (client, runtime) = place.client();
    let lock = |sql| runtime.block_on(client.batch_execute(sql)).expect(sql);
    lock("BEGIN; LOCK agent_queue.tasks IN ACCESS EXCLUSIVE MODE");
    let standby = Reader::of(&b);
    until("the lock on the standby", || {
        let held = "SELECT count(*)::text FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND locktype = 'relation'";
        standby.value(held) != "0"
    });
    let (code, out, err) = place.run(&[&url, "--check"]);
    assert_eq!(code, 3, "{out}{err}");
    let says = [
        "nothing can touch tasks: the replay (pid ",
        "; its transaction's end on the primary ends it",
    ];
    let first = out.lines().next().expect("a verdict");
    assert!(says.iter().all(|part| first.contains(part)), "{out}");
    lock("COMMIT");
}

#[test]
fn a_standby_that_is_cut_off_says_how_old_its_tasks_are_until_it_is_fed_again() {
    let a = own_cluster(&[("wal_level", "replica"), ("max_wal_senders", "4")]);
    let place = place_on(&a);
    place.sql(load::HOUSES);
    place.sql("CREATE ROLE mona LOGIN; GRANT agent_queue_monitor TO mona");
    let b = follow(&a);
    let url = |user: &str| {
        format!(
            "host={} port={} user={user} dbname=postgres",
            b.socket_dir().display(),
            b.port()
        )
    };
    let standby = Reader::of(&b);
    let receivers = "SELECT count(*)::text FROM pg_stat_wal_receiver";
    until("a WAL receiver", || standby.value(receivers) == "1");
    assert_eq!(server(&place, &url("mona"))["wal_receiver"], true);
    assert_eq!(server(&place, &place.url)["wal_receiver"], Value::Null);

    let mut pty = watching(&url("postgres"), &[]);
    place.sql("SET search_path = agent_queue; SELECT enqueue('newest', 'parse')");
    pty.wait("a change", |s| s.contains("standby, last change "));
    let begun = Instant::now();
    standby.value("ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'");
    standby.value("SELECT pg_reload_conf()::text");
    let screen = pty.wait("the finding", |s| {
        s.contains("this standby gets nothing from its primary: last change ")
            && s.contains("cut off from primary")
    });
    // ten seconds for each of two conditions, and two refreshes
    assert!(
        begun.elapsed() < Duration::from_secs(5 * 24),
        "it was noticed late"
    );
    let said = line_with(&screen, "cut off from primary");
    for layer in ["queue ? as of ", "workers ? as of "] {
        assert!(said.contains(layer), "{layer:?} in {said}");
    }
    let (_, out, err) = place.run(&[&url("postgres"), "--check"]);
    assert!(out.starts_with("this standby gets nothing"), "{out}{err}");
    assert_eq!(server(&place, &url("mona"))["wal_receiver"], false);
    let (code, page, _) = place.run(&["doctor", &url("mona")]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = "it gets nothing from its primary: last change ";
    assert!(code == 1 && page.contains(words), "{page}");

    standby.value("ALTER SYSTEM RESET primary_conninfo");
    standby.value("SELECT pg_reload_conf()::text");
    let begun = Instant::now();
    place.sql("SET search_path = agent_queue; SELECT enqueue('back', 'parse')");
    pty.wait("its layers", |s| live(s) && !s.contains("? as of "));
    back(&pty, "a standby without its primary", &said, begun, NOTHING);
    pty.wait("an end", |s| !s.contains("gets nothing from its primary"));
    quit(&mut pty);
}

#[test]
fn a_standby_is_watched_and_its_promotion_noticed() {
    let a = own_cluster(&[("wal_level", "replica"), ("max_wal_senders", "4")]);
    let place = place_on(&a);
    place.sql(load::HOUSES);
    place.sql("CREATE ROLE mona LOGIN; GRANT agent_queue_monitor TO mona");
    let b = follow(&a);
    let url_b = format!(
        "host={} port={} user=postgres dbname=postgres",
        b.socket_dir().display(),
        b.port()
    );

    // each kind of server is found, in either order
    for (attrs, standby) in [
        ("primary", false),
        ("read-write", false),
        ("standby", true),
        ("prefer-standby", true),
    ] {
        let url = match standby {
            true => both(&a, &b, attrs),
            false => both(&b, &a, attrs),
        };
        let server = server(&place, &url);
        assert_eq!(server["in_recovery"], standby, "{attrs}: {server}");
        let push = match standby {
            true => "off: a standby cannot listen",
            false => "listen",
        };
        assert_eq!(server["push"], push, "{attrs}: {server}");
    }

    for last in ["--yes", "--dry-run"] {
        let cancel = ["cancel", "3", "--system", "agent_queue", "-d", &url_b, last];
        let (code, out, err) = place.run(&cancel);
        assert_eq!((code, out.as_str()), (1, ""), "{last}");
        let why = "a standby cannot be written to: connect to the primary";
        assert_eq!(err, format!("jobtop: cancel is off: {why}\n"), "{last}");
    }
    let state = "SELECT status FROM agent_queue.tasks WHERE id = 3";
    assert_eq!(place.value(state), "enqueued");

    // nothing that changes something can be run here
    let by_mona = url_b.replace("user=postgres", "user=mona");
    let (_, page, _) = place.run(&["doctor", &by_mona]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "of its own roles only; run on the primary:",
        "GRANT pg_signal_backend TO \"mona\";",
    ] {
        assert!(page.contains(words), "{words:?} in {page}");
    }

    let slow = slow_profile(&b, 0.01);
    let mut on_b = watching(&url_b, &["--allow-writes", "--config", &slow]);
    place.sql("SET search_path = agent_queue; SELECT enqueue('streamed', 'stream')");
    on_b.wait_text("streamed");
    let screen = on_b.wait("how old it is", |s| {
        s.contains("standby, last change") && s.contains("READ-ONLY")
    });
    on_b.keys("6R");
    on_b.wait_text("requeue is off");
    on_b.keys("0");
    row(
        "a standby",
        &line_with(&screen, "standby, last change"),
        "never away",
        "rights to write, until it is promoted",
    );
    let mut anywhere = watching(&both(&b, &a, "primary"), &["--allow-writes"]);

    // the primary removes what the standby reads
    let conflicts = "SELECT (sum(confl_snapshot + confl_lock + confl_bufferpin))::text FROM pg_stat_database_conflicts";
    let begun = Instant::now();
    let standby = Reader::of(&b);
    until("conflict with recovery", || {
        place.sql("UPDATE agent_jobs SET tenant = tenant WHERE status = 'running'");
        place.sql("VACUUM agent_jobs");
        standby.value(conflicts) != "0"
    });
    let n = standby.value(conflicts);
    answers(&mut on_b);
    let said = format!("{n} statements cancelled by recovery (40001)");
    back(
        &on_b,
        "recovery conflicts on a standby",
        &said,
        begun,
        "a refresh of that probe",
    );

    // the primary dies, and the standby takes its place
    let own = "SELECT pid::text FROM pg_stat_activity WHERE application_name = 'jobtop'";
    let pid = standby.value(own);
    a.down(true).expect("down");
    let said = lost(&anywhere);
    answers(&mut anywhere);
    on_b.wait("the standby", |s| live(s) && s.contains("standby"));
    assert_eq!(standby.value("SELECT pg_promote()::text"), "true");
    let begun = Instant::now();
    on_b.wait("the primary", |s| {
        live(s) && s.contains("primary") && s.contains("WRITES ALLOWED")
    });
    on_b.wait_text("the server was promoted, writes are possible now");
    // at the next refresh
    assert!(
        begun.elapsed() < Duration::from_secs(5 * 2),
        "it was noticed late"
    );
    assert_eq!(
        standby.value(own).lines().next(),
        Some(pid.as_str()),
        "the same session"
    );
    row(
        "promotion of the standby",
        "primary, WRITES ALLOWED",
        &seconds(begun),
        "nothing: the session stays",
    );
    anywhere.wait("the new primary", |s| live(s) && s.contains("primary"));
    back(
        &anywhere,
        "primary dead, its standby promoted, target_session_attrs=primary",
        &said,
        begun,
        NOTHING,
    );
    let said = requeue(&mut on_b, "state:failed kind:parse");
    assert_eq!(
        standby.value("SELECT status FROM agent_queue.tasks WHERE id = 1"),
        "enqueued"
    );
    row("requeue on the promoted one", &said, "at once", "nothing");
    // and notifications arrive: a minute between refreshes, seconds until it is seen
    on_b.keys("0");
    for _ in 0..7 {
        on_b.keys("-");
    }
    on_b.wait_text("polling every 60s");
    standby.value("SELECT agent_queue.enqueue('heard', 'parse')::text");
    on_b.wait_text("heard");
    quit(&mut on_b);
    quit(&mut anywhere);
}

/// Statements on a server that may be a standby.
struct Reader(tokio::runtime::Runtime, tokio_postgres::Client);

impl Reader {
    fn of(cluster: &Cluster) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let client = runtime.block_on(crate::common::connect(&cluster.config()));
        Self(runtime, client)
    }

    fn value(&self, sql: &str) -> String {
        let rows = loop {
            match self.0.block_on(self.1.query(sql, &[])) {
                // the conflicts that are made for others meet this one, too
                Err(e) if e.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE) => {}
                rows => break rows.expect(sql),
            }
        };
        rows.first().map_or(String::new(), |row| row.get(0))
    }
}
