//! One snapshot for scripts and for terminals that cannot draw: tables, JSON, or only what is wrong.

use crate::config::Config;
use crate::connect::session::Purpose;
use crate::connect::{Fault, Session, Target, advice};
use crate::feed::round::Round;
use crate::findings::{Finding, Report, Severity, Tracker};
use crate::log;
use crate::out::tell;
use crate::probe::Snapshot;
use crate::probe::tasks::Filter;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The connection could not be made: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("no connection to {host}: {fault}")]
pub struct Refused {
    host: String,
    fault: Fault,
}

impl Refused {
    /// No connection to this host and port.
    pub fn new(host: &str, mut fault: Fault) -> Self {
        if let Some(advice) = advice::reach(&fault) {
            fault.message = format!("{}: {advice}", fault.message);
        }
        Self {
            host: host.to_string(),
            fault,
        }
    }
}

/// Connects, or says why not. A connection that was to be encrypted and is not is told on stderr.
pub async fn open(target: &Target) -> Result<Session, Refused> {
    let opened = Session::open(target, Purpose::Poll, "jobtop").await;
    let session = opened.map_err(|fault| Refused::new(&target.place(), fault))?;
    if let Some(why) = &session.reached.unencrypted {
        tell(&format!("not encrypted; with TLS: {why}"));
    }
    Ok(session)
}

/// Looks at most, a second apart: ten seconds are what a shortage of connections must last.
const LOOKS: u32 = 13;

/// Reads everything twice, a second apart, and judges it as the screen does at its second refresh. Where something is
/// wrong that must last, it reads on, twelve seconds at most; what is not certain even then is a finding of no gravity.
pub async fn snapshot(
    target: &Target,
    config: &Arc<Config>,
) -> anyhow::Result<(Arc<Snapshot>, Report)> {
    let session = open(target).await?;
    let mut round = Round::new(target.clone(), config.clone())?;
    let mut tracker = Tracker::new(config);
    round.connected();
    round.run_database(&session).await?;
    round.run_queues(&session).await?;
    tracker.update(&round.assemble());
    round.hurry();
    round.watch(true);
    let mut looks = 1;
    loop {
        looks += 1;
        session.take_cost();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        round.run_database(&session).await?;
        round.run_queues(&session).await?;
        let (statements, us) = session.take_cost();
        log::refreshed(begun, (statements, us), Duration::from_secs(1));
        let own = &mut round.snapshot.own;
        own.connections = 1;
        own.statements_per_refresh = statements;
        own.server_ms_per_refresh = us as f64 / 1000.0;
        own.interval_s = config.interval;
        own.share_of_server_time = us as f64 / 1e6 / config.interval;
        own.pid = session.pid;
        let snapshot = round.assemble();
        let mut report = tracker.update(&snapshot);
        let open = open_questions(&report, Tracker::if_it_lasts(config, &snapshot));
        if open.is_empty() || looks >= LOOKS {
            report.findings.extend(open);
            session.close().await;
            return Ok((snapshot, report));
        }
    }
}

/// What would be wrong if it had lasted, and is not known to have.
fn open_questions(report: &Report, if_it_lasts: Report) -> Vec<Finding> {
    let known = |f: &Finding| {
        let same = |k: &Finding| k.rule == f.rule && k.culprit == f.culprit;
        f.severity == Severity::Info || report.findings.iter().any(same)
    };
    let open = if_it_lasts.findings.into_iter().filter(|f| !known(f));
    open.map(|f| Finding {
        severity: Severity::Info,
        sentence: format!("not seen for long enough to tell: {}", f.sentence),
        explained_by: None,
        ..f
    })
    .collect()
}

/// Task rows by state and queue, in a snapshot that tells the server's clock.
pub async fn tasks(
    target: &Target,
    config: &Arc<Config>,
    filter: &Filter,
) -> anyhow::Result<Snapshot> {
    let session = open(target).await?;
    let mut round = Round::new(target.clone(), config.clone())?;
    round.run_database(&session).await?;
    let rows = round.list(&session, filter).await?;
    session.close().await;
    round.snapshot.tasks.rows = rows;
    Ok(round.snapshot)
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    #[serde(flatten)]
    report: &'a Report,
}

/// A snapshot and what it says, as JSON.
pub fn json(snapshot: &Snapshot, report: &Report) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&Whole { snapshot, report })
}

/// The verdict and every finding, a line each.
pub fn findings(report: &Report) -> String {
    let mut text = format!("{}\n", report.verdict);
    for f in &report.findings {
        let severity = match f.severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "CRITICAL",
        };
        text.push_str(&format!("{severity:<9} {:<20} {}\n", f.rule, f.sentence));
    }
    text
}

/// Why nothing can be said about the queues, if so: silence would not mean that all is well.
pub fn blind(snapshot: &Snapshot) -> Option<String> {
    let unread = snapshot.probes.iter().find(|p| p.name == "queues");
    let error = unread.and_then(|p| p.error.clone());
    let none = snapshot.totals.is_empty().then(|| snapshot.no_queue());
    error.or(none.flatten())
}

/// Is anything critical?
pub fn critical(report: &Report) -> bool {
    report
        .findings
        .iter()
        .any(|f| f.severity == Severity::Critical)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: &str, severity: Severity) -> Finding {
        Finding {
            rule: rule.into(),
            severity,
            since_s: 0.0,
            sentence: format!("{rule} it is"),
            culprit: None,
            explained_by: None,
        }
    }

    fn report(findings: &[Finding]) -> Report {
        Report {
            findings: findings.to_vec(),
            ..Report::default()
        }
    }

    #[test]
    fn only_what_is_not_known_is_open_and_of_no_gravity() {
        let budget = finding("budget", Severity::Warning);
        let short = finding("connections", Severity::Critical);
        let sight = finding("limited-view", Severity::Info);
        let all = report(&[short.clone(), budget.clone(), sight]);
        let open = open_questions(&report(&[budget]), all.clone());
        assert_eq!(open.len(), 1, "{open:?}");
        assert_eq!(open[0].severity, Severity::Info);
        assert_eq!(
            open[0].sentence,
            "not seen for long enough to tell: connections it is"
        );
        assert!(!critical(&report(&open)));
        assert_eq!(open_questions(&all, all.clone()), []);
    }
}
