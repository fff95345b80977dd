//! What several panes need: the gravity of a row, queues by name, totals, forecasts.

use crate::app::row::RowId;
use crate::app::state::App;
use crate::findings::{Finding, Report, Severity};
use crate::probe::activity::Session;
use crate::probe::flow::Flow;
use crate::probe::queues::Queue;
use crate::probe::stages::{Stage, StageName};
use crate::probe::{Bound, Count, ServerTime, Snapshot, State};
use std::collections::{BTreeMap, BTreeSet};

/// The gravest finding whose culprit is this row.
pub fn severity(report: &Report, id: &RowId) -> Option<Severity> {
    report
        .findings
        .iter()
        .filter(|f| f.culprit.as_ref() == Some(id))
        .map(|f| f.severity)
        .max()
}

/// The graver of two.
pub fn graver(a: Option<Severity>, b: Option<Severity>) -> Option<Severity> {
    a.max(b)
}

/// The row of a queue.
pub fn queue_row(queue: &Queue) -> RowId {
    RowId::Queue {
        system: queue.system.clone(),
        schema: queue.schema.clone(),
        queue: queue.queue.clone(),
        kind: None,
    }
}

/// The row of a session or of a group of idle ones. The start is rounded to microseconds, as Postgres keeps it.
pub fn session_row(session: &Session) -> RowId {
    match session.pid {
        Some(pid) => RowId::Session {
            pid,
            started_us: session
                .backend_start
                .map_or(0, |t| (t.epoch() * 1e6).round() as i64),
        },
        None => RowId::Idle {
            application: session.application.to_string(),
            user: session.user.to_string(),
            client: session.client.as_deref().unwrap_or_default().into(),
        },
    }
}

/// The session of that pid.
pub fn session(snapshot: &Snapshot, pid: i32) -> Option<&Session> {
    snapshot.sessions.iter().find(|s| s.pid == Some(pid))
}

/// What pid 0 stands for among those that hold locks, by its name where only one is known.
pub fn prepared(snapshot: &Snapshot) -> String {
    let blames = snapshot.exclusive.iter().map(|lock| &lock.blame);
    let names = blames.filter(|b| b.pid == 0).map(|b| b.prepared.as_deref());
    let names: BTreeSet<Option<&str>> = names.collect();
    match names.first() {
        Some(Some(name)) if names.len() == 1 => format!("prepared transaction {name}"),
        _ => "prepared transaction".into(),
    }
}

/// A pid with the name of its session, where that is listed.
pub fn called(snapshot: &Snapshot, pid: i32) -> String {
    match session(snapshot, pid) {
        Some(s) => format!("{pid} {}", session_name(s)),
        None if pid == 0 => prepared(snapshot),
        None => pid.to_string(),
    }
}

/// Where a lease is infinite.
pub const NO_END: &str = "no end";

/// Is that the end of a lease that does not end?
pub fn no_end(until: Option<ServerTime>) -> bool {
    until.is_some_and(|t| t.epoch() == f64::INFINITY)
}

/// A session's name: its application, else its role.
pub fn session_name(session: &Session) -> &str {
    if session.application.is_empty() {
        &session.user
    } else {
        &session.application
    }
}

/// A name in the order people expect: `agent-2` before `agent-10`.
pub fn natural(name: &str) -> Vec<(u64, String)> {
    let digit = |c: &char| c.is_ascii_digit();
    let chars: Vec<char> = name.chars().collect();
    chars
        .chunk_by(|a, b| digit(a) == digit(b))
        .map(|part| {
            let text: String = part.iter().collect();
            (text.parse().unwrap_or(u64::MAX), text)
        })
        .collect()
}

/// How long the ready tasks last at the present pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drain {
    /// Nothing is waiting.
    Empty,
    /// In so many seconds.
    In(f64),
    /// More comes in than goes out.
    Never,
    /// The pace is not known.
    Unknown,
}

/// The forecast of a queue: its ready tasks over what it gains on its arrivals. A backlog of less than a minute is
/// turned over, whatever comes in.
pub fn drain(queue: &Queue) -> Drain {
    let ready = queue.n(State::Ready) as f64;
    if ready == 0.0 {
        return Drain::Empty;
    }
    let (Some(out), arrivals) = (queue.finished_per_min, queue.in_per_min.unwrap_or(0.0)) else {
        return Drain::Unknown;
    };
    if out <= 0.0 {
        Drain::Never
    } else if ready <= out {
        Drain::In(ready / out * 60.0)
    } else if out > arrivals {
        Drain::In(ready / (out - arrivals) * 60.0)
    } else {
        Drain::Never
    }
}

