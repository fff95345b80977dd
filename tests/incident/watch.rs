//! A demo watched as a person would watch it, without the screen: the real feed, every report kept.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jobtop::connect::Target;
use jobtop::demo::roles::ONCALL;
use jobtop::demo::{Demo, DemoOptions, Scenario, settings};
use jobtop::feed::sampler::Sampler;
use jobtop::feed::{News, Order};
use jobtop::findings::{Finding, Report};
use jobtop::probe::Snapshot;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::Case;

/// How much longer than promised anything may take on a busy machine.
const PATIENCE: f64 = 5.0;

/// One refresh.
pub struct Look {
    /// The server's clock, in seconds.
    pub at: f64,
    /// When it came, by our own clock.
    came: Instant,
    /// What was read.
    pub snapshot: Arc<Snapshot>,
    /// What it says.
    pub report: Arc<Report>,
}

impl Look {
    /// The gravest finding of a rule.
    pub fn finding(&self, rule: &str) -> Option<&Finding> {
        self.report.findings.iter().find(|f| f.rule == rule)
    }

    /// When a probe was last read, by our own clock.
    fn read_at(&self, probe: &str) -> Option<Instant> {
        let health = self.snapshot.probes.iter().find(|p| p.name == probe)?;
        self.came
            .checked_sub(Duration::from_secs_f64(health.age_s?.max(0.0)))
    }
}

/// A demo, a feed on it as the person on call, and that person's own session.
pub struct Watch {
    pub demo: Demo,
    pub db: Client,
    looks: Arc<Mutex<Vec<Arc<Look>>>>,
    lost: Arc<Mutex<Vec<String>>>,
    orders: mpsc::Sender<Order>,
    feed: [JoinHandle<()>; 2],
    name: &'static str,
}

impl Watch {
    /// Starts a demo and the feed on it.
    pub async fn start(scenario: Scenario) -> Self {
        let options = DemoOptions {
            scenario,
            supervisor: PathBuf::from(env!("CARGO_BIN_EXE_jobtop")),
            ..DemoOptions::default()
        };
        let demo = Demo::start(options, Box::new(|_| {}))
            .await
            .expect("a demo");
        let target = demo.target(ONCALL);
        let db = client(&target).await;
        let (news, mut inbox) = mpsc::channel(64);
        let (orders, outbox) = mpsc::channel(4);
        let mut config = settings();
        // A busy machine makes refreshes rare; these tests count them.
        config.max_server_share = 0.1;
        let sampler = Sampler::new(target, Arc::new(config), news, outbox).expect("a feed");
        let looks = Arc::new(Mutex::new(Vec::new()));
        let lost = Arc::new(Mutex::new(Vec::new()));
        let (kept, complaints, name) = (looks.clone(), lost.clone(), scenario.name());
        let reader = tokio::spawn(async move {
            let mut told = Teller::new(name);
            while let Some(news) = inbox.recv().await {
                match news {
                    News::Snapshot(snapshot, report) => {
                        let at = snapshot.taken_at.map_or(0.0, |t| t.epoch());
                        told.tell(at, &report);
                        let look = Arc::new(Look {
                            at,
                            came: Instant::now(),
                            snapshot,
                            report,
                        });
                        kept.lock().expect("the looks").push(look);
                    }
                    News::Connecting(why) | News::Refused(why) | News::Lost { reason: why, .. } => {
                        eprintln!("{name}: {why}");
                        complaints.lock().expect("the losses").push(why);
                    }
                    _ => {}
                }
            }
        });
        let feed = [tokio::spawn(sampler.run()), reader];
        Self {
            demo,
            db,
            looks,
            lost,
            orders,
            feed,
            name,
        }
    }

    /// All refreshes so far.
    pub fn looks(&self) -> Vec<Arc<Look>> {
        self.looks.lock().expect("the looks").clone()
    }

    /// The newest refresh.
    pub fn last(&self) -> Option<Arc<Look>> {
        self.looks.lock().expect("the looks").last().cloned()
    }

