//! Clocks that are wrong, and clocks that somebody sets: the client's and the server's, moved by a library that is loaded
//! before all others.

use crate::common;
use crate::common::place::Place;
use crate::common::pty::Pty;
use crate::help::{answers, back, line_with, live, place_on, quit, row, verdict, watching};
use jobtop::demo::cluster::{Cluster, Options};
use jobtop::demo::locate::Search;
use jobtop::demo::reach;
use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Moves the time of day by the seconds that a file has; steady clocks go on.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile const long *moved;

__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("MOVED_BY"), O_RDONLY);
    if (fd >= 0) moved = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
}
static long by(void) { return moved && moved != MAP_FAILED ? *moved : 0; }

int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, t);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) t->tv_sec += by();
    return done;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int done = clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return done;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"#;

/// A clock that can be set, in a directory that a server running as another user can read.
struct Moved {
    directory: PathBuf,
}

impl Moved {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("moved-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).expect("readable");
        let moved = Self { directory };
        std::fs::write(moved.file("by"), 0i64.to_ne_bytes()).expect("written");
        std::fs::write(moved.file("moved.c"), LIBRARY).expect("written");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(moved.file("moved.so"))
            .arg(moved.file("moved.c"))
            .arg("-ldl")
            .output()
            .expect("cc, which links Rust programs too");
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        moved
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn env(&self) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.file("moved.so").display().to_string()),
            ("MOVED_BY", self.file("by").display().to_string()),
        ]
    }

    /// By so many seconds from now on.
    fn set(&self, seconds: i64) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(self.file("by"));
        let file = file.expect("the file");
        file.write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("written");
    }

    /// A server that lives by this clock.
    fn server(&self) -> Cluster {
        let found = Search::from_env(None)
            .run()
            .expect("searched")
            .expect("binaries");
        // the server's user cannot read what lies in root's home
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let bin = match home {
            Some(home) if found.dir.starts_with(&home) => {
                reach::bring(&found.dir, &self.file("pg")).expect("a second place")
            }
            _ => found.dir,
        };
        for program in ["postgres", "initdb"] {
            let [(preload, library), (by, file)] = self.env();
            let script = format!(
                "#!/bin/sh\n{preload}='{library}' {by}='{file}' exec '{}' \"$@\"\n",
                bin.join(program).display()
            );
            let path = self.file(program);
            std::fs::write(&path, script).expect("written");
            std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("executable");
        }
        let options = Options {
            bindir: Some(self.directory.clone()),
            ..common::options()
        };
        Cluster::start(&options).expect("a private Postgres")
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// No figure on it is negative, none is none, and nobody panicked.
fn sane(screen: &str) {
    for bad in ["NaN", "inf%", "panicked", "1970-", "-0s"] {
        assert!(!screen.contains(bad), "{bad} on:\n{screen}");
    }
    let negative = |word: &str| {
        let digits = word
            .strip_prefix('-')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        digits.is_some_and(|rest| rest.ends_with(['s', 'm', 'h', 'd']))
    };
    let found = screen.split_whitespace().find(|word| negative(word));
    assert_eq!(found, None, "{screen}");
}

/// Looks at every pane.
fn all_sane(pty: &mut Pty) {
    for pane in ["1", "2", "3", "4", "5", "6", "7", "0"] {
        pty.keys(pane);
        answers(pty);
        sane(&pty.screen());
    }
}

#[test]
fn a_wrong_clock_here_changes_no_age() {
    let place = Place::new("wrong_clock");
    let moved = Moved::new("client");
    for (hours, way) in [(2, "ahead"), (-2, "behind")] {
        moved.set(hours * 3600);
        let env = moved.env();
        let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let command = [env!("CARGO_BIN_EXE_jobtop"), &place.url];
        let mut pty = Pty::start(&command, 200, 50, &env);
        let screen = pty.wait("the skew", |s| {
            live(s) && s.contains("parser") && s.contains(&format!("clock here 2h00m {way}"))
        });
        // the clock shown is the server's
        let shown = line_with(&screen, "clock here");
        let shown = shown.split(' ').next_back().expect("a clock");
        let hour = place.value("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'HH24')");
        let next = place.value(
            "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC' - interval '1 min', 'HH24')",
        );
        assert!(
            shown.starts_with(&hour) || shown.starts_with(&next),
            "{shown}, it is {hour}:\n{screen}"
        );
        all_sane(&mut pty);
        let screen = pty.screen();
        assert!(!screen.contains("CRITICAL"), "{screen}");
        row(
            &format!("clock of the client 2 h {way}"),
            &format!("clock here 2h00m {way}"),
            "never away",
            "nothing: ages are the server's",
        );
        quit(&mut pty);
    }
}

/// A task is made, and taken by a worker of that name: both are seen.
fn work(place: &Place, pty: &mut Pty, name: &str) {
    place.sql(&format!(
        "SET search_path = agent_queue;
         SELECT enqueue('on_{name}', 'parse');
         SELECT claim('on_{name}', 'by_{name}')"
    ));
    // in the list of tasks, and among the workers
    for pane in ["6", "4"] {
        pty.keys(pane);
        pty.wait_text(&format!("by_{name} "));
    }
}

#[test]
fn the_servers_clock_may_be_set() {
    let moved = Moved::new("server");
    let cluster = moved.server();
    let place = place_on(&cluster);
    // as much as there is to be wrong about: a lease, a waiting task, a session in a transaction, spend
    place.sql(
        "SET search_path = agent_queue;
         SELECT enqueue('steady', 'parse') FROM generate_series(1, 40);
         SELECT complete(id, lease_token) FROM claim('steady', 'w1', 20);",
    );
    let (client, runtime) = place.client();
    runtime.block_on(async { client.batch_execute("BEGIN; SELECT 1").await.expect("open") });
    let mut pty = watching(&place.url, &[]);
    pty.wait_text("steady");
    let calm = pty.screen();
    assert!(!calm.contains("CRITICAL"), "{calm}");
    for (hours, way) in [(1, "forward"), (-1, "back")] {
        moved.set(hours * 3600);
        let begun = Instant::now();
        let said = format!("clock jumped 1h {way}");
        // nothing that follows from it is said in its place
        let screen = pty.wait("the jump", |s| verdict(s).contains(&said));
        let told = verdict(&screen);
        answers(&mut pty);
        all_sane(&mut pty);
        let screen = pty.wait("data", |s| live(s) && s.contains("parser"));
        assert!(
            verdict(&screen).contains(&said),
            "it is the verdict still:\n{screen}"
        );
        // what goes on is seen
        work(&place, &mut pty, way);
        moved.set(0);
        pty.wait("end of it", |s| !verdict(s).contains("clock"));
        work(&place, &mut pty, &format!("{way}_again"));
        all_sane(&mut pty);
        let lost = "history of what was between the two clocks";
        back(
            &pty,
            &format!("clock of the server an hour {way} and again right"),
            &told,
            begun,
            lost,
        );
    }
    // as before
    let screen = pty.wait("calm", |s| {
        live(s) && s.contains("steady") && !s.contains("CRITICAL")
    });
    sane(&screen);
    quit(&mut pty);
}
