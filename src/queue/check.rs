//! Loading a profile: a wrong one is refused with file, line and the reason, before any server sees it.

use super::actions::Action;
use super::columns;
use super::names::{Check, HOWS, Names, aliases};
use super::profile::{Profile, SettingType};
use std::collections::BTreeSet;
use std::fmt;

/// Why a profile is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The file.
    pub file: String,
    /// The line, from 1; `None` where it cannot be read.
    pub line: Option<usize>,
    /// The reason, in one sentence.
    pub reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, reason } = self;
        match line {
            Some(n) => write!(f, "the queue profile {file} is wrong in line {n}: {reason}"),
            None => write!(f, "the queue profile {file} cannot be read: {reason}"),
        }
    }
}

impl std::error::Error for Wrong {}

/// Reads and checks one profile.
pub fn parse(file: &str, text: &str) -> Result<Profile, Wrong> {
    let wrong = |at: usize, reason: String| Wrong {
        file: file.to_string(),
        line: Some(text.get(..at).map_or(1, |t| t.matches('\n').count() + 1)),
        reason,
    };
    let mut profile: Profile = toml::from_str(text).map_err(|e| {
        let reason = e.message().replace('\n', " ");
        wrong(e.span().map_or(0, |s| s.start), reason)
    })?;
    profile.file = file.to_string();
    check(&profile).map_err(|(at, reason)| wrong(at, reason))?;
    Ok(profile)
}

