use super::*;
use crate::connect::Fault;
use std::path::Path;
use tracing::{error, trace};

/// A directory that is gone after the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("jobtop-unit-{}-log-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is written of what `tell` says.
fn written(path: &Path, level: Level, tell: impl FnOnce()) -> String {
    let file = open(path.to_path_buf()).expect("opens");
    let subscriber = subscriber(level, &["pin".into()], file.clone());
    tracing::subscriber::with_default(subscriber, tell);
    assert_eq!(file.end(), None);
    std::fs::read_to_string(path).expect("written")
}

/// A line without its time and this process.
fn after_head(line: &str) -> &str {
    let process = format!(" [{}]", std::process::id());
    line[24..].strip_prefix(&process).expect("its process")
}

#[test]
fn levels_have_names() {
    let level = |text: &str| Level::from_str(text, true);
    assert_eq!(level("Debug"), Ok(Level::Debug));
    assert!(level("warn").is_err() && level("").is_err());
    let read = |text: &str| Config::parse(text).map(|c| c.log_level);
    assert_eq!(read("log_level = \"trace\"").expect("parses"), Level::Trace);
    assert_eq!(read("").expect("parses"), Level::Info);
    let error = read("log_level = \"warn\"").expect_err("no level");
    assert!(
        error
            .to_string()
            .contains("`error`, `info`, `debug`, `trace`"),
        "{error}"
    );
}

#[test]
fn one_event_is_one_line_whatever_it_holds() {
    let here = Directory::new("line");
    let log = written(&here.0.join("log"), Level::Info, || {
        let _probe = error_span!("probe", probe = "queues").entered();
        error!(
            role = "a\nb\u{1b}[2J\u{202e}\u{85}\"\\=",
            n = 3,
            none = None::<u8>,
            empty = "",
            "failed"
        );
        info!(
            reason = "login with password=hunter2",
            url = "postgres://u:hunter2@h/d",
            pin = "no key",
            "asks"
        );
        info!(reason = "pin: hunter2", long = "é".repeat(5000), "longs");
        debug!("below the level");
        error!(target: "tokio_postgres", "hunter2");
    });
    let lines: Vec<&str> = log.lines().map(after_head).collect();
    assert_eq!(
        lines[0],
        r#" ERROR failed role="a\nb\u{1b}[2J\u{202e}\u{85}\"\\=" n=3 empty="" probe=queues"#
    );
    assert_eq!(
        lines[1],
        r#" INFO  asks reason="login with password=***" url=postgres://u:***@h/d pin="no key" probe=queues"#
    );
    assert!(
        lines[2].starts_with(r#" INFO  longs reason="pin: ***" long=éé"#) && lines[2].len() < 2200
    );
    assert_eq!(lines.len(), 3, "{log}");
}

#[test]
fn a_statement_shows_its_literals_but_no_secrets() {
    let here = Directory::new("statement");
    let sql = "SELECT 1 -- don't\n  FROM t\nWHERE state = 'it''s' AND lease_token = $1 AND api_token = E'hunter\\'2' \
               AND \"it's\" = $$hunter$$ AND pgp_sym_decrypt(a, 'hun''ter2') = $x$keep$x$";
    let log = written(&here.0.join("log"), Level::Trace, || {
        trace!(text = sql, "text")
    });
    let text = r#"text="SELECT 1 FROM t WHERE state = 'it''s' AND lease_token = $1 AND api_token = *** AND \"it's\" = $$hunter$$ AND pgp_sym_decrypt(a, ***) = $x$keep$x$""#;
    assert_eq!(after_head(log.trim_end()), format!(" TRACE text {text}"));
}

#[test]
fn messages_about_data_end_before_them() {
    let fault = |code: &str, message: &str| {
        told(&Fault {
            code: Some(code.into()),
            ..Fault::own(message)
        })
    };
    for (message, words) in [
        (
            "invalid input syntax for type integer: \"hunter2\"",
            "invalid input syntax for type integer***",
        ),
        (
            "value \"99999999999\" is out of range for type integer",
            "value ***",
        ),
        (
            "ungültige Eingabesyntax für Typ integer: »hunter2«",
            "ungültige Eingabesyntax für Typ integer***",
        ),
        ("division by zero", "division by zero"),
    ] {
        assert_eq!(fault("22P02", message), words);
    }
    let names = "relation \"tasks\" does not exist";
    assert_eq!(fault("42P01", names), names);
}

#[test]
fn a_file_that_was_moved_away_is_followed_by_a_fresh_one() {
    let here = Directory::new("moved");
    let (path, old) = (here.0.join("log"), here.0.join("log.1"));
    let file = open(path.clone()).expect("opens");
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
    tracing::subscriber::with_default(subscriber(Level::Info, &[], file.clone()), || {
        info!("one");
        while size(&path) == 0 {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &old).expect("moved");
        info!("two");
    });
    assert_eq!(file.end(), None);
    let read = |path| std::fs::read_to_string(path).expect("written");
    assert!(read(&old).ends_with(" one\n") && read(&path).ends_with(" two\n"));
}

#[test]
fn what_finds_no_room_is_counted_and_the_rest_is_written_when_it_can_be() {
    let here = Directory::new("file");
    let (directory, path) = (here.0.join("disk"), here.0.join("disk/log"));
    std::fs::create_dir(&directory).expect("a directory");
    let file = open(path.clone()).expect("opens");
    std::fs::remove_dir_all(&directory).expect("removed");
    let sent = 40_000;
    tracing::subscriber::with_default(subscriber(Level::Info, &[], file.clone()), || {
        for n in 0..sent {
            info!(
                n,
                "an event that is about as long as most of them are, so that many make a mebibyte"
            );
        }
    });
    let trouble = loop {
        match file.trouble() {
            Some(trouble) => break trouble,
            None => std::thread::yield_now(),
        }
    };
    assert!(
        trouble.contains("cannot be written: No such file or directory"),
        "{trouble}"
    );
    std::fs::create_dir(&directory).expect("a directory");
    assert_eq!(file.end(), None, "told once");
    let log = std::fs::read_to_string(path).expect("written");
    let (lines, last) = log.trim_end().rsplit_once('\n').expect("lines");
    let dropped = last
        .split("count=")
        .nth(1)
        .and_then(|r| r.split(' ').next());
    let dropped: usize = dropped.expect(last).parse().expect("a number");
    assert!(last.contains("ERROR events were dropped"), "{last}");
    let lines = lines.lines().count();
    assert!(
        lines > 5000 && dropped > 5000 && lines + dropped == sent,
        "{lines} + {dropped}"
    );
}
