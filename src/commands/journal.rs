//! `jobtop journal`: what this user did from this machine.

use super::{Exit, config};
use crate::cli::{Journal, Look};
use crate::journal::{self, Entry, Tried, Whole};
use crate::out::{print, tell};
use crate::{run, ui::plain};
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::ErrorKind;

pub fn journal(args: &Journal) -> Result<Exit> {
    let config = or_exit!(config(args.config.as_deref(), &Look::default(), false));
    let path = journal::known_path(&config)?;
    let entries = match journal::read(&path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let none = format!("there is no journal yet; it would be {}\n", path.display());
            return show(args, &[], &none, &none);
        }
        Err(e) => {
            return Err(e)
                .with_context(|| format!("the journal {} cannot be read", path.display()));
        }
    };
    let mut good = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => good.push(entry),
            Err(broken) => tell(&format!("{broken}; it is left out")),
        }
    }
    let mut actions = journal::pair(good);
    actions.retain(|a| asked_for(args, a));
    if !args.all {
        actions.drain(..actions.len().saturating_sub(args.last));
    }
    let table = match actions.is_empty() {
        true => format!("no such action in {}\n", path.display()),
        false => plain::section(&journal::section(&actions), &run::theme(&config)),
    };
    show(args, &actions, &table, "")
}

/// An entry; the last of an action tells what became of all that it asks for.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    #[serde(skip_serializing_if = "Option::is_none")]
    whole: Option<Whole>,
}

fn lines(action: &Tried) -> impl Iterator<Item = Line<'_>> {
    let last = action.entries.len();
    (1..).zip(&action.entries).map(move |(n, entry)| Line {
        entry,
        whole: (n == last).then(|| action.whole()),
    })
}

fn asked_for(args: &Journal, action: &Tried) -> bool {
    // `priority` is also `priority 5`
    let called = |e: &Entry, wanted: &String| e.action.split(' ').next() == Some(wanted);
    let name = |wanted: &String| action.entries.iter().any(|e| called(e, wanted));
    args.action.as_ref().is_none_or(name) && args.id.as_ref().is_none_or(|id| action.is_about(id))
}

/// The table, or all entries as JSON with what else there is to say on stderr.
fn show(args: &Journal, actions: &[Tried], table: &str, aside: &str) -> Result<Exit> {
    if !args.json {
        print(
            &table
                .lines()
                .map(|l| crate::text::clean(l) + "\n")
                .collect::<String>(),
        )?;
        return Ok(Exit::Fine);
    }
    let lines: Vec<Line> = actions.iter().flat_map(lines).collect();
    print(&(serde_json::to_string_pretty(&lines)? + "\n"))?;
    if !aside.is_empty() {
        tell(aside.trim_end());
    }
    Ok(Exit::Fine)
}
