//! The binary: its flags, and that it keeps passwords to itself.

use crate::common::pty::Pty;
use crate::server::{Server, server};
use std::process::{Command, Output};

fn jobtop(server: &Server, args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_jobtop"))
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", &server.home)
        .envs(env.iter().copied())
        .output()
        .expect("ran")
}

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
        assert!(
            text.contains("queue") || text.contains("no such task"),
            "{args:?}: {text}"
        );
        assert!(!text.contains("no connection"), "{args:?}: {text}");
    }
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
            "no connection to /nonexistent: No such file or directory (os error 2): does the server run",
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
    assert!(text.contains("no such task"), "{text}");
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
        text.contains("no such task") && !text.contains("s3cret"),
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

#[test]
fn it_asks_without_echo() {
    let server = server();
    let port = server.port.to_string();
    let args = [
        "-h",
        "127.0.0.1",
        "-p",
        &port,
        "-U",
        "scram",
        "-d",
        "app",
        "-W",
    ];
    let mut pty = Pty::jobtop(&args, 100, 30);
    pty.wait_text("Password: ");
    pty.keys("wrong\x15s3cret:\\\r");
    pty.wait_text("app@127.0.0.1");
    let bytes = String::from_utf8_lossy(&pty.bytes()).into_owned();
    assert!(
        !bytes.contains("s3cret") && !bytes.contains("wrong"),
        "{bytes}"
    );
    pty.keys("q");
    assert_eq!(pty.exit_code(), 0);
    assert!(pty.cooked());
    let mut pty = Pty::jobtop(&args, 100, 30);
    pty.wait_text("Password: ");
    pty.keys("s3c\x03");
    pty.wait_text("no password was given");
    assert_eq!(pty.exit_code(), 2);
    assert!(pty.cooked());
}
