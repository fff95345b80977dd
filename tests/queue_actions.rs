//! Requeue and cancel through profiles: compare-and-set, nobody waits, every id answered, also while workers race.

mod common;
#[path = "profiles/setup.rs"]
mod setup;

use jobtop::action::{Target, Verb};
use jobtop::config::Config;
use jobtop::connect::{Session, Target as Server, session::Purpose};
use jobtop::probe::{QueueProbes, ServerTime, State, tasks::Filter};
use jobtop::queue::action::{ActionSql, Outcome, action_sql};
use std::collections::BTreeMap;

struct Db {
    client: tokio_postgres::Client,
    poll: Session,
    write: Session,
    probes: QueueProbes,
    config: tokio_postgres::Config,
}

async fn open(hint: &str, sql: &str) -> Db {
    let (client, poll, config) = setup::open(hint, sql).await;
    let server = Server::new(config.clone()).expect("a target");
    let write = Session::open(&server, Purpose::Write, "jobtop")
        .await
        .expect("write");
    let mut probes = QueueProbes::new(&Config::default()).expect("profiles");
    probes.detect(&poll).await.expect("detect");
    Db {
        client,
        poll,
        write,
        probes,
        config,
    }
}

fn now() -> ServerTime {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    ServerTime::from_epoch(since.as_secs_f64()).expect("a time")
}

impl Db {
    /// The tasks as an operator sees them.
    async fn seen(&self, system: &str, state: Option<State>) -> Vec<Target> {
        let filter = Filter {
            states: state.into_iter().collect(),
            limit: 1000,
            ..Filter::default()
        };
        let tasks = self
            .probes
            .query(&self.poll, &filter, now())
            .await
            .expect("tasks");
        let target = |t: jobtop::probe::tasks::Task| Target {
            key: t.key,
            state: t.state,
            native_state: t.native_state,
            attempt: t.attempt,
            lease_token: t.lease_token,
        };
        tasks
            .into_iter()
            .filter(|t| t.key.system == system)
            .map(target)
            .collect()
    }

    async fn act(&self, system: &str, verb: Verb, targets: &[Target]) -> Vec<Outcome> {
        let instance = self
            .probes
            .instances()
            .find(|i| i.system == system)
            .expect("the system");
        let queue = targets.first().map_or("", |t| t.key.queue.as_str());
        let action = action_sql(instance, verb, queue).expect("an action");
        action
            .run(&self.write, verb, targets, Some("because"))
            .await
            .expect("the write")
    }

    /// What a verb does to tasks: (native state and attempt as seen, outcome, why), sorted.
    async fn told(&self, system: &str, verb: Verb, targets: &[Target]) -> Vec<String> {
        let queue = targets.first().map_or("", |t| t.key.queue.as_str());
        let mut instances = self.probes.instances();
        let instance = instances.find(|i| i.system == system).expect("the system");
        if let ActionSql::Refuse { why } = action_sql(instance, verb, queue).expect("an action") {
            return vec![why];
        }
        let done = self.act(system, verb, targets).await;
        assert_eq!(done.len(), targets.len());
        let line = |t: &Target| {
            let o = done.iter().find(|o| o.id == t.key.id).expect("answered");
            let seen = format!("{} {}", t.native_state, t.attempt.unwrap_or_default());
            match &o.why {
                Some(why) => format!("{seen}: {}, {why}", o.outcome),
                None => format!("{seen}: {}", o.outcome),
            }
        };
        let mut lines: Vec<String> = targets.iter().map(line).collect();
        lines.sort();
        lines
    }

    async fn number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.expect(sql).get(0)
    }
}

fn count(outcomes: &[Outcome]) -> BTreeMap<&str, usize> {
    let mut n = BTreeMap::new();
    for o in outcomes {
        *n.entry(o.outcome.as_str()).or_default() += 1;
    }
    n
}

const HOUSE: &str = include_str!("profiles/house.sql");

