//! The demo's life on a real server: the fixture data repeat, a calm day is calm, each act makes the trouble that it
//! is named after and ends when its cause is removed by hand, and nobody stays behind.

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use jobtop::connect::session::Purpose;
use jobtop::connect::{Session, Target};
use jobtop::demo::cluster::{Cluster, Options};
use jobtop::demo::crew::{Cast, Crew, work};
use jobtop::demo::link::Link;
use jobtop::demo::roles::{Logins, ONCALL};
use jobtop::demo::seed::{SeedOptions, seed};
use jobtop::demo::{ACTS, Act, Demo, DemoOptions, Scenario, settings, show};
use jobtop::feed::round::Round;
use jobtop::findings::Tracker;
use tokio::time::sleep;
use tokio_postgres::Client;

const SCHEMA: &str = "agent_queue";

fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        Cluster::start(&Options {
            settings: [("max_connections", "400"), ("autovacuum_naptime", "1s")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            ..common::options()
        })
        .expect("a private Postgres")
    })
}

fn target(database: &str) -> Target {
    let mut config = cluster().config();
    config.dbname(database);
    Target::new(config).expect("a target")
}

async fn admin(database: &str) -> Client {
    common::connect(&target(database).config).await
}

/// A new database, empty or like the furnished one.
async fn database(template: &str) -> Target {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let name = format!("life_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let admin = admin("postgres").await;
    let sql = format!("CREATE DATABASE {name} TEMPLATE {template}");
    // Whoever prepared the template may still be on the way out.
    for _ in 0..100 {
        match admin.batch_execute(&sql).await {
            Ok(()) => return target(&name),
            Err(error) if error.code().is_some_and(|c| c.code() == "55006") => {
                sleep(Duration::from_millis(100)).await;
            }
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }
    panic!("{template} is in use for ever");
}

/// The name of a database with everything that the demo has before its clients come.
async fn furnished() -> &'static str {
    static ONCE: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    ONCE.get_or_init(|| async {
        let sql = "CREATE DATABASE furnished";
        admin("postgres").await.batch_execute(sql).await.expect(sql);
        let target = target("furnished");
        show::prepare(&target, 7).await.expect("the tables");
        show::furnish(&target, 7).await.expect("the fixture data");
    })
    .await;
    "furnished"
}

async fn text(db: &Client, sql: &str) -> String {
    let rows = db.simple_query(sql).await;
    let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    rows.iter()
        .find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(String::from),
            _ => None,
        })
        .unwrap_or_default()
}

async fn holds(db: &Client, sql: &str) -> bool {
    text(db, &format!("SELECT ({sql})")).await == "t"
}

