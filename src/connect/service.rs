//! `pg_service.conf`: connection settings by name, in the user's file, then in the system's.

use super::settings::Env;
use crate::files;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Where packagers put the system's file; `PGSYSCONFDIR` says otherwise.
const SYSTEM: [&str; 4] = [
    "/etc/postgresql-common",
    "/etc/sysconfig/pgsql",
    "/usr/local/etc/postgresql",
    "/etc",
];

/// The settings of a service. `file` is the one that was named, which must exist; else it is `~/.pg_service.conf`, which
/// need not.
pub fn find(service: &str, file: Option<&str>, env: &Env<'_>) -> Result<Vec<(String, String)>> {
    let user = match file {
        Some(named) => Some(PathBuf::from(named)),
        None => super::settings::home(env).map(|h| h.join(".pg_service.conf")),
    };
    let user = user.filter(|path| file.is_some() || path.exists());
    let system = match env("PGSYSCONFDIR") {
        Some(directory) => Some(PathBuf::from(directory)),
        None => SYSTEM
            .iter()
            .map(PathBuf::from)
            .find(|d| d.join("pg_service.conf").exists()),
    };
    let system = system
        .map(|d| d.join("pg_service.conf"))
        .filter(|p| p.exists());
    for path in user.into_iter().chain(system) {
        if let Some(found) = read(&path, service)? {
            return Ok(found);
        }
    }
    bail!(
        "the service {service:?} is in no pg_service.conf: PGSERVICEFILE or ~/.pg_service.conf must define [{service}]"
    )
}

fn read(path: &Path, service: &str) -> Result<Option<Vec<(String, String)>>> {
    let text = files::bytes(path)
        .with_context(|| format!("the service file {} cannot be read", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let mut found: Option<Vec<(String, String)>> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            // the first group of that name is the whole of it
            if found.is_some() {
                break;
            }
            if name.strip_suffix(']') == Some(service) {
                found = Some(Vec::new());
            }
            continue;
        }
        let Some(values) = &mut found else { continue };
        let place = || format!("line {} of the service file {}", number + 1, path.display());
        match line.split_once('=') {
            Some(("service", _)) => bail!("{} names a service within a service", place()),
            Some((key, value)) => values.push((key.into(), value.into())),
            None => bail!("{} is neither [name] nor key=value", place()),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        (name == "PGSYSCONFDIR").then(|| "/nonexistent".to_string())
    }

    fn file(name: &str, text: &str) -> String {
        let path = std::env::temp_dir().join(format!("jobtop-unit-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    #[test]
    fn a_group_is_read_to_the_next_one() {
        let path = file(
            "service",
            "# a comment\n[a]\nhost=h\n\n  port=1 \n[b]\nhost=other\noptions=-c a=b\n[a]\nuser=late\n",
        );
        let a = find("a", Some(&path), &env).expect("found");
        assert_eq!(
            a,
            [("host".into(), "h".into()), ("port".into(), "1".into())]
        );
        let b = find("b", Some(&path), &env).expect("found");
        assert_eq!(b[1], ("options".into(), "-c a=b".into()));
        let none = find("c", Some(&path), &env).expect_err("refused");
        assert!(none.to_string().contains("\"c\""), "{none}");
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let path = file(
            "bad-service",
            "[a]\nhost=h\npassword s3cret\n[b]\nservice=a\n",
        );
        for (service, line) in [("a", "line 3"), ("b", "line 5")] {
            let error = find(service, Some(&path), &env)
                .expect_err("refused")
                .to_string();
            assert!(error.contains(line) && !error.contains("s3cret"), "{error}");
        }
        std::fs::remove_file(path).expect("removed");
    }
}
