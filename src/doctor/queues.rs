//! Which queues were found, what cannot be known about them, and what of them could not be read.

use super::Seen;
use super::page::{Level, Part};
use crate::queue::profile::Source;
use crate::queue::{Branch, Half, Instance, faults_of};
use crate::ui::fmt::plural;

/// Which queues were found, and what cannot be known about them.
pub fn part(seen: &Seen<'_>) -> Part {
    let mut part = Part::new("QUEUES");
    for half in seen.half {
        halved(&mut part, half);
    }
    if seen.instances.is_empty() && seen.half.is_empty() {
        let text = "no profile fits a table of this database: another database, a profile of your own, or the reference queue";
        let run = vec!["jobtop migrate".to_string()];
        part.advise(Level::NeedsDoing, "found", text, run);
    }
    for instance in seen.instances {
        found(&mut part, instance, seen);
        unknown(&mut part, instance);
    }
    unread(&mut part, seen);
    part
}

/// Probes that fail, by what ails them. What the rights explain stands there.
fn unread(part: &mut Part, seen: &Seen<'_>) {
    let explained = |error: &str| {
        let mut instances = seen.instances.iter();
        instances.any(|i| i.lacks(error, &i.closed()))
    };
    let mut causes: Vec<(&str, Vec<&str>)> = Vec::new();
    for probe in &seen.snapshot.probes {
        let Some(error) = probe.error.as_deref().filter(|e| !explained(e)) else {
            continue;
        };
        match causes.iter_mut().find(|(e, _)| *e == error) {
            Some((_, names)) => names.push(&probe.name),
            None => causes.push((error, vec![&probe.name])),
        }
    }
    for (error, names) in causes {
        let text = match names.as_slice() {
            [one] => format!("the probe {one} fails: {error}"),
            all => format!("the probes {} fail: {error}", all.join(", ")),
        };
        part.say(Level::NeedsDoing, "not read", text);
    }
}

fn halved(part: &mut Part, half: &Half) {
    let (system, profile) = (half.profile.system.get_ref(), &half.profile);
    let text = format!(
        "{system} in {} is not read, since {} wants what is not there: {}; {}",
        half.schema,
        profile.file,
        half.missing.join(", "),
        half.advice()
    );
    part.say(Level::NeedsDoing, "half there", text);
}

fn found(part: &mut Part, instance: &Instance, seen: &Seen<'_>) {
    let of = seen.snapshot.queues.iter();
    let queues = of
        .filter(|q| q.system == instance.system && q.schema == instance.schema)
        .count();
    let read = format!(
        "{}, read by {}",
        plural(instance.relations.len() as u64, "table", "tables"),
        instance.profile.file
    );
    let mut probes = seen.snapshot.probes.iter();
    let error = probes.find(|p| p.name == "queues");
    let error = error.and_then(|p| p.error.as_ref()).filter(|_| queues == 0);
    let named = faults_of(&instance.system, &instance.schema);
    let (level, text) = match error {
        None => {
            let queues = plural(queues as u64, "queue", "queues");
            (Level::Ok, format!("{queues} with tasks, {read}"))
        }
        Some(why) if why.contains(&named) => (
            Level::Note,
            format!("{read}; its queues could not be read: {why}"),
        ),
        // the first system that fails is named, and the others may have failed too
        Some(_) => (Level::Note, format!("no queue with tasks was read, {read}")),
    };
    part.say(level, "found", format!("{}: {text}", super::home(instance)));
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
