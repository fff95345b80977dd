//! Connection slots: how many there are for whom, who holds them, and what is left for people.

use super::Seen;
use super::page::{Level, Part};
use crate::text::thousands as count;

/// The arithmetic of `max_connections`.
pub fn part(seen: &Seen<'_>) -> Part {
    let mut part = Part::new("CONNECTION SLOTS");
    let (c, facts) = (&seen.snapshot.connections, seen.facts);
    let text = format!(
        "{}: {} superuser_reserved_connections, {} reserved_connections",
        c.arithmetic(),
        facts.for_superusers,
        facts.for_reserve
    );
    part.say(Level::Ok, "slots", text);
    part.say(Level::Ok, "taken", c.holders());
    let usable = c.usable();
    let left = usable.saturating_sub(c.used);
    let share = f64::from(c.used) / f64::from(usable.max(1));
    let level = match share >= seen.config.thresholds.connections {
        true => Level::NeedsDoing,
        false => Level::Ok,
    };
    let text = format!(
        "{} of {} for everyone",
        count(left.into()),
        count(usable.into())
    );
    part.say(level, "left", text);
    let budgets = &seen.config.budgets;
    if !budgets.is_empty() {
        let sum = budgets
            .iter()
            .fold(0, |a: u32, b| a.saturating_add(b.limit));
        let text = format!(
            "{} may take {}: {} are left for people and all else",
            budgets.len(),
            count(sum.into()),
            count(usable.saturating_sub(sum).into())
        );
        let level = if sum >= usable {
            Level::NeedsDoing
        } else {
            Level::Ok
        };
        part.say(level, "budgets", text);
    }
    for (whose, limit) in [
        ("role", facts.role_limit),
        ("database", facts.database_limit),
    ] {
        if let Some(limit) = limit {
            let text = format!(
                "this {whose} may have {limit} sessions (CONNECTION LIMIT); jobtop needs 2"
            );
            let level = if limit < 2 {
                Level::NeedsDoing
            } else {
                Level::Note
            };
            part.say(level, "limit", text);
        }
    }
    part
}
