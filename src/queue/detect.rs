//! Which queues live in a database: one query of pg_class and pg_attribute (and a second one for systems with a table
//! per queue). Takes no lock on any task table and needs no rights on them, so it works in the middle of an incident.

use super::instance::{Branch, Instance, Relation};
use super::made::Made;
use super::profile::{Profile, SettingType};
use super::statement::{Value, run};
use super::template::{Piece, pieces};
use crate::connect::{Cells, Fault, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Settings of the user by system, then by name.
pub type Settings = BTreeMap<String, BTreeMap<String, String>>;

const CATALOGUE: &str = "\
SELECT n.nspname::text AS schema, c.relname::text AS relation, c.oid::int8 AS oid, (c.relkind = 'v')::bool AS is_view, \
  (has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE'))::bool AS readable, \
  EXISTS (SELECT FROM pg_roles r WHERE r.rolname = n.nspname || '_monitor' AND pg_has_role(r.oid, 'USAGE')) AS as_monitor, \
  (c.relrowsecurity AND NOT pg_has_role(c.relowner, 'USAGE') \
    AND NOT (SELECT r.rolsuper OR r.rolbypassrls FROM pg_roles r WHERE r.rolname = current_user))::bool AS hides_rows, \
  (SELECT json_object_agg(a.attname, format_type(a.atttypid, NULL)) FROM pg_attribute a \
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)::text AS columns, \
  (SELECT json_agg(json_build_array(ic.relname, (SELECT json_agg(a.attname ORDER BY k.place) \
      FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(num, place) \
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.num WHERE k.place <= i.indnkeyatts)) ORDER BY ic.relname) \
    FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid WHERE i.indrelid = c.oid AND i.indisvalid)::text AS indexes, \
  current_setting('TimeZone')::text AS time_zone \
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
WHERE c.relkind IN ('r', 'p', 'v', 'f') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema') \
  AND n.nspname NOT LIKE 'pg\\_temp%' AND n.nspname NOT LIKE 'pg\\_toast%' AND c.relname LIKE ANY (:names) \
ORDER BY 1, 2 LIMIT 20000";

fn pattern(name: &str) -> String {
    name.replace('\\', "\\\\")
        .replace('_', "\\_")
        .replace('%', "\\%")
        .replace('*', "%")
}

fn plain_name(template: &str) -> Option<String> {
    let parts = pieces(template);
    match parts.last() {
        Some(Piece::Text(text)) => {
            let name = text.rsplit('.').next().unwrap_or(text).trim();
            let fixed = parts.len() == 1 || text.contains('.');
            (fixed && !name.is_empty()).then(|| name.to_string())
        }
        _ => None,
    }
}

/// A table of a name that some profile wants.
pub(super) struct Found {
    /// It.
    pub relation: Relation,
    /// It is a view.
    pub is_view: bool,
    /// The session's time zone.
    pub time_zone: String,
}

/// What there is of the tables that some profile names.
pub struct Catalogue(pub(super) Vec<Found>);

impl Catalogue {
    /// One query, which waits for no lock.
    ///
    /// # Errors
    /// The query failed.
    pub async fn read(session: &Session, profiles: &[Arc<Profile>]) -> Result<Self, Fault> {
        let names = profiles.iter().flat_map(|p| named(p)).collect();
        Ok(Self(tables(session, names).await?))
    }

    /// Every system that a profile describes, in every schema. Of several profiles that fit the same table the most
    /// specific one reads it; among equals the first.
    ///
    /// # Errors
    /// The session is lost, or a profile's own SQL cannot be made.
    pub async fn systems(
        &self,
        session: &Session,
        profiles: &[Arc<Profile>],
        settings: &Settings,
    ) -> Result<Vec<Instance>, Fault> {
        let all = &self.0;
        let mut instances: Vec<Instance> = Vec::new();
        for anchor in all {
            let fits = profiles.iter().filter(|p| is_it(p, anchor, all));
            let weight = |p: &Profile| {
                p.detect.columns.len()
                    + p.detect
                        .also
                        .iter()
                        .map(|a| 1 + a.columns.len())
                        .sum::<usize>()
            };
            // max_by_key takes the last of equals
            let best = fits.rev().max_by_key(|p| weight(p));
            instances.extend(best.map(|p| apply(p, anchor, all, settings)));
        }
        for instance in &mut instances {
            fan_out(session, instance).await?;
        }
        instances.sort_by(|a, b| (&a.system, &a.schema).cmp(&(&b.system, &b.schema)));
        Ok(instances)
    }
}

/// All tables of these names.
async fn tables(session: &Session, names: BTreeSet<String>) -> Result<Vec<Found>, Fault> {
    let names = names.iter().map(|n| Some(pattern(n))).collect();
    let values = BTreeMap::from([("names".to_string(), Value::Texts(names))]);
    let mut out = Vec::new();
    for row in run(session, CATALOGUE, &values).await? {
        let json = |text: Option<String>| text.unwrap_or_else(|| "null".into());
        let columns = serde_json::from_str(&json(row.text("columns")?)).unwrap_or_default();
        let indexes: Vec<(String, Option<Vec<String>>)> =
            serde_json::from_str(&json(row.text("indexes")?)).unwrap_or_default();
        out.push(Found {
            relation: Relation {
                oid: row.int("oid")?.unwrap_or(0) as u32,
                schema: row.word("schema")?,
                name: row.word("relation")?,
                readable: row.flag("readable")?.unwrap_or(false),
                as_monitor: row.flag("as_monitor")?.unwrap_or(false),
                hides_rows: row.flag("hides_rows")?.unwrap_or(false),
                columns,
                indexes: indexes
                    .into_iter()
                    .map(|(n, c)| (n, c.unwrap_or_default()))
                    .collect(),
            },
            is_view: row.flag("is_view")?.unwrap_or(false),
            time_zone: row.word("time_zone")?,
        });
    }
    Ok(out)
}

/// The tables that a profile names.
pub(super) fn named(profile: &Profile) -> BTreeSet<String> {
    let mut names = BTreeSet::from([profile.detect.anchor.clone()]);
    names.extend(profile.detect.also.iter().map(|a| a.relation.clone()));
    let templates = profile
        .optional
        .values()
        .map(|o| &o.relation)
        .chain(&profile.tables);
    names.extend(templates.filter_map(|t| plain_name(t.get_ref())));
    names
}

/// Is it of that name, in which `*` stands for anything?
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

/// May it be a profile's main table, if all that is wanted is there?
pub(super) fn fits(profile: &Profile, anchor: &Found) -> bool {
    let d = &profile.detect;
    let r = &anchor.relation;
    matches(&d.anchor, &r.name)
        && (d.views || !anchor.is_view)
        && (d.schemas.is_empty() || d.schemas.contains(&r.schema))
        && !d.without.iter().any(|c| r.columns.contains_key(c))
}

fn is_it(profile: &Profile, anchor: &Found, all: &[Found]) -> bool {
    let d = &profile.detect;
    let r = &anchor.relation;
    fits(profile, anchor)
        && d.columns.iter().all(|c| r.columns.contains_key(c))
        && d.also.iter().all(|also| {
            all.iter().any(|f| {
                f.relation.schema == r.schema
                    && f.relation.name == also.relation
                    && also
                        .columns
                        .iter()
                        .all(|c| f.relation.columns.contains_key(c))
            })
        })
}

fn apply(profile: &Arc<Profile>, anchor: &Found, all: &[Found], settings: &Settings) -> Instance {
    let names = named(profile);
    let schema = anchor.relation.schema.clone();
    let mut relations = vec![anchor.relation.clone()];
    relations.extend(
        all.iter()
            .map(|f| &f.relation)
            .filter(|r| {
                r.schema == schema && r.oid != anchor.relation.oid && names.contains(&r.name)
            })
            .cloned(),
    );
    let system = profile.system.get_ref().clone();
    let mut notes = profile.notes.clone();
    for r in &relations {
        if !r.readable {
            notes.push(format!(
                "{}.{} cannot be read: GRANT SELECT on it to this role",
                schema, r.name
            ));
        } else if r.hides_rows {
            notes.push(format!(
                "{}.{} has row-level security: rows may be hidden",
                schema, r.name
            ));
        }
    }
    let wanted = &profile.claim_index;
    let claim_index = (!wanted.is_empty())
        .then(|| {
            anchor
                .relation
                .indexes
                .iter()
                .find(|(_, cols)| cols.starts_with(wanted))
        })
        .flatten()
        .map(|(name, _)| name.clone());
    let given = settings.get(&system);
    let values = profile.settings.iter().map(|(name, setting)| {
        let text = given
            .and_then(|s| s.get(name))
            .unwrap_or(&setting.default)
            .clone();
        let value = match setting.kind {
            SettingType::Interval => Value::Typed(text, "interval"),
            SettingType::Int => Value::Typed(text, "int8"),
            SettingType::TimeZone if text.is_empty() => Value::Text(Some(anchor.time_zone.clone())),
            SettingType::TimeZone | SettingType::Text => Value::Text(Some(text)),
        };
        (name.clone(), value)
    });
    Instance {
        profile: profile.clone(),
        system,
        schema,
        anchor: anchor.relation.name.clone(),
        relations,
        claim_index,
        branches: if profile.fanout.is_some() {
            Vec::new()
        } else {
            vec![Branch::new()]
        },
        values: values.collect(),
        notes,
        made: Made::default(),
    }
}

/// Looks again at what a system fans out to. Reads the system's own list, so it may wait for a lock or lack rights:
/// that leaves the branches as they were, with a note.
pub async fn fan_out(session: &Session, instance: &mut Instance) -> Result<(), Fault> {
    let Some(fanout) = instance.profile.fanout.clone() else {
        return Ok(());
    };
    const LOST: &str = "its list of queues cannot be read: ";
    instance.notes.retain(|n| !n.starts_with(LOST));
    let inner = instance.fill(fanout.get_ref(), &Branch::new())?;
    let sql = format!("SELECT row_to_json(f)::text AS branch FROM ({inner}) f LIMIT 2000");
    let rows = match run(session, &sql, &instance.values).await {
        Ok(rows) => rows,
        Err(fault) if fault.closed => return Err(fault),
        Err(fault) => {
            instance.notes.push(format!("{LOST}{fault}"));
            return Ok(());
        }
    };
    let mut branches = Vec::new();
    for row in rows {
        let fields: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(&row.word("branch")?).unwrap_or_default();
        let text = |v: serde_json::Value| match v {
            serde_json::Value::String(s) => s,
            other => other.to_string(),
        };
        branches.push(
            fields
                .into_iter()
                .map(|(k, v)| (k, text(v)))
                .collect::<Branch>(),
        );
    }
    if branches == instance.branches {
        return Ok(());
    }
    let templates: Vec<String> = (instance.profile.optional.values().map(|o| &o.relation))
        .chain(&instance.profile.tables)
        .map(|t| t.get_ref().clone())
        .collect();
    let mut names = BTreeSet::new();
    for branch in &branches {
        for piece in templates.iter().flat_map(|t| pieces(t)) {
            if let Piece::Blank { name, .. } = piece {
                names.extend(branch.get(name).cloned());
            }
        }
    }
    if !names.is_empty() {
        for found in tables(session, names).await? {
            let r = found.relation;
            if r.schema == instance.schema && !instance.relations.iter().any(|k| k.oid == r.oid) {
                instance.relations.push(r);
            }
        }
    }
    instance.branches = branches;
    Ok(())
}
