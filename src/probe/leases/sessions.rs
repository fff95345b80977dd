//! Which session belongs to which worker: by application_name, where teams set it to the worker's name. Where most
//! owners never matched, nothing is said: absence proves nothing then.

use super::{Lease, Seen, Worker};
use crate::probe::ServerTime;
use crate::probe::activity::Session;
use std::collections::BTreeMap;

/// Share of owners that must have matched before absence means anything.
const MATCHED: f64 = 0.8;
/// Workers remembered.
const WORKERS: usize = 2000;
/// A worker that is not heard of for this long is forgotten, in seconds.
const FORGET: f64 = 3600.0;

/// What is remembered of workers and their sessions.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    known: BTreeMap<(String, String, String), Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    heard: f64,
    /// When its session was last seen.
    seen: Option<f64>,
}

/// What may follow a name.
const SEPARATORS: [char; 8] = [' ', ':', '@', '/', '#', '.', '[', '('];
/// Postgres cuts application_name at so many bytes.
const CUT: usize = 63;

/// Does a session's application_name name this worker? It does when they are equal, or when one begins with the other
/// and goes on with something that is not part of a name.
fn names(application: &str, worker: &str) -> bool {
    let goes_on = |longer: &str, shorter: &str| {
        shorter.len() >= 3
            && longer
                .strip_prefix(shorter)
                .is_some_and(|rest| rest.starts_with(SEPARATORS))
    };
    let cut = application.len() == CUT && worker.starts_with(application);
    !application.is_empty()
        && (application == worker
            || cut
            || goes_on(application, worker)
            || goes_on(worker, application))
}

/// The most telling session of each application: in a transaction or active before idle. Workers are looked up here,
/// since thousands of them times thousands of sessions are too many to compare.
struct Telling<'a>(BTreeMap<&'a str, (Rank, &'a Session)>);

/// Idle, not in a transaction, place in the list.
type Rank = (bool, bool, usize);

impl<'a> Telling<'a> {
    fn of(sessions: &'a [Session]) -> Self {
        let mut best: BTreeMap<&str, (Rank, &Session)> = BTreeMap::new();
        for (n, s) in sessions.iter().enumerate().filter(|(_, s)| !s.own) {
            let idle = s.state.as_deref() == Some("idle");
            let rank = (idle, !s.idle_in_transaction(), n);
            let known = best.entry(&s.application).or_insert((rank, s));
            if rank < known.0 {
                *known = (rank, s);
            }
        }
        Self(best)
    }

    /// The most telling session of a worker.
    fn session(&self, worker: &str) -> Option<&'a Session> {
        // applications that begin with its name, and those that its own name begins with
        let longer = self.0.range(worker..);
        let longer = longer.take_while(|(name, _)| name.starts_with(worker));
        let ends = worker.match_indices(|c| SEPARATORS.contains(&c));
        let shorter = ends.map(|(at, _)| at).chain([CUT]);
        let shorter = shorter.filter_map(|at| self.0.get_key_value(worker.get(..at)?));
        longer
            .chain(shorter)
            .filter(|(name, _)| names(name, worker))
            .map(|(_, known)| *known)
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, session)| session)
    }
}

fn words(session: &Session) -> Option<String> {
    let state = session.state.as_deref()?;
    Some(match state {
        "idle in transaction" => "idle tx".into(),
        "idle in transaction (aborted)" => "aborted tx".into(),
        "active" if session.wait_type.as_deref() == Some("Lock") => "waiting".into(),
        other => other.to_string(),
    })
}

