//! Each act of the demo as a person meets it: the real feed reads the real server, the act's own finding comes
//! within two refreshes of its cause, the verdict is the right sentence, and when somebody removes the cause by
//! hand in SQL it goes and stays away. A calm day has no finding at all.

mod acts;
mod watch;

use jobtop::demo::{ACTS, Act, Scenario};
use jobtop::findings::{Finding, Severity};
use tokio::sync::Semaphore;
use watch::{Look, Watch};

/// Demos at a time: each is a server and forty clients.
static STAGE: Semaphore = Semaphore::const_new(3);

/// Refreshes for which a finding must stay away.
const AWAY: usize = 6;

/// What an act is for.
struct Case {
    act: Act,
    /// Its own rule.
    rule: &'static str,
    severity: Severity,
    /// The probe that the rule reads.
    probe: &'static str,
    /// Seconds for which it keeps what it has read.
    keeps_s: f64,
    /// Refreshes in which the rule can tell.
    counts: fn(&Look) -> bool,
    /// What holds in the database when the rule's trigger does, and within how many seconds of the start.
    trigger: String,
    within_s: f64,
    /// Words of the sentence.
    says: &'static [&'static str],
}

/// Waits for the act's finding, checks when and how it came, and returns it.
async fn comes(watch: &Watch, case: &Case) -> Finding {
    let rule = case.rule;
    let true_at = watch.when(rule, &case.trigger, case.within_s).await;
    let found = watch.until(rule, 25.0, |l| l.finding(rule).is_some()).await;
    let finding = found.finding(rule).expect("the finding").clone();
    let refreshes = watch.readings(case, true_at, found.at);
    eprintln!(
        "{}: {rule} after {:.1} s, {refreshes} refreshes: {}",
        case.act.name(),
        found.at - true_at,
        finding.sentence
    );
    assert!(refreshes <= 2, "{rule} took {refreshes} refreshes");
    assert_eq!(finding.severity, case.severity, "{finding:#?}");
    for words in case.says {
        assert!(
            finding.sentence.contains(words),
            "{words:?} in {:?}",
            finding.sentence
        );
    }
    // Who reads only one sentence reads this one, or one that explains it.
    let top = found.report.top().expect("a verdict");
    assert!(
        top.rule == rule || finding.explained_by.as_ref() == Some(&top.rule),
        "{} has the verdict: {:#?}",
        top.rule,
        found.report.findings
    );
    assert_eq!(found.report.verdict, top.sentence);
    finding
}

/// The cause has been removed: waits until it is gone from the database, then from the screen, and stays away.
async fn goes(watch: &Watch, case: &Case, over: &str, within_s: f64) {
    let rule = case.rule;
    let over_at = watch.when(&format!("end of {rule}"), over, within_s).await;
    let clear_after = jobtop::demo::settings().thresholds.clear_after;
    let gone = watch
        .until(&format!("end of {rule}"), clear_after + 12.0, |l| {
            l.at > over_at && l.finding(rule).is_none()
        })
        .await;
    let seen_at = watch.first_reading(case.probe, over_at);
    let late = watch.readings(case, seen_at + clear_after, gone.at);
    eprintln!(
        "{}: {rule} gone {:.1} s after its cause, {late} refreshes late",
        case.act.name(),
        gone.at - over_at
    );
    assert!(late <= 3, "{rule} stayed {late} refreshes too long");
    let seen = watch.looks().len();
    watch
        .until_count(&format!("{AWAY} refreshes"), seen + AWAY)
        .await;
    for look in watch.looks().iter().skip(seen) {
        assert_eq!(look.finding(rule), None, "it came back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_calm_day_has_no_finding() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let watch = Watch::start(Scenario::Calm).await;
    let begun = watch.until("the first refresh", 5.0, |_| true).await.at;
    watch
        .until("40 calm seconds", 45.0, |l| l.at > begun + 40.0)
        .await;
    for look in watch.looks() {
        assert_eq!(look.report.top(), None, "{:#?}", look.report);
    }
    let last = watch.last().expect("a refresh");
    assert!(
        last.report.verdict.starts_with("all is well"),
        "{}",
        last.report.verdict
    );
    assert!(watch.looks().len() >= 10);
    watch.stop().await;
}

/// The rules that an act is for, in the order of their coming.
fn rules(act: Act) -> &'static [&'static str] {
    match act {
        Act::IdleInTransaction => &["idle-in-transaction"],
        Act::ProviderSlow => &["slow-outside"],
        Act::WorkersKilled => &["owners-gone", "leases-expired"],
        Act::RetryStorm => &["failing"],
        Act::MigrationWaits => &["table-lock"],
        Act::CostRunaway => &["cost-runaway"],
        Act::OldSnapshot => &["xmin-held"],
        Act::BudgetFull => &["budget"],
        Act::EnqueuerStopped => &["inflow-stopped"],
    }
}

/// What a newcomer reads who leaves the demo alone: one act after another, each with its own sentence on top, and a
/// recovery at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes eight minutes"]
async fn every_act_of_an_incident_has_its_turn() {
    let _turn = STAGE.acquire().await.expect("a turn");
    let watch = Watch::start(Scenario::Incident).await;
    for rule in ACTS.iter().flat_map(|act| rules(*act)) {
        let on_top = |l: &Look| l.report.top().is_some_and(|f| f.rule == *rule);
        watch.until(rule, 60.0, on_top).await;
    }
    watch
        .until("all is well again", 30.0, |l| l.report.top().is_none())
        .await;
    watch.stop().await;
}
