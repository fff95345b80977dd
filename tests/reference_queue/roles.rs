//! Each role may do what it must, and is refused what it must not.

use super::*;

async fn as_role(config: &Config, role: &str) -> Client {
    let client = session(config).await;
    run(&client, &format!("SET ROLE {SCHEMA}_{role}")).await;
    client
}

const WORKER_CALLS: [&str; 10] = [
    "enqueue('q', 'k')",
    "enqueue_many('[]')",
    "claim('q', 'w')",
    "started(1, 1)",
    "heartbeat(1, 1)",
    "complete(1, 1)",
    "fail(1, 1, 'x')",
    "cancelled(1, 1)",
    "report_usage('c', 1, 1, 'm', 1, 1)",
    "reclaim()",
];
const OPERATOR_CALLS: [&str; 9] = [
    "requeue('{1}')",
    "requeue_fresh('{1}')",
    "cancel('{1}')",
    "park('{1}')",
    "unpark('{1}')",
    "release('{1}')",
    "run_now('{1}')",
    "reprioritize('{1}', priority => 1)",
    "reclaim()",
];
const INTERNAL_CALLS: [&str; 9] = [
    "_free_orphans()",
    "_adjust('release', '{1}', NULL, NULL, NULL)",
    "_give_back(1, now())",
    "_operate('requeue', '{1}', NULL, NULL, NULL)",
    "_end_attempt(1, 1, 'failed', NULL, now())",
    "_enqueue_again(1, now(), now(), NULL, true)",
    "_finish(1, 'failed', now(), NULL)",
    "_why_not(1, 1)",
    "_gate('q')",
];
const TABLES: [&str; 7] = [
    "tasks",
    "task_attempts",
    "usage",
    "limits",
    "slots",
    "token_reservations",
    "operator_actions",
];

async fn all(client: &Client, calls: &[&str], allowed: bool) {
    for call in calls {
        let sql = format!("SELECT * FROM {call}");
        if allowed {
            run(client, &sql).await;
        } else {
            assert_eq!(refusal(client, &sql).await, "42501", "{sql}");
        }
    }
}

/// Which of these the role may do to every table of the queue.
async fn tables(client: &Client, allowed: &[&str]) {
    for table in TABLES {
        for (what, sql) in [
            ("select", format!("SELECT FROM {table} LIMIT 1")),
            ("insert", format!("INSERT INTO {table} DEFAULT VALUES")),
            ("delete", format!("DELETE FROM {table} WHERE false")),
            ("truncate", format!("TRUNCATE {table}")),
        ] {
            if (what, table) == ("insert", "operator_actions") && allowed.contains(&"select") {
                // The operator may, with the right columns; the monitor may not.
                let code = refusal(client, &sql).await;
                assert!(["23502", "42501"].contains(&code.as_str()), "{code}");
            } else if allowed.contains(&what) {
                run(client, &sql).await;
            } else {
                assert_eq!(refusal(client, &sql).await, "42501", "{sql}");
            }
        }
    }
    assert_eq!(
        refusal(client, "UPDATE tasks SET priority = 1 WHERE false").await,
        "42501"
    );
    assert_eq!(
        refusal(client, "SELECT FROM tasks FOR UPDATE").await,
        "42501"
    );
    assert_eq!(
        refusal(client, "UPDATE operator_actions SET who = 'x' WHERE false").await,
        "42501"
    );
    assert_eq!(refusal(client, "CREATE TABLE mine (x int)").await, "42501");
    assert_eq!(
        refusal(client, "SELECT nextval('tasks_id_seq')").await,
        "42501"
    );
}

#[tokio::test]
async fn a_worker_calls_the_workers_functions_and_touches_no_table() {
    let (_, config) = queue("worker").await;
    let client = as_role(&config, "worker").await;
    all(&client, &WORKER_CALLS, true).await;
    all(&client, &OPERATOR_CALLS[..8], false).await;
    all(&client, &INTERNAL_CALLS, false).await;
    tables(&client, &[]).await;
    // A whole working day.
    run(&client, "SELECT enqueue('day', 'k')").await;
    let (id, token) = claim_one(&client, "day").await;
    assert_eq!(
        one(&client, &format!("SELECT complete({id}, {token})")).await,
        "ok"
    );
}

#[tokio::test]
async fn an_operator_reads_everything_and_acts_through_functions() {
    let (_, config) = queue("operator").await;
    let client = as_role(&config, "operator").await;
    all(&client, &OPERATOR_CALLS, true).await;
    all(&client, &WORKER_CALLS[..9], false).await;
    all(&client, &INTERNAL_CALLS, false).await;
    tables(&client, &["select"]).await;
    assert_eq!(
        one(
            &client,
            "SELECT pg_has_role(current_user, 'pg_monitor', 'usage')"
        )
        .await,
        "t"
    );
}

