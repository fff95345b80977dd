//! Tables that cannot be read for want of a right, a table or a column: that does not pass by itself. What was read of
//! them before grows old, and what other rules make of it with it.

use crate::findings::Severity;
use crate::findings::failing_probes;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger};
use crate::findings::words::{clean, name};
use crate::probe::ProbeHealth;
use crate::probe::rights::Denied;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The rules that live on what a probe reads.
const FED: [(&str, &[&str]); 5] = [
    ("queues", &["stalled", "throttled", "overdue-retryable"]),
    (
        "leases",
        &[
            "clock-skew",
            "poison",
            "owners-gone",
            "leases-expired",
            "stuck",
            "slow-outside",
            "invariants",
        ],
    ),
    ("tasks", &["cancel-unheard"]),
    ("finished", &["failing", "inflow-stopped"]),
    ("cost", &["cost-runaway"]),
];
/// All of them.
pub static ON_TASKS: LazyLock<Vec<&str>> =
    LazyLock::new(|| FED.iter().flat_map(|(_, rules)| *rules).copied().collect());
/// Statements of which the sentence names each.
const MOST: usize = 2;

/// Why some probes fail.
struct Reason<'a> {
    error: &'a str,
    denied: Option<&'a Denied>,
    probes: Vec<&'a ProbeHealth>,
}

/// See the module.
pub struct Unreadable;

impl Rule for Unreadable {
    fn name(&self) -> &'static str {
        "unreadable"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Tables of a queue cannot be read any more, or never could: a right, a table or a column is missing. What is said of tasks is from before.",
            "Run the GRANT that the sentence names as the owner (jobtop doctor prints all of them); where a table or column is gone, see which migration took it.",
        )
    }

    fn place(&self) -> Place {
        Place::Nowhere
    }

    fn explains(&self) -> &'static [&'static str] {
        &ON_TASKS
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut reasons: BTreeMap<String, Reason> = BTreeMap::new();
        for probe in ctx.snapshot.probes.iter().filter(|p| p.lasting()) {
            let error = probe.error.as_deref().unwrap_or_default();
            let mut of = ctx.snapshot.denied.iter();
            let denied = of.find(|d| d.causes(error) && !d.grants.is_empty());
            // each table of a system has a fault of its own, and the GRANT is known a refresh later
            let key = match error.split_once("): ") {
                Some((system, rest)) if rest.contains("(42501)") => system,
                _ => error,
            };
            let reason = reasons.entry(key.into()).or_insert(Reason {
                error,
                denied,
                probes: Vec::new(),
            });
            reason.denied = reason.denied.or(denied);
            reason.probes.push(probe);
        }
        let trigger = |(key, reason): (String, Reason)| check(key, &reason);
        reasons.into_iter().map(trigger).collect()
    }
}

/// What was read once and is not any more is worth a look today; so is a queue of which nothing is known. What a role was
/// never let see may be meant so.
fn check(key: String, reason: &Reason) -> Trigger {
    let (denied, probes) = (reason.denied, &reason.probes);
    let (said, oldest) = (
        failing_probes::words(probes),
        failing_probes::oldest(probes),
    );
    let taken = denied.map_or(oldest.is_some(), |d| d.taken);
    let severity = match failing_probes::blind(probes) || taken {
        true => Severity::Warning,
        false => Severity::Info,
    };
    let sentence = match denied {
        Some(denied) => format!(
            "may not read {}: {said}; {}",
            tables(denied),
            grants(denied)
        ),
        None => format!("{said}: {}", clean(reason.error, 300)),
    };
    let scope = denied.map(|d| Scope::home(&d.system, &d.schema));
    let trigger = Trigger::new(key, severity, sentence)
        .began(oldest)
        .scope(scope.unwrap_or_default());
    let old = |(probe, _): &&(&str, &[&str])| {
        let mut of = probes.iter().filter(|p| p.name == *probe);
        of.any(|p| p.age_s.is_some())
    };
    let fed = FED.iter().filter(old);
    fed.fold(trigger, |trigger, (_, rules)| trigger.explains(rules))
}

