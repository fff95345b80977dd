//! What queue tools are known to do wrong, each shown not to happen here. Those that are shown elsewhere:
//!
//! * completion by id alone: `a_zombie_changes_nothing_after_its_task_was_released` (beside this file, and by chance in
//!   `stress`);
//! * the target changed under the dialog: `a_row_that_changed_meanwhile_is_reported_not_overwritten` (faults);
//! * one statement for all: `twenty_thousand_go_in_chunks_of_a_hundred_in_key_order`;
//! * one locked row holds all up: `a_row_locked_by_somebody_holds_nothing_up_and_is_tried_again`;
//! * the connection lost between COMMIT and its answer:
//!   `what_became_of_a_commit_without_an_answer_is_asked_of_the_server`, and the crash below;
//! * intent reported as done: `nobody_is_told_what_is_not_so_while_all_race_and_the_server_crashes` (stress).

use super::common::hogs::Hogs;
use super::common::place::Place as Screen;
use super::common::pty::Pty;
use super::proxy::{Next, Proxy};
use super::{JOURNAL, Place, common};
use jobtop::action::{Choice, Verb, drive};
use jobtop::connect::Session;
use jobtop::connect::session::Purpose;
use jobtop::demo::cluster::{Cluster, Options};
use jobtop::migrate::{NotifyChange, apply};
use jobtop::probe::tasks::TaskKey;
use std::sync::Arc;
use std::time::Duration;

