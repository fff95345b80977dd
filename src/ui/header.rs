//! The first line: which database this is, whether the data is live, and what jobtop itself costs.

use super::fmt;
use super::text::{dim, flow, ink, spread, text};
use super::theme::Ink;
use crate::app::state::{App, Link};
use crate::probe::Snapshot;
use crate::probe::replay::QUIET;
use ratatui::text::{Line, Span};

/// The header of a screen that has data.
pub fn line(app: &App, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let Some((snapshot, _)) = app.shown() else {
        return Line::from(vec![Span::raw(" "), ink("jobtop", Ink::Title)]);
    };
    let s = &snapshot.server;
    let wide = width >= 120;
    let up = snapshot
        .taken_at
        .zip(s.started_at)
        .and_then(|(now, start)| now.since(start))
        // its clock was set back since
        .filter(|s| *s >= 0.0);
    let role = if s.in_recovery { "standby" } else { "primary" };
    let version = s.version.split_whitespace().next().unwrap_or_default();
    let writes = match (app.allow_writes && !s.read_only, wide) {
        (true, true) => ink("WRITES ALLOWED", Ink::Strong),
        (true, false) => ink("RW", Ink::Strong),
        (false, true) => dim("READ-ONLY"),
        (false, false) => dim("RO"),
    };
    let name = if wide {
        vec![ink(&s.database, Ink::Title), dim(" @ "), text(&s.host)]
    } else {
        vec![ink(&s.database, Ink::Title), dim("@"), text(&s.host)]
    };
    let up = up.map_or(String::new(), |s| format!(" up {}", fmt::duration(s)));
    let server = if wide {
        vec![
            dim("PG "),
            text(version),
            if s.in_recovery {
                ink(format!(" {role}{}", behind(snapshot)), Ink::Warn)
            } else {
                dim(format!(" {role}"))
            },
            dim(up.replacen(" up", ", up", 1)),
        ]
    } else {
        let role = if s.in_recovery { " standby" } else { "" };
        vec![dim(format!("PG{version}")), ink(role, Ink::Warn), dim(up)]
    };
    // The pulse matters most after the name, but reads best behind the server: room decides only what is left out.
    let mut live = vec![pulse(app)];
    let now = matches!(app.link, Link::Live) && app.held.is_none();
    if now && s.push.starts_with("off:") {
        live.push(dim(", no push"));
    }
    let mut groups = vec![name, live, vec![writes], server];
    let mut order = vec![0usize, 3, 2, 1];
    let mut server_at = 3;
    let failed = s.tls_failed.is_some();
    if s.tls.starts_with("NOT") && (failed || !app.local) {
        let words = match (wide, failed) {
            (false, _) => "NO TLS".to_string(),
            (true, true) => format!("{}: TLS failed", s.tls),
            (true, false) => s.tls.clone(),
        };
        groups.insert(3, vec![ink(words, Ink::Warn)]);
        order = vec![0, 3, 4, 2, 1];
        server_at = 4;
    } else if s.tls.starts_with("TLS") {
        let words = match s.tls.split_once(", ") {
            Some((_, "verified")) if !wide => "TLS",
            Some(_) if !wide => "TLS ?",
            _ => &s.tls,
        };
        groups.push(vec![dim(words)]);
        order.insert(1, 4);
    }
    let limit = app.config.thresholds.clock_skew;
    if let Some(skew) = s.clock_skew_s.filter(|s| wide && s.abs() > limit) {
        let way = if skew < 0.0 { "ahead" } else { "behind" };
        let size = fmt::duration(skew.abs());
        order.insert(order.len() - 1, groups.len());
        groups.push(vec![dim(format!("clock here {size} {way}"))]);
    }
    let clock = ink(format!("{}Z ", fmt::clock(snapshot.taken_at)), Ink::Text);
    let left_room = width.saturating_sub(12);
    let mut kept = keep(&groups, left_room);
    if let Some(age) = old(snapshot).filter(|_| !wide) {
        let mut aged = groups.clone();
        let role = format!(" standby, {} old", fmt::duration(age));
        aged[server_at] = vec![dim(format!("PG{version}")), ink(role, Ink::Warn)];
        // no standby listens
        aged[1].truncate(1);
        let fits = keep(&aged, left_room);
        if fits[server_at] {
            (groups, kept) = (aged, fits);
        }
    }
    let groups = order
        .into_iter()
        .filter(|n| kept[*n])
        .map(|n| groups[n].clone())
        .collect();
    let gap = if wide { 3 } else { 2 };
    let mut left = vec![Span::raw(" ")];
    left.extend(flow(groups, gap, left_room));
    let own = &snapshot.own;
    let cost = vec![
        dim(format!(
            "me {} conn {} core",
            own.connections,
            fmt::percent(own.share_of_server_time)
        )),
        Span::raw("   "),
    ];
    let watching = vec![
        dim(format!("watching {}", fmt::duration(app.now - app.started))),
        Span::raw("   "),
    ];
    let clock = vec![clock];
    let rights = [
        [cost.clone(), watching, clock.clone()].concat(),
        [cost, clock.clone()].concat(),
        clock,
    ];
    spread(left, &rights, width)
}

/// How old the newest change on a standby is.
fn behind(snapshot: &Snapshot) -> String {
    let age = snapshot.last_change_s();
    age.map_or(String::new(), |age| {
        format!(", last change {} ago", fmt::duration(age))
    })
}

