//! Whatever is thrown at it: no panic, no control or bidi character on the screen, no contradiction.

use super::example;
use crate::config::{BudgetRule, Config};
use crate::findings::{Report, Tracker, docs};
use crate::probe::activity::{Blocked, Budget, Session, Wait};
use crate::probe::cost::{Cost, Spender};
use crate::probe::flow::{Attempts, Flow};
use crate::probe::leases::{Lease, Poison, Seen, Worker};
use crate::probe::locks::{Blame, Exclusive};
use crate::probe::maintenance::{Table, XminHolder};
use crate::probe::queues::{Invariant, Kind, Queue, Violation};
use crate::probe::rights::Denied;
use crate::probe::stages::{Stage, StageName};
use crate::probe::tasks::TaskKey;
use crate::probe::{Bound, Count, ProbeHealth, ServerTime, Snapshot, State, Usd};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NAMES: [&str; 12] = [
    "",
    "parser",
    "agent-7",
    "agent_queue",
    "public",
    "\u{1b}[31;1mred\u{1b}]0;title\u{7}",
    "\u{202e}desrever\u{202c}\u{2066}x\u{2069}",
    "zero\u{200b}width\u{feff}\u{200d}",
    "line\nbreak\r\ttab\u{85}\u{2028}",
    "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
    "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字",
    "\u{e0041}\u{e0042}\u{0}\u{9b}31m",
];
const FLOATS: [f64; 16] = [
    0.0,
    -0.0,
    0.4,
    1.0,
    4.9,
    10.0,
    59.96,
    60.0,
    900.0,
    3600.0,
    86_400.0,
    -5.0,
    1e300,
    f64::MAX,
    f64::INFINITY,
    f64::NEG_INFINITY,
];
const WORDS: [&str; 8] = [
    "idle in transaction",
    "active",
    "idle",
    "relation",
    "transactionid",
    "Lock",
    "session",
    "ClientWrite",
];

struct Dice(StdRng);

