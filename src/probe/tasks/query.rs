//! Tasks by a filter: for `jobtop tasks`, and for actions on all that match.

use super::Task;
use super::row::{Want, finished, read, selected};
use crate::connect::{Fault, Session};
use crate::probe::failures::normalised;
use crate::probe::queues::depth::BRANCHES;
use crate::probe::{ServerTime, State};
use crate::queue::columns::Cast;
use crate::queue::profile::{Live, Sql};
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};
use std::collections::{BTreeMap, BTreeSet};

/// Which tasks are asked for; what is empty or `None` does not narrow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Only these states.
    pub states: Vec<State>,
    /// Only those for which all of this is true.
    pub terms: Vec<Term>,
    /// Only those whose last error is one of these (see [`normalised`]).
    pub failure: Vec<String>,
    /// Of those that are finished, only those that finished within this, in seconds.
    pub within_s: Option<f64>,
    /// Only those in their state for longer than this, in seconds.
    pub older_s: Option<f64>,
    /// Only those that a rule of the profile calls stuck.
    pub stuck: bool,
    /// At most so many tasks.
    pub limit: u32,
    /// Without texts and owners that only a reader needs.
    pub slim: bool,
}

/// Something that a column must (or must not) say.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// A neutral column of [`FIELDS`], or any of them.
    pub field: Option<&'static str>,
    /// Exactly this, or this within it in whatever case.
    pub exact: bool,
    /// The opposite.
    pub not: bool,
    /// The text.
    pub text: String,
}

/// Columns that a [`Term`] can be about.
pub const FIELDS: [&str; 10] = [
    "native_state",
    "id",
    "queue",
    "kind",
    "worker",
    "tenant",
    "agent",
    "application",
    "batch",
    "last_error",
];

impl Filter {
    /// Also: this column is exactly that, where given.
    #[must_use]
    pub fn with(mut self, field: &'static str, text: Option<&str>) -> Self {
        self.terms.extend(text.map(|text| Term {
            field: Some(field),
            exact: true,
            not: false,
            text: text.to_string(),
        }));
        self
    }

    /// Also: this column contains that, in whatever case, where given.
    #[must_use]
    pub fn containing(mut self, field: &'static str, text: Option<&str>) -> Self {
        self.terms.extend(text.map(|text| Term {
            field: Some(field),
            exact: false,
            not: false,
            text: text.to_string(),
        }));
        self
    }

    /// The one queue that it is about, if so.
    fn queue(&self) -> Option<&str> {
        let mut exact = self.terms.iter().filter(|t| t.exact && !t.not);
        let term = exact.find(|t| t.field == Some("queue"))?;
        Some(&term.text)
    }
}

/// Tasks by state and queue: live ones in their sources' order, then those finished within a day, newest first (failed
/// ones however old, where an index serves them).
pub async fn query(
    session: &Session,
    instance: &Instance,
    filter: &Filter,
    keys: &[String],
    now: ServerTime,
) -> Result<Vec<Task>, Fault> {
    let served = !instance.profile.failed.is_empty() && filter.states == [State::Failed];
    let usual = if served { f64::INFINITY } else { 86_400.0 };
    let since = now.epoch() - filter.within_s.map_or(usual, |s| s.min(usual));
    let since = since.max(0.0);
    let mut values = instance.values.clone();
    values.extend(filter.values(now));
    values.insert("since".into(), Value::Time(since));
    let chosen = |b: &&Branch| match (filter.queue(), b.get("q")) {
        (Some(queue), Some(q)) => queue == q,
        _ => true,
    };
    let branches: Vec<Branch> = instance.branches.iter().filter(chosen).cloned().collect();
    let mut tasks = Vec::new();
    for chunk in branches.chunks(BRANCHES) {
        let sql = instance.union(&[], chunk, |q, branch| {
            let parts = Parts {
                instance,
                branch,
                filter,
            };
            parts.all(q)
        })?;
        let Some(sql) = sql else { continue };
        for row in run(session, &sql, &values)
            .await
            .map_err(|f| instance.blame(f))?
        {
            tasks.push(read(&row, instance, keys, now)?);
        }
    }
    let mut seen = BTreeSet::new();
    tasks.retain(|t| seen.insert(t.key.clone()));
    tasks.truncate(filter.limit as usize);
    Ok(tasks)
}

impl Filter {
    fn values(&self, now: ServerTime) -> Values {
        let states = self.states.iter().map(|s| Some(s.name().to_string()));
        let before = now.epoch() - self.older_s.unwrap_or(0.0);
        let mut values = Values::from([
            ("limit".into(), Value::Int(i64::from(self.limit))),
            ("states".into(), Value::Texts(states.collect())),
            ("before".into(), Value::Float(before)),
            (
                "failure".into(),
                Value::Texts(self.failure.iter().cloned().map(Some).collect()),
            ),
        ]);
        for (n, term) in self.terms.iter().enumerate() {
            values.insert(format!("jt_term{n}"), Value::Text(Some(term.text.clone())));
        }
        values
    }

