//! From groups as each branch of a system has them to those that are shown: alike ones together, secrets hidden,
//! counts with their bounds.

use super::{DAY, FailureGroup, Failures, GROUPS, Sample};
use crate::probe::queues::depth::later;
use crate::probe::tasks::TaskKey;
use crate::probe::tasks::redact::{HIDDEN, redact, secrets};
use crate::probe::{Bound, Count, ServerTime, Usd};

/// Queue and id of a task, its error and when it failed.
pub type Told = (
    (Option<String>, Option<String>),
    (Option<String>, Option<ServerTime>),
);

/// A group of one branch, as the server tells it.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Kind.
    pub kind: Option<String>,
    /// What the errors have in common, not redacted.
    pub error: String,
    /// Failed within one, three and 24 hours, as far as they were read.
    pub counts: [u64; 3],
    /// The first one read.
    pub first: Option<ServerTime>,
    /// The last one.
    pub last: Option<ServerTime>,
    /// Spent by those read.
    pub usd: Option<Usd>,
    /// Their queues.
    pub queues: Vec<String>,
    /// The newest ones.
    pub samples: Vec<Told>,
    /// The largest group of its branch, which stands for the branch in the figures below.
    pub first_of_branch: bool,
    /// Groups of the branch.
    pub groups: u64,
    /// Rows read of the branch.
    pub read: u64,
    /// The oldest of them.
    pub oldest: Option<ServerTime>,
}

/// Writes what was found into `out`; a branch of which `rows` were read had more.
pub fn merge(out: &mut Failures, found: Vec<Found>, rows: u64, keys: &[String]) {
    let mut read = Count::exact(0);
    for branch in found.iter().filter(|f| f.first_of_branch) {
        read.count += branch.read;
        out.found += branch.groups;
        if branch.read >= rows {
            read.bound = Bound::AtLeast;
            out.complete_from = later(out.complete_from, branch.oldest);
        }
    }
    out.read = Some(read);
    for f in found {
        let next = group(out, &f, keys);
        let alike = |g: &&mut FailureGroup| g.kind == next.kind && g.error == next.error;
        match out.groups.iter_mut().find(alike) {
            Some(known) => {
                out.found -= 1;
                add(known, next);
            }
            None => out.groups.push(next),
        }
    }
    let key = |g: &FailureGroup| (g.last_24h.count, g.last_1h.count);
    out.groups.sort_by_key(|g| std::cmp::Reverse(key(g)));
    out.groups.truncate(GROUPS);
}

fn group(of: &Failures, f: &Found, keys: &[String]) -> FailureGroup {
    // complete where every row since the window began was read
    let count = |n: u64, window: f64| {
        let begins = of.read_at.map(|now| now.plus(-window));
        let whole = of
            .complete_from
            .is_none_or(|c| begins.is_some_and(|b| c <= b));
        let bound = if whole { Bound::Exact } else { Bound::AtLeast };
        Count { count: n, bound }
    };
    let sample = |((queue, id), (error, at)): &Told| Sample {
        key: TaskKey {
            system: of.system.clone(),
            schema: of.schema.clone(),
            queue: queue.clone().unwrap_or_default(),
            id: id.clone().unwrap_or_default(),
        },
        at: *at,
        error: error.as_deref().map(|e| redact(e, keys)),
    };
    let errors = f.samples.iter().filter_map(|(_, (e, _))| e.as_deref());
    FailureGroup {
        kind: f.kind.clone(),
        error: shown(&f.error, errors, keys),
        exact: vec![f.error.clone()],
        last_1h: count(f.counts[0], 3_600.0),
        last_3h: count(f.counts[1], 10_800.0),
        last_24h: count(f.counts[2], DAY),
        first_seen: f.first,
        last_seen: f.last,
        usd: f.usd,
        queues: f.queues.clone(),
        samples: f.samples.iter().map(sample).collect(),
    }
}

/// A normalised error without secrets. Its keys may have gone with their quotes, so that the words of the values which
/// are secret in the errors as they were written are looked for, too.
fn shown<'e>(error: &str, written: impl Iterator<Item = &'e str>, keys: &[String]) -> String {
    let mut out = redact(error, keys);
    for secret in written.flat_map(|e| secrets(e, keys)) {
        let words = secret.split(|c: char| !c.is_alphabetic());
        for word in words.filter(|w| w.chars().count() >= 3) {
            out = out.replace(word, HIDDEN);
        }
    }
    out
}