/// The state is checked in a sub-select that does not lock: a worker's claim or end that commits meanwhile is
/// overwritten.
#[tokio::test]
async fn a_claim_or_an_end_that_commits_while_the_operator_acts_is_not_overwritten() {
    let place = Place::with("subselect", 0).await;
    let house = include_str!("../profiles/house.sql");
    let sql = format!("SET search_path = public; {house} SET search_path = agent_queue;
        SELECT enqueue('q', 'k') FROM generate_series(1, 2); SELECT started(id, lease_token) FROM claim('q', 'w1')");
    place.client.batch_execute(&sql).await.expect("tasks");
    let place = Place::to(place.client, place.config.clone(), place.name, place.config).await;
    let house = |id: &str| {
        Choice::These(vec![TaskKey {
            system: "agent_jobs".into(),
            schema: "public".into(),
            queue: String::new(),
            id: id.into(),
        }])
    };
    for (verb, choice, theirs, now) in [
        (
            Verb::Cancel,
            Place::these(&[2]),
            "SELECT claim('q', 'w2')",
            "SELECT status FROM tasks WHERE id = 2 AND cancel_requested_at IS NULL",
        ),
        (
            Verb::Cancel,
            Place::these(&[1]),
            "SELECT complete(1, 1)",
            "SELECT status FROM tasks WHERE id = 1 AND cancel_requested_at IS NULL",
        ),
        (
            Verb::Cancel,
            house("1"),
            "UPDATE public.agent_jobs SET status = 'running', attempt = attempt + 1 WHERE id = 1",
            "SELECT status FROM public.agent_jobs WHERE id = 1",
        ),
        (
            Verb::Requeue,
            house("5"),
            "UPDATE public.agent_jobs SET status = 'succeeded', leased_until = NULL WHERE id = 5",
            "SELECT status FROM public.agent_jobs WHERE id = 5",
        ),
    ] {
        let plan = place.plan(verb, choice).await;
        assert_eq!(plan.targets.len(), 1, "{theirs}");
        let mut run = place.run(plan);
        let mut worker = common::connect(&place.config).await;
        let claim = worker.transaction().await.expect("begun");
        let path = "SET LOCAL search_path = agent_queue, pg_temp";
        claim.batch_execute(path).await.expect(path);
        claim.batch_execute(theirs).await.expect(theirs);
        let db = Session::open(&place.target, Purpose::Write, "jobtop write");
        let db = db.await.expect("a session");
        run.step(&db, &place.target).await;
        assert_eq!(run.progress().locked, 1, "{theirs}");
        claim.commit().await.expect("the worker is first");
        drive(&mut run, &db, &place.target, |_| {}).await;
        let outcome = run.outcome();
        let told = [(false, "changed since it was seen".to_string(), 1)];
        assert_eq!(outcome.counts(), told, "{theirs}");
        let now = place.value(now).await;
        let expected = match theirs {
            t if t.contains("claim(") => "processing",
            t if t.contains("complete(") => "completed",
            t if t.contains("running") => "running",
            _ => "succeeded",
        };
        assert_eq!(now, expected);
    }
}

/// `pg_xact_status` is asked after a crash: the server has forgotten the transaction, and has given its number to another,
/// which was committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_a_crash_has_undone_is_not_taken_for_the_next_of_its_number() {
    let settings = [
        ("synchronous_commit", "on"),
        // nothing but a commit may write the log to the disk
        ("wal_writer_delay", "10s"),
        ("autovacuum", "off"),
        ("bgwriter_lru_maxpages", "0"),
    ];
    let cluster = Arc::new(
        Cluster::start(&Options {
            settings: settings.map(|(n, v)| (n.into(), v.into())).to_vec(),
            ..common::options()
        })
        .expect("a private Postgres"),
    );
    let config = cluster.config();
    let mut client = common::connect(&config).await;
    apply(&mut client, "agent_queue", NotifyChange::Keep)
        .await
        .expect("migrated");
    let house = include_str!("../profiles/house.sql");
    let sql = format!(
        "SET search_path = public; {house} SET search_path = agent_queue; SELECT park(ARRAY[enqueue('q', 'k')]);
         CREATE TABLE other (n int)"
    );
    client.batch_execute(&sql).await.expect("tasks");
    let proxy = Proxy::to(&cluster.socket_dir(), cluster.port()).await;
    let mut through = tokio_postgres::Config::new();
    through
        .host("127.0.0.1")
        .port(proxy.port)
        .user(cluster.superuser())
        .dbname("postgres");
    let house = Choice::These(vec![TaskKey {
        system: "agent_jobs".into(),
        schema: "public".into(),
        queue: String::new(),
        id: "1".into(),
    }]);
    // where the queue has a journal it tells; else it is not known
    for (verb, choice, words) in [
        (Verb::Unpark, Place::these(&[1]), "was rolled back"),
        (Verb::Cancel, house, "it is not known whether transaction"),
    ] {
        let client = common::connect(&config).await;
        let name = format!("crash_{}", verb.name());
        common::journal(&name);
        let place = Place::to(client, config.clone(), name, through.clone()).await;
        let plan = place.plan(verb, choice).await;
        assert_eq!(plan.targets.len(), 1);
        let mut run = place.run(plan);
        let db = Session::open(&place.target, Purpose::Write, "jobtop write");
        let db = db.await.expect("a session");
        proxy.next(Next::Kept);
        let (target, pid) = (place.target.clone(), db.pid);
        let acting = tokio::spawn(async move {
            run.step(&db, &target).await;
            run.outcome()
        });
        // all is done but the commit, which does not arrive
        let last = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND state = 'idle in transaction'
                AND query !~ 'BEGIN|pg_current_xact_id' AND xact_start < clock_timestamp() - interval '300 ms'"
        );
        while place.value(&last).await == "0" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (again, mut config) = (cluster.clone(), config.clone());
        let restart = tokio::task::spawn_blocking(move || again.restart(true));
        restart.await.expect("a thread").expect("a restart");
        config.application_name("another");
        let other = common::connect(&config).await;
        for n in 0..20 {
            let sql = format!("INSERT INTO agent_queue.other VALUES ({n})");
            other.batch_execute(&sql).await.expect("committed");
        }
        proxy.next(Next::Passes);
        let outcome = acting.await.expect("it ends");
        place.tells(&outcome);
        let (_, told) = outcome.summary();
        assert_eq!(outcome.changed(), 0, "{told}");
        assert!(told.contains(words), "{told}");
        let left = "SELECT (SELECT status FROM agent_queue.tasks WHERE id = 1) || ' ' || (SELECT status FROM public.agent_jobs WHERE id = 1)";
        let row = other.query_one(left, &[]).await.expect(left);
        assert_eq!(row.get::<_, &str>(0), "parked queued");
    }
}

