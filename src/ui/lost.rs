//! What stands in place of the verdict while the database is away: nothing below it is true any more.

use super::fmt;
use super::text::{dim, fit, ink, text};
use super::theme::Ink;
use super::verdict::sentence;
use crate::app::state::Retry;
use ratatui::text::{Line, Span};

/// Seconds up to which a pause is told by its pace: a countdown from one would stand still for whoever looks.
const SHORT: f64 = 2.0;

/// Seconds without an answer after which an attempt is said to hang.
const HANGS: f64 = 2.0;

/// The lines, after `away` seconds.
pub fn lines(reason: &str, away: f64, next: &str, width: usize, most: usize) -> Vec<Line<'static>> {
    let head = format!(" ✗ NO DATABASE {}", fmt::duration(away.max(0.0)));
    let line = Line::from(vec![
        ink(head, Ink::Bad),
        Span::raw("  "),
        ink(reason, Ink::Strong),
    ]);
    let mut lines = sentence(line, Vec::new(), width, 3, most);
    lines.push(fit(
        Line::from(vec![
            Span::raw("   "),
            text(next),
            dim("; below is what was last seen, ages are of then"),
        ]),
        width,
    ));
    lines
}

/// What was tried and what comes next: `14 tries, one a second`. A pace is told where the tries since `since` had it: one
/// that hung for seconds has none.
pub fn next(retry: &Retry, since: f64, now: f64) -> String {
    let (tries, next) = match retry.failed {
        0 => (None, "the first try"),
        n => (Some(fmt::plural(n.into(), "try", "tries")), "the next"),
    };
    let left = (retry.at - now).ceil();
    let what = if -left > HANGS {
        Some(format!("{next} hangs {}", fmt::coarse(now - retry.at)))
    } else if retry.failed > 0 && retry.pause <= SHORT {
        quick(retry, since).then(|| "one a second".into())
    } else if left > 0.0 {
        Some(format!("{next} in {}", fmt::coarse(left)))
    } else {
        Some(format!("{next} is under way"))
    };
    let parts: Vec<String> = [tries, what].into_iter().flatten().collect();
    parts.join(", ")
}

/// Did the tries that failed take no longer than a short pause each?
fn quick(retry: &Retry, since: f64) -> bool {
    let last = retry.at - retry.pause;
    last - since <= SHORT * f64::from(retry.failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(failed: u32, pause: f64, ago: f64) -> String {
        let retry = Retry {
            failed,
            pause,
            at: 100.0 + pause,
        };
        next(&retry, 100.0 - f64::from(failed), 100.0 + ago)
    }

    #[test]
    fn tries_that_hung_had_no_pace() {
        let retry = |failed| Retry {
            failed,
            pause: 1.1,
            at: 101.1,
        };
        assert_eq!(next(&retry(1), 91.0, 100.5), "1 try");
        assert_eq!(next(&retry(2), 82.0, 101.5), "2 tries");
        assert_eq!(next(&retry(2), 82.0, 106.1), "2 tries, the next hangs 5s");
        assert_eq!(next(&retry(9), 91.0, 100.5), "9 tries, one a second");
    }

    #[test]
    fn a_short_pause_is_told_by_its_pace() {
        for ago in [0.0, 0.4, 0.9, 1.3] {
            assert_eq!(says(14, 0.9, ago), "14 tries, one a second");
        }
        assert_eq!(says(1, 0.9, 0.0), "1 try, one a second");
        assert_eq!(says(0, 0.9, 0.0), "the first try in 1s");
    }

    #[test]
    fn a_long_pause_is_counted_down_in_seconds() {
        assert_eq!(says(3, 4.3, 0.0), "3 tries, the next in 5s");
        assert_eq!(says(3, 4.3, 3.5), "3 tries, the next in 1s");
        assert_eq!(says(3, 4.3, 4.4), "3 tries, the next is under way");
        assert_eq!(says(1, 60.0, 0.0), "1 try, the next in 1m");
    }

    #[test]
    fn an_attempt_without_an_answer_is_told() {
        assert_eq!(says(3, 0.9, 12.9), "3 tries, the next hangs 12s");
        assert_eq!(says(0, 4.3, 12.3), "the first try hangs 8s");
    }
}
