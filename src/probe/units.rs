//! The units that snapshots are made of: server times, money, bounded counts, neutral task states.
//!
//! Times are seconds since 1970 by the *server's* clock and are subtracted here, never in SQL and never against
//! the local clock: `infinity`, BC dates and clock skew are data a monitor must survive.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A moment by the server's clock, in seconds since 1970-01-01 UTC. May be infinite; never NaN.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct ServerTime(f64);

impl ServerTime {
    /// `None` for NaN, which no timestamp of Postgres yields.
    pub fn from_epoch(seconds: f64) -> Option<Self> {
        (!seconds.is_nan()).then_some(Self(seconds))
    }

    /// Seconds since 1970-01-01 UTC.
    pub fn epoch(self) -> f64 {
        self.0
    }

    /// Seconds from `earlier` to `self`; negative when `earlier` is in the future. `None` if either is infinite.
    pub fn since(self, earlier: ServerTime) -> Option<f64> {
        let d = self.0 - earlier.0;
        d.is_finite().then_some(d)
    }

    /// The same moment `seconds` later.
    pub fn plus(self, seconds: f64) -> Self {
        Self(self.0 + seconds)
    }

    /// As a calendar time, where it is within chrono's range.
    pub fn to_utc(self) -> Option<DateTime<Utc>> {
        if !self.0.is_finite() || self.0.abs() > 1e13 {
            return None;
        }
        DateTime::from_timestamp_micros((self.0 * 1e6).round() as i64)
    }
}

/// RFC 3339 with milliseconds, or `infinity` / `-infinity`, or seconds where the date is out of every calendar.
impl fmt::Display for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_utc() {
            Some(t) => f.write_str(&t.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None if self.0 == f64::INFINITY => f.write_str("infinity"),
            None if self.0 == f64::NEG_INFINITY => f.write_str("-infinity"),
            None => write!(f, "epoch{:+.0}s", self.0),
        }
    }
}

impl Serialize for ServerTime {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServerTime {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let epoch = match text.as_str() {
            "infinity" => Some(f64::INFINITY),
            "-infinity" => Some(f64::NEG_INFINITY),
            t => match t.strip_prefix("epoch").and_then(|t| t.strip_suffix('s')) {
                Some(seconds) => seconds.parse().ok(),
                None => DateTime::parse_from_rfc3339(t)
                    .ok()
                    .map(|t| t.timestamp_micros() as f64 / 1e6),
            },
        };
        epoch
            .and_then(Self::from_epoch)
            .ok_or_else(|| serde::de::Error::custom(format!("not a time: {text}")))
    }
}

/// Money in millionths of a US dollar. Written to JSON as dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(pub i64);

impl Usd {
    /// Parses Postgres' text form of a `numeric` without going through floating point first; `None` for NaN,
    /// infinity, or more than nine trillion dollars.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
        let round_up = fraction.as_bytes().get(6).is_some_and(|d| *d >= b'5');
        let value = whole
            .parse::<i64>()
            .ok()?
            .checked_mul(1_000_000)?
            .checked_add(micros + i64::from(round_up))?;
        Some(Self(if negative { -value } else { value }))
    }

    /// In dollars, for rates and display.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl std::ops::Add for Usd {
    type Output = Usd;
    fn add(self, other: Usd) -> Usd {
        Usd(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for Usd {
    fn add_assign(&mut self, other: Usd) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Usd {
    fn sum<I: Iterator<Item = Usd>>(iter: I) -> Usd {
        iter.fold(Usd(0), |a, b| a + b)
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Usd((f64::deserialize(d)? * 1e6).round() as i64))
    }
}

/// How far a count can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Every row was counted.
    Exact,
    /// Counting stopped at a bound: there are at least this many.
    AtLeast,
    /// From the planner's statistics.
    Estimate,
}

/// A count that says how it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Rows.
    pub count: u64,
    /// How far to trust it.
    pub bound: Bound,
}

impl Count {
    /// Every row was counted.
    pub fn exact(count: u64) -> Self {
        Self {
            count,
            bound: Bound::Exact,
        }
    }
}

/// What any queue's native state means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not due yet.
    Scheduled,
    /// Due and claimable.
    Ready,
    /// Claimed by a worker.
    Running,
    /// Failed and due again later.
    Retryable,
    /// Done.
    Succeeded,
    /// Gave up.
    Failed,
    /// Called off.
    Cancelled,
    /// Blocked, paused or unknown: the native name is what to show.
    Other,
}

impl State {
    /// All states, in the order in which the screen lists them.
    pub const ALL: [State; 8] = [
        State::Ready,
        State::Running,
        State::Scheduled,
        State::Retryable,
        State::Succeeded,
        State::Failed,
        State::Cancelled,
        State::Other,
    ];

    /// The name used on screen, in JSON and in profiles.
    pub fn name(self) -> &'static str {
        match self {
            State::Scheduled => "scheduled",
            State::Ready => "ready",
            State::Running => "running",
            State::Retryable => "retryable",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Other => "other",
        }
    }

    /// The state of that name; anything unknown is `Other`.
    pub fn parse(name: &str) -> State {
        State::ALL
            .into_iter()
            .find(|s| s.name() == name)
            .unwrap_or(State::Other)
    }

    /// Succeeded, failed or cancelled.
    pub fn is_final(self) -> bool {
        matches!(self, State::Succeeded | State::Failed | State::Cancelled)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_parsed_without_floating_point() {
        assert_eq!(Usd::parse("0.012300"), Some(Usd(12_300)));
        assert_eq!(Usd::parse("-3"), Some(Usd(-3_000_000)));
        assert_eq!(Usd::parse("1.9999995"), Some(Usd(2_000_000)));
        assert_eq!(Usd::parse("0.0000004"), Some(Usd(0)));
        for bad in ["NaN", "Infinity", "", "1e5", ".5", "99999999999999999999"] {
            assert_eq!(Usd::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_survive_infinity_and_bc() {
        let inf = ServerTime::from_epoch(f64::INFINITY).expect("a time");
        let now = ServerTime::from_epoch(1_800_000_000.25).expect("a time");
        assert_eq!(inf.since(now), None);
        assert_eq!(inf.to_string(), "infinity");
        assert_eq!(now.to_string(), "2027-01-15T08:00:00.250Z");
        assert_eq!(ServerTime::from_epoch(f64::NAN), None);
        for t in [inf, now, now.plus(-1e14 - 0.25)] {
            let json = serde_json::to_string(&t).expect("json");
            let back: ServerTime = serde_json::from_str(&json).expect("back");
            assert!(back == t, "{json}");
        }
    }
}
