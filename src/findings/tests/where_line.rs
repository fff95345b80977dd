//! The `where` line agrees with the findings and shows figures where there are none.

use super::build::*;
use super::example;
use crate::findings::{Mark, Report};
use crate::probe::flow::Flow;
use crate::probe::leases::Seen;
use crate::probe::{ProbeHealth, Snapshot, State};

fn line(report: &Report) -> String {
    let mark = |m: Mark| match m {
        Mark::Good => '✓',
        Mark::Warn => '!',
        Mark::Bad => '✗',
        Mark::Unknown => '?',
    };
    let layers = &report.layers;
    let one =
        |name: &str, l: &crate::findings::Layer| format!("{name} {} {}", mark(l.mark), l.text);
    [
        one("queue", &layers.queue),
        one("workers", &layers.workers),
        one("database", &layers.database),
        one("outside", &layers.outside),
    ]
    .join("   ")
}

#[test]
fn calm() {
    insta::assert_snapshot!(
        line(&once(&super::calm())),
        @"queue ✓ 212 done/min   workers ✓ 12 workers   database ✓ 2 active, 0 on locks   outside ✓ 1 of 20 over usual"
    );
}

#[test]
fn the_guilty_layer_and_those_that_feel_it() {
    let mut s = example("idle-in-transaction");
    s.queues = example("stalled").queues;
    s.queues[0].over_usual = Some(38);
    s.queues[0].over_usual_of = 40;
    s.leases = example("leases-expired").leases;
    insta::assert_snapshot!(
        line(&once(&s)),
        @"queue ✗ no claim in 9m   workers ! 1 of 12 expired   database ✗ 9 on row locks   outside ? 38 of 40 runs over usual"
    );
}

#[test]
fn outside_is_guilty_only_while_postgres_is_idle() {
    insta::assert_snapshot!(
        line(&once(&example("slow-outside"))),
        @"queue ✓ 212 done/min   workers ✓ 12 workers   database ✓ 2 active, 0 on locks   outside ! 38 of 40 runs over usual"
    );
}

#[test]
fn nothing_known_is_unknown() {
    insta::assert_snapshot!(
        line(&once(&crate::probe::Snapshot::default())),
        @"queue ? none found   workers ? none seen   database ? not read   outside ? usual not known yet"
    );
}

#[test]
fn what_cannot_be_read_any_more_is_unknown_at_once() {
    let mut s = with(|s| {
        standstill(s, 9);
        let probe = |name: &str| ProbeHealth {
            name: name.into(),
            age_s: Some(1.0),
            error: Some("permission denied for table tasks (42501)".into()),
            ..ProbeHealth::default()
        };
        s.probes = ["queues", "leases", "finished"].map(probe).into();
    });
    insta::assert_snapshot!(
        line(&once(&s)),
        @"queue ? cannot be read   workers ? cannot be read   database ✓ 2 active, 0 on locks   outside ? cannot be read"
    );
    for probe in &mut s.probes {
        probe.error = Some("canceling statement due to lock timeout (55P03)".into());
    }
    s.flow.clear();
    insta::assert_snapshot!(
        line(&once(&s)),
        @"queue ✓ 212 done/min   workers ✓ 12 workers   database ✓ 2 active, 0 on locks   outside ✓ 1 of 20 over usual"
    );
}

#[test]
fn old_data_is_not_good_data() {
    let s = with(|s| {
        s.probes = vec![
            ProbeHealth {
                name: "queues".into(),
                age_s: Some(41.0),
                error: Some("canceling statement due to statement timeout".into()),
                ..ProbeHealth::default()
            },
            ProbeHealth {
                name: "leases".into(),
                age_s: Some(3.0),
                error: None,
                ..ProbeHealth::default()
            },
        ];
    });
    let report = once(&s);
    assert_eq!(report.layers.queue.mark, Mark::Unknown);
    assert_eq!(report.layers.queue.text, "seen 41s ago");
    assert_eq!(report.layers.workers.mark, Mark::Good);
}

