//! What a refresh costs the server, at ten thousand and a million tasks with 5,000 live, and beside many sessions.

use crate::common::load;
use crate::meter::{self, Cost, Costs, Log};
use crate::place::{self, WATCH, runtime};
use jobtop::config::Config;
use jobtop::connect::{Session, session::Purpose};
use jobtop::feed::round::Round;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

/// Refreshes until history has been read and everything that is sent again and again is prepared.
const WARM: usize = 90;
/// Refreshes that are measured: a minute has one of everything that is read less often.
const MEASURED: usize = 60;

/// A feed without a screen: what the sampler does, a second apart.
struct Feed {
    session: Session,
    round: Round,
    /// Statements and microseconds of each half, as jobtop itself counts them.
    halves: [(u32, u64); 2],
}

impl Feed {
    async fn open(config: &tokio_postgres::Config) -> Self {
        let target = place::watching(config);
        let session = Session::open(&target, Purpose::Poll, "jobtop")
            .await
            .expect("a session");
        let mut round = Round::new(target, Arc::new(Config::default())).expect("profiles");
        round.connected();
        Self {
            session,
            round,
            halves: [(0, 0); 2],
        }
    }

    async fn refresh(&mut self, n: usize, apart: Duration) {
        self.halves = [(0, 0); 2];
        for _ in 0..n {
            let begun = std::time::Instant::now();
            self.session.take_cost();
            self.round
                .run_database(&self.session)
                .await
                .expect("the database half");
            let database = self.session.take_cost();
            self.round
                .run_queues(&self.session)
                .await
                .expect("the queue half");
            let queues = self.session.take_cost();
            for (half, (statements, us)) in self.halves.iter_mut().zip([database, queues]) {
                half.0 += statements;
                half.1 += us;
            }
            let snapshot = self.round.assemble();
            for probe in &snapshot.probes {
                assert_eq!(probe.error, None, "{}", probe.name);
            }
            tokio::time::sleep(apart.saturating_sub(begun.elapsed())).await;
        }
    }
}

/// Blocks of this database that anybody has asked for, by its statistics.
async fn blocks(client: &Client, session: &Session, database: &str) -> f64 {
    // the statistics of this session are written now, not in a second
    session
        .execute("SELECT pg_stat_force_next_flush()")
        .await
        .expect("flushed");
    let sql = "SELECT (blks_hit + blks_read)::float8 FROM pg_stat_database WHERE datname = $1";
    client
        .query_one(sql, &[&database])
        .await
        .expect("statistics")
        .get(0)
}

/// What one database cost: by probe, by jobtop's own count, by the kernel's.
struct Figures {
    sum: Cost,
    halves: [(f64, f64); 2],
    cpu: f64,
    blocks: f64,
}

async fn measure(config: &tokio_postgres::Config) -> Figures {
    let admin = place::admin().await;
    let n = MEASURED as f64;
    admin
        .batch_execute(&meter::log_everything(WATCH))
        .await
        .expect("settings");
    let mut feed = Feed::open(config).await;
    feed.refresh(WARM, Duration::from_secs(1)).await;
    let database = config.get_dbname().expect("a name");
    let log = Log::of(place::cluster().root());
    let before = (
        blocks(&admin, &feed.session, database).await,
        meter::cpu_ms(feed.session.pid),
    );
    feed.refresh(MEASURED, Duration::from_secs(1)).await;
    let cpu = (meter::cpu_ms(feed.session.pid) - before.1) / n;
    let blocks = (blocks(&admin, &feed.session, database).await - before.0) / n;
    let costs = log.times();
    let halves = feed
        .halves
        .map(|(statements, us)| (f64::from(statements) / n, us as f64 / 1000.0 / n));
    feed.session.close().await;
    let (read, refreshes) = buffers(config, &admin).await;
    let sum = meter::print(&costs, Some(&read), n, refreshes);
    Figures {
        sum,
        halves,
        cpu,
        blocks,
    }
}

