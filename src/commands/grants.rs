//! `jobtop grants`: the SQL that creates and grants the roles of the queues in a database.

use super::{Exit, config, runtime, target};
use crate::cli::{Grants, Look};
use crate::once;
use crate::out::print;
use crate::queue::{Instance, detect, grants, profiles};
use anyhow::Result;

/// Bytes of a name in Postgres that `_operator` leaves.
const LONGEST: usize = 63 - "_operator".len();

pub fn grants(args: &Grants) -> Result<Exit> {
    let config = or_exit!(config(
        args.place.config.as_deref(),
        &Look::default(),
        false
    ));
    let target = or_exit!(target(&args.place));
    let prefix = args.role_prefix.as_deref();
    let fits = |p: &str| {
        let long = p.is_empty() || p.len() > LONGEST;
        !long && !p.starts_with("pg_") && !p.chars().any(char::is_control)
    };
    if let Some(bad) = prefix.filter(|p| !fits(p)) {
        let text =
            format!("{bad:?} cannot begin a role's name: give 1 to {LONGEST} bytes, not pg_…");
        return Ok(Exit::Usage(text));
    }
    let found: Vec<Instance> = runtime(1)?.block_on(async {
        let session = once::open(&target).await?;
        let found = detect(&session, &profiles(&config.profiles)?, &config.settings).await;
        session.close().await;
        anyhow::Ok(found?)
    })?;
    let names: Vec<String> = found.iter().map(|i| i.system.clone()).collect();
    let asked = |i: &Instance| args.system.as_ref().is_none_or(|s| *s == i.system);
    let mut text = String::new();
    for instance in found.iter().filter(|i| asked(i)) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&grants::script(instance, prefix)?);
    }
    if text.is_empty() {
        let there = match names.is_empty() {
            true => "none".to_string(),
            false => names.join(", "),
        };
        return Ok(Exit::Error(format!(
            "no such queue in this database (found: {there})"
        )));
    }
    print(&text)?;
    Ok(Exit::Fine)
}
