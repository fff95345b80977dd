//! How the server would carry a statement out: planned, never run.

use crate::connect::session::Purpose;
use crate::connect::{Cells, Fault, Session};
use crate::queue::statement::{Values, write};
use serde_json::Value;

/// Nodes of a way that are told.
const TOLD: usize = 3;

/// The plan of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// From the top down to what is read: `Limit > Sort > Seq Scan on agent_jobs`.
    pub way: String,
    /// Tables that are read from end to end.
    pub whole: Vec<String>,
    /// It sorts.
    pub sorts: bool,
}

/// Plans a statement with these values; without `freely` the server reads a table from end to end only where no index
/// would do.
pub async fn explain(
    db: &Session,
    sql: &str,
    values: &Values,
    freely: bool,
) -> Result<Plan, Fault> {
    db.begin(Purpose::Poll).await?;
    let rows = async {
        if !freely {
            db.execute("SET LOCAL enable_seqscan = off").await?;
        }
        write(db, &format!("EXPLAIN (FORMAT JSON) {sql}"), values).await
    };
    let rows = rows.await;
    db.end("ROLLBACK").await?;
    let rows = rows?;
    let text = rows.first().map(|row| row.word("QUERY PLAN")).transpose()?;
    let json: Value = serde_json::from_str(&text.unwrap_or_default())
        .map_err(|e| Fault::own(format!("the plan cannot be read: {e}")))?;
    Ok(plan(&json[0]["Plan"]))
}

fn plan(top: &Value) -> Plan {
    let mut plan = Plan::default();
    let mut way = Vec::new();
    walk(top, &mut Vec::new(), &mut plan, &mut way);
    let from = way.len().saturating_sub(TOLD);
    plan.way = way[from..].join(" > ");
    plan
}

/// Takes the way to the first table that is read from end to end, else to the first leaf.
fn walk(node: &Value, above: &mut Vec<String>, plan: &mut Plan, way: &mut Vec<String>) {
    let kind = node["Node Type"].as_str().unwrap_or("?");
    let relation = node["Relation Name"].as_str();
    let name = match (relation, node["Index Name"].as_str()) {
        (Some(relation), Some(index)) => format!("{kind} on {relation} by {index}"),
        (Some(relation), None) => format!("{kind} on {relation}"),
        _ => kind.to_string(),
    };
    above.push(name);
    plan.sorts |= kind == "Sort";
    let whole = relation.filter(|_| kind == "Seq Scan");
    let first = whole.is_some() && plan.whole.is_empty();
    plan.whole.extend(whole.map(String::from));
    let below = node["Plans"].as_array().map_or(&[][..], Vec::as_slice);
    if first || (below.is_empty() && way.is_empty()) {
        way.clone_from(above);
    }
    for node in below {
        walk(node, above, plan, way);
    }
    above.pop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_way_leads_to_what_is_read_whole() {
        let index = json!({"Node Type": "Index Scan", "Relation Name": "tasks", "Index Name": "tasks_pkey"});
        let seq = json!({"Node Type": "Seq Scan", "Relation Name": "tries"});
        let join = json!({"Node Type": "Nested Loop", "Plans": [index, {"Node Type": "Sort", "Plans": [seq]}]});
        let found = plan(&json!({"Node Type": "Limit", "Plans": [join]}));
        assert_eq!(found.way, "Nested Loop > Sort > Seq Scan on tries");
        assert_eq!(found.whole, ["tries"]);
        assert!(found.sorts);
        let found = plan(&json!({"Node Type": "Limit", "Plans": [index]}));
        assert_eq!(found.way, "Limit > Index Scan on tasks by tasks_pkey");
        assert!(found.whole.is_empty() && !found.sorts);
    }
}
