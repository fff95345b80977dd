//! Every question before a write, on the smallest usual screen: it is opened, read, refused, opened again, confirmed; then
//! the outcome on the screen and in the database.

mod common;

use common::place::Place;
use common::pty::Pty;

/// A terminal of 80 columns and 24 lines on a queue, and what its tasks were before.
struct Desk {
    place: Place,
    pty: Pty,
}

const TASKS: &str = "SELECT string_agg(concat_ws(' ', status, priority, attempt, max_attempts, lease_token, deferred, cancel_requested_at IS NOT NULL), ';' ORDER BY id)
                       FROM agent_queue.tasks";
const ACTIONS: &str = "SELECT string_agg(concat_ws(' ', action, asked, changed, skipped, reason), ';' ORDER BY at) FROM agent_queue.operator_actions";

impl Desk {
    /// Besides the three tasks of the place: what the SQL adds.
    fn new(hint: &str, sql: &str) -> Self {
        let place = Place::new(hint);
        place.sql(&format!(
            "SET search_path = agent_queue, pg_temp; {sql}; ANALYZE tasks"
        ));
        let pty = place.watch(&["--allow-writes"], 80, 24);
        pty.wait_text("parser");
        Self { place, pty }
    }

    /// The tasks that match a filter, the first under the cursor.
    fn tasks(&mut self, filter: &str, rows: &str) {
        self.pty.keys(&format!("6/{filter}\r"));
        self.pty
            .wait(filter, |s| s.contains(filter) && s.contains(rows));
    }

    /// Opens a question by its keys, looks for words in it, refuses it, and opens it again.
    fn ask(&mut self, keys: &str, title: &str, words: &[&str]) {
        let before = self.place.value(TASKS);
        for again in [false, true] {
            self.pty.keys(keys);
            let screen = self.pty.wait("the question", |s| {
                s.contains(title)
                    && (s.contains("(the default)") || s.contains("or Esc"))
                    && words.iter().all(|w| s.contains(w))
            });
            assert!(!screen.contains("reading the tasks"), "{screen}");
            if !again {
                self.pty.keys("\x1b");
                self.pty.wait_no_text(title);
            }
        }
        assert_eq!(self.place.value(TASKS), before, "nothing was confirmed");
        assert_eq!(self.place.value(ACTIONS), "");
    }

    /// Marks all that match: a list that changes meanwhile takes more than two keys.
    fn all(&mut self) {
        let marks = |screen: &str| -> Option<String> {
            let title = screen.lines().find(|l| l.contains(" TASKS "));
            title
                .and_then(|l| l.split_once('●'))
                .map(|(_, m)| m.to_string())
        };
        for _ in 0..6 {
            let before = marks(&self.pty.screen());
            self.pty.keys("*");
            let after = self.pty.wait("other marks", |s| marks(s) != before);
            if after.contains("all that match") {
                return;
            }
        }
        panic!("they cannot be marked:\n{}", self.pty.screen());
    }

    /// Confirms, and waits for the outcome.
    fn confirm(&mut self, keys: &str, told: &str) {
        self.pty.keys(keys);
        self.pty.wait_text(told);
    }

    /// What the tables say now.
    fn left(mut self, tasks: &str, actions: &str) {
        assert_eq!(self.place.value(TASKS), tasks);
        assert_eq!(self.place.value(ACTIONS), actions);
        self.pty.keys("q");
        assert_eq!(self.pty.exit_code(), 0);
        self.place.wait_no_session();
    }
}

const FAILED: &str = "failed 0 1 1 1 f f";
const RUNNING: &str = "processing 0 1 1 1 f f";
const READY: &str = "enqueued 0 0 1 0 f f";

#[test]
fn requeue() {
    let mut desk = Desk::new("dialog_requeue", "");
    desk.tasks("state:failed", "1/");
    desk.ask(
        "R",
        "Requeue 1 task?",
        &["1 of 1 tries used", "try 2 of 2", "y yes"],
    );
    desk.confirm("y", "asked 1, 1 changed");
    let requeued = "enqueued 0 1 2 2 f f";
    desk.left(&format!("{requeued};{RUNNING};{READY}"), "requeue 1 1 0");
}

#[test]
fn requeue_afresh() {
    let mut desk = Desk::new("dialog_fresh", "");
    desk.tasks("state:failed", "1/");
    let title = "Requeue 1 task with new tries?";
    desk.ask(":requeue full\r", title, &["it gets a full new set"]);
    desk.confirm("y", "requeue afresh: asked 1, 1 changed");
    let before = "SELECT attempts_before FROM agent_queue.tasks WHERE id = 1";
    assert_eq!(desk.place.value(before), "1");
    let requeued = "enqueued 0 1 2 2 f f";
    desk.left(
        &format!("{requeued};{RUNNING};{READY}"),
        "requeue_fresh 1 1 0",
    );
}

