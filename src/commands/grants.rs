//! `jobtop grants`: the SQL that creates and grants the roles of the queues in a database.

use super::{Exit, config, runtime, target};
use crate::cli::{Grants, Look};
use crate::config::Config;
use crate::connect::Session;
use crate::once;
use crate::out::print;
use crate::queue::{Catalogue, Half, Instance, grants, profiles};
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
    let (found, half) = runtime(1)?.block_on(async {
        let session = once::open(&target).await?;
        let found = look(&session, &config).await;
        session.close().await;
        found
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
        let asked = |h: &&Half| {
            args.system
                .as_ref()
                .is_none_or(|s| s == h.profile.system.get_ref())
        };
        if let Some(half) = half.iter().find(asked) {
            return Ok(Exit::Error(half.sentence()));
        }
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

/// The systems that are whole, and those that are half there.
async fn look(session: &Session, config: &Config) -> Result<(Vec<Instance>, Vec<Half>)> {
    let profiles = profiles(&config.profiles)?;
    let catalogue = Catalogue::read(session, &profiles).await?;
    let found = catalogue.systems(session, &profiles, &config.settings);
    let found = found.await?;
    let half = catalogue.half_there(&profiles, &found);
    Ok((found, half))
}
