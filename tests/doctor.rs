//! `jobtop doctor`: what it says of a sound database, and of faults that were made for real; what it advises to run
//! cures them.

mod common;
#[path = "doctor/pooler.rs"]
mod pooler;

use common::place::Place;
use serde_json::Value;

/// The page as JSON, and the exit code.
fn examined(place: &Place, url: &str, args: &[&str]) -> (i32, Value) {
    let all = [&["doctor", url, "--json"], args].concat();
    let (code, out, err) = place.run(&all);
    let page: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    let n = page["needs_doing"].as_u64().expect("a number");
    match code {
        0 => assert_eq!((n, err.as_str()), (0, "")),
        1 => assert!(n > 0 && err.contains("to do"), "{n} {err}"),
        other => panic!("exit code {other}: {out}{err}"),
    }
    place.wait_no_session();
    (code, page)
}

/// Lines of that name: level, text, what to run.
fn lines(page: &Value, name: &str) -> Vec<(String, String, Vec<String>)> {
    let parts = page["parts"].as_array().expect("parts");
    let all = parts
        .iter()
        .flat_map(|p| p["lines"].as_array().expect("lines"));
    let text = |v: &Value| v.as_str().expect("a text").to_string();
    all.filter(|l| l["name"] == name)
        .map(|l| {
            let run = l["run"].as_array().expect("a list");
            (
                text(&l["level"]),
                text(&l["text"]),
                run.iter().map(text).collect(),
            )
        })
        .collect()
}

fn line(page: &Value, name: &str) -> (String, String, Vec<String>) {
    let found = lines(page, name);
    assert_eq!(found.len(), 1, "{name}: {page:#}");
    found.into_iter().next().expect("one")
}

/// The page as a person reads it, each line in one piece, without what differs from run to run.
fn shown(place: &Place, url: &str) -> String {
    let (_, out, _) = place.run(&["doctor", url]);
    let mut whole: Vec<String> = Vec::new();
    // a right that exists since Postgres 16
    let of_16 = |l: &&str| l.contains("pg_use_reserved_connections");
    for text in out.lines().filter(|l| !of_16(l)) {
        // a statement is not broken where that would change a name in it
        let odd = text.contains("\"Bare Bones\"");
        assert!(odd || text.chars().count() <= 80, "{text}");
        match text.strip_prefix(&" ".repeat(27)) {
            Some(more) => {
                let line = whole.last_mut().expect("a line before");
                line.push(' ');
                line.push_str(more);
            }
            None => whole.push(text.to_string()),
        }
    }
    let differs = [
        "address",
        "server",
        "full server",
        "taken",
        "left",
        "xmin",
        "refresh",
        "slots",
    ];
    let line = |line: String| {
        let name = line.get(15..26).unwrap_or_default().trim().to_string();
        match (
            line.starts_with("jobtop "),
            differs.contains(&name.as_str()),
        ) {
            (true, _) => "jobtop VERSION doctor: PLACE TIME\n".into(),
            (_, true) => format!("  …            {name}\n"),
            _ if line.starts_with("needs doing") => "SUMS\n".into(),
            _ => line + "\n",
        }
    };
    whole.into_iter().map(line).collect()
}

/// A login of that name, and how it connects.
fn login(place: &Place, name: &str, member_of: &str) -> String {
    place.sql(&format!("CREATE ROLE {name} LOGIN"));
    if !member_of.is_empty() {
        place.sql(&format!("GRANT {member_of} TO {name}"));
    }
    place.url.replace("user=postgres", &format!("user={name}"))
}

#[test]
fn a_sound_database_needs_nothing() {
    let place = Place::new("sound");
    let url = login(&place, "sound_monitor", "agent_queue_monitor, pg_monitor");
    let (code, page) = examined(&place, &url, &[]);
    assert_eq!(code, 0, "{page:#}");
    assert_eq!(line(&page, "self-test").0, "ok");
    insta::assert_snapshot!(shown(&place, &url));
}

