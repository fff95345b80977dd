//! What became of a plan: every target asked for is counted once.

use super::{Fate, Verb};
use crate::app::state::Tone;
use crate::text::thousands;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What became of a plan. `asked` is what was changed, skipped, not reached and unknown together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was done.
    pub verb: Verb,
    /// Names it in the journals.
    pub action_id: String,
    /// Targets of the plan.
    pub asked: u64,
    /// The fate of each target that the server has answered for.
    pub fates: Vec<Fate>,
    /// Targets whose transaction got no answer and whose fate the server could not tell either.
    pub unknown: u64,
    /// Why it ended before all targets were reached, in one sentence.
    pub stopped: Option<String>,
}

impl Outcome {
    /// Nothing of a plan was carried out.
    pub fn nothing(verb: Verb, asked: usize, why: impl Into<String>) -> Self {
        Self {
            verb,
            action_id: String::new(),
            asked: asked as u64,
            fates: Vec::new(),
            unknown: 0,
            stopped: Some(why.into()),
        }
    }

    /// Targets changed, or whose worker was asked.
    pub fn changed(&self) -> u64 {
        self.fates.iter().filter(|f| f.done()).count() as u64
    }

    /// Targets that the server would not change.
    pub fn skipped(&self) -> u64 {
        self.fates.len() as u64 - self.changed()
    }

    /// Targets that no transaction was sent for, or whose transaction was rolled back.
    pub fn not_reached(&self) -> u64 {
        self.asked
            .saturating_sub(self.fates.len() as u64 + self.unknown)
    }

    /// Number of targets by what became of them: changed ones first.
    pub fn counts(&self) -> Vec<(bool, String, u64)> {
        let mut counts: BTreeMap<(bool, &str), u64> = BTreeMap::new();
        for fate in &self.fates {
            *counts.entry((!fate.done(), fate.words())).or_default() += 1;
        }
        let count = |((skipped, words), n): ((bool, &str), u64)| (!skipped, words.to_string(), n);
        counts.into_iter().map(count).collect()
    }

    /// How many were changed, how many not and why, in one sentence; and whether that was all.
    pub fn summary(&self) -> (Tone, String) {
        let name = self.verb.label();
        if self.fates.is_empty() && self.unknown == 0 {
            let why = self.stopped.as_deref().unwrap_or("there was nothing to do");
            return (Tone::Error, format!("{name}: {why}"));
        }
        let counts = self.counts();
        let part = |done: bool| -> String {
            let parts: Vec<String> = counts
                .iter()
                .filter(|(d, ..)| *d == done)
                .map(|(_, words, n)| format!("{} {words}", thousands(*n)))
                .collect();
            parts.join(", ")
        };
        let mut text = format!("{name}: asked {}", thousands(self.asked));
        if self.changed() > 0 {
            text.push_str(&format!(", {}", part(true)));
        }
        if self.skipped() > 0 {
            let n = thousands(self.skipped());
            text.push_str(&format!(", skipped {n} ({})", part(false)));
        }
        if self.unknown > 0 {
            text.push_str(&format!(", unknown {}", thousands(self.unknown)));
        }
        if self.not_reached() > 0 {
            text.push_str(&format!(", not reached {}", thousands(self.not_reached())));
        }
        if let Some(why) = &self.stopped {
            text.push_str(&format!(": {why}"));
        }
        let tone = match (&self.stopped, self.skipped() + self.not_reached()) {
            _ if self.unknown > 0 => Tone::Error,
            (None, 0) => Tone::Info,
            _ => Tone::Warning,
        };
        (tone, text)
    }
}
