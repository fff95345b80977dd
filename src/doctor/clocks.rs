//! Clocks: durations are all by the server's, so ours only matters for reading logs side by side; a worker's matters
//! where it writes its own times into the queue.

use super::Seen;
use super::page::{Level, Part};
use crate::queue::profile::Clock;
use crate::ui::fmt;

/// Seconds up to which two clocks agree: the way there and back is in.
const AGREE: f64 = 1.0;

/// Ours and the workers' against the server's.
pub fn part(seen: &Seen<'_>) -> Part {
    let mut part = Part::new("CLOCKS");
    match seen.snapshot.server.clock_skew_s {
        Some(s) if s.abs() <= AGREE => part.say(Level::Ok, "here", "agrees with the server's"),
        Some(s) => part.say(
            Level::Note,
            "here",
            format!(
                "{}; ages on the screen are the server's, and right",
                off(-s)
            ),
        ),
        None => part.say(Level::Note, "here", "the server did not tell its time"),
    }
    let writes = |i: &&crate::queue::Instance| i.profile.clock == Clock::Worker;
    let writing: Vec<String> = seen
        .instances
        .iter()
        .filter(writes)
        .map(super::home)
        .collect();
    if writing.is_empty() {
        let text = "the server writes the times of every queue";
        part.say(Level::Ok, "workers", text);
        return part;
    }
    let limit = seen.config.thresholds.clock_skew;
    let workers = seen.snapshot.workers.iter();
    let known = workers.filter_map(|w| Some((w.worker.as_str(), w.clock_skew_s?)));
    let known: Vec<(&str, f64)> = known.collect();
    let wrong = wrong(&known, limit);
    for (by, workers) in &wrong {
        let text = format!("{}: {by}, as their claims tell", workers.join(", "));
        part.say(Level::NeedsDoing, "workers", text);
    }
    let whose = writing.join(", ");
    match (known.len(), wrong.len()) {
        (0, _) => part.say(
            Level::Note,
            "workers",
            format!("{whose}: workers write its times, and none claimed while this looked; the screen tells after some claims"),
        ),
        (n, 0) => part.say(
            Level::Ok,
            "workers",
            format!("{whose}: {n} claimed while this looked, their clocks agree"),
        ),
        _ => {}
    }
    part
}

/// Whose clock is off, by how far: those that are off by the same share a machine, or a wrong time zone.
fn wrong<'a>(known: &[(&'a str, f64)], limit: f64) -> Vec<(String, Vec<&'a str>)> {
    let mut wrong: Vec<(String, Vec<&str>)> = Vec::new();
    for (worker, skew) in known.iter().filter(|(_, skew)| skew.abs() > limit) {
        match wrong.iter_mut().find(|(by, _)| *by == off(*skew)) {
            Some((_, workers)) => workers.push(worker),
            None => wrong.push((off(*skew), vec![worker])),
        }
    }
    wrong
}

fn off(skew: f64) -> String {
    let way = if skew < 0.0 { "behind" } else { "ahead of" };
    format!("{} {way} the server's", fmt::duration(skew.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_clock_is_one_matter() {
        let known = [("a", 3600.2), ("b", 3600.0), ("c", 0.1), ("d", -90.0)];
        let wrong = wrong(&known, 5.0);
        let workers: Vec<Vec<&str>> = wrong.iter().map(|(_, w)| w.clone()).collect();
        assert_eq!(workers, [vec!["a", "b"], vec!["d"]], "{wrong:?}");
    }
}
