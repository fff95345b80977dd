//! A profile applied to a database: which schema, which columns exist, which tables or queues it fans out to.

use super::columns::Cast;
use super::made::Made;
use super::profile::{Live, Profile, Source, Sql};
use super::statement::Values;
use super::template::{Piece, expand, ident, literal, pieces};
use crate::connect::Fault;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A table of a queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Relation {
    /// pg_class.oid.
    pub oid: u32,
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// We may read it.
    pub readable: bool,
    /// We have the rights of the role `<schema>_monitor`.
    pub as_monitor: bool,
    /// Row-level security may hide rows from us.
    pub hides_rows: bool,
    /// Columns and their types.
    pub columns: BTreeMap<String, String>,
    /// Its valid indexes and their key columns.
    pub indexes: Vec<(String, Vec<String>)>,
}

/// A table or queue of a system that spreads its tasks over many; one without blanks where it does not.
pub type Branch = BTreeMap<String, String>;

/// A queue system found in a database.
#[derive(Clone, Debug)]
pub struct Instance {
    /// How it is read.
    pub profile: Arc<Profile>,
    /// Name of the system.
    pub system: String,
    /// Schema it lives in.
    pub schema: String,
    /// Main table.
    pub anchor: String,
    /// Its tables.
    pub relations: Vec<Relation>,
    /// The index that claims read.
    pub claim_index: Option<String>,
    /// What it fans out to; never empty unless it fans out to nothing yet.
    pub branches: Vec<Branch>,
    /// Settings, as parameters.
    pub values: Values,
    /// Why figures are missing.
    pub notes: Vec<String>,
    /// Statements made so far.
    pub made: Made,
}

impl Instance {
    /// Does it spread its tasks over tables or queues that are read one by one?
    pub fn fans_out(&self) -> bool {
        self.profile.fanout.is_some()
    }

    /// The branch that holds a queue.
    pub fn branch_of(&self, queue: &str) -> Option<&Branch> {
        match self.fans_out() {
            true => self
                .branches
                .iter()
                .find(|b| b.get("q").is_some_and(|q| q == queue)),
            false => self.branches.first(),
        }
    }

    fn relation(&self, name: &str) -> Option<&Relation> {
        self.relations.iter().find(|r| r.name == name)
    }

    fn optional(&self, name: &str, how: Option<&str>, branch: &Branch) -> Option<String> {
        let opt = self.profile.optional.get(name)?;
        let relation = expand(opt.relation.get_ref(), &|n, _| {
            branch.get(n).cloned().or_else(|| match n {
                "schema" => Some(self.schema.clone()),
                "anchor" => Some(self.anchor.clone()),
                _ => None,
            })
        })
        .ok()?;
        let plain = relation.rsplit('.').next().unwrap_or(&relation);
        let actual = self
            .relation(plain)
            .and_then(|r| r.columns.get(&opt.column));
        Some(match (how, actual) {
            (Some("exists"), found) => found.is_some().to_string(),
            (Some(_), found) => found.unwrap_or(&opt.kind).clone(),
            (None, Some(actual)) => {
                let column = match &opt.alias {
                    Some(alias) => format!("{alias}.{}", ident(&opt.column)),
                    None => ident(&opt.column),
                };
                let naive =
                    actual.starts_with("timestamp") && actual.ends_with("without time zone");
                if naive && opt.kind == "timestamptz" && self.values.contains_key("time_zone") {
                    format!("({column} AT TIME ZONE :time_zone)")
                } else {
                    column
                }
            }
            (None, None) => format!("NULL::{}", opt.kind),
        })
    }

    /// Does an optional column exist?
    pub fn exists(&self, name: &str, branch: &Branch) -> bool {
        self.optional(name, Some("exists"), branch).as_deref() == Some("true")
    }

    /// Fills the blanks of a template.
    pub fn fill(&self, sql: &str, branch: &Branch) -> Result<String, Fault> {
        expand(sql, &|name, how| {
            let value = branch.get(name).map(String::as_str).or(match name {
                "schema" => Some(self.schema.as_str()),
                "anchor" => Some(self.anchor.as_str()),
                _ => None,
            });
            match value {
                Some(value) if how == Some("literal") => Some(literal(value)),
                Some(value) => Some(ident(value)),
                None => self.optional(name, how, branch),
            }
        })
        .map_err(|why| Fault::own(format!("profile {}: {why}", self.profile.file)))
    }

