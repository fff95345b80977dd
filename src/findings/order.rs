//! The list of findings: gravest first, each symptom under its cause, and no rule with more than a few lines.

use super::tracker::Active;
use super::{Finding, Severity};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Findings of one rule that are listed; the last one says how many more there are.
const MOST: usize = 5;

struct Node<'a> {
    active: &'a Active<'a>,
    /// Its own gravity, or that of the gravest finding it explains.
    severity: Severity,
    /// It, or one it explains, comes first of all that are as grave.
    foremost: bool,
    sentence: String,
    /// Index of the finding that explains it.
    cause: Option<usize>,
}

/// Orders what is wrong.
pub fn order(active: &[Active]) -> Vec<Finding> {
    let mut nodes = listed(active);
    // Causes come before symptoms in the list of rules, so one pass settles who explains whom...
    for symptom in 0..nodes.len() {
        nodes[symptom].cause = (0..nodes.len())
            .filter(|&cause| explains(nodes[cause].active, nodes[symptom].active))
            .min_by(|a, b| graver(nodes[*a].active, nodes[*b].active));
    }
    // ...and one from the last rule up lifts each cause to its gravest symptom, and to the place of a foremost one.
    let mut up: Vec<usize> = (0..nodes.len()).collect();
    up.sort_by_key(|&at| std::cmp::Reverse(nodes[at].active.rank));
    for at in up {
        if let Some(cause) = nodes[at].cause {
            nodes[cause].severity = nodes[cause].severity.max(nodes[at].severity);
            nodes[cause].foremost |= nodes[at].foremost;
        }
    }
    let mut out = Vec::with_capacity(nodes.len());
    emit(&nodes, None, &mut out);
    out
}

/// The gravest of each rule.
fn listed<'a>(active: &'a [Active<'a>]) -> Vec<Node<'a>> {
    let mut by_rule: BTreeMap<usize, Vec<&Active>> = BTreeMap::new();
    for one in active {
        by_rule.entry(one.rank).or_default().push(one);
    }
    let mut nodes = Vec::new();
    for mut of_rule in by_rule.into_values() {
        of_rule.sort_by(|a, b| graver(a, b));
        let more = of_rule.len().saturating_sub(MOST);
        for (at, active) in of_rule.into_iter().take(MOST).enumerate() {
            let mut sentence = active.trigger.sentence.clone();
            if more > 0 && at + 1 == MOST {
                sentence.push_str(&format!("; {more} more like it"));
            }
            nodes.push(Node {
                active,
                severity: active.trigger.severity,
                foremost: active.trigger.foremost,
                sentence,
                cause: None,
            });
        }
    }
    nodes
}

fn explains(cause: &Active, symptom: &Active) -> bool {
    cause.rank < symptom.rank
        && cause.trigger.explains.contains(&symptom.rule)
        && cause.trigger.scope.touches(&symptom.trigger.scope)
}

/// The graver one first; then the foremost, the cause, the one with more behind it, the older.
pub fn graver(a: &Active, b: &Active) -> Ordering {
    (b.trigger.severity.cmp(&a.trigger.severity))
        .then(b.trigger.foremost.cmp(&a.trigger.foremost))
        .then(a.rank.cmp(&b.rank))
        .then(b.trigger.weight.total_cmp(&a.trigger.weight))
        .then(b.since_s.total_cmp(&a.since_s))
        .then(a.trigger.key.cmp(&b.trigger.key))
}

fn emit(nodes: &[Node], cause: Option<usize>, out: &mut Vec<Finding>) {
    let mut level: Vec<usize> = (0..nodes.len())
        .filter(|&at| nodes[at].cause == cause)
        .collect();
    level.sort_by(|&a, &b| {
        (nodes[b].severity.cmp(&nodes[a].severity))
            .then(nodes[b].foremost.cmp(&nodes[a].foremost))
            .then_with(|| graver(nodes[a].active, nodes[b].active))
    });
    for at in level {
        let node = &nodes[at];
        out.push(Finding {
            rule: node.active.rule.into(),
            severity: node.severity,
            since_s: node.active.since_s,
            sentence: node.sentence.clone(),
            culprit: node.active.trigger.culprit.clone(),
            explained_by: node.cause.map(|c| nodes[c].active.rule.into()),
        });
        emit(nodes, Some(at), out);
    }
}
