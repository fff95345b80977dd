//! Reading queues through profiles, on a real Postgres.

mod common;
#[path = "profiles/setup.rs"]
mod setup;

use jobtop::config::Config;
use jobtop::connect::{Cells, Session};
use jobtop::probe::{QueueProbes, Snapshot, State};
use setup::{agent_queue, everything, now, open};

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
    let (client, session, config) = open("agentq", &agent_queue()).await;
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

    let s = everything(&mut probes, &session).await;
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

/// Finished tasks, retries and spend over two hours, written straight into the tables.
const HISTORY: &str = "
SET search_path = agent_queue, pg_temp;
INSERT INTO tasks (queue, kind, agent, tenant, application, status, created_at, run_after, claimed_at, started_at, finished_at, attempt, worker_version)
SELECT CASE WHEN i % 4 = 0 THEN 'b' ELSE 'a' END, 'k' || i % 3, 'agent-' || i % 5, 'tenant-' || i % 7, 'app',
       CASE WHEN i % 10 = 0 THEN 'failed' WHEN i % 33 = 0 THEN 'cancelled' ELSE 'completed' END,
       f - interval '90 s', f - interval '60 s', f - interval '20 s', f - interval '19 s', f, 1 + i % 2, 'v1'
  FROM (SELECT i, now() - i * interval '3 s' AS f FROM generate_series(1, 2400) i) x;
INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, started_at, finished_at, outcome, error)
SELECT t.id, a, a, 'w' || t.id % 4, t.run_after, t.claimed_at - (t.attempt - a) * interval '25 s', t.started_at - (t.attempt - a) * interval '25 s',
       t.finished_at - (t.attempt - a) * interval '25 s',
       CASE WHEN a < t.attempt THEN 'failed' WHEN t.status = 'completed' THEN 'completed' ELSE t.status END,
       CASE WHEN a < t.attempt OR t.status = 'failed' THEN 'timeout after ' || t.id || ' ms' END
  FROM tasks t, generate_series(1, t.attempt) a;
INSERT INTO usage (call_id, task_id, attempt, queue, model, input_tokens, output_tokens, llm_cost, compute_cost, reported_at)
SELECT 'c' || a.id, a.task_id, a.attempt, t.queue, 'm' || a.id % 2, 1000, 100, CASE WHEN a.id % 9 = 0 THEN NULL ELSE 0.0123 END, 0.0001, a.finished_at
  FROM task_attempts a JOIN tasks t ON t.id = a.task_id;
-- a kind of which every try fails, three a task
INSERT INTO tasks (queue, kind, status, created_at, run_after, finished_at, attempt)
SELECT 'c', 'bad', 'failed', now() - interval '6 min', now() - interval '6 min', now() - i * interval '10 s', 3 FROM generate_series(1, 30) i;
INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, started_at, finished_at, outcome, error)
SELECT t.id, a, a, 'w', t.run_after, t.run_after, t.run_after, t.finished_at, 'failed', 'RateLimit: 429' FROM tasks t, generate_series(1, 3) a WHERE t.queue = 'c';
INSERT INTO usage (call_id, task_id, attempt, queue, model, llm_cost, compute_cost, reported_at)
SELECT 'x' || a.id, a.task_id, a.attempt, 'c', 'm1', 0.02, 0, now() - interval '3 h' FROM task_attempts a JOIN tasks t ON t.id = a.task_id WHERE t.queue = 'c';
ANALYZE;
";

async fn one(session: &Session, sql: &str) -> f64 {
    let rows = session
        .query(&format!("SELECT ({sql})::float8 AS n"), &[])
        .await
        .expect(sql);
    rows[0].float("n").expect("a number").unwrap_or(0.0)
}

