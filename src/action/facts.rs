//! A preview in words, for the dialog and for the command line.

use super::{Held, Preview, Verb};
use crate::probe::leases::Seen;
use crate::probe::{ServerTime, Snapshot, State};
use crate::text::thousands;
use crate::ui::fmt;
use std::collections::BTreeMap;

/// Above so many tasks a reason is asked for.
pub const REASON_ABOVE: u64 = 10;

/// `1 task`, `12,480 tasks`.
pub fn tasks(n: u64) -> String {
    let many = if n == 1 { "task" } else { "tasks" };
    format!("{} {many}", thousands(n))
}

/// The question.
pub fn title(p: &Preview) -> String {
    capital(p.verb.words(&tasks(p.eligible))) + "?"
}

/// With a capital first letter.
pub fn capital(mut text: String) -> String {
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// What one should know before it is done, most important first; `snapshot` adds what the monitor knows besides.
pub fn lines(p: &Preview, snapshot: Option<&Snapshot>, place: &str) -> Vec<String> {
    let mut lines = vec![format!("in {place}, {} {}", p.system, p.schema)];
    lines.push(which(p));
    if !p.left_out.is_empty() {
        let left: u64 = p.left_out.values().sum();
        lines.push(format!(
            "{} of {} left out: {}",
            thousands(left),
            thousands(p.asked),
            p.why_left_out()
        ));
    }
    if p.more {
        lines.push(format!(
            "more match than the {} that one action takes: run it again for the rest",
            thousands(p.asked)
        ));
    }
    lines.extend(consequences(p));
    lines.extend(p.held.iter().map(|h| held(h, p, snapshot)));
    let unnamed = p.running - p.held.len() as u64;
    if !p.held.is_empty() && unnamed > 0 {
        lines.push(format!("  and {} more running", thousands(unnamed)));
    }
    lines.extend(tries(p));
    lines.extend(money(p));
    lines.extend(ages(p));
    if p.verb.feeds() {
        lines.extend(drain(p, snapshot));
    }
    lines
}

impl Verb {
    /// Puts tasks before the workers.
    fn feeds(self) -> bool {
        matches!(
            self,
            Verb::Requeue | Verb::RequeueFresh | Verb::RunNow | Verb::Unpark | Verb::Release
        )
    }
}

fn which(p: &Preview) -> String {
    let states: Vec<String> = p
        .states
        .iter()
        .map(|(state, n)| format!("{} {state}", thousands(*n)))
        .collect();
    let ids: Vec<&str> = p
        .targets
        .iter()
        .take(6)
        .map(|t| t.key.id.as_str())
        .collect();
    let more = p.eligible - ids.len() as u64;
    let more = match more {
        0 => String::new(),
        n => format!(" and {} more", thousands(n)),
    };
    let noun = if p.eligible == 1 { "task" } else { "tasks" };
    format!(
        "{noun} {}{more}; now: {}",
        ids.join(", "),
        states.join(", ")
    )
}

/// What will happen, and what will not.
fn consequences(p: &Preview) -> Vec<String> {
    let running = thousands(p.running);
    let one = p.eligible == 1;
    let (they, their) = if one {
        ("It", "its")
    } else {
        ("They", "their")
    };
    let s = if one { "s" } else { "" };
    let late = if p.fenced {
        "should it finish late, that changes nothing"
    } else {
        "should it finish late, that may be taken for the new try (no lease token here)"
    };
    let mut lines = Vec::new();
    match p.verb {
        Verb::Requeue | Verb::RequeueFresh => {
            lines.push(format!("{they} become{s} claimable at once; {their} history stays."));
            if p.running > 0 {
                lines.push(format!(
                    "{running} with an expired lease: the worker that held it is not stopped; {late}."
                ));
            }
        }
        Verb::Cancel => {
            if p.running > 0 {
                lines.push(format!(
                    "{running} running: the worker is asked to stop, and may finish first."
                ));
            }
            let rest = p.eligible - p.running;
            if rest > 0 {
                lines.push(format!("{} not running: called off at once.", thousands(rest)));
            }
        }
        Verb::Release => lines.push(format!(
            "{they} go{} back to the queue, or fail{s} where the tries are used up; the worker is not stopped; {late}.",
            if one { "es" } else { "" }
        )),
        Verb::RunNow => lines.push(format!("{they} become{s} due at once, whatever {their} back-off.")),
        Verb::Priority(n) => {
            let now = p.priorities.iter().take(4);
            let now: Vec<String> = now
                .map(|(p, n)| format!("{p} ({})", thousands(*n)))
                .collect();
            lines.push(format!(
                "{they} get{s} priority {n} instead of {}; nothing that runs is touched.",
                now.join(", ")
            ));
        }
        Verb::Park => lines.push(format!("Nobody claims {} until unparked.", if one { "it" } else { "them" })),
        Verb::Unpark => lines.push(format!("{they} become{s} claimable again.")),
    }
    lines
}

/// One running task: its worker, how long since it was heard, what is left of its lease, whether it is connected.
fn held(h: &Held, p: &Preview, snapshot: Option<&Snapshot>) -> String {
    let heard = h.heartbeat_s.map_or("no heartbeat recorded".into(), |s| {
        format!("heard {} ago", fmt::duration(s.max(0.0)))
    });
    let lease = match h.lease_s {
        None => "no end of lease recorded".into(),
        Some(s) if s < 0.0 => format!("lease over for {}", fmt::duration(-s)),
        Some(s) => format!("lease left {}", fmt::duration(s)),
    };
    let Some(name) = &h.worker else {
        return format!("  {}: no worker recorded, {heard}, {lease}", h.id);
    };
    let worker = snapshot
        .iter()
        .flat_map(|s| &s.workers)
        .find(|w| w.worker == *name && w.system == p.system && w.schema == p.schema);
    let session = match worker.map(|w| w.session) {
        Some(Seen::Seen) => "its session is connected",
        Some(Seen::None) => "no session of it is seen (no proof)",
        _ => "whether it is connected cannot be told",
    };
    format!("  {}: {name}, {heard}, {lease}, {session}", h.id)
}

fn tries(p: &Preview) -> Option<String> {
    let again = matches!(p.verb, Verb::Requeue | Verb::RequeueFresh);
    match p.tries {
        Some((used, allowed)) if again && used >= allowed => Some(format!(
            "{used} of {allowed} tries used: {}",
            if p.verb == Verb::Requeue {
                format!(
                    "one more is allowed, this will be try {} of {}",
                    used + 1,
                    used + 1
                )
            } else {
                "it gets a full new set".into()
            }
        )),
        Some((used, allowed)) if again => {
            Some(format!("this will be try {} of {allowed}", used + 1))
        }
        Some((used, allowed)) => Some(format!("{used} of {allowed} tries used")),
        None if p.out_of_tries > 0 && again => Some(format!(
            "{} used all tries and get{} {}",
            thousands(p.out_of_tries),
            if p.out_of_tries == 1 { "s" } else { "" },
            if p.verb == Verb::Requeue {
                "one more"
            } else {
                "a full new set"
            }
        )),
        None => None,
    }
}

fn money(p: &Preview) -> Option<String> {
    let spent = p
        .spent_usd
        .map(|usd| format!("spent so far: {}", fmt::usd(usd)));
    let again = p.again_usd.filter(|_| p.verb.feeds()).map(|usd| {
        let each = usd.dollars() / p.again_of.max(1) as f64;
        match p.again_of {
            1 => format!("a try usually costs {}", fmt::usd(usd)),
            n => format!(
                "trying {} again usually costs {} (about ${each:.4} each)",
                if n == p.eligible {
                    "all".into()
                } else {
                    thousands(n)
                },
                fmt::usd(usd)
            ),
        }
    });
    let parts: Vec<String> = spent.into_iter().chain(again).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn ages(p: &Preview) -> Option<String> {
    let age = |(at, id): &(ServerTime, String)| {
        let s = p.at.since(*at)?;
        Some((format!("{} ago", fmt::duration(s.max(0.0))), id.clone()))
    };
    let (oldest, id) = p.oldest.as_ref().and_then(age)?;
    let (newest, last) = p.newest.as_ref().and_then(age)?;
    Some(match id == last {
        true => format!("created {oldest}"),
        false => format!("created between {oldest} ({id}) and {newest} ({last})"),
    })
}

/// How long the workers would take, by what they finish now.
fn drain(p: &Preview, snapshot: Option<&Snapshot>) -> Option<String> {
    let here = |system: &str, schema: &str| system == p.system && schema == p.schema;
    let rates: BTreeMap<&str, (f64, u64, &str)> = snapshot?
        .queues
        .iter()
        .filter(|q| here(&q.system, &q.schema) && p.queues.contains_key(&q.queue))
        .map(|q| {
            let rate = q.finished_per_min.unwrap_or(0.0);
            let ready = (rate, q.n(State::Ready), q.plus(State::Ready));
            (q.queue.as_str(), ready)
        })
        .collect();
    let slowest = p
        .queues
        .iter()
        .filter_map(|(queue, n)| {
            let (rate, ready, plus) = rates.get(queue.as_str())?;
            let minutes = (ready + n) as f64 / rate;
            Some((minutes, queue, (*ready, *plus), *n, *rate))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (minutes, queue, (ready, plus), n, rate) = slowest;
    let least = if plus.is_empty() { "about" } else { "at least" };
    let takes = match minutes.is_finite() {
        true => format!(
            "{least} {} at {} a minute",
            fmt::duration(minutes * 60.0),
            fmt::rate(Some(rate))
        ),
        false => "nobody finishes any now".into(),
    };
    Some(format!(
        "{queue} then has {}{plus} waiting instead of {}{plus}: {takes}",
        thousands(ready + n),
        thousands(ready)
    ))
}
