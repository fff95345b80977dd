//! A worker, and what it was told.

use super::line::Line;
use super::{Counts, LEASE, Race};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A task and the token it was given out under.
pub type Held = (i64, i64);

/// A try that was given out.
pub struct Claim {
    pub held: Held,
    pub attempt: i64,
    pub worker: String,
}

/// What a worker was told.
#[derive(Default)]
pub struct Notes {
    pub counts: Counts,
    pub claimed: Vec<Claim>,
    /// How each try ended by this worker's own word, as the history must have it.
    pub ended: HashMap<Held, &'static str>,
    /// Why it was not let end a try.
    pub refused: HashMap<Held, String>,
    /// Tries whose end was called for, without an answer.
    pub unheard: HashSet<Held>,
    /// Under these names claims got no answer.
    pub deaf: HashSet<String>,
    /// Bills that were recorded.
    pub billed: Vec<String>,
}

struct Worker {
    line: Line,
    random: StdRng,
    name: String,
    notes: Notes,
}

/// Works until the race is over. Now and then it dies: it stops without a word, and another takes its place.
pub async fn work(race: Race, seed: u64) -> Notes {
    let mut worker = Worker {
        line: Line::open(&race.config).await,
        random: StdRng::seed_from_u64(seed),
        name: String::new(),
        notes: Notes {
            counts: race.counts.clone(),
            ..Notes::default()
        },
    };
    for life in 0.. {
        worker.name = format!("w{seed}-{life}");
        if life > 0 {
            worker.line = Line::open(&race.config).await;
        }
        worker.live(&race).await;
        if race.over() {
            break;
        }
    }
    worker.notes
}

impl Worker {
    /// Until it dies or the race is over.
    async fn live(&mut self, race: &Race) {
        while !race.over() {
            let batch = self.random.random_range(1..4);
            let sql = format!(
                "SELECT id, lease_token, attempt FROM claim('q', '{}', {batch}, '{LEASE}')",
                self.name
            );
            let Some(got) = self.line.call(&sql).await else {
                self.notes.deaf.insert(self.name.clone());
                continue;
            };
            if got.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            self.notes.counts.add("claim");
            let number = |text: &String| text.parse::<i64>().expect("a number");
            let claims: Vec<Claim> = got
                .iter()
                .map(|r| Claim {
                    held: (number(&r[0]), number(&r[1])),
                    attempt: number(&r[2]),
                    worker: self.name.clone(),
                })
                .collect();
            let held: Vec<(Held, i64)> = claims.iter().map(|c| (c.held, c.attempt)).collect();
            self.notes.claimed.extend(claims);
            for (held, attempt) in held {
                if self.random.random_bool(0.02) {
                    return;
                }
                self.one(held, attempt).await;
            }
        }
    }

    async fn one(&mut self, held: Held, attempt: i64) {
        if self.random.random_bool(0.4) {
            self.call("started", held, "").await;
        }
        self.bill(held, attempt).await;
        // Some are silent for longer than their lease and come back as if nothing had happened; some then go on for long.
        let silent = self.random.random_bool(0.04);
        if silent {
            let pause = self.random.random_range(300..700);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        let (pause, beats) = match self.random.random_range(0..100) {
            0..50 if silent => (80, 3),
            0..4 => (80, 4),
            4..30 => (self.random.random_range(0..5), 1),
            _ => (0, 0),
        };
        for _ in 0..beats {
            if self.beat(held).await {
                return self.end(held, "cancelled", "").await;
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        if self.random.random_bool(0.35) {
            let wait = self.random.random_range(0..600);
            let rest = format!(", 'Error: stress', retry_after => '{wait} ms'");
            self.end(held, "fail", &rest).await;
        } else {
            let rest = format!(", to_jsonb({}::bigint)", held.1);
            self.end(held, "complete", &rest).await;
        }
    }

    /// Is it to stop?
    async fn beat(&mut self, (id, token): Held) -> bool {
        let sql =
            format!("SELECT outcome, cancel_requested FROM heartbeat({id}, {token}, '{LEASE}')");
        let heard = self.line.word(&sql).await;
        let heard = heard.as_deref().unwrap_or("lost");
        self.notes.counts.add(&format!("heartbeat: {heard}"));
        heard == "ok|t"
    }

    async fn call(&mut self, name: &str, (id, token): Held, rest: &str) -> Option<String> {
        let sql = format!("SELECT {name}({id}, {token}{rest})");
        let answer = self.line.word(&sql).await;
        let heard = answer.as_deref().unwrap_or("lost");
        self.notes.counts.add(&format!("{name}: {heard}"));
        answer
    }

    async fn bill(&mut self, (id, token): Held, attempt: i64) {
        let call = format!("{id}-{token}");
        for _ in 0..self.random.random_range(1..3) {
            let sql = format!("SELECT report_usage('{call}', {id}, {attempt}, 'm', 10, 10, 0.001)");
            let answer = self.line.word(&sql).await;
            let heard = answer.as_deref().unwrap_or("lost");
            self.notes.counts.add(&format!("report_usage: {heard}"));
            if heard == "recorded" {
                self.notes.billed.push(call.clone());
            }
        }
    }

    /// Ends a try, and keeps what it was told; asks once more where the answer was lost.
    async fn end(&mut self, held: Held, name: &str, rest: &str) {
        let mut heard = self.call(name, held, rest).await;
        if heard.is_none() {
            self.notes.unheard.insert(held);
            heard = self.call(name, held, rest).await;
        }
        let heard = heard.expect("the server goes down once");
        let outcome = match (name, heard.as_str()) {
            ("complete", "ok") => "completed",
            ("cancelled", "ok") => "cancelled",
            ("fail", "retry scheduled" | "failed" | "cancelled") => "failed",
            ("complete" | "fail" | "cancelled", "stale lease token" | "not running") => {
                self.notes.refused.insert(held, heard);
                return;
            }
            _ => panic!("{name} of task {held:?} was answered {heard:?}"),
        };
        let before = self.notes.ended.insert(held, outcome);
        assert_eq!(before, None, "{held:?} was ended twice");
    }
}
