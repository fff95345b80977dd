//! The part of a profile that says which rights its operators and workers need, and the SQL that grants them. What a
//! monitor needs follows from what the profile reads.

use super::instance::{Branch, Instance, Relation};
use super::names::{Check, Names};
use super::profile::{Profile, Sql};
use super::template::{Piece, expand, ident, literal, pieces};
use crate::connect::Fault;
use crate::sql::copyable;
use crate::text::clean;
use serde::Deserialize;

/// Rights by role. Each list holds GRANT statements that end in `TO {role}`; one with `{name:column}` is left out where
/// that optional column does not exist.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grants {
    /// The system brings its own roles, `<schema>_monitor`, `<schema>_operator` and `<schema>_worker`: what makes them.
    pub made_by: Option<String>,
    /// Besides USAGE on the schema and SELECT on its tables.
    #[serde(default)]
    pub monitor: Vec<Sql>,
    /// Besides what a monitor may do: exactly what the actions change.
    #[serde(default)]
    pub operator: Vec<Sql>,
    /// What claiming, finishing and enqueueing change.
    #[serde(default)]
    pub worker: Vec<Sql>,
}

impl Grants {
    fn lists(&self) -> [&[Sql]; 3] {
        [&self.monitor, &self.operator, &self.worker]
    }
}

/// Every statement is one GRANT to the role, and says nothing that is not known.
pub(super) fn check(p: &Profile, names: &Names<'_>) -> Check {
    let mut known = Names {
        blanks: names.blanks.clone(),
        fanout: names.fanout.clone(),
        settings: Default::default(),
        hows: &["column"],
    };
    known.fanout.insert("role".into());
    for sql in p.grants.lists().into_iter().flatten() {
        known.sql(sql, &[])?;
        let text = sql.get_ref().trim();
        let bare = pieces(text).into_iter().find_map(|piece| match piece {
            Piece::Blank {
                name,
                how: None,
                at,
            } if names.blanks.contains(name) => Some((name, at)),
            _ => None,
        });
        if let Some((name, at)) = bare {
            let why =
                format!("{{{name}}} is an expression: {{{name}:column}} is the column itself");
            return Err((sql.span().start + at, why));
        }
        let one = pieces(text)
            .iter()
            .filter(|p| matches!(p, Piece::Blank { name: "role", .. }))
            .count();
        if !text.starts_with("GRANT ") || !text.ends_with(" TO {role}") || one != 1 {
            let why = "a grant is one statement: GRANT … TO {role}";
            return Err((sql.span().start, why.into()));
        }
    }
    Ok(())
}

/// The first part of the role names where the user gives none.
fn usual_prefix(instance: &Instance) -> String {
    match instance.schema.as_str() {
        "public" => instance.system.clone(),
        schema => format!("{schema}_{}", instance.system),
    }
}

/// SQL for psql that creates the roles of one system and grants them what they need; running it again changes nothing.
pub fn script(instance: &Instance, prefix: Option<&str>) -> Result<String, Fault> {
    let grants = &instance.profile.grants;
    let own = usual_prefix(instance);
    let prefix = match grants.made_by {
        Some(_) => &instance.schema,
        None => prefix.unwrap_or(&own),
    };
    let [monitor, operator, worker] =
        ["monitor", "operator", "worker"].map(|r| format!("{prefix}_{r}"));
    let mut out = Script::default();
    out.say(&format!(
        "{} in schema {}",
        instance.system, instance.schema
    ));
    if let Some(by) = &grants.made_by {
        out.say(&format!(
            "Its roles and their rights were made by {by}. Give each login one of them:"
        ));
        out.logins(&[&monitor, &operator, &worker]);
        return Ok(out.0);
    }
    out.say("Run this as the owner of its tables, who may create roles; running it again changes nothing.");
    let schema = ident(&instance.schema);
    let does = "reads, and sees everybody's sessions (a superuser, or who has its admin option, grants pg_monitor)";
    out.role(&monitor, &schema, does);
    for r in &instance.relations {
        out.run(&select(r, &monitor));
    }
    out.run(&format!("GRANT pg_monitor TO {}", ident(&monitor)));
    out.all(&statements(instance, &grants.monitor, &monitor)?);
    let mut roles = vec![&monitor];
    if grants.operator.is_empty() {
        out.say("The profile names no rights for operators.");
    } else {
        let does = "does what a monitor does, and changes what the actions change";
        out.role(&operator, &schema, does);
        out.run(&format!(
            "GRANT {} TO {}",
            ident(&monitor),
            ident(&operator)
        ));
        out.all(&statements(instance, &grants.operator, &operator)?);
        roles.push(&operator);
    }
    if grants.worker.is_empty() {
        out.say("The profile names no rights for workers.");
    } else {
        out.role(&worker, &schema, "enqueues, claims and finishes");
        out.all(&statements(instance, &grants.worker, &worker)?);
        out.all(&[sequences(instance, &worker)]);
        roles.push(&worker);
    }
    out.say("Then give each login one of them:");
    out.logins(&roles);
    Ok(out.0)
}

fn usage(instance: &Instance, role: &str) -> String {
    format!(
        "GRANT USAGE ON SCHEMA {} TO {}",
        ident(&instance.schema),
        ident(role)
    )
}

fn select(relation: &Relation, role: &str) -> String {
    format!(
        "GRANT SELECT ON {}.{} TO {}",
        ident(&relation.schema),
        ident(&relation.name),
        ident(role)
    )
}

