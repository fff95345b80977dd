//! Whether the server's clock goes on as time does. Ages are the server's clock minus the server's clock: when somebody
//! sets it, what is older than that looks too old or too young, and what was remembered by that clock is of no use.

use crate::probe::ServerTime;
use crate::probe::server::ClockStep;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Steps that are forgiven, in seconds: clocks are adjusted now and then.
const SLACK: f64 = 5.0;
/// A step is told for so long, in seconds.
const TOLD: f64 = 300.0;

/// A clock that nobody sets, and that also runs while this machine is suspended.
#[cfg(target_os = "linux")]
const STEADY: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const STEADY: ClockId = ClockId::CLOCK_MONOTONIC;

/// Seconds of a clock that nobody sets; `None` where the system has none.
pub fn steady() -> Option<f64> {
    let now = clock_gettime(STEADY).ok()?;
    Some(Duration::from(now).as_secs_f64())
}

/// What is remembered of the server's clock.
#[derive(Debug, Default)]
pub struct Clock {
    /// The server's time, and before and after which of our own it was read.
    last: Option<(ServerTime, f64, f64)>,
    /// The sum of its steps, and when the last one was seen.
    step: Option<(f64, f64)>,
}

impl Clock {
    /// The server said `now`, somewhen between these two. By how many seconds its clock was set since it was last
    /// asked, if it was.
    pub fn look(&mut self, now: ServerTime, sent: f64, came: f64) -> Option<f64> {
        let last = self.last.replace((now, sent, came));
        let (before, asked, heard) = last?;
        let went = now.since(before)?;
        let (least, most) = (sent - heard, came - asked);
        if (least - SLACK..=most + SLACK).contains(&went) {
            return None;
        }
        let step = went - (least + most) / 2.0;
        let sum = step + self.told(came).map_or(0.0, |s| s.by_s);
        // set back to where it was: nothing to tell
        self.step = (sum.abs() > SLACK).then_some((sum, came));
        Some(step)
    }

    /// Another server may answer from now on.
    pub fn another(&mut self) {
        self.step = None;
    }

    /// What is to be told of it.
    pub fn told(&self, at: f64) -> Option<ClockStep> {
        let (by_s, seen) = self.step?;
        let ago_s = at - seen;
        (ago_s < TOLD).then_some(ClockStep { by_s, ago_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(s: f64) -> ServerTime {
        ServerTime::from_epoch(1e9 + s).expect("a time")
    }

    #[test]
    fn a_step_is_told_from_a_slow_answer_and_from_its_own_undoing() {
        let mut clock = Clock::default();
        assert_eq!(clock.look(t(0.0), 10.0, 10.1), None);
        assert_eq!(clock.look(t(1.0), 11.0, 19.0), None, "a slow answer");
        assert_eq!(clock.look(t(9.5), 19.5, 19.6), None);
        assert_eq!(clock.look(t(3609.5), 3619.5, 3619.6), None, "a long sleep");
        let step = clock.look(t(7210.5), 3620.5, 3620.6).expect("a step");
        assert!((step - 3600.0).abs() < 0.2, "{step}");
        let told = clock.told(3630.6).expect("told");
        assert_eq!((told.by_s, told.ago_s), (step, 10.0));
        assert_eq!(clock.told(3620.6 + TOLD), None);
        let back = clock.look(t(3612.0), 3622.0, 3622.1).expect("a step");
        assert!((back + 3600.0).abs() < 0.2, "{back}");
        assert_eq!(clock.told(3622.1), None, "as it was");
        clock.look(t(0.0), 3623.0, 3623.1).expect("a step");
        assert!(clock.told(3623.1).is_some_and(|s| s.by_s < -3600.0));
        clock.another();
        assert_eq!(clock.told(3623.1), None);
    }
}
