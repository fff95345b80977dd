//! What errors have in common, as an SQL expression: so many rows are better told apart where they are.

use crate::queue::template::literal;

/// Stands for an error that is NULL or blank.
pub const NO_TEXT: &str = "(no error text)";

/// Characters of an error that are looked at: a list must not detoast megabytes.
const LOOKED_AT: u16 = 200;
/// Characters of the result at most. Fewer, since where the 200 end depends on the length of the values that are taken out.
pub const KEPT: u16 = 120;

/// In this order, each everywhere. Groups do not capture and nothing looks ahead: both are several times as slow.
const STEPS: [(&str, &str); 8] = [
    // what `text::forbidden` names, but for controls
    (
        r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]",
        "",
    ),
    // controls and runs of blanks
    (
        r"[\x01-\x20\x7f-\xa0\u2028\u2029]{2,}|[\x01-\x1f\x7f-\xa0\u2028\u2029]",
        " ",
    ),
    // quoted values, also those that the cut has left open; an apostrophe within a word quotes nothing
    (
        r#""[^"]*(?:"|$)|`[^`]*(?:`|$)|(?<![A-Za-z0-9])'[^']*(?:'(?![A-Za-z0-9])|$)"#,
        "#",
    ),
    // uuids, addresses, long hex
    (
        r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|0[xX][0-9a-fA-F]+|[0-9a-fA-F]{8,}",
        "#",
    ),
    // IPv6
    (r"[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,7}", "#"),
    // ids of digits and letters by turns
    (r"[0-9A-Za-z]*[0-9][A-Za-z]+[0-9][0-9A-Za-z]*", "#"),
    // numbers, times, IPv4 with its port
    (r"[0-9]+(?:[.,:][0-9]+)*", "#"),
    // lists of them, and numbers of which a part was taken for hex
    (r"#(?:[,;] ?#|[.:]#)+", "#"),
];

/// An SQL expression of what an error (an SQL expression of type text) has in common with others of its sort: its first
/// 200 characters with numbers, ids, uuids, addresses and quoted values as `#`, without control and invisible
/// characters, cut to 120; [`NO_TEXT`] for NULL. Two tasks of a kind are in one group if and only if it is equal for
/// both. Needs nothing but regexp_replace, works in any encoding, and costs some 25 µs a row.
pub fn normalised(expr: &str) -> String {
    let cut = format!("left(({expr})::text, {LOOKED_AT})");
    let replaced = STEPS.iter().fold(cut, |inner, (pattern, with)| {
        format!(
            "regexp_replace({inner}, {}, {}, 'g')",
            literal(pattern),
            literal(with)
        )
    });
    format!(
        "coalesce(nullif(btrim(left({replaced}, {KEPT})), ''), {})",
        literal(NO_TEXT)
    )
}
