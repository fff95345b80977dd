//! Somebody has a table of the queue for himself and goes for coffee, or takes our rights: jobtop cannot read the table,
//! and says who is in the way.

mod common;

use common::place::Place;
use common::pty::Pty;
use serde_json::Value;
use std::time::Duration;

/// A client that is called so, and its pid.
struct Somebody {
    client: tokio_postgres::Client,
    handle: tokio::runtime::Handle,
    pid: i32,
}

impl Somebody {
    fn new(place: &Place, application: &str) -> Self {
        let (client, runtime) = place.client();
        let name = format!("SET application_name = '{application}'");
        let pid = runtime.block_on(async {
            client.batch_execute(&name).await.expect("a name");
            let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
            row.expect("a pid").get(0)
        });
        Self {
            client,
            handle: runtime.handle().clone(),
            pid,
        }
    }

    /// Runs statements one by one, as psql does.
    fn run(&self, statements: &[&str]) {
        self.handle.block_on(async {
            for sql in statements {
                self.client.batch_execute(sql).await.expect(sql);
            }
        });
    }

    /// Runs one that waits; it ends by itself once it may.
    fn begin(self, sql: &'static str) {
        let client = self.client;
        self.handle.spawn(async move {
            client.batch_execute(sql).await.expect(sql);
        });
    }
}

/// The URL for a role that may read the queue and nothing else.
fn ordinary(place: &Place, role: &str) -> String {
    place.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT agent_queue_monitor TO {role}"
    ));
    url_of(place, role)
}

