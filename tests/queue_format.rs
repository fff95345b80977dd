//! The profile format carries systems with a table per queue, with state in pg_locks, with a loop per queue; and a wrong
//! profile is refused with file, line and reason.

mod common;
#[path = "profiles/setup.rs"]
mod setup;

use jobtop::action::{Target, Verb};
use jobtop::config::Config;
use jobtop::connect::{Session, Target as Server, session::Purpose};
use jobtop::probe::tasks::{Filter, Task};
use jobtop::probe::{QueueProbes, Snapshot, State, queues::Queue};
use jobtop::queue::action::{ActionSql, action_sql};
use jobtop::queue::check::parse;
use setup::{everything, now, open};
use std::path::PathBuf;

fn ours() -> Config {
    Config {
        profiles: vec![PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/profiles"
        ))],
        ..Config::default()
    }
}

async fn probes(session: &Session) -> QueueProbes {
    let mut probes = QueueProbes::new(&ours()).expect("profiles");
    probes.detect(session).await.expect("detect");
    probes
}

fn queue<'a>(s: &'a Snapshot, name: &str) -> &'a Queue {
    s.queues
        .iter()
        .find(|q| q.queue == name)
        .unwrap_or_else(|| panic!("no queue {name}"))
}

fn seen(t: &Task) -> Target {
    Target {
        key: t.key.clone(),
        state: t.state,
        native_state: t.native_state.clone(),
        attempt: t.attempt,
        lease_token: t.lease_token,
    }
}

async fn act(
    probes: &QueueProbes,
    config: &tokio_postgres::Config,
    verb: Verb,
    task: &Task,
) -> String {
    let write = Session::open(
        &Server::new(config.clone()).expect("target"),
        Purpose::Write,
        "jobtop",
    )
    .await
    .expect("write");
    let instance = probes
        .instance(&task.key.system, &task.key.schema)
        .expect("instance");
    let action = action_sql(instance, verb, &task.key.queue).expect("action");
    let done = action
        .run(&write, verb, &[seen(task)], None)
        .await
        .expect("the write");
    done[0].outcome.clone()
}

#[tokio::test]
async fn a_table_per_queue() {
    use State::{Ready, Retryable, Running, Scheduled};
    let (_, session, config) = open("pgmq", include_str!("profiles/pgmq.sql")).await;
    let mut probes = probes(&session).await;
    let s = everything(&mut probes, &session).await;
    let odd = "It's \"odd\" {x} :y";
    let mails = queue(&s, "mails");
    for state in [Scheduled, Ready, Running, Retryable] {
        assert_eq!(mails.n(state), 1, "{state}");
    }
    assert!(mails.oldest_ready_s.is_some_and(|s| s >= 120.0));
    assert!(
        mails.last_claim_s.is_some_and(|s| (5.0..60.0).contains(&s)),
        "{:?}",
        mails.last_claim_s
    );
    assert_eq!(mails.n(State::Succeeded), 1);
    assert_eq!((queue(&s, odd).n(Ready), queue(&s, odd).n(Running)), (3, 1));
    // an older table without last_read_at: unknown, not zero
    assert_eq!(queue(&s, odd).last_claim_s, None);
    let running = s
        .tasks
        .rows
        .iter()
        .find(|t| t.state == Running && t.key.queue == odd)
        .expect("running");
    let at = now(&session).await;
    assert!(
        probes
            .detail(&session, &running.key, at)
            .await
            .expect("detail")
            .is_some()
    );
    assert_eq!(
        act(&probes, &config, Verb::Requeue, running).await,
        "changed"
    );
    assert_eq!(
        act(&probes, &config, Verb::Requeue, running).await,
        "moved on"
    );
    let instance = probes.instances().next().expect("pgmq");
    assert!(matches!(
        action_sql(instance, Verb::Cancel, odd),
        Ok(ActionSql::Refuse { .. })
    ));
    let s = everything(&mut probes, &session).await;
    assert_eq!(
        (queue(&s, odd).n(Retryable), queue(&s, odd).n(Running)),
        (1, 0)
    );
}

