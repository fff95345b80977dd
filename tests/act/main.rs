//! What an operator does, on a real server: previews are facts, chunks are short, and every report adds up with the
//! tables.

#[path = "../common/mod.rs"]
mod common;
mod peers;
mod proxy;
mod stress;

use jobtop::action::{Choice, Outcome, Plan, Preview, Run, Verb, drive};
use jobtop::config::Config;
use jobtop::connect::session::Purpose;
use jobtop::connect::{Fault, Session, Target};
use jobtop::feed::round::Round;
use jobtop::journal::{Entry, Phase, Whole};
use jobtop::migrate::{NotifyChange, apply};
use jobtop::probe::State;
use jobtop::probe::tasks::{Filter, TaskKey};
use proxy::{Next, Proxy};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_postgres::Client;

struct Place {
    client: Client,
    config: tokio_postgres::Config,
    name: String,
    target: Target,
    session: Session,
    round: Round,
    journal: PathBuf,
}

impl Place {
    /// A reference queue with so many failed tasks of `parse`.
    async fn with(hint: &str, failed: i32) -> Self {
        let (name, config) = common::database(hint);
        common::journal(&name);
        let mut client = common::connect(&config).await;
        apply(&mut client, "agent_queue", NotifyChange::Keep)
            .await
            .expect("migrated");
        let sql = format!(
            "SET search_path = agent_queue;
             INSERT INTO tasks (queue, kind, tenant, status, finished_at, attempt, max_attempts, last_error)
             SELECT 'parser', 'parse', 'acme', 'failed', now(), 5, 5, 'TimeoutError: ' || n FROM generate_series(1, {failed}) n;
             ANALYZE tasks"
        );
        client.batch_execute(&sql).await.expect("tasks");
        Self::to(client, config.clone(), name, config).await
    }

    async fn to(
        client: Client,
        config: tokio_postgres::Config,
        name: String,
        through: tokio_postgres::Config,
    ) -> Self {
        let place = Self::open(client, config, name, through).await;
        place.expect("a session that knows the queue")
    }

    /// As [`Place::to`], on a server that may go away.
    async fn open(
        client: Client,
        config: tokio_postgres::Config,
        name: String,
        through: tokio_postgres::Config,
    ) -> Result<Self, Fault> {
        let target = Target::new(through).expect("a target");
        let session = Session::open(&target, Purpose::Poll, "jobtop").await?;
        let journal = common::journal_file(&name);
        let settings = Config {
            rows_per_second: 10_000.0,
            journal_file: Some(journal.clone()),
            ..Config::default()
        };
        let mut round = Round::new(target.clone(), Arc::new(settings)).expect("profiles");
        round.run_database(&session).await?;
        round.run_queues(&session).await?;
        Ok(Self {
            client,
            config,
            name,
            target,
            session,
            round,
            journal,
        })
    }

    /// What the local journal says: (lines before, lines after, asked, changed, failed), and the ids of actions that
    /// both journals know.
    fn journal(&self) -> (usize, usize, u64, u64, usize, BTreeSet<String>) {
        let entries: Vec<Entry> = jobtop::journal::read(&self.journal)
            .expect("a journal")
            .map(|e| e.expect("a whole line"))
            .collect();
        let of = |phase| entries.iter().filter(move |e| e.phase == phase);
        let ended: Vec<&Entry> = of(Phase::Ended).collect();
        let written = ended.iter().filter(|e| e.error.is_none());
        (
            of(Phase::Begun).count(),
            ended.len(),
            ended.iter().filter_map(|e| e.asked).sum(),
            ended.iter().filter_map(|e| e.changed).sum(),
            ended.iter().filter(|e| e.error.is_some()).count(),
            written.map(|e| e.action_id.clone()).collect(),
        )
    }

    /// Everything is counted once, and the local journal says the same of it.
    fn tells(&self, outcome: &Outcome) {
        adds_up(outcome);
        let entries = jobtop::journal::read(&self.journal).expect("a journal");
        let mut actions = jobtop::journal::pair(entries.map(|e| e.expect("a whole line")));
        let of = |e: &Entry| e.action_id.starts_with(&outcome.action_id);
        actions.retain(|a| a.entries.iter().any(of));
        let told: Vec<Whole> = actions.iter().map(|a| a.whole()).collect();
        assert_eq!(told, [whole(outcome)], "{outcome:?}");
    }

