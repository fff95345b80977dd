//! Statements that were made for an instance. Expanding a profile's templates takes longer than sending the result, and
//! the result changes only when the database is looked at anew, which makes a new instance.

use super::Branch;
use crate::connect::Fault;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// Statements kept at most: tables or queues that take turns make many.
const ROOM: usize = 32;

/// Which statement: its probe, which of several, and for which branches.
type Key = (&'static str, u8, u64);

/// The statements of one instance. Copies of an instance share them.
#[derive(Clone, Debug, Default)]
pub struct Made(Arc<Mutex<BTreeMap<Key, Option<Arc<str>>>>>);

impl Made {
    /// The statement of that name for these branches, made now if it was not made before. What it says may depend on
    /// nothing else but the instance and `which`.
    pub fn get(
        &self,
        name: &'static str,
        which: u8,
        branches: &[Branch],
        make: impl FnOnce() -> Result<Option<String>, Fault>,
    ) -> Result<Option<Arc<str>>, Fault> {
        let mut hasher = DefaultHasher::new();
        branches.hash(&mut hasher);
        let key = (name, which, hasher.finish());
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made.get(&key) {
            return Ok(known.clone());
        }
        let fresh: Option<Arc<str>> = make()?.map(Arc::from);
        if made.len() >= ROOM {
            made.clear();
        }
        made.insert(key, fresh.clone());
        Ok(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_made_once_for_the_same_branches() {
        let made = Made::default();
        let branch = |q: &str| vec![Branch::from([("q".to_string(), q.to_string())])];
        let get = |which, q: &str, text: &str| {
            let make = || Ok(Some(text.to_string()));
            let sql = made.get("probe", which, &branch(q), make).expect("made");
            sql.expect("a statement").to_string()
        };
        assert_eq!(get(0, "a", "first"), "first");
        assert_eq!(get(0, "a", "second"), "first");
        assert_eq!(get(1, "a", "third"), "third");
        assert_eq!(get(0, "b", "fourth"), "fourth");
        for n in 0..ROOM {
            get(0, &format!("{n}"), "more");
        }
        assert!(made.0.lock().expect("free").len() <= ROOM);
    }
}