fn url_of(place: &Place, role: &str) -> String {
    let words = place.url.split(' ').map(|word| match word {
        word if word.starts_with("user=") => format!("user={role}"),
        word => word.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A screen's words, however they are wrapped.
fn words(screen: &str) -> String {
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `--once --json` says.
fn json(place: &Place, url: &str) -> Value {
    let (code, out, err) = place.run(&[url, "--once", "--json"]);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).expect("JSON")
}

/// The finding of a rule.
fn finding<'a>(json: &'a Value, rule: &str) -> Option<&'a Value> {
    let all = json["findings"].as_array().expect("a list");
    all.iter()
        .find(|f| f["rule"] == rule && !f["sentence"].as_str().unwrap_or("").starts_with("over: "))
}

const LOCK: &str = "LOCK agent_queue.tasks IN ACCESS EXCLUSIVE MODE";

#[test]
fn whoever_has_the_table_is_the_verdict_though_nobody_waits() {
    let place = Place::new("locked");
    let screen = place.watch(&[], 110, 36);
    screen.wait_text("all is well");
    screen.wait_text("2 workers");
    let psql = Somebody::new(&place, "psql");
    psql.run(&["BEGIN", LOCK]);
    let pid = psql.pid;
    screen.wait("the verdict", |s| {
        words(s).contains("has it in ACCESS EXCLUSIVE mode")
    });
    let shown = screen.wait_text(&format!("lock timeout: pid {pid} (psql) holds"));
    let said = words(&shown);
    for part in [
        "CRITICAL".into(),
        "nothing can touch tasks: psql (idle in tx ".into(),
        format!(
            "pid {pid}) has it in ACCESS EXCLUSIVE mode; pg_terminate_backend({pid}) ends it; psql: role "
        ),
        "last ran LOCK".into(),
        "database ✗ tasks locked".into(),
    ] {
        assert!(said.contains(&part), "no {part:?} on:\n{shown}");
    }
    psql.run(&["COMMIT"]);
    // tried again at once, however long the breakers were open
    let limit = Duration::from_secs(10);
    screen.wait_within(limit, "fresh data", |s| !s.contains("lock timeout"));
    screen.wait_within(limit, "another verdict", |s| {
        s.lines()
            .take(4)
            .all(|line| !line.contains("ACCESS EXCLUSIVE"))
    });
    screen.wait_text("database ✓");
}

#[test]
fn at_a_start_under_lock_the_check_names_the_holder() {
    let place = Place::new("locked");
    let psql = Somebody::new(&place, "psql");
    psql.run(&["BEGIN", LOCK]);
    let (code, out, err) = place.run(&[&place.url, "--check"]);
    let pid = psql.pid;
    assert_eq!(code, 3, "{out}{err}");
    let first = out.lines().next().expect("a verdict");
    assert!(
        first.starts_with("nothing can touch tasks: psql (idle in tx "),
        "{out}"
    );
    assert!(first.contains(&format!("pid {pid})")), "{out}");
    let unread = format!("never read: pid {pid} (psql) holds agent_queue.tasks: ");
    assert!(
        out.contains("CRITICAL  table-lock ") && out.contains(&unread),
        "{out}"
    );

    let told = json(&place, &place.url);
    let locks = told["exclusive"].as_array().expect("a list");
    assert_eq!(locks.len(), 1, "{locks:?}");
    assert_eq!(locks[0]["relation"], "agent_queue.tasks");
    assert_eq!(
        (&locks[0]["pid"], &locks[0]["granted"]),
        (&pid.into(), &true.into())
    );
    let found = finding(&told, "table-lock").expect("the finding");
    assert_eq!(found["severity"], "critical");
    assert_eq!(found["culprit"]["session"]["pid"], pid, "{found}");
    assert_eq!(told["where"]["database"]["mark"], "bad");

    let (code, out, err) = place.run(&["tasks", &place.url]);
    let names = format!("pid {pid} (psql) holds agent_queue.tasks");
    assert!(code == 1 && err.contains(&names), "{out}{err}");

    psql.run(&["COMMIT"]);
    let told = json(&place, &place.url);
    assert_eq!(told["exclusive"], serde_json::json!([]));
    assert_eq!(finding(&told, "table-lock"), None);
}

#[test]
fn an_action_that_waits_in_vain_names_the_holder() {
    let place = Place::new("locked");
    let psql = Somebody::new(&place, "psql");
    let names = format!("pid {} (psql) holds agent_queue.tasks", psql.pid);
    let mut screen = place.watch(&["--allow-writes"], 160, 45);
    screen.wait_text("2 workers");
    screen.keys("6/state:failed\r");
    screen.wait_text("1/");
    let mut asked = Pty::jobtop(&["cancel", "2", "3", "-d", &place.url], 160, 30);
    asked.wait_text("type 2 to go on");
    psql.run(&["BEGIN", LOCK]);

    // while the tasks are read
    let (code, out, err) = place.run(&["requeue", "1", "--dry-run", "-d", &place.url]);
    assert!(code == 1 && out.is_empty(), "{out}{err}");
    assert!(err.starts_with(&format!("jobtop: {names}: ")), "{err}");
    screen.keys("R");
    screen.wait("the dialog", |s| {
        words(s).contains(&names) && s.contains("ERROR requeue: ") && s.contains("55P03")
    });
    screen.keys("\x1b");

    // while they are written
    asked.keys("2\r");
    let told = asked.wait("the outcome", |s| s.contains("skipped 2"));
    assert!(words(&told).contains(&format!("2: {names}: ")), "{told}");
    assert_eq!(asked.exit_code(), 1);
    psql.run(&["COMMIT"]);
    let states = "SELECT string_agg(status, ',' ORDER BY id) FROM agent_queue.tasks";
    assert_eq!(place.value(states), "failed,processing,enqueued");
}

#[test]
fn an_alter_behind_a_long_reader_is_told_with_the_reader() {
    let place = Place::new("locked");
    let screen = place.watch(&[], 110, 36);
    screen.wait_text("all is well");
    screen.wait_text("2 workers");
    let report = Somebody::new(&place, "report");
    report.run(&["BEGIN", "SELECT count(*) FROM agent_queue.tasks"]);
    let migrate = Somebody::new(&place, "migrate");
    let waits = migrate.pid;
    migrate.begin("ALTER TABLE agent_queue.tasks ADD COLUMN note text");
    let holds = report.pid;
    screen.wait("the verdict", |s| {
        let said = words(s);
        said.contains("nothing can touch tasks: migrate waits ")
            && said.contains("behind report (idle in tx ")
            && said.contains(&format!("pid {holds})"))
    });
    screen.wait_text(&format!(
        "lock timeout: pid {waits} waits for agent_queue.tasks"
    ));

    // who may see no other session sees the locks
    place.sql(
        "CREATE ROLE reader_of_locks LOGIN; GRANT USAGE ON SCHEMA agent_queue TO reader_of_locks;
         GRANT SELECT ON ALL TABLES IN SCHEMA agent_queue TO reader_of_locks",
    );
    let plain = url_of(&place, "reader_of_locks");
    let told = json(&place, &plain);
    let found = finding(&told, "table-lock").expect("the finding");
    assert_eq!(found["severity"], "critical");
    let sentence = found["sentence"].as_str().expect("a sentence");
    assert!(
        sentence.starts_with(&format!("nothing can touch tasks: pid {waits} waits "))
            && sentence.contains(&format!(" behind report (pid {holds})"))
            && sentence.ends_with("the rest is hidden: GRANT pg_monitor TO reader_of_locks"),
        "{sentence}"
    );

    report.run(&["COMMIT"]);
    let limit = Duration::from_secs(10);
    screen.wait_within(limit, "fresh data", |s| !s.contains("lock timeout"));
    screen.wait_text("database ✓");
    assert_eq!(json(&place, &plain)["exclusive"], serde_json::json!([]));
}

#[test]
fn a_lock_on_an_index_or_a_partition_keeps_everybody_from_the_table() {
    let place = Place::new("locked");
    place.sql(
        "CREATE TABLE public.agent_jobs (id bigserial PRIMARY KEY, payload jsonb, status text NOT NULL, priority int NOT NULL DEFAULT 0,
           run_after timestamptz NOT NULL DEFAULT now(), leased_until timestamptz, started_at timestamptz, finished_at timestamptz,
           created_at timestamptz NOT NULL DEFAULT now(), attempt int NOT NULL DEFAULT 0, tenant text, failure_reason text) PARTITION BY HASH (id);
         CREATE TABLE public.agent_jobs_0 PARTITION OF public.agent_jobs FOR VALUES WITH (MODULUS 1, REMAINDER 0);",
    );
    let dba = Somebody::new(&place, "dba");
    dba.run(&[
        "BEGIN",
        "REINDEX INDEX agent_queue.tasks_pkey",
        "LOCK public.agent_jobs_0",
    ]);
    let told = json(&place, &place.url);
    let locks = told["exclusive"].as_array().expect("a list");
    let tables: Vec<_> = locks.iter().map(|l| &l["relation"]).collect();
    assert_eq!(tables, ["agent_queue.tasks", "public.agent_jobs"], "{told}");
    assert!(
        locks
            .iter()
            .all(|l| l["pid"] == dba.pid && l["granted"] == true)
    );
    let rule = |f: &&Value| f["rule"] == "table-lock";
    let all = told["findings"].as_array().expect("a list");
    assert_eq!(all.iter().filter(rule).count(), 2, "{all:?}");
}