#[test]
fn cancel_of_one_that_runs() {
    let mut desk = Desk::new("dialog_cancel_run", "");
    desk.tasks("state:running", "1/");
    let words = ["the worker is asked to stop", "w2", "lease left", "type 1"];
    desk.ask("X", "Cancel 1 task?", &words);
    desk.confirm("y\r", "type 1 to confirm");
    desk.confirm("1\r", "asked 1, 1 requested");
    desk.left(
        &format!("{FAILED};processing 0 1 1 1 f t;{READY}"),
        "cancel 1 1 0",
    );
}

#[test]
fn cancel_of_one_that_waits() {
    let mut desk = Desk::new("dialog_cancel_wait", "");
    desk.tasks("state:ready", "1/");
    desk.ask(
        "X",
        "Cancel 1 task?",
        &["1 not running: called off at once", "y yes"],
    );
    desk.confirm("y", "asked 1, 1 changed");
    desk.left(
        &format!("{FAILED};{RUNNING};cancelled 0 0 1 0 f t"),
        "cancel 1 1 0",
    );
}

#[test]
fn release() {
    let lapsed = "UPDATE tasks SET lease_expires_at = now() - interval '1 min', max_attempts = 2 WHERE id = 2";
    let mut desk = Desk::new("dialog_release", lapsed);
    desk.pty.wait_no_text("nothing to release");
    desk.ask(
        "E",
        "Release 1 task?",
        &["worker is not stopped", "w2", "lease over for", "y yes"],
    );
    desk.confirm("y", "release: asked 1, 1 changed");
    desk.left(
        &format!("{FAILED};enqueued 0 1 2 2 t f;{READY}"),
        "release 1 1 0",
    );
}

#[test]
fn run_now() {
    let later = "UPDATE tasks SET run_after = now() + interval '1 h', deferred = true WHERE id = 3";
    let mut desk = Desk::new("dialog_run_now", later);
    // it is not listed: on the server it matches
    desk.tasks("state:scheduled", "0/");
    desk.confirm("*", "all that match");
    desk.ask(":run now\r", "Run 1 task now?", &["due at once", "y yes"]);
    desk.confirm("y", "run now: asked 1, 1 changed");
    desk.left(&format!("{FAILED};{RUNNING};{READY}"), "run_now 1 1 0");
}

#[test]
fn priority() {
    let mut desk = Desk::new("dialog_priority", "");
    desk.tasks("state:ready", "1/");
    let field = "Change the priority";
    desk.ask(":change priority\r", field, &[]);
    desk.confirm("high\r", "type a whole number");
    desk.confirm("7\r", "Give 1 task priority 7?");
    desk.confirm("\x1b", "state:ready");
    desk.pty.wait_no_text("Give 1 task priority 7?");
    assert_eq!(desk.place.value(ACTIONS), "");
    desk.confirm(":change priority\r", field);
    desk.confirm("7\r", "Give 1 task priority 7?");
    desk.pty.wait_text("nothing that runs is touched");
    desk.confirm("y", "priority: asked 1, 1 changed");
    desk.left(
        &format!("{FAILED};{RUNNING};enqueued 7 0 1 0 f f"),
        "priority 7 1 1 0",
    );
}

#[test]
fn park_and_unpark() {
    let mut desk = Desk::new("dialog_park", "");
    desk.tasks("state:ready", "1/");
    desk.ask(
        ":park nobody\r",
        "Park 1 task?",
        &["Nobody claims it until unparked", "y yes"],
    );
    desk.confirm("y", "park: asked 1, 1 changed");
    let parked = format!("{FAILED};{RUNNING};parked 0 0 1 0 f f");
    assert_eq!(desk.place.value(TASKS), parked);
    desk.pty.keys("/\x15state:other\r");
    desk.pty.wait("no parked one listed", |s| {
        s.contains("state:other") && s.contains("0/")
    });
    desk.confirm("*", "all that match");
    // refused once, too
    for again in [false, true] {
        desk.confirm(":unpark\r", "Unpark 1 task?");
        desk.pty.wait_text("It becomes claimable again");
        if !again {
            desk.pty.keys("\x1b");
            desk.pty.wait_no_text("Unpark 1 task?");
        }
    }
    assert_eq!(desk.place.value(TASKS), parked);
    desk.confirm("y", "unpark: asked 1, 1 changed");
    desk.left(
        &format!("{FAILED};{RUNNING};{READY}"),
        "park 1 1 0;unpark 1 1 0",
    );
}

