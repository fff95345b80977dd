//! From triggers to findings: two looks before one is believed, a while before it is dropped, causes over symptoms.

use super::rule::{Ctx, Place, Rule, Trigger};
use super::{Finding, Report, Severity, order, rules, verdict, where_line};
use crate::config::Config;
use crate::probe::Snapshot;
use std::collections::BTreeMap;

/// Refreshes in which a trigger must have held.
const LOOKS: u32 = 2;
/// Steps of the server's clock backwards that are forgiven, in seconds: it is adjusted now and then.
const SLEW: f64 = 1.0;

/// One refresh in which a trigger did not hold proves nothing; after so many seconds it is over, and says so until it
/// clears.
fn grace(interval: f64) -> f64 {
    2.5 * interval
}

/// A trigger over time.
struct Track {
    /// When it was first seen to hold.
    first: f64,
    /// When it was last seen to hold.
    last: f64,
    /// When its cause began, as last told.
    began: f64,
    /// Refreshes in which it held.
    looks: u32,
    /// It is a finding.
    fired: bool,
    /// Until when it cannot be told whether it holds, since its queue is only half there.
    unknown: f64,
    /// What it said last.
    trigger: Trigger,
}

impl Track {
    /// Is it about what is not read, since a system is only half there? What sessions do is read all the same.
    fn is_hidden(&self, place: Place, snapshot: &Snapshot) -> bool {
        let of_queues = matches!(place, Place::Queue | Place::Workers | Place::Outside);
        of_queues
            && match &self.trigger.scope.home {
                Some((system, schema)) => snapshot.half_of(system, schema).is_some(),
                None => !snapshot.half_there.is_empty(),
            }
    }

    /// It stays as it was last known.
    fn hold(&mut self, now: f64) {
        if self.last == f64::NEG_INFINITY {
            (self.first, self.began) = (now, now);
        }
        self.last = now;
    }

    /// Is the system that it is about not here any more?
    fn has_left(&self, snapshot: &Snapshot) -> bool {
        let home = self.trigger.scope.home.as_ref();
        home.is_some_and(|(system, schema)| snapshot.has_left(system, schema))
    }
}

/// A trigger that is a finding now.
pub struct Active<'a> {
    /// Place of its rule in the list.
    pub rank: usize,
    /// Name of its rule.
    pub rule: &'static str,
    /// Layer of its rule.
    pub place: Place,
    /// Seconds since it began.
    pub since_s: f64,
    /// What it says.
    pub trigger: &'a Trigger,
}

/// Remembers what held at earlier refreshes. No I/O and no clock: time is the snapshot's own.
pub struct Tracker {
    config: Config,
    rules: Vec<Box<dyn Rule>>,
    tracks: BTreeMap<(usize, String), Track>,
    last: Option<f64>,
    lasts: bool,
    /// The database that all this is about.
    database: u32,
}

