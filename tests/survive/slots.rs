//! Servers without a free connection slot.

use crate::common::hogs::Hogs;
use crate::common::pty::Pty;
use crate::help::{
    NOTHING, answers, back, lost, major, own_cluster, place_on, quit, requeue, row, watching,
};
use std::time::Instant;

#[test]
fn a_full_server_is_waited_for_at_start_and_afterwards() {
    let cluster = own_cluster(&[
        ("max_connections", "12"),
        ("superuser_reserved_connections", "3"),
    ]);
    let place = place_on(&cluster);
    place.sql("CREATE ROLE oncall LOGIN; GRANT agent_queue_monitor, pg_monitor TO oncall");
    let url = place.url.replace("user=postgres", "user=oncall");
    let hogs = Hogs::of(&cluster, "oncall");
    let mut pty = Pty::jobtop(&[&url], 160, 45);
    let screen = pty.wait_text("every connection slot but the reserved ones is taken (53300)");
    assert!(
        screen.contains("superuser_reserved_connections"),
        "{screen}"
    );
    // also those of the superusers
    let kings = Hogs::of(&cluster, cluster.superuser());
    let mut second = Pty::jobtop(&[&url], 160, 45);
    second.wait_text("every connection slot is taken, the reserved ones too (53300)");
    quit(&mut second);
    drop(kings);
    drop(hogs);
    let said = "every connection slot but the reserved ones is taken";
    let none = "nothing was known yet";
    back(
        &pty,
        "too many clients at start",
        said,
        Instant::now(),
        none,
    );
    // its session is ended, and somebody takes the slot before it is back
    let hogs = Hogs::of(&cluster, "oncall");
    pty.wait("who holds them", |s| {
        s.contains("9/9") || s.contains("9 of 9")
    });
    let (client, runtime) = place.client();
    place.wait_sessions("1");
    runtime.block_on(async {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobtop'";
        client.execute(sql, &[]).await.expect("ended");
    });
    let last = Hogs::of(&cluster, "oncall");
    let screen = pty.wait_text("9 of max_connections 12 are for everyone, 3 reserved");
    let words: Vec<&str> = screen.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("last seen 9 used: hog 8, jobtop 1"),
        "{screen}"
    );
    // no stampede for the next slot
    pty.wait_text("tries, the next in ");
    let said = lost(&pty);
    answers(&mut pty);
    drop((hogs, last));
    back(
        &pty,
        "too many clients at reconnect",
        &said,
        Instant::now(),
        NOTHING,
    );
    quit(&mut pty);
}

#[test]
fn a_full_server_is_the_verdict_whatever_else_is_critical() {
    let cluster = own_cluster(&[("max_connections", "12")]);
    let place = place_on(&cluster);
    place.sql(
        "CREATE ROLE oncall LOGIN; GRANT agent_queue_monitor, pg_monitor TO oncall;
         SET search_path = agent_queue;
         SELECT enqueue('parser', 'parse') FROM generate_series(1, 5);
         SELECT started(id, lease_token) FROM claim('parser', 'w3', 5);
         UPDATE tasks SET lease_expires_at = now() - interval '20 min' WHERE locked_by = 'w3'",
    );
    let url = place.url.replace("user=postgres", "user=oncall");
    // the most important thing has the second line there
    let verdict = |s: &str| s.lines().nth(1).unwrap_or_default().to_string();
    let mut pty = Pty::jobtop(&[&url, "--interval", "0.5"], 80, 24);
    let leases = |s: &str| verdict(s).contains("5 leases expired");
    pty.wait("the leases", leases);
    let hogs = Hogs::of(&cluster, "oncall");
    let screen = pty.wait("the full server", |s| {
        verdict(s).contains("9 of 9 connections: logins are refused; hog holds 8")
    });
    assert!(screen.contains("more: L"), "the leases are next:\n{screen}");
    drop(hogs);
    pty.wait("the leases", leases);
    quit(&mut pty);
}

#[test]
fn the_only_slot_serves_for_looking_and_for_writing() {
    // one for everybody, one for the superuser: as few as Postgres permits
    let cluster = own_cluster(&[
        ("max_connections", "2"),
        ("superuser_reserved_connections", "1"),
        ("max_wal_senders", "0"),
        ("autovacuum_max_workers", "1"),
    ]);
    let place = place_on(&cluster);
    place.sql("CREATE ROLE oncall LOGIN; GRANT agent_queue_operator, pg_monitor TO oncall");
    let url = place.url.replace("user=postgres", "user=oncall");
    let mut pty = watching(&url, &["--allow-writes"]);
    assert_eq!(Hogs::of(&cluster, "oncall").len(), 0, "no slot is left");
    let said = requeue(&mut pty, "state:failed");
    assert_eq!(
        place.value("SELECT status FROM agent_queue.tasks WHERE id = 1"),
        "enqueued"
    );
    row("max_connections = 2", &said, "never away", "nothing");
    quit(&mut pty);
    place.wait_no_session();
}

#[test]
fn a_reserved_slot_is_taken_where_it_was_granted() {
    if major() < 16 {
        eprintln!(
            "reserved_connections exists since Postgres 16, this is {}",
            major()
        );
        return;
    }
    let cluster = own_cluster(&[("max_connections", "12"), ("reserved_connections", "2")]);
    let place = place_on(&cluster);
    place.sql(
        "CREATE ROLE plain LOGIN; GRANT agent_queue_monitor, pg_monitor TO plain;
         CREATE ROLE oncall LOGIN; GRANT plain, pg_use_reserved_connections TO oncall",
    );
    let _hogs = Hogs::of(&cluster, "plain");
    let url = |role: &str| place.url.replace("user=postgres", &format!("user={role}"));
    let mut out = Pty::jobtop(&[&url("plain")], 160, 45);
    let screen = out.wait_text("every connection slot but the reserved ones is taken (53300)");
    assert!(screen.contains("pg_use_reserved_connections"), "{screen}");
    let mut pty = watching(&url("oncall"), &[]);
    row(
        "too many clients, reserved slots granted",
        "data",
        "never away",
        "nothing",
    );
    quit(&mut pty);
    quit(&mut out);
}
