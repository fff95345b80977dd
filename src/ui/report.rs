//! The incident report: what an on-call engineer pastes into a ticket. Plain text, all times UTC.

use super::clean::clean;
use super::fmt;
use super::table::Part;
use crate::app::row::RowId;
use crate::app::state::{App, PaneId, Tone};
use crate::findings::Severity;
use crate::panes;
use crate::probe::{Snapshot, State};
use std::fmt::Write;

/// The whole report.
pub fn text(app: &App) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write(app, &mut out);
    out
}

fn write(app: &App, out: &mut String) -> std::fmt::Result {
    let Some((s, report)) = app.shown() else {
        return writeln!(out, "jobtop report: no data yet");
    };
    let time = s.taken_at.map_or("unknown".into(), |t| t.to_string());
    writeln!(
        out,
        "INCIDENT REPORT by jobtop {}",
        env!("CARGO_PKG_VERSION")
    )?;
    writeln!(out, "time      {time} (UTC, the server's clock)")?;
    let role = if s.server.in_recovery {
        "standby"
    } else {
        "primary"
    };
    writeln!(
        out,
        "database  {} at {}, Postgres {}, {role}, as {}",
        clean(&s.server.database),
        clean(&s.server.host),
        clean(&s.server.version),
        clean(&s.server.user)
    )?;
    if !s.server.tls.is_empty() {
        let failed = s.server.tls_failed.as_ref();
        let failed = failed.map_or(String::new(), |why| format!("; with TLS: {}", clean(why)));
        writeln!(out, "line      {}{failed}", clean(&s.server.tls))?;
    }
    let age = fmt::duration((app.now - app.arrived).max(0.0));
    writeln!(
        out,
        "data      {age} old, watched for {}",
        fmt::duration(app.now - app.started)
    )?;
    writeln!(out)?;
    match report.top() {
        Some(f) => writeln!(
            out,
            "VERDICT   {} for {}: {}",
            panes::word(f.severity).to_uppercase(),
            fmt::duration(f.since_s),
            clean(&report.verdict)
        )?,
        None => writeln!(out, "VERDICT   {}", clean(&report.verdict))?,
    }
    let layers = &report.layers;
    for (name, layer) in [
        ("queue", &layers.queue),
        ("workers", &layers.workers),
        ("database", &layers.database),
        ("outside", &layers.outside),
    ] {
        writeln!(
            out,
            "  {name:<9} {:<8} {}",
            format!("{:?}", layer.mark).to_lowercase(),
            clean(&layer.text)
        )?;
    }
    if !report.findings.is_empty() {
        writeln!(out, "\nFINDINGS")?;
        for f in &report.findings {
            let by = f
                .explained_by
                .as_ref()
                .map_or(String::new(), |by| format!(" (explained by {by})"));
            writeln!(
                out,
                "  {:<8} {:>6}  {} [{}]{by}",
                panes::word(f.severity),
                fmt::duration(f.since_s),
                clean(&f.sentence),
                f.rule
            )?;
        }
    }
    queues(s, out)?;
    connections(s, out)?;
    blocking(app, out)?;
    leases(s, out)?;
    cost(app, s, out)?;
    let errors: Vec<_> = s.probes.iter().filter(|p| p.error.is_some()).collect();
    if !errors.is_empty() {
        writeln!(out, "\nNOT MEASURED")?;
        for p in errors {
            writeln!(
                out,
                "  {:<12} {}",
                p.name,
                clean(p.error.as_deref().unwrap_or_default())
            )?;
        }
    }
    if !app.log.is_empty() {
        writeln!(out, "\nLOG (times UTC)")?;
        for l in app.log.iter().rev().take(60).rev() {
            let tone = match l.tone {
                Tone::Info => "",
                Tone::Warning => "warning: ",
                Tone::Error => "error: ",
            };
            writeln!(out, "  {:<8} {tone}{}", l.clock, clean(&l.text))?;
        }
    }
    Ok(())
}

fn queues(s: &Snapshot, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\nFLOW, tasks a minute over five minutes")?;
    writeln!(
        out,
        "  {:<24} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8} {:>9} {:>8}",
        "queue", "in", "done", "failed", "ready", "locked", "oldest", "running", "retry"
    )?;
    for q in &s.queues {
        let running = match q.limit {
            Some(l) => format!("{}/{l}", q.n(State::Running)),
            None => fmt::count(q.count(State::Running)),
        };
        writeln!(
            out,
            "  {:<24} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8} {:>9} {:>8}",
            clean(&format!("{}.{}", q.schema, q.queue)),
            fmt::rate(q.in_per_min),
            fmt::rate(q.finished_per_min),
            fmt::rate(q.failed_attempts_per_min),
            fmt::count(q.count(State::Ready)),
            q.locked,
            fmt::age(q.oldest_ready_s),
            running,
            fmt::count(q.count(State::Retryable))
        )?;
    }
    Ok(())
}