    /// The actions in the queue's own journal.
    async fn actions(&self) -> BTreeSet<String> {
        let sql = "SELECT action_id FROM agent_queue.operator_actions";
        let rows = self.client.query(sql, &[]).await.expect(sql);
        rows.iter().map(|r| r.get(0)).collect()
    }

    /// The same database over another line.
    async fn through(self, proxy: &Proxy) -> Self {
        let mut through = tokio_postgres::Config::new();
        through
            .host("127.0.0.1")
            .port(proxy.port)
            .user(common::cluster().superuser())
            .dbname(&self.name);
        let Self {
            client,
            config,
            name,
            session,
            ..
        } = self;
        session.close().await;
        Self::to(client, config, name, through).await
    }

    fn failed() -> Choice {
        Self::matching(Filter {
            states: vec![State::Failed],
            limit: 50_000,
            ..Filter::default()
        })
    }

    fn matching(filter: Filter) -> Choice {
        Choice::Matching {
            system: "agent_queue".into(),
            schema: "agent_queue".into(),
            filter: Box::new(filter),
        }
    }

    fn these(ids: &[i64]) -> Choice {
        let key = |id: &i64| TaskKey {
            system: "agent_queue".into(),
            schema: "agent_queue".into(),
            queue: String::new(),
            id: id.to_string(),
        };
        Choice::These(ids.iter().map(key).collect())
    }

    async fn preview(&self, verb: Verb, choice: Choice) -> Preview {
        let asker = self.round.asker(verb, choice).expect("it can be asked");
        asker.read(&self.session).await.expect("a preview")
    }

    async fn plan(&self, verb: Verb, choice: Choice) -> Plan {
        let preview = self.preview(verb, choice).await;
        Plan::new(verb, preview.targets, Some("because".into()))
    }

    fn run(&self, plan: Plan) -> Run {
        self.round.prepare(plan).expect("statements")
    }

    async fn carry_out(&self, run: &mut Run) {
        let db = Session::open(&self.target, Purpose::Write, "jobtop write")
            .await
            .expect("a session");
        drive(run, &db, &self.target, |_| {}).await;
        db.close().await;
    }

    async fn act(&self, verb: Verb, choice: Choice) -> Outcome {
        let mut run = self.run(self.plan(verb, choice).await);
        self.carry_out(&mut run).await;
        run.outcome()
    }

    async fn value(&self, sql: &str) -> String {
        let sql = format!("SELECT ({sql})::text");
        let row = self.client.query_one(&sql, &[]).await.expect(&sql);
        row.get::<_, Option<String>>(0).unwrap_or_default()
    }
}

/// What the local journal has to say of it.
fn whole(o: &Outcome) -> Whole {
    Whole {
        asked: o.asked,
        changed: o.changed(),
        skipped: o.skipped(),
        unknown: o.unknown,
        not_reached: o.not_reached(),
    }
}

fn adds_up(o: &Outcome) {
    assert_eq!(
        o.asked,
        o.changed() + o.skipped() + o.unknown + o.not_reached(),
        "{o:?}"
    );
}

const JOURNAL: &str = "FROM agent_queue.operator_actions";

#[tokio::test]
async fn twenty_thousand_go_in_chunks_of_a_hundred_in_key_order() {
    let place = Place::with("bulk", 20_000).await;
    let preview = place.preview(Verb::Requeue, Place::failed()).await;
    assert_eq!((preview.asked, preview.eligible), (20_000, 20_000));
    assert_eq!(preview.out_of_tries, 20_000);
    let outcome = place.act(Verb::Requeue, Place::failed()).await;
    place.tells(&outcome);
    assert_eq!(
        (outcome.changed(), outcome.stopped.as_ref()),
        (20_000, None)
    );
    assert_eq!(
        place.value("SELECT count(*) FROM agent_queue.tasks WHERE status = 'enqueued' AND max_attempts = 6 AND attempt = 5 AND lease_token = 1").await,
        "20000"
    );
    assert_eq!(
        place
            .value(&format!(
                "SELECT concat_ws(' ', count(*), min(asked), max(asked), sum(changed), count(DISTINCT xmin::text)) {JOURNAL}"
            ))
            .await,
        "200 100 100 20000 200",
        "each chunk is a transaction of its own"
    );
    assert_eq!(
        place
            .value(&format!(
                "SELECT bool_and(ids = ARRAY(SELECT n::text FROM generate_series(k * 100 - 99, k * 100) n)) FROM \
                 (SELECT ids, split_part(action_id, '/', 2)::int AS k {JOURNAL}) j"
            ))
            .await,
        "true"
    );
    assert_eq!(
        place
            .value(&format!(
                "SELECT bool_and(sql LIKE '%requeue(%' AND reason = 'because') {JOURNAL}"
            ))
            .await,
        "true"
    );
}