/// Buffers by probe: a session of its own, since EXPLAIN takes time.
async fn buffers(config: &tokio_postgres::Config, admin: &Client) -> (Costs, f64) {
    admin
        .batch_execute(&meter::log_buffers(WATCH))
        .await
        .expect("settings");
    let mut feed = Feed::open(config).await;
    feed.refresh(WARM, Duration::from_millis(200)).await;
    let log = Log::of(place::cluster().root());
    feed.refresh(MEASURED / 2, Duration::from_secs(1)).await;
    feed.session.close().await;
    admin
        .batch_execute(&format!("ALTER ROLE {WATCH} RESET ALL"))
        .await
        .expect("reset");
    (log.buffers(), MEASURED as f64 / 2.0)
}

fn print(title: &str, f: &Figures) {
    println!(
        "{title}: {:.2} ms of CPU, {:.2} ms by the log, {:.0} buffers, {:.1} statements a refresh",
        f.cpu,
        f.sum.ms(),
        f.blocks,
        f.halves[0].0 + f.halves[1].0
    );
    for (name, (statements, ms)) in ["database", "queues"].iter().zip(f.halves) {
        println!("  {name:<9} half: {statements:5.2} statements, {ms:6.2} ms as jobtop counts");
    }
}

#[test]
#[ignore = "prints figures"]
fn three_queues_at_rest() {
    runtime().block_on(async {
        let sql = format!(
            "{}{};{}",
            load::agent_queue(),
            load::agent_queue_tasks(4000),
            load::HOUSES
        );
        let (config, _client) = place::database("three", &sql).await;
        let f = measure(&config).await;
        print("three queues, 4,000 finished and 5,000 live tasks", &f);
        assert!(f.halves[0].0 <= 4.0, "statements of the database half");
    });
}

#[test]
#[ignore = "prints figures"]
fn a_refresh_by_the_size_of_the_queue() {
    runtime().block_on(async {
        let mut all = Vec::new();
        for finished in [5_000, 995_000] {
            let (config, _client) = place::database("size", &place::queue(finished)).await;
            let f = measure(&config).await;
            print(
                &format!("{} tasks, 5,000 of them live", finished + 5000),
                &f,
            );
            assert!(f.blocks <= 1000.0, "{:.0} buffers a refresh", f.blocks);
            assert!(f.halves[0].0 <= 4.0, "statements of the database half");
            all.push(f);
        }
        println!(
            "1,000,000 to 10,000 tasks: buffers {:.2}, CPU {:.2}, ms {:.2}",
            all[1].blocks / all[0].blocks,
            all[1].cpu / all[0].cpu,
            all[1].sum.ms() / all[0].sum.ms()
        );
    });
}

#[test]
#[ignore = "prints figures"]
fn the_database_half_beside_many_sessions() {
    runtime().block_on(async {
        let (config, _client) = place::database("sessions", &place::queue(1000)).await;
        println!(
            "{:>8} {:>10} {:>8} {:>8}",
            "sessions", "statements", "CPU ms", "ms"
        );
        let mut sessions = Vec::new();
        for n in [0, 200, 500, 1000] {
            let more = n - sessions.len();
            sessions.extend(place::idle(&config, more).await);
            let mut feed = Feed::open(&config).await;
            feed.refresh(10, Duration::from_millis(50)).await;
            let mut all = Vec::new();
            let (mut statements, mut cpu) = (0, 0.0);
            const N: usize = 20;
            for _ in 0..N {
                feed.session.take_cost();
                let before = meter::cpu_ms(feed.session.pid);
                feed.round
                    .run_database(&feed.session)
                    .await
                    .expect("the database half");
                let (n, us) = feed.session.take_cost();
                cpu += meter::cpu_ms(feed.session.pid) - before;
                statements += n;
                all.push(us as f64 / 1000.0);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            let n = N as f64;
            println!(
                "{:>8} {:>10.2} {:>8.2} {:>8.2}",
                sessions.len(),
                f64::from(statements) / n,
                cpu / n,
                place::median(&all)
            );
            assert!(
                f64::from(statements) / n <= 4.0,
                "statements of the database half"
            );
            feed.session.close().await;
        }
    });
}
