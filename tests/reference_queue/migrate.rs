//! The runner: any schema name, once, together, and never over something it does not know.

use jobtop::migrate::FILES;

use super::*;

fn names() -> Vec<String> {
    FILES.iter().map(|file| file.name.to_owned()).collect()
}

/// The sentence of a refusal, which must be one line.
async fn refused(config: &Config, schema: &str) -> String {
    let mut client = common::connect(config).await;
    let error = apply(&mut client, schema, NotifyChange::Keep)
        .await
        .expect_err("a refusal");
    let sentence = format!("{error:#}");
    assert!(!sentence.contains('\n'), "{sentence}");
    // The connection is as it was.
    assert_eq!(
        one(&client, "SELECT current_setting('search_path')").await,
        "\"$user\", public"
    );
    sentence
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let (_, config) = common::database("twice");
    let mut client = common::connect(&config).await;
    let report = apply(&mut client, "agent_queue", NotifyChange::Keep)
        .await
        .unwrap();
    assert_eq!(
        (report.applied, report.already, report.notify),
        (names(), vec![], false)
    );
    assert_eq!(report.warnings, Vec::<String>::new());
    let objects = "SELECT md5(string_agg(x, ',' ORDER BY x)) FROM (
        SELECT oid || relname FROM pg_class WHERE relnamespace = 'agent_queue'::regnamespace
        UNION ALL SELECT oid || proname || proacl::text FROM pg_proc WHERE pronamespace = 'agent_queue'::regnamespace) o (x)";
    let before = one(&client, objects).await;
    let report = apply(&mut client, "agent_queue", NotifyChange::Keep)
        .await
        .unwrap();
    assert_eq!((report.applied, report.already), (vec![], names()));
    assert_eq!(one(&client, objects).await, before);
    assert_eq!(
        one(
            &client,
            "SELECT current_setting('search_path'), current_setting('lock_timeout')"
        )
        .await,
        "\"$user\", public|0"
    );
    assert_eq!(
        number(
            &client,
            "SELECT count(*) FROM agent_queue.migrations WHERE length(checksum) = 64"
        )
        .await,
        FILES.len() as i64
    );
}

#[tokio::test]
async fn several_at_once_apply_each_file_once() {
    let (_, config) = common::database("together");
    let mut runs = Vec::new();
    for _ in 0..4 {
        let config = config.clone();
        runs.push(tokio::spawn(async move {
            let mut client = common::connect(&config).await;
            apply(&mut client, "agent_queue", NotifyChange::Install)
                .await
                .unwrap()
        }));
    }
    let mut applied = Vec::new();
    for run in runs {
        let report = run.await.unwrap();
        assert!(report.notify);
        applied.extend(report.applied);
    }
    applied.sort();
    assert_eq!(applied, names());
}

