//! Whose signature on the server's certificate counts.

use super::Mode;
use super::files::{self, Certificates};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// See above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The authorities that this machine trusts.
    System,
    /// Those in a file that was named.
    File(PathBuf),
    /// Those in `~/.postgresql/root.crt`, if it is there.
    Usual(PathBuf),
}

impl Roots {
    /// Their certificates, read anew. `None` where nothing is verified.
    ///
    /// # Errors
    /// Where they cannot be read, or `mode` cannot do without.
    pub fn load(&self, mode: Mode) -> Result<Option<Certificates>> {
        Ok(match self {
            Roots::System => Some(files::system()?),
            // as libpq has it, which is said aloud
            Roots::File(path) if mode < Mode::VerifyCa && !files::there(path) => None,
            Roots::File(path) => Some(files::certificates(path)?),
            Roots::Usual(path) if files::there(path) => Some(files::certificates(path)?),
            Roots::Usual(path) if mode >= Mode::VerifyCa => bail!(
                "there is no root certificate to verify the server's with: give sslrootcert=FILE, sslrootcert=system, or put it \
                 into {}",
                path.display()
            ),
            Roots::Usual(_) => None,
        })
    }

    /// The file, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Roots::System => None,
            Roots::File(path) | Roots::Usual(path) => Some(path),
        }
    }

    /// What is trusted, after "no authority in".
    pub fn words(&self) -> String {
        match self {
            Roots::System => "what this machine trusts (sslrootcert=system)".into(),
            Roots::File(path) => format!("{} (sslrootcert)", path.display()),
            Roots::Usual(path) => {
                format!("{}, which counts because it is there", path.display())
            }
        }
    }
}
