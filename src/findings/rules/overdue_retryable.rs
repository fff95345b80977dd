//! Failed tasks with tries left that are due again, in a system whose workers never look at them.

use crate::findings::Severity;
use crate::findings::rule::{Ctx, Place, Rule, Scope, Trigger, queue_row};
use crate::findings::words::plural;

/// See the module.
pub struct OverdueRetryable;

impl Rule for OverdueRetryable {
    fn name(&self) -> &'static str {
        "overdue-retryable"
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "Tasks failed with tries left, their time has come, and the workers of this design do not claim such rows.",
            "Requeue them (R), or let the worker ask for failed rows with attempts left, too.",
        )
    }

    fn place(&self) -> Place {
        Place::Queue
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        let overdue = ctx
            .snapshot
            .queues
            .iter()
            .filter(|q| q.overdue_retryable > 0);
        overdue
            .map(|queue| {
                let n = queue.overdue_retryable;
                Trigger::new(
                    format!("{}/{}/{}", queue.system, queue.schema, queue.queue),
                    Severity::Warning,
                    format!(
                        "{}: {} with tries left; no worker claims {}: requeue",
                        ctx.queue_name(&queue.system, &queue.schema, &queue.queue),
                        plural(n.into(), "overdue retry", "overdue retries"),
                        if n == 1 { "it" } else { "them" }
                    ),
                )
                .brief(plural(n.into(), "retry overdue", "retries overdue"))
                .culprit(queue_row(queue, None))
                .scope(Scope::queue(&queue.system, &queue.schema, &queue.queue))
                .weight(f64::from(n))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::findings::tests::*;

    const RULE: &str = "overdue-retryable";

    #[test]
    fn any_is_enough_none_is_silent() {
        silent(RULE, &calm());
        let s = with(|s| s.queues[0].overdue_retryable = 1);
        assert_eq!(
            says(RULE, &s),
            "parser: 1 overdue retry with tries left; no worker claims it: requeue"
        );
    }
}