fn connections(s: &Snapshot, out: &mut String) -> std::fmt::Result {
    let c = &s.connections;
    writeln!(
        out,
        "\nCONNECTIONS  {} of {} ({} reserved)",
        c.used,
        c.max.saturating_sub(c.reserved),
        c.reserved
    )?;
    let states: Vec<String> = c.states.iter().map(|(k, n)| format!("{n} {k}")).collect();
    writeln!(out, "  here: {}", states.join(", "))?;
    for b in &c.budgets {
        let limit = b.limit.map_or("no limit".into(), |l| format!("of {l}"));
        writeln!(
            out,
            "  {:<14} {:>4} {limit:<10} active {}, idle {}, in transaction {}, oldest transaction {}",
            clean(&b.name),
            b.used,
            b.active,
            b.idle,
            b.idle_in_transaction,
            fmt::age(b.oldest_transaction_s)
        )?;
    }
    if let Some(h) = &s.maintenance.xmin_holder {
        writeln!(
            out,
            "  xmin held by {}{}",
            clean(&h.who()),
            h.held_s
                .map_or(String::new(), |s| format!(" for {}", fmt::duration(s)))
        )?;
    }
    Ok(())
}

fn blocking(app: &App, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\nBLOCKING")?;
    let table = (panes::pane(PaneId::Waits).table)(app, Part::Whole);
    let Some(tree) = table.sections.first().filter(|t| !t.rows.is_empty()) else {
        return writeln!(out, "  nobody waits for a lock");
    };
    for row in &tree.rows {
        let words: Vec<String> = row
            .cells
            .iter()
            .zip(tree.columns)
            .filter(|(c, _)| c.text != "-" && !c.text.is_empty())
            .map(|(c, column)| match column.name {
                "blocks" | "holds" => format!("{} {}", column.name, c.text),
                _ => clean(&c.text).into_owned(),
            })
            .collect();
        writeln!(out, "  {}", words.join("  "))?;
    }
    Ok(())
}

fn leases(s: &Snapshot, out: &mut String) -> std::fmt::Result {
    let expired = match s.unread("leases") {
        Some(why) => format!("n/a: {}", clean(&why)),
        None => s.leases.len().to_string(),
    };
    writeln!(out, "\nEXPIRED LEASES  {expired}")?;
    for l in s.leases.iter().take(100) {
        writeln!(
            out,
            "  {}.{} task {}  {} overdue  worker {}  attempt {}  token {}  [{}]",
            clean(&l.schema),
            clean(&l.queue),
            clean(&l.task),
            l.overdue_s.map_or("no end,".into(), fmt::duration),
            clean(l.worker.as_deref().unwrap_or("-")),
            l.attempt.map_or("-".into(), |n| n.to_string()),
            l.lease_token.map_or("-".into(), |n| n.to_string()),
            clean(&l.rule)
        )?;
    }
    if s.leases.len() > 100 {
        writeln!(out, "  and {} more", s.leases.len() - 100)?;
    }
    Ok(())
}

fn cost(app: &App, s: &Snapshot, out: &mut String) -> std::fmt::Result {
    let Some(c) = &s.cost else {
        return Ok(());
    };
    let usual =
        |u: Option<crate::probe::Usd>| u.map_or("n/a".into(), |u| format!("{}/h", fmt::usd(u)));
    writeln!(
        out,
        "\nCOST  {} in {}, {}/h now (usual {}), {} lost to failed attempts, {} tokens unpriced",
        fmt::usd(c.usd),
        fmt::span(c.window_s),
        fmt::usd(c.usd_per_hour),
        usual(c.usual_usd_per_hour),
        fmt::usd(c.usd_failed_attempts),
        fmt::number(c.unpriced_tokens)
    )?;
    for (by, list) in [("tenant", &c.by_tenant), ("agent", &c.by_agent)] {
        for x in list.iter().take(5) {
            let id = RowId::Spender {
                by: by.into(),
                name: x.name.clone(),
            };
            let mark = match app.shown().and_then(|(_, r)| panes::severity(r, &id)) {
                Some(Severity::Critical | Severity::Warning) => "!",
                _ => " ",
            };
            writeln!(
                out,
                "{mark} {by:<7} {:<20} {}/h (usual {}), spent {}, lost {}",
                clean(&x.name),
                fmt::usd(x.usd_per_hour),
                usual(x.usual_usd_per_hour),
                fmt::usd(x.usd),
                fmt::usd(x.usd_failed_attempts)
            )?;
        }
    }
    Ok(())
}
