//! Files that are read whole. What they hold is written by people or tools and small: a device that never ends must neither
//! hang the program nor fill its memory.

use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// Bytes that are read at most.
const MOST: u64 = 16 << 20;

/// All bytes of a file.
///
/// # Errors
/// Where it cannot be read, or has more than 16 MiB.
pub fn bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MOST {
        true => Err(Error::other("it is larger than 16 MiB")),
        false => Ok(bytes),
    }
}

/// The text of a plain file: of what is none, not even the beginning is waited for.
///
/// # Errors
/// Where it is a directory, a device or a pipe; where it is no UTF-8; as for [`bytes()`].
pub fn text(path: &Path) -> Result<String> {
    if !path.metadata()?.is_file() {
        return Err(Error::other("it is no plain file"));
    }
    String::from_utf8(bytes(path)?).map_err(|_| Error::other("it is no UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_not_waited_for() {
        let error = |e: Error| e.to_string();
        let zero = Path::new("/dev/zero");
        assert_eq!(text(zero).map_err(error), Err("it is no plain file".into()));
        let all = bytes(zero).map(|b| b.len()).map_err(error);
        assert_eq!(all, Err("it is larger than 16 MiB".into()));
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(text(&own).expect("read").contains("jobtop"));
        assert!(text(Path::new("/")).is_err());
    }
}
