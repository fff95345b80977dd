//! A plan on its way: chunk after chunk, each a transaction of its own, with a pause between them; rows that others
//! have locked come again at the end; it can be stopped between two chunks. It runs on any session.

use super::chunk::{Ended, Told, perform, resolve, row, slow, unwritten};
use super::diary::{About, Diary, Loss};
use super::{Fate, Outcome, Plan, Progress, Target as Task};
use crate::connect::{Fault, Session, Target};
use crate::journal::Journal;
use crate::log::{self, told};
use crate::probe::locks::Tables;
use crate::queue::action::ActionSql;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::{Instrument, error, info};

/// Rows in one transaction, at most.
pub const CHUNK: usize = 100;
/// How often rows that were locked by others are tried again at the end.
const AGAIN: u32 = 2;
/// How long they are given before each of those times.
const PATIENCE: Duration = Duration::from_millis(700);

struct Chunk {
    /// Which of the statements.
    step: usize,
    targets: Vec<Task>,
    /// What became of each the last time; none where nothing did.
    before: Vec<Fate>,
}

impl Chunk {
    fn ids(&self) -> Vec<String> {
        self.targets.iter().map(|t| t.key.id.clone()).collect()
    }
}

/// A plan with the statements that carry it out, and how far it is.
pub struct Run {
    plan: Plan,
    steps: Vec<ActionSql>,
    tables: Tables,
    table: Option<String>,
    journal: Journal,
    diary: Option<Diary>,
    todo: VecDeque<Chunk>,
    locked: Vec<(usize, Fate, Task)>,
    again: u32,
    sent: u32,
    whole: bool,
    rows_per_second: f64,
    begun: Instant,
    next: Instant,
    stop: Arc<AtomicBool>,
    outcome: Outcome,
    over: bool,
}

impl Run {
    /// The statements with their targets: one a queue where ids are unique only within one, else a single one.
    /// They may wait for `tables`. `table` is the system's own journal table, quoted, where it has one; `journal` the
    /// local one.
    pub fn new(
        plan: Plan,
        steps: Vec<(ActionSql, Vec<Task>)>,
        tables: Tables,
        table: Option<String>,
        journal: Journal,
        rows_per_second: f64,
    ) -> Self {
        let mut todo = VecDeque::new();
        let mut statements = Vec::new();
        for (sql, targets) in steps {
            let step = statements.len();
            statements.push(sql);
            let chunks = targets.chunks(CHUNK).map(<[Task]>::to_vec);
            todo.extend(chunks.map(|targets| Chunk {
                step,
                targets,
                before: Vec::new(),
            }));
        }
        let now = Instant::now();
        Self {
            outcome: Outcome {
                verb: plan.verb,
                action_id: plan.action_id.clone(),
                asked: plan.targets.len() as u64,
                fates: Vec::new(),
                unknown: 0,
                stopped: None,
            },
            plan,
            steps: statements,
            tables,
            table,
            journal,
            diary: None,
            whole: todo.len() == 1,
            todo,
            locked: Vec::new(),
            again: 0,
            sent: 0,
            rows_per_second,
            begun: now,
            next: now,
            stop: Arc::default(),
            over: false,
        }
    }

    /// Set it, and the run stops before the next chunk.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// When the next chunk is due; `None` when there is none any more.
    pub fn due(&self) -> Option<Instant> {
        (!self.over).then_some(self.next)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let done = self.outcome.fates.len() as u64;
        Progress {
            action_id: self.plan.action_id.clone(),
            asked: self.outcome.asked,
            done,
            changed: self.outcome.changed(),
            per_second: done as f64 / self.begun.elapsed().as_secs_f64().max(0.001),
            locked: self.locked.len() as u64,
        }
    }

