//! One probe's own cadence and breaker: a probe that fails costs its pane, not the others.

use crate::connect::Fault;
use crate::log::told;
use crate::probe::ProbeHealth;
use std::time::{Duration, Instant};
use tracing::info;

/// A failing probe is tried again after its cadence, doubled each time, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// When a probe is due and how it went.
#[derive(Debug)]
pub struct Slot {
    name: &'static str,
    every: Duration,
    deadline: Duration,
    due: Option<Instant>,
    failures: u32,
    last_good: Option<Instant>,
    error: Option<String>,
    retry: Option<Duration>,
}

impl Slot {
    /// A probe that is due at once, then `every` so often; zero means at every refresh. The server ends each of its
    /// statements after `deadline`.
    pub fn new(name: &'static str, every: Duration, deadline: Duration) -> Self {
        Self {
            name,
            every,
            deadline,
            due: None,
            failures: 0,
            last_good: None,
            error: None,
            retry: None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What each of its statements may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Is it due?
    pub fn due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now)
    }

    /// It is due within that time, unless it fails.
    pub fn soon(&mut self, now: Instant, within: Duration) {
        if self.failures == 0 {
            self.due = self.due.map(|due| due.min(now + within));
        }
    }

    /// When it will be due; `None` where it is due now, or fails.
    pub fn next(&self) -> Option<Instant> {
        self.due.filter(|_| self.failures == 0)
    }

    /// As new, but for when it last succeeded.
    pub fn renew(&mut self) {
        *self = Self {
            last_good: self.last_good,
            ..Self::new(self.name, self.every, self.deadline)
        };
    }

    /// Makes it due at once, unless its breaker is open.
    pub fn hurry(&mut self) {
        if self.failures == 0 {
            self.due = None;
        }
    }

    /// Is its breaker open?
    pub fn failing(&self) -> bool {
        self.failures > 0
    }

    /// Did it fail once since it last succeeded?
    pub fn newly_failing(&self) -> bool {
        self.failures == 1
    }

    /// Makes it due at once, also with an open breaker.
    pub fn retry(&mut self) {
        self.due = None;
    }

    /// Not again before this has passed, whatever its cadence.
    pub fn rest(&mut self, now: Instant, pause: Duration) {
        self.due = self.due.max(Some(now + pause));
    }

    /// Did it fail the last time, with an SQLSTATE that starts like this?
    pub fn failed_with(&self, code: &str) -> bool {
        let error = self.error.as_deref().unwrap_or_default();
        error.contains(&format!("({code}"))
    }

    /// Notes how it went. Returns the fault where the session is gone.
    pub fn done(&mut self, now: Instant, result: Result<(), Fault>) -> Result<(), Fault> {
        match result {
            Ok(()) => {
                if self.failing() {
                    info!(
                        probe = self.name,
                        failures = self.failures,
                        "breaker closed"
                    );
                }
                self.failures = 0;
                self.error = None;
                self.retry = None;
                self.last_good = Some(now);
                self.due = Some(now + self.every);
                Ok(())
            }
            Err(fault) if fault.closed => Err(fault),
            Err(fault) => {
                let pause = self.every.max(Duration::from_secs(1)) * 2u32.pow(self.failures.min(5));
                self.failures += 1;
                let pause = pause.min(LONGEST_PAUSE);
                info!(
                    probe = self.name,
                    sqlstate = fault.code,
                    reason = told(&fault),
                    failures = self.failures,
                    retry_s = pause.as_secs_f64(),
                    "breaker open"
                );
                self.due = Some(now + pause);
                self.error = Some(fault.to_string());
                self.retry = Some(pause);
                Ok(())
            }
        }
    }

    /// For the snapshot.
    pub fn health(&self, now: Instant) -> ProbeHealth {
        ProbeHealth {
            name: self.name.to_string(),
            age_s: self.last_good.map(|at| (now - at).as_secs_f64()),
            error: self.error.clone(),
            retry_s: self.retry.map(|r| r.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_probe_is_tried_less_and_less_often_and_recovers_at_once() {
        let start = Instant::now();
        let mut slot = Slot::new("queues", Duration::ZERO, Duration::from_secs(3));
        assert!(slot.due(start));
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            slot.done(
                now,
                Err(Fault::own("canceling statement due to lock timeout")),
            )
            .expect("open");
            let due = slot.due.expect("a time");
            pauses.push((due - now).as_secs());
            slot.hurry();
            assert!(!slot.due(now), "the breaker holds");
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert!(
            slot.health(now)
                .error
                .expect("an error")
                .contains("lock timeout")
        );
        slot.done(now, Ok(())).expect("fine");
        assert!(slot.due(now));
        assert_eq!(slot.health(now).error, None);
    }

    #[test]
    fn a_new_session_tries_at_once_and_what_was_read_is_as_old_as_it_is() {
        let mut slot = Slot::new("tasks", Duration::from_secs(1), Duration::from_secs(2));
        let begun = Instant::now();
        let at = |s: u64| begun + Duration::from_secs(s);
        slot.done(begun, Ok(())).expect("kept");
        slot.done(at(2), Err(Fault::own("locked"))).expect("kept");
        slot.renew();
        assert!(slot.due(at(2)) && !slot.failing());
        let health = slot.health(at(9));
        assert_eq!((health.age_s, health.error), (Some(9.0), None));
    }

    #[test]
    fn a_dear_probe_rests_and_may_be_hurried() {
        let now = Instant::now();
        let seconds = Duration::from_secs;
        let mut slot = Slot::new("failures", seconds(15), Duration::from_secs(3));
        slot.done(now, Ok(())).expect("fine");
        slot.rest(now, seconds(3));
        assert_eq!(slot.due, Some(now + seconds(15)));
        slot.rest(now, seconds(40));
        assert!(!slot.due(now + seconds(39)) && slot.due(now + seconds(40)));
        slot.hurry();
        assert!(slot.due(now));
    }

    #[test]
    fn a_lost_session_is_not_the_probes_fault() {
        let mut slot = Slot::new("queues", Duration::ZERO, Duration::from_secs(3));
        let lost = Fault {
            closed: true,
            ..Fault::own("gone")
        };
        assert!(slot.done(Instant::now(), Err(lost)).is_err());
        assert_eq!(slot.failures, 0);
    }
}
