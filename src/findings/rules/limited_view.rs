//! What jobtop cannot see: sessions hidden by privilege, rows hidden by row-level security, probes that fail and may
//! succeed again.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Trigger};
use crate::findings::words::{clean, count, duration, name};
use crate::probe::ProbeHealth;
use std::collections::BTreeMap;

/// Seconds after which a failing probe's last data is too old to go by.
const STALE: f64 = 15.0;

/// See the module.
pub struct LimitedView;

impl Rule for LimitedView {
    fn name(&self) -> &'static str {
        "limited-view"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Part of the picture is missing, so silence of the other rules proves less.",
            "Grant what the sentence names, or connect as a role that has it; see why probes fail in the server's own words.",
        )
    }

    fn place(&self) -> Place {
        Place::Nowhere
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let mut triggers = Vec::new();
        let c = &ctx.snapshot.connections;
        if c.hidden > 0 {
            triggers.push(
                Trigger::new(
                    "sessions",
                    Severity::Info,
                    format!(
                        "sees {} of {} sessions: GRANT pg_monitor TO {}",
                        count(c.used.saturating_sub(c.hidden).into()),
                        count(c.used.max(c.hidden).into()),
                        name(&ctx.snapshot.server.user)
                    ),
                )
                .weight(1e9),
            );
        }
        triggers.extend(pooled(ctx));
        triggers.extend(unread(ctx));
        triggers.extend(ctx.snapshot.gone.iter().map(|system| {
            let sentence = format!(
                "{} was here and is gone: dropped, renamed, or out of sight",
                name(system)
            );
            Trigger::new(format!("gone/{system}"), Severity::Critical, sentence)
        }));
        for queue in &ctx.snapshot.queues {
            let rls = |note: &&String| note.to_lowercase().contains("row-level security");
            if let Some(note) = queue.notes.iter().find(rls) {
                let who = ctx.queue_name(&queue.system, &queue.schema, &queue.queue);
                triggers.push(Trigger::new(
                    format!("rls/{}/{}/{}", queue.system, queue.schema, queue.queue),
                    Severity::Info,
                    format!("{who}: {}", clean(note, 100)),
                ));
            }
        }
        triggers
    }
}

/// A pooler costs push, and each statement a transaction around it.
fn pooled(ctx: &Ctx) -> Option<Trigger> {
    let server = &ctx.snapshot.server;
    let mode = match server.pooler.as_deref()? {
        "unknown" => String::new(),
        mode => format!(" in {mode} mode"),
    };
    let push = match server.push.starts_with("off:") {
        true => "no push, ",
        false => "",
    };
    let sentence = format!(
        "behind a pooler{mode}: {push}a transaction for each statement; the server itself listens on port {}",
        server.port
    );
    Some(Trigger::new("pooler", Severity::Info, sentence))
}

/// Probes that fail for the same reason are one matter; it is grave where nothing is known of the queues.
fn unread(ctx: &Ctx) -> Vec<Trigger> {
    let stale = STALE.max(ctx.patience() / 2.0);
    let mut reasons: BTreeMap<&str, Vec<&ProbeHealth>> = BTreeMap::new();
    for probe in &ctx.snapshot.probes {
        if let Some(error) = &probe.error
            && !probe.lasting()
            && probe.age_s.is_none_or(|age| age >= stale)
        {
            reasons.entry(error).or_default().push(probe);
        }
    }
    let trigger = |(error, probes): (&str, Vec<&ProbeHealth>)| {
        let names: Vec<String> = probes.iter().map(|p| name(&p.name)).collect();
        let oldest = probes.iter().filter_map(|p| p.age_s).reduce(f64::max);
        let age = match oldest {
            Some(age) => format!("not read for {}", duration(age)),
            None => "never read".into(),
        };
        let blind = probes
            .iter()
            .any(|p| p.name == "queues" || p.name == "activity");
        let severity = if blind {
            Severity::Warning
        } else {
            Severity::Info
        };
        let sentence = format!("{} {age}: {}", names.join(", "), clean(error, 300));
        Trigger::new(format!("probe/{error}"), severity, sentence).began(oldest)
    };
    reasons.into_iter().map(trigger).collect()
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;
    use crate::probe::{ProbeHealth, Snapshot};

    const RULE: &str = "limited-view";

    fn probe(age_s: Option<f64>, error: Option<&str>) -> Snapshot {
        with(|s| {
            s.probes = vec![ProbeHealth {
                name: "leases".into(),
                age_s,
                error: error.map(String::from),
                ..ProbeHealth::default()
            }];
        })
    }

    #[test]
    fn hidden_sessions_row_level_security_and_failing_probes() {
        silent(RULE, &calm());
        says(RULE, &with(|s| s.connections.hidden = 1));
        says(
            RULE,
            &with(|s| s.queues[0].notes = vec!["Row-level security hides rows".into()]),
        );
        silent(
            RULE,
            &with(|s| s.queues[0].notes = vec!["succeeded: rows are deleted".into()]),
        );
    }

    #[test]
    fn a_probe_that_failed_just_now_is_not_news() {
        silent(RULE, &probe(Some(29.0), Some("timeout")));
        assert_eq!(
            says(RULE, &probe(Some(31.0), Some("timeout"))),
            "leases not read for 31s: timeout"
        );
        silent(RULE, &probe(Some(500.0), None));
        says(RULE, &probe(None, Some("timeout")));
    }

    #[test]
    fn a_pooler_is_told_with_the_way_around_it() {
        let pooled = |mode: &str, push: &str| {
            says(
                RULE,
                &with(|s| {
                    s.server.pooler = Some(mode.into());
                    s.server.push = push.into();
                    s.server.port = 5433;
                }),
            )
        };
        assert_eq!(
            pooled(
                "transaction",
                "off: a pooler shares sessions between clients"
            ),
            "behind a pooler in transaction mode: no push, a transaction for each statement; \
             the server itself listens on port 5433"
        );
        assert!(
            pooled("session", "listen").starts_with("behind a pooler in session mode: a trans")
        );
        assert!(pooled("unknown", "polling").starts_with("behind a pooler: a trans"));
    }

    #[test]
    fn a_queue_that_vanishes_is_critical() {
        let gone = with(|s| s.gone = vec!["agent_queue in schema agent_queue".into()]);
        assert!(
            says(RULE, &gone).starts_with("agent_queue in schema agent_queue was here and is gone")
        );
    }

    #[test]
    fn probes_that_fail_alike_are_one_finding() {
        let mut snapshot = probe(None, Some("lock timeout"));
        let mut queues = snapshot.probes[0].clone();
        queues.name = "queues".into();
        snapshot.probes.push(queues);
        assert_eq!(
            says(RULE, &snapshot),
            "leases, queues never read: lock timeout"
        );
    }
}