/// A chunk that runs into a timeout is tried again in halves, and only what is still too slow alone is given up.
#[tokio::test]
async fn a_chunk_that_times_out_halves_itself() {
    // a lock on the table, let go after two tries
    let place = Place::with("lock_timeout", 4).await;
    let mut other = common::connect(&place.config).await;
    let held = other.transaction().await.expect("begun");
    let lock = "LOCK TABLE agent_queue.tasks IN SHARE MODE";
    held.batch_execute(lock).await.expect(lock);
    let mut run = place.run(place.plan(Verb::Requeue, Place::failed()).await);
    let db = Session::open(&place.target, Purpose::Write, "jobtop write");
    let db = db.await.expect("a session");
    for _ in 0..2 {
        run.step(&db, &place.target).await;
    }
    assert_eq!(run.progress().done, 0);
    held.rollback().await.expect("let go");
    drive(&mut run, &db, &place.target, |_| {}).await;
    let outcome = run.outcome();
    place.tells(&outcome);
    assert_eq!(outcome.changed(), 4, "{outcome:?}");
    let sizes = format!("SELECT string_agg(asked::text, ' ' ORDER BY at) {JOURNAL}");
    assert_eq!(place.value(&sizes).await, "1 1 2");
    let (begun, ended, _, changed, failed, ids) = place.journal();
    assert_eq!((begun, ended, changed, failed), (5, 5, 4, 2));
    assert_eq!(ids, place.actions().await);

    // a trigger that takes its time, and for one task more than there is
    let place = Place::with("statement_timeout", 40).await;
    place
        .client
        .batch_execute(
            "SET search_path = agent_queue;
             CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM pg_sleep(CASE WHEN NEW.id = 3 THEN 5 ELSE 0.08 END); RETURN NEW; END $$;
             CREATE TRIGGER slow BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION slow();",
        )
        .await
        .expect("a trigger");
    let outcome = place.act(Verb::Requeue, Place::failed()).await;
    place.tells(&outcome);
    assert_eq!(
        (outcome.changed(), outcome.skipped()),
        (39, 1),
        "{outcome:?}"
    );
    let failed = outcome.fates.iter().find(|f| f.outcome == "failed");
    let failed = failed.expect("one is too slow");
    assert_eq!(failed.key.id, "3");
    let why = failed.why.as_deref().unwrap_or_default();
    assert!(why.contains("(57014)"), "{why}");
    let sum = format!("SELECT concat_ws(' ', sum(changed), max(asked) < 40) {JOURNAL}");
    assert_eq!(place.value(&sum).await, "39 t");
    let left = "SELECT count(*) FROM agent_queue.tasks WHERE status = 'failed'";
    assert_eq!(place.value(left).await, "1");
}

const CHANGED: &str =
    "SELECT count(*) FROM agent_queue.tasks WHERE status = 'enqueued' AND kind = 'bulk'";
const WRITTEN: &str = "SELECT coalesce(sum(changed), 0) FROM agent_queue.operator_actions";

/// As many as take some seconds.
const MANY: u64 = 4_000;

/// Another so many failed tasks, all of them marked; `R`, a reason and the number start the work on them.
fn bulk(screen: &Screen) -> Pty {
    screen.sql(&format!(
        "INSERT INTO agent_queue.tasks (queue, kind, status, finished_at, attempt)
         SELECT 'parser', 'bulk', 'failed', now(), 1 FROM generate_series(1, {MANY}); ANALYZE agent_queue.tasks"
    ));
    let mut pty = screen.watch(&["--allow-writes"], 100, 30);
    pty.wait_text("parser");
    pty.keys("6/kind:bulk state:failed system:agent_queue\r");
    pty.wait("failed ones only", |s| {
        s.contains("bulk") && !s.contains("running")
    });
    pty.keys("*");
    pty.wait_text(" marked");
    pty.keys("*");
    pty.wait_text("all that match");
    pty
}

fn start(pty: &mut Pty) {
    pty.keys("R");
    pty.wait_text("Requeue 4,000 tasks?");
    pty.keys("after the fix\r");
    pty.wait_no_text("after the fix");
    pty.keys(&format!("{MANY}\r"));
    pty.wait_text(" a second");
}

/// As many as were changed, once there are some.
fn some_changed(screen: &Screen) -> u64 {
    loop {
        match screen.value(CHANGED).parse() {
            Ok(0) => std::thread::sleep(Duration::from_millis(10)),
            n => return n.expect("a count"),
        }
    }
}

/// The figure before a word in the report that is printed at the end.
fn told(pty: &Pty, word: &str) -> u64 {
    let screen = pty.wait_text("jobtop: requeue: asked 4,000");
    let report = screen.split_once("jobtop: requeue: ").expect("told").1;
    let report = report.replace('\n', " ").replace(',', "");
    let mut words = report.split_whitespace().collect::<Vec<_>>().into_iter();
    let at = words.clone().position(|w| w.starts_with(word));
    let n = words.nth(at.expect("the word") - 1).expect("a figure");
    n.trim_end_matches(':').parse().expect("a number")
}

