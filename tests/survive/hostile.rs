//! What strangers may write into a queue: none of it ends the program, fills its memory or reaches the terminal.

use crate::common::{self, place::Place};
use crate::help::{answers, escape, live, quit, resident_kib, row};
use std::time::Duration;

/// What strangers may write.
const NASTY: &str = "evil\x1b]0;PWNED\x07\u{202e}\x1b[2J\u{200b}\u{9b}31m";

/// Kinds of tasks, each with a tenant of its own: a million by hand (JOBTOP_KINDS=1000000).
fn kinds() -> u32 {
    let asked = std::env::var("JOBTOP_KINDS").ok();
    asked.map_or(200_000, |n| n.parse().expect("a number"))
}

/// A table of jobs as nobody should have it: NULL everywhere, times without end and before Christ, invalid text, hundreds
/// of thousands of kinds, a payload of 100 MB, costs that are no number.
fn hostile(place: &Place) {
    let kinds = kinds();
    place.sql(&format!(
        "CREATE TABLE agent_jobs (id bigserial PRIMARY KEY, payload jsonb, status text, priority int, run_after timestamptz,
           leased_until timestamptz, started_at timestamptz, created_at timestamptz, attempt int, finished_at timestamptz,
           max_attempts int, tenant text, kind text, agent text, failure_reason text, result jsonb);
         INSERT INTO agent_jobs (status) SELECT unnest(ARRAY[NULL, '', 'queued', 'running', 'failed', 'succeeded', 'cancelled', 'what']);
         INSERT INTO agent_jobs (status, run_after, leased_until, started_at, created_at, finished_at, attempt, priority, kind)
         SELECT s, t, t, t, t, t, 2147483647, -2147483648, E'\\xff\\xfe'
           FROM unnest(ARRAY['queued', 'running', 'failed', 'succeeded']) s,
                unnest(ARRAY['infinity', '-infinity', '4713-01-01 00:00 BC', '294276-12-31 00:00']::timestamptz[]) t;
         INSERT INTO agent_jobs (status, kind, tenant, created_at, run_after)
         SELECT 'queued', 'k' || i, 't' || i, now() - interval '1 min', now() - interval '1 min' FROM generate_series(1, {kinds}) i;
         INSERT INTO agent_jobs (status, kind, tenant, agent, failure_reason, created_at, started_at, finished_at, attempt)
         SELECT CASE i % 2 WHEN 0 THEN 'succeeded' ELSE 'failed' END, 'k' || i, 't' || i, 'a' || i, md5(i::text), t - interval '1 min', t - interval '9 s', t, 1
           FROM generate_series(1, {kinds}) i, LATERAL (SELECT now() - interval '400 s' * i / {kinds} AS t) x;
         INSERT INTO agent_jobs (status, kind, created_at, started_at, leased_until, payload)
         SELECT 'running', 'huge', now(), now(), now() - interval '1 h', to_jsonb(repeat('x', 100 << 20));
         UPDATE agent_queue.tasks SET kind = E'\\xff', tenant = E'\\xfe';
         ALTER TABLE agent_queue.usage DROP CONSTRAINT usage_llm_cost_check, DROP CONSTRAINT usage_compute_cost_check;
         INSERT INTO agent_queue.usage (call_id, task_id, attempt, queue, model, input_tokens, output_tokens, llm_cost, compute_cost, reported_at)
         VALUES ('nan', 1, 1, 'parser', 'm', 9223372036854775807, 1, 'NaN', 'NaN', now());"
    ));
    place.sql(&format!(
        "INSERT INTO agent_jobs (status, kind, tenant, failure_reason, created_at, finished_at, started_at, attempt)
         SELECT s, '{NASTY}', '{NASTY}', '{NASTY}', now() - interval '2 min', now() - interval '1 min', now() - interval '2 min', 1
           FROM unnest(ARRAY['failed', 'running', 'queued']) s"
    ));
}

#[test]
fn hostile_data_neither_ends_it_nor_fill_it_nor_reach_the_terminal() {
    let name = format!("hostile_{}", std::process::id());
    let admin = Place::new("hostile_admin");
    admin.sql(&format!(
        "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII'"
    ));
    let mut config = common::cluster().config();
    config.dbname(&name);
    let place = Place::on(common::cluster(), &name, config.clone());
    hostile(&place);
    admin.sql(&format!("CREATE ROLE \"{NASTY}\" LOGIN SUPERUSER"));
    config.user(NASTY).application_name(NASTY);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let stranger = runtime.block_on(common::connect(&config));
    runtime.block_on(async {
        let lock = "BEGIN; SELECT FROM agent_jobs WHERE kind = 'huge' FOR UPDATE";
        stranger.batch_execute(lock).await.expect("locked");
    });
    let file = common::cluster().root().join("budget.toml");
    let budgets = "[[budgets]]\nname = \"nobody\"\nlimit = 0\napplications = [\"*\"]\n";
    std::fs::write(&file, budgets).expect("written");
    let file = file.display().to_string();
    let mut pty = place.watch(&["--config", &file], 160, 45);
    pty.wait("data", |s| {
        live(s) && s.contains("agent_jobs") && s.contains("nobody")
    });
    for pane in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        pty.keys(pane);
        pty.keys("\r");
        std::thread::sleep(Duration::from_millis(400));
        escape(&mut pty);
        answers(&mut pty);
    }
    // the huge one in all its detail: never fetched whole
    pty.keys("6/kind:huge\r");
    pty.wait("the huge one", |s| s.contains("1/"));
    pty.keys("\r");
    pty.wait_text("105 MB");
    escape(&mut pty);
    pty.keys("0");
    let screen = pty.wait("data", |s| s.contains("CONNECTIONS"));
    assert!(!screen.contains("panicked"), "{screen}");
    let mib = resident_kib(pty.pid()) / 1024;
    let said = format!("none of it; {mib} MiB resident");
    let fault = format!("hostile data, {} kinds, 100 MB", kinds());
    row(&fault, &said, "never away", "nothing");
    assert!(mib <= 64, "{mib} MiB");
    quit(&mut pty);
    let bytes = pty.bytes();
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("\x1b]0;"), "a title was set");
    for bad in ['\u{202e}', '\u{200b}', '\u{9b}', '\u{7}'] {
        assert!(!text.contains(bad), "{bad:?} reached the terminal");
    }
    drop(stranger);
    admin.sql(&format!("DROP ROLE \"{NASTY}\""));
}
