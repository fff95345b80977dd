//! What is remembered of finished tries: cells by time slot. Recent slots are ten seconds long and replaced as a whole
//! when they are read again; older ones are folded into minutes and into slots of at most ten minutes.

use crate::probe::stages::StageName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Seconds of a fine slot.
pub const FINE: i64 = 10;
/// Seconds that fine slots reach back: what is recent is read from them alone.
pub const RECENT: i64 = 600;
/// Cells at most: beyond that nothing new is kept apart by kind, tenant, worker, error or duration.
const CELLS: usize = 100_000;
/// Each bin ends at 1.1 times its beginning; the first ends at a millisecond.
const RATIO: f64 = 1.1;
/// The last bin.
pub const BINS: u16 = 290;

/// The stages, in the order of [`Cell::max`].
pub const STAGES: [StageName; 4] = [
    StageName::Wait,
    StageName::Start,
    StageName::Run,
    StageName::Total,
];

/// A queue, kind, tenant, worker or error. Cells of many slots share one.
pub type Name = Arc<str>;

/// What a cell counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Tries of a kind (empty: none).
    Kind(Name, Name),
    /// Tries of a tenant.
    Tenant(Name, Name),
    /// Tries of a worker.
    Worker(Name, Name),
    /// Failed tries of a kind by error.
    KindError(Name, Name, Name),
    /// Failed tries of a tenant by error.
    TenantError(Name, Name, Name),
    /// Durations, of which only the number counts.
    Bin(Bin),
}

/// Durations: queue, kind, index of the stage, number of the bin.
pub type Bin = (Name, Name, u8, u16);

impl Key {
    /// Its queue.
    pub fn queue(&self) -> &str {
        match self {
            Key::Kind(q, _)
            | Key::Tenant(q, _)
            | Key::Worker(q, _)
            | Key::KindError(q, _, _)
            | Key::TenantError(q, _, _)
            | Key::Bin((q, ..)) => q,
        }
    }

    /// The same with names that are shared.
    fn sharing(mut self, names: &mut BTreeSet<Name>) -> Self {
        let mut share = |name: &mut Name| match names.get(name) {
            Some(known) => *name = known.clone(),
            None => {
                names.insert(name.clone());
            }
        };
        match &mut self {
            Key::Kind(a, b) | Key::Tenant(a, b) | Key::Worker(a, b) | Key::Bin((a, b, ..)) => {
                share(a);
                share(b);
            }
            Key::KindError(a, b, c) | Key::TenantError(a, b, c) => {
                share(a);
                share(b);
                share(c);
            }
        }
        self
    }
}

/// Counts of one key in one slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Tries that ended (for ends unknown: that were claimed).
    pub n: u64,
    /// Of those, failed.
    pub failed: u64,
    /// Tasks that reached succeeded, failed, cancelled with the try.
    pub final_states: [u64; 3],
    /// Longest by stage, in seconds; negative where none is known.
    pub max: [f64; 4],
    /// Newest claim, in seconds since 1970; negative infinity where none is known.
    pub claimed: f64,
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            n: 0,
            failed: 0,
            final_states: [0; 3],
            max: [-1.0; 4],
            claimed: f64::NEG_INFINITY,
        }
    }
}

impl Cell {
    /// Adds another cell's counts.
    pub fn add(&mut self, other: &Cell) {
        self.n += other.n;
        self.failed += other.failed;
        for (mine, theirs) in self.final_states.iter_mut().zip(other.final_states) {
            *mine += theirs;
        }
        for (mine, theirs) in self.max.iter_mut().zip(other.max) {
            *mine = mine.max(theirs);
        }
        self.claimed = self.claimed.max(other.claimed);
    }

    /// Tasks that were over with these tries.
    pub fn finished(&self) -> u64 {
        self.final_states.iter().sum()
    }
}

/// The cells of one slot.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    /// All but durations.
    pub counts: BTreeMap<Key, Cell>,
    /// Tries by duration: the most numerous, and a number each.
    pub bins: BTreeMap<Bin, u64>,
}

impl Cells {
    fn len(&self) -> usize {
        self.counts.len() + self.bins.len()
    }

    fn each(self) -> impl Iterator<Item = (Key, Cell)> {
        let durations = self.bins.into_iter().map(|(bin, n)| {
            let cell = Cell {
                n,
                ..Cell::default()
            };
            (Key::Bin(bin), cell)
        });
        self.counts.into_iter().chain(durations)
    }
}