#[tokio::test]
async fn a_house_table_is_changed_only_where_it_still_is_what_was_seen() {
    let db = open("house_act", HOUSE).await;
    let all = db.seen("agent_jobs", None).await;
    assert_eq!(all.len(), 12);
    // 7 failed after it was seen: another attempt; 5 (expired) is held by a transaction
    db.client
        .batch_execute("UPDATE agent_jobs SET attempt = attempt + 1 WHERE id = 8")
        .await
        .expect("moves on");
    let mut other = common::connect(&db.config).await;
    let lock = other.transaction().await.expect("begin");
    lock.batch_execute("SELECT FROM agent_jobs WHERE id = 5 FOR UPDATE")
        .await
        .expect("lock");
    let mut gone = all[0].clone();
    gone.key.id = "99999".into();
    let mut asked = all.clone();
    asked.push(gone);
    let done = db.act("agent_jobs", Verb::Requeue, &asked).await;
    assert_eq!(done.len(), 13, "an answer for every id");
    let by = |id: &str| {
        done.iter()
            .find(|o| o.id == id)
            .map(|o| (o.outcome.as_str(), o.why.as_deref()))
            .expect("answered")
    };
    assert_eq!(by("6"), ("changed", None), "no lease, and running for long");
    assert_eq!(by("5").0, "locked");
    assert_eq!(by("8").0, "moved on");
    assert_eq!(by("4"), ("refused", Some("its lease has not expired")));
    assert_eq!(by("1"), ("refused", Some("it is queued already")));
    assert_eq!(by("7").0, "refused");
    assert_eq!(by("99999").0, "gone");
    lock.rollback().await.expect("rollback");
    let again = db
        .act(
            "agent_jobs",
            Verb::Requeue,
            &db.seen("agent_jobs", Some(State::Failed)).await,
        )
        .await;
    assert_eq!(count(&again), BTreeMap::from([("changed", 1)]));
    // its attempts were used up: there is one more now
    assert_eq!(
        db.number("SELECT (max_attempts - attempt)::int8 FROM agent_jobs WHERE id = 8")
            .await,
        1
    );

    let done = db
        .act(
            "agent_jobs",
            Verb::Cancel,
            &db.seen("agent_jobs", None).await,
        )
        .await;
    let queued = db
        .number("SELECT count(*) FROM agent_jobs WHERE status = 'queued'")
        .await;
    let cancelled = db.number("SELECT count(*) FROM agent_jobs WHERE status = 'cancelled' AND failure_reason LIKE '%because'").await;
    assert_eq!((queued, cancelled as usize), (0, count(&done)["changed"]));
    assert!(done.iter().any(|o| {
        o.why
            .as_deref()
            .is_some_and(|w| w.contains("no way to ask"))
    }));
}

#[tokio::test]
async fn systems_without_token_or_zone_are_guarded_too() {
    let db = open("house_two", HOUSE).await;
    let failed = db.seen("workflow_jobs", None).await;
    let done = db.act("workflow_jobs", Verb::Requeue, &failed).await;
    // three failed ones, one claimed two days ago, one without any claim time
    assert_eq!(count(&done).get("changed"), Some(&5), "{done:?}");
    assert_eq!(db.number("SELECT count(*) FROM workflow_jobs WHERE status = 'pending' AND claimed_at IS NULL AND run_after <= localtimestamp").await, 6);
    let done = db
        .act("tasks", Verb::Requeue, &db.seen("tasks", None).await)
        .await;
    assert_eq!(
        count(&done).get("changed"),
        Some(&2),
        "the failed one and the expired one: {done:?}"
    );
    assert_eq!(
        db.number("SELECT count(*) FROM tasks WHERE status = 'enqueued' AND completed_at IS NULL")
            .await,
        3
    );
}

#[tokio::test]
async fn the_reference_queue_answers_in_its_own_words() {
    let db = open("agentq_act", &setup::agent_queue()).await;
    db.client
        .batch_execute(
            "SELECT enqueue('a', 'k') FROM generate_series(1, 6);
             SELECT claim('a', 'w', 1, '1 hour'), claim('a', 'w', 1, '1 ms'); SELECT pg_sleep(0.01)",
        )
        .await
        .expect("tasks");
    let seen = db.seen("agent_queue", None).await;
    let done = db.act("agent_queue", Verb::Requeue, &seen).await;
    assert_eq!(
        count(&done),
        BTreeMap::from([("changed", 1), ("refused", 5)])
    );
    assert!(
        done.iter()
            .any(|o| o.why.as_deref() == Some("lease has not expired"))
    );
    let done = db.act("agent_queue", Verb::Cancel, &seen).await;
    // the requeued one is not any more what was seen
    assert_eq!(
        count(&done),
        BTreeMap::from([("changed", 4), ("moved on", 1), ("requested", 1)])
    );
}

