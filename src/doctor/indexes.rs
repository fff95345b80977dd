//! Indexes that are missing: those that a profile names, and those without which a statement of ours reads a whole
//! table. Each comes with the statement's plan as it is now.

use super::page::{Level, Part};
use super::plan::{self, Plan};
use super::{Seen, columns};
use crate::connect::{Cells, Fault, Session};
use crate::probe::State;
use crate::queue::profile::{Live, Source};
use crate::queue::statement::{Value, Values};
use crate::queue::template::ident;
use crate::queue::{Branch, Instance};
use crate::ui::fmt;
use tokio_postgres::types::Type;

/// Bytes from which on reading a whole table again and again hurts; it fits into a cache below.
const LARGE: u64 = 4 << 20;
/// History is read this far back, in seconds.
const BACK: f64 = 3600.0;

const SIZES: &str = "SELECT x.oid::int8 AS oid, pg_relation_size(x.oid::oid::regclass)::int8 AS bytes \
    FROM unnest($1::int8[]) AS x(oid)";

/// A statement that would be better off with an index.
struct Missing {
    /// Who sends it: probes of ours, and workers.
    whose: String,
    table: String,
    bytes: u64,
    now: Plan,
    why: String,
    index: Option<String>,
    whole: bool,
}

/// One system under examination.
struct Examined<'a> {
    db: &'a Session,
    instance: &'a Instance,
    branch: &'a Branch,
    values: Values,
    sizes: Vec<(u32, u64)>,
}

/// Missing indexes, by system.
pub async fn part(db: &Session, seen: &Seen<'_>) -> Result<Part, Fault> {
    let mut part = Part::new("INDEXES");
    for instance in seen.instances {
        let home = super::home(instance);
        let Some(branch) = instance.branches.first() else {
            part.say(Level::Ok, "indexes", format!("{home}: it has no queue yet"));
            continue;
        };
        let closed = instance.closed();
        if !closed.is_empty() {
            let text = format!("{home}: not examined without {}", closed.join(", "));
            part.say(Level::Note, "indexes", text);
            continue;
        }
        let now = seen.snapshot.taken_at.map_or(0.0, |t| t.epoch());
        let mut values = instance.values.clone();
        values.insert("since".into(), Value::Time(now - BACK));
        values.insert("until".into(), Value::Time(now));
        let examined = Examined {
            db,
            instance,
            branch,
            values,
            sizes: sizes(db, instance).await?,
        };
        let missing = examined.all().await?;
        if missing.is_empty() {
            let text = format!("{home}: none is missing for its claims and our probes");
            part.say(Level::Ok, "indexes", text);
        }
        for m in missing {
            let level = match m.whole && m.bytes >= LARGE {
                true => Level::NeedsDoing,
                false => Level::Note,
            };
            let text = format!(
                "{} ({}): {}; {} now: {}",
                m.table,
                fmt::bytes(m.bytes),
                m.why,
                m.whose,
                m.now.way
            );
            part.advise(level, "missing", text, m.index.into_iter().collect());
        }
    }
    Ok(part)
}

async fn sizes(db: &Session, instance: &Instance) -> Result<Vec<(u32, u64)>, Fault> {
    let oids: Vec<i64> = instance.relations.iter().map(|r| r.oid.into()).collect();
    let rows = db.query(SIZES, &[(&oids, Type::INT8_ARRAY)]).await?;
    let size = |row: &tokio_postgres::Row| Ok((row.count("oid")? as u32, row.count("bytes")?));
    rows.iter().map(size).collect()
}