#[tokio::test]
async fn a_row_locked_by_somebody_holds_nothing_up_and_is_tried_again() {
    let place = Place::with("locked", 150).await;
    let mut other = common::connect(&place.config).await;
    let held = other.transaction().await.expect("begin");
    held.batch_execute("SELECT FROM agent_queue.tasks WHERE id = 7 FOR UPDATE")
        .await
        .expect("locked");
    let mut third = common::connect(&place.config).await;
    let brief = third.transaction().await.expect("begin");
    brief
        .batch_execute("SELECT FROM agent_queue.tasks WHERE id = 120 FOR UPDATE")
        .await
        .expect("locked");
    let mut run = place.run(place.plan(Verb::Requeue, Place::failed()).await);
    let db = Session::open(&place.target, Purpose::Write, "jobtop write")
        .await
        .expect("a session");
    for _ in 0..2 {
        run.step(&db, &place.target).await;
    }
    assert_eq!((run.progress().done, run.progress().locked), (148, 2));
    brief.rollback().await.expect("let go");
    drive(&mut run, &db, &place.target, |_| {}).await;
    db.close().await;
    let outcome = run.outcome();
    place.tells(&outcome);
    let counts: Vec<_> = outcome.counts();
    assert_eq!(
        counts,
        [
            (true, "changed".to_string(), 149),
            (false, "locked by another session".to_string(), 1)
        ]
    );
    assert_eq!(
        place
            .value(&format!(
                "SELECT concat_ws(' ', count(*), sum(changed)) {JOURNAL}"
            ))
            .await,
        "4 149",
        "two chunks, and twice more those that were locked"
    );
    held.rollback().await.expect("let go");
}