    /// The first source whose needs are met, or why there is none.
    pub fn source<'a>(&self, list: &'a [Source], branch: &Branch) -> Result<&'a Source, String> {
        let mut why = None;
        for source in list {
            let met = source.needs.iter().all(|n| self.exists(n, branch))
                && (source.index.is_empty()
                    || self.relations.iter().any(|r| {
                        r.indexes
                            .iter()
                            .any(|(_, cols)| cols.starts_with(&source.index))
                    }));
            if !met {
                continue;
            }
            match &source.why {
                None => return Ok(source),
                Some(reason) => why = why.or(Some(reason.clone())),
            }
        }
        Err(why.unwrap_or_else(|| "not recorded".into()))
    }

    /// One neutral column of a source: its own expression, the profile's, or a typed NULL.
    pub fn column(
        &self,
        own: &BTreeMap<String, Sql>,
        name: &str,
        cast: Cast,
        shared: bool,
        branch: &Branch,
    ) -> Result<String, Fault> {
        let expr = own
            .get(name)
            .or_else(|| shared.then(|| self.profile.row.get(name)).flatten());
        match expr {
            Some(expr) => Ok(cast.of(&self.fill(expr.get_ref(), branch)?)),
            None => Ok(cast.null().to_string()),
        }
    }

    /// `SELECT` list of neutral columns, each under its name.
    pub fn columns<'c>(
        &self,
        own: &BTreeMap<String, Sql>,
        wanted: impl IntoIterator<Item = &'c (&'c str, Cast)>,
        shared: bool,
        branch: &Branch,
    ) -> Result<String, Fault> {
        let mut list = Vec::new();
        for (name, cast) in wanted {
            let column = self.column(own, name, *cast, shared, branch)?;
            list.push(format!("{column} AS {name}"));
        }
        Ok(list.join(", "))
    }

    /// FROM and WHERE of a live source, within queue `q` when asked.
    pub fn live_from(
        &self,
        live: &Live,
        per_queue: bool,
        branch: &Branch,
    ) -> Result<String, Fault> {
        let from = self.fill(live.from.get_ref(), branch)?;
        let cond = self.fill(live.r#where.get_ref(), branch)?;
        let is = match self.profile.queues.as_ref().and_then(|q| q.is.as_ref()) {
            Some(is) if per_queue => format!(" AND ({})", self.fill(is.get_ref(), branch)?),
            _ => String::new(),
        };
        Ok(format!("FROM {from} WHERE ({cond}){is}"))
    }

    /// FROM and WHERE of another source.
    pub fn from(&self, source: &Source, branch: &Branch) -> Result<String, Fault> {
        let part = |sql: &Option<Sql>| match sql {
            Some(sql) => self.fill(sql.get_ref(), branch),
            None => Ok("true".into()),
        };
        Ok(format!(
            "FROM {} WHERE ({})",
            part(&source.from)?,
            part(&source.r#where)?
        ))
    }

    /// ORDER BY, where given.
    pub fn order(&self, order: &Option<Sql>, branch: &Branch) -> Result<String, Fault> {
        match order {
            Some(order) => Ok(format!(" ORDER BY {}", self.fill(order.get_ref(), branch)?)),
            None => Ok(String::new()),
        }
    }

    /// `WITH` of the profile and of ours, in front of a statement.
    pub fn with(&self, ours: &str) -> Result<String, Fault> {
        let theirs = match &self.profile.with {
            Some(with) => self.fill(with.get_ref(), &Branch::new())?,
            None => String::new(),
        };
        Ok(match (theirs.is_empty(), ours.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!("WITH {ours} "),
            (false, true) => format!("WITH {theirs} "),
            (false, false) => format!("WITH {theirs}, {ours} "),
        })
    }

    /// One statement over branches: the profile's WITH, ours, the queues of each branch as `jt_q0`, `jt_q1`, …, and the
    /// bodies glued together. `None` when there is no branch.
    pub fn union(
        &self,
        ours: &[&str],
        branches: &[Branch],
        body: impl Fn(&str, &Branch) -> Result<Vec<String>, Fault>,
    ) -> Result<Option<String>, Fault> {
        let mut with: Vec<String> = ours.iter().map(|s| s.to_string()).collect();
        let mut bodies = Vec::new();
        for (n, branch) in branches.iter().enumerate() {
            let list = match &self.profile.queues {
                Some(queues) => self.fill(queues.list.get_ref(), branch)?,
                None => "SELECT NULL::text AS queue".into(),
            };
            with.push(format!("jt_q{n} AS MATERIALIZED ({list})"));
            let q = format!("jt_q{n} q");
            bodies.extend(body(&q, branch)?.into_iter().map(|b| format!("({b})")));
        }
        if bodies.is_empty() {
            return Ok(None);
        }
        let with = self.with(&with.join(", "))?;
        Ok(Some(format!("{with}{}", bodies.join(" UNION ALL "))))
    }

    /// Tables that we may not read.
    pub fn closed(&self) -> Vec<&str> {
        let closed = self.relations.iter().filter(|r| !r.readable);
        closed.map(|r| r.name.as_str()).collect()
    }

    /// Is it a fault of this system's that [`blame`](Self::blame) named, for want of one of its `tables`?
    pub fn lacks(&self, error: &str, tables: &[&str]) -> bool {
        let rest = error.strip_prefix(&self.named());
        let all = tables.len() == self.relations.len();
        // without the schema's USAGE no table is named
        rest.is_some_and(|why| {
            why.contains("(42501)") && (all || tables.iter().any(|t| why.contains(t)))
        })
    }

    fn named(&self) -> String {
        faults_of(&self.system, &self.schema)
    }

    /// A fault, named after the system; a lost session is no matter of the system's.
    pub fn blame(&self, fault: Fault) -> Fault {
        if fault.closed {
            return fault;
        }
        let helps = match fault.is("42501") {
            true => " (jobtop grants prints what a monitor needs)",
            false => "",
        };
        Fault {
            message: format!("{}{}{helps}", self.named(), fault.message),
            ..fault
        }
    }
}

/// What faults of a system begin with.
pub fn faults_of(system: &str, schema: &str) -> String {
    format!("{system} ({schema}): ")
}

/// A template whose parameter `:param` is an expression instead.
pub fn param_as(sql: &str, param: &str, expr: &str) -> String {
    let part = |piece: &Piece<'_>| match piece {
        Piece::Param { name, .. } if *name == param => expr.to_string(),
        Piece::Param { name, .. } => format!(":{name}"),
        Piece::Text(text) => text.to_string(),
        Piece::Blank { name, .. } => format!("{{{name}}}"),
    };
    pieces(sql).iter().map(part).collect()
}

/// Sessions that hold a transaction id, as `jt_held (xid, pid)`: a live row whose xmax is one of them is locked or
/// changed by that session's open transaction, whatever its application is called.
pub const HELD: &str = "jt_held AS MATERIALIZED (SELECT l.transactionid AS xid, l.pid::int8 AS pid FROM pg_locks l \
    WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid())";
