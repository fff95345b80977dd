//! Several tries in vain, and one sentence about them: each with its reason, and nothing said twice.

use super::{Fault, advice};
use crate::log::told;

/// All places that were tried.
pub fn everywhere(mut misses: Vec<(String, Fault)>) -> Fault {
    if misses.len() == 1 {
        return misses.remove(0).1;
    }
    let each = |words: fn(&Fault) -> String| -> String {
        let each = misses
            .iter()
            .map(|(place, fault)| format!("{place}: {}", words(fault)));
        each.collect::<Vec<_>>().join("; ")
    };
    Fault {
        logged: Some(each(told)),
        // worth waiting for, if one of them is
        code: misses.iter().find_map(|(_, f)| f.code.clone()),
        closed: true,
        ..Fault::own(each(|fault| fault.message.clone()))
    }
}

/// All addresses of one host: those that give the same reason as one before them are not named.
pub fn addresses(misses: Vec<(String, Fault)>) -> Fault {
    let mut distinct: Vec<(String, Fault)> = Vec::new();
    for miss in misses {
        if distinct.iter().all(|(_, fault)| *fault != miss.1) {
            distinct.push(miss);
        }
    }
    everywhere(distinct)
}

/// With TLS and without, in the order in which they were tried. What counts for what follows is the second.
pub fn both_ways(first: (&str, Fault), second: (&str, Fault)) -> Fault {
    let ((way, fault), (other_way, last)) = (first, second);
    let message = if fault.message == last.message {
        match advice::unencrypted(&last) {
            true => format!("{}: {}", last.message, advice::ALLOW),
            false => last.message.clone(),
        }
    } else if let Some(merged) = merged(&fault, &last) {
        format!("{merged}: {}", advice::ALLOW)
    } else {
        let words = match fault.code == last.code {
            true => fault.message.clone(),
            false => fault.to_string(),
        };
        return Fault {
            logged: Some(format!(
                "{way}: {}; {other_way}: {}",
                told(&fault),
                told(&last)
            )),
            message: format!("{way}: {words}; {other_way}: {}", last.message),
            ..last
        };
    };
    Fault { message, ..last }
}

/// Two refusals by pg_hba.conf: the server's words differ only in `SSL encryption` and `no encryption` at their end, in whatever
/// language.
fn merged(one: &Fault, other: &Fault) -> Option<String> {
    let (stem, end) = one.message.rsplit_once(", ")?;
    let (same, other_end) = other.message.rsplit_once(", ")?;
    let refused = one.is("28000") && other.is("28000") && stem == same;
    refused.then(|| format!("{stem}, {end} or {other_end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: Option<&str>, message: &str) -> Fault {
        Fault {
            code: code.map(String::from),
            ..Fault::own(message)
        }
    }

    fn both(first: Fault, second: Fault) -> String {
        both_ways(("with TLS", first), ("without", second)).to_string()
    }

    #[test]
    fn two_reasons_are_told_and_nothing_twice() {
        let refused = |how: &str| fault(Some("28000"), &format!("no entry for user \"u\", {how}"));
        assert_eq!(
            both(refused("SSL encryption"), refused("no encryption")),
            "no entry for user \"u\", SSL encryption or no encryption: allow it in pg_hba.conf (28000)"
        );
        assert_eq!(
            both(refused("no encryption"), refused("no encryption")),
            "no entry for user \"u\", no encryption: allow it in pg_hba.conf (28000)"
        );
        let role = || fault(Some("28000"), "role \"u\" does not exist");
        assert_eq!(both(role(), role()), "role \"u\" does not exist (28000)");
        assert_eq!(
            both(fault(None, "a bad certificate"), refused("no encryption")),
            "with TLS: a bad certificate; without: no entry for user \"u\", no encryption (28000)"
        );
        assert_eq!(
            both(refused("no encryption"), fault(None, "a bad certificate")),
            "with TLS: no entry for user \"u\", no encryption (28000); without: a bad certificate"
        );
    }

    #[test]
    fn addresses_tell_each_reason_once() {
        let miss = |place: &str, words: &str| (place.to_string(), fault(None, words));
        let both = vec![miss("[::1]:1", "refused"), miss("127.0.0.1:1", "refused")];
        assert_eq!(addresses(both).to_string(), "refused");
        let both = vec![miss("[::1]:1", "refused"), miss("127.0.0.1:1", "silent")];
        assert_eq!(
            addresses(both).to_string(),
            "[::1]:1: refused; 127.0.0.1:1: silent"
        );
    }

    #[test]
    fn what_a_log_may_not_hold_stays_out_of_both() {
        let secret = Fault {
            logged: Some("the server refuses the options".into()),
            ..fault(Some("22023"), "no such thing: \"CANARY\"")
        };
        let told = told(&both_ways(("one", secret), ("two", fault(None, "gone"))));
        assert_eq!(told, "one: the server refuses the options; two: gone");
    }
}