#[test]
fn a_group_of_failures() {
    let sql = "INSERT INTO tasks (queue, kind, status, finished_at, attempt, last_error)
               SELECT 'parser', 'llm', 'failed', now(), 5, 'TimeoutError: no answer within ' || n || ' s' FROM generate_series(1, 12) n";
    let mut desk = Desk::new("dialog_group", sql);
    desk.pty.keys("8");
    let screen = desk.pty.wait_text("TimeoutError: no answer within # s");
    assert!(screen.contains("ValueError: bad page"), "{screen}");
    desk.ask(
        "R",
        "Requeue 12 tasks?",
        &[
            "12 failed",
            "used all tries and get one more",
            "why (for the journal)",
        ],
    );
    desk.confirm("the model answers again\r", "type 12");
    desk.confirm("12\r", "12  changed");
    desk.pty.wait_text("any key closes this");
    desk.confirm(" ", "ValueError: bad page");
    let rest = ["enqueued 0 5 6 1 f f"; 12].join(";");
    desk.left(
        &format!("{FAILED};{RUNNING};{READY};{rest}"),
        "requeue 12 12 0 the model answers again",
    );
}

/// So many failed tasks of a kind that is not shown whole, and one of another that must stay.
fn many(hint: &str, tasks: u32) -> Desk {
    let sql = format!(
        "INSERT INTO tasks (queue, kind, status, finished_at, attempt) SELECT 'parser', 'bulk', 'failed', now(), 1 FROM generate_series(1, {tasks})"
    );
    let mut desk = Desk::new(hint, &sql);
    desk.tasks("kind:bulk system:agent_queue", "/");
    desk.all();
    desk
}

const BULK: &str = "SELECT string_agg(n, ', ') FROM (SELECT status || ' ' || count(*) AS n FROM agent_queue.tasks WHERE kind = 'bulk' GROUP BY status ORDER BY 1) x";
const SUMS: &str = "SELECT concat_ws(' ', sum(changed), bool_and(reason = 'deployed the fix')) FROM agent_queue.operator_actions";
const CHUNKS: &str = "SELECT count(*) FROM agent_queue.operator_actions";

#[test]
fn all_that_match() {
    let mut desk = many("dialog_all", 230);
    desk.ask(
        "R",
        "Requeue 230 tasks?",
        &["230 failed", "and 224 more", "why (for the journal)"],
    );
    desk.confirm("\r", "type why");
    desk.confirm("deployed the fix\r", "type 230");
    desk.confirm("229\r", "type 230 to confirm");
    desk.confirm("230\r", "230  changed");
    let report = desk.pty.wait_text("any key closes this");
    assert!(report.contains("230  asked"), "{report}");
    assert_eq!(desk.place.value(BULK), "enqueued 230");
    assert_eq!(desk.place.value(SUMS), "230 t");
    assert_eq!(desk.place.value(CHUNKS), "3");
    let other = "SELECT status FROM agent_queue.tasks WHERE id = 1";
    assert_eq!(desk.place.value(other), "failed", "it does not match");
    desk.pty.keys(" ");
    desk.pty.wait_no_text("any key closes this");
    desk.pty.keys("q");
    assert_eq!(desk.pty.exit_code(), 0);
}

#[test]
fn progress_stop_and_report() {
    let mut desk = many("dialog_stop", 5_000);
    desk.ask("R", "Requeue 5,000 tasks?", &["why (for the journal)"]);
    desk.confirm("deployed the fix\r", "type 5000");
    desk.confirm("5000\r", "00 of 5,000 done");
    desk.pty.wait("how far it is", |s| {
        s.contains("stop after this chunk") && s.contains(" left")
    });
    // hidden, it goes on; nothing else can be begun
    desk.pty.keys("\x1b");
    desk.pty.wait_no_text("stop after this chunk");
    desk.confirm("X", "an action is under way");
    desk.confirm("A", "stopped on");
    let changed = desk.place.value(
        "SELECT count(*) FROM agent_queue.tasks WHERE kind = 'bulk' AND status = 'enqueued'",
    );
    let n: u64 = changed.parse().expect("a count");
    assert!(n > 0 && n < 5_000, "{n}");
    assert_eq!(desk.place.value(SUMS), format!("{n} t"));
    // again, and stopped in its dialog: the report stands there
    desk.all();
    desk.confirm("R", "why (for the journal)");
    desk.confirm("deployed the fix\r", &format!("type {}", 5_000 - n));
    desk.confirm(&format!("{}\r", 5_000 - n), "00 of ");
    desk.pty.keys("A");
    let report = desk.pty.wait_text("any key closes this");
    let after = desk.place.value(
        "SELECT count(*) FROM agent_queue.tasks WHERE kind = 'bulk' AND status = 'enqueued'",
    );
    let after: u64 = after.parse().expect("a count");
    let figure = |words: &str| -> u64 {
        let line = report.lines().find(|l| l.contains(words));
        let line = line.unwrap_or_else(|| panic!("no {words} in {report}"));
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        digits.parse().expect("a figure")
    };
    assert_eq!(figure("  asked"), 5_000 - n);
    assert_eq!(figure("  changed"), after - n);
    assert_eq!(figure("  not reached"), 5_000 - after);
    assert_eq!(desk.place.value(SUMS), format!("{after} t"));
    desk.pty.keys(" ");
    desk.pty.wait_no_text("any key closes this");
    desk.pty.keys("q");
    assert_eq!(desk.pty.exit_code(), 0);
}
