//! Connection slots: how many an ordinary role may have, and which applications hold them.

use super::activity::Connections;
use crate::text::{clean, thousands as count};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Applications listed at most.
const LISTED: usize = 5;

/// Sessions that call themselves alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Application {
    /// application_name; empty where none was given.
    pub name: String,
    /// Client sessions of the whole cluster.
    pub used: u32,
}

impl Application {
    /// Its name, cleaned; `(no name)` where it has none.
    pub fn who(&self) -> String {
        let name = clean(&self.name);
        match name.trim() {
            "" => "(no name)".into(),
            name => name.into(),
        }
    }
}

/// The applications with the most sessions.
pub(super) fn most(by_name: BTreeMap<String, u32>) -> Vec<Application> {
    let mut all: Vec<(String, u32)> = by_name.into_iter().collect();
    all.sort_by_key(|(_, used)| Reverse(*used));
    all.truncate(LISTED);
    let row = |(name, used)| Application { name, used };
    all.into_iter().map(row).collect()
}

impl Connections {
    /// Slots that ordinary roles share.
    pub fn usable(&self) -> u32 {
        self.max.saturating_sub(self.reserved)
    }

    /// `57 of max_connections 60 are for everyone, 3 reserved`.
    pub fn arithmetic(&self) -> String {
        format!(
            "{} of max_connections {} are for everyone, {} reserved",
            count(self.usable().into()),
            count(self.max.into()),
            count(self.reserved.into())
        )
    }

    /// `41 used: api 31, psql 10`; the names are cleaned.
    pub fn holders(&self) -> String {
        let one = |a: &Application| format!("{} {}", a.who(), count(a.used.into()));
        let most: Vec<String> = self.applications.iter().map(one).collect();
        format!("{} used: {}", count(self.used.into()), most.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_names_are_harmless() {
        let by_name = [("a\u{202e}pi", 3), ("", 2), ("agents", 30)];
        let by_name = by_name.map(|(name, used)| (name.to_string(), used));
        let connections = Connections {
            max: 60,
            reserved: 3,
            used: 35,
            applications: most(BTreeMap::from(by_name)),
            ..Connections::default()
        };
        assert_eq!(
            connections.holders(),
            "35 used: agents 30, api 3, (no name) 2"
        );
        let words = "57 of max_connections 60 are for everyone, 3 reserved";
        assert_eq!(connections.arithmetic(), words);
    }
}
