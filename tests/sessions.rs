//! Ending sessions: only the one that was seen, never jobtop's own, and what is missing is named.

mod common;
#[path = "profiles/setup.rs"]
mod setup;

use common::hogs::Hogs;
use common::place::Place;
use jobtop::action::strike::{After, How, Strike, Struck, Verdict, With};
use jobtop::connect::{Session, Target, session::Purpose};
use jobtop::demo::cluster::Cluster;
use jobtop::journal::{Entry, Journal};
use jobtop::probe::backend::Backend;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config};

/// A database with the reference queue, our polling session, and one that writes.
struct Db {
    client: Client,
    poll: Session,
    write: Session,
    config: Config,
    journal: PathBuf,
}

const JOURNAL: &str = "\"agent_queue\".\"operator_actions\"";

async fn open(hint: &str) -> Db {
    let (client, poll, config) = setup::open(hint, &setup::agent_queue()).await;
    let write = writer(&config).await;
    Db {
        client,
        poll,
        write,
        journal: common::journal(config.get_dbname().expect("a name")),
        config,
    }
}

fn with(journal: &Path, poll: i32, table: Option<String>) -> With {
    let settings = jobtop::config::Config {
        journal_file: Some(journal.into()),
        ..jobtop::config::Config::default()
    };
    With {
        poll,
        server: "here".into(),
        table,
        journal: Journal::open(&settings).expect("a journal"),
    }
}

async fn writer(config: &Config) -> Session {
    let target = Target::new(config.clone()).expect("a target");
    let session = Session::open(&target, Purpose::Write, "jobtop write").await;
    session.expect("a session that writes")
}

async fn pid(client: &Client) -> i32 {
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
    row.expect("a pid").get(0)
}

impl Db {
    /// Another session of that name, and its pid.
    async fn other(&self, name: &str) -> (Client, i32) {
        let mut config = self.config.clone();
        config.application_name(name);
        let client = common::connect(&config).await;
        let pid = pid(&client).await;
        (client, pid)
    }

    async fn see(&self, pid: i32) -> Backend {
        let seen = Backend::read(&self.poll, pid, None).await.expect("read");
        seen.expect("it is there")
    }

    async fn strike(&self, pid: i32, how: How) -> Strike {
        let seen = self.see(pid).await;
        Strike::new(pid, &seen, how, Some("because".into())).expect("a start")
    }

    async fn carry_out(&self, strike: Strike) -> Struck {
        self.carry_out_beside(strike, self.poll.pid).await
    }

    /// With this pid as that of our polling session.
    async fn carry_out_beside(&self, strike: Strike, poll: i32) -> Struck {
        let with = with(&self.journal, poll, Some(JOURNAL.into()));
        strike.carry_out(&self.write, &with).await
    }

    /// Phases and outcomes in the local journal.
    fn noted(&self) -> Vec<String> {
        let line = |e: Entry| {
            let outcomes: Vec<&str> = e.outcomes.values().map(String::as_str).collect();
            format!("{:?} {} {}", e.phase, e.action, outcomes.join(","))
        };
        let entries = jobtop::journal::read(&self.journal).expect("a journal");
        entries.map(|e| line(e.expect("a whole line"))).collect()
    }

