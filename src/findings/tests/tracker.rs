//! Two looks, a while to clear, and time that jumps.

use super::build::*;
use super::example;
use crate::config::Config;
use crate::findings::{Report, Tracker};
use crate::probe::Snapshot;
use crate::probe::systems::{HalfThere, Moved};

struct Watch {
    tracker: Tracker,
}

impl Watch {
    fn new() -> Self {
        Self {
            tracker: Tracker::new(&Config::default()),
        }
    }

    fn see(&mut self, mut snapshot: Snapshot, s: f64) -> Report {
        snapshot.taken_at = Some(at(s));
        self.tracker.update(&snapshot)
    }
}

#[track_caller]
fn since(report: &Report, rule: &str) -> Option<f64> {
    report
        .findings
        .iter()
        .find(|f| f.rule == rule)
        .map(|f| (f.since_s * 1000.0).round() / 1000.0)
}

#[test]
fn one_look_is_not_believed_two_are() {
    let mut watch = Watch::new();
    let first = watch.see(example("budget"), 0.0);
    assert_eq!(first.findings, []);
    assert!(
        first.verdict.starts_with("one more look"),
        "{}",
        first.verdict
    );
    // The very same moment again is not a second look.
    assert_eq!(watch.see(example("budget"), 0.0).findings, []);
    let second = watch.see(example("budget"), 1.0);
    assert_eq!(since(&second, "budget"), Some(1.0));
    assert_eq!(second.verdict, "agents use 40 of 40, none idle");
}

#[test]
fn two_looks_need_not_follow_one_another() {
    let mut watch = Watch::new();
    watch.see(example("budget"), 0.0);
    watch.see(calm(), 1.0);
    assert!(since(&watch.see(example("budget"), 2.0), "budget").is_some());

    let mut watch = Watch::new();
    watch.see(example("budget"), 0.0);
    for s in 1..40 {
        watch.see(calm(), f64::from(s));
    }
    // The first look is forgotten by now.
    assert_eq!(since(&watch.see(example("budget"), 40.0), "budget"), None);
}

#[test]
fn a_finding_clears_after_half_a_minute_without_its_trigger() {
    let mut watch = Watch::new();
    watch.see(example("budget"), 0.0);
    watch.see(example("budget"), 1.0);
    // one refresh without it may be chance; later it is over, and no longer what is wrong
    let missed = watch.see(calm(), 2.0);
    assert_eq!(missed.verdict, "agents use 40 of 40, none idle");
    let over = watch.see(calm(), 4.0);
    assert!(over.verdict.starts_with("all is well"), "{}", over.verdict);
    let lingering = watch.see(calm(), 30.9);
    assert_eq!(lingering.top(), None);
    assert_eq!(
        lingering.findings[0].sentence,
        "over: agents use 40 of 40, none idle"
    );
    assert_eq!(since(&lingering, "budget"), Some(30.9));
    assert_eq!(watch.see(calm(), 31.0).findings, []);
}

#[test]
fn a_lingering_finding_keeps_its_last_sentence_and_goes_on_when_it_returns() {
    let mut watch = Watch::new();
    for s in 0..3 {
        let mut now = example("stalled");
        now.queues[0].last_claim_s = Some(540.0 + f64::from(s));
        watch.see(now, f64::from(s));
    }
    let lingering = watch.see(calm(), 20.0);
    let said = &lingering.findings[0].sentence;
    assert!(said.contains("no claim in 9m"), "{said}");
    assert_eq!(since(&lingering, "stalled"), Some(560.0));
    let back = watch.see(example("stalled"), 21.0);
    assert_eq!(back.top().map(|f| f.rule.as_str()), Some("stalled"));
}

#[test]
fn since_is_when_the_cause_began() {
    let mut watch = Watch::new();
    watch.see(example("idle-in-transaction"), 0.0);
    let report = watch.see(example("idle-in-transaction"), 1.0);
    assert_eq!(since(&report, "idle-in-transaction"), Some(492.0));
}