    /// Carries out the next chunk. `target` is where to ask when the session dies on the way.
    pub async fn step(&mut self, db: &Session, target: &Target) {
        if self.stop.load(Ordering::Relaxed) {
            return self.end(Some("stopped on request".into()));
        }
        let Some(chunk) = self.todo.pop_front() else {
            return self.once_more();
        };
        let begun = Instant::now();
        self.sent += 1;
        let id = match self.whole && self.sent == 1 {
            true => self.plan.action_id.clone(),
            false => format!("{}/{}", self.plan.action_id, self.sent),
        };
        let span = log::action(&id);
        let down = self.write_down(db, target, &id, &chunk);
        let noted = match down.instrument(span.clone()).await {
            Ok(()) => self.send(db, target, &id, chunk).instrument(span).await,
            Err(why) => {
                self.todo.push_front(chunk);
                return self.end(Some(self.nothing(&why)));
            }
        };
        if let Err(why) = noted {
            self.end(Some(format!("stopped, since {why}")));
        }
        if !self.over && self.todo.is_empty() {
            self.next = Instant::now() + PATIENCE;
            if self.locked.is_empty() || self.again == AGAIN {
                self.once_more();
            }
        } else {
            let share = CHUNK as f64 / self.rows_per_second.max(1.0);
            self.next = begun + Duration::from_secs_f64(share).max(begun.elapsed() * 2);
        }
    }

    /// In the local journal, before it is sent.
    async fn write_down(
        &mut self,
        db: &Session,
        target: &Target,
        id: &str,
        chunk: &Chunk,
    ) -> Result<(), String> {
        if self.diary.is_none() {
            let key = self.plan.targets.first().map(|t| &t.key);
            let about = About {
                id: &self.plan.action_id,
                action: self.plan.verb.noted(),
                home: key.map_or(("", ""), |k| (&k.system, &k.schema)),
                reason: self.plan.reason.as_deref(),
                server: &target.host,
                of: self.outcome.asked,
            };
            let opened = Diary::open(self.journal.clone(), db, about).await;
            self.diary = Some(opened.map_err(|f| f.to_string())?);
        }
        let sql = self.steps[chunk.step].text();
        let diary = self.diary.as_ref();
        diary.map_or(Ok(()), |d| d.begun(id, sql, chunk.ids()))
    }

    /// Sends a chunk, and says whether its outcome could be written down.
    async fn send(
        &mut self,
        db: &Session,
        target: &Target,
        id: &str,
        chunk: Chunk,
    ) -> Result<(), String> {
        let sql = &self.steps[chunk.step];
        let table = self.table.as_deref();
        info!(
            verb = self.plan.verb.name(),
            tasks = chunk.targets.len(),
            "write begins"
        );
        let ended = perform(db, &self.plan, id, sql, &chunk.targets, table).await;
        let Some(diary) = &self.diary else {
            return Ok(());
        };
        match ended {
            Ended::Written(fates) => {
                let changed = fates.iter().filter(|f| f.done()).count();
                info!(tasks = fates.len(), changed, "write committed");
                let noted = diary.ended(&row(&self.plan, id, sql.text(), &fates));
                self.took(chunk, fates);
                noted
            }
            Ended::Nothing(fault) => {
                let fault = self.tables.named(db, fault).await;
                let (sqlstate, reason) = (fault.code.as_deref(), told(&fault));
                error!(sqlstate, reason, "write rolled back");
                let loss = match chunk.targets.len() {
                    1 if slow(&fault) => Loss::Refused,
                    _ => Loss::Undone,
                };
                let noted = diary.failed(id, chunk.ids(), &unwritten(&fault), loss);
                self.failed(chunk, &fault);
                noted
            }
            Ended::Unknown { fates, mark, fault } => {
                let (sqlstate, reason) = (fault.code.as_deref(), told(&fault));
                error!(
                    sqlstate,
                    reason,
                    transaction = mark.xid,
                    "the answer to a commit was lost"
                );
                let fate = resolve(target, &mark, table.map(|t| (t, id))).await;
                info!(transaction = mark.xid, fate = ?fate, "the server was asked what became of it");
                let why = match fate {
                    Told::Committed => format!(
                        "the answer to a commit was lost ({fault}), but the server says it was written"
                    ),
                    Told::RolledBack => {
                        format!("{fault}; the server says that transaction was rolled back")
                    }
                    Told::Nothing => format!(
                        "{fault}; it is not known whether transaction {} was written (action {id} in the journal tells)",
                        mark.xid
                    ),
                };
                let noted = match fate {
                    Told::Committed => diary.ended(&row(&self.plan, id, sql.text(), &fates)),
                    Told::RolledBack => diary.failed(id, chunk.ids(), &why, Loss::Undone),
                    Told::Nothing => diary.failed(id, chunk.ids(), &why, Loss::Unknown),
                };
                match fate {
                    Told::Committed => self.took(chunk, fates),
                    Told::RolledBack => {}
                    Told::Nothing => self.outcome.unknown += chunk.targets.len() as u64,
                }
                self.end(Some(why));
                noted
            }
        }
    }

