//! Tasks that lose worker after worker.

use super::Poison;
use crate::connect::{Cells, Fault, Session};
use crate::probe::ServerTime;
use crate::probe::tasks::TaskKey;
use crate::queue::Instance;
use crate::queue::columns::LOST;
use crate::queue::statement::{Value, Values, run};
use std::collections::{BTreeMap, BTreeSet};

/// Looks back so far, in seconds.
const BACK: f64 = 3600.0;
/// Lost tries read at most.
const ROWS: i64 = 5_000;
/// Share of the workers that vanish within a minute in a deploy.
const DEPLOY: f64 = 0.3;
/// Fewer workers than this are no deploy: one that is killed by its task would be a third of three.
const FEW: usize = 4;
/// Shown at most, the worst first.
const SHOWN: usize = 50;

/// A lost try.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// Task.
    pub key: TaskKey,
    /// Who lost it.
    pub worker: String,
    /// When, in seconds since 1970.
    pub at: f64,
}

/// Reads the tries lost within the hour and picks the tasks that lost at least two; `workers` is how many there are.
pub async fn poll(
    session: &Session,
    instance: &Instance,
    workers: usize,
    now: ServerTime,
) -> Result<Vec<Poison>, Fault> {
    let sql = instance.union(
        &[],
        &instance.branches[..instance.branches.len().min(32)],
        |_, branch| {
            let Ok(source) = instance.source(&instance.profile.lost, branch) else {
                return Ok(Vec::new());
            };
            let at = source
                .at
                .as_ref()
                .map_or(Ok("NULL".into()), |a| instance.fill(a.get_ref(), branch))?;
            Ok(vec![format!(
                "SELECT date_part('epoch', {at}) AS at, {} {} LIMIT :rows",
                instance.columns(&source.row, LOST, false, branch)?,
                instance.from(source, branch)?
            )])
        },
    )?;
    let Some(sql) = sql else {
        return Ok(Vec::new());
    };
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("since".into(), Value::Time(now.epoch() - BACK)),
        ("until".into(), Value::Time(now.epoch() + 10.0)),
        ("rows".into(), Value::Int(ROWS)),
    ]));
    let mut lost = Vec::new();
    for row in run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?
    {
        let Some(at) = row.float("at")? else { continue };
        lost.push(Lost {
            key: TaskKey {
                system: instance.system.clone(),
                schema: instance.schema.clone(),
                queue: row.word("queue")?,
                id: row.word("task")?,
            },
            worker: row.word("worker")?,
            at,
        });
    }
    Ok(pick(lost, workers))
}

/// Tasks that lost at least two tries outside of deploys, the worst first.
pub fn pick(lost: Vec<Lost>, workers: usize) -> Vec<Poison> {
    let minute = |l: &Lost| (l.at / 60.0).floor() as i64;
    let mut vanished: BTreeMap<i64, BTreeSet<String>> = BTreeMap::new();
    for l in &lost {
        vanished
            .entry(minute(l))
            .or_default()
            .insert(l.worker.clone());
    }
    let everyone: BTreeSet<&String> = lost.iter().map(|l| &l.worker).collect();
    let all = workers.max(everyone.len());
    let deploy = |l: &Lost| {
        let gone = vanished.get(&minute(l)).map_or(0, BTreeSet::len);
        gone >= 2 && all >= FEW && gone as f64 >= DEPLOY * all as f64
    };
    let mut by_task: BTreeMap<TaskKey, Vec<&Lost>> = BTreeMap::new();
    for l in lost.iter().filter(|l| !deploy(l)) {
        by_task.entry(l.key.clone()).or_default().push(l);
    }
    let mut out: Vec<Poison> = by_task
        .into_iter()
        .filter(|(_, l)| l.len() >= 2)
        .map(|(key, l)| {
            let first = l.iter().map(|l| l.at).fold(f64::INFINITY, f64::min);
            let last = l.iter().map(|l| l.at).fold(f64::NEG_INFINITY, f64::max);
            Poison {
                key,
                lost_attempts: l.len() as u32,
                workers: l.iter().map(|l| &l.worker).collect::<BTreeSet<_>>().len() as u32,
                over_s: last - first,
            }
        })
        .collect();
    out.sort_by_key(|p| std::cmp::Reverse(p.lost_attempts));
    out.truncate(SHOWN);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(task: &str, worker: &str, at: f64) -> Lost {
        Lost {
            key: TaskKey {
                id: task.into(),
                ..TaskKey::default()
            },
            worker: worker.into(),
            at,
        }
    }

    #[test]
    fn a_deploy_poisons_nothing() {
        let mut all = vec![
            lost("bad", "w1", 0.0),
            lost("bad", "w2", 300.0),
            lost("bad", "w3", 600.0),
        ];
        for i in 0..6 {
            all.push(lost("victim", &format!("w{i}"), 1200.0 + f64::from(i)));
        }
        let found = pick(all, 10);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (
                found[0].key.id.as_str(),
                found[0].lost_attempts,
                found[0].workers
            ),
            ("bad", 3, 3)
        );
        assert_eq!(found[0].over_s, 600.0);
    }
}
