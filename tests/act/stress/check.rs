//! Whether the tables, the journals and what everybody was told tell one story.

use super::super::whole;
use super::line::Line;
use super::{operator, worker};
use jobtop::journal::{Entry, Phase};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// All that is known of a race.
pub struct Story {
    pub line: Line,
    pub enqueued: Vec<i64>,
    pub workers: Vec<worker::Notes>,
    pub operators: Vec<operator::Notes>,
}

/// A chunk in the queue's own journal.
struct Written {
    asked: u64,
    changed: u64,
    skipped: u64,
    outcomes: BTreeMap<String, String>,
}

/// Each finds nothing where all is well.
const NEVER: [(&str, &str); 10] = [
    (
        "a history that is not complete, or does not fit the state",
        "SELECT t.id, t.status, t.attempt, array_agg(a.outcome ORDER BY a.attempt) FROM tasks t LEFT JOIN task_attempts a ON a.task_id = t.id GROUP BY t.id
         HAVING count(a.id) <> t.attempt OR coalesce(max(a.attempt), 0) <> t.attempt
             OR count(*) FILTER (WHERE a.id IS NOT NULL AND a.finished_at IS NULL) <> (t.status = 'processing')::int
             OR count(*) FILTER (WHERE a.outcome = 'completed') <> (t.status = 'completed')::int",
    ),
    (
        "a last try that does not fit the state",
        "SELECT t.id, t.status, a.outcome FROM tasks t JOIN task_attempts a ON a.task_id = t.id AND a.attempt = t.attempt
          WHERE (t.status = 'completed') <> coalesce(a.outcome = 'completed', false) OR (t.status = 'processing') <> (a.outcome IS NULL)
             OR t.status = 'failed' AND a.outcome NOT IN ('failed', 'lease expired') OR t.status = 'processing' AND a.lease_token <> t.lease_token",
    ),
    (
        "a try that begins before the one before has ended, or ends before it began",
        "SELECT * FROM (SELECT *, lag(finished_at) OVER w AS before, lag(lease_token, 1, 0::bigint) OVER w AS token, row_number() OVER w AS n
                          FROM task_attempts WINDOW w AS (PARTITION BY task_id ORDER BY attempt)) a
          WHERE n <> attempt OR n > 1 AND before IS NULL OR claimed_at < before OR lease_token <= token
             OR finished_at < claimed_at OR started_at < claimed_at OR finished_at < started_at",
    ),
    (
        "a result that is not its owner's",
        "SELECT t.id, t.result, a.lease_token FROM tasks t JOIN task_attempts a ON a.task_id = t.id AND a.outcome = 'completed'
          WHERE t.result IS DISTINCT FROM to_jsonb(a.lease_token)",
    ),
    (
        "a change that did not begin where the one before had ended",
        "SELECT * FROM (SELECT *, lag(is_now, 1, 'enqueued') OVER w AS before, lag(new_token, 1, 0::bigint) OVER w AS token
                          FROM log WINDOW w AS (PARTITION BY id ORDER BY n)) l WHERE was <> before OR old_token <> token",
    ),
    (
        "a change that nobody may make",
        "SELECT * FROM log WHERE was <> is_now AND (was, is_now, new_token - old_token, new_attempt - old_attempt) NOT IN (
            ('enqueued', 'processing', 1, 1), ('processing', 'completed', 0, 0), ('processing', 'failed', 0, 0), ('processing', 'failed', 1, 0),
            ('processing', 'cancelled', 0, 0), ('processing', 'cancelled', 1, 0), ('processing', 'enqueued', 0, 0), ('processing', 'enqueued', 1, 0),
            ('failed', 'enqueued', 1, 0), ('cancelled', 'enqueued', 1, 0), ('enqueued', 'cancelled', 0, 0), ('parked', 'cancelled', 0, 0),
            ('enqueued', 'parked', 0, 0), ('parked', 'enqueued', 0, 0))",
    ),
    (
        "a task taken from an owner whose lease had not expired",
        "SELECT * FROM log WHERE was = 'processing' AND new_token > old_token AND lease >= at",
    ),
    (
        "a slot that is not one running task's",
        "SELECT t.id, count(s.slot) FROM tasks t LEFT JOIN slots s ON s.task_id = t.id GROUP BY t.id HAVING count(s.slot) <> (t.status = 'processing')::int",
    ),
    (
        "tries beyond what was allowed",
        "SELECT id FROM tasks WHERE attempt > max_attempts OR attempts_before > attempt OR max_attempts <= attempts_before",
    ),
    (
        "a write without its line in the journal",
        "SELECT l.* FROM log l LEFT JOIN operator_actions o ON o.xmin = l.xid WHERE l.by = 'jobtop write' AND o.action_id IS NULL",
    ),
];