    /// Takes up the rows that were locked, or ends.
    fn once_more(&mut self) {
        let locked = std::mem::take(&mut self.locked);
        if locked.is_empty() || self.again == AGAIN {
            let fates = locked.into_iter().map(|(_, fate, _)| fate);
            self.outcome.fates.extend(fates);
            return self.end(None);
        }
        self.again += 1;
        for (step, fate, task) in locked {
            match self.todo.back_mut() {
                Some(c) if c.step == step && c.targets.len() < CHUNK => {
                    c.targets.push(task);
                    c.before.push(fate);
                }
                _ => self.todo.push_back(Chunk {
                    step,
                    targets: vec![task],
                    before: vec![fate],
                }),
            }
        }
    }

    fn took(&mut self, chunk: Chunk, fates: Vec<Fate>) {
        for (fate, task) in fates.into_iter().zip(chunk.targets) {
            match fate.outcome.as_str() {
                "locked" => self.locked.push((chunk.step, fate, task)),
                _ => self.outcome.fates.push(fate),
            }
        }
    }

    fn failed(&mut self, mut chunk: Chunk, fault: &Fault) {
        if !slow(fault) {
            return self.end(Some(self.nothing(&unwritten(fault))));
        }
        if chunk.targets.len() == 1 {
            let task = chunk.targets.remove(0);
            self.outcome.fates.push(Fate {
                key: task.key,
                outcome: "failed".into(),
                why: Some(fault.to_string()),
                now_state: None,
            });
            return;
        }
        let half = chunk.targets.split_off(chunk.targets.len() / 2);
        let second = Chunk {
            step: chunk.step,
            targets: half,
            before: Vec::new(),
        };
        chunk.before.clear();
        self.todo.push_front(second);
        self.todo.push_front(chunk);
    }

    /// The session is gone or was never made.
    pub fn give_up(&mut self, fault: &Fault) {
        self.end(Some(self.nothing(&unwritten(fault))));
    }

    fn nothing(&self, why: &str) -> String {
        let more = if self.outcome.fates.is_empty() {
            ""
        } else {
            " more"
        };
        format!("nothing{more} was written: {why}")
    }

    fn end(&mut self, stopped: Option<String>) {
        let locked = std::mem::take(&mut self.locked);
        self.outcome
            .fates
            .extend(locked.into_iter().map(|(_, fate, _)| fate));
        // locked at first, and not tried again
        let left = self.todo.drain(..).flat_map(|c| c.before);
        self.outcome.fates.extend(left);
        if self.outcome.stopped.is_none() {
            self.outcome.stopped = stopped;
        }
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let o = &self.outcome;
        info!(
            action = o.action_id,
            verb = o.verb.name(),
            asked = o.asked,
            changed = o.changed(),
            skipped = o.skipped(),
            unknown = o.unknown,
            not_reached = o.not_reached(),
            "write ends"
        );
    }

    /// What became of it.
    pub fn outcome(self) -> Outcome {
        self.outcome
    }
}

/// Carries a run out on a session of its own, telling how far it is after each chunk.
pub async fn drive(run: &mut Run, db: &Session, target: &Target, told: impl Fn(Progress)) {
    while let Some(due) = run.due() {
        tokio::time::sleep_until(due.into()).await;
        run.step(db, target).await;
        told(run.progress());
    }
}
