//! The index that a source of a profile asks for: its table, columns and predicate, read from the source's own SQL.
//! Where that is more than plain columns there is no advice rather than a wrong one.

/// `CREATE INDEX` on these columns; `from` begins with the table.
pub fn on(from: &str, columns: &str, predicate: &str) -> Option<String> {
    let table = from.split_whitespace().next()?;
    if table.starts_with('(') || columns.is_empty() {
        return None;
    }
    Some(format!(
        "CREATE INDEX CONCURRENTLY ON {table} ({columns}){predicate};"
    ))
}

/// By the time of a source: `at` is a column of its first table.
pub fn by_time(from: &str, at: &str) -> Option<String> {
    let column = key(at, alias(from)?)?;
    on(from, &column, "")
}

/// For live tasks: the keys in front where given, as the order has them, and only the source's rows where its condition
/// is that of a partial index.
pub fn live(from: &str, cond: &str, order: &str, keys: &[String]) -> Option<String> {
    let alias = alias(from)?;
    let ordered: Vec<String> = order
        .strip_prefix("ORDER BY ")
        .map(|o| o.split(',').map(|item| key(item, alias)).collect())
        .unwrap_or(Some(Vec::new()))?;
    let name = |item: &str| {
        item.split(' ')
            .next()
            .map(|n| n.trim_matches('"').to_string())
    };
    let columns: Vec<String> = match keys.is_empty() {
        true => ordered,
        false => {
            let find = |key: &String| {
                let known = ordered.iter().find(|o| name(o).as_ref() == Some(key));
                known.cloned().unwrap_or_else(|| key.clone())
            };
            keys.iter().map(find).collect()
        }
    };
    let plain = !cond.contains(['(', ':']);
    let predicate = match plain {
        true => format!(" WHERE {}", cond.replace(&format!("{alias}."), "")),
        false => String::new(),
    };
    on(from, &columns.join(", "), &predicate)
}

/// The alias of a table that stands alone or first: `s.tasks t JOIN …`.
fn alias(from: &str) -> Option<&str> {
    from.split_whitespace().nth(1)
}

/// `t.priority DESC` without its alias, where it is a plain column.
fn key(item: &str, alias: &str) -> Option<String> {
    let item = item.trim().strip_prefix(alias)?.strip_prefix('.')?;
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '"' | ' ');
    (!item.is_empty() && item.chars().all(word)).then(|| item.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_index_has_the_order_and_the_predicate_of_the_claim() {
        let from = r#""public".agent_jobs j"#;
        let keys = ["priority".to_string(), "created_at".to_string()];
        let order = "ORDER BY j.priority DESC, j.created_at";
        assert_eq!(
            live(from, "j.status = 'queued'", order, &keys).expect("an index"),
            r#"CREATE INDEX CONCURRENTLY ON "public".agent_jobs (priority DESC, created_at) WHERE status = 'queued';"#
        );
        let keys = ["queue".to_string(), "priority".to_string()];
        assert_eq!(
            live(from, "j.run_after < now()", order, &keys).expect("an index"),
            r#"CREATE INDEX CONCURRENTLY ON "public".agent_jobs (queue, priority DESC);"#
        );
    }

    #[test]
    fn what_is_no_plain_column_gets_no_advice() {
        let from = "s.t x JOIN s.u y ON true";
        assert_eq!(
            by_time(from, "x.\"at\"").as_deref(),
            Some("CREATE INDEX CONCURRENTLY ON s.t (\"at\");")
        );
        assert_eq!(by_time(from, "y.at"), None);
        assert_eq!(by_time(from, "x.at AT TIME ZONE $1"), None);
        assert_eq!(by_time("(SELECT 1) x", "x.at"), None);
        assert_eq!(live(from, "true", "ORDER BY coalesce(x.a, x.b)", &[]), None);
    }
}
