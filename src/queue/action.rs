//! The write behind an operator's action: one statement that locks the rows in id order without waiting, checks on the
//! UPDATE's own target row that each is still what the operator saw, and says for every id asked what became of it.

use super::actions::{Action, Effect};
use super::instance::{Branch, Instance, param_as};
use super::statement::{Value, Values, write};
use crate::action::{Target, Verb};
use crate::connect::{Cells, Fault, Session};

/// What an action amounts to for a system (and queue).
#[derive(Clone, Debug)]
pub enum ActionSql {
    /// It can be done: this statement, with these parameters besides those of [`values`].
    Run {
        /// The statement, with named parameters.
        sql: String,
        /// Settings of the instance that it uses.
        settings: Values,
        /// What it amounts to.
        effect: Effect,
    },
    /// It cannot be done.
    Refuse {
        /// Why.
        why: String,
    },
}

/// What became of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The id asked for.
    pub id: String,
    /// `changed`, `requested`, `locked`, `moved on`, `gone` or `refused`.
    pub outcome: String,
    /// Its native state afterwards; `None` where it is gone.
    pub now_state: Option<String>,
    /// Why it was refused.
    pub why: Option<String>,
}

/// The statement for a verb. Systems that fan out need the queue, since their ids are unique only within one: all
/// targets of one call are of that queue.
pub fn action_sql(instance: &Instance, verb: Verb, queue: &str) -> Result<ActionSql, Fault> {
    let actions = &instance.profile.actions;
    let Some(action) = actions.of(verb) else {
        let why = format!("the profile of {} has no {}", instance.system, verb.name());
        return Ok(ActionSql::Refuse { why });
    };
    if let Some(why) = &action.refuse {
        return Ok(ActionSql::Refuse { why: why.clone() });
    }
    let Some(branch) = instance.branch_of(queue) else {
        let why = format!("{} has no queue {queue} any more", instance.system);
        return Ok(ActionSql::Refuse { why });
    };
    let sql = match &action.statement {
        Some(statement) => instance.fill(statement.get_ref(), branch)?,
        None => guarded(instance, action, branch)?,
    };
    Ok(ActionSql::Run {
        sql,
        settings: instance.values.clone(),
        effect: action.effect,
    })
}

fn guarded(instance: &Instance, action: &Action, branch: &Branch) -> Result<String, Fault> {
    let actions = &instance.profile.actions;
    let part = |sql: &Option<super::profile::Sql>, other: &str| match sql {
        Some(sql) => instance.fill(sql.get_ref(), branch),
        None => Ok(other.to_string()),
    };
    let target = part(&actions.target, "")?;
    let key = part(&actions.key, "")?;
    let key_type = part(&actions.key_type, "text")?;
    let within = part(&actions.within, "true")?;
    let when = part(&action.when, "false")?;
    let native = match instance.profile.row.get("native_state") {
        Some(sql) => instance.fill(sql.get_ref(), branch)?,
        None => "''".into(),
    };
    // what the operator saw, on whichever row version stands there when the lock is held
    let mut same = format!("({native})::text IS NOT DISTINCT FROM jt_w.seen AND ({within})");
    if let Some(version) = &actions.version {
        let version = instance.fill(version.get_ref(), branch)?;
        same += &format!(" AND ({version})::int8 IS NOT DISTINCT FROM jt_w.attempt");
    }
    let mut except = String::new();
    for e in &action.except {
        let when = instance.fill(e.when.get_ref(), branch)?;
        except += &format!(" WHEN ({when}) THEN {}", super::template::literal(&e.why));
    }
    let why = match except.is_empty() {
        true => "'not in a state that permits it'".to_string(),
        false => format!("CASE{except} ELSE 'not in a state that permits it' END"),
    };
    // `seen` is what it is after the lock: with SKIP LOCKED a row that somebody else has is not picked at all
    let pick = format!(
        "jt_want AS MATERIALIZED (SELECT jt_w.id, jt_w.id::{key_type} AS key, jt_w.seen, jt_w.attempt \
           FROM unnest(:ids::text[], :seen::text[], :attempts::int8[]) AS jt_w(id, seen, attempt)), \
         jt_pick AS MATERIALIZED (SELECT {key} AS key FROM {target}, jt_want jt_w WHERE {key} = jt_w.key AND {same} AND ({when}) \
           ORDER BY {key} FOR UPDATE SKIP LOCKED)"
    );
    // FOR UPDATE must name the table only: want is no table
    let alias = target
        .split_whitespace()
        .last()
        .unwrap_or_default()
        .to_string();
    let pick = pick.replace(
        "FOR UPDATE SKIP LOCKED",
        &format!("FOR UPDATE OF {alias} SKIP LOCKED"),
    );
    let effect = match action.effect {
        Effect::Requested => "requested",
        Effect::Changed | Effect::Released => "changed",
    };
    let done = match (&action.set, &action.call) {
        (Some(set), _) => {
            let mut set = instance.fill(set.get_ref(), branch)?;
            for (name, value) in &action.also_set {
                if let (true, Some(opt)) = (
                    instance.exists(name, branch),
                    instance.profile.optional.get(name),
                ) {
                    let column = super::template::ident(&opt.column);
                    set += &format!(", {column} = {}", instance.fill(value.get_ref(), branch)?);
                }
            }
            format!(
                "jt_done AS (UPDATE {target} SET {set} FROM jt_want jt_w, jt_pick jt_p WHERE {key} = jt_p.key AND jt_w.key = jt_p.key AND {same} \
                   AND ({when}) RETURNING {key} AS key, ({native})::text AS now_state)"
            )
        }
        (None, Some(call)) => {
            let call = param_as(&instance.fill(call.get_ref(), branch)?, "id", "jt_p.key");
            format!(
                "jt_done AS MATERIALIZED (SELECT jt_p.key, NULL::text AS now_state FROM jt_pick jt_p CROSS JOIN LATERAL ({call}) AS jt_c)"
            )
        }
        (None, None) => return Err(Fault::own("an action without set or call")),
    };
    Ok(format!(
        "{with}SELECT jt_w.id::text AS id, (CASE WHEN jt_d.key IS NOT NULL THEN '{effect}' WHEN jt_n.here IS NULL THEN 'gone' \
             WHEN NOT jt_n.same THEN 'moved on' WHEN NOT jt_n.allowed THEN 'refused' ELSE 'locked' END)::text AS outcome, \
             coalesce(jt_d.now_state, jt_n.state)::text AS now_state, \
             (CASE WHEN jt_d.key IS NULL AND jt_n.same AND NOT jt_n.allowed THEN jt_n.why END)::text AS why \
           FROM jt_want jt_w LEFT JOIN jt_done jt_d ON jt_d.key = jt_w.key \
           LEFT JOIN LATERAL (SELECT true AS here, coalesce({same}, false) AS same, coalesce({when}, false) AS allowed, \
               ({native})::text AS state, {why} AS why FROM {target} WHERE {key} = jt_w.key AND ({within})) jt_n ON true",
        with = instance.with(&format!("{pick}, {done}"))?
    ))
}

