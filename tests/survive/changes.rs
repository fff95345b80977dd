//! Others change what is watched: rights, columns, tables, whole systems; statements are cancelled or never end.

use crate::common::{self, place::Place};
use crate::help::{
    NOTHING, answers, ask_requeue, back, escape, line_with, live, quit, requeue, row, slow_profile,
    until, watching,
};
use jobtop::migrate::FILES;
use std::time::{Duration, Instant};

#[test]
fn a_lost_right_and_a_changed_table_cost_their_panes_only() {
    let place = Place::new("changed");
    place.sql(common::load::HOUSES);
    let database = place.value("SELECT current_database()");
    place.sql(
        "CREATE ROLE changing LOGIN; GRANT agent_queue_monitor, pg_monitor TO changing;
         GRANT SELECT ON agent_jobs, workflow_jobs TO changing",
    );
    let url = place.url.replace("user=postgres", "user=changing");
    let mut pty = watching(&url, &[]);
    pty.wait_text("agent_jobs");
    // statements that the server keeps prepared must not outlive the columns they name
    std::thread::sleep(Duration::from_secs(3));
    place.sql("ALTER TABLE agent_jobs DROP COLUMN tenant, ADD COLUMN kind text DEFAULT 'new_kind', ADD COLUMN max_attempts int");
    place.sql("REVOKE SELECT ON workflow_jobs FROM changing");
    let begun = Instant::now();
    pty.wait_text("permission denied");
    answers(&mut pty);
    let screen = pty.wait("the others", |s| s.contains("LIVE") && s.contains("parser"));
    assert!(!screen.contains("STALE"), "{screen}");
    place.sql("GRANT SELECT ON workflow_jobs TO changing");
    pty.wait_no_text("permission denied");
    back(
        &pty,
        "right revoked, column dropped",
        "permission denied … (42501)",
        begun,
        "that table's panes, until granted",
    );
    pty.keys("6/kind:new_kind\r");
    pty.wait_text("new_kind");
    // somebody who cancels its statements is no reason to give up
    escape(&mut pty);
    pty.keys("0");
    for _ in 0..20 {
        place.sql(&format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'jobtop' AND datname = '{database}' AND state = 'active'"
        ));
    }
    answers(&mut pty);
    let fault = "20 statements cancelled";
    back(
        &pty,
        fault,
        "at most one refresh without them",
        Instant::now(),
        NOTHING,
    );
    quit(&mut pty);
    place.wait_no_session();
}

#[test]
fn a_probe_that_never_ends_says_so_and_the_others_go_on() {
    let place = Place::new("slow");
    place.sql(common::load::HOUSES);
    // a second for each of 20 rows
    let file = slow_profile(common::cluster(), 1.0);
    let mut pty = place.watch(&["--config", &file], 160, 45);
    pty.wait_text("statement timeout (57014)");
    answers(&mut pty);
    let screen = pty.wait("the others", |s| {
        s.contains("parser") && s.contains("workflow_jobs")
    });
    assert!(!screen.contains("STALE"), "{screen}");
    row(
        "a statement that never ends",
        "canceling statement due to statement timeout (57014)",
        "never away",
        "that system's panes",
    );
    quit(&mut pty);
}

/// Runs statements in a database that has no reference queue yet.
fn run(config: &tokio_postgres::Config, statements: &[String]) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = common::connect(config).await;
        for sql in statements {
            client.batch_execute(sql).await.expect(sql);
        }
    });
}

/// The reference queue as it was when it got its first actions, with a failed, a running and a ready task.
fn old_queue() -> Vec<String> {
    let mut statements = vec![
        "CREATE SCHEMA agent_queue; SET search_path = agent_queue, pg_temp;
         CREATE TABLE migrations (version bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
           applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), applied_by text NOT NULL DEFAULT session_user)"
            .to_string(),
    ];
    for file in FILES.iter().take_while(|f| f.version <= 4) {
        statements.push(file.sql.into());
        let (version, name, sum) = (file.version, file.name, file.checksum());
        statements.push(format!(
            "INSERT INTO migrations (version, name, checksum) VALUES ({version}, '{name}', '{sum}')"
        ));
    }
    statements.push(
        "SELECT enqueue('parser', 'old_kind', max_attempts => 1);
         SELECT fail(id, lease_token, 'ValueError: bad page') FROM claim('parser', 'w1');"
            .into(),
    );
    statements
}

#[test]
fn a_queue_is_upgraded_dropped_and_made_anew_under_its_watcher() {
    let (name, config) = common::database("upgraded");
    run(&config, &old_queue());
    let cluster = common::cluster();
    let url = format!(
        "host={} port={} user={} dbname={name}",
        cluster.socket_dir().display(),
        cluster.port(),
        cluster.superuser()
    );
    let mut pty = watching(&url, &["--allow-writes"]);
    // this jobtop knows more of its journal than it has
    ask_requeue(&mut pty, "state:failed kind:old_kind");
    let screen = pty.wait_text("run jobtop migrate");
    let old = line_with(&screen, "run jobtop migrate");
    escape(&mut pty);
    // statements that the server keeps prepared must not outlive the upgrade
    std::thread::sleep(Duration::from_secs(3));
    let begun = Instant::now();
    let place = Place::on(cluster, &name, config.clone());
    assert_eq!(
        place.value("SELECT max(version)::text FROM agent_queue.migrations"),
        FILES.last().expect("one").version.to_string()
    );
    pty.wait("the new tasks", |s| live(s) && s.contains("parser"));
    let said = requeue(&mut pty, "state:failed kind:parse");
    let said = format!("{old}; then {said}");
    pty.keys("0");
    back(
        &pty,
        "queue upgraded from 0004 to the newest",
        &said,
        begun,
        "nothing",
    );

    // a column of another type: every statement about it must be planned anew
    place.sql("ALTER TABLE agent_queue.tasks ALTER COLUMN priority TYPE bigint, ALTER COLUMN kind TYPE varchar(80)");
    let begun = Instant::now();
    place.sql("SET search_path = agent_queue; SELECT enqueue('retyped', 'parse')");
    pty.wait_text("retyped");
    answers(&mut pty);
    pty.wait("no complaint", |s| {
        live(s) && !s.contains("0A000") && !s.contains("cached plan")
    });
    back(
        &pty,
        "columns altered to other types",
        "nothing",
        begun,
        "nothing",
    );

    place.sql("DROP SCHEMA agent_queue CASCADE");
    let screen = pty.wait_text("was here and is gone");
    let said = line_with(&screen, "was here and is gone");
    answers(&mut pty);
    let begun = Instant::now();
    let again = Place::on(cluster, &name, config);
    pty.wait_no_text("was here and is gone");
    back(
        &pty,
        "system dropped and made anew",
        &said,
        begun,
        "its panes, until it is there again",
    );
    requeue(&mut pty, "state:failed");
    assert_eq!(
        again.value("SELECT status FROM agent_queue.tasks WHERE id = 1"),
        "enqueued"
    );
    quit(&mut pty);
    until("end of the session", || again.sessions() == "0");
}