#[test]
fn when_the_clock_goes_back_or_time_is_lost_durations_start_anew() {
    for jump in [-3600.0, 3600.0] {
        let mut watch = Watch::new();
        for s in 0..20 {
            watch.see(example("budget"), f64::from(s));
        }
        watch.see(example("slow-outside"), 20.0);
        let after = watch.see(example("budget"), 21.0 + jump);
        // What still holds is still true, but for how long is not known...
        assert_eq!(since(&after, "budget"), Some(0.0), "{jump}");
        // ...and what was seen once, before, has to be seen twice again.
        let once_more = watch.see(example("slow-outside"), 22.0 + jump);
        assert_eq!(since(&once_more, "slow-outside"), None, "{jump}");
        assert_eq!(since(&once_more, "budget"), Some(1.0), "{jump}");
    }
}

#[test]
fn what_does_not_hold_after_lost_time_is_gone_at_once() {
    let mut watch = Watch::new();
    watch.see(example("budget"), 0.0);
    watch.see(example("budget"), 1.0);
    assert_eq!(watch.see(calm(), 61.5).findings, []);
}

#[test]
fn a_clock_that_is_adjusted_by_a_moment_changes_nothing() {
    let mut watch = Watch::new();
    watch.see(example("budget"), 0.0);
    watch.see(example("budget"), 10.0);
    assert_eq!(
        since(&watch.see(example("budget"), 9.5), "budget"),
        Some(10.0)
    );
}

#[test]
fn a_long_interval_is_not_lost_time() {
    let config = Config {
        interval: 60.0,
        ..Config::default()
    };
    let mut tracker = Tracker::new(&config);
    let mut report = Report::default();
    for n in 0..3 {
        let mut s = example("budget");
        s.taken_at = Some(at(f64::from(n) * 61.0));
        report = tracker.update(&s);
    }
    assert_eq!(since(&report, "budget"), Some(122.0));
}

#[test]
fn without_a_time_nothing_moves() {
    let mut timeless = example("budget");
    timeless.taken_at = None;
    let mut tracker = Tracker::new(&Config::default());
    for _ in 0..3 {
        let report = tracker.update(&timeless);
        assert_eq!(report.findings, []);
        assert!(report.verdict.contains("not told its time"));
    }
    let mut watch = Watch { tracker };
    watch.see(example("budget"), 0.0);
    assert_eq!(watch.tracker.update(&timeless).findings, []);
    assert_eq!(
        since(&watch.see(example("budget"), 1.0), "budget"),
        Some(1.0)
    );
}

#[test]
fn sessions_that_share_a_pid_are_told_apart() {
    let mut watch = Watch::new();
    watch.see(example("idle-in-transaction"), 0.0);
    let mut other = example("idle-in-transaction");
    other.sessions[0].backend_start = Some(at(-1.0));
    assert_eq!(since(&watch.see(other, 1.0), "idle-in-transaction"), None);
}

#[test]
fn one_that_tells_since_when_begins_anew_after_it_was_over() {
    let mut watch = Watch::new();
    let lock = |age: f64| {
        let mut s = example("table-lock");
        s.blocked.iter_mut().for_each(|b| b.waiting_s = age);
        s
    };
    watch.see(lock(40.0), 0.0);
    assert_eq!(since(&watch.see(lock(41.0), 1.0), "table-lock"), Some(41.0));
    // a refresh without it is the same one still
    watch.see(calm(), 2.0);
    assert_eq!(since(&watch.see(lock(7.0), 3.0), "table-lock"), Some(7.0));
    watch.see(calm(), 4.0);
    watch.see(calm(), 10.0);
    assert_eq!(since(&watch.see(lock(6.0), 20.0), "table-lock"), Some(6.0));
}

/// The same, of a reference queue that lost a column.
fn half(mut s: Snapshot) -> Snapshot {
    s.half_there = vec![HalfThere {
        system: "agent_queue".into(),
        schema: "agent_queue".into(),
        missing: vec!["column kind of tasks".into()],
        why: "agent_queue in schema agent_queue: column kind of tasks is not there".into(),
        advice: "restore it".into(),
        age_s: Some(3.0),
    }];
    s
}

