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
    let (mut known, mut wrong) = (0, 0);
    for w in &seen.snapshot.workers {
        let Some(skew) = w.clock_skew_s else { continue };
        known += 1;
        if skew.abs() > limit {
            wrong += 1;
            let text = format!("{}: {}, as its claims tell", w.worker, off(skew));
            part.say(Level::NeedsDoing, "workers", text);
        }
    }
    let whose = writing.join(", ");
    match (known, wrong) {
        (0, _) => part.say(
            Level::Note,
            "workers",
            format!("{whose}: workers write its times, and none claimed while this looked; the screen tells after some claims"),
        ),
        (_, 0) => part.say(
            Level::Ok,
            "workers",
            format!("{whose}: {known} claimed while this looked, their clocks agree"),
        ),
        _ => {}
    }
    part
}

fn off(skew: f64) -> String {
    let way = if skew < 0.0 { "behind" } else { "ahead of" };
    format!("{} {way} the server's", fmt::duration(skew.abs()))
}