/// Tasks in a state over all queues, at least, where a system is gone or half there; `None` where no queue knows.
pub fn total(snapshot: &Snapshot, state: State) -> Option<Count> {
    if snapshot.unread("queues").is_some() || snapshot.no_queue().is_some() {
        return None;
    }
    let known = |q: &&Queue| snapshot.half_of(&q.system, &q.schema).is_none();
    let queues = snapshot.queues.iter().filter(known);
    let counts: Vec<Option<Count>> = queues.map(|q| q.count(state)).collect();
    if counts.iter().all(Option::is_none) && !counts.is_empty() {
        return None;
    }
    let mut sum = Count::exact(0);
    for count in counts {
        match count {
            Some(c) => {
                sum.count = sum.count.saturating_add(c.count);
                sum.bound = match (sum.bound, c.bound) {
                    (Bound::Estimate, _) | (_, Bound::Estimate) => Bound::Estimate,
                    (Bound::AtLeast, _) | (_, Bound::AtLeast) => Bound::AtLeast,
                    _ => Bound::Exact,
                };
            }
            None if sum.bound == Bound::Exact => sum.bound = Bound::AtLeast,
            None => {}
        }
    }
    let partly = !snapshot.gone.is_empty() || !snapshot.half_there.is_empty();
    if sum.bound == Bound::Exact && partly {
        sum.bound = Bound::AtLeast;
    }
    // "At least none" says nothing.
    Some(sum).filter(|s| s.count > 0 || s.bound != Bound::AtLeast)
}

/// Tasks that are not finished, over all queues; `None` where no queue knows.
pub fn live(snapshot: &Snapshot) -> Option<Count> {
    let states = [
        State::Ready,
        State::Running,
        State::Scheduled,
        State::Retryable,
        State::Other,
    ];
    let mut known = states.into_iter().filter_map(|s| total(snapshot, s));
    let mut sum = known.next()?;
    for c in known {
        sum.count = sum.count.saturating_add(c.count);
        if c.bound != Bound::Exact {
            sum.bound = c.bound;
        }
    }
    Some(sum)
}

/// Stages by queue: looked up for every row of a table.
pub struct Stages<'a>(BTreeMap<(&'a str, &'a str, &'a str), Vec<&'a Stage>>);

impl<'a> Stages<'a> {
    /// Indexes a snapshot.
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let mut queues: BTreeMap<_, Vec<&Stage>> = BTreeMap::new();
        for s in &snapshot.stages {
            let key = (&*s.system, &*s.schema, &*s.queue);
            queues.entry(key).or_default().push(s);
        }
        Self(queues)
    }

    /// A stage of a queue or of one of its kinds.
    pub fn get(&self, queue: &Queue, kind: Option<&str>, name: StageName) -> Option<&'a Stage> {
        let key = (&*queue.system, &*queue.schema, &*queue.queue);
        let mut of = self.0.get(&key)?.iter();
        of.find(|s| s.stage == name && s.kind.as_deref() == kind)
            .copied()
    }
}

/// The flow of a queue.
pub fn flow<'a>(snapshot: &'a Snapshot, queue: &Queue) -> Option<&'a Flow> {
    snapshot
        .flow
        .iter()
        .find(|f| f.queue == queue.queue && f.system == queue.system && f.schema == queue.schema)
}

/// The queue that a row is about.
pub fn queue_of<'a>(snapshot: &'a Snapshot, row: &RowId) -> Option<&'a Queue> {
    let (system, schema, name) = match row {
        RowId::Queue {
            system,
            schema,
            queue,
            ..
        } => (system, schema, queue),
        RowId::Task(key) => (&key.system, &key.schema, &key.queue),
        _ => return None,
    };
    snapshot
        .queues
        .iter()
        .find(|q| q.system == *system && q.schema == *schema && q.queue == *name)
}

