//! A kind of task, or a tenant's tasks, fail far more often than they did.

use crate::app::row::RowId;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, USUAL_SAMPLES};
use crate::findings::words::{clean, count, money, name, percent};
use crate::probe::Usd;
use crate::probe::flow::Attempts;

/// How much larger the share of failed attempts must be than before.
const FACTOR: f64 = 5.0;
/// Share from which on it is critical.
const NEARLY_ALL: f64 = 0.9;
/// Attempts a task from which on it is worth saying.
const MANY_TRIES: f64 = 1.5;

/// See the module.
pub struct Failing;

impl Rule for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Attempts fail far more often than in the 50 minutes before; each retry costs again.",
            "Read the commonest error; if it is a release, roll it back, if it is a provider, pause the kind until it is back.",
        )
    }

    fn place(&self) -> Place {
        Place::Queue
    }

    /// * cost-runaway: retries are paid for each time.
    /// * throttled: retries take the slots.
    fn explains(&self) -> &'static [&'static str] {
        &["throttled", "cost-runaway"]
    }

    /// Kinds first: a tenant's failures are told only where no failing kind of the same system may account for them.
    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let attempts = &ctx.snapshot.attempts;
        let failing: Vec<&Attempts> = attempts.iter().filter(|a| is_failing(ctx, a)).collect();
        let kind_too = |a: &Attempts| {
            failing
                .iter()
                .any(|k| k.by == "kind" && k.system == a.system && k.schema == a.schema)
        };
        failing
            .iter()
            .filter(|a| a.by == "kind" || !kind_too(a))
            .map(|a| trigger(ctx, a))
            .collect()
    }
}

fn share(failed: u32, of: u32) -> f64 {
    f64::from(failed) / f64::from(of.max(1))
}

fn is_failing(ctx: &Ctx, a: &Attempts) -> bool {
    let now = share(a.recent_failed, a.recent);
    a.recent >= ctx.limits().failing_attempts.max(1)
        && now >= ctx.limits().failing_share
        && u64::from(a.before) >= USUAL_SAMPLES
        && now >= FACTOR * share(a.before_failed, a.before)
}

fn trigger(ctx: &Ctx, a: &Attempts) -> Trigger {
    let tenant = a.by == "tenant";
    let who = if tenant {
        format!("tenant {}", name(&a.name))
    } else {
        name(&a.name)
    };
    let since = a.failing_since.and_then(|t| t.to_utc());
    let since = since.map_or(String::new(), |t| format!(" since {}", t.format("%H:%M")));
    let error = clean(a.error.as_deref().unwrap_or_default(), 60);
    let mut parts = vec![format!(
        "{} of {}",
        count(a.recent_failed.into()),
        count(a.recent.into())
    )];
    if !error.is_empty() {
        parts.push(error);
    }
    if let Some(lost) = a.lost.filter(|usd| *usd > Usd(0)) {
        parts.push(format!("{} lost", money(lost)));
    }
    if let Some(tries) = a.tries_per_task.filter(|t| *t >= MANY_TRIES) {
        parts.push(format!("{:.1} tries a task", tries.min(1e6)));
    }
    let now = share(a.recent_failed, a.recent);
    let (scope, culprit) = if tenant {
        (
            Scope::home(&a.system, &a.schema),
            RowId::Spender {
                by: "tenant".into(),
                name: a.name.clone(),
            },
        )
    } else {
        (
            Scope::queue(&a.system, &a.schema, &a.queue),
            RowId::Queue {
                system: a.system.clone(),
                schema: a.schema.clone(),
                queue: a.queue.clone(),
                kind: Some(a.name.clone()),
            },
        )
    };
    Trigger::new(
        format!("{}/{}/{}/{}/{}", a.system, a.schema, a.queue, a.by, a.name),
        if now >= NEARLY_ALL {
            Severity::Critical
        } else {
            Severity::Warning
        },
        format!("{who} failing{since}: {}", parts.join(", ")),
    )
    .brief(format!("{} of {who} fail", percent(now)))
    .culprit(culprit)
    .began(
        a.failing_since
            .zip(ctx.snapshot.taken_at)
            .and_then(|(since, now)| now.since(since)),
    )
    .scope(scope)
    .weight(f64::from(a.recent_failed))
    .explains(Failing.explains())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "failing";

    fn failing(change: impl FnOnce(&mut Attempts)) -> Snapshot {
        let mut s = example(RULE);
        change(&mut s.attempts[0]);
        s
    }

    #[test]
    fn twenty_attempts_half_of_them_failed() {
        says(RULE, &failing(|a| (a.recent, a.recent_failed) = (20, 10)));
        silent(RULE, &failing(|a| (a.recent, a.recent_failed) = (19, 19)));
        silent(RULE, &failing(|a| (a.recent, a.recent_failed) = (20, 9)));
    }

    #[test]
    fn five_times_what_was_usual_over_50_attempts() {
        says(
            RULE,
            &failing(|a| (a.recent, a.recent_failed, a.before, a.before_failed) = (20, 10, 50, 5)),
        );
        silent(
            RULE,
            &failing(|a| (a.recent, a.recent_failed, a.before, a.before_failed) = (20, 10, 50, 6)),
        );
        silent(RULE, &failing(|a| (a.before, a.before_failed) = (49, 0)));
        says(RULE, &failing(|a| (a.before, a.before_failed) = (50, 0)));
    }

    #[test]
    fn nearly_all_is_critical() {
        let gravity = |failed| {
            of(
                RULE,
                &failing(|a| (a.recent, a.recent_failed) = (100, failed)),
            )[0]
            .severity
        };
        assert_eq!(gravity(89), Severity::Warning);
        assert_eq!(gravity(90), Severity::Critical);
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let s = failing(|a| {
            a.error = None;
            a.lost = Some(Usd(0));
            a.tries_per_task = Some(1.0);
            a.failing_since = None;
        });
        assert_eq!(says(RULE, &s), "parse failing: 116 of 199");
    }

    #[test]
    fn a_tenant_is_told_only_where_no_kind_is() {
        let mut s = example(RULE);
        let tenant = Attempts {
            by: "tenant".into(),
            name: "acme".into(),
            queue: String::new(),
            ..s.attempts[0].clone()
        };
        s.attempts.push(tenant);
        assert!(says(RULE, &s).starts_with("parse failing"));
        s.attempts.remove(0);
        assert!(says(RULE, &s).starts_with("tenant acme failing"));
    }
}
