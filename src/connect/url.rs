//! Connection URLs, taken apart exactly as libpq does it (`conninfo_uri_parse`). No error repeats a part of the URL that could
//! be a piece of a password.

use anyhow::{Result, bail, ensure};

/// Is it a URL, and not key=value pairs?
pub fn is_url(text: &str) -> bool {
    rest(text).is_some()
}

fn rest(text: &str) -> Option<&str> {
    let schemes = ["postgresql://", "postgres://"];
    schemes.iter().find_map(|s| text.strip_prefix(s))
}

/// The keywords and values that a URL stands for. Several hosts become lists with commas.
pub fn pairs(url: &str) -> Result<Vec<(String, String)>> {
    let Some(mut text) = rest(url) else {
        bail!("this is no URL: it begins with neither postgres:// nor postgresql://");
    };
    let mut found = Vec::new();
    // as in libpq, credentials are there if an @ comes before the first slash
    let end = text.find(['@', '/']);
    if let Some(at) = end.filter(|at| text.as_bytes()[*at] == b'@') {
        let (user, password) = match text[..at].split_once(':') {
            Some((user, password)) => (user, password),
            None => (&text[..at], ""),
        };
        put(&mut found, "user", user)?;
        put(&mut found, "password", password)?;
        text = &text[at + 1..];
    }
    let path = text.find(['/', '?']).unwrap_or(text.len());
    let (hosts, tail) = text.split_at(path);
    let (dbname, query) = match tail.strip_prefix('/') {
        Some(tail) => tail.split_once('?').unwrap_or((tail, "")),
        None => ("", tail.strip_prefix('?').unwrap_or_default()),
    };
    ensure!(
        !hosts.contains('@') && !dbname.contains('@'),
        "the URL has an @ where none can be: write @ : / ? # % in a user name or password as %40 %3A %2F %3F %23 %25"
    );
    let (host, port) = netloc(hosts)?;
    put(&mut found, "host", &host)?;
    put(&mut found, "port", &port)?;
    put(&mut found, "dbname", dbname)?;
    for parameter in query.split('&').filter(|p| !p.is_empty()) {
        found.push(one(parameter)?);
    }
    Ok(found)
}

/// Hosts and ports, both as lists with commas.
fn netloc(text: &str) -> Result<(String, String)> {
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for part in text.split(',') {
        let (host, port) = match part.strip_prefix('[') {
            Some(address) => {
                let Some((address, after)) = address.split_once(']') else {
                    bail!("the URL has an IPv6 address without its closing ]");
                };
                ensure!(!address.is_empty(), "the URL has an empty IPv6 address []");
                match after.strip_prefix(':') {
                    Some(port) => (address, port),
                    None if after.is_empty() => (address, ""),
                    None => bail!("the URL has more after the ] of an IPv6 address than a port"),
                }
            }
            None => part.split_once(':').unwrap_or((part, "")),
        };
        hosts.push(host);
        ports.push(port);
    }
    // a list of nothing but commas says nothing
    let list = |parts: Vec<&str>| match parts.iter().all(|p| p.is_empty()) {
        true if parts.len() == 1 => String::new(),
        _ => parts.join(","),
    };
    Ok((list(hosts), list(ports)))
}

fn one(parameter: &str) -> Result<(String, String)> {
    let Some((key, value)) = parameter.split_once('=') else {
        bail!("the URL has a parameter without a value after its ?: write name=value");
    };
    ensure!(
        !value.contains('='),
        "the URL has a parameter with a second =: write = in a value as %3D"
    );
    let (key, value) = (decode(key)?, decode(value)?);
    // libpq's only bow to JDBC
    Ok(match (key.as_str(), value.as_str()) {
        ("ssl", "true") => ("sslmode".into(), "require".into()),
        _ => (key, value),
    })
}

fn put(found: &mut Vec<(String, String)>, key: &str, value: &str) -> Result<()> {
    if !value.is_empty() {
        found.push((key.into(), decode(value)?));
    }
    Ok(())
}

fn decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        match (digit(), digit()) {
            (Some(0), Some(0)) => bail!("the URL has %00, which no setting may contain"),
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => bail!("the URL has a % without two hexadecimal digits: write % itself as %25"),
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => bail!("the URL has percent-encoded bytes that are not UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> String {
        let pairs = pairs(url).unwrap_or_else(|e| panic!("{url}: {e}"));
        let text: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
        text.join(" ")
    }

    #[test]
    fn every_form_is_read() {
        for (url, expected) in [
            ("postgres://", ""),
            ("postgresql://h", "host=h"),
            ("postgres://u@", "user=u"),
            (
                "postgres://u:p@h:1/d",
                "user=u password=p host=h port=1 dbname=d",
            ),
            ("postgres://:p@h", "password=p host=h"),
            ("postgres://h:1?dbname=d", "host=h port=1 dbname=d"),
            ("postgres:///d", "dbname=d"),
            ("postgres:///?host=/tmp&port=2", "host=/tmp port=2"),
            ("postgres://%2Ftmp%2Fs/d", "host=/tmp/s dbname=d"),
            ("postgres://%40abstract/d", "host=@abstract dbname=d"),
            ("postgres://[::1]/d", "host=::1 dbname=d"),
            (
                "postgres://u@[::1]:5:/d",
                "user=u host=::1 port=5: dbname=d",
            ),
            ("postgres://[fe80::1%25eth0]:5", "host=fe80::1%eth0 port=5"),
            (
                "postgres://a:1,b:2,[::1]/d",
                "host=a,b,::1 port=1,2, dbname=d",
            ),
            ("postgres://a,b/d", "host=a,b port=, dbname=d"),
            (
                "postgres://u%40x:p%2F%3A%25@h",
                "user=u@x password=p/:% host=h",
            ),
            ("postgres://u:p:q#r?s@h", "user=u password=p:q#r?s host=h"),
            ("postgres://h/d?ssl=true", "host=h dbname=d sslmode=require"),
            (
                "postgres://h/d?options=-c%20a%3Db&user=v",
                "host=h dbname=d options=-c a=b user=v",
            ),
            ("postgres://h/a+b", "host=h dbname=a+b"),
            (
                "postgres://h/d?application_name=%C3%BC",
                "host=h dbname=d application_name=ü",
            ),
        ] {
            assert_eq!(read(url), expected, "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_repeating_it() {
        for url in [
            "http://h/s3cret",
            "postgres://u:s3cret@x@h/d",
            "postgres://u:s3c/ret@h/d",
            "postgres://u:%s3cret@h",
            "postgres://u:s3cret%00@h",
            "postgres://u:s3cret%ff@h",
            "postgres://u:s3cret@[::1/d",
            "postgres://u:s3cret@[]/d",
            "postgres://u:s3cret@[::1]x/d",
            "postgres://u:s3cret@h/d?x",
            "postgres://u:s3cret@h/d?a=b=c",
        ] {
            let error = format!("{:#}", pairs(url).expect_err(url));
            assert!(!error.contains("s3c") && !error.contains("ret@"), "{error}");
            assert!(error.contains("URL"), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(postgres://)?.{0,40}") {
            let _ = pairs(&text);
        }

        #[test]
        fn whatever_is_encoded_comes_back(word in ".{1,20}") {
            let encoded: String = word.bytes().map(|b| format!("%{b:02x}")).collect();
            proptest::prop_assume!(!word.contains('\0'));
            let url = format!("postgres://u:{encoded}@h/d");
            let found = pairs(&url).expect("reads");
            proptest::prop_assert_eq!(&found[1], &("password".to_string(), word));
        }
    }
}
