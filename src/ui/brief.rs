//! Connections, leases and cost in a line each, for screens without room for their blocks.

use super::fmt;
use super::glyphs;
use super::text::{dim, flow, ink, text};
use super::theme::Ink;
use crate::app::row::RowId;
use crate::app::state::App;
use crate::findings::Severity;
use crate::panes;
use ratatui::text::{Line, Span};

/// Two lines.
pub fn lines(app: &App, width: u16) -> Vec<Line<'static>> {
    let room = usize::from(width).saturating_sub(2);
    [connections(app), money(app)]
        .into_iter()
        .map(|groups| {
            let mut spans = vec![Span::raw(" ")];
            spans.extend(flow(groups, 3, room));
            Line::from(spans)
        })
        .collect()
}

fn connections(app: &App) -> Vec<Vec<Span<'static>>> {
    let Some((snapshot, report)) = app.shown() else {
        return Vec::new();
    };
    let c = &snapshot.connections;
    let usable = c.max.saturating_sub(c.reserved);
    let mut groups = vec![vec![
        ink("CONN ", Ink::Title),
        text(format!("{}/{usable}", c.used)),
    ]];
    for b in &c.budgets {
        let Some(limit) = b.limit else { continue };
        let grave = panes::severity(report, &RowId::Budget(b.name.clone()))
            .or((b.used >= limit && b.idle == 0 && limit > 0).then_some(Severity::Critical));
        if let Some(grave) = grave {
            groups.push(vec![
                dim(format!("{} ", b.name)),
                ink(
                    format!("{}/{limit} {}", b.used, glyphs::severity(grave)),
                    Ink::severity(grave),
                ),
            ]);
        }
    }
    let in_tx: u32 = c
        .states
        .iter()
        .filter(|(s, _)| s.starts_with("idle in transaction"))
        .map(|(_, n)| n)
        .sum();
    if in_tx > 0 {
        groups.push(vec![
            dim("in tx "),
            text(in_tx.to_string()),
            dim(format!(", oldest {}", fmt::age(c.oldest_transaction_s))),
        ]);
    }
    if !snapshot.blocked.is_empty() {
        groups.push(vec![
            dim("blocked "),
            ink(snapshot.blocked.len().to_string(), Ink::Warn),
        ]);
    }
    if let Some(r) = c.logins_per_s {
        groups.push(vec![
            dim("logins "),
            text(format!("{}/s", fmt::rate(Some(r)))),
        ]);
    }
    if let Some(h) = &snapshot.maintenance.xmin_holder {
        let held = h
            .held_s
            .map_or_else(|| format!("held by {}", h.who()), fmt::duration);
        groups.push(vec![dim("xmin "), text(held)]);
    }
    groups
}

fn money(app: &App) -> Vec<Vec<Span<'static>>> {
    let Some((snapshot, report)) = app.shown() else {
        return Vec::new();
    };
    let mut groups = Vec::new();
    match &snapshot.cost {
        Some(cost) => {
            let rate = format!("{}/h", fmt::usd(cost.usd_per_hour));
            let half = snapshot.all_half();
            groups.push(vec![
                ink("COST ", Ink::Title),
                match half.and_then(|h| h.age_s) {
                    Some(age) => dim(format!("{rate} as of {} ago", fmt::duration(age))),
                    None => text(rate),
                },
            ]);
            let hot = cost.by_tenant.iter().map(|s| ("tenant", s));
            let hot = hot.chain(cost.by_agent.iter().map(|s| ("agent", s)));
            let grave = hot.filter_map(|(by, s)| {
                let id = RowId::Spender {
                    by: by.into(),
                    name: s.name.clone(),
                };
                Some((panes::severity(report, &id)?, s))
            });
            for (grave, s) in grave.take(2) {
                let usual = s.usual_usd_per_hour.map_or("n/a".into(), fmt::amount);
                groups.push(vec![
                    ink(
                        format!("{} {} ", glyphs::severity(grave), s.name),
                        Ink::severity(grave),
                    ),
                    text(fmt::amount(s.usd_per_hour)),
                    dim(format!(" (usual {usual})")),
                ]);
            }
            groups.push(vec![dim("lost "), text(fmt::usd(cost.usd_failed_attempts))]);
        }
        None => {
            let why = match snapshot.unread("cost") {
                Some(_) => "not read",
                None => "not recorded",
            };
            groups.push(vec![ink("COST ", Ink::Title), dim(why)]);
        }
    }
    let expired = snapshot.leases.len();
    groups.push(vec![
        dim("expired leases "),
        if snapshot.unread("leases").is_some() {
            dim("n/a")
        } else if expired == 0 {
            dim("0")
        } else {
            ink(expired.to_string(), Ink::Bad)
        },
    ]);
    groups
}