/// A key that bounces must not act twice.
#[test]
fn a_key_pressed_twice_acts_once() {
    let screen = Screen::new("double");
    let mut pty = screen.watch(&["--allow-writes"], 100, 30);
    pty.wait_text("parser");
    pty.keys("6/state:failed\r");
    pty.wait_text("1/");
    pty.keys("RR");
    pty.wait_text("Requeue 1 task?");
    pty.keys("yyy");
    pty.wait_text("asked 1, 1 changed");
    assert_eq!(
        screen.value("SELECT count(*) FROM agent_queue.operator_actions"),
        "1"
    );
    let token = "SELECT lease_token FROM agent_queue.tasks WHERE id = 1";
    assert_eq!(screen.value(token), "2", "claimed once, requeued once");
    // and what must be typed
    pty.keys("/\x15state:running\r");
    pty.wait("the running one", |s| {
        s.contains("state:running") && s.contains(" 1/")
    });
    pty.keys("XX");
    pty.wait_text("Cancel 1 task?");
    pty.keys("1\r1\r1\r");
    pty.wait_text("asked 1, 1 requested");
    assert_eq!(
        screen.value("SELECT count(*) FROM agent_queue.operator_actions"),
        "2"
    );
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

/// Whoever quits while it runs is told how far it came, and that is how far it came.
#[test]
fn quitting_in_the_middle_tells_what_was_done() {
    let screen = Screen::new("quits_bulk");
    let mut pty = bulk(&screen);
    start(&mut pty);
    some_changed(&screen);
    pty.keys("\x1b");
    pty.wait_no_text("Requeue 4,000 tasks");
    pty.keys("q");
    pty.wait_text("q again stops it");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    screen.wait_no_session();
    let changed = screen.value(CHANGED);
    assert_ne!(changed, MANY.to_string(), "it was to be stopped");
    assert_eq!(told(&pty, "changed").to_string(), changed);
    assert_eq!(screen.value(WRITTEN), changed);
    assert_eq!(told(&pty, "stopped") + told(&pty, "changed"), MANY);
}

/// The terminal goes away in the middle of it: nothing is half done.
#[test]
fn a_hang_up_in_the_middle_leaves_nothing_half_done() {
    let screen = Screen::new("hup_bulk");
    let mut pty = bulk(&screen);
    start(&mut pty);
    some_changed(&screen);
    pty.signal(nix::sys::signal::Signal::SIGHUP);
    assert_eq!(pty.exit_code(), 129);
    screen.wait_no_session();
    let changed = screen.value(CHANGED);
    assert_ne!(changed, MANY.to_string());
    assert_eq!(screen.value(WRITTEN), changed);
    let whole = "SELECT bool_and(asked = changed AND changed = cardinality(ids)) FROM agent_queue.operator_actions";
    assert_eq!(screen.value(whole), "t");
}

/// Every slot of a server, also the superuser's.
fn fill(cluster: &Cluster) -> Hogs {
    let hogs = Hogs::of(cluster, cluster.superuser());
    assert!(hogs.len() > 10);
    hogs
}

/// No slot is free (a second connection of its own is what a dashboard then waits for): the poll session does it, chunk
/// by chunk between its refreshes.
#[test]
fn on_a_full_server_the_poll_session_does_it_and_the_screen_lives() {
    let (cluster, screen) = Screen::alone("full_bulk");
    let mut pty = bulk(&screen);
    let hogs = fill(&cluster);
    start(&mut pty);
    let part = pty.wait("half done", |s| s.contains("00 of 4,000 done"));
    assert!(part.contains("LIVE"), "{part}");
    pty.keys("\x1b");
    pty.wait_no_text("Requeue 4,000 tasks");
    pty.keys("?");
    pty.wait_text("LOOK CLOSER");
    pty.keys("\x1b");
    pty.wait_text("asked 4,000, 4,000 changed");
    pty.wait_text("LIVE");
    // once more, and quit in the middle
    drop(hogs);
    screen.sql("UPDATE agent_queue.tasks SET status = 'failed', finished_at = now() WHERE kind = 'bulk'; DELETE FROM agent_queue.operator_actions");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    screen.wait_no_session();
    screen.sql("DELETE FROM agent_queue.tasks WHERE kind = 'bulk'");
    let mut pty = bulk(&screen);
    let hogs = fill(&cluster);
    start(&mut pty);
    pty.wait("half done", |s| s.contains("00 of 4,000 done"));
    pty.keys("\x1b");
    pty.wait_no_text("Requeue 4,000 tasks");
    pty.keys("qq");
    assert_eq!(pty.exit_code(), 0);
    drop(hogs);
    let changed = told(&pty, "changed").to_string();
    assert_eq!(screen.value(CHANGED), changed);
    assert_eq!(screen.value(WRITTEN), changed);
}
