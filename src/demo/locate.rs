//! Finds the Postgres server binaries of this machine.
//!
//! Debian and others keep `initdb` and `postgres` out of `PATH`, so the places where packages put them
//! are looked at one by one. What the user's cache holds (see [`super::fetch`]) counts only when the
//! machine has nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Error;

/// The oldest major version that jobtop works with.
pub const OLDEST: u32 = 13;

/// Names a directory of server binaries, like the flag does.
pub const BINDIR_VARIABLE: &str = "JOBTOP_PG_BINDIR";

/// Looks for Postgres below another root than `/`, so that a test can have a machine without one.
pub const ROOT_VARIABLE: &str = "JOBTOP_PG_SEARCH_ROOT";

/// Where packages put server binaries: parent directory, start of the name, directory below.
const PLACES: &[(&str, &str, &str)] = &[
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/usr/lib", "postgresql", "bin"),
    ("/usr/lib64", "postgresql", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/usr/local", "pgsql", "bin"),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
    ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
    ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
];

/// A directory with both `initdb` and `postgres`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The directory, symbolic links resolved.
    pub dir: PathBuf,
    /// `18` of `18.4`.
    pub version_major: u32,
    /// The version as the server says it: `15.18`, `19devel`.
    pub version: String,
}

/// Where to look.
#[derive(Debug, Clone)]
pub struct Search {
    /// A directory somebody named: nothing else is looked at.
    pub explicit: Option<PathBuf>,
    /// Directories to look at first, usually those of `PATH`.
    pub path: Vec<PathBuf>,
    /// The root below which packages install: `/`.
    pub root: PathBuf,
    /// The user's cache directory of jobtop.
    pub cache: Option<PathBuf>,
}

impl Search {
    /// The search that the environment asks for; `explicit` wins over its variable.
    pub fn from_env(explicit: Option<PathBuf>) -> Self {
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let root = variable(ROOT_VARIABLE).map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let path = variable("PATH").unwrap_or_default();
        Self {
            explicit: explicit.or_else(|| variable(BINDIR_VARIABLE).map(PathBuf::from)),
            path: std::env::split_paths(&path)
                .map(|dir| below(&root, &dir))
                .collect(),
            root,
            cache: super::fetch::cache_dir(),
        }
    }

    /// The named directory, else the newest server on the machine, else the one in the cache.
    ///
    /// `Ok(None)`: there is none. An error only ever speaks of a directory that somebody named.
    pub fn run(&self) -> Result<Option<Binaries>, Error> {
        if let Some(dir) = &self.explicit {
            return named(dir).map(Some);
        }
        let mut seen: Vec<PathBuf> = Vec::new();
        let mut best: Option<Binaries> = None;
        for dir in self.on_machine() {
            let Some(dir) = resolve(&dir).filter(|dir| !seen.contains(dir)) else {
                continue;
            };
            seen.push(dir.clone());
            let Ok(found) = inspect(&dir) else { continue };
            if best
                .as_ref()
                .is_none_or(|best| found.version_major > best.version_major)
            {
                best = Some(found);
            }
        }
        Ok(best.or_else(|| super::fetch::cached(self.cache.as_deref()?)))
    }

    fn on_machine(&self) -> Vec<PathBuf> {
        let mut dirs = self.path.clone();
        dirs.extend(self.path.iter().find_map(|dir| pg_config(dir)));
        for (parent, start, sub) in PLACES {
            dirs.extend(
                children(&below(&self.root, Path::new(parent)), start).map(|dir| dir.join(sub)),
            );
        }
        dirs
    }
}

/// Judges a directory that holds `initdb` and `postgres`: both must be there, and new enough.
pub fn inspect(dir: &Path) -> Result<Binaries, String> {
    for program in ["initdb", "postgres"] {
        if !dir.join(program).is_file() {
            return Err(format!("it has no {program}"));
        }
    }
    // Asking for the version is the one thing that postgres does for root too.
    let output = Command::new(dir.join("postgres"))
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("its postgres cannot be run ({error})"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let Some((version_major, version)) = parse_version(&said) else {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let line = complaint
            .lines()
            .next()
            .unwrap_or("it says nothing")
            .to_owned();
        return Err(format!("its postgres does not tell its version ({line})"));
    };
    if version_major < OLDEST {
        return Err(format!("Postgres {version} is older than {OLDEST}"));
    }
    Ok(Binaries {
        dir: dir.to_owned(),
        version_major,
        version,
    })
}

fn named(dir: &Path) -> Result<Binaries, Error> {
    let refuse = |reason| Error::Bindir {
        dir: dir.to_owned(),
        reason,
    };
    if !dir.is_dir() {
        return Err(refuse("there is no such directory".to_owned()));
    }
    // The installation prefix is what some people have at hand.
    let bin = resolve(dir).or_else(|| resolve(&dir.join("bin")));
    let bin = bin.unwrap_or_else(|| dir.to_owned());
    inspect(&bin).map_err(refuse)
}

/// The real directory of the server whose `postgres` is found in `dir`, which may be a link to it.
fn resolve(dir: &Path) -> Option<PathBuf> {
    let program = dir.join("postgres").canonicalize().ok()?;
    let real = program.parent()?;
    if real.join("initdb").is_file() {
        return Some(real.to_owned());
    }
    // A directory of links to several packages.
    dir.join("initdb")
        .is_file()
        .then(|| dir.canonicalize().ok())?
}

fn pg_config(dir: &Path) -> Option<PathBuf> {
    let program = dir.join("pg_config");
    if !program.is_file() {
        return None;
    }
    let output = Command::new(program)
        .arg("--bindir")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    (!line.trim().is_empty()).then(|| PathBuf::from(line.trim()))
}

fn children(parent: &Path, start: &str) -> impl Iterator<Item = PathBuf> {
    let mut names: Vec<_> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .collect();
    names.sort();
    names.into_iter()
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` is `(15, "15.18")`.
fn parse_version(said: &str) -> Option<(u32, String)> {
    let version = said
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let digits = version
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(version.len());
    Some((version[..digits].parse().ok()?, version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_of_packages_and_of_development_builds_are_read() {
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(parse_version(debian), Some((15, "15.18".to_owned())));
        let devel = "postgres (PostgreSQL) 19devel\n";
        assert_eq!(parse_version(devel), Some((19, "19devel".to_owned())));
        assert_eq!(parse_version("sh: not found"), None);
    }
}