/// The same, where it is worth the room on a narrow screen.
fn old(snapshot: &Snapshot) -> Option<f64> {
    let age = snapshot.last_change_s();
    age.filter(|age| snapshot.server.in_recovery && *age > QUIET)
}

/// Which groups fit, in the order of their importance.
fn keep(groups: &[Vec<Span<'static>>], room: usize) -> Vec<bool> {
    let mut used = 0;
    groups
        .iter()
        .map(|g| {
            let w: usize = g.iter().map(|s| super::clean::width(&s.content)).sum();
            let fits = used == 0 || used + w + 3 <= room;
            if fits {
                used += w + 3;
            }
            fits
        })
        .collect()
}

/// LIVE, HELD or STALE, with an age.
fn pulse(app: &App) -> Span<'static> {
    let age = fmt::duration((app.now - app.arrived).max(0.0));
    match (&app.link, &app.held, &app.snapshot) {
        (Link::Lost { .. }, ..) => ink(format!(" STALE {age} "), Ink::Alarm),
        (_, Some((held, _)), newest) => {
            let behind = newest
                .as_ref()
                .and_then(|n| n.taken_at?.since(held.taken_at?))
                .map_or(0.0, |s| s.max(0.0));
            ink(format!(" HELD {} ", fmt::coarse(behind)), Ink::Badge)
        }
        (Link::Connecting(_), None, Some(_)) => ink(format!(" STALE {age} "), Ink::Alarm),
        (Link::Live, None, Some(s)) => {
            let every = s.own.interval_s.max(app.interval);
            if app.overdue() {
                ink(format!("SLOW {age}"), Ink::Warn)
            } else if every > app.interval * 1.2 {
                ink(format!("LIVE every {}", seconds(every)), Ink::Warn)
            } else {
                text(format!("LIVE {}", seconds(every)))
            }
        }
        (_, None, None) => dim("CONNECTING"),
    }
}

fn seconds(s: f64) -> String {
    if (s - s.round()).abs() < 0.05 {
        format!("{s:.0}s")
    } else {
        format!("{s:.1}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panes::fixture;

    #[test]
    fn a_degraded_push_is_said() {
        let mut app = fixture::incident();
        let mut snapshot = (**app.snapshot.as_ref().expect("data")).clone();
        snapshot.server.push = "off: a standby cannot listen".into();
        app.snapshot = Some(snapshot.into());
        for width in [80, 160] {
            assert!(line(&app, width).to_string().contains(", no push "));
        }
    }

    fn header(tls: &str, local: bool, width: u16) -> String {
        let mut app = fixture::incident();
        let mut snapshot = (**app.snapshot.as_ref().expect("data")).clone();
        let (tls, failed) = tls
            .split_once(": ")
            .map_or((tls, None), |(t, f)| (t, Some(f)));
        snapshot.server.tls = tls.into();
        snapshot.server.tls_failed = failed.map(String::from);
        app.snapshot = Some(snapshot.into());
        app.local = local;
        line(&app, width).to_string()
    }

    #[test]
    fn a_standby_tells_how_old_it_is_and_a_wrong_clock_here_is_told() {
        let mut app = fixture::incident();
        let mut snapshot = (**app.snapshot.as_ref().expect("data")).clone();
        let last = snapshot.taken_at.map(|t| t.plus(-12.0));
        (snapshot.server.in_recovery, snapshot.server.replayed_at) = (true, last);
        snapshot.server.clock_skew_s = Some(-7200.0);
        app.snapshot = Some(snapshot.into());
        let text = line(&app, 200).to_string();
        assert!(text.contains("standby, last change 12s ago"), "{text}");
        assert!(text.contains("clock here 2h00m ahead"), "{text}");
        let narrow = line(&app, 80).to_string();
        assert!(!narrow.contains("clock"));
        assert!(narrow.contains(" standby, 12s old "), "{narrow}");
        let tight = line(&app, 60).to_string();
        assert!(tight.contains(" RO") && !tight.contains("old"), "{tight}");
        let mut recent = (**app.snapshot.as_ref().expect("data")).clone();
        recent.server.replayed_at = recent.taken_at.map(|t| t.plus(-9.0));
        app.snapshot = Some(recent.into());
        assert!(!line(&app, 80).to_string().contains("old"));
    }

    #[test]
    fn what_protects_the_connection_is_said_where_it_matters() {
        assert!(header("TLS 1.3, not verified", false, 160).contains("  TLS 1.3, not verified  "));
        assert!(header("TLS 1.3, verified", false, 80).contains("  TLS  "));
        for part in ["not verified", "verified, name not checked"] {
            let header = header(&format!("TLS 1.3, {part}"), false, 80);
            assert!(header.contains("  TLS ?  "), "{header}");
        }
        assert!(header("NOT ENCRYPTED", false, 160).contains("  NOT ENCRYPTED  "));
        assert!(header("NOT ENCRYPTED", false, 80).contains("  NO TLS "));
        for local in [false, true] {
            let failed = "NOT ENCRYPTED: the certificate has expired";
            let wide = header(failed, local, 160);
            assert!(wide.contains("  NOT ENCRYPTED: TLS failed  "), "{wide}");
            assert!(header(failed, local, 80).contains("  NO TLS "));
        }
        for width in [60, 80, 160] {
            assert!(!header("NOT ENCRYPTED", true, width).contains("NO"));
            assert!(!header("none (socket)", true, width).contains("socket"));
        }
    }
}