/// `agent_queue.tasks, task_attempts and 3 more`.
fn tables(denied: &Denied) -> String {
    let schema = name(&denied.schema);
    let more = match denied.tables.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<String> = denied.tables.iter().take(MOST).map(|t| name(t)).collect();
    format!("{schema}.{}{more}", named.join(", "))
}

fn grants(denied: &Denied) -> String {
    let named = denied.grants.iter().take(MOST).map(|g| clean(g, 100));
    let named: Vec<String> = named.collect();
    match denied.grants.len().saturating_sub(MOST) {
        0 => named.join("; "),
        more => format!("{}; and {more} more: jobtop doctor", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "unreadable";

    fn denied(change: impl FnOnce(&mut Snapshot)) -> Snapshot {
        let mut s = example(RULE);
        change(&mut s);
        s
    }

    #[test]
    fn the_grant_that_helps_is_named() {
        let few = denied(|_| {});
        assert_eq!(
            says(RULE, &few),
            "may not read agent_queue.tasks: queues, leases not read for 9s; GRANT agent_queue_monitor TO monitor"
        );
        let many = denied(|s| {
            let of = |n: usize| format!("t{n}");
            s.denied[0].tables = (0..5).map(of).collect();
            s.denied[0].grants = (0..4)
                .map(|n| format!("GRANT SELECT ON t{n} TO monitor"))
                .collect();
        });
        assert_eq!(
            says(RULE, &many),
            "may not read agent_queue.t0, t1 and 3 more: queues, leases not read for 9s; \
             GRANT SELECT ON t0 TO monitor; GRANT SELECT ON t1 TO monitor; and 2 more: jobtop doctor"
        );
    }

    #[test]
    fn what_was_never_shown_may_be_meant_so_but_for_the_queues() {
        let gravity = |probe: &str, taken| {
            let s = denied(|s| {
                s.probes.truncate(1);
                s.probes[0].name = probe.into();
                s.denied[0].taken = taken;
            });
            of(RULE, &s)[0].severity
        };
        // a probe may succeed now and then: not each of its statements reads the table
        assert_eq!(gravity("cost", false), Severity::Info);
        assert_eq!(gravity("cost", true), Severity::Warning);
        assert_eq!(gravity("queues", false), Severity::Warning);
        let gone = |age_s| {
            let s = denied(|s| {
                s.probes.truncate(1);
                s.probes[0].name = "cost".into();
                s.probes[0].age_s = age_s;
                s.probes[0].error = Some("relation does not exist (42P01)".into());
            });
            of(RULE, &s)[0].severity
        };
        assert_eq!(
            (gone(None), gone(Some(2.0))),
            (Severity::Info, Severity::Warning)
        );
    }

    #[test]
    fn what_is_said_of_old_data_stands_under_it() {
        let stall = |age_s| {
            let s = denied(|s| {
                s.queues = example("stalled").queues;
                for probe in &mut s.probes {
                    probe.age_s = age_s;
                }
            });
            of("stalled", &s)[0].explained_by.clone()
        };
        assert_eq!(stall(Some(9.0)).as_deref(), Some(RULE));
        assert_eq!(stall(None), None, "it comes from elsewhere");
        let elsewhere = denied(|s| {
            s.queues = example("stalled").queues;
            s.denied[0].schema = "elsewhere".into();
            s.probes[0].error = Some("agent_queue (elsewhere): denied (42501)".into());
            s.probes.truncate(1);
        });
        assert_eq!(of("stalled", &elsewhere)[0].explained_by, None);
    }

    #[test]
    fn a_table_that_is_gone_is_told_in_the_servers_words() {
        let s = denied(|s| {
            for probe in &mut s.probes {
                probe.error = Some("relation does not exist (42P01)".into());
            }
        });
        assert_eq!(
            says(RULE, &s),
            "queues, leases not read for 9s: relation does not exist (42P01)"
        );
        silent(
            RULE,
            &with(|s| s.probes.clone_from(&example("probe").probes)),
        );
    }
}
