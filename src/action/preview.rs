//! What an action is about, counted when it is asked for: who can be taken and who cannot, tries, owners, spend, ages.

use super::{Choice, Target, Verb};
use crate::connect::session::Purpose;
use crate::connect::{Cells, Fault, Session};
use crate::probe::locks::Tables;
use crate::probe::tasks::{Task, TaskKey, collect};
use crate::probe::{ServerTime, State, Usd};
use crate::queue::Instance;
use crate::queue::action::{ActionSql, action_sql};
use crate::text::thousands;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Tasks at most in one action.
pub const MOST: usize = 50_000;
/// Running tasks that are described one by one.
const NAMED: usize = 4;

/// A running task among the targets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// Which.
    pub id: String,
    /// Who holds it.
    pub worker: Option<String>,
    /// Age of its heartbeat, in seconds.
    pub heartbeat_s: Option<f64>,
    /// Seconds until its lease ends, negative when overdue.
    pub lease_s: Option<f64>,
}

/// What an action is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preview {
    /// What is to be done.
    pub verb: Verb,
    /// Profile.
    pub system: String,
    /// Schema.
    pub schema: String,
    /// Tasks asked for or found.
    pub asked: u64,
    /// More than that match: these are the first.
    pub more: bool,
    /// Those it can be done to, in key order.
    #[serde(skip)]
    pub targets: Vec<Target>,
    /// How many those are.
    pub eligible: u64,
    /// Those it cannot be done to, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Targets by native state.
    pub states: BTreeMap<String, u64>,
    /// Targets by their present priority.
    pub priorities: BTreeMap<String, u64>,
    /// Targets by queue.
    pub queues: BTreeMap<String, u64>,
    /// Targets that have used all their tries.
    pub out_of_tries: u64,
    /// Tries so far and allowed, of a single target.
    pub tries: Option<(i64, i64)>,
    /// Running targets.
    pub running: u64,
    /// The first of them.
    pub held: Vec<Held>,
    /// All targets carry a lease token: what a lost worker does late changes nothing.
    pub fenced: bool,
    /// Spent on the targets so far, over all tries; `None` where nothing is priced.
    pub spent_usd: Option<Usd>,
    /// What trying all targets again usually costs (median of their kinds); `None` where nothing is priced.
    pub again_usd: Option<Usd>,
    /// Targets that `again_usd` stands for.
    pub again_of: u64,
    /// When the oldest target was created, and its id.
    pub oldest: Option<(ServerTime, String)>,
    /// When the newest target was created, and its id.
    pub newest: Option<(ServerTime, String)>,
    /// The server's clock when they were read.
    pub at: ServerTime,
}

/// Reads what an action is about, on any session.
#[derive(Clone, Debug)]
pub struct Asker {
    instance: Instance,
    tables: Tables,
    verb: Verb,
    choice: Choice,
}

impl Asker {
    /// For a system; an error where it cannot do this at all.
    pub fn new(
        instance: &Instance,
        tables: Tables,
        verb: Verb,
        choice: Choice,
    ) -> Result<Self, String> {
        // one that fans out may differ by queue; then its statement tells
        let queue = instance.branches.first().and_then(|b| b.get("q"));
        let sql = action_sql(instance, verb, queue.map_or("", String::as_str));
        if let Ok(ActionSql::Refuse { why }) = sql {
            return Err(why);
        }
        Ok(Self {
            instance: instance.clone(),
            tables,
            verb,
            choice,
        })
    }

    /// Reads the tasks and judges them; a fault for a lock names who holds it.
    pub async fn read(&self, session: &Session) -> Result<Preview, Fault> {
        match self.preview(session).await {
            Err(fault) => Err(self.tables.named(session, fault).await),
            preview => preview,
        }
    }

    async fn preview(&self, session: &Session) -> Result<Preview, Fault> {
        let rows = session
            .query("SELECT date_part('epoch', clock_timestamp()) AS now", &[])
            .await?;
        let now = rows.first().map(|r| r.time("now")).transpose()?.flatten();
        let now = now.ok_or_else(|| Fault::own("the server has no clock"))?;
        let (asked, most, tasks) = match &self.choice {
            Choice::These(keys) => {
                // named twice is asked for once
                let keys: BTreeSet<TaskKey> = keys.iter().cloned().collect();
                let keys: Vec<TaskKey> = keys.into_iter().collect();
                let keys = &keys;
                let tasks = collect::by_keys(session, &self.instance, keys, now).await?;
                (keys.len(), MOST, tasks)
            }
            Choice::Matching { filter, .. } => {
                let mut filter = filter.as_ref().clone();
                let most = MOST.min(filter.limit as usize);
                filter.limit = most as u32 + 1;
                let tasks = collect::matching(session, &self.instance, &filter, now).await?;
                (tasks.len(), most, tasks)
            }
        };
        if !tasks.is_empty() {
            self.may(session).await?;
        }
        let usual = collect::usual_cost(session, &self.instance, now).await;
        // a price list that cannot be read stops nobody
        let usual = match usual {
            Err(fault) if fault.closed => return Err(fault),
            other => other.unwrap_or_default(),
        };
        Ok(Preview::of(
            self.verb,
            (&self.instance.system, &self.instance.schema),
            (asked, most),
            tasks,
            &usual,
            now,
        ))
    }
}