impl Story {
    /// It is one story.
    pub async fn holds(mut self) {
        for (what, sql) in NEVER {
            let found = self.line.rows(&format!("{sql} LIMIT 5")).await;
            assert!(found.is_empty(), "{what}: {found:?}");
        }
        self.nothing_is_lost().await;
        self.workers_were_told_the_truth().await;
        let written = self.written().await;
        self.journals_agree(&written);
        self.operators_were_told_the_truth(&written).await;
        let locks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(self.line.rows(locks).await, [["0"]], "deadlocks");
    }

    async fn nothing_is_lost(&mut self) {
        let ids = self.line.rows("SELECT id FROM tasks").await;
        let there: BTreeSet<i64> = ids.iter().map(|r| r[0].parse().expect("an id")).collect();
        let told: BTreeSet<i64> = self.enqueued.iter().copied().collect();
        assert_eq!(told.len(), self.enqueued.len(), "an id was given twice");
        assert_eq!(there, told);
    }

    async fn workers_were_told_the_truth(&mut self) {
        let sql = "SELECT task_id, lease_token, attempt, worker, outcome FROM task_attempts";
        let rows = self.line.rows(sql).await;
        let number = |text: &String| text.parse::<i64>().expect("a number");
        let tries: HashMap<worker::Held, &Vec<String>> = rows
            .iter()
            .map(|r| ((number(&r[0]), number(&r[1])), r))
            .collect();
        let mut claimed = HashSet::new();
        for claim in self.workers.iter().flat_map(|w| &w.claimed) {
            let held = claim.held;
            assert!(claimed.insert(held), "{held:?} was given to two");
            let row = tries.get(&held).expect("a claim that was told is there");
            assert_eq!(
                (&row[2], &row[3]),
                (&claim.attempt.to_string(), &claim.worker),
                "{held:?}"
            );
        }
        let deaf: HashSet<&String> = self.workers.iter().flat_map(|w| &w.deaf).collect();
        for (held, row) in &tries {
            let known = claimed.contains(held) || deaf.contains(&row[3]);
            assert!(known, "nobody was given {held:?}: {row:?}");
        }
        let mut ended = HashMap::new();
        for (held, outcome) in self.workers.iter().flat_map(|w| &w.ended) {
            assert_eq!(ended.insert(*held, *outcome), None, "{held:?} ended twice");
            assert_eq!(tries[held][4], **outcome, "{held:?} was told so");
        }
        let unheard: HashSet<_> = self.workers.iter().flat_map(|w| &w.unheard).collect();
        for (held, row) in &tries {
            let by_worker = !["-", "lease expired"].contains(&row[4].as_str());
            let told = ended.contains_key(held) || unheard.contains(held);
            assert!(!by_worker || told, "nobody has ended {held:?}: {row:?}");
        }
        for (held, why) in self.workers.iter().flat_map(|w| &w.refused) {
            let taken = tries[held][4] == "lease expired";
            assert!(taken || unheard.contains(held), "{held:?} was told {why:?}");
        }
        let calls = self.line.rows("SELECT call_id FROM usage").await;
        let calls: HashSet<&String> = calls.iter().map(|r| &r[0]).collect();
        for call in self.workers.iter().flat_map(|w| &w.billed) {
            assert!(calls.contains(call), "the bill {call} is lost");
        }
    }

