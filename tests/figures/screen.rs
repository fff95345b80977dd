//! What a person and this machine notice: frames, bytes, latency, memory.

use crate::common::{self, load, pty::Pty};
use crate::{meter, place};
use jobtop::app::Msg;
use jobtop::app::state::App;
use jobtop::config::Config;
use jobtop::feed::News;
use jobtop::migrate::{NotifyChange, apply};
use jobtop::ui::{
    self,
    theme::{Depth, Theme},
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const BEGIN: &[u8] = b"\x1b[?2026h";

/// Sizes of the frames in what was written: each lies in a synchronized update.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let starts: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(BEGIN))
        .collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    starts.iter().zip(ends).map(|(a, b)| b - a).collect()
}

fn sizes(of: &[usize]) -> String {
    let mut of = of.to_vec();
    of.sort_unstable();
    match of.len() {
        0 => "no frame".into(),
        n => format!(
            "{} frames, median {}, largest {} bytes",
            n,
            of[n / 2],
            of[n - 1]
        ),
    }
}

/// Frames written while something is done.
fn during(pty: &mut Pty, work: impl FnOnce(&mut Pty)) -> Vec<usize> {
    std::thread::sleep(Duration::from_millis(200));
    let before = pty.bytes().len();
    work(pty);
    std::thread::sleep(Duration::from_millis(200));
    frames(&pty.bytes()[before..])
}

/// Waits, looking often, and says how long it took.
fn time_until(pty: &Pty, what: &str, condition: impl Fn(&str) -> bool) -> Duration {
    let begun = Instant::now();
    while !condition(&pty.screen()) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no {what} on:\n{}",
            pty.screen()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    begun.elapsed()
}

fn full(screen: &str) -> bool {
    screen.contains("LIVE") && screen.contains(" live")
}

async fn small(hint: &str) -> (tokio_postgres::Config, Client) {
    let (config, mut client) = place::database(hint, "").await;
    apply(&mut client, "agent_queue", NotifyChange::Install)
        .await
        .expect("migrated");
    client
        .batch_execute(&load::agent_queue_tasks(2000))
        .await
        .expect("tasks");
    place::settle(&client).await;
    (config, client)
}