#[test]
fn a_prepared_transaction_is_told_by_its_name() {
    let cluster = common::own_cluster(&[("max_prepared_transactions", "2")]);
    let config = common::database_on(&cluster, "prepared");
    let place = Place::on(&cluster, "prepared", config);
    place.sql(&format!("BEGIN; {LOCK}; PREPARE TRANSACTION 'two-phase-7'"));
    let (code, out, err) = place.run(&[&place.url, "--check"]);
    assert_eq!(code, 3, "{out}{err}");
    let says = "nothing can touch tasks: prepared transaction two-phase-7 has it in ACCESS EXCLUSIVE mode; \
                ROLLBACK PREPARED 'two-phase-7' ends it";
    assert_eq!(out.lines().next(), Some(says), "{out}");
    let waiter = Somebody::new(&place, "waiter");
    let waits = waiter.pid;
    waiter.begin("SELECT count(*) FROM agent_queue.tasks");
    let mut screen = place.watch(&[], 160, 45);
    screen.wait_text("has it in ACCESS EXCLUSIVE mode");
    screen.keys("2");
    let shown = screen.wait("the tree", |s| s.contains(&format!("└ {waits} waiter")));
    let root = shown
        .lines()
        .find(|l| l.contains("! prepared transaction two-phase-7"));
    assert!(root.is_some_and(|l| l.contains("no session")), "{shown}");
    screen.keys("\r");
    let shown = screen.wait_text("COMMIT PREPARED or ROLLBACK PREPARED ends it");
    assert!(!words(&shown).contains("pid 0"), "{shown}");
    place.sql("ROLLBACK PREPARED 'two-phase-7'");
    assert_eq!(json(&place, &place.url)["exclusive"], serde_json::json!([]));
}