/// Tasks finished and tries failed in a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Minute {
    /// Tasks by final state.
    pub final_states: [u64; 3],
    /// Failed tries.
    pub failed: u64,
}

/// All slots of one system.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Ten-second slots by their start.
    pub fine: BTreeMap<i64, Cells>,
    /// Older tries, by the start of a slot of at most ten minutes.
    pub old: BTreeMap<i64, Cells>,
    /// Older tries by minute and queue.
    pub minutes: BTreeMap<i64, BTreeMap<String, Minute>>,
    /// Cells were left out for want of room.
    pub full: bool,
    /// How many cells there are.
    cells: usize,
    names: BTreeSet<Name>,
}

impl Slots {
    /// Counts the cells anew, after some went.
    fn count(&mut self) {
        let all = self.fine.values().chain(self.old.values());
        self.cells = all.map(Cells::len).sum();
    }

    /// Forgets what is known of these queues (all, if none is given) from a fine slot on: it is about to be replaced.
    pub fn forget(&mut self, from: i64, queues: Option<&[String]>) {
        for cells in self.fine.range_mut(from..).map(|(_, c)| c) {
            match queues {
                None => *cells = Cells::default(),
                Some(queues) => {
                    let other = |queue: &str| !queues.iter().any(|q| q == queue);
                    cells.counts.retain(|key, _| other(key.queue()));
                    cells.bins.retain(|bin, _| other(&bin.0));
                }
            }
        }
        self.fine.retain(|_, cells| cells.len() > 0);
        self.count();
    }

    /// Adds a cell to a fine slot.
    pub fn add(&mut self, slot: i64, key: Key, cell: Cell) {
        let mut fine = std::mem::take(&mut self.fine);
        self.put(fine.entry(slot).or_default(), key, cell);
        self.fine = fine;
    }

    /// Adds fine slots.
    pub fn take(&mut self, other: Slots) {
        self.full |= other.full;
        for (slot, cells) in other.fine {
            for (key, cell) in cells.each() {
                self.add(slot, key, cell);
            }
        }
    }

    /// Adds slots of the past.
    pub fn take_old(&mut self, other: Slots) {
        self.full |= other.full;
        for (slot, cells) in other.fine {
            self.fold(slot, cells);
        }
    }

    /// Adds a slot to the older ones, which know neither errors nor workers.
    fn fold(&mut self, slot: i64, cells: Cells) {
        for (key, cell) in cells.each() {
            if !matches!(
                key,
                Key::KindError(..) | Key::TenantError(..) | Key::Worker(..)
            ) {
                self.add_old(slot - slot.rem_euclid(RECENT), slot, key, cell);
            }
        }
    }

    /// Adds a cell of the past, read in one piece that begins at `piece`.
    fn add_old(&mut self, piece: i64, slot: i64, key: Key, cell: Cell) {
        if let Key::Kind(queue, _) = &key {
            let minute = self.minutes.entry(slot - slot.rem_euclid(60)).or_default();
            minute.entry(queue.to_string()).or_default().add(&cell);
        }
        let mut old = std::mem::take(&mut self.old);
        self.put(old.entry(piece).or_default(), key, cell);
        self.old = old;
    }

    /// Adds a cell to a slot, which is taken out meanwhile.
    fn put(&mut self, cells: &mut Cells, key: Key, cell: Cell) {
        if let Key::Bin(bin) = &key
            && let Some(known) = cells.bins.get_mut(bin)
        {
            *known += cell.n;
            return;
        }
        if let Some(known) = cells.counts.get_mut(&key) {
            known.add(&cell);
            return;
        }
        let key = match (key, self.cells < CELLS) {
            (key, true) => key,
            (Key::Kind(queue, _), false) => Key::Kind(queue, "".into()),
            (_, false) => {
                self.full = true;
                return;
            }
        };
        self.full |= self.cells >= CELLS;
        let before = cells.len();
        match key.sharing(&mut self.names) {
            Key::Bin(bin) => *cells.bins.entry(bin).or_default() += cell.n,
            key => cells.counts.entry(key).or_default().add(&cell),
        }
        self.cells += cells.len() - before;
    }

    /// Folds fine slots that are no longer recent into older ones, and drops what is out of the window.
    pub fn age(&mut self, now: f64, window: f64) {
        let edge = now as i64 - RECENT - 60;
        let keep = self.fine.split_off(&edge);
        let gone = std::mem::replace(&mut self.fine, keep);
        self.count();
        for (slot, cells) in gone {
            self.fold(slot, cells);
        }
        let out = (now - window) as i64;
        self.old.retain(|slot, _| *slot + RECENT > out);
        self.minutes.retain(|minute, _| *minute + 60 > out);
        self.count();
        self.names.retain(|name| Arc::strong_count(name) > 1);
    }
}

