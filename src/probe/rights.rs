//! Tables of a queue that our role may not read, and what would let it.

use crate::connect::Fault;
use crate::queue::{Instance, faults_of, grants};
use serde::{Deserialize, Serialize};

/// What our role lacks to read a system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Denied {
    /// Name of the system.
    pub system: String,
    /// Its schema.
    pub schema: String,
    /// The tables, without the schema.
    pub tables: Vec<String>,
    /// The statements that grant it, without a semicolon.
    pub grants: Vec<String>,
    /// Some of them could be read before: it was taken while we looked, not meant so from the start.
    pub taken: bool,
}

impl Denied {
    /// Is this fault, as a probe tells it, for want of one of these rights?
    pub fn causes(&self, error: &str) -> bool {
        let rest = error.strip_prefix(&faults_of(&self.system, &self.schema));
        rest.is_some_and(|rest| rest.contains("(42501)"))
    }

    /// System and schema.
    pub fn home(&self) -> (&str, &str) {
        (&self.system, &self.schema)
    }

    /// By the rights as they were when the system was last looked for; `None` where all may be read.
    pub fn of(instance: &Instance, role: &str) -> Result<Option<Self>, Fault> {
        let tables: Vec<String> = instance.closed().into_iter().map(String::from).collect();
        if tables.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            grants: grants::to_monitor(instance, role)?,
            tables,
            taken: false,
        }))
    }
}
