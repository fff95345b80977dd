//! The binary: its flags, and that it keeps passwords to itself.

use crate::common::pty::Pty;
use crate::server::{Server, jobtop, server};
use nix::sys::signal::Signal;
use std::process::Output;

fn both(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn the_flags_are_psqls() {
    let server = server();
    let port = server.port.to_string();
    let socket = server.socket();
    let all = [
        "-h", &socket, "-p", &port, "-U", "anybody", "-d", "app", "-w",
    ];
    for args in [
        [&["grants"], all.as_slice()].concat(),
        [&["tasks"], all.as_slice()].concat(),
        [&["requeue", "1", "--dry-run"], all.as_slice()].concat(),
        [all.as_slice(), &["--once"]].concat(),
    ] {
        let text = both(&jobtop(server, &args, &[]));
        // there is a database, and nothing in it
        assert!(text.contains("queue"), "{args:?}: {text}");
        assert!(!text.contains("no connection"), "{args:?}: {text}");
    }
    let page = both(&jobtop(
        server,
        &[
            "doctor",
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "anybody",
            "-d",
            "app",
            "-w",
        ],
        &[],
    ));
    let words: Vec<&str> = page.split_whitespace().collect();
    let page = words.join(" ");
    assert!(
        page.contains(&format!("127.0.0.1, port {port}, as anybody")),
        "{page}"
    );
    assert!(page.contains("pooler none noticed"), "{page}");
    let output = jobtop(
        server,
        &[
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "anybody",
            "-d",
            "app",
            "--once",
            "--json",
        ],
        &[],
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["server"]["host"], "127.0.0.1");
    assert!(json["server"]["tls"].is_string());
    for (args, part) in [
        (vec!["-h"], "Usage"),
        (vec!["tasks", "-h"], "Usage"),
        (vec!["-?"], "Usage"),
        (vec!["reqeue"], "neither a command nor a URL"),
        (
            vec!["-h", "/nonexistent", "--check"],
            "no connection to /nonexistent:5432: nothing listens there: No such file or directory (os error 2): does the server run",
        ),
        (
            vec!["postgres://h/d", "-d", "x", "--once"],
            "cannot be used with",
        ),
        (vec!["-w", "-W", "--once"], "cannot be used with"),
        (
            vec!["-W", "--once"],
            "no terminal to ask for the password on",
        ),
    ] {
        let text = both(&jobtop(server, &args, &[]));
        assert!(text.contains(part), "{args:?}: {text}");
    }
}

#[test]
fn a_password_never_leaves_it() {
    let server = server();
    let p = server.port;
    let url = format!("postgres://scram:s3cret%3A%5C@127.0.0.1:{p}/app");
    let output = jobtop(server, &["tasks", &url], &[]);
    let text = both(&output);
    assert!(text.contains("no queue found"), "{text}");
    let warning = "a password on the command line can be seen by everybody on this machine";
    assert_eq!(text.matches(warning).count(), 1, "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    let wrong = format!("postgres://scram:s3cret@127.0.0.1:{p}/app");
    let broken = format!("postgres://scram:s3cret@127.0.0.1:{p}x/app");
    let given = [("PGPASSWORD", "s3cret")];
    let plain = format!("postgres://scram@127.0.0.1:{p}/app");
    for (args, env) in [
        (vec!["tasks", wrong.as_str()], &[][..]),
        (vec![wrong.as_str(), "--once", "--json"], &[]),
        (vec!["requeue", "1", "-d", &wrong, "--dry-run"], &[]),
        (vec!["tasks", broken.as_str()], &[]),
        (vec!["tasks", plain.as_str()], &given),
        (
            vec!["tasks", plain.as_str(), "--password-command", "echo s3cret"],
            &[],
        ),
        (vec!["config", &wrong], &[]),
    ] {
        let output = jobtop(server, &args, env);
        let text = both(&output);
        assert!(!text.contains("s3cret"), "{args:?}: {text}");
        if args[0] != "config" {
            assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        }
        assert_eq!(
            text.contains(warning),
            args.concat().contains(":s3cret@")
                && args[0] != "config"
                && !args.concat().contains("x/app"),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn a_password_file_that_others_can_read_is_ignored_aloud() {
    use std::os::unix::fs::PermissionsExt;
    let server = server();
    let file = server.directory("open-pass").join("pass");
    std::fs::write(&file, "*:*:*:*:s3cret:\\\\").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("set");
    let url = format!("postgres://scram@127.0.0.1:{}/app", server.port);
    let path = file.display().to_string();
    let text = both(&jobtop(server, &["tasks", &url], &[("PGPASSFILE", &path)]));
    assert!(
        text.contains("is ignored: group or others may use it; chmod 0600 it"),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn the_configuration_file_may_name_the_command() {
    let server = server();
    let file = server.directory("config").join("config.toml");
    std::fs::write(&file, "password_command = \"printf %s 's3cret:\\\\'\"\n").expect("written");
    let url = format!("postgres://scram@127.0.0.1:{}/app", server.port);
    let path = file.display().to_string();
    let text = both(&jobtop(server, &["tasks", &url, "--config", &path], &[]));
    assert!(
        text.contains("no queue found") && !text.contains("s3cret"),
        "{text}"
    );
    let flag = [
        "tasks",
        &url,
        "--config",
        &path,
        "--password-command",
        "echo oops >&2; exit 4",
    ];
    let text = both(&jobtop(server, &flag, &[]));
    assert!(
        text.contains("the password command failed with exit code 4: oops"),
        "{text}"
    );
}

/// A command in a terminal, without passwords of the machine's own.
fn terminal(server: &Server, command: &[&str]) -> Pty {
    let home = server.home.display().to_string();
    let env = [
        ("HOME", home.as_str()),
        ("PGPASSFILE", "/nonexistent"),
        ("PS1", "$ "),
    ];
    Pty::start(command, 100, 30, &env)
}

const JOBTOP: &str = env!("CARGO_BIN_EXE_jobtop");

/// Everything that was written.
fn written(pty: &Pty) -> String {
    String::from_utf8_lossy(&pty.bytes()).into_owned()
}

/// Waits until the terminal does, or does not, show what is typed.
fn wait_echo(pty: &Pty, wanted: bool) {
    pty.wait("change of the echo", |_| pty.cooked() == wanted);
}

#[test]
fn it_asks_at_once_where_that_is_wanted() {
    let server = server();
    let url = format!("postgres://scram@127.0.0.1:{}/app", server.port);
    let mut pty = terminal(server, &[JOBTOP, "-W", &url]);
    pty.wait_text("Password: ");
    pty.keys("wrong\x15s3cret:\\\r");
    pty.wait_text("app@127.0.0.1");
    let bytes = written(&pty);
    assert!(
        !bytes.contains("s3cret") && !bytes.contains("wrong"),
        "{bytes}"
    );
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    assert!(pty.cooked());
    let mut pty = terminal(server, &[JOBTOP, "-W", &url]);
    pty.wait_text("Password: ");
    pty.keys("\x04");
    pty.wait_text("no password was given");
    assert_eq!(pty.exit_code(), 2);
    assert!(pty.cooked());
}

#[test]
fn it_asks_where_the_server_does_and_nothing_is_known() {
    let server = server();
    let p = server.port;
    let url = format!("postgres://scram@127.0.0.1:{p}/app?application_name=asked");
    let question = "Password for user scram: ";
    // before the screen, once, and never again: what lost its session comes back by itself
    let mut pty = terminal(server, &[JOBTOP, &url]);
    pty.wait_text(question);
    assert!(!pty.alternate() && !pty.cooked());
    pty.keys("s3cret:\\\r");
    pty.wait_text("app@127.0.0.1");
    let own = "SELECT pid FROM pg_stat_activity WHERE application_name = 'asked'";
    let pids = || server.value(&format!("SELECT string_agg(pid::text, ',') FROM ({own}) s"));
    let before = pids();
    assert!(
        !before.is_empty() && !before.contains(','),
        "one session: {before}"
    );
    server.value(&format!("SELECT pg_terminate_backend({before})"));
    pty.wait("new session", |_| {
        let now = pids();
        !now.is_empty() && now != before
    });
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    assert_eq!(written(&pty).matches(question).count(), 1);
    assert!(pty.cooked() && !written(&pty).contains("s3cret"));
    // whatever connects, also with several hosts
    let hosts = format!("host=127.0.0.1,127.0.0.1 port=1,{p} user=scram dbname=app");
    let elsewhere = format!("'{JOBTOP}' '{url}' --once < /dev/null > /dev/null && echo fine");
    for (command, end) in [
        (vec![JOBTOP, "tasks", &url], "no queue found"),
        (vec![JOBTOP, "tasks", &hosts], "no queue found"),
        (
            vec![JOBTOP, "grants", &url],
            "no such queue in this database",
        ),
        (vec![JOBTOP, "doctor", &url], "CONNECTION"),
        (vec![JOBTOP, &url, "--once"], "queue"),
        (
            vec![JOBTOP, "requeue", "1", "--dry-run", "-d", &url],
            "no queue found",
        ),
        (vec![JOBTOP, "migrate", &url], "may not create the schema"),
        (vec![JOBTOP, "seed", &url], "no reference queue"),
        (vec!["/bin/sh", "-c", &elsewhere], "fine"),
    ] {
        let mut pty = terminal(server, &command);
        pty.wait_text(question);
        pty.keys("s3cret:\\\r");
        pty.exit_code();
        pty.wait_text(end);
        let text = written(&pty);
        assert_eq!(text.matches(question).count(), 1, "{command:?}: {text}");
        assert!(!text.contains("no connection"), "{command:?}: {text}");
    }
    // a wrong answer is not asked for again, nor is none; and -w asks nothing
    for (more, keys, words) in [
        ("-U", "wr0ng\r", "password authentication failed"),
        ("-U", "\r", "password missing: give one by"),
        ("-w", "", "password missing: give one by"),
    ] {
        for screen in ["--once", "--color=16"] {
            let place = format!("host=127.0.0.1 port={p} dbname=app user=scram");
            let user = if more == "-U" { "-Uscram" } else { more };
            let mut pty = terminal(server, &[JOBTOP, &place, user, screen]);
            if !keys.is_empty() {
                pty.wait_text(question);
                pty.keys(keys);
            }
            assert_eq!(pty.exit_code(), 2, "{more} {screen}");
            let text = pty.wait_text(words);
            let asked = usize::from(!keys.is_empty());
            assert_eq!(text.matches("Password").count(), asked, "{text}");
            assert!(pty.cooked() && !written(&pty).contains("wr0ng"));
        }
    }
    // without a terminal nobody can be asked
    let text = both(&jobtop(server, &["tasks", &url], &[]));
    assert!(text.contains("password missing: give one by"), "{text}");
    // who needs no password is not asked
    let mut pty = terminal(server, &[JOBTOP, "tasks", &url.replace("scram", "anybody")]);
    pty.exit_code();
    assert!(!pty.wait_text("no queue found").contains("Password"));
}

/// A way to the server that at first says it is starting.
fn starting(port: u16) -> u16 {
    use std::io::{Read, Write, copy};
    use std::net::{TcpListener, TcpStream};
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let own = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let fields = b"SFATAL\0C57P03\0Mthe database system is starting up\0\0";
        let length = (fields.len() as u32 + 4).to_be_bytes();
        let error = [b"E", length.as_slice(), fields].concat();
        // once before the screen, twice behind it
        for _ in 0..3 {
            let (mut client, _) = listener.accept().expect("a client");
            let n = client.read(&mut [0; 1024]).expect("its first words");
            assert_ne!(n, 0, "a client that says nothing");
            client.write_all(&error).expect("told");
        }
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            let mut server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
            let mut there = client.try_clone().expect("a line");
            let mut back = server.try_clone().expect("a line");
            // they end with the test at the latest
            std::thread::spawn(move || copy(&mut there, &mut server));
            std::thread::spawn(move || copy(&mut back, &mut client));
        }
    });
    own
}

#[test]
fn a_server_that_was_not_ready_may_still_ask() {
    let server = server();
    let place = format!(
        "host=127.0.0.1 port={} user=scram dbname=app sslmode=disable",
        starting(server.port)
    );
    let mut pty = terminal(server, &[JOBTOP, &place]);
    pty.wait_text("starting up");
    assert!(pty.alternate());
    pty.wait_text("Password for user scram: ");
    wait_echo(&pty, false);
    assert!(!pty.alternate());
    pty.keys("s3cret:\\\r");
    pty.wait_text("app@127.0.0.1");
    assert!(pty.alternate());
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
}

#[test]
fn it_asks_for_the_pass_phrase_of_a_key() {
    use std::os::unix::fs::PermissionsExt;
    let server = server();
    let key = server.directory("asked-phrase").join("client.key");
    std::fs::write(&key, include_bytes!("keys/pkcs8-aes256.pem")).expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("set");
    let place = |mode: &str| {
        format!(
            "host=127.0.0.1 port={} user=certified dbname=app sslmode={mode} sslcert={} sslkey={}",
            server.port,
            server.certificates.path("client.crt"),
            key.display()
        )
    };
    for (args, phrase, code, words) in [
        (
            vec!["tasks", &place("require")],
            "s3cret\\ph\r",
            1,
            "no queue found",
        ),
        (
            vec!["tasks", &place("prefer")],
            "s3cret\\ph\r",
            1,
            "no queue found",
        ),
        (
            vec![&place("require"), "--once"],
            "wr0ng\r",
            2,
            "does not open the key file",
        ),
        (
            vec![&place("require"), "--once", "-w"],
            "",
            2,
            "give its pass phrase in sslpassword",
        ),
    ] {
        let mut pty = terminal(server, &[&[JOBTOP], args.as_slice()].concat());
        if !phrase.is_empty() {
            pty.wait_text("Pass phrase for ");
            wait_echo(&pty, false);
            pty.keys(phrase);
        }
        assert_eq!(pty.exit_code(), code, "{args:?}: {}", pty.screen());
        pty.wait(words, |text| text.replace('\n', "").contains(words));
        let bytes = written(&pty);
        assert!(
            !bytes.contains("s3cret") && !bytes.contains("wr0ng"),
            "{bytes}"
        );
        assert!(bytes.matches("Pass phrase for ").count() <= 1, "{bytes}");
    }
}

#[test]
fn a_signal_at_the_question_gives_the_echo_back() {
    let server = server();
    let url = format!("postgres://scram@127.0.0.1:{}/app", server.port);
    let question = "Password for user scram: ";
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
    ] {
        let mut pty = terminal(server, &[JOBTOP, "tasks", &url]);
        pty.wait_text(question);
        assert!(!pty.cooked());
        pty.keys("s3c");
        pty.signal(signal);
        assert_ne!(pty.exit_code(), 0, "{signal}");
        assert!(pty.cooked(), "{signal}");
        assert!(!written(&pty).contains("s3c"), "{signal}");
    }
    // what a shell sees, with keys only
    let mut pty = terminal(server, &["/bin/sh", "-i"]);
    let ask = format!("'{JOBTOP}' '{url}' --once\r");
    pty.keys(&ask);
    pty.wait_text(question);
    pty.keys("\x03");
    wait_echo(&pty, true);
    pty.keys("echo code=$?\r");
    pty.wait_text("code=130");
    pty.keys("clear\r");
    pty.wait_no_text(question);
    pty.keys(&ask);
    pty.wait_text(question);
    pty.keys("s3c\x1a");
    pty.wait_text("Stopped");
    wait_echo(&pty, true);
    pty.keys("clear\r");
    pty.wait_no_text(question);
    pty.keys("fg; echo code=$?\r");
    pty.wait_text(question);
    wait_echo(&pty, false);
    pty.keys("s3cret:\\\r");
    pty.wait_text("code=0");
    wait_echo(&pty, true);
    assert!(!written(&pty).contains("s3c"));
    pty.keys("exit\r");
    assert_eq!(pty.exit_code(), 0);
}
