//! The server's one queue of notifications fills up because a listener does not read; when it is full, every
//! commit that notifies fails.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Trigger};
use crate::findings::words::{clean, name};

/// See the module.
pub struct NotifyQueue;

impl Rule for NotifyQueue {
    fn name(&self) -> &'static str {
        "notify-queue"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Notifications pile up because one listening session does not read them; a full queue makes every COMMIT that notifies fail.",
            "End the session that does not read; it is the oldest listener that is idle in transaction or blocked in ClientWrite.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let Some(usage) = ctx.snapshot.maintenance.notify_queue else {
            return Vec::new();
        };
        if usage <= ctx.limits().notify_queue {
            return Vec::new();
        }
        let blame = ctx.snapshot.maintenance.notify_blame.as_ref();
        let why = |why: &str| match why {
            w if w.contains("ClientWrite") => "does not read".to_string(),
            w if w.contains("idle in transaction") => "is idle in transaction".into(),
            w => clean(w, 60),
        };
        let who = blame.map_or(String::new(), |(pid, application, reason)| {
            let who = if application.trim().is_empty() {
                format!("pid {pid}")
            } else {
                format!("{} (pid {pid})", name(application))
            };
            format!(": {who} {}", why(reason))
        });
        let deaf = usage > ctx.limits().notify_unlisten;
        let us = if deaf { "; jobtop listens no more" } else { "" };
        let full = format!("{:.0} %", (usage * 100.0).clamp(0.0, 100.0).max(1.0));
        vec![
            Trigger::new(
                "",
                if deaf {
                    Severity::Critical
                } else {
                    Severity::Warning
                },
                format!("NOTIFY queue {full} full{who}{us}"),
            )
            .brief(format!("NOTIFY queue {full}"))
            .culprit(blame.and_then(|b| ctx.session_row(b.0))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::*;
    use crate::probe::Snapshot;

    const RULE: &str = "notify-queue";

    fn usage(usage: Option<f64>) -> Snapshot {
        let mut s = example(RULE);
        s.maintenance.notify_queue = usage;
        s
    }

    #[test]
    fn one_percent_warns_a_quarter_is_critical() {
        silent(RULE, &usage(None));
        silent(RULE, &usage(Some(0.01)));
        assert_eq!(of(RULE, &usage(Some(0.011)))[0].severity, Severity::Warning);
        assert_eq!(of(RULE, &usage(Some(0.25)))[0].severity, Severity::Warning);
        assert_eq!(of(RULE, &usage(Some(0.26)))[0].severity, Severity::Critical);
        assert_eq!(of(RULE, &usage(Some(0.26)))[0].culprit, session_row(5120));
    }

    #[test]
    fn without_anybody_to_blame_nobody_is() {
        let mut s = usage(Some(0.3));
        s.maintenance.notify_blame = None;
        assert_eq!(
            says(RULE, &s),
            "NOTIFY queue 30 % full; jobtop listens no more"
        );
        assert_eq!(of(RULE, &s)[0].culprit, None);
    }
}
