//! Which queues were found, what cannot be known about them, and what of them could not be read.

use super::Seen;
use super::page::{Level, Part};
use crate::queue::profile::Source;
use crate::queue::{Branch, Instance};
use crate::ui::fmt::plural;

/// Which queues were found, and what cannot be known about them.
pub fn part(seen: &Seen<'_>) -> Part {
    let mut part = Part::new("QUEUES");
    if seen.instances.is_empty() {
        let text = "no profile fits a table of this database: another database, a profile of your own, or the reference queue";
        let run = vec!["jobtop migrate".to_string()];
        part.advise(Level::NeedsDoing, "found", text, run);
    }
    for instance in seen.instances {
        found(&mut part, instance, seen);
        unknown(&mut part, instance);
    }
    for probe in &seen.snapshot.probes {
        if let Some(error) = &probe.error {
            let text = format!("the probe {} fails: {error}", probe.name);
            part.say(Level::NeedsDoing, "not read", text);
        }
    }
    part
}

fn found(part: &mut Part, instance: &Instance, seen: &Seen<'_>) {
    let of = seen.snapshot.queues.iter();
    let queues = of
        .filter(|q| q.system == instance.system && q.schema == instance.schema)
        .count();
    let profile = &instance.profile;
    let text = format!(
        "{}: {} with tasks, {}, read by {}",
        super::home(instance),
        plural(queues as u64, "queue", "queues"),
        plural(instance.relations.len() as u64, "table", "tables"),
        profile.file
    );
    part.say(Level::Ok, "found", text);
}

/// What the profile says that it cannot know, what it does without, and what it does not do.
fn unknown(part: &mut Part, instance: &Instance) {
    let none = Branch::new();
    let branch = instance.branches.first().unwrap_or(&none);
    let p = &instance.profile;
    let unknown = p.unknown.iter().map(|(what, why)| format!("{what}: {why}"));
    let mut all: Vec<String> = unknown.collect();
    let lists: [&[Source]; 6] = [
        &p.finished,
        &p.failed,
        &p.attempts,
        &p.arrivals,
        &p.cost,
        &p.lost,
    ];
    for list in lists.into_iter().filter(|l| !l.is_empty()) {
        all.extend(match instance.source(list, branch) {
            Ok(source) => source.note.clone(),
            Err(why) => Some(why),
        });
    }
    for (name, action) in p.actions.each() {
        let refused = action.and_then(|a| a.refuse.as_ref());
        all.extend(refused.map(|why| format!("no {name}: {why}")));
    }
    all.extend(p.notes.iter().cloned());
    let mut told: Vec<String> = Vec::new();
    for text in all {
        if !told.contains(&text) {
            told.push(text);
        }
    }
    if !told.is_empty() {
        let text = format!("{}: {}", super::home(instance), told.join("; "));
        part.say(Level::Note, "not known", text);
    }
}
