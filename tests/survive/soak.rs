//! Half an hour beside simulated agents: nothing grows.

use crate::common::place::Place;
use crate::help::{answers, own_cluster, place_on, quit, resident_kib, row, watching};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends a program of ours.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the program holds and costs at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    resident_kib: u64,
    descriptors: u64,
    sessions: u64,
    /// CPU time of the client so far, in seconds.
    cpu: f64,
    /// Of that since the sample before, in milliseconds.
    client_ms: f64,
    /// Server time of its statements over the last ten seconds, in milliseconds a second.
    server_ms: f64,
}

/// User and system time of a process, in seconds; the kernel counts hundredths.
fn cpu_of(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The share of a core that the header shows, in percent.
fn share(screen: &str) -> f64 {
    let header = screen.lines().next().unwrap_or_default();
    let words: Vec<&str> = header.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "core").expect("a share");
    let text = words[at - 1].trim_end_matches('%').trim_start_matches('<');
    text.parse().expect("a number")
}

fn sample(pid: i32, screen: &str, place: &Place, before: f64) -> Sample {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let cpu = cpu_of(pid);
    Sample {
        resident_kib: resident_kib(pid),
        descriptors: open.count() as u64,
        sessions: place.sessions().parse().expect("a number"),
        cpu,
        client_ms: (cpu - before) * 1000.0,
        server_ms: share(screen) * 10.0,
    }
}

#[test]
#[ignore = "half an hour, by hand: JOBTOP_SOAK_MINUTES says how long else"]
fn nothing_grows_in_half_an_hour() {
    let minutes = std::env::var("JOBTOP_SOAK_MINUTES").ok();
    let minutes: u64 = minutes.map_or(30, |m| m.parse().expect("minutes"));
    let cluster = own_cluster(&[]);
    let place = place_on(&cluster);
    let work = Command::new(env!("CARGO_BIN_EXE_jobtop"))
        .args(["work", &place.url])
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _work = Ended(work.expect("agents"));
    let mut pty = watching(&place.url, &[]);
    eprintln!(
        "| minute | RSS KiB | descriptors | sessions | server ms a second | client CPU ms a minute |"
    );
    eprintln!("| --- | --- | --- | --- | --- | --- |");
    let begun = Instant::now();
    let mut samples = vec![sample(pty.pid(), &pty.screen(), &place, 0.0)];
    for minute in 1..=minutes {
        // somebody looks around now and then
        for pane in ["1", "2", "3", "4", "5", "6", "7", "8", "0"] {
            pty.keys(pane);
            answers(&mut pty);
        }
        let due = Duration::from_secs(60 * minute);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let before = samples[samples.len() - 1].cpu;
        let now = sample(pty.pid(), &pty.screen(), &place, before);
        eprintln!(
            "| {minute} | {} | {} | {} | {:.1} | {:.0} |",
            now.resident_kib, now.descriptors, now.sessions, now.server_ms, now.client_ms
        );
        samples.push(now);
    }
    // the first minutes fill the history
    let settled = samples[samples.len().min(6) - 1 - usize::from(minutes < 6)];
    let last = samples[samples.len() - 1];
    assert!(
        last.resident_kib <= settled.resident_kib * 5 / 4 + 2048,
        "memory grows: {settled:?} {last:?}"
    );
    assert!(
        last.descriptors <= settled.descriptors + 2,
        "descriptors: {settled:?} {last:?}"
    );
    assert_eq!(last.sessions, 1, "sessions");
    assert!(
        last.server_ms <= settled.server_ms * 2.0 + 10.0,
        "server: {settled:?} {last:?}"
    );
    assert!(
        last.client_ms <= settled.client_ms * 2.0 + 500.0,
        "client: {settled:?} {last:?}"
    );
    let said = format!(
        "{} KiB, {} descriptors",
        last.resident_kib, last.descriptors
    );
    row(
        &format!("{minutes} minutes beside agents"),
        &said,
        "never away",
        "nothing",
    );
    quit(&mut pty);
}