#[tokio::test]
async fn state_that_lives_in_pg_locks() {
    let (client, session, config) = open("goodjob", include_str!("profiles/good_job.sql")).await;
    client
        .batch_execute("SELECT pg_advisory_lock(('x' || left(md5('good_jobs-00000000-0000-0000-0000-000000000003'), 16))::bit(64)::bigint)")
        .await
        .expect("the worker's lock");
    let mut probes = probes(&session).await;
    let s = everything(&mut probes, &session).await;
    assert_eq!(
        (
            queue(&s, "default").n(State::Running),
            queue(&s, "slow").n(State::Running)
        ),
        (1, 1)
    );
    assert_eq!(
        (
            queue(&s, "default").n(State::Ready),
            queue(&s, "default").n(State::Retryable)
        ),
        (1, 1)
    );
    let stuck: Vec<&str> = s.leases.iter().map(|l| l.task.as_str()).collect();
    assert_eq!(stuck, ["00000000-0000-0000-0000-000000000004"]);
    assert!(
        s.leases[0]
            .overdue_s
            .is_some_and(|s| (3600.0..3700.0).contains(&s))
    );
    let failed = s
        .tasks
        .rows
        .iter()
        .find(|t| t.state == State::Failed)
        .expect("the failed one");
    assert_eq!(
        act(&probes, &config, Verb::Requeue, failed).await,
        "changed"
    );
    let s = everything(&mut probes, &session).await;
    assert_eq!(queue(&s, "slow").n(State::Ready), 1);
}

#[tokio::test]
async fn a_loop_per_queue_goes_round_robin_beyond_32() {
    let (client, session, config) = open("pgboss", include_str!("profiles/pg_boss.sql")).await;
    let mut probes = probes(&session).await;
    let at = now(&session).await;
    session.take_cost();
    probes.queues(&session, at).await.expect("queues");
    assert_eq!(session.take_cost().0, 1, "one statement a poll");
    let mut s = everything(&mut probes, &session).await;
    assert!(s.queues.len() < 70, "{}", s.queues.len());
    for _ in 0..2 {
        s = everything(&mut probes, &session).await;
    }
    assert_eq!(s.queues.len(), 70);
    assert!(s.queues.iter().all(|q| q.n(State::Ready) == 2));
    assert_eq!((s.leases.len(), s.leases[0].rule.as_str()), (1, "expired"));
    // ids are unique only within a queue
    let filter = Filter {
        states: vec![State::Failed],
        limit: 10,
        ..Filter::default()
    };
    let filter = filter.with("queue", Some("q002"));
    let failed = probes.query(&session, &filter, at).await.expect("query");
    assert_eq!(failed.len(), 1);
    assert_eq!(
        act(&probes, &config, Verb::Requeue, &failed[0]).await,
        "changed"
    );
    let n: i64 = client
        .query_one(
            "SELECT count(*) FROM pgboss.job WHERE state = 'failed' AND name = 'q001'",
            &[],
        )
        .await
        .expect("count")
        .get(0);
    assert_eq!(n, 1, "the other queue's job of the same id is left alone");
}

