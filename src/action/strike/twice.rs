//! What one should think twice about before it is ended: backups, schema changes, maintenance, replication.

use crate::probe::backend::Backend;

/// Parts of the names of programs that change schemas.
const MIGRATORS: [&str; 9] = [
    "migrat",
    "flyway",
    "liquibase",
    "alembic",
    "sqitch",
    "goose",
    "dbmate",
    "atlas",
    "schemachange",
];
/// Parts of the names of the tables in which they keep what they have done.
const LEDGERS: [&str; 5] = [
    "schema_migrations",
    "flyway_schema_history",
    "databasechangelog",
    "alembic_version",
    "_prisma_migrations",
];

/// Reasons to think twice about ending a session, each with what it costs.
pub fn twice(b: &Backend) -> Vec<&'static str> {
    let application = b.application.to_lowercase();
    let statement = words(&b.statement);
    let starts = |words: &str| {
        let rest = statement.strip_prefix(words);
        rest.is_some_and(|r| r.is_empty() || r.starts_with([' ', '(']))
    };
    let mut reasons = Vec::new();
    if application.starts_with("pg_dump") || application.starts_with("pg_basebackup") {
        reasons.push("a backup: it starts from the beginning again");
    }
    if application.starts_with("pg_restore") {
        reasons.push("a restore: it may stay half done");
    }
    match b.kind.as_str() {
        "" | "client backend" | "parallel worker" => {}
        "walsender" => reasons
            .push("replication: a standby or a subscriber falls behind until it connects again"),
        "autovacuum worker" if statement.contains("to prevent wraparound") => reasons
            .push("autovacuum against wraparound: it comes back at once, and must finish some day"),
        "autovacuum worker" => reasons.push("autovacuum: it comes back, and has to begin anew"),
        kind if kind.starts_with("logical replication") => {
            reasons.push("replication: a subscription stops until its worker starts again");
        }
        _ => reasons.push("a background process of the server"),
    }
    if starts("create index") || starts("create unique index") {
        reasons.push(match statement.contains(" concurrently ") {
            true => "CREATE INDEX CONCURRENTLY: it leaves an invalid index, to be dropped",
            false => "CREATE INDEX: it has to begin anew",
        });
    }
    if starts("reindex") {
        reasons.push(match statement.contains(" concurrently") {
            true => "REINDEX CONCURRENTLY: it leaves an invalid index, to be dropped",
            false => "REINDEX: it has to begin anew",
        });
    }
    if starts("vacuum") && b.kind != "autovacuum worker" {
        reasons.push("VACUUM: it has to begin anew");
    }
    if starts("alter") {
        reasons.push("ALTER: a schema change is rolled back");
    }
    let migrates = MIGRATORS.iter().any(|m| application.contains(m))
        || LEDGERS.iter().any(|l| statement.contains(l));
    if migrates {
        reasons.push("a migration: what it did outside of this transaction stays");
    }
    reasons
}

/// A statement in lower case with single spaces, without the comments before it.
fn words(statement: &str) -> String {
    let mut rest = statement.trim_start();
    loop {
        rest = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(line), _) => line.split_once('\n').map_or("", |(_, r)| r),
            (_, Some(block)) => block.split_once("*/").map_or("", |(_, r)| r),
            _ => break,
        }
        .trim_start();
    }
    let words: Vec<&str> = rest.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, application: &str, statement: &str) -> String {
        let backend = Backend {
            kind: kind.into(),
            application: application.into(),
            statement: statement.into(),
            ..Backend::default()
        };
        twice(&backend).join("; ")
    }

    #[test]
    fn backups_and_schema_changes_are_named() {
        for (application, statement, says) in [
            ("pg_dump", "COPY public.t TO stdout", "a backup"),
            ("pg_restore", "COPY public.t FROM stdin", "a restore"),
            (
                "psql",
                "/* deploy 7 */ -- now\n CREATE  unique INDEX\nCONCURRENTLY i ON t (a)",
                "an invalid index",
            ),
            ("psql", "create index on t (a)", "CREATE INDEX: it has"),
            ("psql", "REINDEX (VERBOSE) TABLE t", "REINDEX: it has"),
            (
                "psql",
                "REINDEX INDEX CONCURRENTLY i",
                "REINDEX CONCURRENTLY",
            ),
            ("psql", "VACUUM(FULL) t", "VACUUM"),
            ("psql", "Alter Table t ADD c int", "ALTER"),
            ("migrate", "SELECT 1", "a migration"),
            (
                "web",
                "INSERT INTO schema_migrations VALUES (1)",
                "a migration",
            ),
        ] {
            let told = of("client backend", application, statement);
            assert!(told.contains(says), "{says:?} in {told:?} for {statement}");
        }
    }

    #[test]
    fn what_serves_the_server_is_named_and_ordinary_work_is_not() {
        assert!(of("walsender", "standby1", "START_REPLICATION 0/1").contains("replication"));
        assert!(of("logical replication apply worker", "", "").contains("replication"));
        assert!(of("autovacuum worker", "", "autovacuum: VACUUM public.t").contains("comes back"));
        let wraparound = "autovacuum: VACUUM public.t (to prevent wraparound)";
        assert!(of("autovacuum worker", "", wraparound).contains("against wraparound"));
        for statement in [
            "UPDATE tasks SET x = 1",
            "alternate",
            "SELECT 'ALTER TABLE'",
            "--",
            "/*",
            "",
        ] {
            assert_eq!(
                of("client backend", "agent-7", statement),
                "",
                "{statement}"
            );
        }
    }
}
