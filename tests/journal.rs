//! `jobtop journal` by the real binary, over a file that several writers share.

use jobtop::config::Config;
use jobtop::journal::{Entry, Journal, Phase, person, read};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A home directory that goes with the test.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        Self(std::env::temp_dir().join(format!("jobtop-home-{name}-{id}")))
    }

    fn file(&self) -> PathBuf {
        self.0.join(".local/state/jobtop/journal.jsonl")
    }

    fn journal(&self) -> Journal {
        let config = Config {
            journal_file: Some(self.file()),
            ..Config::default()
        };
        Journal::open(&config).expect("a journal")
    }

    fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_jobtop"))
            .arg("journal")
            .args(args)
            .env("HOME", &self.0)
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("JOBTOP_CONFIG")
            .env("LC_ALL", "C.UTF-8")
            .envs(env.iter().copied())
            .output()
            .expect("ran");
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        self.run_with(args, &[])
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // it may not have come to be
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn entry(action_id: &str, phase: Phase, change: serde_json::Value) -> Entry {
    let mut all = json!({
        "format": 1, "at": "2026-03-01T14:02:11.5Z", "phase": phase, "action_id": action_id, "action": "requeue",
        "who": person(), "db_user": "app", "server": "/run/postgresql", "database": "prod", "system": "agent_queue",
        "schema": "agent_queue", "ids": ["48002"],
    });
    let fields = change.as_object().expect("fields").clone();
    all.as_object_mut().expect("fields").extend(fields);
    serde_json::from_value(all).expect("an entry")
}

#[test]
fn where_there_is_none_it_says_where_it_would_be() {
    let home = Home::new("none");
    let (code, out, err) = home.run(&[]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("no journal yet"), "{out}");
    assert!(out.contains(&home.file().display().to_string()), "{out}");
    let (code, out, _) = home.run_with(&[], &[("XDG_STATE_HOME", "/some/state")]);
    assert_eq!(code, 0);
    assert!(out.contains("/some/state/jobtop/journal.jsonl"), "{out}");
    let (code, out, err) = home.run(&["--json"]);
    assert_eq!((code, out.as_str()), (0, "[]\n"));
    assert!(err.contains("no journal yet"), "{err}");
    assert!(!home.file().exists(), "looking makes nothing");
    // the settings may name another file
    std::fs::create_dir_all(&home.0).expect("a home");
    let config = home.0.join("config.toml");
    std::fs::write(&config, "journal_file = \"/elsewhere/j\"").expect("written");
    let (_, out, _) = home.run(&["--config", &config.display().to_string()]);
    assert!(out.contains("/elsewhere/j"), "{out}");
}

