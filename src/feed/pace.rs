//! The monitor must never be the incident: when refreshes cost the server more than their share, they come less
//! often.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The share is taken over this long.
const WINDOW: Duration = Duration::from_secs(10);

/// A notification never brings a refresh within this of the last one.
const HINT_PAUSE: Duration = Duration::from_millis(250);

/// What refreshes cost lately, and how long to wait before the next.
#[derive(Debug)]
pub struct Pace {
    wanted: Duration,
    max_share: f64,
    costs: VecDeque<(Instant, Duration)>,
}

impl Pace {
    /// `wanted` seconds between refreshes, and at most `max_share` (0 to 1) of one core of the server.
    pub fn new(wanted: f64, max_share: f64) -> Self {
        Self {
            wanted: Duration::from_secs_f64(wanted),
            max_share,
            costs: VecDeque::new(),
        }
    }

    /// The user asks for another interval.
    pub fn want(&mut self, seconds: f64) {
        self.wanted = Duration::from_secs_f64(seconds);
    }

    /// A refresh ended at `now` and took `cost` of the server.
    pub fn spent(&mut self, now: Instant, cost: Duration) {
        self.costs.push_back((now, cost));
        while self.costs.len() > 1 && now - self.costs[0].0 > WINDOW {
            self.costs.pop_front();
        }
    }

    /// Time between refreshes: as wanted, or longer so that the mean cost of the last ones keeps to the share.
    pub fn interval(&self) -> Duration {
        self.wanted.max(self.shortest())
    }

    /// The same for a refresh that a notification brings forward.
    pub fn hinted(&self) -> Duration {
        HINT_PAUSE.max(self.shortest()).min(self.interval())
    }

    fn shortest(&self) -> Duration {
        let count = self.costs.len().max(1) as u32;
        let mean = self.costs.iter().map(|c| c.1).sum::<Duration>() / count;
        mean.div_f64(self.max_share)
    }

    /// Share of one core over the last ten seconds, 0 to 1.
    pub fn share(&self, now: Instant) -> f64 {
        let Some((first, _)) = self.costs.front() else {
            return 0.0;
        };
        let spent: Duration = self.costs.iter().map(|c| c.1).sum();
        let span = (now - *first).max(self.interval());
        spent.as_secs_f64() / span.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expensive_refreshes_come_less_often() {
        let mut pace = Pace::new(1.0, 0.02);
        let start = Instant::now();
        pace.spent(start, Duration::from_millis(5));
        assert_eq!(pace.interval(), Duration::from_secs(1));
        for second in 1..30 {
            pace.spent(
                start + Duration::from_secs(second),
                Duration::from_millis(200),
            );
        }
        let now = start + Duration::from_secs(30);
        assert_eq!(pace.interval(), Duration::from_secs(10));
        assert!(pace.share(now) > 0.1);
        pace.want(60.0);
        assert_eq!(pace.interval(), Duration::from_secs(60));
    }
}
