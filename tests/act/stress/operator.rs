//! An operator: looks, thinks, acts, on sessions of its own, all the product's own way.

use super::super::{Place, adds_up};
use super::line::{client, lost};
use super::{Counts, Race};
use jobtop::action::{Choice, Outcome, Plan, Preview, Verb, drive};
use jobtop::connect::Session;
use jobtop::connect::session::Purpose;
use jobtop::probe::State;
use jobtop::probe::tasks::Filter;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What was confirmed, and what came of it.
pub struct Act {
    /// State and token of each task as it was seen.
    pub seen: HashMap<String, (String, i64)>,
    pub outcome: Outcome,
}

/// What an operator did.
pub struct Notes {
    pub counts: Counts,
    pub journal: PathBuf,
    pub acts: HashMap<String, Act>,
}

const VERBS: [Verb; 10] = [
    Verb::Requeue,
    Verb::Requeue,
    Verb::RequeueFresh,
    Verb::Cancel,
    Verb::Release,
    Verb::Release,
    Verb::RunNow,
    Verb::Priority(1),
    Verb::Park,
    Verb::Unpark,
];

async fn open(race: &Race, seed: u64) -> Place {
    loop {
        let client = client(&race.config).await;
        let name = format!("stress_{}_{seed}", race.name);
        match Place::open(client, race.config.clone(), name, race.through.clone()).await {
            Ok(place) => return place,
            Err(fault) => assert!(lost(&fault), "{fault}"),
        }
    }
}

/// Operates until the race is over.
pub async fn operate(race: Race, seed: u64) -> Notes {
    let mut random = StdRng::seed_from_u64(seed);
    let mut place = open(&race, seed).await;
    let mut notes = Notes {
        counts: race.counts.clone(),
        journal: place.journal.clone(),
        acts: HashMap::new(),
    };
    while !race.over() {
        if place.session.ended().is_some() {
            place = open(&race, seed).await;
        }
        let verb = match VERBS.choose(&mut random) {
            Some(Verb::Priority(_)) => Verb::Priority(random.random_range(0..4)),
            verb => *verb.expect("a verb"),
        };
        let Some(preview) = look(&place, verb, &mut random, &mut notes.counts).await else {
            continue;
        };
        // by the time of the key the screen is old, and more so before what is grave
        let longest = match preview.running {
            0 => 15,
            _ => 300,
        };
        tokio::time::sleep(Duration::from_millis(random.random_range(0..longest))).await;
        let seen = preview.targets.iter().map(|t| {
            let token = t.lease_token.expect("a token");
            (t.key.id.clone(), (t.native_state.clone(), token))
        });
        let seen = seen.collect();
        let plan = Plan::new(verb, preview.targets, Some("stress".into()));
        let id = plan.action_id.clone();
        let outcome = carry_out(&place, plan, random.random_bool(0.1)).await;
        adds_up(&outcome);
        for fate in &outcome.fates {
            let what = format!("{}: {}", verb.name(), fate.words());
            notes.counts.add(&what);
        }
        notes.acts.insert(id, Act { seen, outcome });
    }
    notes
}

/// What there is to do it to: by ids, among them some that are not there, or by filter. `None` where there is nothing.
async fn look(
    place: &Place,
    verb: Verb,
    random: &mut StdRng,
    counts: &mut Counts,
) -> Option<Preview> {
    let choice: Choice = if random.random_bool(0.3) {
        let first = random.random_range(1..2000);
        let step = random.random_range(1..9);
        let ids: Vec<i64> = (0..60).map(|n| first + n * step).collect();
        Place::these(&ids)
    } else {
        // those that run come last in a list of all
        let states = match verb {
            Verb::Cancel if random.random_bool(0.7) => vec![State::Running],
            Verb::Requeue if random.random_bool(0.3) => vec![State::Running],
            _ => verb.takes().to_vec(),
        };
        let filter = Filter {
            states,
            limit: random.random_range(1..250),
            ..Filter::default()
        };
        let kind = random.random_bool(0.3).then_some("k1");
        Place::matching(filter.with("kind", kind))
    };
    counts.add("preview");
    let asker = place.round.asker(verb, choice).expect("it can be asked");
    match asker.read(&place.session).await {
        Ok(preview) => (preview.eligible > 0).then_some(preview),
        // a busy machine: nothing was promised
        Err(fault) if lost(&fault) || fault.is("57014") || fault.is("55P03") => None,
        Err(fault) => panic!("{verb:?}: {fault}"),
    }
}

async fn carry_out(place: &Place, plan: Plan, stops: bool) -> Outcome {
    let mut run = place.run(plan);
    match Session::open(&place.target, Purpose::Write, "jobtop write").await {
        Ok(db) => {
            let stop = run.stop();
            drive(&mut run, &db, &place.target, |_| {
                stop.store(stops, Ordering::Relaxed);
            })
            .await;
            db.close().await;
        }
        Err(fault) => {
            assert!(lost(&fault), "{fault}");
            run.give_up(&fault);
        }
    }
    run.outcome()
}
