//! How often each probe runs, and how long the server may take over it.

use super::slot::Slot;
use std::time::Duration;

/// One slot a probe.
pub(super) struct Slots {
    pub server: Slot,
    pub activity: Slot,
    pub database: Slot,
    pub tables: Slot,
    pub detect: Slot,
    pub queues: Slot,
    pub leases: Slot,
    pub tasks: Slot,
    pub finished: Slot,
    pub cost: Slot,
    pub failures: Slot,
    pub locks: Slot,
}

impl Slots {
    /// All are due.
    pub fn new() -> Self {
        let seconds = Duration::from_secs;
        // at every other refresh of a second: rows that a person reads, and what is done about them takes longer
        let every_other = Duration::from_millis(1500);
        // the queues' statements cost most; those about the server must answer also when it is in trouble
        let (long, short) = (seconds(3), seconds(2));
        Self {
            server: Slot::new("server", seconds(30), long),
            activity: Slot::new("activity", Duration::ZERO, long),
            database: Slot::new("maintenance", seconds(5), long),
            tables: Slot::new("tables", seconds(5), long),
            detect: Slot::new("detect", seconds(30), long),
            queues: Slot::new("queues", Duration::ZERO, short),
            leases: Slot::new("leases", every_other, short),
            tasks: Slot::new("tasks", every_other, short),
            finished: Slot::new("finished", Duration::ZERO, short),
            cost: Slot::new("cost", seconds(5), short),
            failures: Slot::new("failures", seconds(15), long),
            locks: Slot::new("locks", Duration::ZERO, short),
        }
    }

    /// A new session: all are due, whatever failed in the one before. What was read stays as old as it is.
    pub fn renew(&mut self) {
        for slot in self.all() {
            slot.renew();
        }
    }

    /// What kept the tables of the queues from being read is over: all that read them are due.
    pub fn retry_queues(&mut self) {
        let slots = [
            &mut self.queues,
            &mut self.leases,
            &mut self.tasks,
            &mut self.finished,
            &mut self.cost,
        ];
        for slot in slots {
            slot.retry();
        }
    }

    /// Each of them.
    pub fn all(&mut self) -> [&mut Slot; 12] {
        [
            &mut self.server,
            &mut self.activity,
            &mut self.database,
            &mut self.tables,
            &mut self.detect,
            &mut self.queues,
            &mut self.leases,
            &mut self.tasks,
            &mut self.finished,
            &mut self.cost,
            &mut self.failures,
            &mut self.locks,
        ]
    }

    /// Does any fail with an SQLSTATE that starts like this?
    pub fn any_failed_with(&mut self, code: &str) -> bool {
        self.all().iter().any(|slot| slot.failed_with(code))
    }

    /// Has any failed once since it last succeeded, with an SQLSTATE that starts like this?
    pub fn any_newly_failed_with(&mut self, code: &str) -> bool {
        let mut all = self.all().into_iter();
        all.any(|slot| slot.newly_failing() && slot.failed_with(code))
    }

    /// What made those fail is over: they are due at once.
    pub fn retry_failed_with(&mut self, code: &str) {
        for slot in self.all() {
            if slot.failed_with(code) {
                slot.retry();
            }
        }
    }
}