/// What our role lacks to read a system: the role that reads it, where the system brings one, or what that one lacks itself.
pub fn to_monitor(instance: &Instance, role: &str) -> Result<Vec<String>, Fault> {
    let reader = reader(instance);
    let has_it = instance.relations.iter().any(|r| r.as_monitor);
    let to = match &reader {
        Some(reader) if !has_it => return Ok(vec![member(reader, role)]),
        Some(reader) => reader,
        None => role,
    };
    let more = statements(instance, &instance.profile.grants.monitor, to)?;
    let closed = |r: &&Relation| !r.readable;
    let lacking = instance.relations.iter().filter(closed);
    let selects = lacking.map(|r| select(r, to)).collect();
    // one that may be read has the schema's USAGE
    let usage = match instance.relations.iter().all(|r| !r.readable) {
        true => vec![usage(instance, to)],
        false => Vec::new(),
    };
    Ok([usage, selects, more].concat())
}

/// What a role that reads a system needs to change what the actions change, whatever it has already; empty where the
/// profile does not say.
pub fn to_operate(instance: &Instance, role: &str) -> Result<Vec<String>, Fault> {
    match instance.profile.grants.made_by {
        Some(_) => Ok(vec![member(&theirs(instance, "operator"), role)]),
        None => statements(instance, &instance.profile.grants.operator, role),
    }
}

/// The role that reads a system, where the system brings one.
pub fn reader(instance: &Instance) -> Option<String> {
    let brings = instance.profile.grants.made_by.is_some();
    brings.then(|| theirs(instance, "monitor"))
}

fn theirs(instance: &Instance, of: &str) -> String {
    format!("{}_{of}", instance.schema)
}

fn member(of: &str, role: &str) -> String {
    format!("GRANT {} TO {}", ident(of), ident(role))
}

/// The statements of a list for every branch, each once, without those about columns that are not there.
fn statements(instance: &Instance, list: &[Sql], role: &str) -> Result<Vec<String>, Fault> {
    let mut out: Vec<String> = Vec::new();
    for sql in list {
        for branch in &instance.branches {
            if let Some(sql) = statement(instance, sql.get_ref(), role, branch)?
                && !out.contains(&sql)
            {
                out.push(sql);
            }
        }
    }
    Ok(out)
}

fn statement(
    instance: &Instance,
    sql: &str,
    role: &str,
    branch: &Branch,
) -> Result<Option<String>, Fault> {
    let absent = |p: &Piece<'_>| match p {
        Piece::Blank {
            name,
            how: Some("column"),
            ..
        } => !instance.exists(name, branch),
        _ => false,
    };
    if pieces(sql).iter().any(absent) {
        return Ok(None);
    }
    let optional = &instance.profile.optional;
    // what is not ours stays a blank for the instance to fill
    let ours = expand(sql.trim(), &|name, how| match (name, how) {
        ("role", _) => Some(ident(role)),
        (name, Some("column")) => optional.get(name).map(|o| ident(&o.column)),
        (name, Some(how)) => Some(format!("{{{name}:{how}}}")),
        (name, None) => Some(format!("{{{name}}}")),
    });
    let ours = ours.map_err(Fault::own)?;
    instance.fill(&ours, branch).map(Some)
}

/// Rows with a serial key need its sequence, whatever that is called.
fn sequences(instance: &Instance, role: &str) -> String {
    let tables: Vec<String> = instance
        .relations
        .iter()
        .map(|r| literal(&format!("{}.{}", ident(&r.schema), ident(&r.name))))
        .collect();
    let body = format!(
        "DECLARE s record; BEGIN FOR s IN SELECT d.objid::regclass AS name FROM pg_depend d JOIN pg_class c ON c.oid = d.objid \
         WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'a' AND c.relkind = 'S' \
         AND d.refobjid IN (SELECT t::regclass FROM unnest(ARRAY[{}]) t) \
         LOOP EXECUTE format('GRANT USAGE ON SEQUENCE %s TO %I', s.name, {}); END LOOP; END",
        tables.join(", "),
        literal(role)
    );
    format!("DO {}", literal(&body))
}

#[derive(Default)]
struct Script(String);

impl Script {
    fn say(&mut self, text: &str) {
        self.0.push_str(&format!("-- {}\n", clean(text)));
    }

    fn run(&mut self, sql: &str) {
        self.0.push_str(&format!("{};\n", copyable(sql)));
    }

    fn all(&mut self, list: &[String]) {
        list.iter().for_each(|sql| self.run(sql));
    }

    /// Whoever may not create roles can still grant to one that is there.
    fn role(&mut self, role: &str, schema: &str, does: &str) {
        let role_name = ident(role);
        let name = literal(role);
        let body = format!(
            "BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {name}) THEN CREATE ROLE {role_name} NOLOGIN; END IF; \
             EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END"
        );
        self.0.push('\n');
        self.say(&format!("{role} {does}"));
        self.run(&format!("DO {}", literal(&body)));
        self.run(&format!("GRANT USAGE ON SCHEMA {schema} TO {role_name}"));
    }

    fn logins(&mut self, roles: &[&String]) {
        for role in roles {
            self.say(&format!(
                "GRANT {} TO <your login>;",
                copyable(&ident(role))
            ));
        }
    }
}
