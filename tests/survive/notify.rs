//! A thousand notifications a second, for one that is stopped or does not read.

use crate::common::{self, load, place::Place, pty::Pty};
use crate::help::{
    NOTHING, answers, back, line_with, major, own_cluster, place_on, quit, seconds, slow_profile,
    state_of, until, watching,
};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A thousand notifications a second on the channel that jobtop listens to, in 50 transactions, until dropped.
struct Stream {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    fn to(config: tokio_postgres::Config) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU32::new(0));
        let (until, count) = (stop.clone(), sent.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let client = common::connect(&config).await;
                // each text another one: those alike are sent once
                let sql = "SELECT pg_notify('agent_queue_tasks', repeat('x', 60) || i) FROM generate_series(1, 20) i";
                let mut tick = tokio::time::interval(Duration::from_millis(20));
                while !until.load(Ordering::Relaxed) {
                    tick.tick().await;
                    client.batch_execute(sql).await.expect("notified");
                    count.fetch_add(20, Ordering::Relaxed);
                }
            });
        });
        Self {
            stop,
            sent,
            thread: Some(thread),
        }
    }

    /// Waits until so many more were sent.
    fn pass(&self, more: u32) {
        let from = self.sent.load(Ordering::Relaxed);
        // a busy machine sends them slower
        let end = Instant::now() + Duration::from_secs(u64::from(more / 100) + 10);
        while self.sent.load(Ordering::Relaxed) - from < more {
            assert!(Instant::now() < end, "the stream is too slow");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the stream");
        }
    }
}

/// What the server holds for us: sessions, those that pin a snapshot, and the share of the queue of notifications in use.
fn held(place: &Place) -> (u32, u32, f64) {
    let text = place.value(
        "SELECT concat_ws(' ', count(*), count(backend_xmin), pg_notification_queue_usage()) FROM pg_stat_activity WHERE application_name LIKE 'jobtop%'",
    );
    let mut words = text.split(' ').map(|w| w.parse::<f64>().expect("a number"));
    let mut next = || words.next().expect("a figure");
    (next() as u32, next() as u32, next())
}

fn stops(pty: &Pty) {
    until("stop", || state_of(pty.pid()) == 'T');
}

/// Ctrl-Z, and a stop that no program can catch, each for so many notifications.
fn stopped_under_a_stream(more: u32) {
    let cluster = own_cluster(&[]);
    let place = place_on(&cluster);
    let stream = Stream::to(cluster.config());
    let mut pty = watching(&place.url, &[]);
    answers(&mut pty);

    let begun = Instant::now();
    pty.keys("\x1a");
    stops(&pty);
    let spent = begun.elapsed();
    assert!(
        spent < Duration::from_millis(500 * 5),
        "Ctrl-Z took {spent:?}"
    );
    // from now on nothing of ours is there
    let mut most: f64 = 0.0;
    for _ in 0..10 {
        stream.pass(more / 10);
        let (sessions, pinned, usage) = held(&place);
        assert_eq!((sessions, pinned), (0, 0));
        most = most.max(usage);
    }
    // a few pages are kept until the next one that listens
    assert!(most < 1e-4, "{most}");
    place.sql("SET search_path = agent_queue; SELECT enqueue('meanwhile', 'parse')");
    let begun = Instant::now();
    pty.signal(Signal::SIGCONT);
    pty.wait_text("meanwhile");
    let said = format!(
        "the shell; no session, queue at most {:.4} % full",
        most * 100.0
    );
    back(
        &pty,
        &format!("Ctrl-Z during {more} notifications"),
        &said,
        begun,
        NOTHING,
    );

    pty.signal(Signal::SIGSTOP);
    stops(&pty);
    let (mut most, mut waits) = (0.0f64, String::new());
    for _ in 0..10 {
        stream.pass(more / 10);
        let (_, pinned, usage) = held(&place);
        // the session is there, but a snapshot that vacuum must respect is not
        assert_eq!(pinned, 0, "an idle backend pins nothing");
        most = most.max(usage);
        waits = place.value("SELECT concat_ws(' ', state, wait_event) FROM pg_stat_activity WHERE application_name = 'jobtop'");
    }
    place.sql("SET search_path = agent_queue; SELECT enqueue('afterwards', 'parse')");
    let begun = Instant::now();
    pty.signal(Signal::SIGCONT);
    pty.wait_text("afterwards");
    let said = format!("nothing; session {waits}, queue {:.4} % full", most * 100.0);
    back(
        &pty,
        &format!("SIGSTOP during {more} notifications"),
        &said,
        begun,
        NOTHING,
    );
    answers(&mut pty);
    drop(stream);
    until("empty queue", || held(&place).2 < 1e-4);
    quit(&mut pty);
    place.wait_no_session();
}

#[test]
fn a_stop_holds_nothing_under_a_stream_of_notifications() {
    stopped_under_a_stream(2_000);
}

#[test]
#[ignore = "two minutes, by hand"]
fn a_stop_of_a_minute_holds_nothing_under_a_stream_of_notifications() {
    stopped_under_a_stream(60_000);
}

#[test]
fn ctrl_z_waits_for_no_statement() {
    let place = Place::new("busy");
    place.sql(load::HOUSES);
    // nearly two seconds of each refresh, and one refresh after the other
    let file = slow_profile(common::cluster(), 0.09);
    let mut pty = watching(&place.url, &["--config", &file, "--interval", "0.5"]);
    until("statement under way", || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
        place.value(sql) == "1"
    });
    let begun = Instant::now();
    pty.keys("\x1a");
    stops(&pty);
    place.wait_no_session();
    let said = format!("the shell; the session ended after {}", seconds(begun));
    place.sql("SET search_path = agent_queue; SELECT enqueue('meanwhile', 'parse')");
    let begun = Instant::now();
    pty.signal(Signal::SIGCONT);
    pty.wait_text("meanwhile");
    back(
        &pty,
        "Ctrl-Z in the middle of a statement",
        &said,
        begun,
        NOTHING,
    );
    quit(&mut pty);
}

#[test]
fn a_full_queue_of_notifications_is_blamed_on_who_does_not_read() {
    if major() < 17 {
        eprintln!("before Postgres 17 the queue has 8 GB, this is {}", major());
        return;
    }
    let cluster = own_cluster(&[("max_notify_queue_pages", "64")]);
    let place = place_on(&cluster);
    let mut pty = watching(&place.url, &[]);
    let mut config = cluster.config();
    config.application_name("sleeper");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sleeper = runtime.block_on(common::connect(&config));
    for sql in ["LISTEN anything", "BEGIN; SELECT 1"] {
        runtime.block_on(async { sleeper.batch_execute(sql).await.expect(sql) });
    }
    let half = "SELECT pg_notification_queue_usage() > 0.5";
    let notify =
        "SELECT pg_notify('anything', repeat('x', 4000) || i) FROM generate_series(1, 20) i";
    for _ in 0..100 {
        if place.value(half) == "t" {
            break;
        }
        place.sql(notify);
    }
    assert_eq!(place.value(half), "t");
    let screen = pty.wait_text("jobtop listens no more");
    assert!(
        screen.contains("sleeper") && screen.contains("NOTIFY queue"),
        "{screen}"
    );
    answers(&mut pty);
    let begun = Instant::now();
    drop(sleeper);
    let said = line_with(&screen, "jobtop listens no more");
    pty.wait_no_text("jobtop listens no more");
    back(
        &pty,
        "NOTIFY queue half full",
        &said,
        begun,
        "hints, until it is empty; polling goes on",
    );
    quit(&mut pty);
}
