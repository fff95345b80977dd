//! `jobtop doctor`: one page about the connection, the rights, the queues and the server.

use super::{Exit, config, runtime, target};
use crate::cli::{Doctor, Look};
use crate::doctor;
use crate::out::print;
use crate::ui::fmt;
use anyhow::Result;
use std::sync::Arc;

pub fn doctor(args: &Doctor) -> Result<Exit> {
    let file = args.place.config.as_deref();
    let config = Arc::new(or_exit!(config(file, &Look::default(), false)));
    let target = or_exit!(target(&args.place));
    let page = runtime(1)?.block_on(doctor::examine(&target, &config))?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&page)? + "\n",
        false => page.text(),
    };
    print(&text)?;
    Ok(match page.needs_doing {
        0 => Exit::Fine,
        n => Exit::Error(format!(
            "{} to do",
            fmt::plural(n as u64, "thing", "things")
        )),
    })
}
