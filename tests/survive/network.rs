//! The network between breaks, leads elsewhere, or swallows everything; the server does not answer.

use crate::common::{self, place::Place};
use crate::help::{
    NOTHING, answers, back, lost, own_cluster, place_on, quit, row, seconds, socket, until,
    watching,
};
use crate::line::Line;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::TcpListener;
use std::time::{Duration, Instant};

#[test]
fn another_server_may_answer_at_the_same_address() {
    let settings = [("wal_level", "replica"), ("hot_standby", "on")];
    let (first, second) = (own_cluster(&settings), own_cluster(&settings));
    let (place, other) = (place_on(&first), place_on(&second));
    let line = Line::to(socket(&first));
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", line.port);
    let mut pty = watching(&url, &["--allow-writes"]);
    place.sql("CHECKPOINT");
    // it ran while the first one was still seen: no restart, then
    until("age of the second server", || {
        let age = "SELECT clock_timestamp() - pg_postmaster_start_time() > interval '3 s'";
        other.value(age) == "t"
    });
    // the first one dies, and nobody answers for a while: at most two attempts a second
    line.refuse(true);
    line.cut();
    let said = lost(&pty);
    let (begun, before) = (Instant::now(), line.attempts());
    for _ in 0..3 {
        answers(&mut pty);
        std::thread::sleep(Duration::from_millis(800));
    }
    let (tried, span) = (line.attempts() - before, begun.elapsed().as_secs_f64());
    assert!(
        tried > 0 && f64::from(tried) <= 2.0 * span + 1.0,
        "{tried} in {span}s"
    );
    line.switch(socket(&second));
    line.refuse(false);
    back(
        &pty,
        "another primary at the same address",
        &said,
        Instant::now(),
        NOTHING,
    );
    pty.wait_text("s: another server answers now");
    assert!(pty.screen().contains("primary"), "{}", pty.screen());
    other.value("SELECT 1");
    // and then as a standby that only reads
    second.down(false).expect("down");
    let said = lost(&pty);
    std::fs::write(second.root().join("data/standby.signal"), "").expect("a standby");
    second.up().expect("up");
    let none = "rights to write, until it is promoted";
    back(
        &pty,
        "a standby at the same address",
        &said,
        Instant::now(),
        none,
    );
    pty.wait_text("standby");
    pty.keys("6R");
    pty.wait_text("standby");
    pty.wait("no writes", |s| {
        s.contains("READ-ONLY") && s.contains("requeue is off")
    });
    quit(&mut pty);
}

#[test]
fn a_network_that_swallows_everything_is_noticed_and_outlived() {
    let place = Place::new("blackhole");
    let line = Line::to(socket(common::cluster()));
    let database = place.value("SELECT current_database()");
    let url = format!("postgres://postgres@127.0.0.1:{}/{database}", line.port);
    let mut pty = watching(&url, &[]);
    line.swallow(true);
    pty.wait("old data", |s| s.contains("SLOW") || s.contains("STALE"));
    answers(&mut pty);
    let said = lost(&pty);
    answers(&mut pty);
    line.swallow(false);
    back(
        &pty,
        "a network that swallows everything",
        &said,
        Instant::now(),
        NOTHING,
    );
    line.swallow(true);
    pty.wait("old data", |s| s.contains("SLOW"));
    let begun = Instant::now();
    quit(&mut pty);
    row(
        "q while the network swallows everything",
        "ends",
        &seconds(begun),
        "nothing",
    );
    line.swallow(false);
    place.wait_no_session();
}

#[test]
fn an_idle_line_is_kept_alive_and_a_frozen_server_is_outlived() {
    let cluster = own_cluster(&[]);
    let probe = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = probe.local_addr().expect("an address").port();
    drop(probe);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for sql in [
        "ALTER SYSTEM SET listen_addresses = '127.0.0.1'".to_string(),
        format!("ALTER SYSTEM SET port = {port}"),
    ] {
        runtime.block_on(async {
            let client = common::connect(&cluster.config()).await;
            client.batch_execute(&sql).await.expect("set");
        });
    }
    cluster.restart(false).expect("restarted");
    let mut config = tokio_postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(port)
        .user(cluster.superuser())
        .dbname("postgres");
    let place = Place::on(&cluster, "postgres", config);
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let mut pty = watching(&url, &["--interval", "5"]);
    if cfg!(target_os = "linux") {
        // both ends would notice that the other is gone: ours as the system has it, the server's after 30 s as we told it
        let client = place
            .value("SELECT client_port FROM pg_stat_activity WHERE application_name = 'jobtop'");
        let client = client.parse().expect("a port");
        until("timer at our end", || keepalive(client, port).is_some());
        until("timer at the server's end", || {
            keepalive(port, client).is_some_and(|seconds| seconds <= 30.0)
        });
        let (ours, theirs) = (keepalive(client, port), keepalive(port, client));
        let at = |end: Option<f64>| end.map_or("soon".into(), |s| format!("in {s:.0} s"));
        let said = format!(
            "nothing: next probe of ours {}, of the server's {}",
            at(ours),
            at(theirs)
        );
        row("an idle line", &said, "never away", "nothing");
    }
    pty.keys("++");
    let postmaster = cluster.postmaster_pid().expect("a server") as i32;
    let own = place.value("SELECT pid FROM pg_stat_activity WHERE application_name = 'jobtop'");
    let frozen = [postmaster, own.parse().expect("a pid")];
    let all = |signal| frozen.map(|pid| kill(Pid::from_raw(pid), signal).expect("sent"));
    all(Signal::SIGSTOP);
    let said = lost(&pty);
    answers(&mut pty);
    all(Signal::SIGCONT);
    back(
        &pty,
        "SIGSTOP of the server",
        &said,
        Instant::now(),
        NOTHING,
    );
    quit(&mut pty);
}

/// Seconds until the keepalive timer of a connection's end fires; `None` while it has another timer, or none.
fn keepalive(local: u16, remote: u16) -> Option<f64> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
    let end = |text: &str, port: u16| text.ends_with(&format!(":{port:04X}"));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let ours = end(fields.get(1)?, local) && end(fields.get(2)?, remote);
        // 02 is the keepalive timer; hundredths of a second follow
        let left = fields.get(5)?.strip_prefix("02:").filter(|_| ours)?;
        Some(f64::from(u32::from_str_radix(left, 16).ok()?) / 100.0)
    })
}