impl Examined<'_> {
    async fn all(&self) -> Result<Vec<Missing>, Fault> {
        let p = &self.instance.profile;
        let mut all: Vec<Missing> = Vec::new();
        for live in &p.live {
            join(&mut all, self.live(live).await?);
        }
        let lists = [
            ("the list of tasks", &p.finished),
            ("failures", &p.failed),
            ("stages and flow", &p.attempts),
            ("arrivals", &p.arrivals),
            ("cost", &p.cost),
            ("lost workers", &p.lost),
        ];
        for (whose, list) in lists {
            join(&mut all, self.source(whose, list).await?);
        }
        Ok(all)
    }

    /// Live tasks are counted, listed and, where they are ready, claimed.
    async fn live(&self, live: &Live) -> Result<Option<Missing>, Fault> {
        let (instance, branch) = (self.instance, self.branch);
        let from = instance.live_from(live, !live.spans, branch)?;
        let order = instance.order(&live.order, branch)?;
        let sql = format!(
            "{}SELECT 1 AS one FROM (SELECT 'q'::text AS queue) q CROSS JOIN LATERAL (SELECT 1 AS one {from}{order} LIMIT 100) h",
            instance.with("")?
        );
        let claims = live.holds(State::Ready);
        let wanted = &instance.profile.claim_index;
        let cond = instance.fill(live.r#where.get_ref(), branch)?;
        let named = claims && !self.claims_have_theirs(&cond);
        let best = plan::explain(self.db, &sql, &self.values, false).await?;
        let whole = self.reads_whole(&best);
        if !(whole || named && best.sorts) {
            return Ok(None);
        }
        let (why, keys) = match named {
            true => (
                format!(
                    "no index begins with {}, as the profile expects",
                    wanted.join(", ")
                ),
                wanted.as_slice(),
            ),
            false => ("no index serves this".to_string(), &[][..]),
        };
        let source = instance.fill(live.from.get_ref(), branch)?;
        let index = columns::live(&source, &cond, order.trim_start(), keys);
        let whose = match claims {
            true => "claims, queues and tasks".to_string(),
            false => format!("queues and leases ({})", live.name),
        };
        let found = self.missing(whose, &source, &sql, why, index, whole);
        found.await.map(Some)
    }

    /// Rows by time: the profile names the index, and what it does without one.
    async fn source(&self, whose: &str, list: &[Source]) -> Result<Option<Missing>, Fault> {
        let (instance, branch) = (self.instance, self.branch);
        let Ok(chosen) = instance.source(list, branch) else {
            return Ok(None);
        };
        let met =
            |s: &&Source| s.why.is_none() && s.needs.iter().all(|n| instance.exists(n, branch));
        let best = list.iter().find(met).unwrap_or(chosen);
        let sql = format!(
            "{}SELECT 1 AS one {}{}",
            instance.with("")?,
            instance.from(chosen, branch)?,
            instance.order(&chosen.order, branch)?
        );
        let whole = self.reads_whole(&plan::explain(self.db, &sql, &self.values, false).await?);
        let named = !std::ptr::eq(best, chosen) && !best.index.is_empty();
        if !(named || whole) {
            return Ok(None);
        }
        let fill = |part: &Option<crate::queue::profile::Sql>| match part {
            Some(sql) => instance.fill(sql.get_ref(), branch),
            None => Ok(String::new()),
        };
        let table = fill(&best.from)?;
        let (why, index) = match named {
            true => {
                let note = chosen.note.clone();
                let names = best.index.iter().map(|c| ident(c)).collect::<Vec<_>>();
                let why = note.unwrap_or_else(|| format!("no index on {}", best.index.join(", ")));
                (why, columns::on(&table, &names.join(", "), ""))
            }
            false => (
                "no index serves this".into(),
                columns::by_time(&table, &fill(&best.at)?),
            ),
        };
        let found = self.missing(whose.to_string(), &table, &sql, why, index, whole);
        found.await.map(Some)
    }

    /// An index begins with the columns that the profile names, or with those that the condition does not fix.
    fn claims_have_theirs(&self, cond: &str) -> bool {
        let instance = self.instance;
        let free = |c: &&String| !cond.contains(&format!(".{c} = "));
        let wanted = &instance.profile.claim_index;
        let free: Vec<String> = wanted.iter().filter(free).cloned().collect();
        let mut of = instance.relations.iter();
        let anchor = of.find(|r| r.name == instance.anchor);
        let mut indexes = anchor.iter().flat_map(|r| &r.indexes);
        wanted.is_empty() || indexes.any(|(_, c)| c.starts_with(wanted) || c.starts_with(&free))
    }

    fn reads_whole(&self, plan: &Plan) -> bool {
        let ours = |name: &String| self.instance.relations.iter().any(|r| r.name == *name);
        plan.whole.iter().any(ours)
    }

    async fn missing(
        &self,
        whose: String,
        from: &str,
        sql: &str,
        why: String,
        index: Option<String>,
        whole: bool,
    ) -> Result<Missing, Fault> {
        let table = from.split_whitespace().next().unwrap_or_default();
        let of = |r: &crate::queue::Relation| {
            format!("{}.{}", ident(&r.schema), r.name) == table
                || format!("{}.{}", ident(&r.schema), ident(&r.name)) == table
        };
        let relation = self.instance.relations.iter().find(|r| of(r));
        let oid = relation.map_or(0, |r| r.oid);
        let size = self.sizes.iter().find(|(o, _)| *o == oid);
        Ok(Missing {
            whose,
            table: relation.map_or(table.to_string(), |r| r.name.clone()),
            bytes: size.map_or(0, |s| s.1),
            now: plan::explain(self.db, sql, &self.values, true).await?,
            why,
            index,
            whole,
        })
    }
}

/// Statements that one index would help are one matter.
fn join(all: &mut Vec<Missing>, found: Option<Missing>) {
    let Some(found) = found else { return };
    let same = |m: &&mut Missing| m.index.is_some() && m.index == found.index;
    match all.iter_mut().find(same) {
        Some(known) => {
            known.whole |= found.whole;
            known.whose = format!("{}, {}", known.whose, found.whose);
        }
        None => all.push(found),
    }
}
