//! What each rule means and what to do next, out of the rules themselves: for the detail of a finding and the help.

use super::rules;

/// A rule, explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doc {
    /// Its name.
    pub rule: &'static str,
    /// What it means, one line.
    pub means: &'static str,
    /// What to do next, one line.
    pub next: &'static str,
    /// Rules whose findings it may explain.
    pub explains: &'static [&'static str],
}

/// Every rule, causes before symptoms.
pub fn all() -> Vec<Doc> {
    rules::all()
        .iter()
        .map(|rule| {
            let (means, next) = rule.doc();
            Doc {
                rule: rule.name(),
                means,
                next,
                explains: rule.explains(),
            }
        })
        .collect()
}

/// The rule of that name.
pub fn of(rule: &str) -> Option<Doc> {
    all().into_iter().find(|doc| doc.rule == rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_explained_once_and_explains_only_later_ones() {
        let docs = all();
        for (at, doc) in docs.iter().enumerate() {
            assert!(
                doc.means.ends_with('.') && doc.next.ends_with('.'),
                "{doc:?}"
            );
            assert!(!doc.means.contains('\n') && !doc.next.contains('\n'));
            assert_eq!(docs.iter().filter(|d| d.rule == doc.rule).count(), 1);
            for symptom in doc.explains {
                let place = docs.iter().position(|d| d.rule == *symptom);
                assert!(
                    place.is_some_and(|p| p > at),
                    "{} explains {symptom}",
                    doc.rule
                );
            }
            assert_eq!(of(doc.rule), Some(*doc));
        }
        assert_eq!(of("no such rule"), None);
    }
}