impl Dice {
    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.0.random_range(0..of.len())].clone()
    }
    fn name(&mut self) -> String {
        if self.0.random_bool(0.02) {
            return "x\u{202e}".repeat(5000);
        }
        self.pick(&NAMES).into()
    }
    /// Few, so that rows meet.
    fn place(&mut self) -> String {
        self.pick(&["", "public", "\u{202e}x\u{1b}[1m"]).into()
    }
    fn word(&mut self) -> String {
        if self.0.random_bool(0.1) {
            self.name()
        } else {
            self.pick(&WORDS).into()
        }
    }
    fn f(&mut self) -> f64 {
        self.pick(&FLOATS)
    }
    fn u(&mut self) -> u32 {
        self.pick(&[0, 1, 2, 3, 5, 20, 40, 97, 100, 10_000, u32::MAX])
    }
    fn pid(&mut self) -> i32 {
        self.pick(&[0, 1, 2, 3, 4, 5, -1, i32::MAX])
    }
    fn usd(&mut self) -> Usd {
        Usd(self.pick(&[0, 1, 4_200, 5_000_000, -3, i64::MAX, i64::MIN]))
    }
    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.random_bool(0.7).then(|| make(self))
    }
    fn some<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let n = self.pick(&[0, 0, 1, 2, 7]);
        (0..n).map(|_| make(self)).collect()
    }
    fn time(&mut self) -> ServerTime {
        ServerTime::from_epoch(self.f()).expect("not NaN")
    }
    fn seen(&mut self) -> Seen {
        self.pick(&[Seen::Seen, Seen::None, Seen::Unknown])
    }
    fn key(&mut self) -> TaskKey {
        TaskKey {
            system: self.place(),
            schema: self.place(),
            queue: self.place(),
            id: self.name(),
        }
    }
    fn spender(&mut self) -> Spender {
        Spender {
            name: self.name(),
            usd: self.usd(),
            usd_failed_attempts: self.usd(),
            usd_per_hour: self.usd(),
            usual_usd_per_hour: self.maybe(Self::usd),
            ..Spender::default()
        }
    }
    fn count(&mut self) -> Count {
        Count {
            count: self.pick(&[0, 1, 40, 10_001, u64::MAX]),
            bound: self.pick(&[Bound::Exact, Bound::AtLeast, Bound::Estimate]),
        }
    }

    fn queue(&mut self) -> Queue {
        Queue {
            system: self.place(),
            schema: self.place(),
            queue: self.place(),
            states: State::ALL
                .into_iter()
                .filter_map(|state| self.maybe(|d| (state, d.maybe(Self::count))))
                .collect(),
            limit: self.maybe(Self::u),
            locked: self.u(),
            oldest_ready_s: self.maybe(Self::f),
            overdue_retryable: self.u(),
            in_per_min: self.maybe(Self::f),
            finished_per_min: self.maybe(Self::f),
            failed_attempts_per_min: self.maybe(Self::f),
            last_claim_s: self.maybe(Self::f),
            last_arrival_s: self.maybe(Self::f),
            longest_gap_s: self.maybe(Self::f),
            arrival_history_s: self.f(),
            over_usual: self.maybe(Self::u),
            over_usual_of: self.u(),
            kinds: self.some(|d| Kind {
                kind: d.name(),
                ready: d.u(),
                running: d.u(),
                oldest_ready_s: d.maybe(Self::f),
                last_claim_s: d.maybe(Self::f),
            }),
            paused: self.0.random_bool(0.1),
            notes: self.some(|d| format!("row-level security hides {}", d.name())),
            ..Queue::default()
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let mut s = Snapshot {
            taken_at: self.maybe(Self::time),
            blocked: self.some(|d| Blocked {
                pid: d.pid(),
                blocked_by: d.some(Self::pid),
                waiting_s: d.f(),
                lock_type: d.word(),
                relation: d.maybe(Self::name),
                mode: d.maybe(|d| d.pick(&["AccessExclusiveLock", "ShareLock"]).into()),
            }),
            sessions: self.some(|d| Session {
                pid: d.maybe(Self::pid),
                backend_start: d.maybe(Self::time),
                application: d.name().into(),
                user: d.name().into(),
                state: d.maybe(Self::word).map(Into::into),
                xact_s: d.maybe(Self::f),
                query_s: d.maybe(Self::f),
                state_s: d.maybe(Self::f),
                xmin_age: d.maybe(|_| i64::MAX),
                budget: d.name().into(),
                task_rows: d.u(),
                verb: d.maybe(Self::name).map(Into::into),
                ..Session::default()
            }),
            exclusive: self.some(|d| Exclusive {
                relation: d.name(),
                pid: d.pid(),
                granted: d.0.random_bool(0.5),
                waiting_s: d.maybe(Self::f),
                blocked_by: d.some(Self::pid),
                waiters: d.u(),
                blame: Blame {
                    pid: d.pid(),
                    application: d.name(),
                    user: d.name(),
                    prepared: d.maybe(Self::name),
                },
            }),
            denied: self.some(|d| Denied {
                system: d.place(),
                schema: d.place(),
                tables: d.some(Self::name),
                grants: d.some(Self::name),
                taken: d.0.random_bool(0.5),
            }),
            waits: self.some(|d| Wait {
                kind: d.word(),
                event: d.name(),
                sessions: d.u(),
            }),
            queues: self.some(Self::queue),
            stages: self.some(|d| Stage {
                system: d.place(),
                schema: d.place(),
                queue: d.place(),
                kind: d.maybe(Self::name),
                stage: d.pick(&[StageName::Wait, StageName::Run]),
                n: d.u().into(),
                p50_s: d.maybe(Self::f),
                p95_s: d.maybe(Self::f),
                max_s: d.maybe(Self::f),
                recent_p50_s: None,
                unknown: None,
            }),
            attempts: self.some(|d| Attempts {
                system: d.place(),
                schema: d.place(),
                queue: d.place(),
                by: d.pick(&["kind", "tenant", ""]).into(),
                name: d.name(),
                recent: d.u(),
                recent_failed: d.u(),
                before: d.u(),
                before_failed: d.u(),
                error: d.maybe(Self::name),
                error_n: d.u(),
                lost: d.maybe(Self::usd),
                tries_per_task: d.maybe(Self::f),
                failing_since: d.maybe(Self::time),
            }),
            flow: self.some(|d| Flow {
                queue: d.place(),
                from: d.maybe(Self::time),
                finished: d.maybe(|d| d.some(Self::u)),
                ..Flow::default()
            }),
            leases: self.some(|d| Lease {
                system: d.place(),
                schema: d.place(),
                queue: d.place(),
                task: d.name(),
                worker: d.maybe(Self::name),
                overdue_s: d.maybe(Self::f),
                cancel_requested_s: d.maybe(Self::f),
                rule: d.name(),
                session: d.seen(),
                ..Lease::default()
            }),
            workers: self.some(|d| Worker {
                system: d.place(),
                schema: d.place(),
                worker: d.name(),
                holds: d.u(),
                clock_skew_s: d.maybe(Self::f),
                clock_samples: d.u(),
                next_expiry_s: d.maybe(Self::f),
                session: d.seen(),
                absent_s: d.maybe(Self::f),
                ..Worker::default()
            }),
            poison: self.some(|d| Poison {
                key: d.key(),
                lost_attempts: d.u(),
                workers: d.u(),
                over_s: d.f(),
            }),
            violations: self.some(|d| Violation {
                system: d.place(),
                schema: d.place(),
                rule: d.pick(&[Invariant::RunsWithoutLease, Invariant::UsageWithoutTask]),
                ids: d.some(Self::name),
                n: d.pick(&[0, 1, u64::MAX]),
            }),
            cost: self.maybe(|d| Cost {
                by_agent: d.some(Self::spender),
                by_tenant: d.some(Self::spender),
                ..Cost::default()
            }),
            probes: self.some(|d| ProbeHealth {
                name: d.pick(&["queues", "leases", "\u{202e}x"]).into(),
                age_s: d.maybe(Self::f),
                error: d.maybe(|d| match d.0.random_bool(0.3) {
                    true => format!("{} ({}): {} (42501)", d.place(), d.place(), d.name()),
                    false => d.name(),
                }),
                retry_s: None,
            }),
            ..Snapshot::default()
        };
        s.own.interval_s = self.f();
        s.server.cores = self.maybe(Self::u);
        s.server.user = self.name();
        s.server.started_at = self.maybe(Self::time);
        s.server.in_recovery = self.0.random();
        s.server.replayed_at = self.maybe(Self::time);
        s.server.wal_receiver = self.maybe(|d| d.0.random());
        s.server.restores = self.0.random();
        s.connections.max = self.u();
        s.connections.reserved = self.u();
        s.connections.used = self.u();
        s.connections.hidden = self.u();
        s.connections.states = self.some(|d| (d.word(), d.u())).into_iter().collect();
        s.connections.logins_per_s = self.maybe(Self::f);
        s.connections.budgets = self.some(|d| Budget {
            name: d.name(),
            limit: d.maybe(Self::u),
            used: d.u(),
            active: d.u(),
            idle: d.u(),
            idle_in_transaction: d.u(),
            oldest_transaction_s: d.maybe(Self::f),
        });
        s.maintenance.notify_queue = self.maybe(Self::f);
        s.maintenance.notify_blame = self.maybe(|d| (d.pid(), d.name(), d.word()));
        s.maintenance.tables = self.some(|d| Table {
            name: d.name(),
            live: 0,
            dead: d.u().into(),
            reads_per_claim: d.maybe(Self::f),
            reads_per_claim_usual: d.maybe(Self::f),
        });
        s.maintenance.xmin_holder = self.maybe(|d| XminHolder {
            kind: d.word(),
            name: d.name(),
            pid: d.maybe(Self::pid),
            held_s: d.maybe(Self::f),
            age_xids: i64::MIN,
        });
        s
    }
}

