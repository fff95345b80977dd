//! The spend of all systems together, as the screen shows it.

use super::ledger::{Key, Ledger, Spend};
use super::{Cost, Spender, TopTask};
use crate::probe::Usd;
use crate::queue::Instance;
use std::collections::BTreeMap;

/// Burn rate is that of the last ten minutes.
const RECENT: f64 = 600.0;
/// "Usual" needs so many records.
const RECORDS: u64 = 50;
/// Spenders shown.
const SHOWN: usize = 100;

#[derive(Default)]
struct Sums {
    all: Spend,
    recent: Spend,
    before: Spend,
    still: Spend,
}

/// Adds up the ledgers; `still` is how long the moment lasts, in seconds; `None` where no system records any cost.
pub fn total<'a>(
    ledgers: impl Iterator<Item = (&'a Instance, &'a Ledger)>,
    now: f64,
    window: f64,
    still: f64,
) -> Option<Cost> {
    let still = still.clamp(10.0, 120.0);
    // by whole cells of ten seconds
    let still_from = |read_at: f64| ((read_at - still) / 10.0).floor() * 10.0;
    let mut read_at = now;
    let mut sums: BTreeMap<&Key, Sums> = BTreeMap::new();
    let mut cost = Cost {
        window_s: window,
        ..Cost::default()
    };
    let (mut any, mut known) = (false, now - window);
    for (instance, ledger) in ledgers {
        if let Some(why) = &ledger.missing {
            cost.notes
                .push(format!("{} ({}): {why}", instance.system, instance.schema));
            continue;
        }
        any = true;
        read_at = read_at.min(ledger.read_at);
        known = known.max(ledger.known_from.unwrap_or(now));
        cost.notes.extend(ledger.cut.clone());
        cost.usd_running += ledger.running;
        cost.top_tasks.extend(ledger.top.iter().map(|t| TopTask {
            system: instance.system.clone(),
            schema: instance.schema.clone(),
            queue: t.queue.clone(),
            task: t.task.clone(),
            kind: t.kind.clone(),
            usd: t.usd,
            attempts: t.attempts,
        }));
        for (slot, spenders) in &ledger.slots {
            let at = *slot as f64;
            if at < now - window - 60.0 {
                continue;
            }
            for (key, spend) in spenders {
                let s = sums.entry(key).or_default();
                s.all.add(spend);
                let part = if at >= now - RECENT - 10.0 {
                    &mut s.recent
                } else {
                    &mut s.before
                };
                part.add(spend);
                if at >= still_from(ledger.read_at) {
                    s.still.add(spend);
                }
            }
        }
    }
    if !any {
        return None;
    }
    let hours = |from: f64, to: f64| ((to - from) / 3600.0).max(1.0 / 60.0);
    let recent_hours = hours((now - RECENT).max(known), now);
    let before_hours = hours(known, (now - RECENT).max(known));
    let rate = |spend: &Spend, hours: f64| Usd((spend.usd().0 as f64 / hours).round() as i64);
    let usual = |s: &Sums, all: u64| {
        let told = known < now - RECENT - 300.0 && all >= RECORDS;
        told.then(|| rate(&s.before, before_hours))
    };
    let mut lists: [Vec<Spender>; 4] = Default::default();
    for (key, s) in &sums {
        let (at, name) = match key {
            Key::All => {
                cost.model_usd = s.all.model;
                cost.compute_usd = s.all.compute;
                cost.usd = s.all.usd();
                cost.usd_failed_attempts = s.all.failed;
                cost.input_tokens = s.all.input;
                cost.output_tokens = s.all.output;
                cost.unpriced_tokens = s.all.unpriced;
                cost.usd_per_hour = rate(&s.recent, recent_hours);
                cost.usual_usd_per_hour = usual(s, s.before.records);
                continue;
            }
            Key::Agent(name) => (0, name),
            Key::Tenant(name) => (1, name),
            Key::Application(name) => (2, name),
            Key::Model(name) => (3, name),
        };
        lists[at].push(Spender {
            name: name.clone(),
            usd: s.all.usd(),
            usd_failed_attempts: s.all.failed,
            input_tokens: s.all.input,
            output_tokens: s.all.output,
            unpriced_tokens: s.all.unpriced,
            usd_per_hour: rate(&s.recent, recent_hours),
            usual_usd_per_hour: usual(s, s.before.records),
            usd_per_hour_now: (known <= read_at - still)
                .then(|| rate(&s.still, (read_at - still_from(read_at)) / 3600.0)),
            tries_per_task: None,
        });
    }
    for list in &mut lists {
        list.sort_by(|a, b| b.usd.cmp(&a.usd).then(a.name.cmp(&b.name)));
        list.truncate(SHOWN);
    }
    [
        cost.by_agent,
        cost.by_tenant,
        cost.by_application,
        cost.by_model,
    ] = lists;
    cost.top_tasks.sort_by_key(|t| std::cmp::Reverse(t.usd));
    cost.top_tasks.truncate(20);
    Some(cost)
}