#[tokio::test]
async fn a_monitor_reads_everything_and_writes_nothing() {
    let (_, config) = queue("monitor").await;
    let client = as_role(&config, "monitor").await;
    all(&client, &OPERATOR_CALLS, false).await;
    all(&client, &WORKER_CALLS, false).await;
    all(&client, &INTERNAL_CALLS, false).await;
    tables(&client, &["select"]).await;
    assert_eq!(
        refusal(&client, "INSERT INTO operator_actions DEFAULT VALUES").await,
        "42501"
    );
    assert_eq!(
        one(
            &client,
            "SELECT pg_has_role(current_user, 'pg_monitor', 'usage')"
        )
        .await,
        "t"
    );
    // Sessions of others are seen in full.
    let other = as_role(&config, "worker").await;
    run(&other, "SELECT 'a statement of somebody else'").await;
    assert_eq!(one(&client, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%statement of somebody else%' AND pid <> pg_backend_pid()").await, "1");
}

#[tokio::test]
async fn the_catalogue_grants_no_more_than_that() {
    let (client, _) = queue("granted").await;
    let name = |call: &&str| call[..call.find('(').unwrap()].to_owned();
    let none: Vec<String> = Vec::new();
    for (role, calls) in [
        ("worker", &WORKER_CALLS[..]),
        ("operator", &OPERATOR_CALLS[..]),
        ("monitor", &[]),
    ] {
        let mut allowed: Vec<String> = calls.iter().map(name).collect();
        allowed.sort();
        assert_eq!(
            lines(&client, &format!("SELECT proname FROM pg_proc WHERE pronamespace = 'agent_queue'::regnamespace AND has_function_privilege('agent_queue_{role}', oid, 'EXECUTE') ORDER BY proname COLLATE \"C\"")).await,
            allowed,
            "{role}"
        );
        // Of columns, too: none may be changed, and only the operator may write some of the journal's.
        let writable = if role == "operator" {
            "action action_id asked changed from_host ids outcomes reason skipped sql who"
        } else {
            "-"
        };
        assert_eq!(
            one(&client, &format!("SELECT string_agg(attname, ' ' ORDER BY attname) FROM pg_attribute WHERE attrelid = 'operator_actions'::regclass AND attnum > 0 AND has_column_privilege('agent_queue_{role}', attrelid, attnum, 'INSERT')")).await,
            writable,
            "{role}"
        );
        assert_eq!(
            lines(&client, &format!("SELECT relname FROM pg_class WHERE relnamespace = 'agent_queue'::regnamespace AND relkind = 'r'
                AND (has_any_column_privilege('agent_queue_{role}', oid, 'UPDATE') OR has_table_privilege('agent_queue_{role}', oid, 'DELETE, TRUNCATE, TRIGGER')
                     OR relname <> 'operator_actions' AND has_any_column_privilege('agent_queue_{role}', oid, 'INSERT'))")).await,
            none,
            "{role}"
        );
    }
}

#[tokio::test]
async fn others_may_do_nothing() {
    let (client, config) = queue("public").await;
    run(
        &client,
        "DO $$ BEGIN CREATE ROLE nobody_special; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    .await;
    run(
        &client,
        "GRANT USAGE ON SCHEMA agent_queue TO nobody_special",
    )
    .await;
    let client = session(&config).await;
    run(&client, "SET ROLE nobody_special").await;
    all(&client, &WORKER_CALLS, false).await;
    all(&client, &OPERATOR_CALLS, false).await;
    all(&client, &INTERNAL_CALLS, false).await;
    tables(&client, &[]).await;
}

#[tokio::test]
async fn nobody_can_put_a_table_or_function_in_front_of_ours() {
    let (client, config) = queue("path").await;
    run(&client, "CREATE SCHEMA evil; GRANT ALL ON SCHEMA evil TO agent_queue_worker; GRANT TEMP ON DATABASE path_1 TO agent_queue_worker".replace("path_1", &one(&client, "SELECT current_database()").await).as_str()).await;
    let worker = common::connect(&config).await;
    run(
        &worker,
        "SET ROLE agent_queue_worker;
         CREATE TEMP TABLE tasks (id bigint, status text); CREATE TEMP TABLE limits (x int);
         CREATE TABLE evil.tasks (x int);
         CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'reached'; END $$;
         CREATE FUNCTION pg_temp._why_not(bigint, bigint) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'reached'; END $$",
    )
    .await;
    for path in [
        "evil, pg_catalog, agent_queue",
        "pg_temp, evil, agent_queue",
        "\"$user\", evil, pg_catalog",
    ] {
        run(&worker, &format!("SET search_path = {path}")).await;
        run(&worker, "SELECT agent_queue.enqueue('q', 'k')").await;
        assert_eq!(
            one(&worker, "SELECT agent_queue.complete(999, 1)").await,
            "no such task"
        );
        assert_eq!(
            one(&worker, "SELECT count(*) FROM agent_queue.claim('q', 'w')").await,
            "1"
        );
    }
    // Every function that runs with its owner's rights has the path pinned, and no other schema in it.
    assert_eq!(
        lines(
            &client,
            "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'agent_queue'::regnamespace AND p.prosecdef
                AND NOT coalesce('search_path=agent_queue, pg_temp' = ANY (p.proconfig), false)"
        )
        .await,
        Vec::<String>::new()
    );
}