impl Tracker {
    /// A tracker that has seen nothing.
    pub fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            rules: rules::all(),
            tracks: BTreeMap::new(),
            last: None,
            lasts: false,
            database: 0,
        }
    }

    /// What a single snapshot would say if all that it shows had lasted, whatever only further refreshes could tell
    /// (that a trigger holds twice, that a server is short of connections for ten seconds): what is worth another look.
    pub fn if_it_lasts(config: &Config, snapshot: &Snapshot) -> Report {
        let mut tracker = Self::new(config);
        tracker.lasts = true;
        tracker.update(snapshot)
    }

    /// What this snapshot, and those before it, say.
    pub fn update(&mut self, snapshot: &Snapshot) -> Report {
        self.watch(snapshot.server.database_oid);
        let told = snapshot
            .taken_at
            .map(|t| t.epoch())
            .filter(|t| t.is_finite());
        if told.is_none() && self.last.is_none() && !self.lasts {
            return Report {
                verdict: "no verdict yet: the server has not told its time".into(),
                layers: where_line::unread(),
                findings: Vec::new(),
            };
        }
        let now = self.now(told);
        let whole = snapshot;
        let known = whole.known();
        let snapshot = known.as_ref();
        let patience = Ctx::new(snapshot, &self.config, now, self.lasts).patience();
        let interval = self.config.interval.max(snapshot.own.interval_s);
        let step = self.last.map_or(0.0, |last| now - last);
        let torn = step < 0.0 || step > patience;
        let fresh = self.last.is_none() || step != 0.0;
        if torn {
            self.forget();
        }
        let ctx = Ctx::new(snapshot, &self.config, now, self.lasts);
        for (rank, rule) in self.rules.iter_mut().enumerate() {
            for trigger in rule.check(&ctx) {
                debug_assert!(
                    trigger.explains.iter().all(|r| rule.explains().contains(r)),
                    "{} explains what it does not say it may",
                    rule.name()
                );
                see(&mut self.tracks, rank, trigger, now, fresh, grace(interval));
            }
        }
        let clear_after = self.config.thresholds.clear_after;
        let before = self.last.unwrap_or(now);
        for ((rank, _), track) in &mut self.tracks {
            let held = track.last == f64::NEG_INFINITY || before - track.last <= grace(interval);
            let hidden = || track.is_hidden(self.rules[*rank].place(), whole);
            if track.last < now && held && hidden() {
                // a rule may have to look for a while at what can be read again
                track.unknown = now + clear_after;
            }
            if track.fired && track.unknown >= now {
                track.hold(now);
            }
        }
        let remember = clear_after.max(2.5 * interval).min(patience);
        let lasts = self.lasts;
        self.tracks.retain(|_, track| {
            let gone = now - track.last;
            track.fired = track.fired || track.looks >= LOOKS || lasts;
            let keep = if track.fired {
                gone < clear_after || gone == 0.0
            } else {
                gone < remember
            };
            keep && !(torn && track.last < now) && !track.has_left(whole)
        });
        self.last = Some(now);
        self.report(&ctx, now)
    }

    /// What was said of another database is no longer about anything.
    fn watch(&mut self, database: u32) {
        if database == 0 || database == self.database {
            return;
        }
        if self.database != 0 {
            *self = Self {
                lasts: self.lasts,
                ..Self::new(&self.config)
            };
        }
        self.database = database;
    }

    /// The snapshot's time; the last known one where it has none, or was only adjusted.
    fn now(&self, told: Option<f64>) -> f64 {
        match (told, self.last) {
            (Some(told), Some(last)) if told < last && last - told < SLEW => last,
            (Some(told), _) => told,
            (None, last) => last.unwrap_or_default(),
        }
    }

    /// Time was lost or went back: only what holds at this very refresh goes on being a finding, and since now.
    fn forget(&mut self) {
        for rule in &mut self.rules {
            rule.forget();
        }
        self.tracks.retain(|_, track| track.fired);
        for track in self.tracks.values_mut() {
            track.last = f64::NEG_INFINITY;
            track.unknown = f64::NEG_INFINITY;
        }
    }

    fn report(&self, ctx: &Ctx, now: f64) -> Report {
        let interval = self.config.interval.max(ctx.snapshot.own.interval_s);
        let unknown = |track: &Track| track.unknown >= now;
        let holds = |track: &Track| now - track.last <= grace(interval);
        let active = self.active(now, |track| !unknown(track) && holds(track));
        let over = self.active(now, |track| !unknown(track) && !holds(track));
        let last_known = self.active(now, unknown);
        let undecided = self
            .tracks
            .values()
            .any(|t| !t.fired && t.last == now && t.trigger.severity > Severity::Info);
        let mut findings: Vec<Finding> = order::order(&active);
        let layers = where_line::layers(ctx, &active);
        let verdict = verdict::verdict(ctx, &findings, &layers, undecided);
        let told = [("last known", last_known), ("over", over)];
        for (word, tracks) in &told {
            findings.extend(order::order(tracks).into_iter().map(|f| Finding {
                severity: Severity::Info,
                sentence: format!("{word}: {}", f.sentence),
                ..f
            }));
        }
        Report {
            verdict,
            layers,
            findings,
        }
    }

    /// Findings of such tracks.
    fn active(&self, now: f64, wanted: impl Fn(&Track) -> bool) -> Vec<Active<'_>> {
        self.tracks
            .iter()
            .filter(|(_, track)| track.fired && wanted(track))
            .map(|((rank, _), track)| Active {
                rank: *rank,
                rule: self.rules[*rank].name(),
                place: self.rules[*rank].place(),
                since_s: (now - track.first.min(track.began)).max(0.0),
                trigger: &track.trigger,
            })
            .collect()
    }
}

fn see(
    tracks: &mut BTreeMap<(usize, String), Track>,
    rank: usize,
    trigger: Trigger,
    now: f64,
    fresh: bool,
    grace: f64,
) {
    let began = trigger.began_s.map_or(now, |s| now - s);
    let key = (rank, trigger.key.clone());
    match tracks.get_mut(&key) {
        Some(track) => {
            // one that was over and tells itself since when is another one of its kind
            let another = trigger.began_s.is_some() && now - track.last > grace;
            if track.last == f64::NEG_INFINITY || another {
                track.first = now;
            }
            track.looks = track.looks.saturating_add(u32::from(fresh));
            track.last = now;
            track.unknown = f64::NEG_INFINITY;
            track.began = began;
            track.trigger = trigger;
        }
        None => {
            let track = Track {
                first: now,
                last: now,
                began,
                looks: 1,
                fired: false,
                unknown: f64::NEG_INFINITY,
                trigger,
            };
            tracks.insert(key, track);
        }
    }
}