#[tokio::test]
async fn several_systems_in_one_database_are_all_named() {
    let sql = format!(
        "{}; CREATE SCHEMA other; SET search_path = other; {}; SET search_path = public; {} {} {}",
        setup::agent_queue(),
        include_str!("profiles/house.sql"),
        include_str!("profiles/pgmq.sql"),
        include_str!("profiles/good_job.sql"),
        include_str!("profiles/pg_boss.sql")
    );
    let (client, session, _) = open("many", &sql).await;
    let mut all = probes(&session).await;
    let named = |p: &QueueProbes| {
        p.instances()
            .map(|i| format!("{} {}", i.system, i.schema))
            .collect::<Vec<_>>()
    };
    let expected = [
        "agent_jobs other",
        "agent_queue agent_queue",
        "good_job public",
        "pg-boss pgboss",
        "pgmq pgmq",
        "tasks other",
        "workflow_jobs other",
    ];
    assert_eq!(named(&all), expected);
    everything(&mut all, &session).await;

    // nothing of detection waits for a migration, nor needs any right
    client
        .batch_execute(
            "BEGIN; LOCK agent_queue.tasks, other.agent_jobs, good_jobs IN ACCESS EXCLUSIVE MODE",
        )
        .await
        .expect("lock");
    let mut locked = QueueProbes::new(&ours()).expect("profiles");
    locked.detect(&session).await.expect("detect");
    assert_eq!(named(&locked), expected);
    let at = now(&session).await;
    let fault = locked
        .queues(&session, at)
        .await
        .expect_err("some are locked");
    assert!(fault.is("55P03"), "{fault}");
    let mut s = Snapshot {
        taken_at: Some(at),
        ..Snapshot::default()
    };
    locked.fill(&mut s);
    // the others are there all the same
    assert_eq!(queue(&s, "workflow_jobs").n(State::Running), 3);
    client
        .batch_execute("ROLLBACK; CREATE ROLE nobody_here LOGIN")
        .await
        .expect("a role");
    let mut config = common::cluster().config();
    config
        .user("nobody_here")
        .dbname(session_database(&session).await);
    let poor = Session::open(
        &Server::new(config).expect("target"),
        Purpose::Poll,
        "jobtop",
    )
    .await
    .expect("a poor session");
    {
        let mut blind = QueueProbes::new(&ours()).expect("profiles");
        blind.detect(&poor).await.expect("detect");
        assert_eq!(named(&blind), expected);
        let notes: Vec<String> = blind.instances().flat_map(|i| i.notes.clone()).collect();
        assert!(
            notes
                .iter()
                .any(|n| n.contains("agent_jobs cannot be read: GRANT SELECT")),
            "{notes:?}"
        );
        let fault = blind.queues(&poor, at).await.expect_err("no rights");
        assert!(fault.is("42501"), "{fault}");
    }
    client
        .batch_execute("DROP ROLE nobody_here")
        .await
        .expect("drop");
}

async fn session_database(session: &Session) -> String {
    use jobtop::connect::Cells;
    let rows = session
        .query("SELECT current_database()::text AS db", &[])
        .await
        .expect("db");
    rows[0].word("db").expect("text")
}

const GOOD: &str = include_str!("profiles/pgmq.toml");

