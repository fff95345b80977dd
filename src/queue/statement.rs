//! A generated statement with named parameters, and the values to run it with.

use super::template::{Piece, pieces};
use crate::connect::{Fault, Session};
use std::collections::BTreeMap;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// text.
    Text(Option<String>),
    /// text, used as a value of another type (`interval`).
    Typed(String, &'static str),
    /// int8, written into the statement: the planner must know a LIMIT.
    Int(i64),
    /// float8.
    Float(f64),
    /// Seconds since 1970, used as timestamptz.
    Time(f64),
    /// text[].
    Texts(Vec<Option<String>>),
    /// int8[].
    Ints(Vec<Option<i64>>),
    /// float8[].
    Floats(Vec<f64>),
}

impl Value {
    fn param(&self) -> Option<(&(dyn ToSql + Sync), Type)> {
        Some(match self {
            Value::Text(v) => (v, Type::TEXT),
            Value::Typed(v, _) => (v, Type::TEXT),
            Value::Int(_) => return None,
            Value::Time(v) | Value::Float(v) => (v, Type::FLOAT8),
            Value::Texts(v) => (v, Type::TEXT_ARRAY),
            Value::Ints(v) => (v, Type::INT8_ARRAY),
            Value::Floats(v) => (v, Type::FLOAT8_ARRAY),
        })
    }

    fn used(&self, n: usize) -> String {
        match self {
            Value::Typed(_, as_type) => format!("(${n}::{as_type})"),
            Value::Int(v) => format!("({v}::int8)"),
            Value::Time(_) => format!("to_timestamp(${n})"),
            _ => format!("${n}"),
        }
    }
}

/// Values by parameter name.
pub type Values = BTreeMap<String, Value>;

/// Turns `:name` into `$n` and picks the values in that order.
pub fn bind<'v>(sql: &str, values: &'v Values) -> Result<(String, Vec<&'v Value>), Fault> {
    let mut out = String::with_capacity(sql.len());
    let mut used: Vec<(&str, &Value)> = Vec::new();
    for piece in pieces(sql) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Blank { name, .. } => {
                return Err(Fault::own(format!("{{{name}}} was not filled in")));
            }
            Piece::Param { name, .. } => {
                if let Some(value @ Value::Int(_)) = values.get(name) {
                    out.push_str(&value.used(0));
                    continue;
                }
                let n = match used.iter().position(|(known, _)| *known == name) {
                    Some(n) => n,
                    None => {
                        let value = values.get(name).ok_or_else(|| {
                            Fault::own(format!("the parameter :{name} has no value"))
                        })?;
                        used.push((name, value));
                        used.len() - 1
                    }
                };
                out.push_str(&used[n].1.used(n + 1));
            }
        }
    }
    Ok((out, used.into_iter().map(|(_, v)| v).collect()))
}

/// Runs a statement of a refresh.
pub async fn run(session: &Session, sql: &str, values: &Values) -> Result<Vec<Row>, Fault> {
    let (sql, values) = bind(sql, values)?;
    let params: Vec<_> = values.iter().filter_map(|v| v.param()).collect();
    session.query(&sql, &params).await
}

/// The same, row by row as they arrive: for those that may be very many.
pub async fn each(
    session: &Session,
    sql: &str,
    values: &Values,
    take: impl FnMut(Row) -> Result<(), Fault> + Send,
) -> Result<(), Fault> {
    let (sql, values) = bind(sql, values)?;
    let params: Vec<_> = values.iter().filter_map(|v| v.param()).collect();
    session.each(&sql, &params, take).await
}

/// Runs a write as it stands.
pub async fn write(session: &Session, sql: &str, values: &Values) -> Result<Vec<Row>, Fault> {
    let (sql, values) = bind(sql, values)?;
    let params: Vec<_> = values.iter().filter_map(|v| v.param()).collect();
    session.write(&sql, &params).await
}