/// Finds the sessions of workers, and so whether the owners of stuck tasks are still there. Call it at each refresh,
/// with every session of the database.
pub fn match_sessions(
    workers: &mut [Worker],
    leases: &mut [Lease],
    sessions: &[Session],
    memory: &mut Memory,
    now: ServerTime,
) {
    let now = now.epoch();
    let key = |w: &Worker| (w.system.clone(), w.schema.clone(), w.worker.clone());
    let telling = Telling::of(sessions);
    for w in workers.iter_mut() {
        let room = memory.known.len() < WORKERS;
        let key = key(w);
        if let (false, false) = (memory.known.contains_key(&key), room) {
            continue;
        }
        let known = memory.known.entry(key).or_insert(Known {
            heard: now,
            seen: None,
        });
        known.heard = now;
        if let Some(session) = telling.session(&w.worker) {
            known.seen = Some(now);
            w.session_state = words(session);
        }
    }
    memory.known.retain(|_, k| now - k.heard < FORGET);
    // system by system: one may name its sessions while another does not
    let mut share: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
    for ((system, schema, _), known) in &memory.known {
        let s = share.entry((system.clone(), schema.clone())).or_default();
        s.0 += usize::from(known.seen.is_some());
        s.1 += 1;
    }
    let tells = |system: &str, schema: &str| {
        let (matched, all) = share
            .get(&(system.to_string(), schema.to_string()))
            .copied()
            .unwrap_or((0, 0));
        all > 0 && matched as f64 >= MATCHED * all as f64
    };
    for w in workers.iter_mut() {
        let known = memory.known.get(&key(w));
        let tells = tells(&w.system, &w.schema);
        w.session = match known.and_then(|k| k.seen) {
            Some(seen) if seen >= now => Seen::Seen,
            Some(seen) if tells => {
                w.absent_s = Some(now - seen);
                Seen::None
            }
            None if tells && known.is_some() => Seen::None,
            _ => Seen::Unknown,
        };
    }
    let owners: BTreeMap<(&str, &str, &str), Seen> = workers
        .iter()
        .map(|w| ((&*w.worker, &*w.system, &*w.schema), w.session))
        .collect();
    for lease in leases.iter_mut() {
        let owner = lease.worker.as_deref();
        let owner = owner.and_then(|name| owners.get(&(name, &*lease.system, &*lease.schema)));
        lease.session = owner.copied().unwrap_or(Seen::Unknown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str) -> Worker {
        Worker {
            system: "s".into(),
            schema: "public".into(),
            worker: name.into(),
            ..Worker::default()
        }
    }

    fn session(application: &str) -> Session {
        Session {
            pid: Some(1),
            application: application.into(),
            state: Some("idle in transaction".into()),
            ..Session::default()
        }
    }

    fn at(s: f64) -> ServerTime {
        ServerTime::from_epoch(s).expect("time")
    }

    #[test]
    fn absence_means_something_only_where_most_owners_were_seen() {
        let mut memory = Memory::default();
        let mut workers: Vec<Worker> = (0..5).map(|i| worker(&format!("agent-{i}"))).collect();
        let mut leases = vec![Lease {
            system: "s".into(),
            schema: "public".into(),
            worker: Some("agent-4".into()),
            ..Lease::default()
        }];
        let all: Vec<Session> = (0..5)
            .map(|i| session(&format!("agent-{i} 4711")))
            .collect();
        match_sessions(&mut workers, &mut leases, &all[..3], &mut memory, at(1.0));
        assert_eq!(
            (workers[4].session, leases[0].session),
            (Seen::Unknown, Seen::Unknown)
        );
        assert_eq!(workers[0].session_state.as_deref(), Some("idle tx"));
        match_sessions(&mut workers, &mut leases, &all, &mut memory, at(2.0));
        assert_eq!(leases[0].session, Seen::Seen);
        match_sessions(&mut workers, &mut leases, &all[..4], &mut memory, at(20.0));
        assert_eq!(leases[0].session, Seen::None);
        assert_eq!(workers[4].absent_s, Some(18.0));
    }

    #[test]
    fn the_lookup_finds_what_comparing_all_would_find() {
        let long = "w".repeat(80);
        let names_of = [
            "a",
            "agent-1",
            "agent-12",
            "agent-1 4711",
            "agent-1:x.y",
            "agent",
            "",
            &long,
            &long[..63],
            "agent-1é",
        ];
        let all: Vec<Session> = names_of.iter().map(|n| session(n)).collect();
        let telling = Telling::of(&all);
        for worker in names_of {
            let first = all.iter().find(|s| names(&s.application, worker));
            let found = telling.session(worker);
            assert_eq!(
                found.map(|s| &s.application),
                first.map(|s| &s.application),
                "{worker:?}"
            );
        }
        let mut idle = session("agent-1");
        idle.state = Some("idle".into());
        let both = [idle, session("agent-1 2")];
        let found = Telling::of(&both).session("agent-1").expect("one");
        assert_eq!(found.application, "agent-1 2", "a transaction tells more");
    }

    #[test]
    fn names_are_whole_names() {
        for (application, name, hit) in [
            ("agent-1", "agent-1", true),
            ("agent-1", "agent-12", false),
            ("agent-12", "agent-1", false),
            ("agent-1 4711", "agent-1", true),
            ("worker", "worker:pid-7", true),
            ("", "agent-1", false),
        ] {
            assert_eq!(names(application, name), hit, "{application} {name}");
        }
    }
}
