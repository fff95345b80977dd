//! The password for a connection: known, from a command, from a file, or none. A command runs anew for each connection, so
//! that tokens which live for minutes are always fresh.

use super::passfile::{self, Whose};
use super::{Fault, Secret};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Where a password comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// There is none.
    Nobody,
    /// It is known.
    Known(Secret),
    /// The output of a command, which may take so long.
    Command(String, Duration),
    /// `.pgpass`.
    File(PathBuf),
}

/// Bytes of output that are read; tokens have some thousand.
const MOST: u64 = 64 * 1024;

impl Source {
    /// The password for somebody at some place.
    pub async fn ask(&self, whose: Whose<'_>) -> Result<Option<Secret>, Fault> {
        match self {
            Source::Nobody => Ok(None),
            Source::Known(secret) => Ok(Some(secret.clone())),
            Source::File(path) => Ok(passfile::lookup(path, whose)),
            Source::Command(command, limit) => run(command, *limit, whose).await.map(Some),
        }
    }
}

/// Ends a command with all that it started, unless it has ended by itself: an agent that it left running may stay.
struct Group(Option<i32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let group = nix::unistd::Pid::from_raw(pid);
            // nobody may be left of it
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

async fn run(command: &str, limit: Duration, whose: Whose<'_>) -> Result<Secret, Fault> {
    let failed = |why: String| Fault::own(format!("the password command {why}"));
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .env("PGHOST", whose.host)
        .env("PGPORT", whose.port.to_string())
        .env("PGUSER", whose.user)
        .env("PGDATABASE", whose.database)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed(format!("cannot be started: {e}")))?;
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let work = async { tokio::join!(all(out), all(err), child.wait()) };
    let done = tokio::time::timeout(limit, work).await;
    if done.is_ok() {
        group.0 = None;
    }
    drop(group);
    let (out, err, status) = done.map_err(|_| {
        failed(format!(
            "took longer than {} s: see password_command_timeout in jobtop config",
            limit.as_secs_f64()
        ))
    })?;
    let status = status.map_err(|e| failed(format!("was lost: {e}")))?;
    if !status.success() {
        let how = match status.code() {
            Some(code) => format!("failed with exit code {code}"),
            None => "was killed".to_string(),
        };
        let err = String::from_utf8_lossy(&err);
        let line = err.lines().map(str::trim).find(|l| !l.is_empty());
        let mut fault = failed(match line {
            Some(line) => format!("{how}: {line}"),
            None => format!("{how} and says nothing"),
        });
        fault.logged = Some(failed(how).message);
        return Err(fault);
    }
    let text = String::from_utf8(out).map_err(|_| failed("gave no UTF-8 text".into()))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(failed("gave no password: it must print it".into()));
    }
    if text.contains(['\n', '\0']) {
        return Err(failed(
            "gave more than one line: it must print the password alone".into(),
        ));
    }
    Ok(Secret::new(text))
}

async fn all(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // what could be read until the pipe broke is what there is
        let _ = pipe.take(MOST).read_to_end(&mut bytes).await;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(command: &str, seconds: f64) -> Result<String, String> {
        let source = Source::Command(command.into(), Duration::from_secs_f64(seconds));
        let whose = Whose {
            host: "db",
            port: 7,
            database: "d",
            user: "u",
        };
        match source.ask(whose).await {
            Ok(secret) => Ok(secret.expect("a password").reveal().to_string()),
            Err(fault) => Err(fault.to_string()),
        }
    }

    #[tokio::test]
    async fn its_output_is_the_password() {
        assert_eq!(ask("echo ' a b '", 60.0).await.as_deref(), Ok(" a b "));
        let place = "printf %s $PGUSER@$PGHOST:$PGPORT/$PGDATABASE";
        assert_eq!(ask(place, 60.0).await.as_deref(), Ok("u@db:7/d"));
    }

    #[tokio::test]
    async fn its_failure_shows_what_it_complains_of_and_never_its_output() {
        for (command, words) in [
            (
                "echo s3cret; echo oops >&2; echo more >&2; exit 3",
                "failed with exit code 3: oops",
            ),
            (
                "echo s3cret; exit 1",
                "failed with exit code 1 and says nothing",
            ),
            ("kill -9 $$", "was killed and says nothing"),
            ("true", "gave no password: it must print it"),
            (
                "echo s3cret; echo b",
                "gave more than one line: it must print the password alone",
            ),
        ] {
            let error = ask(command, 60.0).await.expect_err(command);
            assert_eq!(error, format!("the password command {words}"));
        }
    }

    #[tokio::test]
    async fn it_ends_in_time_with_its_children() {
        let mark = std::env::temp_dir().join(format!("jobtop-unit-{}-child", std::process::id()));
        let command = format!("sleep 600 & echo $! > {}; wait", mark.display());
        let error = ask(&command, 1.0).await.expect_err("too slow");
        assert!(error.contains("took longer than 1 s"), "{error}");
        let pid = std::fs::read_to_string(&mark).expect("its child's pid");
        let child = format!("/proc/{}/cmdline", pid.trim());
        for _ in 0..500 {
            // what is dead and not yet buried has no command line
            match std::fs::read(&child) {
                Ok(line) if !line.is_empty() => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => return std::fs::remove_file(&mark).expect("removed"),
            }
        }
        panic!("its child lives on");
    }
}
