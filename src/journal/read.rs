//! Reading the journal back: a torn or foreign line costs itself, never its neighbours.

use super::Entry;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// A line that is no entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the journal {why}")]
pub struct Broken {
    /// The line, from 1.
    pub line: usize,
    /// Why it cannot be read, after "line 7 of the journal".
    pub why: String,
}

/// The entries of a journal file, oldest first. Fields that this version does not know are ignored.
pub fn read(path: &Path) -> io::Result<impl Iterator<Item = Result<Entry, Broken>> + use<>> {
    let mut lines = BufReader::new(File::open(path)?);
    let mut n = 0;
    let mut failed = false;
    Ok(std::iter::from_fn(move || {
        loop {
            let mut line = Vec::new();
            match lines.read_until(b'\n', &mut line) {
                _ if failed => return None,
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) => {
                    failed = true;
                    let why = format!("and all after it cannot be read: {e}");
                    return Some(Err(Broken { line: n + 1, why }));
                }
            }
            n += 1;
            if !line.trim_ascii().is_empty() {
                return Some(parse(&line, n));
            }
        }
    }))
}

fn parse(line: &[u8], n: usize) -> Result<Entry, Broken> {
    let whole = line.ends_with(b"\n");
    serde_json::from_slice(line).map_err(|e| Broken {
        line: n,
        why: match e.is_eof() || !whole {
            true => "is torn: its writer was stopped".into(),
            false => format!("is no entry: {e}"),
        },
    })
}
