//! What the feed says, and is told: data that arrives, a connection that is lost and found, who looks at what.

use super::back;
use super::row::RowId;
use super::state::{App, Layer, Link, PaneId, Retry, Tone};
use super::update::{Effect, Msg};
use crate::feed::News;
use crate::findings::{Finding, Report, Severity};
use crate::probe::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Samples of waits that are kept: an hour at one a second.
const WAIT_SAMPLES: usize = 3600;

impl App {
    /// Takes a message that arrived at local time `now` (seconds) and says what to do outside.
    pub fn update(&mut self, now: f64, msg: Msg) -> Vec<Effect> {
        let mut effects = self.message(now, msg);
        // the pane with the focus is always on the screen, whole or in the overview
        let looks = self.focus == PaneId::Failures;
        if self.watching != looks {
            self.watching = looks;
            effects.push(Effect::Watch(looks));
        }
        effects
    }

    pub(super) fn news(&mut self, news: News) -> Vec<Effect> {
        match news {
            News::Connecting(why) => {
                self.link = Link::Connecting(why);
                vec![]
            }
            News::Refused(why) => vec![Effect::Fail(why)],
            News::Snapshot(snapshot, report) => {
                self.take(snapshot, report);
                vec![]
            }
            News::Lost { reason, retry_in } => {
                let (since, failed) = match self.link {
                    Link::Lost { since, retry, .. } => (since, retry.failed.saturating_add(1)),
                    _ => {
                        self.note(Tone::Error, format!("connection lost: {reason}"));
                        // what was said of the last return is over
                        self.toasts.retain(|t| !back::is_it(&t.text));
                        (self.now, 0)
                    }
                };
                let retry = Retry {
                    failed,
                    pause: retry_in,
                    at: self.now + retry_in,
                };
                self.link = Link::Lost {
                    reason,
                    since,
                    retry,
                };
                vec![]
            }
            News::Detail(row, detail) => {
                self.details.insert(row.clone(), detail);
                self.session_read(&row);
                vec![]
            }
            News::Preview(n, read) => {
                self.preview(n, read);
                vec![]
            }
            News::Progress(progress) => {
                self.progress(progress);
                vec![]
            }
            News::Outcome(outcome) => self.outcome(&outcome),
            News::Struck(struck) => self.struck(&struck),
            News::Asleep => vec![],
        }
    }

    fn take(&mut self, snapshot: Arc<Snapshot>, report: Arc<Report>) {
        let (lost, crashed) = match &self.link {
            Link::Lost { since, reason, .. } => (Some(*since), back::crashed(reason)),
            _ => (None, None),
        };
        self.link = Link::Live;
        self.arrived = self.now;
        self.sample_waits(&snapshot);
        let seen = self.snapshot.replace(snapshot.clone());
        let old_failure = seen.as_ref().and_then(|s| s.server.tls_failed.clone());
        let mut before = std::mem::replace(&mut self.report, report);
        if (seen.as_ref()).is_some_and(|seen| back::another_database(seen, &snapshot)) {
            before = Arc::default();
            self.let_go();
        }
        let changed = seen
            .and_then(|seen| back::changed(&seen, &snapshot))
            .or(crashed);
        // who looks away must not miss that it is another one
        let tone = changed.as_ref().map_or(Tone::Info, |_| Tone::Warning);
        match (lost, changed) {
            (Some(since), changed) => {
                self.toast(tone, back::sentence(self.now - since, changed.as_deref()));
            }
            (None, Some(changed)) => self.toast(tone, changed),
            (None, None) => {}
        }
        self.unprotected(old_failure.as_deref());
        self.note_changes(&before);
        self.drop_vanished_marks();
    }

    /// The line was to be encrypted and is not: said once, since the header has no room for the reason.
    fn unprotected(&mut self, before: Option<&str>) {
        let server = self.snapshot.as_ref().map(|s| &s.server);
        let now = server.and_then(|s| s.tls_failed.clone());
        if let Some(why) = now.filter(|now| before != Some(now)) {
            self.toast(Tone::Warning, format!("not encrypted; with TLS: {why}"));
        }
    }

    /// Another database answers: what was chosen, opened and counted is of the one before, and its ids may be the same.
    fn let_go(&mut self) {
        let kept = |l: &Layer| matches!(l, Layer::Help { .. } | Layer::Palette(_));
        self.layers.retain(kept);
        self.marks.clear();
        self.matching = None;
        self.details.clear();
        self.wait_samples.clear();
    }

    /// Logs findings that came, rose or went.
    fn note_changes(&mut self, before: &Report) {
        let report = self.report.clone();
        let known = |list: &[Finding], f: &Finding| {
            list.iter()
                .any(|o| o.rule == f.rule && o.severity == f.severity)
        };
        for f in &report.findings {
            if f.explained_by.is_none() && !known(&before.findings, f) {
                let tone = match f.severity {
                    Severity::Info => Tone::Info,
                    Severity::Warning => Tone::Warning,
                    Severity::Critical => Tone::Error,
                };
                self.note(tone, format!("{}: {}", f.rule, f.sentence));
            }
        }
        let rules = |r: &Report| -> BTreeSet<String> {
            r.findings.iter().map(|f| f.rule.clone()).collect()
        };
        for rule in rules(before).difference(&rules(&report)) {
            let its = || before.findings.iter().filter(|f| f.rule == *rule);
            let left = its().all(|f| self.has_left(f));
            let what = if left { "not known any more" } else { "over" };
            self.note(Tone::Info, format!("{rule}: {what}"));
        }
    }

    /// Is the system that it is about not here any more?
    fn has_left(&self, finding: &Finding) -> bool {
        let home = finding.culprit.as_ref().and_then(RowId::home);
        home.zip(self.snapshot.as_ref())
            .is_some_and(|((system, schema), s)| s.has_left(system, schema))
    }

    fn sample_waits(&mut self, snapshot: &Snapshot) {
        let mut sample = [0u16; 4];
        for wait in &snapshot.waits {
            let at = match wait.kind.as_str() {
                "CPU" => 0,
                "Lock" => 1,
                "IO" => 2,
                _ => 3,
            };
            sample[at] = sample[at].saturating_add(wait.sessions.min(u32::from(u16::MAX)) as u16);
        }
        self.wait_samples.push_back(sample);
        if self.wait_samples.len() > WAIT_SAMPLES {
            self.wait_samples.pop_front();
        }
    }

    fn drop_vanished_marks(&mut self) {
        if self.marks.is_empty() || self.held.is_some() {
            return;
        }
        let Some(snapshot) = &self.snapshot else {
            return;
        };
        let here: BTreeSet<_> = snapshot.tasks.rows.iter().map(|t| &t.key).collect();
        let before = self.marks.len();
        self.marks.retain(|key| here.contains(key));
        let gone = before - self.marks.len();
        if gone > 0 {
            let tasks = if gone == 1 { "task" } else { "tasks" };
            self.toast(
                Tone::Info,
                format!("{gone} marked {tasks} left the list and lost the mark"),
            );
        }
    }
}