#[tokio::test]
async fn history_stages_and_spend_equal_plain_sql() {
    let (_, session, _) = open("history", &format!("{}{HISTORY}", agent_queue())).await;
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let s = everything(&mut probes, &session).await;
    let now = s.taken_at.expect("now").epoch();
    let queue = |name: &str| s.queues.iter().find(|q| q.queue == name).expect("queue");
    let a = queue("a");
    // whole slots of ten seconds, or of a minute where older: so is the plain SQL
    let from5 = ((now - 300.0) / 10.0).floor() * 10.0;
    let per_minute = |n: f64| n * 60.0 / (now - from5);
    let since = |t: f64| format!("to_timestamp({t})");
    let q = "FROM agent_queue.task_attempts a JOIN agent_queue.tasks t ON t.id = a.task_id";
    let finished = one(
        &session,
        &format!(
            "SELECT count(*) FROM agent_queue.tasks WHERE queue = 'a' AND finished_at >= {}",
            since(from5)
        ),
    )
    .await;
    assert!(
        (a.finished_per_min.expect("finished") - per_minute(finished)).abs() < 1e-6,
        "{finished} {:?}",
        a.finished_per_min
    );
    let arrived = one(
        &session,
        &format!(
            "SELECT count(*) FROM agent_queue.tasks WHERE queue = 'a' AND created_at >= {}",
            since(from5)
        ),
    )
    .await;
    assert!((a.in_per_min.expect("in") - per_minute(arrived)).abs() < 1e-6);
    let failed = one(&session, &format!("SELECT count(*) {q} WHERE t.queue = 'a' AND a.outcome = 'failed' AND a.finished_at >= {}", since(from5))).await;
    assert!((a.failed_attempts_per_min.expect("failed") - per_minute(failed)).abs() < 1e-6);
    let hour = ((now - 3600.0) as i64).div_euclid(60) * 60;
    for (state, native) in [
        (State::Succeeded, "completed"),
        (State::Failed, "failed"),
        (State::Cancelled, "cancelled"),
    ] {
        let n = one(&session, &format!("SELECT count(*) FROM agent_queue.tasks WHERE queue = 'a' AND status = '{native}' AND finished_at >= to_timestamp({hour})")).await;
        assert_eq!(
            a.count(state).map(|c| (c.count as f64, c.bound)),
            Some((n, jobtop::probe::Bound::Exact)),
            "{state}"
        );
    }
    let flow = s.flow.iter().find(|f| f.queue == "a").expect("flow");
    let first = flow.from.expect("from").epoch();
    for (minute, n) in flow.finished.as_ref().expect("finished").iter().enumerate() {
        let at = first + 60.0 * minute as f64;
        let plain = one(&session, &format!("SELECT count(*) FROM agent_queue.tasks WHERE queue = 'a' AND finished_at >= {} AND finished_at < {}", since(at), since(at + 60.0))).await;
        assert_eq!(f64::from(*n), plain, "minute {minute}");
    }
    // waits are 40 s, starts 1 s, runs 19 s, totals 90 s
    for (stage, seconds) in [
        ("Wait", 40.0),
        ("Start", 1.0),
        ("Run", 19.0),
        ("Total", 90.0),
    ] {
        let st = s
            .stages
            .iter()
            .find(|st| st.queue == "a" && st.kind.is_none() && format!("{:?}", st.stage) == stage)
            .expect(stage);
        // first tries were claimed before they were due once more: their wait is unknown, not negative
        assert!(st.n > 500, "{stage} {}", st.n);
        let p50 = st.p50_s.expect("p50");
        assert!((p50 / seconds - 1.0).abs() < 0.06, "{stage} {p50}");
        assert!(
            st.max_s.is_some_and(|m| (m - seconds).abs() < 0.01),
            "{stage} {:?}",
            st.max_s
        );
    }
    let tries = one(&session, &format!("SELECT count(*) {q} WHERE t.queue = 'a' AND a.claimed_at >= a.eligible_at AND a.finished_at >= to_timestamp({hour})")).await;
    let wait = s
        .stages
        .iter()
        .find(|st| st.queue == "a" && st.kind.is_none() && format!("{:?}", st.stage) == "Wait")
        .expect("wait");
    assert!(
        (wait.n as f64 - tries).abs() <= 400.0 && wait.n > 0,
        "{} {tries}",
        wait.n
    );

    let from10 = ((now as i64 - 600).div_euclid(10) * 10) as f64;
    let kind = s
        .attempts
        .iter()
        .find(|x| x.by == "kind" && x.queue == "a" && x.name == "k1")
        .expect("k1");
    let n = one(
        &session,
        &format!(
            "SELECT count(*) {q} WHERE t.queue = 'a' AND t.kind = 'k1' AND a.finished_at >= {}",
            since(from10)
        ),
    )
    .await;
    assert_eq!(f64::from(kind.recent), n);
    assert_eq!(kind.error.as_deref(), Some("timeout after # ms"));
    assert!(
        kind.tries_per_task.is_some() && kind.lost.is_some(),
        "{kind:?}"
    );
    let tenant = s
        .attempts
        .iter()
        .find(|x| x.by == "tenant" && x.name == "tenant-3")
        .expect("tenant");
    let n = one(&session, &format!("SELECT count(*) {q} WHERE t.tenant = 'tenant-3' AND a.outcome = 'failed' AND a.finished_at >= {}", since(from10))).await;
    assert_eq!(f64::from(tenant.recent_failed), n);
    assert!(
        s.workers
            .iter()
            .any(|w| w.worker == "w1" && w.done_per_min.is_some_and(|d| d > 1.0))
    );

    let cost = s.cost.as_ref().expect("cost");
    let minute = ((now - 3600.0) / 60.0).floor() * 60.0;
    let usd = one(&session, &format!("SELECT sum(coalesce(llm_cost, 0) + compute_cost) FROM agent_queue.usage WHERE reported_at >= {}", since(minute))).await;
    assert!(
        (cost.usd.dollars() - usd).abs() < 1e-6,
        "{} {usd}",
        cost.usd.dollars()
    );
    let lost = one(&session, &format!("SELECT sum(coalesce(u.llm_cost, 0) + u.compute_cost) FROM agent_queue.usage u JOIN agent_queue.task_attempts a ON a.task_id = u.task_id AND a.attempt = u.attempt WHERE a.outcome = 'failed' AND u.reported_at >= {}", since(minute))).await;
    assert!((cost.usd_failed_attempts.dollars() - lost).abs() < 1e-6);
    let unpriced = one(&session, &format!("SELECT sum(input_tokens + output_tokens) FROM agent_queue.usage WHERE llm_cost IS NULL AND reported_at >= {}", since(minute))).await;
    assert_eq!(cost.unpriced_tokens as f64, unpriced);
    assert_eq!(
        (
            cost.by_agent.len(),
            cost.by_tenant.len(),
            cost.by_application.len(),
            cost.by_model.len()
        ),
        (5, 7, 1, 2)
    );
    assert!(!cost.top_tasks.is_empty() && cost.usual_usd_per_hour.is_some());
    for top in &cost.top_tasks {
        let queue = top.queue.as_deref().expect("a queue");
        let sql = format!(
            "SELECT count(*) FROM agent_queue.tasks WHERE id = {} AND queue = '{queue}'",
            top.task
        );
        assert_eq!(one(&session, &sql).await, 1.0, "{top:?}");
    }
    let totals = &s.totals[0];
    assert_eq!(
        totals.states.get(&State::Failed).map(|c| c.count),
        Some(270)
    );
    assert!(s.violations.is_empty(), "{:?}", s.violations);
}