#[test]
fn what_it_advises_cures_what_it_found() {
    let place = Place::new("faulty");
    place.sql(common::load::HOUSES);
    place.sql(
        "DROP INDEX agent_jobs_claim; DROP INDEX agent_jobs_created;
         INSERT INTO agent_jobs (payload, status, created_at)
         SELECT to_jsonb(repeat('x', 500)), CASE WHEN i % 2 = 0 THEN 'queued' ELSE 'succeeded' END, now() - i * interval '1 s'
           FROM generate_series(1, 10000) i;
         ANALYZE agent_jobs",
    );
    place.sql("ALTER TABLE agent_queue.tasks DISABLE TRIGGER tasks_notify_update");
    let url = login(&place, "\"Bare Bones\"", "").replace("\"Bare Bones\"", "'Bare Bones'");
    // nothing may be read: the rights come first
    let (code, page) = examined(&place, &url, &[]);
    assert_eq!(code, 1);
    let (level, text, run) = line(&page, "sessions");
    assert_eq!(level, "needs_doing", "{text}");
    // one of the roles that it is to have sees them
    assert!(run.is_empty(), "{run:?}");
    let words = "; agent_queue_monitor, below, brings pg_monitor";
    assert!(text.ends_with(words), "{text}");
    let tables = lines(&page, "tables");
    assert_eq!(tables.len(), 3);
    for (level, text, run) in &tables {
        assert_eq!(level, "needs_doing");
        assert!(text.contains("cannot read"), "{text}");
        run.iter().for_each(|sql| place.sql(sql));
    }
    // then what reads whole tables, and what the role may not change
    let (code, page) = examined(&place, &url, &[]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(shown(&place, &url));
    let missing = lines(&page, "missing");
    let claims = missing
        .iter()
        .find(|m| m.0 == "needs_doing")
        .expect("the claim index");
    assert!(claims.1.contains("Seq Scan on agent_jobs"), "{}", claims.1);
    let arrivals = missing
        .iter()
        .find(|m| m.1.contains("newest 5,000"))
        .expect("arrivals");
    assert_eq!(
        arrivals.2,
        ["CREATE INDEX CONCURRENTLY ON \"public\".agent_jobs (\"created_at\");"]
    );
    for (_, _, run) in missing.iter().chain(&lines(&page, "trigger")) {
        run.iter().for_each(|sql| place.sql(sql));
    }
    for (level, text, run) in lines(&page, "actions") {
        assert_eq!((level.as_str(), run.is_empty()), ("note", false), "{text}");
        assert!(text.contains("permission denied"), "{text}");
        run.iter().for_each(|sql| place.sql(sql));
    }
    let (code, page) = examined(&place, &url, &[]);
    assert_eq!(code, 0, "{page:#}");
    for name in ["sessions", "tables", "actions", "indexes", "trigger"] {
        let found = lines(&page, name);
        let fine = |l: &(String, String, Vec<String>)| l.0 == "ok";
        assert!(
            !found.is_empty() && found.iter().all(fine),
            "{name}: {found:?}"
        );
    }
    assert!(
        !lines(&page, "missing")
            .iter()
            .any(|m| m.1.starts_with("agent_jobs"))
    );
}

#[test]
fn what_it_prints_for_an_odd_name_is_for_that_name() {
    let place = Place::new("odd");
    place.sql(common::load::HOUSES);
    place.sql("DROP SCHEMA agent_queue CASCADE");
    let name = "on\ncall \"two\"\u{202e}\u{1b}[2J";
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    let url = login(&place, &quoted, "").replace(&quoted, &format!("'{name}'"));
    let shown = "U&\"on\\000acall \"\"two\"\"\\202e\\001b[2J\"";
    // to read first, then to change
    for (level, wanted) in [(1, "GRANT pg_monitor TO"), (0, "GRANT UPDATE")] {
        let (code, out, err) = place.run(&["doctor", &url]);
        assert_eq!(code, level, "{out}{err}");
        assert!(out.contains(&format!("{shown}, no superuser")), "{out}");
        let run = out.lines().filter_map(|l| l.strip_prefix("      "));
        let run: Vec<&str> = run.filter(|l| !l.starts_with(' ')).collect();
        let run = run.join(" ");
        assert!(run.contains(wanted), "{out}");
        run.split_inclusive(';').for_each(|sql| place.sql(sql));
    }
    let (_, page) = examined(&place, &url, &[]);
    for name in ["sessions", "tables", "^K", "actions"] {
        let found = lines(&page, name);
        assert!(
            !found.is_empty() && found.iter().all(|l| l.0 == "ok"),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn who_must_write_needs_the_rights_to_it() {
    let place = Place::new("operator");
    let url = login(&place, "no_operator", "agent_queue_monitor, pg_monitor");
    let file = std::env::temp_dir().join(format!("jobtop-doctor-{}.toml", std::process::id()));
    std::fs::write(&file, "allow_writes = true\n").expect("written");
    let name = file.display().to_string();
    let (code, page) = examined(&place, &url, &["--config", &name]);
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(code, 1);
    let (level, _, run) = line(&page, "actions");
    assert_eq!(level, "needs_doing");
    assert_eq!(run, ["GRANT \"agent_queue_operator\" TO \"no_operator\";"]);
    place.sql(&run[0]);
    let (code, page) = examined(&place, &url, &[]);
    assert_eq!((code, line(&page, "actions").0.as_str()), (0, "ok"));
}

#[test]
fn without_trigger_or_queue_it_says_what_would_bring_them() {
    let place = Place::new("quiet");
    let (code, _, err) = place.run(&["migrate", &place.url, "--remove-notify"]);
    assert_eq!(code, 0, "{err}");
    let (code, page) = examined(&place, &place.url, &[]);
    assert_eq!(code, 0, "{page:#}");
    let (level, text, run) = line(&page, "trigger");
    assert_eq!(level, "note", "{text}");
    assert_eq!(run, ["jobtop migrate --with-notify --schema agent_queue"]);
    assert!(
        lines(&page, "role")
            .iter()
            .any(|l| l.0 == "note" && l.1.contains("superuser"))
    );
    place.sql("DROP SCHEMA agent_queue CASCADE");
    let (code, page) = examined(&place, &place.url, &[]);
    assert_eq!(code, 1);
    assert_eq!(line(&page, "found").0, "needs_doing");
}

#[test]
fn no_connection_is_one_sentence_and_exit_code_2() {
    let place = Place::new("absent");
    let nobody = place.url.replace("dbname=", "dbname=no_");
    let (code, out, err) = place.run(&["doctor", &nobody]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("does not exist") && err.lines().count() == 1,
        "{err}"
    );
}

#[test]
fn a_pooler_that_drops_the_sessions_settings_is_named() {
    let place = Place::new("pooled");
    let port = pooler::listen(common::cluster());
    let database = place.value("SELECT current_database()");
    let url = format!("postgres://postgres@127.0.0.1:{port}/{database}");
    let (code, page) = examined(&place, &url, &[]);
    // what it takes away is replaced, at a cost
    assert_eq!(code, 0, "{page}");
    let (level, text, _) = line(&page, "pooler");
    assert_eq!(level, "note");
    let own = common::cluster().port();
    for words in [
        "refuses or drops session settings, and keeps a session of the server for us",
        &format!("the server itself listens on port {own}"),
    ] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    assert_eq!(line(&page, "self-test").0, "ok");
    assert_eq!(
        line(&page, "encryption").1,
        "none to a port of this machine; what a tunnel or a proxy there does beyond it is not known here"
    );
}

#[test]
fn forgotten_transactions_and_a_full_server_need_somebody() {
    let settings = [
        ("max_prepared_transactions", "5"),
        ("max_connections", "12"),
    ];
    let cluster = common::own_cluster(&settings);
    let place = Place::on(&cluster, "postgres", cluster.config());
    place.sql("BEGIN; CREATE TABLE half_done (); PREPARE TRANSACTION 'order ''7'''");
    let file = cluster.root().join("doctor.toml");
    std::fs::write(
        &file,
        "[thresholds]\nxmin_held = 0.0\n[[budgets]]\nname = \"agents\"\nlimit = 40\napplications = [\"agent-*\"]\n",
    )
    .expect("written");
    let name = file.display().to_string();
    let url = login(&place, "tight", "agent_queue_monitor, pg_monitor");
    place.sql("ALTER ROLE tight CONNECTION LIMIT 1");
    // three slots are reserved, and jobtop takes one
    let hogs: Vec<_> = (0..8).map(|_| place.client()).collect();
    let (code, page) = examined_among(&place, &url, &name);
    assert_eq!(code, 1);
    let (level, text, run) = line(&page, "prepared");
    assert_eq!(level, "needs_doing", "{text}");
    assert!(
        run[0].starts_with("ROLLBACK PREPARED 'order ''7''';"),
        "{run:?}"
    );
    assert_eq!(line(&page, "left").0, "needs_doing", "{page:#}");
    assert!(
        line(&page, "slots")
            .1
            .starts_with("9 of max_connections 12 are for everyone, 3 reserved")
    );
    assert!(line(&page, "taken").1.contains("(no name) 8"), "{page:#}");
    assert_eq!(line(&page, "budgets").0, "needs_doing");
    let (level, text, _) = line(&page, "limit");
    assert_eq!(level, "needs_doing", "{text}");
    let (level, text, _) = line(&page, "self-test");
    assert_eq!(level, "note");
    assert!(text.contains("too many connections for role"), "{text}");
    drop(hogs);
    place.sql(&run[0]);
    let (_, page) = examined(&place, &place.url, &[]);
    assert_eq!(line(&page, "prepared").0, "ok");
}

/// Without a look afterwards: no slot is free for it.
fn examined_among(place: &Place, url: &str, config: &str) -> (i32, Value) {
    let (code, out, err) = place.run(&["doctor", url, "--json", "--config", config]);
    (
        code,
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}")),
    )
}

/// Lines that need doing: name and text.
fn to_do(page: &Value) -> Vec<(String, String)> {
    let parts = page["parts"].as_array().expect("parts");
    let lines = parts
        .iter()
        .flat_map(|p| p["lines"].as_array().expect("lines"));
    let text = |v: &Value| v.as_str().expect("a text").to_string();
    let all = lines.filter(|l| l["level"] == "needs_doing");
    all.map(|l| (text(&l["name"]), text(&l["text"]))).collect()
}

#[test]
fn one_missing_right_is_one_thing_to_do_and_named() {
    let place = Place::new("one_right");
    place.sql(common::load::HOUSES);
    let url = login(&place, "nearly", "pg_monitor");
    place.sql(
        "GRANT USAGE ON SCHEMA agent_queue TO nearly;
         GRANT SELECT ON agent_queue.tasks, agent_queue.usage, agent_queue.limits, agent_queue.slots, agent_jobs TO nearly",
    );
    let (_, page) = examined(&place, &url, &[]);
    let all = to_do(&page);
    // one of two systems each, and nothing for what follows from it
    assert_eq!(all.len(), 2, "{page:#}");
    let (name, text) = &all[0];
    assert_eq!(name, "tables");
    let words = "agent_queue: cannot read task_attempts, so it has no ";
    assert!(
        text.starts_with(words) && text.contains("finished"),
        "{text}"
    );
    let (name, text) = &all[1];
    assert_eq!(name, "tables");
    assert!(text.contains("cannot read workflow_jobs"), "{text}");
    let run: Vec<String> = lines(&page, "tables")
        .into_iter()
        .flat_map(|l| l.2)
        .collect();
    assert_eq!(
        run,
        [
            "GRANT \"agent_queue_monitor\" TO \"nearly\";",
            "GRANT USAGE ON SCHEMA \"public\" TO \"nearly\";",
            "GRANT SELECT ON \"public\".\"workflow_jobs\" TO \"nearly\";"
        ]
    );
    run.iter().for_each(|sql| place.sql(sql));
    let (code, page) = examined(&place, &url, &[]);
    assert_eq!(code, 0, "{page:#}");
}

#[test]
fn a_table_that_could_not_be_read_is_not_called_empty() {
    let place = Place::new("unread");
    let (client, runtime) = place.client();
    let run = |sql| runtime.block_on(client.batch_execute(sql)).expect(sql);
    run("SET application_name = 'psql'; BEGIN; LOCK agent_queue.tasks IN ACCESS EXCLUSIVE MODE");
    let (code, page) = examined(&place, &place.url, &[]);
    assert_eq!(code, 1, "{page:#}");
    let (level, text, _) = line(&page, "found");
    assert_eq!(level, "note", "{text}");
    for words in [
        "5 tables, read by agent_queue.toml; its queues could not be read: pid ",
        " (psql) holds agent_queue.tasks: ",
        "lock timeout (55P03)",
    ] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    run("ROLLBACK");
    let url = login(&place, "no_reader", "pg_monitor");
    let (_, page) = examined(&place, &url, &[]);
    let (level, text, _) = line(&page, "found");
    assert_eq!(level, "note", "{text}");
    let words = "its queues could not be read: agent_queue (agent_queue): permission denied";
    assert!(text.contains(words), "{text}");
    let (_, page) = examined(&place, &place.url, &[]);
    assert!(
        line(&page, "found").1.contains(": 1 queue with tasks, "),
        "{page:#}"
    );
}

#[test]
fn a_system_that_is_half_there_names_what_is_missing() {
    let place = Place::new("half");
    place.sql(common::load::HOUSES);
    // a table of that name which is none of ours
    place.sql("CREATE SCHEMA todo; CREATE TABLE todo.tasks (id int, status text, priority int, title text)");
    for (change, missing, back) in [
        (
            "ALTER TABLE agent_queue.usage RENAME TO gone",
            "agent_queue in agent_queue is not read, since agent_queue.toml wants what is not there: table usage; restore it",
            "ALTER TABLE agent_queue.gone RENAME TO usage",
        ),
        (
            "ALTER TABLE agent_queue.tasks RENAME TO gone",
            ": table tasks; restore it",
            "ALTER TABLE agent_queue.gone RENAME TO tasks",
        ),
        (
            "ALTER TABLE agent_jobs RENAME leased_until TO gone",
            "agent_jobs in public is not read, since agent_jobs.toml wants what is not there: column leased_until of agent_jobs; restore it",
            "ALTER TABLE agent_jobs RENAME gone TO leased_until",
        ),
    ] {
        place.sql(change);
        let (code, page) = examined(&place, &place.url, &[]);
        assert_eq!(code, 1);
        let all = to_do(&page);
        assert_eq!(all.len(), 1, "{change}: {page:#}");
        let (name, text) = &all[0];
        assert_eq!(name, "half there");
        assert!(text.contains(missing), "{change}: {text}");
        place.sql(back);
    }
    // without its journal nothing is done, and then nothing may be promised
    place.sql("ALTER TABLE agent_queue.operator_actions RENAME TO gone");
    let (_, page) = examined(&place, &place.url, &[]);
    let found = lines(&page, "actions");
    let ours = found.iter().filter(|l| l.1.starts_with("agent_queue: "));
    let ours: Vec<_> = ours.collect();
    assert_eq!(ours.len(), 1, "{found:?}");
    let words = "relation \"agent_queue.operator_actions\" does not exist (42P01)";
    assert!(
        ours[0].1.contains("may not requeue") && ours[0].1.contains(words),
        "{found:?}"
    );
    place.sql("ALTER TABLE agent_queue.gone RENAME TO operator_actions");
    let (code, page) = examined(&place, &place.url, &[]);
    assert_eq!(code, 0, "{page:#}");
    assert!(lines(&page, "half there").is_empty());
}