impl Minute {
    /// Adds the tries of a cell.
    pub fn add(&mut self, cell: &Cell) {
        for (mine, theirs) in self.final_states.iter_mut().zip(cell.final_states) {
            *mine += theirs;
        }
        self.failed += cell.failed;
    }
}

/// Counts by bin.
pub type Histogram = BTreeMap<u16, u64>;

/// The value below which a share of the samples lies; within five per cent, never above the largest.
pub fn quantile(histogram: &Histogram, share: f64, max: f64) -> Option<f64> {
    let n: u64 = histogram.values().sum();
    if n == 0 {
        return None;
    }
    let rank = ((n as f64) * share).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (bin, count) in histogram {
        seen += count;
        if seen >= rank {
            let middle = match bin {
                0 => 0.0005,
                bin => 0.001 * RATIO.powf(f64::from(*bin) - 0.5),
            };
            return Some(if max >= 0.0 { middle.min(max) } else { middle });
        }
    }
    None
}

/// SQL for the bin of a duration in seconds; NULL where it is NULL, negative or endless.
pub fn bin_sql(expr: &str) -> String {
    format!(
        "CASE WHEN {expr} >= 0 AND {expr} < 1e9 THEN CASE WHEN {expr} <= 0.001 THEN 0 ELSE \
           least({BINS}, 1 + floor(ln({expr} / 0.001) / ln({RATIO}::float8)))::int8 END END"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(n: u64) -> Cell {
        Cell {
            n,
            final_states: [n, 0, 0],
            ..Cell::default()
        }
    }

    fn all(slots: &Slots) -> u64 {
        let cells = slots
            .fine
            .values()
            .chain(slots.old.values())
            .flat_map(|c| c.counts.values());
        cells.map(|c| c.n).sum()
    }

    #[test]
    fn what_is_read_again_is_replaced_not_added() {
        let mut slots = Slots::default();
        let key = || Key::Kind("q".into(), "k".into());
        slots.add(1000, key(), cell(3));
        slots.add(1010, key(), cell(4));
        slots.forget(1010, None);
        slots.add(1010, key(), cell(5));
        assert_eq!(all(&slots), 8);
        slots.forget(1000, Some(&["other".into()]));
        assert_eq!(all(&slots), 8);
    }

    #[test]
    fn nothing_is_lost_by_ageing_until_it_leaves_the_window() {
        let mut slots = Slots::default();
        for i in 0..600 {
            slots.add(i * 10, Key::Kind("q".into(), "k".into()), cell(1));
        }
        slots.age(6000.0, 3600.0);
        assert_eq!(all(&slots), 360);
        let minutes: u64 = slots
            .minutes
            .values()
            .flat_map(|m| m.values())
            .map(|m| m.final_states[0])
            .sum();
        let fine: u64 = slots
            .fine
            .values()
            .flat_map(|c| c.counts.values())
            .map(|c| c.n)
            .sum();
        assert_eq!(minutes + fine, 360);
    }

    #[test]
    fn quantiles_come_from_merged_bins() {
        let mut h = Histogram::new();
        for v in 1..=1000u32 {
            let v = f64::from(v);
            let bin = 1 + ((v / 0.001).ln() / RATIO.ln()).floor() as u16;
            *h.entry(bin).or_default() += 1;
        }
        let p50 = quantile(&h, 0.5, 1000.0).expect("p50");
        let p95 = quantile(&h, 0.95, 1000.0).expect("p95");
        assert!(
            (p50 / 500.0 - 1.0).abs() < 0.06 && (p95 / 950.0 - 1.0).abs() < 0.06,
            "{p50} {p95}"
        );
        assert_eq!(quantile(&Histogram::new(), 0.5, 1.0), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut slots = Slots::default();
        for i in 0..(CELLS + 500) {
            slots.add_old(0, 0, Key::Tenant("q".into(), i.to_string().into()), cell(1));
        }
        slots.add(1000, Key::Kind("q".into(), "new".into()), cell(7));
        assert!(slots.full);
        assert_eq!(slots.old.values().map(Cells::len).sum::<usize>(), CELLS);
        let n: u64 = slots
            .fine
            .values()
            .flat_map(|c| c.counts.values())
            .map(|c| c.n)
            .sum();
        assert_eq!(n, 7);
    }
}
