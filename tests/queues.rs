//! Reading queues through profiles, on a real Postgres.

mod common;

use jobtop::config::Config;
use jobtop::connect::{Cells, Session, Target, session::Purpose};
use jobtop::probe::{QueueProbes, ServerTime, Snapshot, State};

/// A database with this schema, a client that may write, and a session as the sampler has it.
async fn open(hint: &str, sql: &str) -> (tokio_postgres::Client, Session, tokio_postgres::Config) {
    let (_, config) = common::database(hint);
    let client = common::connect(&config).await;
    client.batch_execute(sql).await.expect("the schema");
    let target = Target::new(config.clone()).expect("a target");
    let session = Session::open(&target, Purpose::Poll, "jobtop")
        .await
        .expect("a session");
    (client, session, config)
}

async fn now(session: &Session) -> ServerTime {
    let rows = session
        .query("SELECT extract(epoch FROM now())::float8 AS now", &[])
        .await
        .expect("now");
    rows[0].time("now").expect("time").expect("not null")
}

const AGENT_QUEUE: &str = concat!(
    "CREATE SCHEMA agent_queue; SET search_path = agent_queue, pg_temp;\n",
    include_str!("../migrations/0001_tables.sql"),
    include_str!("../migrations/0002_functions.sql")
);

async fn snapshot(probes: &mut QueueProbes, session: &Session) -> Snapshot {
    let now = now(session).await;
    probes.queues(session, now).await.expect("queues");
    probes.tasks(session, now).await.expect("tasks");
    let mut snapshot = Snapshot {
        taken_at: Some(now),
        ..Snapshot::default()
    };
    probes.fill(&mut snapshot);
    snapshot
}

#[tokio::test]
async fn the_reference_queue_is_counted_like_plain_sql() {
    let (client, session, config) = open("agentq", AGENT_QUEUE).await;
    client
        .batch_execute(
            "SET search_path = agent_queue, pg_temp;
             SELECT enqueue('a', 'k' || i % 3, '{}', i % 5) FROM generate_series(1, 40) i;
             SELECT enqueue('b', 'slow', '{}', 0, now() + interval '1 hour') FROM generate_series(1, 7);
             INSERT INTO limits (queue, max_running) VALUES ('a', 9), ('stopped', 0);
             SELECT claim('a', 'w1', 5, '1 hour', 'v1'), claim('a', 'w2', 3, '1 ms');",
        )
        .await
        .expect("tasks");
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let found: Vec<_> = probes
        .instances()
        .map(|i| (i.system.as_str(), i.schema.as_str()))
        .collect();
    assert_eq!(found, [("agent_queue", "agent_queue")]);
    assert_eq!(
        probes
            .instances()
            .next()
            .expect("one")
            .claim_index
            .as_deref(),
        Some("tasks_claim")
    );

    // another session has claimed two tasks of a and has not committed
    let mut other = common::connect(&config).await;
    let open = other.transaction().await.expect("begin");
    open.batch_execute(
        "SET search_path = agent_queue, pg_temp; SELECT id FROM tasks WHERE status = 'enqueued' AND queue = 'a'
          ORDER BY priority DESC, created_at, id LIMIT 2 FOR UPDATE",
    )
    .await
    .expect("locks");

    let s = snapshot(&mut probes, &session).await;
    let names: Vec<&str> = s.queues.iter().map(|q| q.queue.as_str()).collect();
    assert_eq!(names, ["a", "b", "stopped"]);
    let a = &s.queues[0];
    assert_eq!(
        (a.n(State::Ready), a.n(State::Running), a.limit),
        (32, 8, Some(9))
    );
    assert_eq!((a.locked, a.paused), (2, false));
    assert!(a.oldest_ready_s.is_some_and(|s| s < 60.0) && a.last_claim_s.is_some());
    let ready: u32 = a.kinds.iter().map(|k| k.ready).sum();
    assert_eq!((a.kinds.len(), ready), (3, 32));
    assert_eq!(s.queues[1].n(State::Scheduled), 7);
    assert!(s.queues[2].paused);

    let expired: Vec<_> = s.tasks.rows.iter().filter(|t| t.stuck.is_some()).collect();
    assert_eq!(expired.len(), 3);
    assert!(s.tasks.rows[0].stuck.as_deref() == Some("lease expired"));
    assert_eq!(
        s.tasks
            .rows
            .iter()
            .filter(|t| t.locked_by_pid.is_some())
            .count(),
        2
    );
    let key = &s.tasks.rows[0].key;
    let at = now(&session).await;
    let detail = probes
        .detail(&session, key, at)
        .await
        .expect("detail")
        .expect("there");
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(detail.payload.map(|p| p.text), Some("{}".into()));
}

