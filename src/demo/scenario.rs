//! What happens in the demo: a calm day, one act of trouble again and again, or an incident, which is all acts in
//! turn with a calm recovery after each.

use std::str::FromStr;

use tokio::time::sleep;

use super::acts::{ACTS, Act};
use super::link::seconds;
use super::stage::Stage;

/// What to play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scenario {
    /// Nothing but work.
    Calm,
    /// All acts in turn, for ever.
    #[default]
    Incident,
    /// One act.
    Only(Act),
}

const CALM: (&str, &str) = ("calm", "an ordinary day: nothing but work");
const INCIDENT: (&str, &str) = (
    "incident",
    "all of the following in turn, with a recovery after each",
);

/// Seconds to the first act, between two acts of an incident, and before one act alone comes again. The first act
/// shows within 20 s of the start. Who ends an act by hand sees it gone before it comes again: bills come up to 40 s
/// late, and are news for 40 more.
const FIRST_S: f64 = 4.0;
const BETWEEN_S: f64 = 14.0;
const AGAIN_S: f64 = 120.0;

/// How much longer an act lasts when it is played alone: long enough to look around and to end it by hand.
const ALONE: f64 = 4.0;

/// All names with one line about each, for help texts.
pub fn names() -> Vec<(&'static str, &'static str)> {
    let acts = ACTS.iter().map(|act| (act.name(), act.about()));
    [CALM, INCIDENT].into_iter().chain(acts).collect()
}

impl Scenario {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => CALM.0,
            Self::Incident => INCIDENT.0,
            Self::Only(act) => act.name(),
        }
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == CALM.0 {
            return Ok(Self::Calm);
        }
        if name == INCIDENT.0 {
            return Ok(Self::Incident);
        }
        let act = ACTS.iter().find(|act| act.name() == name);
        act.map(|act| Self::Only(*act)).ok_or_else(|| {
            let names: Vec<&str> = names().iter().map(|n| n.0).collect();
            format!("there is no scenario {name:?}: give {}", names.join(", "))
        })
    }
}

/// Plays until it is dropped.
pub async fn play(mut stage: Stage, scenario: Scenario) {
    sleep(seconds(FIRST_S)).await;
    loop {
        match scenario {
            Scenario::Calm => return,
            Scenario::Incident => {
                for act in ACTS {
                    // From the second time on a silence of this length is nothing unusual.
                    if stage.round > 0 && *act == Act::EnqueuerStopped {
                        continue;
                    }
                    stage.play(*act, 1.0).await;
                    sleep(seconds(BETWEEN_S)).await;
                }
            }
            Scenario::Only(act) => {
                stage.play(act, ALONE).await;
                sleep(seconds(AGAIN_S)).await;
            }
        }
        stage.round += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_that_can_be_asked_for() {
        for (name, about) in names() {
            assert_eq!(name.parse::<Scenario>().map(Scenario::name), Ok(name));
            assert!(!about.is_empty() && !about.contains('\n'));
        }
        let refused = "storm".parse::<Scenario>().expect_err("no such scenario");
        assert!(refused.contains("retry-storm"), "{refused}");
    }
}
