//! The acts, one test each: what must be true in the database, and how somebody on call ends it.

use jobtop::app::row::RowId;
use jobtop::demo::{Act, Scenario};
use jobtop::findings::{Finding, Severity};

use super::watch::{Look, Watch};
use super::{Case, STAGE, comes, goes};

const HERE: &str = "datname = current_database()";

/// Ends the session that a finding names.
async fn end_culprit(watch: &Watch, finding: &Finding) -> i32 {
    let Some(RowId::Session { pid, started_us }) = finding.culprit else {
        panic!("no session to end: {finding:#?}");
    };
    let sql = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {pid} \
         AND (extract(epoch FROM backend_start) * 1000000)::int8 = {started_us}"
    );
    assert_eq!(watch.value(&sql).await.as_deref(), Some("t"), "{sql}");
    pid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_in_transaction() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let trigger = format!(
        "EXISTS (SELECT FROM pg_stat_activity a WHERE {HERE} AND state = 'idle in transaction' \
         AND application_name LIKE 'agent-%' AND state_change <= clock_timestamp() - interval '5 s' \
         AND (SELECT count(*) FROM pg_locks l WHERE NOT granted AND a.pid = ANY (pg_blocking_pids(l.pid))) >= 3)"
    );
    let case = Case {
        act: Act::IdleInTransaction,
        rule: "idle-in-transaction",
        severity: Severity::Critical,
        probe: "activity",
        keeps_s: 0.0,
        counts: |_| true,
        trigger: trigger.clone(),
        within_s: 20.0,
        says: &["agent-", "inside a transaction", "holds 3 tasks", "blocks "],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    let finding = comes(&watch, &case).await;
    end_culprit(&watch, &finding).await;
    goes(&watch, &case, &format!("NOT {trigger}"), 5.0).await;
    watch.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migration_waits() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let waits =
        "pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND locktype = 'relation'";
    let case = Case {
        act: Act::MigrationWaits,
        rule: "table-lock",
        severity: Severity::Critical,
        probe: "activity",
        keeps_s: 0.0,
        counts: |_| true,
        trigger: format!(
            "EXISTS (SELECT FROM {waits} AND waitstart <= clock_timestamp() - interval '3 s')"
        ),
        within_s: 15.0,
        says: &[
            "nothing can touch tasks",
            "migrate waits",
            "behind report-2 (idle in tx",
        ],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    let finding = comes(&watch, &case).await;
    let root = end_culprit(&watch, &finding).await;
    goes(
        &watch,
        &case,
        &format!("NOT EXISTS (SELECT FROM {waits}) AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {root})"),
        5.0,
    )
    .await;
    watch.stop().await;
}

/// No lock waited for, and half of the cores free: else nobody can say that it is not the database.
fn postgres_idles(look: &Look) -> bool {
    let snapshot = &look.snapshot;
    let active: u32 = snapshot.waits.iter().map(|w| w.sessions).sum();
    let cores = snapshot.server.cores.unwrap_or(4).max(2);
    snapshot.blocked.is_empty() && active <= cores / 2
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provider_slow() {
    let _turn = STAGE.acquire().await.expect("a turn");
    // A queue whose every second task or more runs longer than 95 of 100 of its kind did.
    let trigger = "EXISTS (SELECT FROM agent_queue.tasks t JOIN \
        (SELECT t.kind, percentile_disc(0.95) WITHIN GROUP (ORDER BY a.finished_at - a.started_at) * 1.1 AS p95 \
           FROM agent_queue.task_attempts a JOIN agent_queue.tasks t ON t.id = a.task_id \
          WHERE a.finished_at BETWEEN now() - interval '1 h' AND now() - interval '10 min' GROUP BY 1 HAVING count(*) >= 50) u USING (kind) \
        WHERE t.status = 'processing' GROUP BY t.queue \
        HAVING count(*) >= 5 AND count(*) FILTER (WHERE clock_timestamp() - t.started_at > u.p95) >= 0.5 * count(*))";
    let case = Case {
        act: Act::ProviderSlow,
        rule: "slow-outside",
        severity: Severity::Warning,
        probe: "leases",
        keeps_s: 1.9,
        counts: postgres_idles,
        trigger: trigger.into(),
        within_s: 25.0,
        says: &[
            "run past their usual",
            "while Postgres is idle: look outside",
        ],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    comes(&watch, &case).await;
    // Nothing to be done in SQL: it is outside.
    watch
        .demo
        .crew()
        .world()
        .order(|orders| orders.slowdown = 1.0);
    goes(&watch, &case, &format!("NOT {trigger}"), 20.0).await;
    watch.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_killed() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let session = format!(
        "EXISTS (SELECT FROM pg_stat_activity WHERE {HERE} AND application_name = locked_by)"
    );
    let held = "agent_queue.tasks WHERE status = 'processing'";
    let mut case = Case {
        act: Act::WorkersKilled,
        rule: "owners-gone",
        severity: Severity::Critical,
        probe: "leases",
        keeps_s: 1.9,
        counts: |_| true,
        // For so long, and at another's look: see below.
        trigger: format!(
            "EXISTS (SELECT FROM {held} AND lease_expires_at > now() AND NOT {session})"
        ),
        within_s: 15.0,
        says: &["belong to 5 vanished workers", "first lease ends in"],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    let gone_at = watch.when("workers gone", &case.trigger, 15.0).await;
    case.trigger = format!("extract(epoch FROM clock_timestamp()) >= {gone_at} + 4.0");
    comes(&watch, &case).await;

    // Nobody is at these tasks any more, and nobody takes them back.
    let expired = format!(
        "(SELECT count(*) FROM {held} AND lease_expires_at < clock_timestamp() - interval '5 s')"
    );
    let case = Case {
        rule: "leases-expired",
        severity: Severity::Critical,
        trigger: format!("{expired} >= 1"),
        within_s: 25.0,
        says: &["expired", "gone)"],
        ..case
    };
    let finding = comes(&watch, &case).await;
    let Some(RowId::Task(task)) = &finding.culprit else {
        panic!("no task: {finding:#?}");
    };
    let is_expired = format!(
        "SELECT true FROM {held} AND lease_expires_at < now() AND id = {}",
        task.id
    );
    assert_eq!(watch.value(&is_expired).await.as_deref(), Some("t"));
    // Some leases may still be a second from their end.
    let requeue = format!(
        "SELECT count(*) FROM agent_queue.requeue(ARRAY(SELECT id FROM {held} AND lease_expires_at < clock_timestamp()))"
    );
    let mut by_hand = 0;
    while watch
        .value(&format!(
            "SELECT true WHERE EXISTS (SELECT FROM {held} AND NOT {session})"
        ))
        .await
        .is_some()
    {
        let n = watch.value(&requeue).await.expect("a number");
        by_hand += n.parse::<u32>().expect("a number");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert!(by_hand >= 5, "{by_hand} requeued");
    goes(&watch, &case, &format!("{expired} = 0"), 5.0).await;
    watch.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_storm() {
    let _turn = STAGE.acquire().await.expect("a turn");
    // Enough tries, enough of them failed, and far more than before.
    let fails = |factor: f64| {
        format!(
            "(SELECT sum(recent) >= 20 AND sum(recent * failed) / sum(recent)::float8 \
               >= {factor} * greatest(0.5, 5 * sum((1 - recent) * failed) / sum(1 - recent)::float8) \
               FROM (SELECT (a.outcome = 'failed')::int AS failed, (a.finished_at > now() - interval '10 min')::int AS recent \
                       FROM agent_queue.task_attempts a JOIN agent_queue.tasks t ON t.id = a.task_id \
                      WHERE t.kind = 'parse_scan' AND a.finished_at > now() - interval '1 h') x)"
        )
    };
    let case = Case {
        act: Act::RetryStorm,
        rule: "failing",
        severity: Severity::Warning,
        probe: "finished",
        keeps_s: 1.9,
        counts: |_| true,
        trigger: fails(1.03),
        within_s: 20.0,
        says: &["parse_scan failing since ", "TimeoutError"],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    let finding = comes(&watch, &case).await;
    let Some(RowId::Queue {
        kind: Some(kind), ..
    }) = &finding.culprit
    else {
        panic!("no kind: {finding:#?}");
    };
    let cancel = format!(
        "SELECT count(*) FROM agent_queue.cancel(ARRAY(SELECT id FROM agent_queue.tasks \
         WHERE kind = '{kind}' AND attempt > 0 AND status IN ('enqueued', 'processing')))"
    );
    assert_ne!(watch.value(&cancel).await.as_deref(), Some("0"));
    // The share falls as what was held back comes and succeeds.
    goes(&watch, &case, &format!("NOT {}", fails(0.97)), 45.0).await;
    watch.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cost_runaway() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let alarm = |now: &str| {
        format!(
            "EXISTS (SELECT FROM (SELECT t.tenant, \
               coalesce(sum(llm_cost + coalesce(compute_cost, 0)) FILTER (WHERE {now}), 0) AS now, \
               sum(llm_cost + coalesce(compute_cost, 0)) FILTER (WHERE reported_at <= now() - interval '10 min') * 1.2 AS usual \
              FROM agent_queue.usage u JOIN agent_queue.tasks t ON t.id = u.task_id \
             WHERE reported_at > now() - interval '1 h' GROUP BY 1) x WHERE tenant = 'hooli' AND "
        )
    };
    let recent = alarm("reported_at > now() - interval '10 min'");
    let case = Case {
        act: Act::CostRunaway,
        rule: "cost-runaway",
        severity: Severity::Warning,
        probe: "cost",
        keeps_s: 0.0,
        counts: |_| true,
        trigger: format!("{recent} now * 6 >= 1.1 * greatest(10, 5 * usual))"),
        within_s: 25.0,
        says: &["tenant hooli burns $", "/h, usual $"],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    let finding = comes(&watch, &case).await;
    let Some(RowId::Spender { by, name }) = &finding.culprit else {
        panic!("no spender: {finding:#?}");
    };
    let live = format!(
        "agent_queue.tasks WHERE {by} = '{name}' AND batch_id LIKE 'deep-research-%' AND status IN ('enqueued', 'processing')"
    );
    let cancel = format!("SELECT count(*) FROM agent_queue.cancel(ARRAY(SELECT id FROM {live}))");
    assert_ne!(watch.value(&cancel).await.as_deref(), Some("0"));
    watch
        .when(
            "cancels heard",
            &format!("NOT EXISTS (SELECT FROM {live})"),
            15.0,
        )
        .await;
    // Bills come up to 40 s late, and each is money; what comes after the end does not undo it.
    let moment = alarm("reported_at > now() - interval '40 s'");
    let over = format!("NOT {moment} now * 120 >= greatest(10, 5 * usual))");
    goes(&watch, &case, &over, 85.0).await;
    watch.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_snapshot() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let holds = format!(
        "pg_stat_activity WHERE {HERE} AND application_name = 'report-3' AND backend_xmin IS NOT NULL"
    );
    let case = Case {
        act: Act::OldSnapshot,
        rule: "xmin-held",
        severity: Severity::Warning,
        probe: "tables",
        keeps_s: 0.0,
        counts: |_| true,
        trigger: format!(
            "EXISTS (SELECT FROM {holds} AND xact_start <= clock_timestamp() - interval '15 s') \
             AND (SELECT n_dead_tup >= 1500 FROM pg_stat_user_tables WHERE relid = 'agent_queue.tasks'::regclass)"
        ),
        within_s: 40.0,
        says: &["claims read ", "report-3's snapshot", "stops vacuum"],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    let finding = comes(&watch, &case).await;
    end_culprit(&watch, &finding).await;
    goes(
        &watch,
        &case,
        &format!("NOT EXISTS (SELECT FROM {holds})"),
        5.0,
    )
    .await;
    watch.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_full() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let trigger = "(SELECT count(*) >= 8 AND count(*) FILTER (WHERE state = 'idle') = 0 FROM pg_stat_activity \
                    WHERE usename = 'demo_batch')";
    let case = Case {
        act: Act::BudgetFull,
        rule: "budget",
        severity: Severity::Warning,
        probe: "activity",
        keeps_s: 0.0,
        counts: |_| true,
        trigger: trigger.into(),
        within_s: 15.0,
        says: &["batch use 8 of 8, none idle"],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    let finding = comes(&watch, &case).await;
    assert_eq!(finding.culprit, Some(RowId::Budget("batch".into())));
    let one = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'demo_batch' \
               ORDER BY backend_start DESC LIMIT 1";
    assert_eq!(watch.value(one).await.as_deref(), Some("t"));
    goes(&watch, &case, &format!("NOT {trigger}"), 5.0).await;
    watch.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enqueuer_stopped() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let trigger = "(SELECT clock_timestamp() - max(at) > greatest(interval '20 s', 3 * max(at - before)) \
                      FROM (SELECT created_at AS at, lag(created_at) OVER (ORDER BY created_at) AS before \
                              FROM agent_queue.tasks WHERE queue = 'crawler') x)";
    let case = Case {
        act: Act::EnqueuerStopped,
        rule: "inflow-stopped",
        severity: Severity::Warning,
        probe: "queues",
        keeps_s: 0.0,
        counts: |_| true,
        trigger: trigger.into(),
        within_s: 60.0,
        says: &["crawler: last task in ", "longest usual gap "],
    };
    let watch = Watch::start(Scenario::Only(case.act)).await;
    comes(&watch, &case).await;
    // The person on call may not enqueue; whoever runs the crawl may.
    let owner = super::watch::client(&watch.demo.target).await;
    owner
        .simple_query("SELECT agent_queue.enqueue('crawler', 'fetch_page')")
        .await
        .expect("a task");
    goes(&watch, &case, &format!("NOT {trigger}"), 5.0).await;
    watch.stop().await;
}
