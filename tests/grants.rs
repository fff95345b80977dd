//! `jobtop grants`: what it prints runs, more than once, and each role may do what it must and no more.

mod common;
#[path = "profiles/setup.rs"]
mod setup;

use common::place::Place;
use jobtop::action::{Plan, Target, Verb, drive};
use jobtop::connect::{Fault, Session, Target as Server, session::Purpose};
use jobtop::feed::round::Round;
use jobtop::migrate::{NotifyChange, apply};
use jobtop::probe::{QueueProbes, State, tasks::Filter};
use jobtop::queue::action::{ActionSql, action_sql};
use jobtop::queue::check::parse;
use serde_json::Value;
use std::process::Command;
use std::sync::Arc;
use tokio_postgres::{Client, Config};

const HOUSE: &str = include_str!("profiles/house.sql");

fn run(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_jobtop"))
        .args(args)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .expect("ran");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    (code, text(&output.stdout), text(&output.stderr))
}

/// Where a role connects to this database.
fn url(config: &Config, user: &str) -> String {
    let cluster = common::cluster();
    let socket = cluster.socket_dir();
    let database = config.get_dbname().expect("a database");
    format!(
        "host={} port={} user={user} dbname={database}",
        socket.display(),
        cluster.port()
    )
}

fn printed(config: &Config, args: &[&str]) -> String {
    let url = url(config, common::cluster().superuser());
    let (code, out, err) = run(&[&["grants", &url], args].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    out
}

/// A login that is a member of a role.
async fn login(admin: &Client, config: &Config, name: &str, role: &str) -> (Client, Config) {
    let sql = format!("CREATE ROLE {name} LOGIN; GRANT {role} TO {name}");
    admin.batch_execute(&sql).await.expect("a login");
    let mut config = config.clone();
    config.user(name);
    (common::connect(&config).await, config)
}

/// Every statement is refused for lack of a right.
async fn refused(client: &Client, statements: &[&str]) {
    for sql in statements {
        let error = client.batch_execute(sql).await.expect_err(sql);
        let code = error.code().map(|c| c.code());
        assert_eq!(code, Some("42501"), "{sql}: {error}");
    }
}

const WRITES: [&str; 7] = [
    "UPDATE agent_jobs SET payload = '{}'",
    "UPDATE workflow_jobs SET payload = '{}'",
    "UPDATE tasks SET result = NULL",
    "UPDATE task_attempts SET error = NULL",
    "DELETE FROM agent_jobs",
    "DELETE FROM tasks",
    "TRUNCATE workflow_jobs",
];
const INSERTS: [&str; 3] = [
    "INSERT INTO agent_jobs (payload) VALUES ('{}')",
    "INSERT INTO workflow_jobs (job_type) VALUES ('x')",
    "INSERT INTO tasks (kind) VALUES ('x')",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_may_do_what_it_must_and_no_more() {
    let later = "ALTER TABLE tasks ADD COLUMN run_after timestamptz; UPDATE tasks SET run_after = now() + interval '1 h'";
    let (admin, _, config) = setup::open("grants", &format!("{HOUSE} {later}")).await;
    let script = printed(&config, &["--role-prefix", "grants house"]);
    for _ in 0..2 {
        admin.batch_execute(&script).await.expect(&script);
    }

    let (mona, as_mona) = login(&admin, &config, "mona", "\"grants house_monitor\"").await;
    refused(&mona, &WRITES).await;
    refused(&mona, &INSERTS).await;
    refused(
        &mona,
        &[
            "UPDATE agent_jobs SET status = status",
            "SELECT FROM tasks FOR UPDATE",
        ],
    )
    .await;
    let (code, out, err) = run(&[&url(&as_mona, "mona"), "--once", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let snapshot: Value = serde_json::from_str(&out).expect("JSON");
    let probes = snapshot["probes"].as_array().expect("probes");
    assert!(!probes.is_empty());
    for probe in probes {
        assert_eq!(probe["error"], Value::Null, "{probe}");
    }
    assert_eq!(snapshot["queues"].as_array().map(Vec::len), Some(3));
    assert!(!out.contains("cannot be read"), "{out}");
    assert_eq!(
        snapshot["connections"]["hidden"], 0,
        "{}",
        snapshot["connections"]
    );

    is_told_what_it_lacks(&as_mona, 6 + 5 + 5).await;

    let (opal, as_opal) = login(&admin, &config, "opal", "\"grants house_operator\"").await;
    refused(&opal, &WRITES).await;
    refused(&opal, &INSERTS).await;
    operates(&admin, &as_opal).await;
    // the server plans every action's statement for this role, also those of the verbs not tried here
    let (_, out, err) = run(&["doctor", &url(&as_opal, "opal"), "--json"]);
    assert!(out.contains("may requeue, "), "{out}{err}");
    assert!(!out.contains("may not "), "{out}");

    let (work, _) = login(&admin, &config, "work", "\"grants house_worker\"").await;
    refused(&work, &WRITES[..2]).await;
    refused(&work, &WRITES[4..]).await;
    for sql in INSERTS {
        work.batch_execute(sql).await.expect(sql);
    }
    for sql in [
        "UPDATE agent_jobs SET status = 'running', attempt = attempt + 1, started_at = now(), leased_until = now() + interval '1 min'
          WHERE id = (SELECT id FROM agent_jobs WHERE status = 'queued' LIMIT 1 FOR UPDATE SKIP LOCKED)",
        "UPDATE agent_jobs SET status = 'succeeded', finished_at = now(), leased_until = NULL, failure_reason = NULL",
        "UPDATE workflow_jobs SET status = 'failed', last_error = 'x', run_after = now(), attempt_count = 1, claimed_at = now()",
        "INSERT INTO task_attempts (task_id, attempt) SELECT id, 7 FROM tasks",
        "UPDATE task_attempts SET finished_at = now(), error = 'x', llm_cost_usd = 0.1, input_tokens = 1",
        "UPDATE tasks SET status = 'completed', completed_at = now(), locked_by = NULL, lease_expires_at = NULL, result = '{}', confidence = 1",
    ] {
        work.batch_execute(sql).await.expect(sql);
    }
}

/// What a login does to each of the three systems, verb by verb; nothing of it stays.
struct Hand {
    poll: Session,
    write: Session,
    probes: QueueProbes,
}

impl Hand {
    async fn of(config: &Config) -> Self {
        let server = Server::new(config.clone()).expect("a target");
        let open = |purpose| Session::open(&server, purpose, "jobtop");
        let poll = open(Purpose::Poll).await.expect("poll");
        let mut probes = QueueProbes::new(&jobtop::config::Config::default()).expect("profiles");
        probes.detect(&poll).await.expect("detect");
        Self {
            write: open(Purpose::Write).await.expect("write"),
            poll,
            probes,
        }
    }

    /// All tasks of a system as this login sees them.
    async fn targets(&self, system: &str) -> Vec<Target> {
        let filter = Filter {
            limit: 1000,
            ..Filter::default()
        };
        let now = setup::now(&self.poll).await;
        let tasks = self.probes.query(&self.poll, &filter, now).await;
        let tasks = tasks.expect("tasks").into_iter();
        tasks
            .filter(|t| t.key.system == system)
            .map(|t| Target::of(&t))
            .collect()
    }

    /// System, verb, and how many it changed or why it was refused, of every verb that the system knows.
    async fn tries(&self) -> Vec<(String, Verb, Result<usize, Fault>)> {
        let mut all = Vec::new();
        for instance in self.probes.instances() {
            let targets = self.targets(&instance.system).await;
            assert!(targets.iter().any(|t| t.state == State::Running));
            for verb in Verb::ALL {
                let action = action_sql(instance, verb, "").expect("an action");
                if let ActionSql::Refuse { .. } = action {
                    continue;
                }
                self.write.execute("BEGIN").await.expect("begun");
                let done = action
                    .run(&self.write, verb, &targets, Some("because"))
                    .await;
                self.write.execute("ROLLBACK").await.expect("undone");
                let done = done.map(|d| d.iter().filter(|o| o.outcome == "changed").count());
                all.push((instance.system.clone(), verb, done));
            }
        }
        all
    }
}

/// What the three systems can do at all, by a login's own rights.
async fn operates(admin: &Client, config: &Config) {
    let hand = Hand::of(config).await;
    let all = hand.tries().await;
    assert_eq!(all.len(), 6 + 5 + 5, "{all:?}");
    for (system, verb, done) in &all {
        let done = done
            .as_ref()
            .unwrap_or_else(|e| panic!("{verb:?} {system}: {e}"));
        assert!(*done > 0, "{verb:?} {system}");
    }
    // and each of these rights is needed for something
    let sql = "SELECT format('UPDATE (%I) ON %I', column_name, table_name) FROM information_schema.column_privileges
                WHERE grantee = 'grants house_operator' AND privilege_type = 'UPDATE' ORDER BY 1";
    let rights = admin.query(sql, &[]).await.expect("rights");
    assert!(rights.len() > 20, "{}", rights.len());
    for right in rights {
        let right: String = right.get(0);
        let run = |sql: String| async move { admin.batch_execute(&sql).await.expect(&sql) };
        run(format!("REVOKE {right} FROM \"grants house_operator\"")).await;
        let all = hand.tries().await;
        run(format!("GRANT {right} TO \"grants house_operator\"")).await;
        let missed = |done: &Result<usize, Fault>| done.as_ref().is_err_and(|f| f.is("42501"));
        assert!(all.iter().any(|(.., done)| missed(done)), "{right}");
    }
}

/// A monitor is told, verb by verb and the product's own way, what it lacks.
async fn is_told_what_it_lacks(config: &Config, tries: usize) {
    let hand = Hand::of(config).await;
    let target = Server::new(config.clone()).expect("a target");
    let name = config.get_dbname().expect("a database");
    let settings = jobtop::config::Config {
        journal_file: Some(common::journal_file(name)),
        ..Default::default()
    };
    let mut round = Round::new(target.clone(), Arc::new(settings)).expect("profiles");
    round.run_database(&hand.poll).await.expect("the database");
    round.run_queues(&hand.poll).await.expect("the queues");
    let mut told = 0;
    for (system, _) in round.systems() {
        let targets = hand.targets(&system).await;
        for verb in Verb::ALL {
            let plan = Plan::new(verb, targets.clone(), Some("because".into()));
            let Ok(mut run) = round.prepare(plan) else {
                continue;
            };
            drive(&mut run, &hand.write, &target, |_| {}).await;
            let outcome = run.outcome();
            let (_, words) = outcome.summary();
            assert_eq!(outcome.changed(), 0, "{words}");
            for part in ["permission denied for ", "(42501)", "jobtop grants"] {
                assert!(words.contains(part), "{verb:?} {system}: {words}");
            }
            told += 1;
        }
    }
    assert_eq!(told, tries);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_eight_verbs_of_the_reference_queue_take_its_operator_role() {
    let (_, config) = common::database("grants_eight");
    let mut admin = common::connect(&config).await;
    apply(&mut admin, "agent_queue", NotifyChange::Keep)
        .await
        .expect("migrated");
    for sql in [
        "SET search_path = agent_queue",
        "SELECT enqueue('q', 'k', max_attempts => 1) FROM generate_series(1, 3)",
        "SELECT fail(id, lease_token, 'x') FROM claim('q', 'w')",
        "SELECT claim('q', 'w', lease => '1 us')",
        "SELECT enqueue('q', 'k', run_after => now() + interval '1 h')",
        "SELECT park(ARRAY[enqueue('q', 'k')])",
    ] {
        admin.batch_execute(sql).await.expect(sql);
    }
    let (_, as_olga) = login(&admin, &config, "olga", "agent_queue_operator").await;
    let all = Hand::of(&as_olga).await.tries().await;
    assert_eq!(all.len(), Verb::ALL.len());
    for (_, verb, done) in all {
        assert!(done.as_ref().is_ok_and(|n| *n > 0), "{verb:?}: {done:?}");
    }
    let (_, as_mila) = login(&admin, &config, "mila", "agent_queue_monitor").await;
    is_told_what_it_lacks(&as_mila, Verb::ALL.len()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strange_names_stay_names_and_absent_columns_are_left_out() {
    let table = "(id bigserial PRIMARY KEY, payload jsonb, status text, priority int, run_after timestamptz, leased_until timestamptz, \
                 started_at timestamptz, created_at timestamptz, attempt int)";
    let schema = r#""it's $x$ ""odd""; {schema}\""#;
    let (admin, _, config) = setup::open(
        "odd",
        &format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.agent_jobs {table}; {HOUSE}"),
    )
    .await;
    let script = printed(
        &config,
        &[
            "--system",
            "agent_jobs",
            "--role-prefix",
            "o'dd \"$1\" {role}\\",
        ],
    );
    assert!(!script.contains("workflow_jobs"), "{script}");
    for _ in 0..2 {
        admin.batch_execute(&script).await.expect(&script);
    }
    let may = admin
        .query(
            "SELECT table_schema = 'public', column_name FROM information_schema.column_privileges \
              WHERE grantee = 'o''dd \"$1\" {role}\\_operator' AND privilege_type = 'UPDATE' ORDER BY 1, 2",
            &[],
        )
        .await
        .expect("rights");
    let columns = |public: bool| -> Vec<String> {
        let rows = may.iter().filter(|r| r.get::<_, bool>(0) == public);
        rows.map(|r| r.get::<_, String>(1)).collect()
    };
    assert_eq!(
        columns(false),
        [
            "attempt",
            "leased_until",
            "priority",
            "run_after",
            "started_at",
            "status"
        ]
    );
    assert_eq!(
        columns(true),
        [
            "attempt",
            "failure_reason",
            "finished_at",
            "leased_until",
            "max_attempts",
            "priority",
            "run_after",
            "started_at",
            "status"
        ]
    );
    // by default each schema has roles of its own
    let script = printed(&config, &["--system", "agent_jobs"]);
    assert!(
        script.contains("CREATE ROLE \"agent_jobs_monitor\""),
        "{script}"
    );
    assert!(
        script.contains("\"\"odd\"\"; {schema}\\\\_agent_jobs_monitor\""),
        "{script}"
    );
}

#[test]
fn the_reference_queue_has_its_roles_already() {
    let place = Place::new("grants");
    let (code, out, err) = run(&["grants", &place.url]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.lines().all(|l| l.starts_with("-- ")), "{out}");
    for role in ["monitor", "operator", "worker"] {
        let line = format!("-- GRANT \"agent_queue_{role}\" TO <your login>;");
        assert!(out.contains(&line), "{out}");
        let there = place.value(&format!("SELECT to_regrole('agent_queue_{role}')"));
        assert_eq!(there, format!("agent_queue_{role}"));
    }
    let (code, _, err) = run(&["grants", &place.url, "--system", "river"]);
    assert_eq!(code, 1);
    assert!(err.contains("found: agent_queue"), "{err}");
    let (code, _, err) = run(&["grants", &place.url, "--role-prefix", "pg_x"]);
    assert_eq!(code, 2);
    assert!(err.contains("pg_x"), "{err}");
}

#[test]
fn a_wrong_grant_is_refused_with_line_and_reason() {
    let good = include_str!("../src/queue/builtin/agent_jobs.toml");
    let right = "GRANT UPDATE ({finished_at:column}) ON {schema}.agent_jobs TO {role}";
    let line = good[..good.find(right).expect("a grant")]
        .matches('\n')
        .count()
        + 1;
    for (wrong, reason) in [
        (
            "GRANT UPDATE ({finished:column}) ON {schema}.agent_jobs TO {role}",
            "{finished} is neither",
        ),
        (
            "GRANT UPDATE ({finished_at:type}) ON {schema}.agent_jobs TO {role}",
            "only column can follow",
        ),
        (
            "GRANT UPDATE ({finished_at}) ON {schema}.agent_jobs TO {role}",
            "is an expression",
        ),
        (
            "GRANT UPDATE (status) ON {schema}.agent_jobs TO PUBLIC",
            "GRANT … TO {role}",
        ),
        (
            "REVOKE UPDATE ON {schema}.agent_jobs FROM x; GRANT y TO {role}",
            "without `;`",
        ),
        (
            "ALTER TABLE {schema}.agent_jobs OWNER TO {role}",
            "GRANT … TO {role}",
        ),
        (
            "GRANT SELECT ON {schema}.agent_jobs TO :lease",
            ":lease is not a parameter here",
        ),
        ("", "this SQL is empty"),
    ] {
        let refused = parse("mine.toml", &good.replacen(right, wrong, 1)).expect_err(wrong);
        assert!(refused.reason.contains(reason), "{wrong}: {refused}");
        assert_eq!(refused.line, Some(line), "{refused}");
    }
    let text = good.replace("[grants]", "[grants]\nowner = []");
    assert!(
        parse("mine.toml", &text)
            .expect_err("owner")
            .reason
            .contains("unknown field")
    );
}