/// What is found wrong with a queue or with one of its kinds, gravest first.
pub fn about_queue<'a>(report: &'a Report, queue: &Queue) -> Vec<&'a Finding> {
    let whole = queue_row(queue);
    let is_its = |row: &RowId| match (row, &whole) {
        (
            RowId::Queue {
                system,
                schema,
                queue,
                kind: Some(_),
            },
            RowId::Queue {
                system: s,
                schema: n,
                queue: q,
                ..
            },
        ) => (system, schema, queue) == (s, n, q),
        _ => *row == whole,
    };
    let its = |f: &&Finding| f.culprit.as_ref().is_some_and(is_its);
    let mut about: Vec<&Finding> = report.findings.iter().filter(its).collect();
    about.sort_by_key(|f| std::cmp::Reverse(f.severity));
    about
}

/// The queues that findings name, those of the gravest first.
pub fn accused<'a>(
    snapshot: &'a Snapshot,
    report: &'a Report,
) -> impl Iterator<Item = &'a Queue> + use<'a> {
    let wrong = report
        .findings
        .iter()
        .filter(|f| f.severity > Severity::Info);
    wrong.filter_map(|f| queue_of(snapshot, f.culprit.as_ref()?))
}

/// The queue worth a picture: the one under the cursor of the stages pane, else the one that the gravest finding is
/// about, else the busiest.
pub fn busiest(app: &App) -> Option<&Queue> {
    let (snapshot, report) = app.shown()?;
    let cursor = app
        .views
        .get(&crate::app::state::PaneId::Stages)
        .and_then(|v| v.cursor.as_ref())
        .filter(|_| app.focus == crate::app::state::PaneId::Stages)
        .and_then(|row| queue_of(snapshot, row));
    // Of the whole window, so that the picture does not change its subject each second.
    let sum = |minutes: Option<&Vec<u32>>| -> u64 {
        minutes.into_iter().flatten().map(|n| u64::from(*n)).sum()
    };
    let pace = |q: &&Queue| match flow(snapshot, q) {
        Some(f) => sum(f.arrived.as_ref()) + sum(f.finished.as_ref()),
        None => 0,
    };
    cursor
        .or_else(|| accused(snapshot, report).next())
        .or_else(|| snapshot.queues.iter().rev().max_by_key(pace))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(ready: u64, arrivals: f64, out: Option<f64>) -> Queue {
        Queue {
            states: [(State::Ready, Some(Count::exact(ready)))].into(),
            in_per_min: Some(arrivals),
            finished_per_min: out,
            ..Queue::default()
        }
    }

    #[test]
    fn a_backlog_drains_by_what_is_gained_on_arrivals() {
        assert_eq!(drain(&queue(0, 10.0, Some(0.0))), Drain::Empty);
        assert_eq!(drain(&queue(5, 10.0, Some(0.0))), Drain::Never);
        assert_eq!(drain(&queue(5, 60.0, Some(60.0))), Drain::In(5.0));
        assert_eq!(drain(&queue(600, 60.0, Some(120.0))), Drain::In(600.0));
        assert_eq!(drain(&queue(600, 60.0, Some(60.0))), Drain::Never);
        assert_eq!(drain(&queue(5, 60.0, None)), Drain::Unknown);
    }

    #[test]
    fn names_are_ordered_as_people_expect() {
        let mut names = [
            "agent-10",
            "agent-2",
            "crawl",
            "agent-1",
            "Ω9999999999999999999999",
        ];
        names.sort_by_cached_key(|n| natural(n));
        assert_eq!(names[..4], ["agent-1", "agent-2", "agent-10", "crawl"]);
    }

    #[test]
    fn a_total_of_which_a_part_is_unknown_is_a_lower_bound() {
        let mut s = Snapshot {
            queues: vec![queue(5, 0.0, None), queue(7, 0.0, None)],
            ..Snapshot::default()
        };
        assert_eq!(total(&s, State::Ready), Some(Count::exact(12)));
        s.queues[1].states.insert(State::Ready, None);
        let known = total(&s, State::Ready).expect("a part is known");
        assert_eq!((known.count, known.bound), (5, Bound::AtLeast));
        s.queues[0].states.insert(State::Ready, None);
        assert_eq!(total(&s, State::Ready), None);

        s.queues = vec![queue(5, 0.0, None)];
        s.gone = vec!["agent_queue in schema agent_queue".into()];
        let known = total(&s, State::Ready).expect("what is left");
        assert_eq!((known.count, known.bound), (5, Bound::AtLeast));
    }
}