#[tokio::test]
async fn late_commits_are_counted_and_nothing_twice() {
    let (client, session, config) = open("late", &agent_queue()).await;
    client.batch_execute("SET search_path = agent_queue, pg_temp; SELECT enqueue('a', 'k') FROM generate_series(1, 20); SELECT claim('a', 'w', 20)").await.expect("tasks");
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let begun = now(&session).await;
    at(&mut probes, &session, begun).await;
    // a transaction finishes ten tasks now, and commits after everybody else
    let mut slow = common::connect(&config).await;
    let open = slow.transaction().await.expect("begin");
    open.batch_execute("SET search_path = agent_queue, pg_temp; SELECT complete(id, lease_token) FROM tasks WHERE id <= 10").await.expect("complete");
    client
        .batch_execute("SELECT complete(id, lease_token) FROM tasks WHERE id > 15")
        .await
        .expect("complete");
    let count = |s: &Snapshot| s.queues[0].n(State::Succeeded);
    for s in [2.0, 4.0, 6.0] {
        assert_eq!(count(&at(&mut probes, &session, begun.plus(s)).await), 5);
    }
    open.commit().await.expect("commit");
    for s in [8.0, 10.0, 12.0] {
        assert_eq!(count(&at(&mut probes, &session, begun.plus(s)).await), 15);
    }
}