fn config() -> Config {
    Config {
        budgets: vec![BudgetRule::default()],
        ..Config::default()
    }
}

fn check(report: &Report) {
    let layers = &report.layers;
    let texts = report.findings.iter().map(|f| &f.sentence);
    let texts = texts.chain([
        &report.verdict,
        &layers.queue.text,
        &layers.workers.text,
        &layers.database.text,
        &layers.outside.text,
    ]);
    for text in texts {
        assert!(!text.trim().is_empty());
        assert_eq!(crate::text::clean(text), *text);
        assert!(text.chars().count() < 400, "{text}");
        let figures = text.replace("primary_conninfo", "");
        assert!(
            !figures.contains("NaN") && !figures.contains("inf"),
            "{text}"
        );
    }
    for (at, f) in report.findings.iter().enumerate() {
        assert!(f.since_s.is_finite() && f.since_s >= 0.0, "{f:?}");
        assert!(docs::of(&f.rule).is_some());
        if let Some(cause) = &f.explained_by {
            let before = report.findings[..at]
                .iter()
                .rev()
                .find(|c| &c.rule == cause);
            assert!(before.is_some_and(|c| c.severity >= f.severity), "{f:?}");
        }
    }
    let roots: Vec<_> = report
        .findings
        .iter()
        .filter(|f| f.explained_by.is_none())
        .collect();
    assert!(roots.is_sorted_by(|a, b| a.severity >= b.severity));
    serde_json::to_string(report).expect("json");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn no_snapshot_panics_or_puts_an_invisible_character_on_the_screen(seed: u64) {
        let mut dice = Dice(StdRng::seed_from_u64(seed));
        let mut tracker = Tracker::new(&config());
        let mut now = 1000.0;
        for _ in 0..6 {
            let mut snapshot = dice.snapshot();
            check(&Tracker::if_it_lasts(&config(), &snapshot));
            now += dice.pick(&[1.0, 1.0, 1.0, 0.0, -0.5, -500.0, 59.0, 5000.0]);
            if dice.0.random_bool(0.9) {
                snapshot.taken_at = ServerTime::from_epoch(now);
            }
            check(&tracker.update(&snapshot));
            // The same again: now it fires.
            now += 1.0;
            snapshot.taken_at = ServerTime::from_epoch(now);
            check(&tracker.update(&snapshot));
        }
    }

    /// Examples whose names are replaced by hostile ones still say their sentence, cleaned.
    #[test]
    fn hostile_names_stay_out_of_real_sentences(rule in 0usize..25, seed: u64) {
        let mut dice = Dice(StdRng::seed_from_u64(seed));
        let doc = docs::all()[rule];
        let mut s = example(doc.rule);
        let evil = dice.name();
        for session in &mut s.sessions {
            session.application = (&evil).into();
        }
        for worker in &mut s.workers {
            worker.worker.clone_from(&evil);
        }
        for lease in &mut s.leases {
            lease.task.clone_from(&evil);
            lease.worker = Some(evil.clone());
        }
        for attempts in &mut s.attempts {
            attempts.name.clone_from(&evil);
            attempts.error = Some(evil.clone());
        }
        for queue in &mut s.queues {
            for kind in &mut queue.kinds {
                kind.kind.clone_from(&evil);
            }
        }
        check(&Tracker::if_it_lasts(&config(), &s));
    }
}

#[test]
fn there_are_25_rules() {
    // The property above draws from as many.
    assert_eq!(docs::all().len(), 25);
}