#[track_caller]
fn sentences(report: &Report) -> Vec<&str> {
    let all = report.findings.iter();
    all.map(|f| f.sentence.as_str()).collect()
}

#[test]
fn what_cannot_be_read_is_neither_wrong_nor_over() {
    let mut watch = Watch::new();
    watch.see(example("stalled"), 0.0);
    let report = watch.see(example("stalled"), 1.0);
    let said = report.findings[0].sentence.clone();
    // what the rows said last is no news, whether it would hold or not
    for (s, snapshot) in (2..90).zip([calm(), example("poison")].into_iter().cycle()) {
        let report = watch.see(half(snapshot), f64::from(s));
        let last = format!("last known: {said}");
        assert!(sentences(&report).contains(&last.as_str()), "{report:?}");
        let only = |f: &crate::findings::Finding| ["stalled", "limited-view"].contains(&&*f.rule);
        assert!(report.findings.iter().all(only), "{report:?}");
        if s > 2 {
            assert!(report.verdict.contains("column kind of tasks is not there"));
        }
    }
    // read again: still not known at once, then over like anything else
    let back = watch.see(calm(), 91.0);
    assert!(sentences(&back).contains(&&*format!("last known: {said}")));
    let mut later = back;
    for s in 92..126 {
        later = watch.see(calm(), f64::from(s));
    }
    assert!(sentences(&later).contains(&&*format!("over: {said}")));
    for s in 126..160 {
        later = watch.see(calm(), f64::from(s));
    }
    assert_eq!(later.findings, []);
}

#[test]
fn what_was_last_known_goes_on_where_it_still_holds() {
    let mut watch = Watch::new();
    watch.see(example("stalled"), 0.0);
    watch.see(example("stalled"), 1.0);
    watch.see(half(calm()), 5.0);
    let back = watch.see(example("stalled"), 6.0);
    assert_eq!(back.top().map(|f| f.rule.as_str()), Some("stalled"));
    assert_eq!(since(&back, "stalled"), Some(540.0));
}

#[test]
fn what_sessions_do_is_known_also_where_a_queue_is_half_there() {
    let mut watch = Watch::new();
    watch.see(half(example("idle-in-transaction")), 0.0);
    let report = watch.see(half(example("idle-in-transaction")), 1.0);
    assert!(since(&report, "idle-in-transaction").is_some());
    let over = watch.see(half(calm()), 5.0);
    let said = sentences(&over);
    assert!(said.iter().any(|s| s.starts_with("over: ")), "{said:?}");
}

#[test]
fn nothing_more_is_said_of_a_system_that_left() {
    let gone = |s: &mut Snapshot| s.gone = vec!["agent_queue in schema agent_queue".into()];
    let moved = |s: &mut Snapshot| {
        s.moved = vec![Moved {
            system: "agent_queue".into(),
            schema: "agent_queue".into(),
            now: "in schema billing".into(),
        }];
    };
    for leaves in [&gone as &dyn Fn(&mut Snapshot), &moved] {
        let mut watch = Watch::new();
        watch.see(example("stalled"), 0.0);
        watch.see(example("stalled"), 1.0);
        let mut without = calm();
        without.queues.clear();
        leaves(&mut without);
        let report = watch.see(without, 2.0);
        assert_eq!(since(&report, "stalled"), None, "{report:?}");
    }
}

#[test]
fn another_database_begins_anew() {
    let mut watch = Watch::new();
    let of = |database: u32| {
        let mut s = example("budget");
        s.server.database_oid = database;
        s
    };
    for s in 0..20 {
        watch.see(of(16384), f64::from(s));
    }
    // not asked for once, and the same one again
    watch.see(of(0), 20.0);
    assert_eq!(since(&watch.see(of(16384), 21.0), "budget"), Some(21.0));
    assert_eq!(watch.see(of(17000), 22.0).findings, []);
    assert_eq!(since(&watch.see(of(17000), 23.0), "budget"), Some(1.0));
}