    /// Waits until a session runs a statement.
    async fn runs(&self, pid: i32) {
        let end = Instant::now() + common::pty::PATIENCE;
        while !self.see(pid).await.active() {
            assert!(Instant::now() < end, "{pid} runs nothing");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn text(&self, sql: &str) -> Option<String> {
        let rows = self.client.query(sql, &[]).await.expect(sql);
        rows.first().and_then(|row| row.get(0))
    }
}

async fn alive(client: &Client) -> bool {
    client.simple_query("SELECT 1").await.is_ok()
}

#[tokio::test]
async fn an_idle_transaction_is_ended_its_locks_are_free_and_the_journal_says_so() {
    let db = open("ended").await;
    let (agent, agent_pid) = db.other("agent-7").await;
    db.client
        .batch_execute("SELECT agent_queue.enqueue('parser', 'parse')")
        .await
        .expect("a task");
    agent
        .batch_execute("BEGIN; UPDATE agent_queue.tasks SET priority = 9")
        .await
        .expect("a lock");
    let strike = db.strike(agent_pid, How::Terminate).await;
    assert_eq!(
        (strike.application.as_str(), strike.statement_us),
        ("agent-7", None)
    );
    let id = strike.action_id.clone();
    let struck = db.carry_out(strike).await;
    assert_eq!(struck.verdict, Verdict::Signalled(After::Gone));
    assert_eq!(struck.unwritten, None);
    let told = struck.summary().1;
    assert_eq!(told, format!("terminated {agent_pid} agent-7: gone"));
    assert!(!alive(&agent).await);
    let sql = "SELECT priority::text FROM agent_queue.tasks FOR UPDATE NOWAIT";
    assert_eq!(
        db.text(sql).await.as_deref(),
        Some("0"),
        "rolled back and free"
    );
    let row = "SELECT concat_ws(' ', action_id, action, ids, asked, changed, skipped, outcomes, reason, sql ~ 'pg_terminate_backend') \
                 FROM agent_queue.operator_actions";
    assert_eq!(
        db.text(row).await,
        Some(format!(
            "{id} terminate {{{agent_pid}}} 1 1 0 {{\"{agent_pid}\": \"signalled\"}} because t"
        ))
    );
}

#[tokio::test]
async fn another_session_with_the_same_pid_is_left_alone() {
    let db = open("reused").await;
    let (agent, agent_pid) = db.other("agent-7").await;
    for how in [How::Terminate, How::Cancel] {
        let mut strike = db.strike(agent_pid, how).await;
        // a microsecond: the session that was seen had this pid before
        strike.started_us -= 1;
        let struck = db.carry_out(strike).await;
        assert_eq!(struck.verdict, Verdict::Gone);
    }
    assert!(alive(&agent).await);
    let rows =
        "SELECT string_agg(outcomes::text || changed, ' ') FROM agent_queue.operator_actions";
    let row = format!("{{\"{agent_pid}\": \"gone\"}}0");
    assert_eq!(db.text(rows).await, Some(format!("{row} {row}")));
    let strike = db.strike(agent_pid, How::Terminate).await;
    drop(agent);
    let end = Instant::now() + common::pty::PATIENCE;
    while Backend::read(&db.poll, agent_pid, None)
        .await
        .expect("read")
        .is_some()
    {
        assert!(Instant::now() < end, "it stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(
        db.carry_out(strike).await.verdict,
        Verdict::Gone,
        "it ended"
    );
}

#[tokio::test]
async fn jobtops_own_sessions_are_refused() {
    let db = open("own").await;
    let (other, other_pid) = db.other("jobtop").await;
    let (renamed, renamed_pid) = db.other("agent-7").await;
    for pid in [db.poll.pid, db.write.pid, other_pid] {
        let strike = db.strike(pid, How::Terminate).await;
        assert_eq!(db.carry_out(strike).await.verdict, Verdict::Ours, "{pid}");
    }
    // the polling session is known by its pid, too
    let strike = db.strike(renamed_pid, How::Terminate).await;
    let struck = db.carry_out_beside(strike, renamed_pid).await;
    assert_eq!(struck.verdict, Verdict::Ours);
    let noted = db.noted();
    assert_eq!(noted.len(), 8, "before and after each: {noted:?}");
    assert_eq!(noted[0].trim(), "Begun terminate");
    assert_eq!(noted[1], "Ended terminate refused");
    assert!(alive(&other).await && alive(&renamed).await);
    db.see(db.poll.pid).await;
    let refused = "SELECT count(*)::text FROM agent_queue.operator_actions WHERE outcomes::text ~ 'refused' AND changed = 0";
    assert_eq!(db.text(refused).await.as_deref(), Some("4"));
}

#[tokio::test]
async fn cancel_ends_the_statement_that_was_seen_and_not_the_session() {
    let db = open("cancelled").await;
    let (agent, agent_pid) = db.other("agent-7").await;
    let (agent, sleeper) = (std::sync::Arc::new(agent), "SELECT pg_sleep(300)");
    let sleep = |agent: &std::sync::Arc<Client>| {
        let agent = agent.clone();
        tokio::spawn(async move { agent.batch_execute(sleeper).await })
    };
    let work = sleep(&agent);
    db.runs(agent_pid).await;
    // one statement earlier
    let mut late = db.strike(agent_pid, How::Cancel).await;
    late.statement_us = late.statement_us.map(|us| us - 1);
    assert_eq!(db.carry_out(late).await.verdict, Verdict::MovedOn);
    let strike = db.strike(agent_pid, How::Cancel).await;
    let again = Strike {
        action_id: "again".into(),
        ..strike.clone()
    };
    let struck = db.carry_out(strike).await;
    assert_eq!(
        struck.verdict,
        Verdict::Signalled(After::Ended("idle".into()))
    );
    let error = work.await.expect("joined").expect_err("it was cancelled");
    assert_eq!(error.code().map(|c| c.code()), Some("57014"));
    assert!(alive(&agent).await, "the session stays");
    assert_eq!(db.carry_out(again).await.verdict, Verdict::MovedOn);

    agent.batch_execute("BEGIN; SELECT 1").await.expect("begun");
    let work = sleep(&agent);
    db.runs(agent_pid).await;
    let strike = db.strike(agent_pid, How::Cancel).await;
    let verdict = db.carry_out(strike).await.verdict;
    let aborted = "idle in transaction (aborted)".to_string();
    assert_eq!(verdict, Verdict::Signalled(After::Ended(aborted)));
    work.await.expect("joined").expect_err("it was cancelled");
    let names =
        "SELECT string_agg(action || changed, ' ' ORDER BY at) FROM agent_queue.operator_actions";
    assert_eq!(
        db.text(names).await.as_deref(),
        Some("cancel_query0 cancel_query1 cancel_query0 cancel_query1")
    );
}

#[tokio::test]
async fn a_missing_right_is_named_and_a_journal_that_cannot_be_written_stops_nothing() {
    let db = open("rights").await;
    db.client
        .batch_execute(
            "CREATE ROLE sessions_oncall LOGIN; GRANT pg_read_all_stats TO sessions_oncall;
             CREATE ROLE sessions_app LOGIN",
        )
        .await
        .expect("roles");
    let role = |name: &str| {
        let mut config = db.config.clone();
        config.user(name).application_name("agent-7");
        config
    };
    let oncall = writer(&role("sessions_oncall")).await;
    let app = common::connect(&role("sessions_app")).await;
    let app_pid = pid(&app).await;
    let (root, root_pid) = db.other("psql").await;

    let try_it = async |pid: i32| {
        let seen = Backend::read(&oncall, pid, None)
            .await
            .expect("read")
            .expect("there");
        let lacks = seen.lacks();
        let strike = Strike::new(pid, &seen, How::Terminate, None).expect("a start");
        (
            lacks,
            strike
                .carry_out(
                    &oncall,
                    &with(&db.journal, db.poll.pid, Some(JOURNAL.into())),
                )
                .await,
        )
    };
    let (lacks, struck) = try_it(app_pid).await;
    let lacks = lacks.expect("a right is missing");
    assert!(
        lacks.ends_with("GRANT pg_signal_backend TO sessions_oncall"),
        "{lacks}"
    );
    assert_eq!(struck.verdict, Verdict::NotPermitted(lacks));
    assert!(alive(&app).await);

    db.client
        .batch_execute("GRANT pg_signal_backend TO sessions_oncall")
        .await
        .expect("granted");
    let (lacks, struck) = try_it(root_pid).await;
    let lacks = lacks.expect("a right is missing");
    assert!(
        lacks.contains("only a superuser may end its sessions"),
        "{lacks}"
    );
    assert_eq!(struck.verdict, Verdict::NotPermitted(lacks));
    assert!(alive(&root).await);

    let (lacks, struck) = try_it(app_pid).await;
    assert_eq!(
        (lacks, &struck.verdict),
        (None, &Verdict::Signalled(After::Gone))
    );
    assert!(!alive(&app).await);
    let why = struck
        .unwritten
        .clone()
        .expect("no right to write the journal");
    assert!(why.contains("permission denied"), "{why}");
    let told = struck.summary().1;
    assert!(
        told.contains("gone (not in the queue's journal: permission denied"),
        "{told}"
    );

    // who may not see when it started cannot know whether it still is the same
    db.client
        .batch_execute("REVOKE pg_read_all_stats FROM sessions_oncall")
        .await
        .expect("revoked");
    let other = common::connect(&role("sessions_app")).await;
    let other_pid = pid(&other).await;
    let seen = Backend::read(&oncall, other_pid, None)
        .await
        .expect("read")
        .expect("there");
    assert_eq!(Strike::new(other_pid, &seen, How::Terminate, None), None);
    db.client
        .batch_execute(
            "GRANT sessions_app TO sessions_oncall; REVOKE pg_signal_backend FROM sessions_oncall",
        )
        .await
        .expect("granted");
    let (lacks, struck) = try_it(other_pid).await;
    assert_eq!(lacks, None, "a member of its role");
    assert_eq!(struck.verdict, Verdict::Signalled(After::Gone));
}

#[tokio::test]
async fn one_that_does_not_heed_the_signal_is_said_to_be_there_still() {
    use nix::sys::signal::{Signal, kill};
    let db = open("deaf").await;
    let (agent, agent_pid) = db.other("agent-7").await;
    let strike = db.strike(agent_pid, How::Terminate).await;
    let process = nix::unistd::Pid::from_raw(agent_pid);
    kill(process, Signal::SIGSTOP).expect("stopped");
    let struck = db.carry_out(strike).await;
    kill(process, Signal::SIGCONT).expect("goes on");
    assert_eq!(struck.verdict, Verdict::Signalled(After::Still));
    let told = struck.summary().1;
    assert!(told.contains("signalled, still there"), "{told}");
    let end = Instant::now() + common::pty::PATIENCE;
    while alive(&agent).await {
        assert!(Instant::now() < end, "it never heeds the signal");
    }
}

/// A cluster of its own.
fn own_cluster(name: &str, settings: &[(&str, &str)]) -> (Cluster, Config) {
    let cluster = common::own_cluster(settings);
    let config = common::database_on(&cluster, name);
    (cluster, config)
}

/// A replication connection that says nothing; and its pid, which the server tells.
fn walsender(cluster: &Cluster) -> (UnixStream, i32) {
    let path = cluster
        .socket_dir()
        .join(format!(".s.PGSQL.{}", cluster.port()));
    let mut stream = UnixStream::connect(path).expect("connected");
    let mut body = 196_608i32.to_be_bytes().to_vec();
    for word in [
        "user",
        cluster.superuser(),
        "replication",
        "true",
        "application_name",
        "standby1",
        "",
    ] {
        body.extend(word.as_bytes());
        body.push(0);
    }
    let length = (body.len() + 4) as i32;
    stream.write_all(&length.to_be_bytes()).expect("sent");
    stream.write_all(&body).expect("sent");
    let mut pid = None;
    loop {
        let mut head = [0u8; 5];
        stream.read_exact(&mut head).expect("a message");
        let [kind, length @ ..] = head;
        let mut body = vec![0u8; i32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut body).expect("its body");
        match kind {
            b'K' => pid = body.first_chunk().map(|b| i32::from_be_bytes(*b)),
            b'Z' => return (stream, pid.expect("the key of the backend")),
            b'E' => panic!("{}", String::from_utf8_lossy(&body)),
            _ => {}
        }
    }
}

#[test]
fn a_replication_sender_is_ended_only_if_it_is_asked_for_as_such() {
    let (cluster, config) = own_cluster(
        "senders",
        &[("wal_level", "replica"), ("max_wal_senders", "2")],
    );
    let (mut stream, pid) = walsender(&cluster);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let write = writer(&config).await;
        let journal = common::journal("walsender");
        let beside = with(&journal, 0, None);
        let seen = Backend::read(&write, pid, None)
            .await
            .expect("read")
            .expect("there");
        assert!(seen.replicates(), "{seen:?}");
        let strike = Strike::new(pid, &seen, How::Terminate, None).expect("a start");
        assert!(strike.replication, "the dialog asks for the word");
        let careless = Strike {
            replication: false,
            ..strike.clone()
        };
        let verdict = careless.carry_out(&write, &beside).await.verdict;
        assert_eq!(verdict, Verdict::Replication);
        assert!(
            Backend::read(&write, pid, None)
                .await
                .expect("read")
                .is_some()
        );
        let verdict = strike.carry_out(&write, &beside).await.verdict;
        assert_eq!(verdict, Verdict::Signalled(After::Gone));
    });
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the end");
    assert!(String::from_utf8_lossy(&rest).contains("57P01"));
}

#[test]
fn a_full_server_lets_the_poll_session_end_who_holds_the_row() {
    let (cluster, config) = own_cluster("crowded", &[]);
    let place = Place::on(&cluster, "crowded", config);
    let (agent, runtime) = place.client();
    runtime.block_on(async {
        let lock = "SET application_name = 'agent-7'; BEGIN; UPDATE agent_queue.tasks SET priority = 9 WHERE id = 1";
        agent.batch_execute(lock).await.expect("locked");
    });
    let mut pty = place.watch(&["--allow-writes"], 160, 45);
    pty.wait_text("parser");
    pty.keys("1/agent-7\r");
    pty.wait_text("1/");
    pty.wait_text("^K end");
    // every slot, also the superuser's
    let hogs = Hogs::of(&cluster, cluster.superuser());
    assert!(hogs.len() > 10);
    pty.keys("\x0b");
    pty.wait_text("agent-7?");
    pty.wait_text("cancel its statement is off: it is idle in transaction");
    pty.keys("t");
    pty.wait_text("y yes, terminate it");
    pty.keys("y");
    pty.wait_text("agent-7: gone");
    assert!(!runtime.block_on(alive(&agent)));
    drop(hogs);
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    assert_eq!(
        place.value("SELECT action || ' ' || changed FROM agent_queue.operator_actions"),
        "terminate 1"
    );
    assert_eq!(
        place.value("SELECT priority FROM agent_queue.tasks WHERE id = 1"),
        "0"
    );
}