    fn wants(&self, states: &[State]) -> bool {
        self.states.is_empty() || self.states.iter().any(|s| states.contains(s))
    }
}

/// The statement for one branch.
struct Parts<'a> {
    instance: &'a Instance,
    branch: &'a Branch,
    filter: &'a Filter,
}

impl Parts<'_> {
    fn all(&self, q: &str) -> Result<Vec<String>, Fault> {
        let (instance, branch) = (self.instance, self.branch);
        let p = &instance.profile;
        let want = match self.filter.slim {
            true => Want::Judge,
            false => Want::Whole,
        };
        let mut bodies = Vec::new();
        for live in p.live.iter().filter(|l| self.filter.wants(&l.states)) {
            let rules: Vec<_> = p.stuck.iter().filter(|r| r.live == live.name).collect();
            if self.filter.stuck && rules.is_empty() {
                continue;
            }
            let mut only = self.only(&live.row, Some(live))?;
            let mut order = instance.order(&live.order, branch)?;
            if self.filter.stuck {
                let conds = rules
                    .iter()
                    .map(|r| instance.fill(r.r#where.get_ref(), branch));
                let conds: Vec<String> = conds.collect::<Result<_, _>>()?;
                only += &format!(" AND (({}))", conds.join(") OR ("));
                order = instance.order(&rules[0].order, branch)?;
            }
            let row = selected(instance, &live.row, Some(live), want, branch)?;
            let from = instance.live_from(live, true, branch)?;
            bodies.push(format!(
                "SELECT h.* FROM {q} CROSS JOIN LATERAL (SELECT {row} {from}{only}{order} LIMIT :limit) h LIMIT :limit"
            ));
        }
        let failed = instance.source(&p.failed, branch).ok();
        let failed = failed.filter(|_| self.filter.states == [State::Failed]);
        let ended = [
            State::Succeeded,
            State::Failed,
            State::Cancelled,
            State::Other,
        ];
        if self.filter.wants(&ended)
            && !self.filter.stuck
            && let Some(source) = failed.or(instance.source(&p.finished, branch).ok())
        {
            bodies.push(format!(
                "SELECT {} {}{}{} LIMIT :limit",
                finished(instance, &source.row, want, branch)?,
                instance.from(source, branch)?,
                self.only(&source.row, None)?,
                instance.order(&source.order, branch)?
            ));
        }
        Ok(bodies)
    }

    /// The filter's conditions over a source's rows.
    fn only(&self, own: &BTreeMap<String, Sql>, live: Option<&Live>) -> Result<String, Fault> {
        let column =
            |name: &str, cast: Cast| self.instance.column(own, name, cast, true, self.branch);
        let f = self.filter;
        let mut cond = String::new();
        if !f.states.is_empty() {
            cond += &format!(" AND {} = ANY (:states)", column("state", Cast::Text(20))?);
        }
        for (n, term) in f.terms.iter().enumerate() {
            let one = |name: &str| {
                let column = column(name, Cast::Text(200))?;
                Ok::<_, Fault>(match term.exact {
                    // a text that is not there is as good as an empty one
                    true => format!("coalesce({column}, '') = :jt_term{n}"),
                    false => format!("position(lower(:jt_term{n}) IN lower({column})) > 0"),
                })
            };
            let any: Vec<String> = match term.field {
                Some(name) => vec![one(name)?],
                None => FIELDS
                    .iter()
                    .map(|name| one(name))
                    .collect::<Result<_, _>>()?,
            };
            let not = if term.not { "NOT " } else { "" };
            cond += &format!(" AND {not}coalesce({}, false)", any.join(" OR "));
        }
        if !f.failure.is_empty() {
            let error = normalised(&column("last_error", Cast::Text(200))?);
            cond += &format!(" AND {error} = ANY (:failure)");
        }
        if f.older_s.is_some() {
            let times: &[&str] = match live {
                None => &["finished_at"],
                Some(live) if live.states == [State::Running] => &["started_at", "claimed_at"],
                Some(_) => &["eligible_at"],
            };
            let times = times.iter().chain(&["created_at"]);
            let times: Vec<String> = times
                .map(|name| column(name, Cast::Time))
                .collect::<Result<_, _>>()?;
            cond += &format!(" AND coalesce({}) < :before", times.join(", "));
        }
        Ok(cond)
    }
}
