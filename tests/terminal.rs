//! The real binary in a real terminal: it starts, survives what terminals do, and leaves a usable shell and no
//! session behind, however it ends.

mod common;

use common::place::Place;
use common::pty::Pty;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

fn assert_usable(pty: &Pty) {
    assert!(!pty.alternate(), "the alternate screen is left");
    assert!(!pty.cursor_hidden(), "the cursor is back");
    assert!(pty.cooked(), "the terminal echoes and edits lines");
}

#[test]
fn it_starts_and_quits() {
    let place = Place::new("quits");
    for (columns, rows) in [(80, 24), (160, 45)] {
        let mut pty = place.watch(&[], columns, rows);
        pty.wait_text("parser");
        assert!(pty.alternate());
        place.wait_sessions("1");
        pty.keys("q");
        assert_eq!(pty.exit_code(), 0);
        assert_usable(&pty);
        place.wait_no_session();
    }
}

#[test]
fn signals_give_the_terminal_back() {
    let place = Place::new("signals");
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGINT, 130),
        (Signal::SIGQUIT, 131),
        (Signal::SIGUSR1, 138),
        (Signal::SIGHUP, 129),
    ] {
        let mut pty = place.watch(&[], 100, 30);
        pty.wait_text("parser");
        pty.signal(signal);
        assert_eq!(pty.exit_code(), code, "{signal}");
        if signal != Signal::SIGHUP {
            pty.wait_text(&format!("jobtop: stopped by {signal}"));
        }
        assert_usable(&pty);
        place.wait_no_session();
    }
}

#[test]
fn a_dropped_line_ends_it() {
    let place = Place::new("hangup");
    let mut pty = place.watch(&[], 100, 30);
    pty.wait_text("parser");
    pty.hang_up();
    pty.exit_code();
    place.wait_no_session();
}