#[test]
fn a_wrong_profile_is_refused_with_line_and_reason() {
    let line_of = |needle: &str| {
        GOOD[..GOOD.find(needle).expect(needle)]
            .matches('\n')
            .count()
            + 1
    };
    for (from, to, reason) in [
        ("format = 1", "format = 2", "reads format 1"),
        ("title_is_no_key", "", ""),
        ("priority_is_missing", "", ""),
        (
            "created_at = \"m.enqueued_at\"",
            "creatd_at = \"m.enqueued_at\"",
            "creatd_at is not a column",
        ),
        (
            "tenant = \"{headers} ->> 'tenant'\"",
            "tenant = \"{header} ->> 'tenant'\"",
            "{header} is neither",
        ),
        (
            "where = \"m.msg_id = :id::bigint\"",
            "where = \"m.msg_id = :idd::bigint\"",
            ":idd is not a parameter here (known: id)",
        ),
        (
            "queue = \"{q:literal}\"\nstate",
            "queue = \"{q:lit}\"\nstate",
            "only literal can follow",
        ),
        (
            "states = [\"ready\", \"scheduled\", \"running\", \"retryable\"]",
            "states = [\"succeeded\"]",
            "cannot hold succeeded",
        ),
        (
            "schemas = [\"pgmq\"]",
            "schema = [\"pgmq\"]",
            "unknown field",
        ),
        (
            "throughput = \"finished\"",
            "throughput = \"guess\"",
            "unknown variant",
        ),
        ("clock = \"server\"", "clock = 3", "wanted string"),
        (
            "when = \"m.read_ct > 0 AND m.vt > clock_timestamp()\"\n",
            "",
            "needs `when`",
        ),
        ("at = \"a.archived_at\"\n", "", "needs `at`"),
        (
            "from = \"{schema}.{archive} a\"\n",
            "",
            "needs `from`, or `why`",
        ),
        ("id = \"m.msg_id\"\n", "", "[row] has no id"),
        ("system = \"pgmq\"", "system = ", ""),
    ] {
        if !GOOD.contains(from) {
            continue;
        }
        let wrong = parse("mine.toml", &GOOD.replacen(from, to, 1)).expect_err(to);
        let text = wrong.to_string();
        assert!(
            text.contains("mine.toml") && wrong.reason.contains(reason),
            "{to}: {text}"
        );
        assert!(!text.contains('\n'), "{text}");
        let expected = line_of(from);
        // a missing key is reported at its table
        if !to.is_empty() && !from.starts_with("format") {
            assert!(
                wrong.line.is_some_and(|n| n.abs_diff(expected) <= 1),
                "{to}: line {:?} instead of {expected}",
                wrong.line
            );
        }
    }
    assert!(parse("mine.toml", GOOD).is_ok());
    // Actions: each needs what the others need, and only `priority` is given one.
    let action = |name: &str, rest: &str| format!("{GOOD}\n[actions.{name}]\n{rest}\n");
    for verb in ["requeue_fresh", "release", "run_now", "park", "unpark"] {
        for (rest, reason) in [
            ("", "needs exactly one of"),
            ("set = \"vt = now()\"", "needs `when`"),
            (
                "when = \"true\"\nset = \"vt = :priority\"",
                ":priority is not a parameter here",
            ),
        ] {
            let wrong = parse("mine.toml", &action(verb, rest)).expect_err(verb);
            assert!(wrong.reason.contains(reason), "{verb}: {wrong}");
        }
        assert!(parse("mine.toml", &action(verb, "refuse = \"no\"")).is_ok());
    }
    let priority = "when = \"m.vt <> to_timestamp(:priority)\"\nset = \"vt = to_timestamp(:priority)\"\n\
        except = [{ when = \"m.vt = to_timestamp(:priority)\", why = \"it has that already\" }]";
    let profile = parse("mine.toml", &action("priority", priority)).expect("a priority");
    assert!(profile.actions.priority.is_some());
    let wrong = parse(
        "mine.toml",
        &action("priority", &priority.replace(":priority", ":prio")),
    )
    .expect_err("no such parameter");
    assert!(wrong.reason.contains(":prio is not a parameter"), "{wrong}");
    let mine = GOOD.replacen(
        "[optional]",
        "[settings.priority]\ntype = \"int\"\ndefault = \"1\"\n[optional]",
        1,
    );
    let wrong = parse("mine.toml", &mine).expect_err("a setting of that name");
    assert!(wrong.reason.contains("jobtop's own"), "{wrong}");
    let dir = std::env::temp_dir().join(format!("jobtop-profiles-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("dir");
    std::fs::write(dir.join("bad.toml"), "format = 1\nsystem = 7\n").expect("file");
    let config = Config {
        profiles: vec![dir.clone()],
        ..Config::default()
    };
    let refused = |config: &Config| QueueProbes::new(config).err().expect("refused").to_string();
    let error = refused(&config);
    std::fs::remove_file(dir.join("bad.toml")).expect("gone");
    assert!(
        error.contains("bad.toml") && error.contains("line 2"),
        "{error}"
    );
    // what cannot be read has no line in which it is wrong
    std::os::unix::fs::symlink("/dev/zero", dir.join("no.toml")).expect("a link");
    let error = refused(&config);
    std::fs::remove_dir_all(&dir).expect("gone");
    assert!(
        error.ends_with("no.toml cannot be read: it is no plain file"),
        "{error}"
    );
    let words = format!(
        "the queue profile directory {} cannot be read: ",
        dir.display()
    );
    assert!(refused(&config).starts_with(&words));
}