#[test]
#[ignore = "prints figures"]
fn bytes_of_a_frame() {
    let runtime = place::runtime();
    let (config, client) = runtime.block_on(small("bytes"));
    for (columns, rows) in [(160, 45), (80, 24)] {
        let mut pty = Pty::jobtop(&[&place::url(&config), "--interval", "60"], columns, rows);
        pty.wait("the first full frame", full);
        std::thread::sleep(Duration::from_millis(500));
        let first = frames(&pty.bytes());
        println!("{columns}x{rows}");
        println!(
            "  until all is there   {} bytes in {} frames, {}",
            first.iter().sum::<usize>(),
            first.len(),
            sizes(&first)
        );
        let idle = during(&mut pty, |_| std::thread::sleep(Duration::from_secs(10)));
        println!("  only the clock       {}", sizes(&idle));
        pty.keys("6");
        let cursor = during(&mut pty, |pty| {
            for _ in 0..5 {
                pty.keys("j");
                std::thread::sleep(Duration::from_millis(150));
            }
        });
        println!("  cursor moves         {}", sizes(&cursor));
        let new = during(&mut pty, |pty| {
            let sql = "UPDATE agent_queue.tasks SET queue = 'z' || queue, kind = reverse(kind), tenant = reverse(tenant),
                         lease_expires_at = lease_expires_at - interval '13 min' WHERE status IN ('processing', 'enqueued')";
            runtime
                .block_on(client.batch_execute(sql))
                .expect("changed");
            pty.keys("r");
            std::thread::sleep(Duration::from_secs(3));
        });
        println!("  all data new         {}", sizes(&new));
        pty.keys("q");
        assert_eq!(pty.exit_code(), 0);
        // a second: what a refresh changes while tasks come and go
        let mut pty = Pty::jobtop(&[&place::url(&config)], columns, rows);
        pty.wait("the first full frame", full);
        let work = "SELECT agent_queue.enqueue('zq0', 'k1') FROM generate_series(1, 2);
                    SELECT agent_queue.complete(id, lease_token) FROM agent_queue.claim('zq0', 'w1')";
        let before = Instant::now();
        let busy = during(&mut pty, |_| {
            for _ in 0..40 {
                runtime
                    .block_on(client.batch_execute(work))
                    .expect("worked");
                std::thread::sleep(Duration::from_millis(250));
            }
        });
        let seconds = before.elapsed().as_secs_f64();
        println!(
            "  few cells change     {}; {:.0} bytes a second",
            sizes(&busy),
            busy.iter().sum::<usize>() as f64 / seconds
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn time_of_a_frame() {
    let runtime = place::runtime();
    let (config, _client) = runtime.block_on(small("frame"));
    let settings = Arc::new(Config::default());
    let target = place::watching(&config);
    let (snapshot, report) = runtime
        .block_on(jobtop::once::snapshot(&target, &settings))
        .expect("a snapshot");
    let mut app = App::new(settings, 0.0, (160, 45));
    app.update(1.0, Msg::Feed(News::Snapshot(snapshot, Arc::new(report))));
    let theme = Theme::of(Depth::Sixteen, false);
    for (columns, rows) in [(80, 24), (160, 45), (200, 60)] {
        let mut all = Vec::new();
        for _ in 0..200 {
            let begun = Instant::now();
            std::hint::black_box(ui::render(&app, &theme, columns, rows));
            all.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        println!("a frame of {columns}x{rows}: {:.2} ms", place::median(&all));
    }
}

#[test]
#[ignore = "prints figures"]
fn from_commit_to_frame() {
    let runtime = place::runtime();
    let (config, client) = runtime.block_on(async {
        let (config, mut client) = place::database("notify", "").await;
        apply(&mut client, "agent_queue", NotifyChange::Install)
            .await
            .expect("migrated");
        let sql = "SELECT agent_queue.enqueue('q', 'k') FROM generate_series(1, 300)";
        client.batch_execute(sql).await.expect("tasks");
        (config, client)
    });
    let pty = Pty::jobtop(&[&place::url(&config), "--interval", "60"], 160, 45);
    pty.wait_text("300 live");
    let mut all = Vec::new();
    for n in 301..=320 {
        std::thread::sleep(Duration::from_millis(1300));
        runtime
            .block_on(client.batch_execute("SELECT agent_queue.enqueue('q', 'k')"))
            .expect("a task");
        let wanted = format!("{n} live");
        all.push(time_until(&pty, &wanted, |screen| screen.contains(&wanted)).as_secs_f64() * 1e3);
    }
    all.sort_by(f64::total_cmp);
    println!(
        "commit to frame, 20 times: median {:.1} ms, largest {:.1} ms (--interval 60: only the hint can bring it)",
        place::median(&all),
        all[19]
    );
}

/// Milliseconds of CPU of all threads, and kB of memory.
fn used(pid: i32) -> (f64, u64) {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let cpu = threads
        .map(|t| meter::cpu_ms_of(&t.expect("a thread").path()))
        .sum();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let rss = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .expect("VmRSS");
    (cpu, rss.trim().trim_end_matches(" kB").parse().expect("kB"))
}

#[test]
#[ignore = "prints figures"]
fn memory_and_cpu_beside_220_sessions() {
    let runtime = place::runtime();
    let (config, client) = runtime.block_on(small("watch"));
    let sessions = runtime.block_on(place::idle(&config, 218));
    for (columns, rows) in [(160, 45), (80, 24)] {
        let pty = Pty::jobtop(&[&place::url(&config)], columns, rows);
        pty.wait("the first full frame", full);
        std::thread::sleep(Duration::from_secs(20));
        let (before, _) = used(pty.pid());
        let begun = Instant::now();
        let work =
            "SELECT agent_queue.complete(id, lease_token) FROM agent_queue.claim('q0', 'w1')";
        while begun.elapsed() < Duration::from_secs(60) {
            runtime
                .block_on(client.batch_execute(work))
                .expect("worked");
            std::thread::sleep(Duration::from_millis(250));
        }
        let (after, rss) = used(pty.pid());
        println!(
            "{columns}x{rows}, {} sessions, 5,000 live tasks: {:.2} s of CPU a minute, {:.1} MiB resident",
            sessions.len() + 2,
            (after - before) / 1e3,
            rss as f64 / 1024.0
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn the_first_full_frame() {
    let runtime = place::runtime();
    let (config, _client) = runtime.block_on(small("first"));
    let mut all = Vec::new();
    for _ in 0..10 {
        let begun = Instant::now();
        let pty = Pty::jobtop(&[&place::url(&config)], 160, 45);
        let connected = time_until(&pty, "a first frame", |screen| screen.contains("LIVE"));
        time_until(&pty, "the first full frame", full);
        all.push((
            connected.as_secs_f64() * 1e3,
            begun.elapsed().as_secs_f64() * 1e3,
        ));
    }
    let (first, whole): (Vec<f64>, Vec<f64>) = all.into_iter().unzip();
    println!(
        "from the start of the program: the database half after {:.0} ms, everything after {:.0} ms (medians of 10, 5,000 live tasks)",
        place::median(&first),
        place::median(&whole)
    );
    let (mut demo, mut initdb) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let begun = Instant::now();
        let cluster =
            jobtop::demo::cluster::Cluster::start(&common::options()).expect("a private Postgres");
        initdb.push(begun.elapsed().as_secs_f64());
        drop(cluster);
        let begun = Instant::now();
        let mut pty = Pty::jobtop(&["demo"], 160, 45);
        time_until(&pty, "the demo's first full frame", full);
        demo.push(begun.elapsed().as_secs_f64());
        pty.keys("q");
        pty.exit_code();
    }
    let over = place::median(&demo) - place::median(&initdb);
    println!(
        "demo: first full frame after {:.2} s, of which initdb and start {:.2} s: {over:.2} s over them (medians of 3)",
        place::median(&demo),
        place::median(&initdb)
    );
}