/// All probes at a time of our choosing.
async fn at(
    probes: &mut QueueProbes,
    session: &Session,
    now: jobtop::probe::ServerTime,
) -> Snapshot {
    probes.queues(session, now).await.expect("queues");
    probes.finished(session, now).await.expect("finished");
    probes.leases(session, now).await.expect("leases");
    let mut snapshot = Snapshot {
        taken_at: Some(now),
        ..Snapshot::default()
    };
    probes.fill(&mut snapshot);
    snapshot
}

#[tokio::test]
async fn a_commit_that_comes_a_minute_late_is_counted_where_it_belongs() {
    let (client, session, config) = open("minute", &agent_queue()).await;
    client.batch_execute("SET search_path = agent_queue, pg_temp; SELECT enqueue('a', 'k') FROM generate_series(1, 20); SELECT claim('a', 'w', 20)").await.expect("tasks");
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let mut slow = common::connect(&config).await;
    let open = slow.transaction().await.expect("begin");
    open.batch_execute(
        "SET search_path = agent_queue, pg_temp; SELECT complete(id, lease_token) FROM tasks",
    )
    .await
    .expect("complete");
    let begun = now(&session).await;
    // the monitor's clock goes on for a minute, while the transaction stays open
    for s in (2..60).step_by(4) {
        assert_eq!(
            at(&mut probes, &session, begun.plus(f64::from(s)))
                .await
                .queues[0]
                .n(State::Succeeded),
            0
        );
    }
    open.commit().await.expect("commit");
    assert_eq!(
        at(&mut probes, &session, begun.plus(64.0)).await.queues[0].n(State::Succeeded),
        20
    );
    assert_eq!(
        at(&mut probes, &session, begun.plus(68.0)).await.queues[0].n(State::Succeeded),
        20
    );
}

#[tokio::test]
async fn one_huge_queue_hides_no_other() {
    let (client, session, _) = open("huge", &agent_queue()).await;
    client
        .batch_execute(
            "SET search_path = agent_queue, pg_temp;
             INSERT INTO tasks (queue, kind, run_after, deferred) SELECT 'huge', 'k', now() - interval '1 min', false FROM generate_series(1, 30000);
             INSERT INTO tasks (queue, kind, run_after, deferred, attempt) SELECT 'later', 'k', now() + interval '1 h', true, i % 2 FROM generate_series(1, 20000) i;
             INSERT INTO tasks (queue, kind) SELECT 'a', 'k' FROM generate_series(1, 7);
             INSERT INTO tasks (queue, kind) SELECT 'z', 'k' FROM generate_series(1, 10000);",
        )
        .await
        .expect("tasks");
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let s = everything(&mut probes, &session).await;
    use jobtop::probe::{Bound, Count};
    let ready = |i: usize| s.queues[i].count(State::Ready);
    assert_eq!(ready(0), Some(Count::exact(7)));
    assert_eq!(
        ready(1),
        Some(Count {
            count: 10_001,
            bound: Bound::AtLeast
        })
    );
    assert_eq!(ready(3), Some(Count::exact(10_000)));
    let later = &s.queues[2];
    assert!(
        later
            .states
            .values()
            .flatten()
            .any(|c| c.bound == Bound::AtLeast),
        "{:?}",
        later.states
    );
    assert_eq!(
        later.n(State::Retryable) + later.n(State::Scheduled),
        10_001
    );
}