#[test]
fn ctrl_z_closes_the_session_and_fg_brings_it_back() {
    let place = Place::new("stopped");
    let mut pty = place.watch(&[], 100, 30);
    pty.wait_text("parser");
    pty.keys("\x1a");
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pty.pid())).expect("a process");
        if stat
            .rsplit(')')
            .next()
            .is_some_and(|s| s.trim_start().starts_with('T'))
        {
            break;
        }
        assert!(Instant::now() < end, "it does not stop: {stat}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // it has stopped, but what it wrote last may not have been read yet
    while pty.alternate() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_usable(&pty);
    assert_eq!(place.sessions(), "0", "a stopped program holds no session");
    pty.signal(Signal::SIGCONT);
    pty.wait("the screen again", |screen| {
        screen.contains("parser") && screen.contains("LIVE")
    });
    assert!(pty.alternate());
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn any_size_is_survived() {
    let place = Place::new("sizes");
    let mut pty = place.watch(&["--interval", "0.5"], 160, 45);
    pty.wait_text("parser");
    for (columns, rows) in [
        (1, 1),
        (59, 16),
        (60, 15),
        (200, 60),
        (2, 50),
        (200, 2),
        (80, 24),
    ] {
        pty.resize(columns, rows);
        std::thread::sleep(Duration::from_millis(30));
    }
    pty.wait_text("parser");
    pty.resize(40, 10);
    pty.wait_text("needs 60x16");
    pty.resize(160, 45);
    pty.wait("the overview", |s| {
        s.contains("STAGES") && s.contains("TASKS")
    });
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn pasted_text_never_becomes_keys() {
    let place = Place::new("paste");
    let mut pty = place.watch(&["--allow-writes"], 100, 30);
    pty.wait_text("parser");
    pty.keys("\x1b[200~qX\x03y1\r\n\x1b[201~");
    std::thread::sleep(Duration::from_millis(300));
    pty.keys("6/");
    pty.keys("\x1b[200~val\u{202e}ue\x1b[2J\x1b[201~");
    let screen = pty.wait_text("value[2J");
    assert!(!screen.contains('\u{202e}'));
    assert_eq!(
        place.value("SELECT count(*) FROM agent_queue.operator_actions"),
        "0"
    );
    pty.keys("\r");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn the_palette_finds_runs_and_takes_pasted_text_as_text() {
    let place = Place::new("palette");
    let mut pty = place.watch(&["--allow-writes"], 100, 30);
    pty.wait_text("parser");
    pty.keys(":");
    pty.wait_text("every action, to choose from");
    pty.keys("\x1b[200~qX\x03y1\r\nva\u{202e}l\x1b[2J\x1b[201~");
    let screen = pty.wait_text("qXy1  val[2J");
    assert!(screen.contains("no action matches"), "{screen}");
    pty.keys("\x1b");
    pty.wait_no_text("no action matches");
    // by name, without its key
    pty.keys(":write risk:asks reque");
    pty.wait_text("1/");
    pty.keys("\x15findings pressed");
    pty.wait_text("1/");
    pty.keys("\r");
    pty.wait("the findings whole", |s| {
        !s.contains("findings pressed") && !s.contains("STAGES")
    });
    assert_eq!(
        place.value("SELECT count(*) FROM agent_queue.operator_actions"),
        "0"
    );
    // a write is asked for, in the same dialog as by its key
    pty.keys("6/state:failed\r");
    pty.wait_text("1/");
    pty.keys(":requeue\r");
    pty.wait_text("Requeue 1 task?");
    pty.keys("y");
    pty.wait_text("asked 1, 1 changed");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn requeue_changes_the_row_and_writes_the_journal() {
    let place = Place::new("requeue");
    let mut pty = place.watch(&["--allow-writes"], 160, 45);
    pty.wait_text("parser");
    pty.keys("6/");
    pty.keys("state:failed\r");
    pty.wait_text("1/");
    pty.keys("R");
    let dialog = pty.wait_text("Requeue 1 task?");
    assert!(
        dialog.contains("requeue") || dialog.contains("claimable"),
        "{dialog}"
    );
    assert_eq!(
        place.value("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'jobtop%' AND xact_start IS NOT NULL AND state LIKE 'idle in%'"),
        "0",
        "no transaction is open while a person thinks"
    );
    pty.keys("y");
    pty.wait_text("asked 1, 1 changed");
    assert_eq!(
        place.value("SELECT string_agg(status, ',' ORDER BY id) FROM agent_queue.tasks"),
        "enqueued,processing,enqueued"
    );
    assert_eq!(
        place.value("SELECT concat_ws(' ', action, asked, changed, skipped, ids) FROM agent_queue.operator_actions"),
        "requeue 1 1 0 {1}"
    );
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    place.wait_no_session();
}

#[test]
fn cancel_of_a_running_task_is_a_request_and_must_be_typed() {
    let place = Place::new("cancel");
    let mut pty = place.watch(&["--allow-writes"], 160, 45);
    pty.wait_text("parser");
    pty.keys("6/");
    pty.keys("state:running\r");
    pty.wait_text("1/");
    pty.keys("X");
    pty.wait_text("Cancel 1 task?");
    pty.keys("y\r");
    pty.wait_text("type 1 to confirm");
    assert_eq!(
        place.value("SELECT count(*) FROM agent_queue.tasks WHERE cancel_requested_at IS NOT NULL"),
        "0"
    );
    pty.keys("1\r");
    pty.wait_text("asked 1, 1 requested");
    assert_eq!(
        place.value("SELECT status || ' ' || (cancel_requested_at IS NOT NULL) FROM agent_queue.tasks WHERE locked_by = 'w2'"),
        "processing true"
    );
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn without_allow_writes_the_keys_say_why_not() {
    let place = Place::new("readonly");
    let mut pty = place.watch(&[], 160, 45);
    pty.wait_text("parser");
    pty.keys("6R");
    pty.wait_text("requeue is off: read-only");
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    assert_eq!(
        place.value("SELECT count(*) FROM agent_queue.operator_actions"),
        "0"
    );
}

#[test]
fn hostile_text_never_reaches_the_terminal() {
    let place = Place::new("hostile");
    place.sql(
        r"SELECT agent_queue.enqueue('parser', E'evil\x1b]0;PWNED\x07\u202e\x1b[2Jkind', agent => E'\x1b]52;c;UFdORUQ=\x07');",
    );
    let mut pty = place.watch(&[], 160, 45);
    pty.wait_text("evil");
    for key in ["6", "\r", "\x1b", "3", "i"] {
        pty.keys(key);
        std::thread::sleep(Duration::from_millis(150));
    }
    pty.keys("q");
    pty.keys("q");
    pty.exit_code();
    // the report that `i` wrote
    for file in std::fs::read_dir(std::env::temp_dir())
        .expect("a directory")
        .flatten()
    {
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with("jobtop-") && name.ends_with("-report.txt") {
            std::fs::remove_file(file.path()).expect("removed");
        }
    }
    let bytes = pty.bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("\x1b]0;"), "a title was set");
    assert!(!text.contains("UFdORUQ="), "somebody else's clipboard text");
    assert!(!text.contains('\u{202e}'), "a bidi override");
}

#[test]
fn no_color_uses_no_colour_and_ascii_no_other_letters() {
    let place = Place::new("plain");
    let command = [env!("CARGO_BIN_EXE_jobtop"), place.url.as_str(), "--ascii"];
    let mut pty = Pty::start(&command, 160, 45, &[("NO_COLOR", "1")]);
    pty.wait_text("parser");
    let screen = pty.screen();
    assert!(screen.is_ascii(), "{screen}");
    pty.keys("q");
    pty.exit_code();
    let bytes = pty.bytes();
    let text = String::from_utf8_lossy(&bytes);
    let coloured = text.split('\x1b').filter(|s| s.starts_with('[')).find(|s| {
        let code: String = s[1..]
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == ';')
            .collect();
        let is_sgr = s[1 + code.len()..].starts_with('m');
        is_sgr
            && code
                .split(';')
                .any(|n| matches!(n.parse(), Ok(30..=38 | 40..=48 | 90..=97 | 100..=107)))
    });
    assert_eq!(coloured, None);
}

#[test]
fn a_terminal_that_cannot_draw_is_told_what_to_use() {
    let place = Place::new("dumb");
    let command = [env!("CARGO_BIN_EXE_jobtop"), place.url.as_str()];
    let mut pty = Pty::start(&command, 80, 24, &[("TERM", "dumb")]);
    assert_eq!(pty.exit_code(), 2);
    pty.wait_text("--once");
    let output = std::process::Command::new(command[0])
        .arg(command[1])
        .output()
        .expect("ran");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--once"));
}

/// Run by the test below, in a terminal: it takes the terminal and panics.
#[test]
#[ignore = "a stand-in that another test runs"]
fn panics_in_a_terminal() {
    jobtop::term::install_panic_hook();
    let _tui = jobtop::term::Tui::enter(false).expect("a terminal");
    panic!("as it must not happen");
}

#[test]
fn a_panic_gives_the_terminal_back_first() {
    let me = std::env::current_exe().expect("this test");
    let me = me.to_string_lossy().into_owned();
    let command = [
        me.as_str(),
        "--ignored",
        "--exact",
        "panics_in_a_terminal",
        "--nocapture",
    ];
    let mut pty = Pty::start(&command, 100, 30, &[]);
    assert_eq!(pty.exit_code(), 101);
    pty.wait_text("as it must not happen");
    assert_usable(&pty);
}