impl Asker {
    /// Carries the statement out on nothing, and takes that back: Postgres itself says whether this role may.
    async fn may(&self, session: &Session) -> Result<(), Fault> {
        let queue = self.instance.branches.first().and_then(|b| b.get("q"));
        let sql = action_sql(&self.instance, self.verb, queue.map_or("", String::as_str))?;
        session.begin(Purpose::Write).await?;
        let tried = sql.run(session, self.verb, &[], None).await;
        session.end("ROLLBACK").await?;
        match tried {
            Err(fault) if fault.is("42501") => Err(Fault::own(super::chunk::unwritten(&fault))),
            Err(fault) if fault.closed => Err(fault),
            // whatever else is wrong will be said where it happens
            _ => Ok(()),
        }
    }
}

impl Preview {
    /// Judges tasks: `asked` of them were asked for, at most `most` are taken.
    pub fn of(
        verb: Verb,
        (system, schema): (&str, &str),
        (asked, most): (usize, usize),
        mut tasks: Vec<Task>,
        usual: &BTreeMap<String, Usd>,
        at: ServerTime,
    ) -> Self {
        let mut p = Self {
            verb,
            system: system.to_string(),
            schema: schema.to_string(),
            asked: asked.min(most) as u64,
            more: asked > most,
            targets: Vec::new(),
            eligible: 0,
            left_out: BTreeMap::new(),
            states: BTreeMap::new(),
            priorities: BTreeMap::new(),
            queues: BTreeMap::new(),
            out_of_tries: 0,
            tries: None,
            running: 0,
            held: Vec::new(),
            fenced: true,
            spent_usd: None,
            again_usd: None,
            again_of: 0,
            oldest: None,
            newest: None,
            at,
        };
        tasks.truncate(most);
        tasks.sort_by(|a, b| order(&a.key).cmp(&order(&b.key)));
        let gone = asked.min(most).saturating_sub(tasks.len()) as u64;
        if gone > 0 {
            p.left_out.insert("not there any more".into(), gone);
        }
        for task in &tasks {
            match verb.refuses(task) {
                Some(why) => *p.left_out.entry(why.to_string()).or_default() += 1,
                None => p.take(task, usual),
            }
        }
        if p.targets.len() != 1 {
            p.tries = None;
        }
        p.eligible = p.targets.len() as u64;
        p
    }

    /// Why tasks are left out and how many each time: `3 succeeded already; 1 not there any more`; empty where none is.
    pub fn why_left_out(&self) -> String {
        let why = self.left_out.iter();
        let why: Vec<String> = why
            .map(|(why, n)| format!("{} {why}", thousands(*n)))
            .collect();
        why.join("; ")
    }

    fn take(&mut self, task: &Task, usual: &BTreeMap<String, Usd>) {
        self.targets.push(Target::of(task));
        *self.states.entry(task.native_state.clone()).or_default() += 1;
        *self.queues.entry(task.key.queue.clone()).or_default() += 1;
        if let Some(p) = task.priority {
            *self.priorities.entry(p.to_string()).or_default() += 1;
        }
        self.tries = task.attempt.zip(task.max_attempts);
        if self.tries.is_some_and(|(used, allowed)| used >= allowed) {
            self.out_of_tries += 1;
        }
        self.fenced &= task.lease_token.is_some();
        if task.state == State::Running {
            self.running += 1;
            if self.held.len() < NAMED {
                self.held.push(Held {
                    id: task.key.id.clone(),
                    worker: task.worker.clone(),
                    heartbeat_s: task.heartbeat_at.and_then(|t| self.at.since(t)),
                    lease_s: task.lease_until.and_then(|t| t.since(self.at)),
                });
            }
        }
        if let Some(usd) = task.cost_usd {
            self.spent_usd = Some(self.spent_usd.unwrap_or_default() + usd);
        }
        if let Some(usd) = task.kind.as_ref().and_then(|k| usual.get(k)) {
            self.again_usd = Some(self.again_usd.unwrap_or_default() + *usd);
            self.again_of += 1;
        }
        if let Some(at) = task.created_at {
            let this = (at, task.key.id.clone());
            if self.oldest.as_ref().is_none_or(|o| at < o.0) {
                self.oldest = Some(this.clone());
            }
            if self.newest.as_ref().is_none_or(|n| at > n.0) {
                self.newest = Some(this);
            }
        }
    }
}

/// Ids that are numbers in the order of numbers.
fn order(key: &TaskKey) -> (&str, usize, &str) {
    let digits = key.id.bytes().all(|b| b.is_ascii_digit());
    let id = key.id.as_str();
    (&key.queue, if digits { id.len() } else { 0 }, id)
}
