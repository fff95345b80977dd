//! The directory of one private cluster: who may enter, who is alive in it, and how it goes.
//!
//! It lies directly in `/tmp`, because the path of a Unix socket must fit into about 100 bytes. A
//! supervisor holds a lock on the file `lock` in it for as long as it lives; a directory of ours whose
//! lock is free has lost its supervisor and may be swept.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Gid, Uid, User, chown, geteuid};

const PREFIX: &str = "jobtop-";
const LOCK: &str = "lock";
const MARK: &[u8] =
    b"A private Postgres of jobtop. It goes when the program that started it goes.\n";

/// The operating system user that the server runs as when we are root, which Postgres refuses to be.
#[derive(Debug, Clone)]
pub struct Account {
    /// Its user id.
    pub uid: Uid,
    /// Its group id.
    pub gid: Gid,
}

impl Account {
    /// `None`: we are an ordinary user, and so is the server. Postgres wants a user with a name.
    pub fn for_server() -> Result<Option<Self>, String> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let known = |name| {
            User::from_name(name)
                .ok()
                .flatten()
                .filter(|user| !user.uid.is_root())
        };
        let user = known("postgres").or_else(|| known("nobody")).ok_or(
            "Postgres refuses to run as root and this machine has neither a user postgres nor nobody; \
             run jobtop as an ordinary user",
        )?;
        Ok(Some(Self {
            uid: user.uid,
            gid: user.gid,
        }))
    }
}

/// A directory that lives as long as its supervisor.
#[derive(Debug)]
pub struct Private {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Private {
    /// Makes the directory with `data` and `s` (for the socket) in it, both for `account` alone.
    pub fn create(account: Option<&Account>) -> io::Result<Self> {
        let path = create_unique(base())?;
        let made = Self::lock(&path).and_then(|lock| {
            furnish(&path, account)?;
            Ok(lock)
        });
        match made {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => {
                remove(&path);
                Err(error)
            }
        }
    }

    fn lock(path: &Path) -> io::Result<Flock<File>> {
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path.join(LOCK))?;
        // A sweeper may hold the lock for a moment: it has yet to see that the mark is missing.
        let locked = Flock::lock(file, FlockArg::LockExclusive);
        let mut lock = locked.map_err(|(_, errno)| io::Error::from(errno))?;
        lock.write_all(MARK)?;
        Ok(lock)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory and everything in it; the lock is held to the end.
    pub fn remove(self) {
        remove(&self.path);
    }
}

fn furnish(path: &Path, account: Option<&Account>) -> io::Result<()> {
    let inside = ["data", "s"].map(|name| path.join(name));
    for dir in &inside {
        DirBuilder::new().mode(0o700).create(dir)?;
    }
    let Some(Account { uid, gid }) = account else {
        return Ok(());
    };
    let give = |dir: &Path, uid| {
        chown(dir, uid, Some(*gid)).map_err(|errno| {
            io::Error::other(format!(
                "Postgres refuses to run as root, and here its files cannot be given to another user \
                 ({}); run jobtop as an ordinary user",
                errno.desc()
            ))
        })
    };
    for dir in &inside {
        give(dir, Some(*uid))?;
    }
    // The server passes through, and can change nothing here.
    give(path, None)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o710))
}

/// Removes the directories of clusters whose supervisor is gone, as far as they are ours.
pub fn sweep() {
    for entry in std::fs::read_dir(base()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            sweep_one(&entry.path());
        }
    }
}

fn sweep_one(path: &Path) {
    let ours = |path: &Path, kind: fn(&std::fs::Metadata) -> bool| {
        std::fs::symlink_metadata(path)
            .is_ok_and(|meta| kind(&meta) && meta.uid() == geteuid().as_raw())
    };
    if !ours(path, |meta| meta.is_dir()) || !ours(&path.join(LOCK), |meta| meta.is_file()) {
        return;
    }
    let Ok(file) = File::open(path.join(LOCK)) else {
        return;
    };
    let Ok(_lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
        return;
    };
    if std::fs::read(path.join(LOCK)).is_ok_and(|mark| mark == MARK) {
        remove(path);
    }
}

/// The lock file goes last: what a killed sweeper leaves is swept by the next.
fn remove(path: &Path) {
    // A server that is being killed may still be writing.
    let deadline = Instant::now() + Duration::from_secs(3);
    while !emptied(path) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = std::fs::remove_file(path.join(LOCK));
    let _ = std::fs::remove_dir(path);
}

fn emptied(path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut failures = 0;
    for entry in entries.filter(|entry| entry.file_name() != LOCK) {
        let removed = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(entry.path())
        } else {
            std::fs::remove_file(entry.path())
        };
        failures += usize::from(removed.is_err());
    }
    failures == 0
}

fn base() -> PathBuf {
    let short = PathBuf::from("/tmp");
    if short.is_dir() {
        short
    } else {
        std::env::temp_dir()
    }
}

fn create_unique(base: PathBuf) -> io::Result<PathBuf> {
    let mut tries = 0;
    loop {
        let path = base.join(format!("{PREFIX}{:08x}", rand::random::<u32>()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 100 => tries += 1,
            Err(error) => {
                let text = format!("no directory can be made in {}: {error}", base.display());
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
}