fn add(known: &mut FailureGroup, next: FailureGroup) {
    known.exact.extend(next.exact);
    known.exact.dedup();
    for (sum, n) in [
        (&mut known.last_1h, next.last_1h),
        (&mut known.last_3h, next.last_3h),
        (&mut known.last_24h, next.last_24h),
    ] {
        sum.count += n.count;
    }
    known.first_seen = match (known.first_seen, next.first_seen) {
        (Some(a), Some(b)) if b < a => Some(b),
        (a, b) => a.or(b),
    };
    known.last_seen = later(known.last_seen, next.last_seen);
    known.usd = match (known.usd, next.usd) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    known.queues.extend(next.queues);
    known.queues.sort();
    known.queues.dedup();
    known.queues.truncate(8);
    known.samples.extend(next.samples);
    let at = |s: &Sample| s.at.map_or(f64::NEG_INFINITY, ServerTime::epoch);
    known.samples.sort_by(|a, b| at(b).total_cmp(&at(a)));
    known.samples.truncate(5);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: f64 = 3_600.0;
    const NOW: f64 = 1_000_000.0;

    fn at(ago: f64) -> Option<ServerTime> {
        ServerTime::from_epoch(NOW - ago)
    }

    fn found(error: &str, written: &str, counts: [u64; 3]) -> Found {
        Found {
            kind: Some("k".into()),
            error: error.into(),
            counts,
            first: at(5.0 * HOUR),
            last: at(60.0),
            usd: Some(Usd(5)),
            samples: vec![((None, Some("1".into())), (Some(written.into()), at(60.0)))],
            ..Found::default()
        }
    }

    fn merged(found: Vec<Found>, rows: u64) -> Failures {
        let mut out = Failures {
            read_at: at(0.0),
            ..Failures::default()
        };
        merge(&mut out, found, rows, &["password".into(), "token".into()]);
        out
    }

    #[test]
    fn counts_are_bounded_by_what_was_read() {
        let mut one = found("timeout", "timeout", [1, 2, 3]);
        (one.first_of_branch, one.groups, one.read) = (true, 1, 100);
        one.oldest = at(2.0 * HOUR);
        let whole = merged(vec![one.clone()], 101);
        assert_eq!(whole.read, Some(Count::exact(100)));
        assert_eq!(whole.complete_from, None);
        assert_eq!(whole.groups[0].last_24h, Count::exact(3));
        let cut = merged(vec![one], 100);
        assert_eq!(cut.read.map(|c| c.bound), Some(Bound::AtLeast));
        assert_eq!(cut.complete_from, at(2.0 * HOUR));
        let g = &cut.groups[0];
        let bounds = [g.last_1h.bound, g.last_3h.bound, g.last_24h.bound];
        assert_eq!(bounds, [Bound::Exact, Bound::AtLeast, Bound::AtLeast]);
    }

    #[test]
    fn branches_are_summed_and_secrets_hidden() {
        let mut a = found("timeout", "timeout", [1, 1, 1]);
        (a.first_of_branch, a.groups, a.read) = (true, 2, 3);
        // the key has gone with its quotes, the value has not
        let leak = found(
            "{#:hunter#} refused",
            r#"{"password":hunter2} refused"#,
            [0, 0, 2],
        );
        let mut b = found("timeout", "timeout", [2, 2, 2]);
        (b.first_of_branch, b.groups, b.read, b.first) = (true, 1, 2, at(9.0 * HOUR));
        let s = merged(vec![a, leak, b], 5_000);
        assert_eq!(s.read, Some(Count::exact(5)));
        assert_eq!((s.found, s.groups.len()), (2, 2));
        let (timeout, leak) = (&s.groups[0], &s.groups[1]);
        assert_eq!((timeout.last_24h.count, timeout.usd), (3, Some(Usd(10))));
        assert_eq!(timeout.first_seen, at(9.0 * HOUR));
        assert_eq!(leak.error, "{#:***#} refused");
        assert_eq!(leak.exact, ["{#:hunter#} refused"]);
        assert_eq!(
            leak.samples[0].error.as_deref(),
            Some(r#"{"password":***} refused"#)
        );
        let json = serde_json::to_string(&s).expect("JSON");
        assert!(!json.contains("hunter"), "{json}");
    }
}
