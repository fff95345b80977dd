//! The one sentence under the header.

use super::rule::Ctx;
use super::words::{clean, count, duration, plural, rate};
use super::{Finding, Mark, Severity, Where, where_line};
use crate::probe::State;
use crate::probe::queues::Queue;
use crate::probe::stages::StageName;

/// A wait of so many times the usual one is far longer.
const FAR: f64 = 5.0;
/// Shorter waits are nothing to speak of, in seconds.
const MINUTE: f64 = 60.0;

/// The gravest finding's sentence; where there is none, figures that show it.
pub fn verdict(ctx: &Ctx, findings: &[Finding], layers: &Where, undecided: bool) -> String {
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
    let blind = ["limited-view", "unreadable"];
    let stale = || {
        ["queues", "leases"]
            .iter()
            .any(|p| where_line::stale(ctx, p).is_some())
    };
    if findings.iter().any(|f| blind.contains(&f.rule.as_str())) || stale() {
        return format!("nothing wrong in what can be seen: {figures}");
    }
    // a mark that no finding stands behind yet; outside's come and go
    let marked = [
        ("queue", &layers.queue),
        ("workers", &layers.workers),
        ("database", &layers.database),
    ];
    let marked = marked
        .iter()
        .find(|(_, l)| matches!(l.mark, Mark::Warn | Mark::Bad));
    if let Some((name, layer)) = marked {
        return format!("no finding yet, but {name} {}: {figures}", layer.text);
    }
    match overdue(ctx) {
        Some(oldest) => format!("all is well; {oldest}; {}", pace(&ctx.snapshot.queues)),
        None => format!("all is well: {figures}"),
    }
}

/// A queue that goes on, but whose oldest task waits far longer than usual: no rule's business (it is claimed from, and has
/// free slots), yet more than «well» should cover.
fn overdue(ctx: &Ctx) -> Option<String> {
    let waits = |q: &&Queue| {
        let wait = ctx.usual(q, None, StageName::Wait)?;
        let (oldest, usual, slow) = (q.oldest_ready_s?, wait.p50_s?, wait.p95_s?);
        (oldest >= MINUTE && oldest >= FAR * usual && oldest >= slow).then_some(oldest)
    };
    let all = ctx.snapshot.queues.iter().filter(|q| !q.paused);
    let (queue, oldest) = all
        .filter_map(|q| Some((q, waits(&q)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let usual = ctx.usual(queue, None, StageName::Wait)?.p50_s?;
    Some(format!(
        "oldest ready {} in {}, usual {}",
        duration(oldest),
        ctx.queue_name(&queue.system, &queue.schema, &queue.queue),
        duration(usual)
    ))
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
    let pace = pace(queues);
    match queues
        .iter()
        .filter_map(|q| q.oldest_ready_s)
        .reduce(f64::max)
    {
        Some(oldest) => format!("{pace}, oldest ready {}", duration(oldest)),
        None => format!("{pace}, nothing waits"),
    }
}

/// `212 tasks/min done`, or how many run where no system records what is done.
fn pace(queues: &[Queue]) -> String {
    let done: Vec<f64> = queues.iter().filter_map(|q| q.finished_per_min).collect();
    if !done.is_empty() {
        return format!("{} tasks/min done", rate(done.iter().sum()));
    }
    let running = queues.iter().map(|q| q.n(State::Running));
    let running = running.fold(0, u64::saturating_add);
    plural(running, "task running", "tasks running")
}
