//! The tasks most in need of attention: stuck, locked, running longest, to be retried, failed lately, waiting longest.
//! Every part is bounded and uses the source's own order, so that an index serves it.

use super::Task;
use super::row::{Want, finished, read, selected};
use crate::connect::{Cells, Fault, Session};
use crate::probe::queues::depth::{BRANCHES, Depth};
use crate::probe::{ServerTime, State};
use crate::queue::columns::Cast;
use crate::queue::instance::param_as;
use crate::queue::profile::{Live, Source, Sql};
use crate::queue::statement::{Value, Values, run};
use crate::queue::{Branch, Instance};
use std::collections::{BTreeMap, BTreeSet};

/// Rows at most in the list.
pub const LIST: usize = 100;
/// Rows of a source that holds several states that are looked at for one of them.
const SCAN: i64 = 200;
/// Failed tasks count as lately for an hour.
const LATELY: f64 = 3600.0;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Stuck,
    Locked,
    Running,
    Retryable,
    Failed,
    Ready,
}

impl Class {
    const ALL: [Class; 6] = [
        Class::Stuck,
        Class::Locked,
        Class::Running,
        Class::Retryable,
        Class::Failed,
        Class::Ready,
    ];
}

/// The statement behind the list, for one branch.
struct Parts<'a> {
    instance: &'a Instance,
    branch: &'a Branch,
    /// The queues of the branch, as a FROM item.
    q: &'a str,
    /// How much of each task.
    want: Want,
}

impl Parts<'_> {
    /// Rows of a live source, in its order or in a rule's.
    fn rows(
        &self,
        live: &Live,
        class: Class,
        only: Option<&str>,
        order: &Option<Sql>,
        per_queue: bool,
    ) -> Result<String, Fault> {
        let row = selected(self.instance, &live.row, Some(live), self.want, self.branch)?;
        let from = self.instance.live_from(live, per_queue, self.branch)?;
        let only = only.map(|o| format!(" AND ({o})")).unwrap_or_default();
        let order = self.instance.order(order, self.branch)?;
        let n = class as u8;
        Ok(match per_queue {
            true => format!(
                "SELECT {n}::int8 AS class, h.* FROM {} CROSS JOIN LATERAL (SELECT {row} {from}{only}{order} LIMIT :each) h",
                self.q
            ),
            false => format!("SELECT {n}::int8 AS class, {row} {from}{only}{order} LIMIT :limit"),
        })
    }

    /// Whole rows of the ids in `jt_w`, a FROM item.
    fn whole(&self, class: Class, ids: &str, by_id: &Source) -> Result<String, Fault> {
        Ok(format!(
            "SELECT {}::int8 AS class, h.* FROM {ids} CROSS JOIN LATERAL (SELECT {} {} LIMIT 1) h",
            class as u8,
            selected(self.instance, &by_id.row, None, self.want, self.branch)?,
            param_as(&self.instance.from(by_id, self.branch)?, "id", "jt_w.id"),
        ))
    }

    /// Rows in one of a source's several states: looks at the first few in its order, then takes those whole.
    fn picked(&self, live: &Live, class: Class, state: State) -> Result<String, Fault> {
        let per_queue = !live.spans;
        let Ok(by_id) = self
            .instance
            .source(&self.instance.profile.by_id, self.branch)
        else {
            let own = live
                .row
                .get("state")
                .or_else(|| self.instance.profile.row.get("state"));
            let expr = own
                .map(|s| self.instance.fill(s.get_ref(), self.branch))
                .transpose()?;
            let only = expr.map(|expr| format!("({expr}) = '{state}'"));
            return self.rows(live, class, only.as_deref(), &live.order, per_queue);
        };
        let c = |name: &str| {
            self.instance
                .column(&live.row, name, Cast::Text(200), true, self.branch)
        };
        let keys = format!(
            "SELECT {} AS id, {} AS state {}{} LIMIT :scan",
            c("id")?,
            c("state")?,
            self.instance.live_from(live, per_queue, self.branch)?,
            self.instance.order(&live.order, self.branch)?
        );
        let keys =
            format!("(SELECT k.id FROM ({keys}) k WHERE k.state = '{state}' LIMIT :each) jt_w");
        let ids = match per_queue {
            true => format!("{} CROSS JOIN LATERAL {keys}", self.q),
            false => keys,
        };
        self.whole(class, &ids, by_id)
    }

    /// Tasks that gave up lately.
    fn failed(&self) -> Result<Option<String>, Fault> {
        let Ok((source, only)) = gave_up(self.instance, self.branch) else {
            return Ok(None);
        };
        Ok(Some(format!(
            "SELECT {}::int8 AS class, {} {}{only}{} LIMIT :limit",
            Class::Failed as u8,
            finished(self.instance, &source.row, self.want, self.branch)?,
            self.instance.from(source, self.branch)?,
            self.instance.order(&source.order, self.branch)?
        )))
    }

    fn all(&self, locked: bool) -> Result<Vec<String>, Fault> {
        let p = &self.instance.profile;
        let mut out = Vec::new();
        for rule in &p.stuck {
            if let Some(live) = p.live.iter().find(|l| l.name == rule.live) {
                let only = self.instance.fill(rule.r#where.get_ref(), self.branch)?;
                out.push(self.rows(live, Class::Stuck, Some(&only), &rule.order, false)?);
            }
        }
        if locked && let Ok(by_id) = self.instance.source(&p.by_id, self.branch) {
            out.push(self.whole(Class::Locked, "unnest(:locked) AS jt_w(id)", by_id)?);
        }
        for live in &p.live {
            for (state, class) in [
                (State::Running, Class::Running),
                (State::Retryable, Class::Retryable),
                (State::Ready, Class::Ready),
            ] {
                // a few ready ones among others are as urgent as those others are
                let mostly = state != State::Ready || live.states.first() == Some(&state);
                if live.holds(state) && mostly {
                    out.push(match live.states.len() {
                        1 => self.rows(live, class, None, &live.order, !live.spans)?,
                        _ => self.picked(live, class, state)?,
                    });
                }
            }
        }
        out.extend(self.failed()?);
        Ok(out)
    }
}

