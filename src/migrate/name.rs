//! Schema names: what can be one, and how it is written into SQL.

use anyhow::bail;

/// The longest schema name in bytes: identifiers end at 63, and `<schema>_operator` must fit.
const LONGEST: usize = 63 - "_operator".len();

/// Refuses what Postgres would not take, cut off, or keep for itself.
pub fn check(schema: &str) -> anyhow::Result<()> {
    if schema.is_empty() {
        bail!("the schema name is empty; the usual one is agent_queue");
    }
    if schema.chars().any(char::is_control) {
        bail!("a schema name cannot contain control characters: {schema:?}");
    }
    if schema.len() > LONGEST {
        bail!(
            "the schema name {schema} has {} bytes; at most {LONGEST} fit, since its roles carry it in their names",
            schema.len()
        );
    }
    if schema.starts_with("pg_") || schema == "information_schema" {
        bail!("the schema name {schema} is reserved by Postgres; choose another one");
    }
    Ok(())
}

/// A quoted identifier.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A quoted literal, safe whatever `standard_conforming_strings` says.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_so_that_nothing_escapes() {
        assert_eq!(identifier("Agent Queue-2"), "\"Agent Queue-2\"");
        assert_eq!(
            identifier("a\"; DROP SCHEMA x; --"),
            "\"a\"\"; DROP SCHEMA x; --\""
        );
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
    }

    #[test]
    fn impossible_names_are_refused_with_a_sentence() {
        for bad in [
            "",
            "pg_mine",
            "information_schema",
            "a\0b",
            "a\nb",
            &"x".repeat(55),
        ] {
            assert!(check(bad).is_err(), "{bad:?} was accepted");
        }
        for good in ["agent_queue", "Agent Queue-2", "é\"'", &"x".repeat(54)] {
            assert!(check(good).is_ok(), "{good:?} was refused");
        }
    }
}
