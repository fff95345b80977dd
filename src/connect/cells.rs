//! Reading rows without trusting them: text may be invalid UTF-8 (SQL_ASCII databases), numbers out of range,
//! anything NULL. Every column of our statements is text, int8, float8 or bool (a plan is json,
//! which travels as text).

use super::Fault;
use crate::probe::{ServerTime, Usd};
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

/// Text of any encoding; what is not UTF-8 becomes U+FFFD.
struct Lossy(String);

impl<'a> FromSql<'a> for Lossy {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(
            *ty,
            Type::TEXT | Type::VARCHAR | Type::NAME | Type::UNKNOWN | Type::JSON
        )
    }
}

/// Checked getters by column name.
pub trait Cells {
    /// A text, or `None` for NULL.
    fn text(&self, column: &str) -> Result<Option<String>, Fault>;
    /// An int8.
    fn int(&self, column: &str) -> Result<Option<i64>, Fault>;
    /// A float8; NaN and infinity are `None`.
    fn float(&self, column: &str) -> Result<Option<f64>, Fault>;
    /// A bool.
    fn flag(&self, column: &str) -> Result<Option<bool>, Fault>;
    /// A float8 of seconds since 1970.
    fn time(&self, column: &str) -> Result<Option<ServerTime>, Fault>;
    /// A numeric that left as text.
    fn usd(&self, column: &str) -> Result<Option<Usd>, Fault>;

    /// A text that must not be NULL; empty then.
    fn word(&self, column: &str) -> Result<String, Fault> {
        Ok(self.text(column)?.unwrap_or_default())
    }

    /// A count: NULL and negative numbers are 0.
    fn count(&self, column: &str) -> Result<u64, Fault> {
        Ok(self.int(column)?.unwrap_or(0).max(0) as u64)
    }
}

fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<Option<T>, Fault> {
    row.try_get(column)
        .map_err(|e| Fault::own(format!("column {column} cannot be read: {e}")))
}

impl Cells for Row {
    fn text(&self, column: &str) -> Result<Option<String>, Fault> {
        Ok(get::<Lossy>(self, column)?.map(|l| l.0))
    }

    fn int(&self, column: &str) -> Result<Option<i64>, Fault> {
        get(self, column)
    }

    fn float(&self, column: &str) -> Result<Option<f64>, Fault> {
        Ok(get::<f64>(self, column)?.filter(|v| v.is_finite()))
    }

    fn flag(&self, column: &str) -> Result<Option<bool>, Fault> {
        get(self, column)
    }

    fn time(&self, column: &str) -> Result<Option<ServerTime>, Fault> {
        Ok(get::<f64>(self, column)?.and_then(ServerTime::from_epoch))
    }

    fn usd(&self, column: &str) -> Result<Option<Usd>, Fault> {
        Ok(self.text(column)?.as_deref().and_then(Usd::parse))
    }
}