/// Waits until it holds: a promise of seconds, kept within five times as many on a busy machine.
async fn eventually(db: &Client, what: &str, sql: &str, limit_s: u64) -> Result<(), String> {
    let begun = Instant::now();
    while !holds(db, sql).await {
        if begun.elapsed() > Duration::from_secs(limit_s) {
            return Err(format!("not within {limit_s} s: {what}"));
        }
        sleep(Duration::from_millis(250)).await;
    }
    eprintln!("{what}: after {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Everything in the queue, as far from the first task as it is.
const CHECKSUM: &str = "
SELECT md5(string_agg(line, E'\\n' ORDER BY line)) FROM (
  SELECT concat_ws('|', 'task', id, queue, kind, agent, tenant, batch_id, payload, status, priority, created_at - zero,
         run_after - zero, claimed_at - zero, started_at - zero, finished_at - zero, lease_expires_at - zero, locked_by,
         attempt, lease_token, last_error, result, confidence, cancel_requested_at - zero) AS line
    FROM agent_queue.tasks, (SELECT min(created_at) AS zero FROM agent_queue.tasks) z
  UNION ALL
  SELECT concat_ws('|', 'attempt', task_id, attempt, worker, eligible_at - zero, claimed_at - zero, started_at - zero,
         finished_at - zero, outcome, error, job_run_id, trace_id)
    FROM agent_queue.task_attempts, (SELECT min(created_at) AS zero FROM agent_queue.tasks) z
  UNION ALL
  SELECT concat_ws('|', 'usage', call_id, task_id, attempt, model, input_tokens, output_tokens, llm_cost, compute_cost,
         reported_at - zero)
    FROM agent_queue.usage, (SELECT min(created_at) AS zero FROM agent_queue.tasks) z) AS lines";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_seed_gives_the_same_day() {
    let mut sums = Vec::new();
    for (chance, running) in [(3, true), (3, true), (4, true), (3, false)] {
        let target = database("template1").await;
        let mut client = common::connect(&target.config).await;
        jobtop::migrate::apply(&mut client, SCHEMA, jobtop::migrate::NotifyChange::Keep)
            .await
            .expect("the queue");
        let link = Link::open(&target, "seed").await.expect("a connection");
        let options = SeedOptions {
            seed: chance,
            running,
            ..SeedOptions::default()
        };
        let begun = Instant::now();
        let report = seed(&link, SCHEMA, &options).await.expect("fixture data");
        eprintln!("{report:?} in {:?}", begun.elapsed());
        sums.push(text(&client, CHECKSUM).await);
        if sums.len() > 1 {
            continue;
        }
        sound(&client).await;
        let refused = seed(&link, SCHEMA, &options).await.expect_err("refused");
        assert!(refused.to_string().contains("--force"), "{refused:#}");
        let before = text(&client, "SELECT count(*) FROM agent_queue.tasks").await;
        assert_eq!(before, report.tasks.to_string());
        let forced = SeedOptions {
            force: true,
            ..options
        };
        let more = seed(&link, SCHEMA, &forced).await.expect("more of it");
        let after = text(&client, "SELECT count(*) FROM agent_queue.tasks").await;
        assert_eq!(after, (report.tasks + more.tasks).to_string());
    }
    assert_eq!(sums[0], sums[1]);
    assert_ne!(sums[0], sums[2]);
    assert_ne!(sums[0], sums[3]);
}

/// What no sound queue holds is not in the fixture data, and what the screen has a place for is.
async fn sound(db: &Client) {
    for (what, sql) in [
        (
            "claimed before created",
            "EXISTS (SELECT FROM agent_queue.tasks WHERE claimed_at < created_at)",
        ),
        (
            "runs without one open attempt",
            "EXISTS (SELECT FROM agent_queue.tasks t WHERE status = 'processing' AND (SELECT count(*) FROM \
             agent_queue.task_attempts a WHERE a.task_id = t.id AND a.finished_at IS NULL) <> 1)",
        ),
        (
            "an open attempt of a task that does not run",
            "EXISTS (SELECT FROM agent_queue.task_attempts a JOIN agent_queue.tasks t ON t.id = a.task_id \
             WHERE a.finished_at IS NULL AND t.status <> 'processing')",
        ),
        (
            "succeeded twice",
            "EXISTS (SELECT FROM agent_queue.task_attempts WHERE outcome = 'completed' GROUP BY task_id HAVING count(*) > 1)",
        ),
        (
            "usage without a task",
            "EXISTS (SELECT FROM agent_queue.usage u WHERE NOT EXISTS (SELECT FROM agent_queue.tasks t WHERE t.id = u.task_id))",
        ),
        (
            "runs without a slot where there is a limit",
            "EXISTS (SELECT FROM agent_queue.tasks t JOIN agent_queue.limits l USING (queue) WHERE status = 'processing' \
             AND NOT EXISTS (SELECT FROM agent_queue.slots s WHERE s.task_id = t.id))",
        ),
        (
            "anything in the future that has happened",
            "EXISTS (SELECT FROM agent_queue.tasks WHERE greatest(created_at, claimed_at, finished_at) > clock_timestamp()) \
             OR EXISTS (SELECT FROM agent_queue.usage WHERE reported_at > clock_timestamp())",
        ),
        (
            "less than a day of arrivals in the crawl, or a gap in it",
            "(SELECT max(at - before) > interval '13 s' OR min(at) > now() - interval '24 h' FROM (SELECT created_at AS at, \
             lag(created_at) OVER (ORDER BY created_at) AS before FROM agent_queue.tasks WHERE queue = 'crawler') x)",
        ),
    ] {
        assert!(!holds(db, sql).await, "{what}");
    }
    for sql in [
        "SELECT count(DISTINCT queue) FROM agent_queue.tasks",
        "SELECT count(*) FROM agent_queue.tasks WHERE status = 'failed'",
        "SELECT count(*) FROM agent_queue.tasks WHERE status = 'parked'",
        "SELECT count(*) FROM agent_queue.tasks WHERE status = 'cancelled'",
        "SELECT count(*) FROM agent_queue.tasks WHERE status = 'enqueued' AND deferred AND attempt = 0",
        "SELECT count(*) FROM agent_queue.tasks WHERE status = 'enqueued' AND deferred AND attempt > 0",
        "SELECT count(*) FROM agent_queue.tasks WHERE status = 'processing' AND lease_expires_at < now()",
        "SELECT count(*) FROM agent_queue.usage WHERE llm_cost IS NULL AND input_tokens > 0",
        "SELECT count(*) FROM agent_queue.operator_actions",
        "SELECT count(DISTINCT batch_id) FROM agent_queue.tasks",
    ] {
        let n: i64 = text(db, sql).await.parse().expect("a number");
        assert!(n >= 3, "{n}: {sql}");
    }
    let spent = "SELECT sum(llm_cost) BETWEEN 10 AND 200 FROM agent_queue.usage WHERE reported_at > now() - interval '1 h'";
    assert_eq!(text(db, spent).await, "t", "an hour's spend");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_calm_day_is_calm_and_leaves_nobody() {
    let target = database(furnished().await).await;
    let logins = Logins::roles(&target);
    let crew = Crew::start(&logins, SCHEMA, &Cast::demo(), Scenario::Calm, 7, true);
    let begun = Instant::now();
    loop {
        sleep(Duration::from_millis(500)).await;
        let deeds = crew.deeds();
        let enough = deeds.n("completed") >= 10
            && deeds.n("billed") >= 10
            && deeds.n("enqueued") >= 10
            && deeds.n("agent_jobs done") >= 1
            && deeds.n("workflow_jobs done") >= 1;
        if enough && begun.elapsed() > Duration::from_secs(10) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(50), "{deeds:?}");
    }
    let db = common::connect(&target.config).await;
    for (what, sql) in [
        (
            "a blocked session",
            "EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0)",
        ),
        (
            "idle in transaction",
            "EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%')",
        ),
        (
            "an expired lease",
            "EXISTS (SELECT FROM agent_queue.tasks WHERE status = 'processing' AND lease_expires_at < now())",
        ),
        (
            "a worker whose session cannot be found by its name",
            "EXISTS (SELECT FROM agent_queue.tasks t WHERE status = 'processing' AND NOT EXISTS \
             (SELECT FROM pg_stat_activity a WHERE a.application_name = t.locked_by))",
        ),
    ] {
        assert!(!holds(&db, sql).await, "{what}");
    }
    let clients = text(&db, CLIENTS).await;
    assert!(
        (34..=40).contains(&clients.parse().unwrap_or(0)),
        "{clients} clients"
    );
    let deeds = crew.stop().await;
    assert_eq!((deeds.faults, &deeds.last_fault), (0, &None), "{deeds:?}");
    assert_eq!(deeds.n("stale"), 0, "{deeds:?}");
    nobody_left(&db).await.expect("nobody");
}

const CLIENTS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND backend_type = 'client backend' AND pid <> pg_backend_pid()";

async fn nobody_left(db: &Client) -> Result<(), String> {
    eventually(db, "nobody is left", &format!("({CLIENTS}) = 0"), 10).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_work_on_somebody_elses_queue_and_come_back_after_a_restart_of_their_sessions() {
    let target = database("template1").await;
    let mut client = common::connect(&target.config).await;
    let refused = work(&target, SCHEMA, 3, 1, async {})
        .await
        .expect_err("no queue");
    assert!(
        refused.to_string().contains("jobtop migrate"),
        "{refused:#}"
    );
    jobtop::migrate::apply(&mut client, SCHEMA, jobtop::migrate::NotifyChange::Keep)
        .await
        .expect("the queue");
    let until = async {
        let done = "(SELECT count(*) FROM agent_queue.tasks WHERE status = 'completed') >= ";
        eventually(&client, "first results", &format!("{done} 3"), 40)
            .await
            .expect("work");
        let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        assert_ne!(text(&client, all).await, "0");
        eventually(
            &client,
            "results after all sessions were ended",
            &format!("{done} 8"),
            60,
        )
        .await
        .expect("work goes on");
    };
    let deeds = work(&target, SCHEMA, 3, 1, until).await.expect("work");
    assert_eq!(deeds.faults, 0, "{deeds:?}");
    // Whoever was at something has finished it, but for what the ended sessions had just claimed.
    let held = text(
        &client,
        "SELECT count(*) FROM agent_queue.tasks WHERE status = 'processing'",
    )
    .await;
    assert!(held.parse::<u64>().is_ok_and(|n| n <= 1), "{held} are held");
    nobody_left(&client).await.expect("nobody");
}

/// What jobtop says about a database, refresh by refresh.
struct Monitor {
    rules: Arc<Mutex<BTreeSet<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Monitor {
    async fn start(target: &Target) -> Self {
        let rules = Arc::new(Mutex::new(BTreeSet::new()));
        let config = Arc::new(settings());
        let db = Session::open(target, Purpose::Poll, "jobtop")
            .await
            .expect("a connection");
        let mut round = Round::new(target.clone(), config.clone()).expect("profiles");
        let mut tracker = Tracker::new(&config);
        let said = rules.clone();
        let task = tokio::spawn(async move {
            round.connected();
            loop {
                let _ = round.run_database(&db).await;
                let _ = round.run_queues(&db).await;
                let report = tracker.update(&round.assemble());
                *said.lock().expect("rules") =
                    report.findings.into_iter().map(|f| f.rule).collect();
                sleep(Duration::from_secs(1)).await;
            }
        });
        Self { rules, task }
    }

    /// Waits until a rule speaks, or is silent.
    async fn wait(&self, rule: &str, speaks: bool, limit_s: u64) -> Result<(), String> {
        let begun = Instant::now();
        while self.rules.lock().expect("rules").contains(rule) != speaks {
            if begun.elapsed() > Duration::from_secs(limit_s) {
                let rules = self.rules.lock().expect("rules");
                let what = if speaks { "said" } else { "withdrawn" };
                return Err(format!(
                    "{rule} was not {what} within {limit_s} s, but {rules:?}"
                ));
            }
            sleep(Duration::from_millis(250)).await;
        }
        let what = if speaks {
            "is said"
        } else {
            "is no longer said"
        };
        eprintln!(
            "{rule} {what}: after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The rule that an act is for. What is known of the last ten minutes only goes with them.
fn rule(act: Act) -> (&'static str, bool) {
    match act {
        Act::IdleInTransaction => ("idle-in-transaction", true),
        Act::ProviderSlow => ("slow-outside", true),
        Act::WorkersKilled => ("leases-expired", true),
        Act::RetryStorm => ("failing", true),
        Act::EnqueuerStopped => ("inflow-stopped", true),
        Act::MigrationWaits => ("table-lock", true),
        Act::CostRunaway => ("cost-runaway", false),
        Act::OldSnapshot => ("xmin-held", true),
        Act::BudgetFull => ("budget", true),
    }
}

/// What an act does to the database, how somebody ends it by hand, and how one sees that it is over.
struct Trouble {
    trigger: &'static str,
    by_hand: Option<&'static str>,
    limit_s: u64,
}

const OVERDUE: &str = "(SELECT count(*) FILTER (WHERE now() - t.started_at > u.p95) >= 0.5 * count(*) AND count(*) >= 5 \
    FROM agent_queue.tasks t JOIN (SELECT t.kind, percentile_disc(0.95) WITHIN GROUP (ORDER BY a.finished_at - a.started_at) AS p95 \
       FROM agent_queue.task_attempts a JOIN agent_queue.tasks t ON t.id = a.task_id \
      WHERE a.finished_at BETWEEN now() - interval '1 h' AND now() - interval '2 min' GROUP BY 1) u USING (kind) \
   WHERE t.status = 'processing' AND t.queue = 'parser')";

const RUNAWAY: &str = "EXISTS (SELECT FROM (SELECT t.tenant, \
        sum(u.llm_cost) FILTER (WHERE reported_at > now() - interval '10 min') * 6 AS now, \
        sum(u.llm_cost) FILTER (WHERE reported_at <= now() - interval '10 min') * 1.2 AS usual \
   FROM agent_queue.usage u JOIN agent_queue.tasks t ON t.id = u.task_id \
  WHERE reported_at > now() - interval '1 h' GROUP BY 1) x WHERE now > 5 AND now > 5 * usual) \
  AND EXISTS (SELECT FROM agent_queue.tasks WHERE batch_id LIKE 'deep-research%' AND status IN ('enqueued', 'processing'))";

const STORM: &str = "(SELECT count(*) FILTER (WHERE recent) >= 20 \
        AND count(*) FILTER (WHERE recent AND failed) >= 0.5 * count(*) FILTER (WHERE recent) \
        AND count(*) FILTER (WHERE NOT recent) >= 50 \
        AND count(*) FILTER (WHERE NOT recent AND failed) <= 0.1 * count(*) FILTER (WHERE NOT recent) \
   FROM (SELECT a.finished_at > now() - interval '10 min' AS recent, a.outcome = 'failed' AS failed \
           FROM agent_queue.task_attempts a JOIN agent_queue.tasks t ON t.id = a.task_id \
          WHERE t.kind = 'parse_scan' AND a.finished_at > now() - interval '1 h') x)";

fn trouble(act: Act) -> Trouble {
    let (trigger, by_hand, limit_s) = match act {
        Act::IdleInTransaction => (
            "EXISTS (SELECT FROM pg_stat_activity a WHERE datname = current_database() AND state = 'idle in transaction' \
             AND state_change < now() - interval '5 s' AND application_name LIKE 'agent-%' AND (SELECT count(*) FROM pg_locks l \
             WHERE NOT granted AND a.pid = ANY (pg_blocking_pids(l.pid))) >= 3)",
            Some(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                 AND state = 'idle in transaction'",
            ),
            60,
        ),
        Act::ProviderSlow => (OVERDUE, None, 80),
        Act::WorkersKilled => (
            "(SELECT count(*) FROM agent_queue.tasks WHERE status = 'processing' AND lease_expires_at < now() - interval '5 s' \
             AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = locked_by)) >= 3",
            Some("SELECT count(*) FROM agent_queue.reclaim(100)"),
            80,
        ),
        Act::RetryStorm => (
            STORM,
            Some(
                "SELECT count(*) FROM agent_queue.cancel(ARRAY(SELECT id FROM agent_queue.tasks WHERE kind = 'parse_scan' \
                 AND batch_id LIKE 'orders-%' AND status IN ('enqueued', 'processing')))",
            ),
            60,
        ),
        Act::MigrationWaits => (
            "EXISTS (SELECT FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
             AND waitstart < now() - interval '3 s') AND (SELECT count(*) FROM pg_locks WHERE NOT granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) >= 5",
            Some(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name = 'report-2'",
            ),
            60,
        ),
        Act::CostRunaway => (
            RUNAWAY,
            Some(
                "SELECT count(*) FROM agent_queue.cancel(ARRAY(SELECT id FROM agent_queue.tasks WHERE batch_id LIKE 'deep-research%'))",
            ),
            60,
        ),
        Act::OldSnapshot => (
            "EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_xmin IS NOT NULL \
             AND xact_start < now() - interval '15 s' AND application_name = 'report-3') \
             AND (SELECT n_dead_tup >= 1500 FROM pg_stat_user_tables WHERE relid = 'agent_queue.tasks'::regclass)",
            Some(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name = 'report-3'",
            ),
            80,
        ),
        Act::BudgetFull => (
            "(SELECT count(*) >= 8 AND count(*) FILTER (WHERE state = 'idle') = 0 FROM pg_stat_activity \
             WHERE datname = current_database() AND usename = 'demo_batch')",
            Some(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name = 'batch-import-5'",
            ),
            40,
        ),
        Act::EnqueuerStopped => (
            "(SELECT max(created_at) < now() - interval '15 s' FROM agent_queue.tasks WHERE queue = 'crawler')",
            Some("SELECT agent_queue.enqueue('crawler', 'fetch_page')::text"),
            60,
        ),
    };
    Trouble {
        trigger,
        by_hand,
        limit_s,
    }
}

async fn play(act: Act) -> Result<(), String> {
    let target = database(furnished().await).await;
    let cast = Cast {
        pool: 0,
        people: 0,
        house_workers: 1,
        ..Cast::demo()
    };
    let crew = Crew::start(
        &Logins::roles(&target),
        SCHEMA,
        &cast,
        Scenario::Only(act),
        7,
        true,
    );
    let db = common::connect(&target.config).await;
    let trouble = trouble(act);
    let name = act.name();
    let (rule, goes) = rule(act);
    let monitor = Monitor::start(&target).await;
    // Nobody has enqueued since the fixture data were copied: that is over when the clients begin.
    let before = format!("NOT ({})", trouble.trigger);
    eventually(&db, &format!("no {name} before its act"), &before, 10).await?;
    eventually(&db, name, trouble.trigger, trouble.limit_s).await?;
    monitor.wait(rule, true, 120).await?;
    let reads = match act {
        Act::OldSnapshot => Some(reads_per_claim(&db).await),
        _ => None,
    };
    match trouble.by_hand {
        Some(sql) => {
            let done = text(&db, sql).await;
            if done == "0" {
                return Err(format!("{name}: there was nothing to remove by hand"));
            }
        }
        None => crew.world().order(|orders| orders.slowdown = 1.0),
    }
    let over = format!("NOT ({})", trouble.trigger);
    eventually(&db, &format!("{name} is over"), &over, 60).await?;
    if let Some(before) = reads {
        let mut after = before;
        for _ in 0..10 {
            after = reads_per_claim(&db).await;
            if after < before / 5.0 {
                break;
            }
        }
        eprintln!("{name}: {before:.0} index entries a claim, then {after:.1}");
        if before < 20.0 || after > before / 5.0 {
            return Err(format!(
                "{name}: claims read {before:.1} entries, then {after:.1}"
            ));
        }
    }
    for _ in 0..12 {
        sleep(Duration::from_millis(500)).await;
        if holds(&db, trouble.trigger).await {
            return Err(format!("{name} came back by itself"));
        }
    }
    if goes {
        monitor.wait(rule, false, 60).await?;
    }
    drop(monitor);
    let deeds = crew.stop().await;
    if deeds.faults > 0 {
        return Err(format!("{name}: {deeds:?}"));
    }
    nobody_left(&db).await
}

/// Over two seconds.
async fn reads_per_claim(db: &Client) -> f64 {
    let sql = "SELECT idx_scan || ' ' || idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'tasks_claim'";
    let numbers = |text: String| -> Vec<f64> {
        text.split(' ')
            .map(|n| n.parse().expect("a number"))
            .collect()
    };
    let before = numbers(text(db, sql).await);
    sleep(Duration::from_secs(2)).await;
    let after = numbers(text(db, sql).await);
    (after[1] - before[1]) / (after[0] - before[0]).max(1.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_act_makes_its_trouble_and_ends_when_that_is_removed_by_hand() {
    furnished().await;
    let plays: Vec<_> = ACTS.iter().map(|act| tokio::spawn(play(*act))).collect();
    let mut failures = Vec::new();
    for play in plays {
        match play.await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => failures.push(failure),
            Err(panic) => failures.push(panic.to_string()),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_starts_with_everybody_in_a_budget_and_goes_without_a_trace() {
    let demo = Demo::start(
        DemoOptions {
            scenario: Scenario::Calm,
            supervisor: PathBuf::from(env!("CARGO_BIN_EXE_jobtop")),
            ..DemoOptions::default()
        },
        Box::new(|_| {}),
    )
    .await
    .expect("a demo");
    eprintln!("{:?}, {:?}", demo.times, demo.seeded);
    let db = common::connect(&demo.target(ONCALL).config).await;
    assert_eq!(text(&db, "SHOW max_connections").await, "60");
    eventually(
        &db,
        "somebody works",
        "EXISTS (SELECT FROM agent_queue.tasks WHERE status = 'processing')",
        20,
    )
    .await
    .expect("work");
    eventually(&db, "all are here", &format!("({CLIENTS}) >= 34"), 20)
        .await
        .expect("the clients");
    let rows = db
        .simple_query("SELECT application_name, usename FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
        .await
        .expect("the sessions");
    let budgets = settings().budgets;
    for row in &rows {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = row {
            let (application, role) = (row.get(0).unwrap_or(""), row.get(1).unwrap_or(""));
            assert!(
                budgets.iter().any(|b| b.matches(application, role)),
                "{application} ({role}) is in no budget"
            );
        }
    }
    // The person on call may look at, requeue, and end sessions, but not write tasks by hand.
    text(
        &db,
        "SELECT count(*) FROM agent_queue.requeue(ARRAY[1::bigint])",
    )
    .await;
    text(&db, "SELECT count(*) FROM public.workflow_jobs").await;
    assert!(
        db.simple_query("UPDATE agent_queue.tasks SET priority = 1 WHERE id = 1")
            .await
            .is_err()
    );
    drop(db);
    demo.cluster.restart(true).expect("the server again");
    let db = common::connect(&demo.target(ONCALL).config).await;
    eventually(
        &db,
        "all are back after a crash of the server",
        &format!("({CLIENTS}) >= 34"),
        40,
    )
    .await
    .expect("the clients");
    let deeds = demo.crew().deeds();
    assert_eq!(deeds.faults, 0, "{deeds:?}");
    let root = demo.cluster.root().to_owned();
    demo.stop().await;
    assert!(!root.exists(), "{} is still there", root.display());
}
