//! Failed tasks by kind and by what their errors have in common, on a real Postgres.

mod common;
#[path = "profiles/setup.rs"]
mod setup;

use jobtop::config::Config;
use jobtop::connect::{Cells, Session, Target};
use jobtop::feed::round::Round;
use jobtop::probe::failures::{Failures, NO_TEXT, normalised};
use jobtop::probe::{Bound, Count, QueueProbes, Snapshot, Usd};
use jobtop::text::forbidden;
use setup::{agent_queue, now, open};
use std::sync::Arc;

async fn normal(session: &Session, error: Option<&str>) -> String {
    let sql = format!("SELECT {} AS normal", normalised("$1::text"));
    let params = [(
        &error as &(dyn tokio_postgres::types::ToSql + Sync),
        tokio_postgres::types::Type::TEXT,
    )];
    let rows = session.query(&sql, &params).await.expect("normalised");
    rows[0].word("normal").expect("text")
}

#[tokio::test]
async fn errors_alike_fall_together() {
    let (_, session, _) = open("normal", "").await;
    let uuid = "6f1c2d9e-8a41-4b7c-9d0e-1f2a3b4c5d6e";
    for (error, expected) in [
        (
            "timeout after 31.2 s for order 48017",
            "timeout after # s for order #",
        ),
        (
            "timeout after 7 s for order 9",
            "timeout after # s for order #",
        ),
        (&format!("run {uuid} is gone"), "run # is gone"),
        ("segfault at 0x7ffe12ab (0XFF)", "segfault at # (#)"),
        (
            "commit a94a8fe5ccb19ba61c4c0873 is unknown",
            "commit # is unknown",
        ),
        ("request req_7f9a8bQx failed", "request req_# failed"),
        (
            r#"no key "acme-0815" in 'a b' and `x`"#,
            "no key # in # and #",
        ),
        (
            "can't open 'O.pdf': it isn't there",
            "can't open #: it isn't there",
        ),
        (r#"cut within "a value that is open"#, "cut within #"),
        (
            "connect to 10.0.4.17:5432 or 2001:db8::8a2e:370:7334 refused",
            "connect to # or # refused",
        ),
        ("timeout after 3.66666666667 s", "timeout after # s"),
        ("at 12:30:45.123 with 1,024 rows", "at # with # rows"),
        ("pages 1, 2 and [3,4, 5]", "pages # and [#]"),
        ("std::bad_alloc in Foo::bar", "std::bad_alloc in Foo::bar"),
        (
            "a\tb\r\n\n  c \u{202e}d\u{200b}e\u{1b}[2J\u{e0041}",
            "a b c de [#J",
        ),
        ("größe 5 会议室", "größe # 会议室"),
        (" \n ", NO_TEXT),
        ("", NO_TEXT),
    ] {
        assert_eq!(normal(&session, Some(error)).await, expected, "{error}");
        let again = normal(&session, Some(expected)).await;
        assert_eq!(again, expected, "what is normal stays so");
    }
    assert_eq!(normal(&session, None).await, NO_TEXT);
    // where the cut falls depends on values that are taken out before
    let long = |n: &str| {
        format!(
            "{n} items were lost: {}",
            "so it went on and on ".repeat(20)
        )
    };
    let (a, b) = (long("3"), long("123456789012"));
    let a = normal(&session, Some(&a)).await;
    assert_eq!(a, normal(&session, Some(&b)).await);
    assert_eq!(a.chars().count(), 120);
}

#[tokio::test]
async fn nothing_that_hides_or_moves_is_left() {
    let (_, session, _) = open("hidden", "").await;
    let all = (1..=0x0e_0fff).filter_map(char::from_u32);
    let bad: Vec<char> = all.filter(|c| forbidden(*c)).collect();
    assert!(bad.len() > 4_000, "{}", bad.len());
    for some in bad.chunks(190) {
        let text: String = some.iter().collect();
        let left = normal(&session, Some(&format!("a{text}b"))).await;
        assert!(left == "ab" || left == "a b", "{left:?}");
    }
}

#[tokio::test]
async fn the_encoding_of_the_database_does_not_matter() {
    let (client, _, config) = open("encoding", "").await;
    for encoding in ["SQL_ASCII", "LATIN1"] {
        let name = encoding.to_lowercase();
        let sql = format!(
            "CREATE DATABASE {name} ENCODING {encoding} TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        );
        client.batch_execute(&sql).await.expect("a database");
        let mut config = config.clone();
        config.dbname(&name);
        let client = common::connect(&config).await;
        let sql = format!(
            "SELECT {}::text",
            normalised("E'timeout after 31.2 s\\n for \"x\"'")
        );
        let row = client.query_one(&sql, &[]).await.expect(encoding);
        assert_eq!(row.get::<_, String>(0), "timeout after # s for #");
    }
}

/// What the probe says of each system, in the order of their names.
async fn failures(session: &Session, config: &Config) -> Vec<Failures> {
    let mut probes = QueueProbes::new(config).expect("profiles");
    probes.detect(session).await.expect("detect");
    let now = now(session).await;
    probes.failures(session, now).await.expect("failures");
    let mut snapshot = Snapshot {
        taken_at: Some(now),
        ..Snapshot::default()
    };
    probes.fill(&mut snapshot);
    let mut all = snapshot.failures;
    all.sort_by(|a, b| a.system.cmp(&b.system));
    all
}

/// 900 failed tasks over three days, two kinds, three sorts of errors and one without text; others beside them.
const FAILED: &str = "
SET search_path = agent_queue, pg_temp;
INSERT INTO tasks (queue, kind, status, created_at, run_after, finished_at, attempt, last_error)
SELECT 'q' || i % 3, 'k' || i % 2, CASE WHEN i % 10 = 9 THEN 'completed' ELSE 'failed' END, f, f, f, 1,
       (ARRAY['timeout after ' || i || '.5 s for order ' || i * 7, 'bad page ' || i || ' of \"' || i || '.pdf\"',
              E'login failed\\n  at x: password=hunter' || i, NULL])[1 + i % 4]
  FROM (SELECT i, now() - i * interval '259 s' AS f FROM generate_series(1, 1000) i) x;
INSERT INTO usage (call_id, task_id, attempt, queue, model, llm_cost, compute_cost, reported_at)
SELECT 'c' || t.id || '-' || n, t.id, 1, t.queue, 'm', 0.01, 0.002, t.finished_at FROM tasks t, generate_series(1, 2) n;";

#[tokio::test]
async fn the_reference_queue_is_grouped_like_plain_sql() {
    let (client, session, _) = open("groups", &format!("{}{FAILED}", agent_queue())).await;
    let all = failures(&session, &Config::default()).await;
    assert_eq!(all.len(), 1);
    let f = &all[0];
    assert_eq!((f.unknown.as_deref(), f.notes.len()), (None, 0));
    assert_eq!(f.complete_from, None);
    let count = async |what: &str| -> i64 {
        let sql = format!(
            "SELECT count(*) FROM tasks WHERE status = 'failed' AND finished_at > now() - interval '24 hours' AND {what}"
        );
        client.query_one(&sql, &[]).await.expect("count").get(0)
    };
    assert_eq!(f.read, Some(Count::exact(count("true").await as u64)));
    assert_eq!(f.found, 4, "a sort of errors belongs to one kind here");
    for g in &f.groups {
        let kind = g.kind.as_deref().expect("a kind");
        // exactly what an action would select by
        let of = format!("kind = '{kind}' AND {} = $1", normalised("last_error"));
        let [exact] = &g.exact[..] else {
            panic!("{:?}", g.exact);
        };
        for (shown, hours) in [(g.last_1h, 1), (g.last_3h, 3), (g.last_24h, 24)] {
            let sql = format!(
                "SELECT count(*)::int8 FROM tasks WHERE status = 'failed' AND finished_at > now() - interval '{hours} hours' AND {of}"
            );
            let n: i64 = client.query_one(&sql, &[exact]).await.expect(&sql).get(0);
            assert_eq!(shown, Count::exact(n as u64), "{exact} {hours}");
        }
        assert_eq!(g.usd, Some(Usd(g.last_24h.count as i64 * 24_000)));
        assert_eq!((g.queues.len(), g.samples.len()), (3, 5));
        let first = &g.samples[0];
        assert_eq!(first.at, g.last_seen);
        assert!(g.first_seen < g.last_seen);
        let sql = format!(
            "SELECT queue FROM tasks WHERE id = $1::text::int8 AND {}",
            of.replace("$1", "$2")
        );
        let row = client.query_one(&sql, &[&first.key.id, exact]).await;
        assert_eq!(row.expect("its own").get::<_, String>(0), first.key.queue);
    }
    let login = f.groups.iter().find(|g| g.error.starts_with("login"));
    let login = login.expect("the login failures");
    assert_eq!(login.error, "login failed at x: password=***");
    let json = serde_json::to_string(&all).expect("JSON");
    assert!(!json.contains("hunter"), "{json}");
    assert!(f.groups.iter().any(|g| g.error == NO_TEXT));
}

#[tokio::test]
async fn more_than_can_be_read_is_said() {
    let (client, session, _) = open("many", &agent_queue()).await;
    client
        .batch_execute(
            "SET search_path = agent_queue, pg_temp;
             INSERT INTO tasks (queue, kind, status, created_at, run_after, finished_at, attempt, last_error)
             SELECT 'q', 'k' || i % 60, 'failed', f, f, f, 1, 'boom ' || i
               FROM (SELECT i, now() - i * interval '1 s' AS f FROM generate_series(1, 6000) i) x",
        )
        .await
        .expect("tasks");
    let all = failures(&session, &Config::default()).await;
    let f = &all[0];
    let read = f.read.expect("read");
    assert_eq!((read.count, read.bound), (5_000, Bound::AtLeast));
    assert_eq!((f.found, f.groups.len()), (60, 50));
    let at = now(&session).await;
    let since = at
        .since(f.complete_from.expect("from when on"))
        .expect("ago");
    assert!((4_990.0..5_060.0).contains(&since), "{since}");
    let g = &f.groups[0];
    assert_eq!((g.last_1h.count, g.last_1h.bound), (60, Bound::Exact));
    assert_eq!(g.last_3h.bound, Bound::AtLeast);
}

#[tokio::test]
async fn queues_as_teams_write_them_say_what_failed_or_why_not() {
    let sql = format!(
        "SET TimeZone = 'Asia/Kolkata'; {}",
        include_str!("profiles/house.sql")
    );
    let (client, session, _) = open("house", &sql).await;
    let mut config = Config::default();
    let zone = ("time_zone".to_string(), "Asia/Kolkata".to_string());
    config
        .settings
        .insert("workflow_jobs".into(), [zone].into());
    let all = failures(&session, &config).await;
    let of: Vec<_> = all
        .iter()
        .map(|f| {
            let groups = f.groups.iter().map(|g| {
                let age = f.read_at.and_then(|now| now.since(g.last_seen?));
                (
                    g.kind.as_deref(),
                    g.error.as_str(),
                    g.last_24h.count,
                    age.map(|a| (a / 60.0).round()),
                    g.usd,
                )
            });
            (f.system.as_str(), groups.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(
        of,
        [
            (
                "agent_jobs",
                vec![(None, "max attempts", 1, Some(3.0), None)]
            ),
            (
                "tasks",
                vec![(
                    Some("r"),
                    "timeout after # s",
                    1,
                    Some(3.0),
                    Some(Usd(75_000))
                )]
            ),
            (
                "workflow_jobs",
                vec![(Some("llm"), "#", 1, Some(60.0), None)]
            ),
        ]
    );
    let notes: Vec<usize> = all.iter().map(|f| f.notes.len()).collect();
    assert_eq!(notes, [1, 0, 1], "{:?}", all[2].notes);
    // without any finished time nothing can be said, and that is said
    client
        .batch_execute("ALTER TABLE tasks DROP COLUMN completed_at")
        .await
        .expect("a column less");
    let all = failures(&session, &config).await;
    assert_eq!(
        all[1].unknown.as_deref(),
        Some("these tasks have no finished time")
    );
    assert_eq!((all[1].read, all[1].groups.len()), (None, 0));
}

#[tokio::test]
async fn queues_of_other_profiles_are_read_or_say_why_not() {
    let sql = format!(
        "{} {} {}",
        include_str!("profiles/pgmq.sql"),
        include_str!("profiles/good_job.sql"),
        include_str!("profiles/pg_boss.sql")
    );
    let (_, session, _) = open("others", &sql).await;
    let config = Config {
        profiles: vec![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/profiles").into()],
        ..Config::default()
    };
    let all = failures(&session, &config).await;
    let names: Vec<&str> = all.iter().map(|f| f.system.as_str()).collect();
    assert_eq!(names, ["good_job", "pg-boss", "pgmq"]);
    for f in &all {
        assert_ne!(f.read.is_some(), f.unknown.is_some(), "{f:?}");
    }
    assert!(all[2].unknown.is_some(), "{:?}", all[2]);
}

#[tokio::test]
async fn they_are_read_only_while_somebody_looks() {
    let (_, session, config) = open("looks", &format!("{}{FAILED}", agent_queue())).await;
    let target = Target::new(config).expect("a target");
    let mut round = Round::new(target, Arc::new(Config::default())).expect("profiles");
    let look = async |round: &mut Round| -> Arc<Snapshot> {
        round.run_database(&session).await.expect("the database");
        round.run_queues(&session).await.expect("the queues");
        round.assemble()
    };
    let known = |s: &Snapshot| s.probes.iter().any(|p| p.name == "failures");
    round.connected();
    let s = look(&mut round).await;
    assert!(s.failures.is_empty() && !known(&s));
    round.watch(true);
    let s = look(&mut round).await;
    let first = s.failures[0].read_at;
    assert!(first.is_some() && known(&s) && s.unread("failures").is_none());
    let s = look(&mut round).await;
    assert_eq!(s.failures[0].read_at, first, "not at every refresh");
    round.hurry();
    let s = look(&mut round).await;
    assert!(s.failures[0].read_at > first, "but when it is asked for");
    round.watch(false);
    round.hurry();
    let before = s.failures[0].read_at;
    let s = look(&mut round).await;
    assert_eq!(s.failures[0].read_at, before);
    assert!(!known(&s));
}
