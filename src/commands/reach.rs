//! From the flags to where they lead.

use super::Exit;
use crate::cli::Reach;
use crate::config::Config;
use crate::connect::{Given, Target};
use crate::out::tell;
use crate::term::secret;
use std::path::Path;

/// Where to connect. Asks for a password where that was wanted (where a server wants one, connecting asks); what one should know goes to stderr, before any screen.
pub fn target(reach: &Reach, url: Option<&str>, file: Option<&Path>) -> Result<Target, Exit> {
    let usage = |e: anyhow::Error| Exit::Usage(format!("{e:#}"));
    let config = Config::load(file).map_err(usage)?;
    let command = reach.password_command.clone().or(config.password_command);
    let mut given = Given {
        string: url.or(reach.dbname.as_deref()).map(String::from),
        host: reach.host.clone(),
        port: reach.port.clone(),
        user: reach.username.clone(),
        password: None,
        command: command.map(|c| (c, config.password_command_timeout)),
        ask: (!reach.no_password && secret::terminal()).then_some(secret::ask),
    };
    if reach.password {
        given.password = Some(secret::ask("Password: ").map_err(usage)?);
    }
    let target = Target::read(&given, &|name| std::env::var(name).ok()).map_err(usage)?;
    for warning in &target.warnings {
        tell(warning);
    }
    Ok(target)
}