#[tokio::test]
async fn a_worker_whose_clock_is_wrong_is_found_by_its_claims() {
    let (client, session, _) = open("skew", include_str!("profiles/house.sql")).await;
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let begun = now(&session).await;
    at(&mut probes, &session, begun).await;
    for i in 1..=4 {
        // the worker writes a time 240 s ago
        client
            .execute(
                "INSERT INTO tasks (status, locked_by, lease_expires_at, started_at) VALUES ('processing', 'late', now() + interval '1 min', now() - interval '240 s')",
                &[],
            )
            .await
            .expect("claim");
        tokio::time::sleep(std::time::Duration::from_millis(2000)).await;
        let now = now(&session).await;
        let s = at(&mut probes, &session, now).await;
        if i == 4 {
            let late = s
                .workers
                .iter()
                .find(|w| w.worker == "late")
                .expect("the worker");
            assert_eq!(late.clock_samples, 4);
            assert!(
                late.clock_skew_s.is_some_and(|s| (s + 240.0).abs() < 2.5),
                "{:?}",
                late.clock_skew_s
            );
            assert_eq!(late.holds, 4);
        }
    }
}

#[tokio::test]
async fn what_must_never_be_is_reported_and_poison_found() {
    let (client, session, _) = open("broken", &agent_queue()).await;
    client
        .batch_execute(
            "SET search_path = agent_queue, pg_temp;
             SELECT enqueue('a', 'k') FROM generate_series(1, 5); SELECT claim('a', 'w', 5);
             DELETE FROM task_attempts WHERE task_id = 1;
             SELECT report_usage('c1', 4711, 1, 'm', 10, 10, 1.0);
             INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, finished_at, outcome)
             SELECT 2, 10 + i, 1, 'w' || i, now(), now(), now() - i * interval '5 min', 'lease expired' FROM generate_series(1, 4) i;",
        )
        .await
        .expect("tasks");
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let s = everything(&mut probes, &session).await;
    use jobtop::probe::queues::Invariant;
    let broken: Vec<_> = s
        .violations
        .iter()
        .map(|v| (v.rule, v.n, v.ids.clone()))
        .collect();
    assert!(
        broken.contains(&(Invariant::RunsWithoutAttempt, 1, vec!["1".into()])),
        "{broken:?}"
    );
    assert!(
        broken.contains(&(Invariant::UsageWithoutTask, 1, vec!["c1".into()])),
        "{broken:?}"
    );
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert_eq!(s.poison.len(), 1);
    let p = &s.poison[0];
    assert_eq!((p.key.id.as_str(), p.lost_attempts, p.workers), ("2", 4, 4));
    assert!((p.over_s - 900.0).abs() < 1.0);
}

#[tokio::test]
async fn a_dump_from_the_wild_is_read_where_there_is_one() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/queues/dumps/house.sql"
    );
    let Ok(dump) = std::fs::read_to_string(file) else {
        return;
    };
    let sql: Vec<&str> = dump.lines().filter(|l| !l.starts_with('\\')).collect();
    let (_, session, _) = open("wild", &sql.join("\n")).await;
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&session).await.expect("detect");
    let s = everything(&mut probes, &session).await;
    let live = |system: &str| {
        let q = s
            .queues
            .iter()
            .find(|q| q.system == system)
            .expect("a queue");
        (
            q.n(State::Running),
            q.n(State::Ready) + q.n(State::Scheduled),
        )
    };
    assert_eq!(
        (live("agent_jobs"), live("tasks"), live("workflow_jobs")),
        ((3, 3), (2, 1), (3, 2))
    );
    assert!(s.leases.iter().any(|l| l.rule == "no claim time"));
}
