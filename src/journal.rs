//! The local journal: what this user did with jobtop on this machine, in one append-only file of JSON lines. It is
//! written whether or not the queue has a journal of its own, and before the transaction is sent, so that an action
//! whose outcome nobody heard of is known to have been tried. It outlives the program, not the machine: nothing waits
//! for the disk.

mod entry;
mod page;
mod read;
mod who;
mod whole;

pub use entry::{Entry, FORMAT, Phase};
pub use page::{Tried, pair, section};
pub use read::{Broken, read};
pub use who::{host, person};
pub use whole::Whole;

use crate::config::{Config, user_directory};
use anyhow::{Context, Result};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where entries are appended.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
}

/// The file that the settings name, else `journal.jsonl` in the user's state directory; `None` where neither is known.
pub fn path(config: &Config) -> Option<PathBuf> {
    let under_home = match cfg!(target_os = "macos") {
        true => "Library/Application Support",
        false => ".local/state",
    };
    let usual =
        || user_directory("XDG_STATE_HOME", under_home).map(|d| d.join("jobtop/journal.jsonl"));
    config.journal_file.clone().or_else(usual)
}

/// As [`path`], or what to set where none is known.
pub fn known_path(config: &Config) -> Result<PathBuf> {
    path(config).context("no home directory is known for the journal: set journal_file")
}

impl Journal {
    /// Makes sure that the file can be written, readable by its owner only; creates it and its directory where they are
    /// missing.
    pub fn open(config: &Config) -> Result<Self> {
        let path = known_path(config)?;
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .with_context(|| format!("the directory {} cannot be made", directory.display()))?;
        }
        let journal = Self { path };
        journal.file()?;
        Ok(journal)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one line in one write. Waits for other writers: all jobtops of a user share the file. Opens it anew, so
    /// that a file that was moved away is followed by a fresh one.
    pub fn append(&self, entry: &Entry) -> Result<()> {
        let mut file = self.file()?;
        let mut line = serde_json::to_vec(entry).context("an entry that is no JSON")?;
        line.push(b'\n');
        let mut write = || {
            file.lock()?;
            // what a writer that died left behind must not swallow this line too
            if is_torn(&mut file)? {
                line.insert(0, b'\n');
            }
            // the lock ends with the file
            file.write_all(&line)
        };
        write().with_context(|| self.cannot())
    }

    fn file(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        options.open(&self.path).with_context(|| self.cannot())
    }

    fn cannot(&self) -> String {
        format!("the journal {} cannot be written", self.path.display())
    }
}

/// Does the file end within a line?
fn is_torn(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests;
