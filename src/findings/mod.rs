//! What is wrong: one file a rule (trigger, sentence, culprit) in `rules`, and what becomes of their triggers: the
//! tracker believes them, the order puts causes over symptoms, then the verdict and the `where` line.

pub mod docs;
mod failing_probes;
mod order;
mod rule;
mod rules;
#[cfg(test)]
mod tests;
mod tracker;
mod tree;
mod verdict;
mod where_line;
pub mod words;

use crate::app::row::RowId;
use serde::{Deserialize, Serialize};
pub use tracker::Tracker;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Somebody should look today.
    Warning,
    /// Somebody should look now.
    Critical,
}

/// One sentence about something wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's name, as in the documentation.
    pub rule: String,
    /// How grave.
    pub severity: Severity,
    /// Seconds since its trigger was first seen (or since the cause began, where that is known).
    pub since_s: f64,
    /// What is wrong, with the figures.
    pub sentence: String,
    /// The row to act on.
    pub culprit: Option<RowId>,
    /// The rule of the finding that explains this one; it is listed under that.
    pub explained_by: Option<String>,
}

/// How one layer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Nothing wrong.
    Good,
    /// Look.
    Warn,
    /// Guilty.
    Bad,
    /// Cannot be told.
    #[default]
    Unknown,
}

/// One layer of the `where` line: a mark and the number behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// How it is doing.
    pub mark: Mark,
    /// Its number, short (`9 on row locks`).
    pub text: String,
}

/// Which layer to look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Where {
    /// Is work being finished?
    pub queue: Layer,
    /// Are the workers alive and claiming?
    pub workers: Layer,
    /// Are sessions waiting in Postgres?
    pub database: Layer,
    /// Does work take longer than usual while Postgres is idle?
    pub outside: Layer,
}

/// What one snapshot, and those before it, say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Gravest first; those explained by another right after it.
    pub findings: Vec<Finding>,
    /// The gravest finding's sentence, or that all is well.
    pub verdict: String,
    /// Which layer to look at.
    #[serde(rename = "where")]
    pub layers: Where,
}

impl Report {
    /// The finding behind the verdict; `None` when all is well.
    pub fn top(&self) -> Option<&Finding> {
        self.findings
            .first()
            .filter(|f| f.severity > Severity::Info)
    }
}