fn config_of(settings: &[(&str, &str, &str)]) -> Config {
    let mut config = Config::default();
    for (system, name, value) in settings {
        let of = config.settings.entry(system.to_string()).or_default();
        of.insert(name.to_string(), value.to_string());
    }
    config
}

fn states(q: &jobtop::probe::queues::Queue) -> Vec<(State, u64)> {
    q.states
        .iter()
        .filter_map(|(s, c)| {
            c.filter(|c| c.bound != jobtop::probe::Bound::Estimate)
                .map(|c| (*s, c.count))
        })
        .collect()
}

#[tokio::test]
async fn three_queues_as_teams_write_them_are_read_side_by_side() {
    use State::{Ready, Retryable, Running, Scheduled};
    let sql = format!(
        "SET TimeZone = 'Asia/Kolkata'; {}",
        include_str!("profiles/house.sql")
    );
    let (_, session, _) = open("house", &sql).await;
    let config = config_of(&[("workflow_jobs", "time_zone", "Asia/Kolkata")]);
    let mut probes = QueueProbes::new(&config).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let found: Vec<_> = probes.instances().map(|i| i.system.as_str()).collect();
    assert_eq!(found, ["agent_jobs", "tasks", "workflow_jobs"]);
    let s = snapshot(&mut probes, &session).await;
    let by = |system: &str| {
        s.queues
            .iter()
            .find(|q| q.system == system)
            .expect("a queue")
    };

    let a = by("agent_jobs");
    assert_eq!(a.queue, "agent_jobs");
    for expected in [(Scheduled, 1), (Ready, 3), (Running, 3), (Retryable, 1)] {
        assert!(states(a).contains(&expected), "{:?}", states(a));
    }
    // a task due since -infinity has no age, and hides no other
    assert!(
        a.oldest_ready_s
            .is_some_and(|s| (300.0..360.0).contains(&s)),
        "{:?}",
        a.oldest_ready_s
    );
    let w = by("workflow_jobs");
    for expected in [(Scheduled, 1), (Ready, 1), (Running, 3), (Retryable, 2)] {
        assert!(states(w).contains(&expected), "{:?}", states(w));
    }
    assert_eq!(w.overdue_retryable, 1);
    assert!(
        w.oldest_ready_s.is_some_and(|s| (10.0..60.0).contains(&s)),
        "{:?}",
        w.oldest_ready_s
    );
    assert!(
        w.notes.iter().any(|n| n.contains("no finished time")),
        "{:?}",
        w.notes
    );
    let c = by("tasks");
    for expected in [(Ready, 1), (Running, 2)] {
        assert!(states(c).contains(&expected), "{:?}", states(c));
    }

    let stuck: Vec<_> = s
        .tasks
        .rows
        .iter()
        .filter_map(|t| Some((t.key.system.as_str(), t.stuck.as_deref()?)))
        .collect();
    for expected in [
        ("agent_jobs", "lease expired"),
        ("agent_jobs", "no lease"),
        ("tasks", "lease expired"),
        ("workflow_jobs", "claimed long ago"),
        ("workflow_jobs", "no claim time"),
    ] {
        assert!(stuck.contains(&expected), "{stuck:?}");
    }
    assert_eq!(stuck.len(), 5);
    // every live task is listed
    assert_eq!(s.tasks.rows.iter().filter(|t| t.state == Ready).count(), 5);
    let huge = s
        .tasks
        .rows
        .iter()
        .find(|t| t.tenant.as_deref() == Some("c"))
        .expect("the huge one");
    let at = now(&session).await;
    let payload = probes
        .detail(&session, &huge.key, at)
        .await
        .expect("detail")
        .expect("there")
        .payload
        .expect("payload");
    assert!(
        payload.bytes > 3_000_000 && payload.text.chars().count() <= 4096,
        "{}",
        payload.bytes
    );
    assert!(!payload.text.contains("sk-1"), "{}", &payload.text[..80]);
    let failed = s
        .tasks
        .rows
        .iter()
        .find(|t| t.key.system == "tasks" && t.state == State::Failed)
        .expect("the failed one");
    let detail = probes
        .detail(&session, &failed.key, at)
        .await
        .expect("detail")
        .expect("there");
    assert_eq!(detail.attempts.len(), 3);
    assert_eq!(detail.attempts[2].run_id.as_deref(), Some("run-3"));
    assert_eq!(detail.task.cost_usd.map(|u| u.0), Some(75_000));
}
