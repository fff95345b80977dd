//! Chance that can be repeated: the same seed gives the same fixture data and the same habits of the simulated
//! clients, on every machine and in every version.

use std::f64::consts::TAU;

/// A splitmix64 generator and the few distributions that work and its arrivals follow.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for one client or one part, so that nobody's throws depend on another's.
    pub fn branch(seed: u64, name: &str) -> Self {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let mut dice = Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix));
        dice.bits();
        dice
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 (included) and 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Between two numbers.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// A whole number from `low` to `high`, both included.
    pub fn whole(&mut self, low: i64, high: i64) -> i64 {
        low + (self.unit() * (high - low + 1) as f64) as i64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let at = (self.unit() * of.len() as f64) as usize;
        &of[at.min(of.len() - 1)]
    }

    /// The time to the next of events that come at random, `mean` apart.
    pub fn gap(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// A log-normal duration or amount: half of all are below `median`; at a spread of 0.45 the 95th percentile is
    /// 2.1 times as large.
    pub fn about(&mut self, median: f64, spread: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (TAU * self.unit()).cos();
        median * (spread * normal).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throws_repeat_and_stay_in_range() {
        let throws = |seed| {
            let mut dice = Dice::branch(seed, "agent-1");
            (0..1000).map(|_| dice.whole(1, 6)).collect::<Vec<_>>()
        };
        assert_eq!(throws(7), throws(7));
        assert_ne!(throws(7), throws(8));
        for face in 1..=6 {
            let n = throws(7).into_iter().filter(|f| *f == face).count();
            assert!((100..240).contains(&n), "{face} came {n} times");
        }
        assert!(throws(7).iter().all(|f| (1..=6).contains(f)));
    }

    #[test]
    fn half_of_all_are_below_the_median() {
        let mut dice = Dice::new(1);
        let below = (0..4000).filter(|_| dice.about(3.0, 0.45) < 3.0).count();
        assert!((1800..2200).contains(&below), "{below}");
    }
}
