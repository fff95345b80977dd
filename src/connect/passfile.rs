//! `~/.pgpass`: `host:port:database:user:password`, the first line that matches. Read anew for each connection.

use super::Secret;
use crate::files;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whose password is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// Host as it was given; `localhost` for the default socket directory.
    pub host: &'a str,
    /// Port.
    pub port: u16,
    /// Database.
    pub database: &'a str,
    /// User.
    pub user: &'a str,
}

/// Why a file that exists is not used, as libpq has it: others can read it, or it is no file.
pub fn refused(path: &Path) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    let path = path.display();
    if !about.is_file() {
        return Some(format!(
            "the password file {path} is ignored: it is no plain file"
        ));
    }
    (about.mode() & 0o077 != 0).then(|| {
        format!("the password file {path} is ignored: group or others may use it; chmod 0600 it")
    })
}

/// The password that the file has for somebody.
pub fn lookup(path: &Path, whose: Whose<'_>) -> Option<Secret> {
    if refused(path).is_some() {
        return None;
    }
    let text = files::bytes(path).ok()?;
    find(&String::from_utf8_lossy(&text), whose)
}

fn find(text: &str, whose: Whose<'_>) -> Option<Secret> {
    let port = whose.port.to_string();
    let wanted = [whose.host, &port, whose.database, whose.user];
    let mut lines = text.lines().filter(|l| !l.starts_with('#'));
    let password = lines.find_map(|line| {
        let mut rest = line;
        for field in wanted {
            rest = after(rest, field)?;
        }
        Some(unescaped(rest))
    })?;
    (!password.is_empty()).then(|| Secret::new(password))
}

/// What follows a field and its colon, where the field is `*` or says the same as the value.
fn after<'a>(line: &'a str, value: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let (mut field, mut chars) = (String::new(), line.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            ':' => return (field == value).then(|| &line[at + 1..]),
            '\\' => field.extend(chars.next().map(|(_, c)| c)),
            c => field.push(c),
        }
    }
    None
}

/// The last field, which a colon ends too.
fn unescaped(text: &str) -> String {
    let (mut plain, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            ':' => break,
            '\\' => plain.extend(chars.next()),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(text: &str, host: &str) -> Option<String> {
        let whose = Whose {
            host,
            port: 5432,
            database: "a:b",
            user: r"u\v",
        };
        find(text, whose).map(|s| s.reveal().to_string())
    }

    #[test]
    fn the_first_line_that_matches_counts() {
        let text = r"# h:5432:*:*:comment
other:*:*:*:no
h:5433:*:*:port
h:5432:a\:b:u\\v:it\:s\\
h:*:*:*:late
*:*:*:*:anybody
";
        assert_eq!(password(text, "h").as_deref(), Some(r"it:s\"));
        assert_eq!(password(text, "x").as_deref(), Some("anybody"));
        assert_eq!(password("h:*:*:*:a:b", "h").as_deref(), Some("a"));
        assert_eq!(password("::1:*:*:*:p", "::1"), None);
        assert_eq!(password(r"\:\:1:*:*:*:p", "::1").as_deref(), Some("p"));
        // a star is a wildcard only alone
        assert_eq!(password("h*:*:*:*:p", "h"), None);
        assert_eq!(password("h:5432:*", "h"), None);
        assert_eq!(password("h:*:*:*:", "h"), None);
        assert_eq!(password("h:*:*:*:p\r\n", "h").as_deref(), Some("p"));
    }
}
