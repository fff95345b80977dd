//! `--once`, `--once --json`, `--check`, `jobtop tasks`, `config`, `migrate`, `seed`: what scripts rely on. On a quiet
//! database the figures are those of plain SQL.

mod common;

use common::place::Place;
use serde_json::Value;

fn json(place: &Place) -> Value {
    let (code, out, err) = place.run(&[&place.url, "--once", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    serde_json::from_str(&out).expect("JSON")
}

fn seeded(hint: &str) -> Place {
    let place = Place::new(hint);
    let (code, out, err) = place.run(&["seed", &place.url, "--force"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("tasks"), "{out}");
    place
}

/// A number of the JSON against a number of SQL.
fn same(what: &str, json: &Value, sql: &str) {
    let sql: f64 = sql
        .parse()
        .unwrap_or_else(|_| panic!("{what}: {sql} is no number"));
    let json = json
        .as_f64()
        .unwrap_or_else(|| panic!("{what}: {json} is no number"));
    assert!(
        (json - sql).abs() <= 1e-6 * sql.abs().max(1.0),
        "{what}: jobtop says {json}, SQL {sql}"
    );
}

#[test]
fn json_equals_named_queries_on_a_quiet_database() {
    let place = seeded("quiet");
    let before = place.value("SELECT extract(epoch FROM clock_timestamp())");
    let snapshot = json(&place);
    assert_eq!(snapshot["format"], 1);
    assert_eq!(
        snapshot["server"]["version"],
        place
            .value("SHOW server_version")
            .split(' ')
            .next()
            .expect("a word")
    );
    assert_eq!(snapshot["server"]["read_only"], true);
    assert_eq!(snapshot["server"]["in_recovery"], false);
    same(
        "database_oid",
        &snapshot["server"]["database_oid"],
        &place.value("SELECT oid FROM pg_database WHERE datname = current_database()"),
    );
    same(
        "max",
        &snapshot["connections"]["max"],
        &place.value("SHOW max_connections"),
    );
    same(
        "reserved",
        &snapshot["connections"]["reserved"],
        &place.value("SHOW superuser_reserved_connections"),
    );
    assert_eq!(snapshot["self"]["connections"], 1);
    let queues = snapshot["queues"].as_array().expect("queues");
    assert!(queues.len() >= 4, "{}", queues.len());
    for queue in queues {
        let name = queue["queue"].as_str().expect("a name");
        let count = |condition: &str| {
            place.value(&format!(
                "SELECT count(*) FROM agent_queue.tasks WHERE queue = '{name}' AND {condition}"
            ))
        };
        // what falls due between the two readings would be counted differently: the seed schedules by minutes
        let states = [
            ("running", "status = 'processing'"),
            ("ready", "status = 'enqueued' AND run_after <= now()"),
            (
                "scheduled",
                "status = 'enqueued' AND run_after > now() AND attempt = 0",
            ),
            (
                "retryable",
                "status = 'enqueued' AND run_after > now() AND attempt > 0",
            ),
        ];
        for (state, condition) in states {
            let Value::Object(_) = &queue["states"][state] else {
                assert_eq!(count(condition), "0", "{name} {state}");
                continue;
            };
            assert_eq!(queue["states"][state]["bound"], "exact");
            same(
                &format!("{name} {state}"),
                &queue["states"][state]["count"],
                &count(condition),
            );
        }
        let limit = place.value(&format!(
            "SELECT max_running FROM agent_queue.limits WHERE queue = '{name}'"
        ));
        match limit.as_str() {
            "" => assert_eq!(queue["limit"], Value::Null, "{name}"),
            limit => same("limit", &queue["limit"], limit),
        }
    }
    let cost = &snapshot["cost"];
    let since = format!(
        "u.reported_at >= to_timestamp({before}) - make_interval(secs => {})",
        cost["window_s"]
    );
    // the window slides while we look: a second of spend is the tolerance
    let usd: f64 = place
        .value(&format!("SELECT sum(coalesce(llm_cost, 0) + coalesce(compute_cost, 0)) FROM agent_queue.usage u WHERE {since}"))
        .parse()
        .expect("a sum");
    let said = cost["usd"].as_f64().expect("a number");
    assert!(
        (said - usd).abs() < usd * 0.02,
        "jobtop says {said}, SQL {usd}"
    );
    let running = place.value("SELECT count(*) FROM agent_queue.tasks WHERE status = 'processing' AND lease_expires_at < now()");
    assert_eq!(
        snapshot["leases"]
            .as_array()
            .map(Vec::len)
            .unwrap_or(0)
            .to_string(),
        running
    );
    let failures = &snapshot["failures"][0];
    assert_eq!(failures["unknown"], Value::Null);
    same(
        "failed within a day",
        &failures["read"]["count"],
        &place.value(&format!("SELECT count(*) FROM agent_queue.tasks WHERE status = 'failed' AND finished_at > to_timestamp({before}) - interval '24 h'")),
    );
    assert_ne!(failures["groups"].as_array().map(Vec::len), Some(0));
    for probe in snapshot["probes"].as_array().expect("probes") {
        assert_eq!(probe["error"], Value::Null, "{probe}");
    }
    place.wait_no_session();
}

#[test]
fn stage_medians_are_those_of_sql() {
    let place = seeded("medians");
    let snapshot = json(&place);
    let mut compared = 0;
    for stage in snapshot["stages"].as_array().expect("stages") {
        let (Some(p50), Some(n)) = (stage["p50_s"].as_f64(), stage["n"].as_u64()) else {
            assert!(stage["unknown"].is_string() || stage["n"] == 0, "{stage}");
            continue;
        };
        if !stage["kind"].is_null() || stage["stage"] != "run" || n < 50 {
            continue;
        }
        let queue = stage["queue"].as_str().expect("a name");
        let sql: f64 = place
            .value(&format!(
                "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM a.finished_at - a.started_at)) \
                   FROM agent_queue.task_attempts a JOIN agent_queue.tasks t ON t.id = a.task_id \
                  WHERE t.queue = '{queue}' AND a.finished_at > now() - interval '60 min'"
            ))
            .parse()
            .expect("a median");
        assert!(
            (p50 - sql).abs() <= sql * 0.2,
            "{queue}: jobtop says {p50}, SQL {sql}"
        );
        compared += 1;
    }
    assert!(compared >= 3, "{compared} queues were compared");
}

#[test]
fn tables_say_the_same_without_a_screen() {
    let place = seeded("tables");
    let (code, out, err) = place.run(&[&place.url, "--once"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for word in [
        "CONNECTIONS",
        "WAITS",
        "STAGES",
        "LEASES",
        "COST",
        "TASKS",
        "FINDINGS",
        "FAILURES",
        "parser",
    ] {
        assert!(out.contains(word), "no {word} in\n{out}");
    }
    assert!(
        out.lines()
            .all(|l| !l.contains('\x1b') && l == l.trim_end()),
        "{out}"
    );
}

#[test]
fn check_exits_with_3_when_something_is_critical() {
    let place = Place::new("check");
    let (code, out, _) = place.run(&[&place.url, "--check"]);
    assert_eq!(code, 0, "{out}");
    // a worker that waits inside a transaction with three others behind its row
    let (holder, runtime) = place.client();
    runtime.block_on(async {
        let hold = "BEGIN; UPDATE agent_queue.tasks SET priority = 1 WHERE id = 3";
        holder.batch_execute(hold).await.expect("held");
    });
    let waiters: Vec<_> = (0..3).map(|_| place.client().0).collect();
    for waiter in &waiters {
        let wait = waiter.batch_execute("UPDATE agent_queue.tasks SET priority = 2 WHERE id = 3");
        // sent, and not waited for
        let _ = runtime.block_on(async {
            tokio::time::timeout(std::time::Duration::from_millis(200), wait).await
        });
    }
    std::thread::sleep(std::time::Duration::from_secs(11));
    let (code, out, _) = place.run(&[&place.url, "--check"]);
    assert_eq!(code, 3, "{out}");
    assert!(
        out.contains("idle-in-transaction") && out.contains("blocks 3"),
        "{out}"
    );
    runtime.block_on(async { holder.batch_execute("ROLLBACK").await.expect("released") });
}

/// A tool that is started and ends says what the screen would: what must last is watched, or is no alarm.
#[test]
fn check_takes_no_duration_for_granted() {
    let place = Place::new("lasting");
    place.sql(
        "SELECT agent_queue.enqueue('never', 'claimed', max_attempts => 1) FROM generate_series(1, 12); \
         UPDATE agent_queue.tasks SET created_at = now() - interval '20 min', run_after = now() - interval '20 min' \
          WHERE queue = 'never'",
    );
    let (code, out, _) = place.run(&[&place.url, "--check"]);
    assert_eq!(code, 3, "what nobody ever claimed is old enough:\n{out}");
    assert!(out.contains("never: 12 due, oldest 20m"), "{out}");
    place.sql(
        "DELETE FROM agent_queue.tasks WHERE status = 'enqueued'; \
         SELECT agent_queue.enqueue('crowd', 'k') FROM generate_series(1, 3); \
         SELECT count(*) FROM agent_queue.claim('crowd', 'w', 3); \
         INSERT INTO agent_queue.limits (queue, max_running) VALUES ('crowd', 1)",
    );
    let (code, out, _) = place.run(&[&place.url, "--check"]);
    assert_eq!(code, 0, "{out}");
    let open = "not seen for long enough to tell: crowd runs 3, above its limit of 1";
    assert!(out.contains(open), "{out}");
}

#[test]
fn kinds_beyond_twenty_are_counted() {
    let place = Place::new("kinds");
    place.sql("SELECT agent_queue.enqueue('zoo', 'kind ' || n) FROM generate_series(1, 23) n");
    let queues = json(&place)["queues"].clone();
    let mut queues = queues.as_array().expect("queues").iter();
    let zoo = queues.find(|q| q["queue"] == "zoo").expect("the queue");
    assert_eq!(zoo["kinds"].as_array().map(Vec::len), Some(20));
    assert_eq!(zoo["more_kinds"], 3);
}

#[test]
fn tasks_are_listed_by_state_and_queue() {
    let place = Place::new("list");
    let (code, out, err) = place.run(&["tasks", &place.url, "--state", "failed", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let tasks: Value = serde_json::from_str(&out).expect("JSON");
    let tasks = tasks.as_array().expect("a list");
    assert_eq!(tasks.len(), 1);
    let task = &tasks[0];
    let expected = [
        ("system", "agent_queue"),
        ("schema", "agent_queue"),
        ("id", "1"),
        ("queue", "parser"),
        ("kind", "parse"),
        ("state", "failed"),
        ("native_state", "failed"),
        ("last_error", "ValueError: bad page"),
        ("tenant", "acme"),
    ];
    for (name, value) in expected {
        assert_eq!(task[name], value, "{name}");
    }
    assert_eq!(
        (task["attempt"].as_i64(), task["max_attempts"].as_i64()),
        (Some(1), Some(1))
    );
    for name in ["created_at", "eligible_at", "claimed_at", "finished_at"] {
        let time = task[name].as_str().unwrap_or_else(|| panic!("no {name}"));
        chrono::DateTime::parse_from_rfc3339(time).expect(name);
    }
    let (code, out, _) = place.run(&["tasks", &place.url, "--limit", "2"]);
    assert_eq!(code, 0);
    assert_eq!(out.lines().count(), 3, "a heading and two rows:\n{out}");
    let (code, _, err) = place.run(&["tasks", &place.url, "--state", "finished"]);
    assert_eq!(code, 2);
    assert!(
        err.contains("succeeded") && err.lines().count() == 1,
        "{err}"
    );
}

#[test]
fn a_profile_that_is_wrong_is_a_matter_of_usage_like_the_configuration() {
    let place = Place::new("profiles");
    let directory = std::env::temp_dir().join(format!("jobtop-profiles-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let (profile, file) = (directory.join("mine.toml"), directory.join("config"));
    std::fs::write(&profile, "system = 1\n").expect("written");
    std::fs::write(&file, format!("profiles = [{directory:?}]\n")).expect("written");
    let file = file.display().to_string();
    for args in [
        &["--once"][..],
        &["--check"],
        &["tasks"],
        &["doctor"],
        &["grants"],
    ] {
        let (code, out, err) = place.run(&[args, &[&place.url, "--config", &file]].concat());
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        let says = format!(
            "jobtop: the queue profile {} is wrong in line 1: ",
            profile.display()
        );
        assert!(err.starts_with(&says), "{args:?}: {err}");
    }
    let requeue = [
        "requeue",
        "1",
        "--dry-run",
        "-d",
        &place.url,
        "--config",
        &file,
    ];
    let (code, _, err) = place.run(&requeue);
    assert_eq!(code, 2, "{err}");
    let mut screen = place.watch(&["--config", &file], 80, 24);
    assert_eq!(screen.exit_code(), 2);
    std::fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn settings_are_printed_and_read_back() {
    let place = Place::new("settings");
    let file = std::env::temp_dir().join(format!("jobtop-test-{}.toml", std::process::id()));
    let path = file.to_string_lossy().into_owned();
    std::fs::write(
        &file,
        "interval = 2.5\n[[budgets]]\nname = \"agents\"\nlimit = 4\napplications = [\"a*\"]\n",
    )
    .expect("written");
    let (code, printed, _) = place.run(&["config", "--config", &path]);
    assert_eq!(code, 0);
    assert!(
        printed.contains("interval = 2.5") && printed.contains("agents"),
        "{printed}"
    );
    std::fs::write(&file, &printed).expect("written");
    let (_, again, _) = place.run(&["config", "--config", &path]);
    assert_eq!(again, printed);
    let (_, before, _) = place.run(&["--config", &path, "config"]);
    assert_eq!(before, printed, "named before the command");
    std::fs::write(&file, "intervall = 2\n").expect("written");
    let (code, _, err) = place.run(&["config", "--config", &path]);
    assert_eq!(code, 2);
    assert!(err.contains("intervall") && err.contains(&path), "{err}");
    std::fs::remove_file(&file).expect("removed");
}

#[test]
fn migrate_may_be_repeated_and_the_trigger_comes_and_goes() {
    let place = Place::new("again");
    let trigger = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'agent_queue.tasks'::regclass AND tgname LIKE '%notify%'";
    let (code, out, err) = place.run(&["migrate", &place.url]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("nothing to apply"), "{out}");
    assert_ne!(place.value(trigger), "0");
    let (code, _, err) = place.run(&["migrate", &place.url, "--remove-notify"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(place.value(trigger), "0");
    let (code, _, _) = place.run(&["migrate", &place.url, "--with-notify", "--remove-notify"]);
    assert_eq!(code, 2);
}

#[test]
fn what_cannot_be_seen_is_not_called_fine() {
    let place = Place::new("blind");
    let (_, config) = common::database("empty");
    let database = config.get_dbname().expect("a name").to_string();
    let empty = place
        .url
        .replace(place.url.rsplit('=').next().expect("a name"), &database);
    let (code, _, err) = place.run(&[&empty, "--check"]);
    assert_eq!(code, 1);
    assert!(err.contains("no queue found"), "{err}");
    let none = ["tasks", &empty, "--json"];
    let requeue = ["requeue", "--state", "failed", "--dry-run", "-d", &empty];
    for args in [&none[..], &requeue[..]] {
        let (code, out, err) = place.run(args);
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}");
        assert_eq!(err, "jobtop: no queue found in this database\n", "{args:?}");
    }
    place.sql("DROP ROLE IF EXISTS blind_one; CREATE ROLE blind_one LOGIN");
    let stranger = format!("{} user=blind_one", place.url);
    let (code, out, err) = place.run(&[&stranger, "--check"]);
    assert_eq!(code, 1, "{out}");
    assert!(err.contains("permission denied"), "{err}");
    let (code, out, _) = place.run(&[&stranger, "--once"]);
    assert_eq!(code, 0);
    assert!(out.contains("not read"), "{out}");
    assert!(
        !out.contains("none expired") && !out.contains("$0.00"),
        "unknown is not 0:\n{out}"
    );
    place.sql("DROP ROLE blind_one");
}

#[test]
fn a_queue_that_lacks_a_column_is_not_called_missing() {
    let place = Place::new("lacks");
    place.sql("ALTER TABLE agent_queue.tasks RENAME COLUMN kind TO kind2");
    let (code, out, err) = place.run(&[&place.url, "--check"]);
    assert_eq!(code, 1, "{out}");
    let why = "agent_queue in schema agent_queue: column kind of tasks is not there";
    assert!(err.contains(why), "{err}");
    let next = format!("{why}, never read: restore it");
    assert!(out.contains(&next), "{out}");
    let (_, out, _) = place.run(&[&place.url, "--once"]);
    assert!(out.contains(&format!("not read: {why}")), "{out}");
    assert!(!out.contains("no queue found"), "{out}");
    let half = &json(&place)["half_there"][0];
    assert_eq!(half["missing"][0], "column kind of tasks");
}

#[test]
fn a_queue_without_its_table_has_no_tasks_to_list_or_change() {
    let place = Place::new("half");
    place.sql("ALTER TABLE agent_queue.tasks RENAME TO old_tasks");
    let tasks = ["tasks", &place.url, "--state", "failed"];
    let requeue = ["requeue", "1", "--dry-run", "-d", &place.url];
    let grants = ["grants", &place.url];
    for args in [&tasks[..], &requeue, &grants] {
        let (code, out, err) = place.run(args);
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}");
        let why = "agent_queue in schema agent_queue: table tasks is not there; restore it";
        assert!(err.contains(why), "{args:?}: {err}");
    }
    // a queue that is whole and has none is another matter
    place.sql("ALTER TABLE agent_queue.old_tasks RENAME TO tasks");
    let (code, out, err) = place.run(&["tasks", &place.url, "--state", "retryable"]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "no such task\n", "")
    );
}

/// A role that may only connect: which right is missing, and the statement that gives it.
#[test]
fn who_may_not_is_told_what_would_help_and_nothing_else() {
    let place = Place::new("rights");
    place.sql(
        "DROP ROLE IF EXISTS \"no rights\"; CREATE ROLE \"no rights\" LOGIN; CREATE SCHEMA theirs",
    );
    let database = place.value("SELECT current_database()");
    let stranger = format!("{} user='no rights'", place.url);
    let refused = |args: &[&str]| {
        let (code, out, err) = place.run(args);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        err
    };
    let err = refused(&["migrate", &stranger, "--schema", "mine"]);
    let grant = format!("GRANT CREATE ON DATABASE {database} TO \"no rights\"");
    assert!(err.contains(&grant), "{err}");
    let err = refused(&["migrate", &stranger, "--schema", "theirs"]);
    assert!(
        err.contains("GRANT USAGE, CREATE ON SCHEMA \"theirs\" TO \"no rights\""),
        "{err}"
    );
    let err = refused(&["work", &stranger]);
    assert!(
        err.contains("GRANT \"agent_queue_worker\" TO \"no rights\""),
        "{err}"
    );
    let err = refused(&["work", &stranger, "--schema", "theirs"]);
    assert!(err.contains("may not claim"), "{err}");
    let err = refused(&["work", &place.url, "--schema", "theirs"]);
    assert!(err.contains("run jobtop migrate first"), "{err}");
    refused(&["seed", &stranger]);
    place.sql(&format!(
        "GRANT CREATE ON DATABASE {database} TO \"no rights\""
    ));
    let (code, _, err) = place.run(&["migrate", &stranger, "--schema", "mine"]);
    assert!(
        code == 0 || !err.contains("search_path") && !err.contains("GRANT CREATE"),
        "{err}"
    );
    for command in ["work", "seed"] {
        let (code, out, err) = place.run(&[command, "host=/nonexistent dbname=d user=u"]);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
    }
    place.sql("DROP OWNED BY \"no rights\" CASCADE; DROP ROLE \"no rights\"");
}

/// Every command that prints: what nobody can read was not written, and is no success.
#[test]
fn nothing_is_printed_into_the_void_in_silence() {
    let place = Place::new("void");
    let url = place.url.as_str();
    let commands: [&[&str]; 14] = [
        &["--help"],
        &["--version"],
        &["tasks", "--help"],
        &["config"],
        &["journal"],
        &["journal", "--json"],
        &["demo", "--list"],
        &["grants", url],
        &["migrate", url],
        &["tasks", url],
        &["tasks", url, "--json"],
        &["requeue", "-d", url, "--state", "failed", "--dry-run"],
        &["doctor", url],
        &[url, "--once", "--json"],
    ];
    for args in commands {
        let (code, _, err) = place.run_to(">/dev/full", args);
        let end = "cannot write to stdout: No space left on device (os error 28)\n";
        assert!(
            code == 1 && err.ends_with(end) && err.lines().count() == 1,
            "{args:?}: {code} {err}"
        );
        for to in ["| true", ">/dev/null"] {
            let (code, _, err) = place.run_to(to, args);
            assert_eq!((code, err.as_str()), (0, ""), "{args:?} {to}");
        }
    }
    for args in [[url, "--once"], [url, "--check"]] {
        let (code, _, err) = place.run_to(">/dev/full", &args);
        assert!(
            code == 1 && err.contains("cannot write to stdout"),
            "{args:?}: {code} {err}"
        );
    }
}

/// What was done is said where it can be.
#[test]
fn an_action_whose_report_cannot_be_written_says_so_on_stderr() {
    let place = Place::new("unheard");
    let requeue = ["requeue", "1", "--yes", "--json", "-d", &place.url];
    let state = "SELECT status FROM agent_queue.tasks WHERE id = 1";
    let (code, _, err) = place.run_to(">/dev/full", &requeue);
    assert_eq!(
        (code, place.value(state).as_str()),
        (1, "enqueued"),
        "{err}"
    );
    let words = "requeue: asked 1, 1 changed: cannot write to stdout: No space";
    assert!(err.contains(words) && err.lines().count() == 1, "{err}");
    let (code, _, err) = place.run_to(">/dev/full", &["migrate", &place.url]);
    assert_eq!(code, 1);
    let words =
        "nothing to apply; schema agent_queue: change trigger installed: cannot write to stdout";
    assert!(err.contains(words), "{err}");
}