#[test]
fn many_writers_never_tear_a_line() {
    let home = Home::new("many");
    const WRITERS: usize = 6;
    const EACH: usize = 1000;
    let writers: Vec<_> = (0..WRITERS)
        .map(|w| {
            let journal = home.journal();
            std::thread::spawn(move || {
                // longer than what a pipe or a page takes at once, now and then
                let sql = "x".repeat(if w == 0 { 20_000 } else { 10 + w });
                for n in 0..EACH {
                    let id = format!("{w}-{n}");
                    let e = entry(&id, Phase::Ended, json!({ "sql": sql, "ids": [id] }));
                    journal.append(&e).expect("appended");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().expect("a writer");
    }
    let mut next = [0; WRITERS];
    for e in read(&home.file()).expect("a file") {
        let e = e.expect("a whole line");
        let (w, n) = e.action_id.split_once('-').expect("an id");
        let w: usize = w.parse().expect("a number");
        assert_eq!(n, next[w].to_string(), "in the order written");
        next[w] += 1;
    }
    assert_eq!(next, [EACH; WRITERS]);
    let (code, out, err) = home.run(&["--all"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out.lines().count(), WRITERS * EACH + 1);
    let mode = |path: &std::path::Path| {
        let meta = std::fs::metadata(path).expect("there");
        meta.permissions().mode() & 0o777
    };
    assert_eq!(mode(&home.file()), 0o600);
    assert_eq!(mode(home.file().parent().expect("a directory")), 0o700);
}

#[test]
fn it_shows_what_was_asked_for_newest_last() {
    let home = Home::new("shows");
    let journal = home.journal();
    let counts = json!({ "asked": 2, "changed": 1, "skipped": 1, "ids": ["7", "8"], "reason": "parser fixed",
        "outcomes": { "7": "changed", "8": "locked" } });
    for e in [
        entry(
            "a",
            Phase::Begun,
            json!({ "ids": ["7", "8"], "reason": "parser fixed" }),
        ),
        entry("a", Phase::Ended, counts),
        entry(
            "b",
            Phase::Begun,
            json!({ "action": "cancel", "ids": ["9"] }),
        ),
        entry("c", Phase::Begun, json!({})),
        entry(
            "c",
            Phase::Ended,
            json!({ "error": "nothing was written: deadlock detected" }),
        ),
    ] {
        journal.append(&e).expect("appended");
    }
    let (code, out, err) = home.run(&[]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{out}");
    assert!(
        lines[0].contains("time (UTC)") && lines[0].contains("reason"),
        "{out}"
    );
    assert!(
        lines[1].contains("2026-03-01 14:02:11") && lines[1].contains(&person()),
        "{out}"
    );
    assert!(
        lines[1].contains("7, 8") && lines[1].contains("parser fixed"),
        "{out}"
    );
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert!(
        words
            .windows(6)
            .any(|w| w == ["requeue", "2", "1", "1", "0", "0"]),
        "{out}"
    );
    assert!(
        lines[2].contains("cancel") && lines[2].contains("outcome unknown: ask operator_actions"),
        "{out}"
    );
    assert!(lines[3].contains("deadlock detected"), "{out}");
    let ids = |args: &[&str]| {
        let (code, out, _) = home.run(&[args, &["--json"]].concat());
        assert_eq!(code, 0);
        let entries: Vec<Entry> = serde_json::from_str(&out).expect("entries");
        let ids: Vec<String> = entries.into_iter().map(|e| e.action_id).collect();
        ids.join("")
    };
    assert_eq!(ids(&[]), "aabcc");
    assert_eq!(ids(&["--last", "1"]), "cc");
    assert_eq!(ids(&["--action", "cancel"]), "b");
    assert_eq!(ids(&["--id", "8"]), "aa");
    // one action of 741 tasks: a chunk was written, one rolled back, of one no end is known, others never came
    let hundred =
        |n: u64| -> Vec<String> { (n * 100..n * 100 + 100).map(|i| i.to_string()).collect() };
    let chunk = |n: u64, phase, change: serde_json::Value| {
        let mut all = json!({ "action": "release", "of": 741, "ids": hundred(n) });
        let fields = change.as_object().expect("fields").clone();
        all.as_object_mut().expect("fields").extend(fields);
        entry(&format!("d/{n}"), phase, all)
    };
    let locked: Vec<String> = vec!["199".into()];
    for e in [
        chunk(1, Phase::Begun, json!({})),
        chunk(
            1,
            Phase::Ended,
            json!({ "asked": 100, "changed": 97, "skipped": 3, "unknown": 0,
            "outcomes": { "197": "gone", "198": "locked", "199": "locked" } }),
        ),
        chunk(2, Phase::Begun, json!({})),
        chunk(
            2,
            Phase::Ended,
            json!({ "asked": 100, "changed": 0, "skipped": 0, "unknown": 0, "error": "too slow" }),
        ),
        chunk(3, Phase::Begun, json!({ "ids": locked })),
        chunk(
            3,
            Phase::Ended,
            json!({ "ids": locked, "asked": 1, "changed": 1, "skipped": 0, "unknown": 0,
            "outcomes": { "199": "changed" } }),
        ),
        chunk(4, Phase::Begun, json!({})),
    ] {
        journal.append(&e).expect("appended");
    }
    let (_, out, _) = home.run(&["--action", "release"]);
    let words: Vec<&str> = out.split_whitespace().collect();
    let told = ["release", "741", "98", "2", "100", "541"];
    assert!(words.windows(6).any(|w| w == told), "{out}");
    let (_, out, _) = home.run(&["--json"]);
    let lines: Vec<serde_json::Value> = serde_json::from_str(&out).expect("JSON");
    let wholes: Vec<_> = lines.iter().filter_map(|l| l.get("whole")).collect();
    assert_eq!(lines.len(), 12);
    let of = |asked, changed, skipped, unknown, not_reached| json!({ "asked": asked, "changed": changed, "skipped": skipped, "unknown": unknown, "not_reached": not_reached });
    let expected = [
        of(2, 1, 1, 0, 0),
        of(1, 0, 0, 1, 0),
        of(1, 0, 0, 1, 0),
        of(741, 98, 2, 100, 541),
    ];
    assert_eq!(wholes, expected.iter().collect::<Vec<_>>());
    assert!(lines[11].get("whole").is_some(), "{out}");
    let (code, out, _) = home.run(&["--id", "4711"]);
    assert_eq!(code, 0);
    assert!(out.contains("no such action"), "{out}");
    let (code, _, _) = home.run(&["--all", "--last", "2"]);
    assert_eq!(code, 2);
}

#[test]
fn torn_lines_are_left_out_and_hostile_text_is_cleaned() {
    let home = Home::new("hostile");
    let journal = home.journal();
    let nasty = "evil\u{1b}]0;PWNED\u{7}\u{202e}\u{1b}[2J\nnext";
    let e = entry(
        "a",
        Phase::Ended,
        json!({ "who": nasty, "action": nasty, "database": nasty, "ids": [nasty],
        "reason": nasty, "error": nasty }),
    );
    journal.append(&e).expect("appended");
    let text = std::fs::read(home.file()).expect("bytes");
    std::fs::write(home.file(), [&text[..], &text[..40]].concat()).expect("torn");
    let (code, out, err) = home.run(&[]);
    assert_eq!(code, 0);
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(out.contains("evil]0;PWNED[2J"), "{out}");
    for text in [&out, &err] {
        let bad = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(bad), "{text:?}");
    }
    assert!(err.contains("line 2 of the journal is torn"), "{err}");
    // JSON keeps the text, escaped where it could do harm to a terminal
    let (_, out, _) = home.run(&["--json"]);
    assert!(!out.contains('\u{1b}'), "{out:?}");
}
