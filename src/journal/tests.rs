//! What is written can be read, whatever happened to the file in between.

use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

/// A directory that goes with the test.
struct Here(PathBuf);

impl Here {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        Self(std::env::temp_dir().join(format!("jobtop-journal-{name}-{id}")))
    }

    fn config(&self) -> Config {
        Config {
            journal_file: Some(self.0.join("state/deep/journal.jsonl")),
            ..Config::default()
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // it may not have come to be
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn entry(phase: Phase, action_id: &str) -> Entry {
    let ended = (phase == Phase::Ended).then_some(1);
    Entry {
        format: FORMAT,
        at: "2026-03-01T14:02:11Z".parse().expect("a time"),
        phase,
        action_id: action_id.into(),
        action: "requeue".into(),
        who: "ann".into(),
        db_user: "app".into(),
        host: Some("laptop".into()),
        client_addr: None,
        server: "db.internal:5432".into(),
        database: "prod".into(),
        system: "agent_queue".into(),
        schema: "agent_queue".into(),
        reason: Some("fixed\nthe parser".into()),
        sql: Some("SELECT 1".into()),
        of: Some(9),
        ids: ["1", "2", "3", "4"].map(String::from).to_vec(),
        asked: ended.map(|n| n * 4),
        changed: ended.map(|n| n * 3),
        skipped: ended,
        unknown: ended.map(|_| 0),
        outcomes: BTreeMap::new(),
        error: None,
    }
}

/// A line of an older jobtop, after a transaction on the first so many tasks.
fn old(action_id: &str, ids: usize, changed: u64, skipped: Option<u64>) -> Entry {
    let mut line = entry(Phase::Ended, action_id);
    line.ids.truncate(ids);
    Entry {
        of: None,
        changed: skipped.map(|_| changed),
        skipped,
        unknown: None,
        error: skipped
            .is_none()
            .then(|| "the server does not answer".into()),
        ..line
    }
}

fn all(journal: &Journal) -> Vec<Result<Entry, Broken>> {
    read(journal.path()).expect("a file").collect()
}

#[test]
fn what_is_written_is_read_and_belongs_to_its_owner_only() {
    let here = Here::new("modes");
    let journal = Journal::open(&here.config()).expect("open");
    let entries = [entry(Phase::Begun, "a"), entry(Phase::Ended, "a")];
    for e in &entries {
        journal.append(e).expect("appended");
    }
    let read: Vec<Entry> = all(&journal)
        .into_iter()
        .map(|e| e.expect("read"))
        .collect();
    assert_eq!(read, entries);
    let mode = |path: &Path| {
        let meta = std::fs::metadata(path).expect("there");
        meta.permissions().mode() & 0o777
    };
    assert_eq!(mode(journal.path()), 0o600);
    assert_eq!(mode(journal.path().parent().expect("a directory")), 0o700);
    let text = std::fs::read_to_string(journal.path()).expect("text");
    assert_eq!(text.lines().count(), 2, "one line each, whatever the text");
    assert!(
        text.starts_with(r#"{"format":1,"at":"2026-03-01T14:02:11Z","phase":"begun","#),
        "{text}"
    );
}

#[test]
fn a_torn_line_costs_itself_only() {
    let here = Here::new("torn");
    let journal = Journal::open(&here.config()).expect("open");
    journal.append(&entry(Phase::Begun, "a")).expect("appended");
    let text = std::fs::read(journal.path()).expect("bytes");
    let torn = [&text[..], &text[..text.len() / 2]].concat();
    std::fs::write(journal.path(), torn).expect("written");
    let read = all(&journal);
    assert!(read[0].is_ok());
    let broken = read[1].as_ref().expect_err("torn");
    assert_eq!((broken.line, read.len()), (2, 2));
    assert!(broken.to_string().contains("is torn"), "{broken}");
    journal.append(&entry(Phase::Ended, "a")).expect("appended");
    let read = all(&journal);
    assert_eq!(read.len(), 3);
    assert!(read[1].is_err() && read[2].is_ok(), "{read:?}");
}

#[test]
fn later_fields_are_ignored_and_foreign_lines_named() {
    let here = Here::new("later");
    let journal = Journal::open(&here.config()).expect("open");
    let line = serde_json::to_string(&entry(Phase::Ended, "a")).expect("JSON");
    let later = line.replacen('{', r#"{"mood":{"good":true},"#, 1);
    let text = format!("{later}\n\n[1, 2]\n\u{fffd}\n{line}");
    std::fs::write(journal.path(), text).expect("written");
    let read = all(&journal);
    assert_eq!(read[0], Ok(entry(Phase::Ended, "a")));
    let broken = read[1].as_ref().expect_err("an array");
    assert_eq!(broken.line, 3);
    assert!(broken.to_string().contains("is no entry"), "{broken}");
    assert_eq!(read[2].as_ref().expect_err("no JSON").line, 4);
    assert!(read[3].is_ok(), "a whole last line needs no end");
    assert_eq!(read.len(), 4);
}

#[test]
fn a_file_that_was_moved_away_is_followed_by_a_fresh_one() {
    let here = Here::new("moved");
    let journal = Journal::open(&here.config()).expect("open");
    journal.append(&entry(Phase::Begun, "a")).expect("appended");
    std::fs::rename(journal.path(), here.0.join("old")).expect("moved");
    journal.append(&entry(Phase::Ended, "a")).expect("appended");
    assert_eq!(all(&journal), [Ok(entry(Phase::Ended, "a"))]);
}

#[test]
fn a_place_that_cannot_be_written_is_one_sentence() {
    let config = Config {
        journal_file: Some("/proc/nowhere/journal.jsonl".into()),
        ..Config::default()
    };
    let error = Journal::open(&config).expect_err("refused");
    assert!(format!("{error:#}").contains("/proc/nowhere"), "{error:#}");
}

#[test]
fn two_lines_make_one_action_and_one_line_an_unknown_outcome() {
    let lines = [
        entry(Phase::Begun, "a"),
        entry(Phase::Begun, "b"),
        entry(Phase::Ended, "a"),
        // chunks of one action
        entry(Phase::Begun, "c/1"),
        entry(Phase::Ended, "c/1"),
        entry(Phase::Begun, "c/2"),
        // one that an older jobtop wrote, and what it did not say
        old("d/1", 4, 0, None),
        old("d/2", 2, 1, Some(1)),
    ];
    let actions = pair(lines);
    assert_eq!(actions.len(), 4);
    let notes: Vec<String> = section(&actions)
        .rows
        .iter()
        .map(|r| {
            r.cells
                .iter()
                .map(|c| c.text.as_str())
                .collect::<Vec<_>>()
                .join("|")
        })
        .collect();
    assert_eq!(
        notes,
        [
            "2026-03-01 14:02:11|ann|requeue|9|3|1|0|5|prod @ db.internal:5432|1, 2, 3 and 1 more|fixed\nthe parser|-",
            "2026-03-01 14:02:11|ann|requeue|9|0|0|4|5|prod @ db.internal:5432|1, 2, 3 and 1 more|fixed\nthe parser|outcome unknown: ask operator_actions",
            "2026-03-01 14:02:11|ann|requeue|9|3|1|4|1|prod @ db.internal:5432|1, 2, 3 and 1 more|fixed\nthe parser|outcome unknown: ask operator_actions",
            "2026-03-01 14:02:11|ann|requeue|4|1|1|2|0|prod @ db.internal:5432|1, 2, 3 and 1 more|fixed\nthe parser|the server does not answer",
        ]
    );
}