    /// Waits for a condition on the newest refresh: a promise of seconds.
    pub async fn until(
        &self,
        what: &str,
        promise_s: f64,
        holds: impl Fn(&Look) -> bool,
    ) -> Arc<Look> {
        let end = Instant::now() + Duration::from_secs_f64(promise_s * PATIENCE);
        loop {
            if let Some(look) = self.last().filter(|l| holds(l)) {
                return look;
            }
            assert!(
                Instant::now() < end,
                "{}: not within {:.0} s: {what}; last said: {:#?}",
                self.name,
                promise_s * PATIENCE,
                self.last().map(|l| l.report.clone())
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until a condition in the database holds (a promise of seconds), and tells the server's time when it did.
    pub async fn when(&self, what: &str, condition: &str, promise_s: f64) -> f64 {
        let sql = format!(
            "SELECT CASE WHEN ({condition}) THEN extract(epoch FROM clock_timestamp()) END"
        );
        let end = Instant::now() + Duration::from_secs_f64(promise_s * PATIENCE);
        loop {
            if let Some(at) = self.value(&sql).await {
                return at.parse().expect("a time");
            }
            assert!(
                Instant::now() < end,
                "{}: never in the database: {what}",
                self.name
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The first column of the first row, unless it is NULL.
    pub async fn value(&self, sql: &str) -> Option<String> {
        let messages = self.db.simple_query(sql).await;
        let messages = messages.unwrap_or_else(|e| panic!("{}: {sql}: {e:?}", self.name));
        messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(String::from),
            _ => None,
        })
    }

    /// Waits until there were so many refreshes.
    pub async fn until_count(&self, what: &str, n: usize) {
        self.until(what, n as f64, |_| self.looks().len() >= n)
            .await;
    }

    /// The refreshes that read a probe.
    fn reads(&self, probe: &str) -> Vec<Arc<Look>> {
        let looks = self.looks();
        let read = |pair: &[Arc<Look>]| {
            let (before, now) = (pair[0].read_at(probe), pair[1].read_at(probe)?);
            // What comes late seems to have been read late.
            let again = before.is_none_or(|b| now > b + Duration::from_millis(300));
            again.then(|| pair[1].clone())
        };
        looks.windows(2).filter_map(read).collect()
    }

    /// How often there was news for a rule after one moment of the server's clock, up to another.
    pub fn readings(&self, case: &Case, after: f64, to: f64) -> usize {
        let mut last = f64::NEG_INFINITY;
        let reads = self.reads(case.probe);
        let news = reads.iter().filter(|l| {
            let in_time = l.at > after && l.at <= to;
            let new = in_time && l.at - last >= case.keeps_s && (case.counts)(l);
            if new {
                last = l.at;
            }
            new
        });
        news.count()
    }

    /// When a probe was first read after a moment.
    pub fn first_reading(&self, probe: &str, after: f64) -> f64 {
        let first = self.reads(probe).into_iter().find(|l| l.at > after);
        first.map_or(after, |l| l.at)
    }

    /// Ends feed and demo; nothing may have been lost or refused on the way.
    pub async fn stop(self) {
        let deeds = self.demo.crew().deeds();
        drop(self.orders);
        for task in self.feed {
            task.await.expect("the feed");
        }
        let root = self.demo.cluster.root().to_owned();
        self.demo.stop().await;
        assert!(!root.exists(), "{} is still there", root.display());
        assert_eq!(*self.lost.lock().expect("the losses"), Vec::<String>::new());
        assert_eq!(
            (deeds.faults, &deeds.last_fault),
            (0, &None),
            "{}",
            self.name
        );
    }
}

/// A person's session.
pub async fn client(target: &Target) -> Client {
    let mut config = target.config.clone();
    config.application_name("psql");
    let (client, connection) = config
        .connect(tokio_postgres::NoTls)
        .await
        .expect("a session");
    tokio::spawn(async move {
        // The client hears of a lost connection by itself.
        let _ = connection.await;
    });
    client
}

/// Prints what changes, for whoever reads a failure.
struct Teller {
    name: &'static str,
    begun: Option<f64>,
    said: Vec<String>,
}

impl Teller {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            begun: None,
            said: Vec::new(),
        }
    }

    fn tell(&mut self, at: f64, report: &Report) {
        let begun = *self.begun.get_or_insert(at);
        let heads: Vec<String> = report
            .findings
            .iter()
            .map(|f| {
                let why = f.explained_by.as_deref().unwrap_or("-");
                format!("{} {:?} {why}", f.rule, f.severity)
            })
            .collect();
        if heads == self.said {
            return;
        }
        self.said = heads;
        eprintln!("{} {:6.1} s: {}", self.name, at - begun, report.verdict);
        for f in &report.findings {
            let under = if f.explained_by.is_some() {
                "  under it: "
            } else {
                ""
            };
            eprintln!("    {under}{} ({:?}): {}", f.rule, f.severity, f.sentence);
        }
    }
}
