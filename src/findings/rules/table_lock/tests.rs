//! What makes the rule speak, and what it says.

use super::Severity;
use crate::app::row::RowId;
use crate::config::Config;
use crate::findings::Tracker;
use crate::findings::tests::*;
use crate::probe::Snapshot;
use crate::probe::locks::Blame;

const RULE: &str = "table-lock";

#[test]
fn the_lock_must_be_waited_for_long_enough_on_a_queue_table() {
    let waits = |s: f64, table: &str| {
        with(|snap| {
            snap.maintenance.tables = example(RULE).maintenance.tables;
            snap.blocked = vec![on_table(2, &[1], s, "AccessExclusiveLock")];
            snap.blocked[0].relation = Some(table.into());
        })
    };
    silent(RULE, &waits(4.9, "agent_queue.tasks"));
    says(RULE, &waits(5.0, "agent_queue.tasks"));
    silent(RULE, &waits(50.0, "public.users"));
    // Rows are another rule's business.
    silent(RULE, &with(|s| s.blocked = vec![blocked(2, &[1], 50.0)]));
}

#[test]
fn before_the_tables_are_known_any_table_counts() {
    let s = with(|s| s.blocked = vec![on_table(2, &[1], 9.0, "AccessExclusiveLock")]);
    assert_eq!(
        says(RULE, &s),
        "nothing can touch tasks: pid 2 waits 9s behind pid 1"
    );
}

#[test]
fn the_root_is_the_culprit_not_the_migration() {
    assert_eq!(of(RULE, &example(RULE))[0].culprit, session_row(5002));
}

#[test]
fn a_prepared_transaction_and_a_deadlock_have_no_session() {
    let mut s = example(RULE);
    s.blocked[0].blocked_by = vec![0];
    assert!(says(RULE, &s).contains("behind a prepared transaction; 12 queue"));
    assert_eq!(of(RULE, &s)[0].culprit, None);
    s.blocked[0].blocked_by = vec![5100];
    says(RULE, &s);
}

#[test]
fn who_has_the_table_is_told_though_nobody_waits() {
    let had = |change: fn(&mut Snapshot)| {
        let mut s = example("table had");
        change(&mut s);
        s
    };
    let one = had(|_| {});
    let found = &of(RULE, &one)[0];
    assert_eq!(found.severity, Severity::Critical);
    assert_eq!(
        (found.culprit.clone(), found.since_s),
        (session_row(4711), 120.0)
    );
    assert_eq!(once(&one).layers.database.text, "tasks locked");
    // one sentence tells of it, and of what the session does besides
    let worse = had(|s| {
        s.sessions[0].task_rows = 3;
        s.blocked = vec![
            on_table(2, &[4711], 9.0, "RowShareLock"),
            blocked(3, &[4711], 70.0),
        ];
        s.maintenance.xmin_holder = example("xmin-held").maintenance.xmin_holder;
        s.maintenance.xmin_holder.as_mut().expect("a holder").pid = Some(4711);
        s.maintenance
            .tables
            .push(example("xmin-held").maintenance.tables[0].clone());
    });
    assert!(says(RULE, &worse).contains(" mode; 2 queue; pg_terminate_backend(4711) ends it"));
    silent("idle-in-transaction", &worse);
    let by = of("xmin-held", &worse)[0].explained_by.clone();
    assert_eq!(by.as_deref(), Some(RULE));
}

#[test]
fn the_table_must_be_had_for_long_enough() {
    let mut s = example("table had");
    s.sessions[0].state = Some("active".into());
    let looks = |s: &Snapshot| {
        let mut tracker = Tracker::new(&Config::default());
        let mut look = |t: i32| {
            let mut s = s.clone();
            s.taken_at = Some(at(f64::from(t)));
            tracker.update(&s).top().is_some_and(|f| f.rule == RULE)
        };
        (0..9).find(|t| look(*t))
    };
    assert_eq!(looks(&s), Some(6), "five seconds, and a second look");
    // whoever idles for longer has had it for as long
    s.sessions[0].state = Some("idle in transaction".into());
    assert_eq!(looks(&s), Some(1));
    s.exclusive.clear();
    assert_eq!(looks(&s), None);
}

#[test]
fn an_alter_that_waits_is_seen_by_every_role() {
    let mut s = example("table had");
    s.sessions.clear();
    s.exclusive[0].granted = false;
    s.exclusive[0].pid = 5001;
    s.exclusive[0].blocked_by = vec![4711];
    s.exclusive[0].waiting_s = Some(4.0);
    let mut tracker = Tracker::new(&Config::default());
    let mut look = |t: i32| {
        let mut s = s.clone();
        s.taken_at = Some(at(f64::from(t)));
        s.exclusive[0].waiting_s = Some(4.0 + f64::from(t));
        tracker.update(&s).top().is_some_and(|f| f.rule == RULE)
    };
    assert_eq!(
        (0..9).find(|t| look(*t)),
        Some(2),
        "from five seconds on, twice"
    );
    assert!(says(RULE, &s).contains("waits 4s"), "worth another look");
    s.exclusive[0].waiting_s = Some(5.0);
    let unlisted = RowId::Session {
        pid: 4711,
        started_us: 0,
    };
    assert_eq!(of(RULE, &s)[0].culprit, Some(unlisted));
    assert!(
        says(RULE, &s)
            .starts_with("nothing can touch tasks: pid 5001 waits 5s behind psql (pid 4711)")
    );
    s.server.sees_all = true;
    assert!(
        !says(RULE, &s).contains("hidden"),
        "a process of the server's"
    );
}

#[test]
fn on_a_standby_it_is_the_primarys_transaction() {
    let mut s = example("table had");
    s.sessions.clear();
    s.server.in_recovery = true;
    s.exclusive[0].blame = Blame {
        pid: 4711,
        ..Blame::default()
    };
    assert_eq!(
        says(RULE, &s),
        "nothing can touch tasks: the replay (pid 4711) has it in ACCESS EXCLUSIVE mode; \
         its transaction's end on the primary ends it"
    );
    assert_eq!(of(RULE, &s)[0].culprit, None);
}

#[test]
fn it_reaches_only_the_queues_of_its_schema() {
    let mut s = example(RULE);
    s.queues = example("stalled").queues;
    assert!(of("stalled", &s)[0].explained_by.is_some());
    s.queues.push(queue("mail"));
    s.queues[0].schema = "elsewhere".into();
    assert!(of("stalled", &s)[0].explained_by.is_none());
}