    async fn written(&mut self) -> HashMap<String, Written> {
        let sql = "SELECT action_id, asked, changed, skipped, outcomes FROM operator_actions";
        let rows = self.line.rows(sql).await;
        let number = |text: &String| text.parse::<u64>().expect("a number");
        rows.iter()
            .map(|r| {
                let written = Written {
                    asked: number(&r[1]),
                    changed: number(&r[2]),
                    skipped: number(&r[3]),
                    outcomes: serde_json::from_str(&r[4]).expect("outcomes"),
                };
                (r[0].clone(), written)
            })
            .collect()
    }

    /// What the local journals say was written, was; what was written, they say; and all else they say was not.
    fn journals_agree(&self, written: &HashMap<String, Written>) {
        let mut told = HashSet::new();
        for operator in &self.operators {
            let mut open = HashSet::new();
            let entries = jobtop::journal::read(&operator.journal).expect("a journal");
            let entries: Vec<Entry> = entries.map(|e| e.expect("a whole line")).collect();
            for action in jobtop::journal::pair(entries.clone()) {
                let (id, _) = action.entries[0].action_id.split_at(32);
                let outcome = &operator.acts[id].outcome;
                assert_eq!(action.whole(), whole(outcome), "{outcome:?}");
            }
            for entry in entries {
                let Entry {
                    action_id: id,
                    phase,
                    asked,
                    changed,
                    skipped,
                    outcomes,
                    error,
                    ..
                } = entry;
                if phase == Phase::Begun {
                    assert!(open.insert(id.clone()), "{id} began twice");
                    continue;
                }
                assert!(open.remove(&id), "{id} ended without a beginning");
                let row = written.get(&id);
                if let Some(why) = error {
                    let unknown = why.contains("it is not known");
                    assert!(row.is_none() || unknown, "{id} was written: {why}");
                    if unknown {
                        told.insert(id);
                    }
                    continue;
                }
                let row = row.unwrap_or_else(|| panic!("{id} was not written"));
                assert_eq!(
                    (asked, changed, skipped),
                    (Some(row.asked), Some(row.changed), Some(row.skipped)),
                    "{id}"
                );
                assert_eq!(outcomes, row.outcomes, "{id}");
                assert!(told.insert(id.clone()), "{id} ended twice");
            }
            assert_eq!(open, HashSet::new(), "begun, and no end was told");
        }
        for id in written.keys() {
            assert!(told.contains(id), "{id} was written, and nobody was told");
        }
    }

    /// Each change that was told is one of the task as it was seen, and there is no other.
    async fn operators_were_told_the_truth(&mut self, written: &HashMap<String, Written>) {
        let mut sums: HashMap<&str, u64> = HashMap::new();
        let acts: HashMap<_, _> = self.operators.iter().flat_map(|o| &o.acts).collect();
        let action = |id: &'_ str| id.split('/').next().map(String::from);
        let sql = "SELECT DISTINCT ON (o.action_id, l.id) o.action_id, l.id, l.was, l.old_token
                     FROM operator_actions o JOIN log l ON l.xid = o.xmin ORDER BY o.action_id, l.id, l.n";
        let mut changed: HashMap<String, HashMap<String, (String, i64)>> = HashMap::new();
        for r in self.line.rows(sql).await {
            let was = (r[2].clone(), r[3].parse().expect("a token"));
            let of = changed.entry(r[0].clone()).or_default();
            of.insert(r[1].clone(), was);
        }
        for (id, row) in written {
            let action = action(id).expect("a name");
            let (name, act) = acts.get_key_value(&action).expect("an action of ours");
            *sums.entry(name.as_str()).or_default() += row.changed;
            let done = |o: &String| o == "changed" || o == "requested";
            let told = row.outcomes.iter().filter(|(_, o)| done(o));
            let told: HashMap<&String, &(String, i64)> =
                told.map(|(task, _)| (task, &act.seen[task])).collect();
            let none = HashMap::new();
            let found = changed.get(id).unwrap_or(&none);
            let found: HashMap<&String, &(String, i64)> = found.iter().collect();
            assert_eq!(told, found, "{id}: told and seen, and what was changed");
        }
        for (id, act) in acts {
            let sum = sums.get(id.as_str()).copied().unwrap_or(0);
            let told = act.outcome.changed();
            let unknown = act.outcome.unknown;
            assert!(
                told <= sum && sum <= told + unknown,
                "{id}: {sum} changed, {:?}",
                act.outcome
            );
        }
    }
}
