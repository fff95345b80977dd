//! The monitor must never be the incident: when refreshes cost the server more than their share, they come less
//! often.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The share is taken over this long.
const WINDOW: Duration = Duration::from_secs(10);

/// However slow the server, a refresh comes at least this often.
const LONGEST: Duration = Duration::from_secs(60);

/// A notification never brings a refresh within this of the last one.
const HINT_PAUSE: Duration = Duration::from_millis(250);

/// So many refreshes at first read history bit by bit and meet a cold cache: the cheapest of them tells what a refresh
/// costs.
const WARM: u32 = 8;

/// What refreshes cost lately, and how long to wait before the next.
#[derive(Debug)]
pub struct Pace {
    wanted: Duration,
    max_share: f64,
    costs: VecDeque<(Instant, Duration)>,
    seen: u32,
}

impl Pace {
    /// `wanted` seconds between refreshes, and at most `max_share` (0 to 1) of one core of the server.
    pub fn new(wanted: f64, max_share: f64) -> Self {
        Self {
            wanted: Duration::from_secs_f64(wanted),
            max_share,
            costs: VecDeque::new(),
            seen: 0,
        }
    }

    /// The user asks for another interval.
    pub fn want(&mut self, seconds: f64) {
        self.wanted = Duration::from_secs_f64(seconds);
    }

    /// Time between refreshes that the user asks for.
    pub fn wanted(&self) -> Duration {
        self.wanted
    }

    /// A refresh ended at `now` and took `cost` of the server.
    pub fn spent(&mut self, now: Instant, cost: Duration) {
        self.costs.push_back((now, cost));
        self.seen = self.seen.saturating_add(1);
        while self.costs.len() > 5 && now - self.costs[0].0 > WINDOW {
            self.costs.pop_front();
        }
    }

    /// Time between refreshes: as wanted, or longer so that what a refresh usually costs keeps to the share.
    pub fn interval(&self) -> Duration {
        self.wanted.max(self.shortest())
    }

    /// The same for a refresh that a notification brings forward.
    pub fn hinted(&self) -> Duration {
        HINT_PAUSE.max(self.shortest()).min(self.interval())
    }

    /// The median of the last few costs over the share: one slow refresh (the first, which reads an hour of
    /// history; one beside a checkpoint) changes nothing.
    fn shortest(&self) -> Duration {
        let mut costs: Vec<Duration> = self.costs.iter().rev().take(5).map(|c| c.1).collect();
        costs.sort_unstable();
        let usual = match costs.len() {
            0..3 => Duration::ZERO,
            _ if self.seen < WARM => costs[0],
            n => costs[n / 2],
        };
        usual.div_f64(self.max_share).min(LONGEST)
    }

    /// Share of one core over the last ten seconds, 0 to 1.
    pub fn share(&self, now: Instant) -> f64 {
        let recent = || self.costs.iter().filter(|(at, _)| now - *at <= WINDOW);
        let Some((first, _)) = recent().next() else {
            return 0.0;
        };
        let spent: Duration = recent().map(|c| c.1).sum();
        let span = now - *first + self.interval();
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
        pace.spent(start, Duration::from_secs(2));
        assert_eq!(
            pace.interval(),
            Duration::from_secs(1),
            "one refresh is no habit"
        );
        for second in 1..5 {
            pace.spent(
                start + Duration::from_secs(second),
                Duration::from_millis(5),
            );
        }
        assert_eq!(pace.interval(), Duration::from_secs(1));
        for second in 5..30 {
            pace.spent(
                start + Duration::from_secs(second),
                Duration::from_millis(200),
            );
        }
        let now = start + Duration::from_secs(30);
        assert_eq!(pace.interval(), Duration::from_secs(10));
        assert!(pace.share(now) > 0.09);
        let mut cold = Pace::new(1.0, 0.02);
        for (second, ms) in [900, 150, 80, 10].into_iter().enumerate() {
            let then = start + Duration::from_secs(second as u64);
            cold.spent(then, Duration::from_millis(ms));
        }
        assert_eq!(cold.interval(), Duration::from_secs(1), "a cold start");
        pace.want(60.0);
        assert_eq!(pace.interval(), Duration::from_secs(60));
    }
}