/// Where a system keeps tasks that gave up, newest first, and what else tells them from the others (` AND ...`): its
/// own source for them, or else its finished tasks. The error says why there is none.
pub fn gave_up<'a>(
    instance: &'a Instance,
    branch: &Branch,
) -> Result<(&'a Source, String), String> {
    let p = &instance.profile;
    let why = match instance.source(&p.failed, branch) {
        Ok(source) => return Ok((source, String::new())),
        Err(why) => why,
    };
    let source = instance.source(&p.finished, branch);
    let source = source.map_err(|other| if p.failed.is_empty() { other } else { why })?;
    let state = source.row.get("state").or_else(|| p.row.get("state"));
    let state = state.ok_or("its rows tell no state")?;
    let state = instance.fill(state.get_ref(), branch);
    let state = state.map_err(|fault| fault.message)?;
    Ok((source, format!(" AND ({state}) = 'failed'")))
}

/// The tasks of one instance that most need attention, most urgent first; with their spend only if `priced`.
pub async fn poll(
    session: &Session,
    instance: &Instance,
    depth: &Depth,
    priced: bool,
    keys: &[String],
    now: ServerTime,
) -> Result<Vec<Task>, Fault> {
    let busy = |b: &&Branch| match b.get("q") {
        Some(q) if instance.branches.len() > BRANCHES => depth
            .queues
            .get(q)
            .is_some_and(|one| one.states.values().any(|c| c.count > 0)),
        _ => true,
    };
    let branches: Vec<Branch> = instance
        .branches
        .iter()
        .filter(busy)
        .take(BRANCHES)
        .cloned()
        .collect();
    let pids: BTreeMap<(&str, &str), i32> = depth
        .queues
        .values()
        .flat_map(|one| &one.locked)
        .map(|l| ((l.queue.as_str(), l.task.as_str()), l.pid))
        .collect();
    let locked = !pids.is_empty();
    let make = || {
        instance.union(&[], &branches, |q, branch| {
            let parts = Parts {
                instance,
                branch,
                q,
                want: if priced { Want::Whole } else { Want::Cheap },
            };
            parts.all(locked)
        })
    };
    let which = u8::from(locked) + 2 * u8::from(priced);
    let Some(sql) = instance.made.get("tasks", which, &branches, make)? else {
        return Ok(Vec::new());
    };
    let queues = depth.queues.len().max(1);
    let limit = (LIST / 4).max(1) as i64;
    let locked = pids
        .keys()
        .map(|(_, id)| Some(id.to_string()))
        .take(LIST / 4)
        .collect();
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("limit".into(), Value::Int(limit)),
        ("each".into(), Value::Int((limit / queues as i64).max(3))),
        ("scan".into(), Value::Int((SCAN / queues as i64).max(20))),
        ("locked".into(), Value::Texts(locked)),
        ("since".into(), Value::Time(now.epoch() - LATELY)),
    ]));
    let rows = run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?;
    let mut classed = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut task = read(row, instance, keys, now)?;
        task.locked_by_pid = pids
            .get(&(task.key.queue.as_str(), task.key.id.as_str()))
            .copied();
        let at = row.count("class")? as usize;
        let class = Class::ALL.get(at).copied().unwrap_or(Class::Ready);
        classed.push((class, task));
    }
    Ok(urgent_first(classed))
}

fn urgent_first(mut classed: Vec<(Class, Task)>) -> Vec<Task> {
    let time = |t: Option<ServerTime>| t.map_or(f64::NEG_INFINITY, ServerTime::epoch);
    let key = |(class, t): &(Class, Task)| match class {
        Class::Stuck => time(t.lease_until),
        Class::Running => time(t.started_at.or(t.claimed_at)),
        Class::Failed => -time(t.finished_at),
        Class::Locked | Class::Retryable | Class::Ready => time(t.eligible_at),
    };
    classed.sort_by(|a, b| a.0.cmp(&b.0).then(key(a).total_cmp(&key(b))));
    let mut seen = BTreeSet::new();
    classed.retain(|(_, t)| seen.insert(t.key.clone()));
    classed.truncate(LIST);
    classed.into_iter().map(|(_, t)| t).collect()
}
