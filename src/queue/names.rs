//! What SQL in a profile may refer to: blanks, parameters, columns of its row.

use super::columns;
use super::profile::{Source, Sql};
use super::template::{Piece, pieces};
use std::collections::BTreeSet;

/// Where in the file something is wrong, and why.
pub(super) type Check = Result<(), (usize, String)>;

/// The names that a profile declares.
pub(super) struct Names<'a> {
    pub(super) blanks: BTreeSet<&'a str>,
    pub(super) fanout: BTreeSet<String>,
    pub(super) settings: BTreeSet<&'a str>,
    /// What may follow the name of an optional column.
    pub(super) hows: &'static [&'static str],
}

/// What may follow the name of an optional column in an expression.
pub(super) const HOWS: &[&str] = &["type", "exists"];

impl Names<'_> {
    pub(super) fn sql(&self, sql: &Sql, params: &[&str]) -> Check {
        let start = sql.span().start;
        if sql.get_ref().trim().is_empty() {
            return Err((start, "this SQL is empty".into()));
        }
        if sql.get_ref().contains(';') && !sql.get_ref().contains('\'') {
            return Err((start, "one expression or statement, without `;`".into()));
        }
        for piece in pieces(sql.get_ref()) {
            match piece {
                Piece::Text(_) => {}
                Piece::Blank { name, how, at } => {
                    let place = start + at;
                    let fanout = self.fanout.contains(name) || name == "schema" || name == "anchor";
                    let hows: &[&str] = if fanout {
                        &["literal"]
                    } else if self.blanks.contains(name) {
                        self.hows
                    } else {
                        return Err((
                            place,
                            format!(
                                "{{{name}}} is neither schema, anchor, an optional column nor a column of fanout"
                            ),
                        ));
                    };
                    if let Some(how) = how.filter(|h| !hows.contains(h)) {
                        return Err((
                            place,
                            format!("{{{name}:{how}}}: only {} can follow", hows.join(" or ")),
                        ));
                    }
                }
                Piece::Param { name, at } => {
                    if !self.settings.contains(name) && !params.contains(&name) {
                        let mut known: Vec<&str> = params.to_vec();
                        known.extend(&self.settings);
                        return Err((
                            start + at,
                            format!(
                                ":{name} is not a parameter here (known: {})",
                                if known.is_empty() {
                                    "none".into()
                                } else {
                                    known.join(", ")
                                }
                            ),
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn row<'s>(
        &self,
        row: impl IntoIterator<Item = (&'s String, &'s Sql)>,
        known: &[(&str, columns::Cast)],
        params: &[&str],
    ) -> Check {
        for (name, sql) in row {
            if !known.iter().any(|(n, _)| n == name) {
                let names: Vec<&str> = known.iter().map(|(n, _)| *n).collect();
                return Err((
                    sql.span().start,
                    format!(
                        "{name} is not a column of this row (known: {})",
                        names.join(", ")
                    ),
                ));
            }
            self.sql(sql, params)?;
        }
        Ok(())
    }

    pub(super) fn sources(
        &self,
        what: &str,
        near: usize,
        list: &[Source],
        known: &[(&str, columns::Cast)],
        params: &[&str],
        timed: bool,
    ) -> Check {
        for source in list {
            let Some(from) = &source.from else {
                if source.why.is_none() {
                    return Err((
                        near,
                        format!("[[{what}]] needs `from`, or `why` there is none"),
                    ));
                }
                continue;
            };
            let at = from.span().start;
            if source.why.is_some() {
                return Err((
                    at,
                    format!("[[{what}]] has both `from` and `why` there is none"),
                ));
            }
            let Some(cond) = &source.r#where else {
                return Err((at, format!("[[{what}]] needs `where`")));
            };
            if timed && source.at.is_none() {
                return Err((
                    at,
                    format!("[[{what}]] needs `at`, the time that orders its rows"),
                ));
            }
            for sql in [
                Some(from),
                Some(cond),
                source.order.as_ref(),
                source.at.as_ref(),
            ]
            .into_iter()
            .flatten()
            {
                self.sql(sql, params)?;
            }
            if let Some(need) = source
                .needs
                .iter()
                .find(|n| !self.blanks.contains(n.as_str()))
            {
                return Err((
                    at,
                    format!("[[{what}]] needs {need}, which is not in [optional]"),
                ));
            }
            self.row(&source.row, known, params)?;
        }
        Ok(())
    }
}

/// The names after AS: what a fan-out row offers as blanks.
pub(super) fn aliases(sql: &str) -> BTreeSet<String> {
    let words: Vec<&str> = sql
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|w| !w.is_empty())
        .collect();
    words
        .windows(2)
        .filter(|w| w[0].eq_ignore_ascii_case("as"))
        .map(|w| w[1].to_string())
        .collect()
}
