//! The one sentence under the header.

use super::rule::Ctx;
use super::words::{clean, count, duration, plural, rate};
use super::{Finding, Severity};
use crate::probe::State;

/// The gravest finding's sentence; where there is none, figures that show it.
pub fn verdict(ctx: &Ctx, findings: &[Finding], undecided: bool) -> String {
    if let Some(first) = findings.first().filter(|f| f.severity > Severity::Info) {
        return first.sentence.clone();
    }
    let figures = figures(ctx);
    if undecided {
        return format!("one more look before a verdict: {figures}");
    }
    if let Some(why) = ctx.snapshot.no_queue() {
        return format!("{}: {figures}", clean(&why, 160));
    }
    if findings.iter().any(|f| f.rule == "limited-view") {
        return format!("nothing wrong in what can be seen: {figures}");
    }
    format!("all is well: {figures}")
}

fn figures(ctx: &Ctx) -> String {
    let queues = &ctx.snapshot.queues;
    if queues.is_empty() {
        let c = &ctx.snapshot.connections;
        return format!(
            "{} of {} connections in use",
            count(c.used.into()),
            count(c.max.saturating_sub(c.reserved).into())
        );
    }
    let mut parts = Vec::new();
    let done: Vec<f64> = queues.iter().filter_map(|q| q.finished_per_min).collect();
    if done.is_empty() {
        let running = queues
            .iter()
            .map(|q| q.n(State::Running))
            .fold(0, u64::saturating_add);
        parts.push(plural(running, "task running", "tasks running"));
    } else {
        parts.push(format!("{} tasks/min done", rate(done.iter().sum())));
    }
    match queues
        .iter()
        .filter_map(|q| q.oldest_ready_s)
        .reduce(f64::max)
    {
        Some(oldest) => parts.push(format!("oldest ready {}", duration(oldest))),
        None => parts.push("nothing waits".into()),
    }
    parts.join(", ")
}
