//! How many finished tasks there are, from the planner's statistics: no row is read. As old as the last ANALYZE.

use crate::connect::{Cells, Fault, Session};
use crate::probe::{Bound, Count, State};
use crate::queue::Instance;
use crate::queue::statement::{Value, Values, run};
use std::collections::BTreeMap;

const SQL: &str = "\
SELECT greatest(c.reltuples, 0)::float8 AS rows, s.null_frac::float8 AS nulls, \
  to_json(s.most_common_vals::text::text[])::text AS vals, to_json(s.most_common_freqs)::text AS freqs \
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = :column AND NOT s.inherited \
WHERE n.nspname = :schema AND c.relname = :relation";

/// Estimated tasks by final state; `Other` counts native states that the profile does not know. Empty where there are
/// no statistics.
pub async fn poll(session: &Session, instance: &Instance) -> Result<BTreeMap<State, Count>, Fault> {
    let Some(estimate) = &instance.profile.estimate else {
        return Ok(BTreeMap::new());
    };
    let text = |s: &str| Value::Text(Some(s.to_string()));
    let values = Values::from([
        ("schema".into(), text(&instance.schema)),
        ("relation".into(), text(&estimate.relation)),
        ("column".into(), text(&estimate.column)),
    ]);
    let mut out = BTreeMap::new();
    for row in run(session, SQL, &values)
        .await
        .map_err(|f| instance.blame(f))?
    {
        let rows = row.float("rows")?.unwrap_or(0.0);
        let list = |text: Option<String>| text.unwrap_or_else(|| "[]".into());
        let vals: Vec<String> = serde_json::from_str(&list(row.text("vals")?)).unwrap_or_default();
        let freqs: Vec<f64> = serde_json::from_str(&list(row.text("freqs")?)).unwrap_or_default();
        for (value, freq) in vals.iter().zip(freqs) {
            let state = estimate.states.get(value).copied().unwrap_or(State::Other);
            if !state.is_final() && state != State::Other {
                continue;
            }
            let count = out.entry(state).or_insert(Count {
                count: 0,
                bound: Bound::Estimate,
            });
            count.count += (rows * freq).round() as u64;
        }
    }
    Ok(out)
}
