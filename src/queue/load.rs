//! The built-in profiles and the user's own, in one list and in one format.

use super::check::{Wrong, parse};
use super::profile::Profile;
use crate::files;
use std::path::PathBuf;
use std::sync::Arc;

const BUILTIN: &[(&str, &str)] = &[
    ("agent_queue.toml", include_str!("builtin/agent_queue.toml")),
    ("agent_jobs.toml", include_str!("builtin/agent_jobs.toml")),
    (
        "workflow_jobs.toml",
        include_str!("builtin/workflow_jobs.toml"),
    ),
    (
        "tasks_attempts.toml",
        include_str!("builtin/tasks_attempts.toml"),
    ),
];

/// All profiles: the user's own first. One with the name of a built-in system takes its place.
pub fn profiles(directories: &[PathBuf]) -> Result<Vec<Arc<Profile>>, Wrong> {
    let mut all: Vec<Arc<Profile>> = Vec::new();
    for directory in directories {
        let unreadable = |what: String, e: std::io::Error| Wrong {
            file: what,
            line: None,
            reason: e.to_string(),
        };
        let entries = std::fs::read_dir(directory)
            .map_err(|e| unreadable(format!("directory {}", directory.display()), e))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|e| e.ok().map(|e| e.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "toml"))
            .collect();
        files.sort();
        for file in files {
            let name = file.display().to_string();
            let text = files::text(&file).map_err(|e| unreadable(name.clone(), e))?;
            all.push(Arc::new(parse(&name, &text)?));
        }
    }
    for (file, text) in BUILTIN {
        let profile = parse(file, text)?;
        if !all
            .iter()
            .any(|p| p.system.get_ref() == profile.system.get_ref())
        {
            all.push(Arc::new(profile));
        }
    }
    Ok(all)
}