#[tokio::test]
async fn it_can_be_stopped_between_two_chunks() {
    let place = Place::with("stop", 500).await;
    let mut run = place.run(place.plan(Verb::Requeue, Place::failed()).await);
    let stop = run.stop();
    let db = Session::open(&place.target, Purpose::Write, "jobtop write")
        .await
        .expect("a session");
    drive(&mut run, &db, &place.target, |p| {
        if p.done >= 200 {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .await;
    db.close().await;
    let outcome = run.outcome();
    place.tells(&outcome);
    assert_eq!((outcome.changed(), outcome.not_reached()), (200, 300));
    let (_, words) = outcome.summary();
    assert!(
        words.contains("not reached 300: stopped on request"),
        "{words}"
    );
    assert_eq!(
        place.value(&format!("SELECT sum(changed) {JOURNAL}")).await,
        "200"
    );
}

#[tokio::test]
async fn what_became_of_a_commit_without_an_answer_is_asked_of_the_server() {
    let cluster = common::cluster();
    let proxy = Proxy::to(&cluster.socket_dir(), cluster.port()).await;
    let place = Place::with("lost_commit", 250).await.through(&proxy).await;
    for (next, changed, written) in [
        (Next::AnswerLost, 100, "the server says it was written"),
        (Next::NeverSent, 0, "rolled back"),
    ] {
        let before = place
            .value("SELECT count(*) FROM agent_queue.tasks WHERE status = 'enqueued'")
            .await;
        let mut run = place.run(place.plan(Verb::Requeue, Place::failed()).await);
        proxy.next(next);
        place.carry_out(&mut run).await;
        let outcome = run.outcome();
        place.tells(&outcome);
        assert_eq!(
            (outcome.changed(), outcome.unknown),
            (changed, 0),
            "{next:?}: {outcome:?}"
        );
        let (_, words) = outcome.summary();
        assert!(words.contains(written), "{words}");
        let after = place
            .value("SELECT count(*) FROM agent_queue.tasks WHERE status = 'enqueued'")
            .await;
        let number = |text: &str| text.parse::<u64>().expect("a count");
        assert_eq!(number(&after) - number(&before), changed, "{next:?}");
    }
    let (begun, ended, _, changed, failed, ids) = place.journal();
    assert_eq!((begun, ended, changed, failed), (2, 2, 100, 1));
    assert_eq!(ids, place.actions().await);
}

#[tokio::test]
async fn a_preview_counts_what_is_true_now() {
    let place = Place::with("preview", 3).await;
    place
        .client
        .batch_execute(
            "SET search_path = agent_queue;
             SELECT enqueue('parser', 'parse');
             SELECT started(id, lease_token) FROM claim('parser', 'w1', lease => '1 h');
             SELECT enqueue('parser', 'parse');
             SELECT started(id, lease_token) FROM claim('parser', 'w2', lease => '1 ms');
             INSERT INTO task_attempts (task_id, attempt, lease_token, worker, eligible_at, claimed_at, finished_at, outcome)
               SELECT 1, n, n, 'w', now(), now(), now(), 'failed' FROM generate_series(1, 5) n;
             SELECT report_usage('c' || n, 1, n, 'm', 1, 1, 0.02) FROM generate_series(1, 5) n;
             SELECT pg_sleep(0.01);",
        )
        .await
        .expect("live tasks");
    let p = place
        .preview(Verb::Requeue, Place::these(&[1, 2, 3, 4, 5, 99]))
        .await;
    assert_eq!((p.asked, p.eligible, p.running), (6, 4, 1));
    let left: Vec<_> = p.left_out.iter().map(|(w, n)| (w.as_str(), *n)).collect();
    assert_eq!(
        left,
        [
            ("not there any more", 1),
            (
                "running under a live lease: only an expired lease permits a requeue",
                1
            )
        ]
    );
    assert_eq!(p.spent_usd.expect("spent").dollars(), 0.1);
    assert_eq!(
        p.again_usd.expect("usual").dollars(),
        0.08,
        "4 at the median of 0.02"
    );
    assert_eq!(p.held.len(), 1);
    assert_eq!(p.held[0].worker.as_deref(), Some("w2"));
    assert!(p.held[0].lease_s.is_some_and(|s| s < 0.0));
    assert!(
        p.held[0]
            .heartbeat_s
            .is_some_and(|s| (0.0..60.0).contains(&s))
    );
    assert_eq!(p.out_of_tries, 3);
    let one = place.preview(Verb::Requeue, Place::these(&[2])).await;
    assert_eq!(one.tries, Some((5, 5)));
}

#[tokio::test]
async fn all_that_match_are_those_that_the_words_say() {
    let place = Place::with("match", 20).await;
    place
        .client
        .batch_execute(
            "SET search_path = agent_queue;
             UPDATE tasks SET kind = 'scan', tenant = 'globex' WHERE id > 15;
             UPDATE tasks SET finished_at = now() - interval '2 h' WHERE id IN (1, 2, 16)",
        )
        .await
        .expect("changed");
    let count = async |filter: Filter| {
        let filter = Filter {
            states: vec![State::Failed],
            limit: 1000,
            ..filter
        };
        place
            .preview(Verb::Requeue, Place::matching(filter))
            .await
            .eligible
    };
    let any = Filter::default;
    assert_eq!(count(any()).await, 20);
    assert_eq!(count(any().with("kind", Some("scan"))).await, 5);
    assert_eq!(count(any().containing("kind", Some("SCA"))).await, 5);
    assert_eq!(count(any().with("kind", Some("sca"))).await, 0);
    assert_eq!(
        count(any().containing("last_error", Some("timeouterror: 2"))).await,
        2
    );
    let older = Filter {
        older_s: Some(3600.0),
        ..any()
    };
    assert_eq!(count(older.clone()).await, 3);
    assert_eq!(count(older.with("kind", Some("parse"))).await, 2);
    let mut not = any().containing("tenant", Some("acme"));
    not.terms[0].not = true;
    assert_eq!(count(not).await, 5);
    let mut somewhere = any().containing("tenant", Some("globex"));
    somewhere.terms[0].field = None;
    assert_eq!(count(somewhere).await, 5);
}

#[tokio::test]
async fn a_group_of_failures_is_those_with_that_error() {
    let place = Place::with("group", 30).await;
    place
        .client
        .batch_execute(
            "SET search_path = agent_queue;
             UPDATE tasks SET last_error = 'ValueError: page ' || id WHERE id > 20;
             UPDATE tasks SET finished_at = now() - interval '2 d' WHERE id = 1;
             INSERT INTO tasks (queue, kind, attempt, run_after, deferred, last_error)
               SELECT 'parser', 'parse', 1, now() + interval '1 h', true, 'TimeoutError: 7' FROM generate_series(1, 4)",
        )
        .await
        .expect("errors");
    let group = |verb: Verb| Filter {
        states: verb.takes().to_vec(),
        failure: vec!["TimeoutError: #".into()],
        within_s: Some(86_400.0),
        limit: 1000,
        ..Filter::default()
    };
    for (verb, tasks) in [(Verb::Requeue, 19), (Verb::Park, 4)] {
        let filter = group(verb).with("kind", Some("parse"));
        let p = place.preview(verb, Place::matching(filter)).await;
        assert_eq!(p.eligible, tasks, "{verb:?}");
        let filter = group(verb).with("kind", Some(""));
        let p = place.preview(verb, Place::matching(filter)).await;
        assert_eq!(p.eligible, 0, "{verb:?} without a kind");
    }
    let parked = group(Verb::Park).with("kind", Some("parse"));
    let outcome = place.act(Verb::Park, Place::matching(parked)).await;
    assert_eq!(outcome.changed(), 4, "{outcome:?}");
}

#[tokio::test]
async fn a_zombie_changes_nothing_after_its_task_was_released() {
    let place = Place::with("zombie", 0).await;
    place
        .client
        .batch_execute(
            "SET search_path = agent_queue;
             SELECT enqueue('parser', 'parse') FROM generate_series(1, 3);
             SELECT started(id, lease_token) FROM claim('parser', 'w1', 2, lease => '1 ms');
             SELECT started(id, lease_token) FROM claim('parser', 'w2', 1, lease => '1 h');
             SELECT pg_sleep(0.01)",
        )
        .await
        .expect("leases");
    let expired = Place::matching(Filter {
        states: vec![State::Running],
        stuck: true,
        limit: 1000,
        ..Filter::default()
    });
    let outcome = place.act(Verb::Release, expired).await;
    assert_eq!((outcome.asked, outcome.changed()), (2, 2), "{outcome:?}");
    let late =
        "SELECT string_agg(agent_queue.complete(id, 1), ',') FROM agent_queue.tasks WHERE id < 3";
    let word = "stale lease token";
    assert_eq!(place.value(late).await, format!("{word},{word}"));
    let again = place.act(Verb::Cancel, Place::these(&[3])).await;
    assert_eq!(again.counts(), [(true, "requested".to_string(), 1)]);
    let twice = place.preview(Verb::Cancel, Place::these(&[3])).await;
    assert_eq!(twice.eligible, 0);
}

#[tokio::test]
async fn no_transaction_is_open_while_a_dialog_is_and_none_for_long() {
    let place = Place::with("short", 2_000).await;
    let plan = place.plan(Verb::Requeue, Place::failed()).await;
    let mut run = place.run(plan);
    let watched = common::connect(&place.config).await;
    let longest = tokio::spawn(async move {
        let mut longest = 0.0f64;
        loop {
            let sql = "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8, count(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND application_name = 'jobtop write'";
            let row = watched.query_one(sql, &[]).await.expect("activity");
            let (age, sessions): (f64, i64) = (row.get(0), row.get(1));
            longest = longest.max(age);
            if sessions == 0 && longest > 0.0 {
                return longest;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'jobtop%' AND xact_start IS NOT NULL";
    assert_eq!(place.value(open).await, "0", "while a person thinks");
    place.carry_out(&mut run).await;
    assert_eq!(run.outcome().changed(), 2_000);
    let longest = longest.await.expect("watched");
    assert!(longest < 2.0, "a transaction was open for {longest} s");
}

#[tokio::test]
async fn a_try_that_is_taken_away_does_not_end_before_it_started() {
    let place = Place::with("late_start", 0).await;
    let sql = "SET search_path = agent_queue, pg_temp; SELECT enqueue('q', 'k') FROM generate_series(1, 12);
         SELECT claim('q', 'w', 12, '1 ms'); SELECT pg_sleep(0.05);
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE UPDATE ON tasks FOR EACH ROW WHEN (NEW.status = 'enqueued') EXECUTE FUNCTION slow()";
    place
        .client
        .batch_execute(sql)
        .await
        .expect("expired leases");
    let other = common::connect(&place.config).await;
    let reclaim =
        tokio::spawn(async move { other.batch_execute("SELECT agent_queue.reclaim(50)").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let late =
        "SELECT string_agg(agent_queue.started(id, 1), ',') FROM agent_queue.tasks WHERE id = 12";
    assert_eq!(place.value(late).await, "ok");
    reclaim.await.expect("a task").expect("reclaimed");
    let odd = "SELECT count(*) FROM agent_queue.task_attempts WHERE finished_at < started_at";
    assert_eq!(place.value(odd).await, "0");
}
