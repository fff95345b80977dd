//! Rows that no sound queue holds, by the invariants that a profile names.

use super::Violation;
use crate::connect::{Cells, Fault, Session};
use crate::queue::Instance;
use crate::queue::statement::{Value, Values, run};

/// Looks back so far, in seconds.
const BACK: f64 = 150.0;
/// Rows counted at most, by invariant.
const ROWS: i64 = 1_000;

/// Looks for violations, all invariants in one statement.
pub async fn poll(
    session: &Session,
    instance: &Instance,
    now: f64,
) -> Result<Vec<Violation>, Fault> {
    let branches = &instance.branches[..instance.branches.len().min(super::depth::BRANCHES)];
    let invariants = &instance.profile.invariants;
    let sql = instance.union(&[], branches, |_, branch| {
        let mut out = Vec::new();
        for (i, invariant) in invariants.iter().enumerate() {
            out.push(format!(
                "SELECT {i}::int8 AS i, count(*)::int8 AS n, to_json((array_agg(x.id))[1 : 10])::text AS ids \
                 FROM (SELECT left(({})::text, 200) AS id FROM {} WHERE ({}) LIMIT :rows) x",
                instance.fill(invariant.id.get_ref(), branch)?,
                instance.fill(invariant.from.get_ref(), branch)?,
                instance.fill(invariant.r#where.get_ref(), branch)?,
            ));
        }
        Ok(out)
    })?;
    let Some(sql) = sql else {
        return Ok(Vec::new());
    };
    let mut values = instance.values.clone();
    values.extend(Values::from([
        ("since".into(), Value::Time(now - BACK)),
        ("rows".into(), Value::Int(ROWS)),
    ]));
    let mut found: Vec<Violation> = Vec::new();
    for row in run(session, &sql, &values)
        .await
        .map_err(|f| instance.blame(f))?
    {
        let n = row.count("n")?;
        let Some(invariant) = invariants.get(row.count("i")? as usize).filter(|_| n > 0) else {
            continue;
        };
        let ids: Vec<Option<String>> = serde_json::from_str(&row.word("ids")?).unwrap_or_default();
        let ids = ids.into_iter().flatten();
        match found.iter_mut().find(|v| v.rule == invariant.rule) {
            Some(known) => {
                known.n += n;
                known.ids.extend(ids);
                known.ids.truncate(10);
            }
            None => found.push(Violation {
                system: instance.system.clone(),
                schema: instance.schema.clone(),
                rule: invariant.rule,
                ids: ids.collect(),
                n,
            }),
        }
    }
    Ok(found)
}