#[tokio::test]
async fn a_house_table_is_adjusted_where_its_design_permits() {
    let db = open("house_adjust", HOUSE).await;
    db.client
        .batch_execute("UPDATE agent_jobs SET attempt = 5 WHERE id = 6")
        .await
        .expect("tries used up");
    let mut all = Vec::new();
    for verb in [
        Verb::Release,
        Verb::RunNow,
        Verb::Priority(7),
        Verb::RequeueFresh,
        Verb::Park,
        Verb::Unpark,
    ] {
        let seen = db.seen("agent_jobs", None).await;
        all.push((verb.name(), db.told("agent_jobs", verb, &seen).await));
    }
    insta::assert_debug_snapshot!(all);
    assert_eq!(
        db.number("SELECT count(*) FROM agent_jobs WHERE id = 5 AND status = 'queued' AND attempt = 2 AND leased_until IS NULL AND started_at IS NULL").await,
        1,
        "released with its tries"
    );
    assert_eq!(
        db.number("SELECT count(*) FROM agent_jobs WHERE run_after > now() AND status = 'queued'")
            .await,
        0
    );
    assert_eq!(
        db.number("SELECT count(*) FROM agent_jobs WHERE id = 3 AND attempt = 2 AND priority = 7")
            .await,
        1,
        "the tries of what is run now are not touched"
    );
    assert_eq!(
        db.number("SELECT count(*) FROM agent_jobs WHERE id = 8 AND status = 'queued' AND attempt = 0 AND max_attempts = 5 AND finished_at IS NULL").await,
        1
    );
    let mut changed = Vec::new();
    for _ in 0..2 {
        let seen = db.seen("agent_jobs", None).await;
        let done = db.told("agent_jobs", Verb::Priority(7), &seen).await;
        changed.push(done.iter().filter(|l| l.ends_with("changed")).count());
    }
    assert_eq!(changed, [1, 0], "only what was queued since");
}

#[tokio::test]
async fn tables_without_token_or_zone_are_adjusted_where_their_design_permits() {
    let mut db = open("house_adjust_two", HOUSE).await;
    db.client
        .batch_execute("UPDATE workflow_jobs SET attempt_count = 5 WHERE claimed_at < localtimestamp - interval '1 day'")
        .await
        .expect("tries used up");
    let mut all = Vec::new();
    for system in ["workflow_jobs", "tasks"] {
        for verb in [
            Verb::Release,
            Verb::RunNow,
            Verb::Priority(7),
            Verb::RequeueFresh,
            Verb::Park,
            Verb::Unpark,
        ] {
            let seen = db.seen(system, None).await;
            all.push((system, verb.name(), db.told(system, verb, &seen).await));
        }
    }
    insta::assert_debug_snapshot!(all);
    assert_eq!(
        db.number("SELECT count(*) FROM workflow_jobs WHERE status = 'pending' AND run_after > localtimestamp").await,
        0
    );
    assert_eq!(
        db.number(
            "SELECT count(*) FROM workflow_jobs WHERE status = 'pending' AND attempt_count = 0"
        )
        .await,
        5,
        "two that wait, three that had failed"
    );
    assert_eq!(
        db.number("SELECT count(*) FROM tasks WHERE status = 'enqueued' AND locked_by IS NULL AND lease_expires_at IS NULL AND started_at IS NULL AND priority = 7").await,
        2
    );
    // The same design with a time before which a task may not run.
    db.client
        .batch_execute("ALTER TABLE tasks ADD COLUMN run_after timestamptz; UPDATE tasks SET run_after = now() + interval '1 h' WHERE id = (SELECT id FROM tasks WHERE status = 'enqueued' LIMIT 1)")
        .await
        .expect("run_after");
    db.probes.detect(&db.poll).await.expect("detect");
    let seen = db.seen("tasks", None).await;
    let done = db.told("tasks", Verb::RunNow, &seen).await;
    assert!(
        done.contains(&"enqueued 0: changed".to_owned())
            || done.contains(&"enqueued 1: changed".to_owned()),
        "{done:?}"
    );
    assert!(
        done.iter()
            .any(|l| l.ends_with("refused, it is due already")),
        "{done:?}"
    );
    assert_eq!(
        db.number("SELECT count(*) FROM tasks WHERE run_after > now()")
            .await,
        0
    );
}

#[tokio::test]
async fn the_reference_queue_is_adjusted_in_its_own_words() {
    let db = open("agentq_adjust", &setup::agent_queue()).await;
    db.client
        .batch_execute(
            "SELECT enqueue('a', 'k', max_attempts => 1) FROM generate_series(1, 4);
             SELECT claim('a', 'w', 1, '1 hour'), claim('a', 'w', 1, '1 ms'); SELECT pg_sleep(0.01);
             SELECT fail(c.id, c.lease_token, 'x') FROM claim('a', 'w') c;
             SELECT enqueue('a', 'k', run_after => now() + interval '1 h')",
        )
        .await
        .expect("tasks");
    let first = db.seen("agent_queue", None).await;
    let mut all = Vec::new();
    for verb in [
        Verb::RunNow,
        Verb::Priority(7),
        Verb::Park,
        Verb::Unpark,
        Verb::Release,
        Verb::RequeueFresh,
    ] {
        let seen = db.seen("agent_queue", None).await;
        all.push((verb.name(), db.told("agent_queue", verb, &seen).await));
    }
    insta::assert_debug_snapshot!(all);
    assert_eq!(
        db.number("SELECT count(*) FROM agent_queue.tasks WHERE priority = 7")
            .await,
        2
    );
    // Who saw them before all that is told so.
    let late = db.told("agent_queue", Verb::RequeueFresh, &first).await;
    assert_eq!(
        late.iter().filter(|l| l.contains("moved on")).count(),
        2,
        "{late:?}"
    );
}

