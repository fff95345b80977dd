//! Makes the pictures of the README: the real binary shows its own demo and writes them with its own key.
//!
//! ```sh
//! cargo test --release --test screenshots -- --ignored
//! ```

mod common;

use common::pty::Pty;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Studio {
    raw: PathBuf,
    shown: PathBuf,
    config: PathBuf,
}

impl Studio {
    fn new() -> Self {
        let raw = std::env::temp_dir().join(format!("jobtop-pictures-{}", std::process::id()));
        std::fs::create_dir_all(&raw).expect("a directory");
        let config = raw.join("config.toml");
        let text = format!("output_dir = {:?}\n", raw.display().to_string());
        std::fs::write(&config, text).expect("a configuration");
        Self {
            shown: Path::new(env!("CARGO_MANIFEST_DIR")).join("screenshots"),
            raw,
            config,
        }
    }

    fn demo(&self, scenario: &str, columns: u16, rows: u16) -> Pty {
        let config = self.config.to_string_lossy();
        let args = ["demo", "--scenario", scenario, "--config", &config];
        Pty::jobtop(&args, columns, rows)
    }

    fn svg(&self) -> Option<PathBuf> {
        let files = std::fs::read_dir(&self.raw).expect("the directory");
        let mut paths = files.map(|f| f.expect("a file").path());
        paths.find(|p| p.extension().is_some_and(|e| e == "svg"))
    }

    /// Presses `w` and keeps the picture under a name.
    fn take(&self, pty: &mut Pty, name: &str) {
        pty.wait_no_text("wrote ");
        pty.keys("w");
        let end = Instant::now() + Duration::from_secs(30);
        let svg = loop {
            match self.svg() {
                Some(svg) => break svg,
                None => assert!(Instant::now() < end, "no picture"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        // the file is complete when its toast is there
        pty.wait_text("wrote ");
        std::fs::rename(svg, self.shown.join(format!("{name}.svg"))).expect("moved");
    }
}

impl Drop for Studio {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.raw);
    }
}

#[test]
#[ignore = "writes the pictures of the README"]
fn pictures_of_an_incident() {
    let studio = Studio::new();
    let mut pty = studio.demo("idle-in-transaction", 160, 45);
    pty.wait_text("waits for its client");
    pty.wait_text("blocks 9");
    studio.take(&mut pty, "overview");
    for (key, name) in [
        ("2", "waits"),
        ("1", "connections"),
        ("3", "stages"),
        ("4", "leases"),
        ("5", "cost"),
        ("6", "tasks"),
    ] {
        pty.keys(key);
        studio.take(&mut pty, name);
    }
    pty.keys("/state:failed\r");
    pty.wait("the filter", |s| s.contains("state:failed"));
    pty.keys("R");
    pty.wait_text("Requeue 1 task?");
    studio.take(&mut pty, "dialog");
    pty.keys("\x1b");
    pty.wait_no_text("Requeue 1 task?");
    pty.keys("\r");
    pty.wait_text("ATTEMPTS");
    studio.take(&mut pty, "task");
    pty.keys("q");
    pty.keys("q");
    pty.exit_code();
}

#[test]
#[ignore = "writes the pictures of the README"]
fn pictures_of_a_small_terminal() {
    let studio = Studio::new();
    let mut pty = studio.demo("idle-in-transaction", 80, 24);
    pty.wait_text("waits for its client");
    studio.take(&mut pty, "overview-80x24");
    pty.keys("q");
    pty.exit_code();
}