fn check(p: &Profile) -> Check {
    let top = p.system.span().start;
    if p.format != 1 {
        return Err((
            0,
            format!("format is {}: this program reads format 1", p.format),
        ));
    }
    let system = p.system.get_ref();
    if system.is_empty()
        || system
            .chars()
            .any(|c| !(c.is_ascii_alphanumeric() || "_-. ".contains(c)))
    {
        return Err((top, format!("{system:?} cannot be the name of a system")));
    }
    if p.detect.anchor.trim_matches('*').is_empty() || p.detect.columns.is_empty() {
        return Err((
            top,
            "[detect] needs an anchor and the columns that tell it from other tables".into(),
        ));
    }
    for key in ["id", "state", "queue"] {
        if !p.row.contains_key(key) {
            return Err((top, format!("[row] has no {key}")));
        }
    }
    if p.live.is_empty() {
        return Err((top, "there is no [[live]] source".into()));
    }
    let names = Names {
        blanks: p.optional.keys().map(String::as_str).collect(),
        fanout: p
            .fanout
            .as_ref()
            .map(|f| aliases(f.get_ref()))
            .unwrap_or_default(),
        settings: p.settings.keys().map(String::as_str).collect(),
        hows: HOWS,
    };
    for (name, setting) in &p.settings {
        if columns::RESERVED.contains(&name.as_str()) {
            return Err((
                top,
                format!("a setting cannot be called {name}: that parameter is jobtop's own"),
            ));
        }
        if setting.kind == SettingType::Int && setting.default.parse::<i64>().is_err() {
            return Err((
                top,
                format!(
                    "the default of {name} is not a whole number: {:?}",
                    setting.default
                ),
            ));
        }
    }
    if let Some(fanout) = &p.fanout {
        let only_schema = Names {
            blanks: BTreeSet::new(),
            fanout: BTreeSet::new(),
            settings: names.settings.clone(),
            hows: HOWS,
        };
        only_schema.sql(fanout, &[])?;
    }
    for opt in p.optional.values() {
        names.sql(&opt.relation, &[])?;
    }
    let neutral = columns::TASK;
    if let Some(with) = &p.with {
        names.sql(with, &[])?;
    }
    if let Some(q) = &p.queues {
        names.sql(&q.list, &[])?;
        for sql in [&q.is, &q.limit, &q.paused].into_iter().flatten() {
            names.sql(sql, &[])?;
        }
    }
    names.row(&p.row, neutral, &[])?;
    for live in &p.live {
        let at = live.r#where.span().start;
        names.sql(&live.from, &[])?;
        names.sql(&live.r#where, &[])?;
        if let Some(order) = &live.order {
            names.sql(order, &[])?;
        }
        names.row(&live.row, neutral, &[])?;
        if live.states.is_empty() {
            return Err((at, format!("live source {} can hold no state", live.name)));
        }
        if let Some(s) = live.states.iter().find(|s| s.is_final()) {
            return Err((
                at,
                format!("live source {} cannot hold {s} tasks", live.name),
            ));
        }
    }
    names.sources("finished", top, &p.finished, neutral, &["since"], false)?;
    names.sources("failed", top, &p.failed, neutral, &["since"], false)?;
    names.sources("by_id", top, &p.by_id, neutral, &["id"], false)?;
    names.sources("batch", top, &p.batch, neutral, &["batch"], false)?;
    names.sources(
        "arrivals",
        top,
        &p.arrivals,
        columns::ARRIVAL,
        &["since", "until"],
        true,
    )?;
    names.sources(
        "attempts",
        top,
        &p.attempts,
        columns::ATTEMPT,
        &["since", "until"],
        true,
    )?;
    names.sources(
        "attempts_of",
        top,
        &p.attempts_of,
        columns::TRY,
        &["id"],
        false,
    )?;
    names.sources(
        "cost",
        top,
        &p.cost,
        columns::COST,
        &["since", "until"],
        true,
    )?;
    names.sources(
        "lost",
        top,
        &p.lost,
        columns::LOST,
        &["since", "until"],
        true,
    )?;
    for rule in &p.stuck {
        let at = rule.r#where.span().start;
        if !p.live.iter().any(|l| l.name == rule.live) {
            return Err((
                at,
                format!(
                    "rule {:?} looks at {:?}, which is no live source",
                    rule.name, rule.live
                ),
            ));
        }
        names.sql(&rule.r#where, &[])?;
        for sql in [&rule.order, &rule.since].into_iter().flatten() {
            names.sql(sql, &[])?;
        }
    }
    for i in &p.invariants {
        for sql in [&i.from, &i.r#where, &i.id] {
            names.sql(sql, &["since"])?;
        }
    }
    for sql in p
        .tables
        .iter()
        .chain(&p.journal)
        .chain(p.notify.iter().map(|n| &n.channel))
    {
        names.sql(sql, &[])?;
    }
    super::grants::check(p, &names)?;
    actions(p, &names, top)
}

fn actions(p: &Profile, names: &Names<'_>, top: usize) -> Check {
    let a = &p.actions;
    for sql in [&a.target, &a.key, &a.key_type, &a.within, &a.version]
        .into_iter()
        .flatten()
    {
        names.sql(sql, &[])?;
    }
    for (verb, action) in a.each() {
        let Some(action) = action else { continue };
        // What the operator was asked for, beside what every action gets.
        let asked: &[&str] = match verb {
            "priority" => &["priority"],
            _ => &[],
        };
        let and = |own: &[&'static str]| [own, asked].concat();
        let Action {
            refuse,
            set,
            call,
            statement,
            when,
            ..
        } = action;
        let given = [
            refuse.is_some(),
            set.is_some(),
            call.is_some(),
            statement.is_some(),
        ];
        if given.iter().filter(|g| **g).count() != 1 {
            return Err((
                top,
                format!("[actions.{verb}] needs exactly one of refuse, set, call, statement"),
            ));
        }
        if let Some(sql) = statement {
            names.sql(sql, &and(&["ids", "seen", "attempts", "tokens", "reason"]))?;
        }
        if set.is_some() || call.is_some() {
            if a.target.is_none() || a.key.is_none() || a.key_type.is_none() {
                return Err((
                    top,
                    format!(
                        "[actions.{verb}] needs actions.target, actions.key and actions.key_type"
                    ),
                ));
            }
            let Some(when) = when else {
                return Err((
                    top,
                    format!("[actions.{verb}] needs `when`: which rows it may take"),
                ));
            };
            names.sql(when, asked)?;
        }
        if let Some(sql) = set {
            names.sql(sql, &and(&["reason"]))?;
        }
        for (name, sql) in &action.also_set {
            names.sql(sql, &and(&["reason"]))?;
            if !p.optional.contains_key(name) {
                let at = sql.span().start;
                return Err((at, format!("also_set.{name}: {name} is not in [optional]")));
            }
        }
        if let Some(sql) = call {
            names.sql(sql, &and(&["id", "reason"]))?;
        }
        for except in &action.except {
            names.sql(&except.when, asked)?;
        }
    }
    Ok(())
}