#[tokio::test]
async fn operators_and_claims_race_and_nothing_is_overwritten() {
    let setup = "CREATE TABLE agent_jobs (id bigserial PRIMARY KEY, payload jsonb NOT NULL DEFAULT '{}', status text NOT NULL DEFAULT 'queued',
            priority int NOT NULL DEFAULT 0, run_after timestamptz NOT NULL DEFAULT now(), leased_until timestamptz, started_at timestamptz,
            created_at timestamptz NOT NULL DEFAULT now(), attempt int NOT NULL DEFAULT 0, max_attempts int NOT NULL DEFAULT 5);
        CREATE TABLE log (id bigint, was text, becomes text, attempt int);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO log VALUES (NEW.id, OLD.status, NEW.status, NEW.attempt); RETURN NULL; END $$;
        CREATE TRIGGER note AFTER UPDATE ON agent_jobs FOR EACH ROW EXECUTE FUNCTION note();
        INSERT INTO agent_jobs (priority) SELECT i % 3 FROM generate_series(1, 300) i;";
    let db = open("race", setup).await;
    let mut workers = Vec::new();
    for n in 0..4u32 {
        let config = db.config.clone();
        workers.push(tokio::spawn(async move {
            let client = common::connect(&config).await;
            for round in 0..150u32 {
                let claimed = client
                    .query(
                        "UPDATE agent_jobs SET status = 'running', attempt = attempt + 1, started_at = now(), leased_until = now() + interval '10 min'
                          WHERE id IN (SELECT id FROM agent_jobs WHERE status = 'queued' ORDER BY priority DESC, created_at LIMIT 3 FOR UPDATE SKIP LOCKED)
                          RETURNING id, attempt",
                        &[],
                    )
                    .await
                    .expect("claim");
                for row in &claimed {
                    let (id, attempt): (i64, i32) = (row.get(0), row.get(1));
                    let to = if (n + round) % 2 == 0 { "failed" } else { "succeeded" };
                    client
                        .execute("UPDATE agent_jobs SET status = $1, leased_until = NULL WHERE id = $2 AND attempt = $3 AND status = 'running'", &[&to, &id, &attempt])
                        .await
                        .expect("finish");
                }
            }
        }));
    }
    let (mut changed, mut moved) = (0, 0);
    while workers.iter().any(|w| !w.is_finished()) {
        let seen = db.seen("agent_jobs", None).await;
        // workers go on while the operator thinks
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
        for verb in [Verb::Requeue, Verb::Cancel] {
            let some: Vec<Target> = seen
                .iter()
                .filter(|t| t.key.id.len() % 2 == usize::from(verb == Verb::Requeue))
                .take(100)
                .cloned()
                .collect();
            let done = db.act("agent_jobs", verb, &some).await;
            assert_eq!(done.len(), some.len());
            changed += count(&done).get("changed").copied().unwrap_or(0);
            moved += count(&done).get("moved on").copied().unwrap_or(0);
        }
    }
    for worker in workers {
        worker.await.expect("a worker");
    }
    let by_operator = db.number("SELECT count(*) FROM log WHERE (was, becomes) IN (('failed', 'queued'), ('cancelled', 'queued'), ('queued', 'cancelled'), ('running', 'queued'))").await;
    assert_eq!(
        by_operator as usize, changed,
        "what was said is what was done"
    );
    assert_eq!(db.number("SELECT count(*) FROM log WHERE was = 'running' AND becomes IN ('queued', 'cancelled') OR was = 'succeeded'").await, 0);
    println!("{changed} changed, {moved} had moved on");
    assert!(changed > 50, "{changed}");
}

#[test]
fn a_refusal_says_why() {
    let refused = ActionSql::Refuse { why: "no".into() };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let error = runtime.block_on(async {
        let db = open("refuse", "SELECT 1").await;
        refused
            .run(&db.write, Verb::Requeue, &[], None)
            .await
            .expect_err("refused")
    });
    assert_eq!(error.to_string(), "no");
}
