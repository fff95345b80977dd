//! What jobtop cannot see: sessions hidden by privilege, rows hidden by row-level security, probes that fail and may
//! succeed again, queues that are gone or lack a part.

use crate::findings::Severity;
use crate::findings::failing_probes;
use crate::findings::rule::{Ctx, Held, Place, Rule, Scope, Trigger};
use crate::findings::words::{clean, count, duration, name};
use crate::probe::systems::{Moved, label};
use crate::probe::{GONE_S, ProbeHealth};
use crate::sql;
use std::collections::BTreeMap;

/// Seconds after which a failing probe's last data is too old to go by.
const STALE: f64 = 15.0;

/// Characters of a role's name that a sentence takes.
const ROLE: usize = 80;

/// See the module.
#[derive(Default)]
pub struct LimitedView {
    /// Systems that are gone.
    gone: Held,
}

impl Rule for LimitedView {
    fn name(&self) -> &'static str {
        "limited-view"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Part of the picture is missing, so silence of the other rules proves less.",
            "Grant what the sentence names, or connect as a role that has it; restore a table or column that is missing; see why probes fail in the server's own words.",
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
                        grantee(&ctx.snapshot.server.user)
                    ),
                )
                .weight(1e9),
            );
        }
        triggers.extend(pooled(ctx));
        triggers.extend(unread(ctx));
        triggers.extend(self.gone(ctx));
        triggers.extend(half_there(ctx));
        triggers.extend(ctx.snapshot.moved.iter().map(moved));
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

    fn forget(&mut self) {
        self.gone.clear();
    }
}

impl LimitedView {
    /// Whoever dropped a queue knows by and by: later it is a note.
    fn gone(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let gone = &ctx.snapshot.gone;
        self.gone.keep(ctx, gone.iter().cloned());
        let trigger = |system: &String| {
            let severity = match self.gone.for_s(ctx, system) {
                s if s < GONE_S || ctx.lasts => Severity::Critical,
                _ => Severity::Info,
            };
            let sentence = format!(
                "{} was here and is gone: dropped, renamed, or out of sight",
                name(system)
            );
            Trigger::new(format!("gone/{system}"), severity, sentence)
        };
        gone.iter().map(trigger).collect()
    }
}

/// One that was found again elsewhere.
fn moved(moved: &Moved) -> Trigger {
    let system = label(&moved.system, &moved.schema);
    let (severity, follows) = match moved.now.starts_with("in schema") {
        true => (Severity::Warning, ": whoever uses the old name fails"),
        // only the profile is another
        false => (Severity::Info, ""),
    };
    let sentence = format!("{system} is now {}{follows}", moved.now);
    Trigger::new(format!("moved/{system}"), severity, clean(&sentence, 200))
}

/// Systems of which nothing can be read, since a part of them is missing.
fn half_there(ctx: &Ctx) -> impl Iterator<Item = Trigger> {
    ctx.snapshot.half_there.iter().map(|half| {
        // what was never read may be something else that looks like it
        let (age, severity) = match half.age_s {
            Some(age) => (
                format!("not read for {}", duration(age)),
                Severity::Critical,
            ),
            None => ("never read".into(), Severity::Warning),
        };
        let sentence = format!(
            "{}, {age}: {}",
            clean(&half.why, 200),
            clean(&half.advice, 160)
        );
        let key = format!("half/{}/{}", half.system, half.schema);
        Trigger::new(key, severity, sentence)
            .began(half.age_s)
            .scope(Scope::home(&half.system, &half.schema))
    })
}

/// The role to grant something to; in full, or not by its name.
fn grantee(role: &str) -> String {
    let whole = sql::name(role);
    match whole.chars().count() {
        0..=ROLE => whole,
        _ => "this role".into(),
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
        let severity = if failing_probes::blind(&probes) {
            Severity::Warning
        } else {
            Severity::Info
        };
        let said = failing_probes::words(&probes);
        let sentence = format!("{said}: {}", clean(error, 300));
        let oldest = failing_probes::oldest(&probes);
        Trigger::new(format!("probe/{error}"), severity, sentence).began(oldest)
    };
    reasons.into_iter().map(trigger).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;
    use crate::probe::systems::HalfThere;

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
    fn a_queue_that_vanishes_is_critical_for_an_hour() {
        let mut rule = LimitedView::default();
        let gone = with(|s| s.gone = vec!["agent_queue in schema agent_queue".into()]);
        let mut at = |now: f64| {
            let config = Config::default();
            rule.check(&Ctx::new(&gone, &config, now, false)).remove(0)
        };
        let first = at(1.0);
        let words = "agent_queue in schema agent_queue was here and is gone";
        assert!(first.sentence.starts_with(words));
        assert_eq!(first.severity, Severity::Critical);
        assert_eq!(at(3600.0).severity, Severity::Critical);
        let later = at(3601.0);
        assert_eq!(
            (later.severity, later.sentence, later.key),
            (Severity::Info, first.sentence, first.key)
        );
    }

    #[test]
    fn what_is_missing_is_named_with_the_next_step_and_where_a_queue_went() {
        let half = with(|s| {
            s.half_there = vec![HalfThere {
                why: "agent_queue in schema a: table usage is not there".into(),
                advice: "restore it".into(),
                age_s: Some(31.0),
                ..HalfThere::default()
            }];
        });
        assert_eq!(
            says(RULE, &half),
            "agent_queue in schema a: table usage is not there, not read for 31s: restore it"
        );
        let moved = with(|s| {
            s.moved = vec![Moved {
                system: "agent_queue".into(),
                schema: "a".into(),
                now: "in schema b".into(),
            }];
        });
        assert_eq!(
            says(RULE, &moved),
            "agent_queue in schema a is now in schema b: whoever uses the old name fails"
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
