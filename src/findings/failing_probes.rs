//! Probes that fail for the same reason, in words.

use crate::findings::words::{duration, name};
use crate::probe::ProbeHealth;

/// How old what they read last is, in seconds: the oldest of it. `None` where none was ever read.
pub fn oldest(probes: &[&ProbeHealth]) -> Option<f64> {
    probes.iter().filter_map(|p| p.age_s).reduce(f64::max)
}

/// `queues, leases not read for 9s`.
pub fn words(probes: &[&ProbeHealth]) -> String {
    let names: Vec<String> = probes.iter().map(|p| name(&p.name)).collect();
    let age = match oldest(probes) {
        Some(age) => format!("not read for {}", duration(age)),
        None => "never read".into(),
    };
    format!("{} {age}", names.join(", "))
}

/// Without them nothing can be said of queues, or of the server.
pub fn blind(probes: &[&ProbeHealth]) -> bool {
    let mut names = probes.iter().map(|p| p.name.as_str());
    names.any(|name| name == "queues" || name == "activity")
}
