//! A standby that gets no more changes goes on to answer, and its tasks stay as they were: their leases seem to expire and
//! their workers to stand still, whatever happens on the primary.

use super::unreadable::ON_TASKS;
use crate::findings::Severity;
use crate::findings::rule::{Ctx, Held, Place, Rule, Trigger};
use crate::findings::words::duration;
use crate::probe::ServerTime;
use crate::probe::replay::QUIET;
use crate::probe::server::Server;

/// The rule's name.
pub const NAME: &str = "standby-cut-off";

/// See the module.
#[derive(Default)]
pub struct StandbyCutOff {
    /// Keyed by the newest change: another one begins anew.
    quiet: Held,
    /// The newest change at the last look, where that saw no WAL receiver.
    alone: Option<Option<ServerTime>>,
    /// It had a WAL receiver, and has got nothing in another way since.
    streamed: bool,
}

impl Rule for StandbyCutOff {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> (&'static str, &'static str) {
        (
            "This standby has no WAL receiver and replays no changes: its primary is down, refuses it, or cannot be reached. What is said of tasks is from its newest change.",
            "Look at primary_conninfo and the log here, and whether the primary is up and what its log says; until it is back, ask the primary itself about tasks.",
        )
    }

    fn place(&self) -> Place {
        Place::Database
    }

    fn explains(&self) -> &'static [&'static str] {
        &ON_TASKS
    }

    fn check(&mut self, ctx: &Ctx) -> Vec<Trigger> {
        self.look(&ctx.snapshot.server);
        let silence = ctx.snapshot.silence();
        let silence = silence.filter(|s| s.is_long() || self.streamed);
        let last = ctx.snapshot.server.replayed_at;
        let key = format!("{:?}", last.map(ServerTime::epoch));
        self.quiet.keep(ctx, silence.map(|_| key.clone()));
        let held = self.quiet.for_s(ctx, &key) >= QUIET;
        let Some(silence) = silence.filter(|_| held) else {
            return Vec::new();
        };
        let sentence = format!(
            "this standby gets nothing from its primary: {}; what is said of tasks is from then; check {}, the primary and its log, or ask the primary itself",
            silence.words(duration),
            silence.settings()
        );
        vec![
            Trigger::new("", Severity::Warning, sentence)
                .brief("cut off from primary")
                .began(silence.age_s)
                .explains(&ON_TASKS),
        ]
    }

    fn forget(&mut self) {
        *self = Self::default();
    }
}

impl StandbyCutOff {
    /// What comes while there is no receiver comes from an archive; the first of it may be what was received before.
    fn look(&mut self, server: &Server) {
        let receives = server.wal_receiver == Some(true);
        let restored = self.alone.is_some_and(|last| last != server.replayed_at);
        self.streamed = receives || self.streamed && !restored;
        self.alone = (!receives).then_some(server.replayed_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::findings::tests::*;
    use crate::findings::{Mark, Report, Tracker};
    use crate::probe::Snapshot;

    /// What is said last of a standby that is looked at each two seconds; `change` is given the seconds since the start.
    fn after(seconds: u32, change: impl Fn(&mut Snapshot, f64)) -> Report {
        let mut tracker = Tracker::new(&Config::default());
        let looks = (0..=seconds).step_by(2).map(|s| {
            let s = f64::from(s);
            let mut snapshot = example(NAME);
            snapshot.taken_at = Some(at(s));
            change(&mut snapshot, s);
            tracker.update(&snapshot)
        });
        looks.last().expect("a look")
    }

    fn says_so(report: &Report) -> bool {
        report.findings.iter().any(|f| f.rule == NAME)
    }

    #[test]
    fn the_age_of_its_tasks_is_told_after_a_while() {
        assert_eq!(
            says(NAME, &example(NAME)),
            "this standby gets nothing from its primary: last change 38s ago, no WAL receiver; what is said of tasks is from \
             then; check primary_conninfo, the primary and its log, or ask the primary itself"
        );
        assert!(!says_so(&after(8, |_, _| {})), "it may connect again");
        let report = after(14, |_, _| {});
        assert!(says_so(&report), "{report:#?}");
        assert!(report.verdict.contains("last change 52s ago"));
    }

    #[test]
    fn an_idle_primary_and_one_that_comes_back_are_calm() {
        let idle = after(60, |s, _| s.server.wal_receiver = Some(true));
        assert!(!says_so(&idle));
        let back = after(60, |s, t| s.server.wal_receiver = Some(t % 10.0 == 0.0));
        assert!(!says_so(&back));
        let unknown = after(60, |s, _| s.server.wal_receiver = None);
        assert!(!says_so(&unknown));
        let promoted = after(60, |s, _| s.server.in_recovery = false);
        assert!(!says_so(&promoted));
    }

    #[test]
    fn what_is_still_replayed_is_no_silence() {
        let behind = |s: &mut Snapshot, t| s.server.replayed_at = Some(at(t - 90.0));
        assert!(!says_so(&after(60, behind)));
    }

    #[test]
    fn an_archive_is_waited_for_unless_the_primary_was_connected() {
        let archive = |s: &mut Snapshot, _| s.server.restores = true;
        assert!(!says_so(&after(60, archive)), "its next segment is due");
        let over = after(400, archive);
        let words = "check primary_conninfo and restore_command";
        assert!(says_so(&over) && over.verdict.contains(words));
        let streamed = |s: &mut Snapshot, t| {
            archive(s, t);
            s.server.wal_receiver = Some(t < 20.0);
            s.server.replayed_at = Some(at(f64::min(t, 20.0)));
        };
        assert!(says_so(&after(60, streamed)));
        let instead = |s: &mut Snapshot, t| {
            streamed(s, t);
            s.server.replayed_at = Some(at(30.0 * (t / 30.0_f64).floor()));
        };
        assert!(!says_so(&after(88, instead)), "the archive goes on");
    }

    #[test]
    fn what_is_made_of_its_tasks_stands_under_it_and_lends_it_its_gravity() {
        let mut s = example("stalled");
        s.server = example(NAME).server;
        s.leases = example("leases-expired").leases;
        let report = once(&s);
        let top = report.top().expect("a finding");
        assert_eq!((&*top.rule, top.severity), (NAME, Severity::Critical));
        for rule in ["stalled", "leases-expired"] {
            assert_eq!(of(rule, &s)[0].explained_by.as_deref(), Some(NAME));
        }
        let layers = &report.layers;
        for layer in [&layers.queue, &layers.workers, &layers.outside] {
            assert_eq!((layer.mark, &*layer.text), (Mark::Unknown, "as of 38s ago"));
        }
        assert_eq!(layers.database.text, "cut off from primary");
    }
}