/// The parameters that every action statement may use.
pub fn values(verb: Verb, targets: &[Target], reason: Option<&str>) -> Values {
    let ids = targets.iter().map(|t| Some(t.key.id.clone())).collect();
    let seen = targets
        .iter()
        .map(|t| Some(t.native_state.clone()))
        .collect();
    Values::from([
        ("ids".into(), Value::Texts(ids)),
        ("seen".into(), Value::Texts(seen)),
        (
            "attempts".into(),
            Value::Ints(targets.iter().map(|t| t.attempt).collect()),
        ),
        (
            "tokens".into(),
            Value::Ints(targets.iter().map(|t| t.lease_token).collect()),
        ),
        ("reason".into(), Value::Text(reason.map(String::from))),
        (
            "priority".into(),
            Value::Int(match verb {
                Verb::Priority(n) => n,
                _ => 0,
            }),
        ),
    ])
}

impl ActionSql {
    /// The statement, with its named parameters; empty where there is none.
    pub fn text(&self) -> &str {
        match self {
            ActionSql::Run { sql, .. } => sql,
            ActionSql::Refuse { .. } => "",
        }
    }

    /// Runs it on targets of one system, schema and (where it fans out) queue, and says what became of each.
    pub async fn run(
        &self,
        session: &Session,
        verb: Verb,
        targets: &[Target],
        reason: Option<&str>,
    ) -> Result<Vec<Outcome>, Fault> {
        let (sql, settings) = match self {
            ActionSql::Run { sql, settings, .. } => (sql, settings),
            ActionSql::Refuse { why } => return Err(Fault::own(why.clone())),
        };
        let mut all = values(verb, targets, reason);
        all.extend(settings.clone());
        let rows = write(session, sql, &all).await?;
        let outcome = |row: &tokio_postgres::Row| {
            Ok(Outcome {
                id: row.word("id")?,
                outcome: row.word("outcome")?,
                now_state: row.text("now_state")?,
                why: row.text("why")?,
            })
        };
        rows.iter().map(outcome).collect()
    }
}

/// The journal table of a system, quoted, where it has one.
pub fn journal(instance: &Instance) -> Result<Option<String>, Fault> {
    let Some(table) = &instance.profile.journal else {
        return Ok(None);
    };
    Ok(Some(instance.fill(table.get_ref(), &Branch::new())?))
}