#[test]
fn rights_taken_meanwhile_are_told_with_the_grant_and_come_back_at_once() {
    let place = Place::new("locked");
    let url = ordinary(&place, "loses_rights");
    let screen = common::pty::Pty::jobtop(&[&url], 110, 36);
    screen.wait_text("all is well");
    screen.wait_text("2 workers");
    place.sql("REVOKE agent_queue_monitor FROM loses_rights");
    let shown = screen.wait_text("may not read agent_queue.");
    let said = words(&shown);
    assert!(said.contains("not read for "), "{shown}");
    screen.wait_text("GRANT \"agent_queue_monitor\" TO \"loses_rights\"");
    screen.wait_text("queue ? cannot be read");
    let top = screen.screen();
    let top = top
        .lines()
        .find(|line| line.contains("CRITICAL") || line.contains("WARNING"));
    assert!(
        top.is_some_and(|line| line.contains("may not read")),
        "{top:?}"
    );
    place.sql("GRANT agent_queue_monitor TO loses_rights");
    // known within a refresh or two, not when the breakers close
    let limit = Duration::from_secs(10);
    screen.wait_within(limit, "data", |s| !s.contains("cannot be read"));
    screen.wait_within(limit, "another verdict", |s| !s.contains("may not read"));

    // a table that only part of the picture needs is worth a line, too
    place.sql(
        "REVOKE agent_queue_monitor FROM loses_rights; GRANT USAGE ON SCHEMA agent_queue TO loses_rights;
         GRANT SELECT ON ALL TABLES IN SCHEMA agent_queue TO loses_rights",
    );
    screen.wait_within(limit, "data", |s| !s.contains("may not read"));
    place.sql("REVOKE SELECT ON agent_queue.usage FROM loses_rights");
    screen.wait_text("may not read agent_queue.usage: ");
    let said = screen.screen();
    let line = said
        .lines()
        .find(|l| l.contains("may not read agent_queue.usage"));
    assert!(line.is_some_and(|l| l.contains("WARNING")), "{said}");

    // who never could may be meant so
    let told = json(&place, &url);
    assert_eq!(told["denied"][0]["tables"], serde_json::json!(["usage"]));
    assert_eq!(told["denied"][0]["taken"], false);
    let found = finding(&told, "unreadable").expect("the finding");
    assert_eq!(found["severity"], "info", "{found}");
}

#[test]
fn who_has_the_monitors_role_is_told_what_that_role_lacks() {
    let place = Place::new("locked");
    let url = ordinary(&place, "loses_rights_of_a_role");
    let denied = || json(&place, &url)["denied"].clone();
    for (taken, lacking) in [
        (
            "SELECT ON agent_queue.tasks",
            "SELECT ON \"agent_queue\".\"tasks\"",
        ),
        (
            "USAGE ON SCHEMA agent_queue",
            "USAGE ON SCHEMA \"agent_queue\"",
        ),
    ] {
        assert_eq!(denied(), serde_json::json!([]));
        place.sql(&format!("REVOKE {taken} FROM agent_queue_monitor"));
        let told = denied();
        let grants = told[0]["grants"].as_array().expect("grants");
        let grants: Vec<&str> = grants.iter().filter_map(|g| g.as_str()).collect();
        let grant = format!("GRANT {lacking} TO \"agent_queue_monitor\"");
        assert!(grants.contains(&&*grant), "{grant} in {told}");
        let (_, page, _) = place.run(&["doctor", &url]);
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&grant), "{page}");
        assert!(!told.to_string().contains("loses_rights"), "{told}");
        place.sql(&grants.join("; "));
    }
    assert_eq!(denied(), serde_json::json!([]));
}
