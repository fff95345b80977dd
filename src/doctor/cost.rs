//! What jobtop itself asks of the server.

use super::Seen;
use super::page::{Level, Part};
use crate::ui::fmt;

/// One refresh, and what it comes to at the interval that is set.
pub fn part(seen: &Seen<'_>) -> Part {
    let mut part = Part::new("OWN COST");
    let own = &seen.snapshot.own;
    let (interval, most) = (seen.config.interval, seen.config.max_server_share);
    let share = own.server_ms_per_refresh / 1000.0 / interval;
    let text = format!(
        "{} and {:.1} ms of the server at the cheapest of a few: {} of a core at one every {}",
        fmt::plural(own.statements_per_refresh.into(), "statement", "statements"),
        own.server_ms_per_refresh,
        fmt::percent(share),
        fmt::duration(interval)
    );
    let (level, more) = match share > most {
        true => (
            Level::Note,
            format!(
                "; more than {} (max_server_share), so it would come less often",
                fmt::percent(most)
            ),
        ),
        false => (Level::Ok, String::new()),
    };
    part.say(level, "refresh", text + &more);
    part.say(
        Level::Ok,
        "held",
        "one, and a second one for the seconds of a write",
    );
    part
}