#[tokio::test]
async fn any_schema_name_works_and_queues_do_not_meet() {
    let (_, config) = common::database("names");
    let mut client = common::connect(&config).await;
    for schema in [
        "Agent Queue-2",
        "agent_queue",
        "it's \"odd\" \\",
        &"x".repeat(54),
    ] {
        apply(&mut client, schema, NotifyChange::Install)
            .await
            .unwrap_or_else(|e| panic!("{schema}: {e:#}"));
        let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
        // Called from anywhere, with no search_path at all, by a role that may call and nothing else.
        run(
            &client,
            &format!(
                "SET search_path = ''; SET ROLE \"{}_worker\"",
                schema.replace('"', "\"\"")
            ),
        )
        .await;
        assert_eq!(
            one(&client, &format!("SELECT {quoted}.enqueue('q', 'k')")).await,
            "1"
        );
        assert_eq!(
            one(
                &client,
                &format!(
                    "SELECT {quoted}.complete(c.id, c.lease_token) FROM {quoted}.claim('q', 'w') c"
                )
            )
            .await,
            "ok"
        );
        run(&client, "RESET ROLE; RESET search_path").await;
        assert_eq!(
            one(&client, &format!("SELECT status FROM {quoted}.tasks")).await,
            "completed"
        );
    }
    for (schema, part) in [
        ("", "empty"),
        ("pg_queue", "reserved"),
        (&*"x".repeat(55), "54"),
        ("a\nb", "control"),
    ] {
        let sentence = refused(&config, schema).await;
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[tokio::test]
async fn what_it_does_not_know_is_left_alone() {
    let (client, config) = queue("unknown").await;
    let ledger = "SELECT string_agg(m::text, ',' ORDER BY version) FROM migrations m";
    run(&client, "BEGIN; INSERT INTO migrations (version, name, checksum) VALUES (99, '0099_future.sql', 'x'); COMMIT").await;
    let before = one(&client, ledger).await;
    let sentence = refused(&config, SCHEMA).await;
    assert!(
        sentence.contains("0099_future.sql") && sentence.contains("upgrade jobtop"),
        "{sentence}"
    );
    assert_eq!(one(&client, ledger).await, before);

    run(&client, "DELETE FROM migrations WHERE version = 99; UPDATE migrations SET checksum = repeat('0', 64) WHERE version = 2").await;
    let sentence = refused(&config, SCHEMA).await;
    assert!(
        sentence.contains("0002_functions.sql")
            && sentence.contains("changed after it was applied"),
        "{sentence}"
    );

    // Somebody's own tables, or ours made with psql.
    run(
        &client,
        "CREATE SCHEMA theirs; CREATE TABLE theirs.tasks (id int)",
    )
    .await;
    let sentence = refused(&config, "theirs").await;
    assert!(
        sentence.contains("theirs") && sentence.contains("another schema"),
        "{sentence}"
    );
    assert_eq!(one(&client, "SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = 'theirs'::regnamespace").await, "tasks");
}

#[tokio::test]
async fn a_file_that_fails_leaves_the_ones_before_it_and_can_be_repeated() {
    let (_, config) = common::database("halfway");
    let mut client = common::connect(&config).await;
    // Something in the way of the second file only.
    run(&client, "CREATE SCHEMA agent_queue; CREATE FUNCTION agent_queue.backoff(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '1 s' $$").await;
    let sentence = refused(&config, SCHEMA).await;
    assert!(
        sentence
            .starts_with("0002_functions.sql was not applied: function \"backoff\" already exists"),
        "{sentence}"
    );
    assert_eq!(
        one(
            &client,
            "SELECT string_agg(name, ',') FROM agent_queue.migrations"
        )
        .await,
        "0001_tables.sql"
    );
    assert_eq!(
        one(&client, "SELECT to_regproc('agent_queue.claim') IS NULL").await,
        "t"
    );
    run(&client, "DROP FUNCTION agent_queue.backoff").await;
    let report = apply(&mut client, SCHEMA, NotifyChange::Keep)
        .await
        .unwrap();
    assert_eq!(
        (report.applied, report.already),
        (names()[1..].to_vec(), names()[..1].to_vec())
    );
}

#[tokio::test]
async fn the_files_work_by_hand_and_refuse_a_search_path_that_is_not_safe() {
    let (_, config) = common::database("by_hand");
    let client = common::connect(&config).await;
    for path in [
        "public",
        "agent_queue, public, pg_temp",
        "nowhere, pg_temp",
        "pg_temp, agent_queue",
    ] {
        run(
            &client,
            &format!("CREATE SCHEMA IF NOT EXISTS agent_queue; SET search_path = {path}"),
        )
        .await;
        // All but the roles: those name no object that a search_path finds.
        for file in FILES.iter().filter(|f| !f.name.contains("roles")) {
            let error = client.batch_execute(file.sql).await.expect_err(path);
            assert!(
                error
                    .as_db_error()
                    .unwrap()
                    .message()
                    .contains("SET search_path"),
                "{error:?}"
            );
        }
    }
    run(&client, "SET search_path = agent_queue, pg_temp").await;
    for file in FILES {
        client
            .batch_execute(file.sql)
            .await
            .unwrap_or_else(|e| panic!("{}: {e:?}", file.name));
    }
    assert_eq!(one(&client, "SELECT enqueue('q', 'k')").await, "1");
    let sentence = refused(&config, SCHEMA).await;
    assert!(sentence.contains("psql"), "{sentence}");
}

#[tokio::test]
async fn workers_go_on_in_their_sessions_while_the_schema_is_upgraded() {
    let (_, config) = common::database("upgrade");
    let client = common::connect(&config).await;
    run(
        &client,
        "CREATE SCHEMA agent_queue; SET search_path = agent_queue, pg_temp",
    )
    .await;
    let worker = session(&config).await;
    for (n, file) in FILES.iter().enumerate() {
        client
            .batch_execute(file.sql)
            .await
            .unwrap_or_else(|e| panic!("{}: {e:?}", file.name));
        if n == 4 {
            run(
                &client,
                "SELECT enqueue('q', 'k') FROM generate_series(1, 3)",
            )
            .await;
        }
        if n >= 4 {
            // The same session: its plans were made for the tables as they were.
            let (id, token) = claim_one(&worker, "q").await;
            assert_eq!(
                one(&worker, &format!("SELECT complete({id}, {token})")).await,
                "ok",
                "after {}",
                file.name
            );
            run(&worker, "SELECT reclaim()").await;
        }
    }
    assert_eq!(
        lines(
            &client,
            "SELECT status, attempts_before FROM tasks ORDER BY id"
        )
        .await,
        ["completed|0", "completed|0", "enqueued|0"],
        "what was there before has tried nothing before"
    );
}

#[tokio::test]
async fn without_the_roles_only_the_owner_may_adjust() {
    let (_, config) = common::database("no_roles");
    let client = common::connect(&config).await;
    run(
        &client,
        "CREATE SCHEMA roleless; SET search_path = roleless, pg_temp",
    )
    .await;
    for file in FILES.iter().filter(|f| !f.name.contains("roles")) {
        client
            .batch_execute(file.sql)
            .await
            .unwrap_or_else(|e| panic!("{}: {e:?}", file.name));
    }
    assert_eq!(
        lines(&client, "SELECT p.proname FROM pg_proc p, aclexplode(p.proacl) a WHERE p.pronamespace = 'roleless'::regnamespace AND a.grantee <> p.proowner").await,
        Vec::<String>::new()
    );
    assert_eq!(
        one(&client, "SELECT count(*) FROM pg_proc WHERE proacl IS NOT NULL AND pronamespace = 'roleless'::regnamespace").await,
        "6"
    );
}

#[tokio::test]
async fn an_owner_without_special_rights_is_told_what_is_missing() {
    let (client, config) = queue("owner").await;
    // The roles exist in the cluster by now, so that an ordinary owner of a database can install.
    let database = one(&client, "SELECT current_database()").await;
    run(
        &client,
        "DO $$ BEGIN CREATE ROLE plain_owner; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    .await;
    run(&client, &format!("DROP SCHEMA agent_queue CASCADE; GRANT CREATE ON DATABASE \"{database}\" TO plain_owner")).await;
    let mut plain = common::connect(&config).await;
    run(&plain, "SET ROLE plain_owner").await;
    let report = apply(&mut plain, SCHEMA, NotifyChange::Install)
        .await
        .unwrap();
    assert_eq!(report.applied, names());
    assert_eq!(
        report.warnings,
        Vec::<String>::new(),
        "nothing is missing: the roles have it already"
    );
    let worker = session(&config).await;
    run(&worker, "SET ROLE agent_queue_worker").await;
    assert_eq!(one(&worker, "SELECT enqueue('q', 'k')").await, "1");
    assert_eq!(claim_one(&worker, "q").await, (1, 1));
    // Where they do not, an administrator must make them.
    let error = apply(&mut plain, "agent_queue_elsewhere", NotifyChange::Keep)
        .await
        .expect_err("may not create roles");
    assert!(
        error
            .to_string()
            .contains("CREATE ROLE agent_queue_elsewhere_worker NOLOGIN"),
        "{error:#}"
    );
}

#[tokio::test]
async fn a_table_in_use_stops_the_upgrade_not_the_workers() {
    let (client, config) = queue("in_use").await;
    let mut admin = common::connect(&config).await;
    run(&client, "BEGIN; SELECT enqueue('q', 'k')").await;
    let error = apply(&mut admin, SCHEMA, NotifyChange::Install)
        .await
        .expect_err("the table is in use");
    assert!(
        error.to_string().contains("in use by a long transaction"),
        "{error:#}"
    );
    run(&client, "COMMIT").await;
    apply(&mut admin, SCHEMA, NotifyChange::Install)
        .await
        .expect("now it works");
}

#[tokio::test]
async fn a_session_that_reads_only_by_default_can_still_migrate() {
    let (_, config) = common::database("read_only");
    let mut client = common::connect(&config).await;
    run(&client, "SET default_transaction_read_only = on").await;
    let report = apply(&mut client, SCHEMA, NotifyChange::Keep)
        .await
        .unwrap();
    assert_eq!(report.applied, names());
}