#[test]
fn behind_a_lock_the_last_look_is_soon_too_old() {
    let locked = |age: f64| {
        let mut s = example("table had");
        let probe = |name: &str| ProbeHealth {
            name: name.into(),
            age_s: Some(age),
            error: Some("canceling statement due to lock timeout (55P03)".into()),
            ..ProbeHealth::default()
        };
        s.probes = ["queues", "leases"].map(probe).into();
        line(&once(&s))
    };
    insta::assert_snapshot!(
        locked(4.0),
        @"queue ✓ 212 done/min   workers ✓ 12 workers   database ✗ tasks locked   outside ✓ 1 of 20 over usual"
    );
    insta::assert_snapshot!(
        locked(6.0),
        @"queue ? seen 6s ago   workers ? seen 6s ago   database ✗ tasks locked   outside ? seen 6s ago"
    );
    // before it is a finding, too
    let mut s = example("table had");
    s.sessions.clear();
    let young = crate::findings::Tracker::new(&crate::config::Config::default()).update(&s);
    assert_eq!(young.findings, []);
    assert_eq!(
        (young.layers.database.mark, &*young.layers.database.text),
        (Mark::Warn, "tasks locked")
    );
}

#[test]
fn a_young_wait_for_a_lock_is_a_warning_before_it_is_a_finding() {
    let s = with(|s| s.blocked = vec![blocked(2, &[1], 6.0)]);
    let report = once(&s);
    assert_eq!(report.findings, []);
    assert_eq!(report.layers.database.mark, Mark::Warn);
    assert_eq!(report.layers.database.text, "1 on locks");
}

#[test]
fn systems_without_throughput_show_what_runs() {
    let s = with(|s| {
        s.queues[0].finished_per_min = None;
        count(&mut s.queues[0], State::Running, 7);
    });
    assert_eq!(once(&s).layers.queue.text, "7 running");
}

/// Twenty a minute for half an hour, then none for `minutes`.
fn standstill(s: &mut Snapshot, minutes: usize) {
    let mut finished = vec![20; 30];
    finished.extend(vec![0; minutes]);
    s.flow = vec![Flow {
        system: "agent_queue".into(),
        schema: "agent_queue".into(),
        queue: "parser".into(),
        from: Some(at(-60.0 * finished.len() as f64)),
        finished: Some(finished),
        ..Flow::default()
    }];
}

#[test]
fn a_queue_that_stands_still_says_for_how_long() {
    let mut s = example("idle-in-transaction");
    standstill(&mut s, 9);
    let report = once(&s);
    assert_eq!(report.layers.queue.text, "0 done in 9m");
    assert_eq!(report.layers.queue.mark, Mark::Bad);
    // With nothing wrong, long tasks may be all there is to it.
    let quiet = once(&with(|s| standstill(s, 9)));
    assert_eq!(quiet.layers.queue.mark, Mark::Warn);
    let short = once(&with(|s| standstill(s, 1)));
    assert_eq!(short.layers.queue.mark, Mark::Good);
    let empty = once(&with(|s| {
        standstill(s, 9);
        count(&mut s.queues[0], State::Ready, 0);
        count(&mut s.queues[0], State::Running, 0);
    }));
    assert_eq!(empty.layers.queue.mark, Mark::Good);
    let rare = once(&with(|s| {
        standstill(s, 9);
        s.flow[0].finished.as_mut().expect("known")[..28].fill(0);
    }));
    assert_eq!(rare.layers.queue.mark, Mark::Good);
}

#[test]
fn workers_of_whom_nothing_is_seen_or_heard_are_not_well() {
    // sessions of other roles are hidden: who is connected cannot be told
    let gone = |minutes: usize, change: fn(&mut Snapshot)| {
        let mut s = with(|s| standstill(s, minutes));
        for worker in &mut s.workers {
            (worker.holds, worker.session) = (0, Seen::Unknown);
        }
        count(&mut s.queues[0], State::Ready, 5);
        change(&mut s);
        once(&s)
    };
    let report = gone(2, |_| {});
    assert_eq!(report.layers.workers.text, "none seen now");
    let said = "no finding yet, but queue 0 done in 2m: ";
    assert!(report.verdict.starts_with(said), "{}", report.verdict);
    let good = |report: Report| report.layers.workers.mark == Mark::Good;
    assert!(good(gone(1, |_| {})), "the minute has only begun");
    assert!(good(gone(2, |s| s.workers[0].holds = 1)), "one works long");
    assert!(good(gone(2, |s| s.workers[0].session = Seen::Seen)));
    assert!(good(gone(2, |s| count(&mut s.queues[0], State::Ready, 0))));
}
