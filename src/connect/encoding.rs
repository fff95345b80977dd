//! Names of encodings. Ours is UTF-8 whatever is asked for; but what no server has is a mistake, and psql does not connect
//! with it either.

/// Every name that a client may ask for, as Postgres compares them: small, without what is no letter or digit. Its numbered
/// families are in [`FAMILIES`].
const NAMES: [&str; 34] = [
    "abc",
    "alt",
    "big5",
    "euccn",
    "eucjis2004",
    "eucjp",
    "euckr",
    "euctw",
    "gb18030",
    "gbk",
    "johab",
    "koi8",
    "koi8r",
    "koi8u",
    "mskanji",
    "muleinternal",
    "shiftjis",
    "shiftjis2004",
    "sjis",
    "sqlascii",
    "tcvn",
    "tcvn5712",
    "uhc",
    "unicode",
    "utf8",
    "vscii",
    "win",
    "iso885910",
    "iso885913",
    "iso885914",
    "iso885915",
    "iso885916",
    "latin10",
    // the client's own, by its locale
    "auto",
];

/// Beginnings of names, and what they go on with.
const FAMILIES: [(&[&str], &[&str]); 2] = [
    (
        &["iso8859", "latin"],
        &["1", "2", "3", "4", "5", "6", "7", "8", "9"],
    ),
    (
        &["win", "windows"],
        &[
            "866", "874", "932", "936", "949", "950", "1250", "1251", "1252", "1253", "1254",
            "1255", "1256", "1257", "1258",
        ],
    ),
];

/// Does a server know an encoding of that name?
pub fn known(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name = letters.collect::<String>().to_ascii_lowercase();
    let of_family = |(heads, tails): &(&[&str], &[&str])| {
        let rest = heads.iter().filter_map(|head| name.strip_prefix(head));
        rest.into_iter().any(|rest| tails.contains(&rest))
    };
    NAMES.contains(&name.as_str()) || FAMILIES.iter().any(of_family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_the_server_does() {
        for name in [
            "UTF8",
            "utf-8",
            "Latin1",
            "ISO_8859_5",
            "latin10",
            "WIN1252",
            "windows-866",
            "auto",
        ] {
            assert!(known(name), "{name}");
        }
        for name in ["nonsense", "latin11", "win", "utf16", "windows", "win99"] {
            assert_eq!(known(name), name == "win", "{name}");
        }
    }
}
