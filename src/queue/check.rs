//! Loading a profile: a wrong one is refused with file, line and the reason, before any server sees it.

use super::profile::{Action, Profile, Source, Sql};
use super::template::{Piece, pieces};
use super::{columns, profile::SettingType};
use std::collections::BTreeSet;
use std::fmt;

/// Why a profile is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The reason, in one sentence.
    pub reason: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the queue profile {} is wrong in line {}: {}",
            self.file, self.line, self.reason
        )
    }
}

impl std::error::Error for Wrong {}

/// Reads and checks one profile.
pub fn parse(file: &str, text: &str) -> Result<Profile, Wrong> {
    let wrong = |at: usize, reason: String| Wrong {
        file: file.to_string(),
        line: text.get(..at).map_or(1, |t| t.matches('\n').count() + 1),
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

type Check = Result<(), (usize, String)>;

struct Names<'a> {
    blanks: BTreeSet<&'a str>,
    fanout: BTreeSet<String>,
    settings: BTreeSet<&'a str>,
}

impl Names<'_> {
    fn sql(&self, sql: &Sql, params: &[&str]) -> Check {
        let start = sql.span().start;
        if sql.get_ref().trim().is_empty() {
            return Err((start, "this SQL is empty".into()));
        }
        if sql.get_ref().contains(';') && !sql.get_ref().contains('\'') {
            return Err((start, "one expression or statement, without `;`".into()));
        }
        for piece in pieces(sql.get_ref()) {
            match piece {
                Piece::Text(_) => {}
                Piece::Blank { name, how, at } => {
                    let place = start + at;
                    let fanout = self.fanout.contains(name) || name == "schema" || name == "anchor";
                    let hows: &[&str] = if fanout {
                        &["literal"]
                    } else if self.blanks.contains(name) {
                        &["type", "exists"]
                    } else {
                        return Err((
                            place,
                            format!(
                                "{{{name}}} is neither schema, anchor, an optional column nor a column of fanout"
                            ),
                        ));
                    };
                    if let Some(how) = how.filter(|h| !hows.contains(h)) {
                        return Err((
                            place,
                            format!("{{{name}:{how}}}: only {} can follow", hows.join(" or ")),
                        ));
                    }
                }
                Piece::Param { name, at } => {
                    if !self.settings.contains(name) && !params.contains(&name) {
                        let mut known: Vec<&str> = params.to_vec();
                        known.extend(&self.settings);
                        return Err((
                            start + at,
                            format!(
                                ":{name} is not a parameter here (known: {})",
                                if known.is_empty() {
                                    "none".into()
                                } else {
                                    known.join(", ")
                                }
                            ),
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn row<'s>(
        &self,
        row: impl IntoIterator<Item = (&'s String, &'s Sql)>,
        known: &[(&str, columns::Cast)],
        params: &[&str],
    ) -> Check {
        for (name, sql) in row {
            if !known.iter().any(|(n, _)| n == name) {
                let names: Vec<&str> = known.iter().map(|(n, _)| *n).collect();
                return Err((
                    sql.span().start,
                    format!(
                        "{name} is not a column of this row (known: {})",
                        names.join(", ")
                    ),
                ));
            }
            self.sql(sql, params)?;
        }
        Ok(())
    }

    fn sources(
        &self,
        what: &str,
        near: usize,
        list: &[Source],
        known: &[(&str, columns::Cast)],
        params: &[&str],
        timed: bool,
    ) -> Check {
        for source in list {
            let Some(from) = &source.from else {
                if source.why.is_none() {
                    return Err((
                        near,
                        format!("[[{what}]] needs `from`, or `why` there is none"),
                    ));
                }
                continue;
            };
            let at = from.span().start;
            if source.why.is_some() {
                return Err((
                    at,
                    format!("[[{what}]] has both `from` and `why` there is none"),
                ));
            }
            let Some(cond) = &source.r#where else {
                return Err((at, format!("[[{what}]] needs `where`")));
            };
            if timed && source.at.is_none() {
                return Err((
                    at,
                    format!("[[{what}]] needs `at`, the time that orders its rows"),
                ));
            }
            for sql in [
                Some(from),
                Some(cond),
                source.order.as_ref(),
                source.at.as_ref(),
            ]
            .into_iter()
            .flatten()
            {
                self.sql(sql, params)?;
            }
            if let Some(need) = source
                .needs
                .iter()
                .find(|n| !self.blanks.contains(n.as_str()))
            {
                return Err((
                    at,
                    format!("[[{what}]] needs {need}, which is not in [optional]"),
                ));
            }
            self.row(&source.row, known, params)?;
        }
        Ok(())
    }
}

/// The names after AS: what a fan-out row offers as blanks.
pub fn aliases(sql: &str) -> BTreeSet<String> {
    let words: Vec<&str> = sql
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|w| !w.is_empty())
        .collect();
    words
        .windows(2)
        .filter(|w| w[0].eq_ignore_ascii_case("as"))
        .map(|w| w[1].to_string())
        .collect()
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
    for (verb, action) in [("requeue", &a.requeue), ("cancel", &a.cancel)] {
        let Some(action) = action else { continue };
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
            names.sql(sql, &["ids", "seen", "attempts", "tokens", "reason"])?;
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
            names.sql(when, &[])?;
        }
        if let Some(sql) = set {
            names.sql(sql, &["reason"])?;
        }
        for (name, sql) in &action.also_set {
            names.sql(sql, &["reason"])?;
            if !p.optional.contains_key(name) {
                let at = sql.span().start;
                return Err((at, format!("also_set.{name}: {name} is not in [optional]")));
            }
        }
        if let Some(sql) = call {
            names.sql(sql, &["id", "reason"])?;
        }
        for except in &action.except {
            names.sql(&except.when, &[])?;
        }
    }
    Ok(())
}
