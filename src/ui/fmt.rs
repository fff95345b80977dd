//! Numbers as the screen writes them: short, of steady width, and honest about what is not known.

use crate::probe::{Bound, Count, ServerTime, Usd};
pub use crate::text::thousands as number;

/// Longer than anything that happened: what a broken or an infinite time yields. Fits into a sentence.
const AGES: &str = ">1000y";

/// A length of time in at most six characters: `0.4s`, `19s`, `8m12s`, `41m`, `2h10m`, `30h`, `9d`, `3y`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return if seconds > 0.0 { AGES } else { "n/a" }.into();
    }
    if seconds < 0.0 {
        // A clock that is 0.04 s behind is not behind.
        let text = duration(-seconds);
        return if text == "0.0s" {
            text
        } else {
            format!("-{text}")
        };
    }
    if seconds < 9.95 {
        return format!("{seconds:.1}s");
    }
    let s = seconds.round() as u64;
    match s {
        0..60 => format!("{s}s"),
        60..600 => format!("{}m{:02}s", s / 60, s % 60),
        600..3_600 => format!("{}m", s / 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s % 3_600 / 60),
        86_400..172_800 => format!("{}h", s / 3_600),
        172_800..63_072_000 => format!("{}d", s / 86_400),
        63_072_000..31_536_000_000 => format!("{}y", s / 31_536_000),
        _ => AGES.into(),
    }
}

/// A length of time by its largest unit: `19s`, `8m`, `2h`, `9d`.
pub fn coarse(seconds: f64) -> String {
    let text = duration(seconds.max(0.0).round());
    let end = text
        .find(|c: char| c.is_alphabetic())
        .map_or(text.len(), |at| at + 1);
    text[..end].replace(".0", "")
}

/// A length of time as one says it: `1h`, not `1h00m`.
pub fn span(seconds: f64) -> String {
    if seconds >= 3_600.0 && seconds % 3_600.0 == 0.0 {
        coarse(seconds)
    } else {
        duration(seconds)
    }
}

/// A length of time, or `-`.
pub fn age(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".into(), duration)
}

/// A length of time, or `n/a`: for what cannot be known.
pub fn stage(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "n/a".into(), duration)
}

/// `941`, `5,012`, `12k`, `210k`, `1.2M`, `3.4G`: at most five characters.
pub fn short(n: u64) -> String {
    match n {
        0..10_000 => number(n),
        10_000..1_000_000 => format!("{}k", n / 1_000),
        1_000_000..10_000_000 => format!("{:.1}M", (n / 100_000) as f64 / 10.0),
        10_000_000..1_000_000_000 => format!("{}M", n / 1_000_000),
        1_000_000_000..10_000_000_000 => format!("{:.1}G", (n / 100_000_000) as f64 / 10.0),
        _ => format!("{}G", n / 1_000_000_000),
    }
}

/// Exact counts plain, bounded ones with a `+`, estimates short with a `~`; unknown ones `n/a`.
pub fn count(count: Option<Count>) -> String {
    match count {
        None => "n/a".into(),
        Some(Count { count, bound }) => match bound {
            Bound::Exact => number(count),
            Bound::AtLeast => format!("{}+", number(count)),
            Bound::Estimate => format!("~{}", short(count)),
        },
    }
}

/// `$18.40`, `$0.0123`, `$12k`.
pub fn usd(money: Usd) -> String {
    let size = money.dollars().abs();
    let sign = if money.0 < 0 { "-" } else { "" };
    if money.0 != 0 && size < 0.000_05 {
        return format!("{sign}<$0.0001");
    }
    if money.0 != 0 && size < 0.1 {
        return format!("{sign}${size:.4}");
    }
    format!("{sign}${}", amount(Usd(money.0.saturating_abs())))
}

/// Two decimals, so that a column of them is aligned at the point: for columns that name the currency.
pub fn amount(money: Usd) -> String {
    let dollars = money.dollars();
    let size = dollars.abs();
    let sign = if money.0 < 0 { "-" } else { "" };
    if money.0 != 0 && size < 0.005 {
        return format!("{sign}<0.01");
    }
    if size >= 10_000.0 {
        return format!("{sign}{}", short(size as u64));
    }
    let text = format!("{size:.2}");
    match text.split_once('.') {
        Some((whole, cents)) if whole.len() > 3 => {
            let (thousands, rest) = whole.split_at(whole.len() - 3);
            format!("{sign}{thousands},{rest}.{cents}")
        }
        _ => format!("{sign}{text}"),
    }
}

/// A rate: one decimal below ten, none above, `n/a` when unknown.
pub fn rate(per: Option<f64>) -> String {
    match per {
        None => "n/a".into(),
        Some(r) if !r.is_finite() => "n/a".into(),
        Some(r) if r.abs() < 0.05 => "0".into(),
        Some(r) if r < 9.95 && (r - r.round()).abs() >= 0.05 => format!("{r:.1}"),
        Some(r) => short(r.round().max(0.0) as u64),
    }
}

/// A share of one: `41%`; below one percent, `0.3%`.
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if !p.is_finite() {
        "n/a".into()
    } else if p > 0.0 && p < 0.05 {
        "<0.1%".into()
    } else if p > 0.0 && p < 0.95 {
        format!("{p:.1}%")
    } else {
        format!("{p:.0}%")
    }
}

/// `812 B`, `3.1 MB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    if unit == 0 || value >= 9.95 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// `14:02:11` UTC; the caller says that it is UTC.
pub fn clock(time: Option<ServerTime>) -> String {
    time.and_then(ServerTime::to_utc)
        .map_or_else(|| "--:--:--".into(), |t| t.format("%H:%M:%S").to_string())
}

/// `14:02` UTC.
pub fn minute(time: Option<ServerTime>) -> String {
    clock(time).chars().take(5).collect()
}

/// `1 session`, `3 sessions`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(n), if n == 1 { one } else { many })
}

/// Value against a maximum as a bar of at most `columns` columns: never empty for something, full only at the maximum.
pub fn bar(value: f64, max: f64, columns: usize) -> String {
    if !(value > 0.0 && max > 0.0) || columns == 0 {
        return String::new();
    }
    let whole = if value >= max {
        columns
    } else {
        let part = (value / max * columns as f64).round() as usize;
        part.clamp(1, (columns - 1).max(1))
    };
    // Three quarters high: bars on neighbouring lines must not touch.
    "▆".repeat(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_stay_short() {
        for (s, text) in [
            (0.0, "0.0s"),
            (0.44, "0.4s"),
            (9.96, "10s"),
            (59.6, "1m00s"),
            (182.0, "3m02s"),
            (492.0, "8m12s"),
            (2_460.0, "41m"),
            (7_800.0, "2h10m"),
            (100_000.0, "27h"),
            (777_600.0, "9d"),
            (1e9, "31y"),
            (-1.0, "-1.0s"),
            (-240.0, "-4m00s"),
            (-0.01, "0.0s"),
            (f64::INFINITY, ">1000y"),
            (1e12, ">1000y"),
        ] {
            assert_eq!(duration(s), text);
        }
        for (s, text) in [
            (0.2, "0s"),
            (19.4, "19s"),
            (130.0, "2m"),
            (9_000.0, "2h"),
            (8e5, "9d"),
        ] {
            assert_eq!(coarse(s), text);
        }
    }

    #[test]
    fn counts_say_how_they_were_made() {
        let c = |count, bound| super::count(Some(Count { count, bound }));
        assert_eq!(c(5_012, Bound::Exact), "5,012");
        assert_eq!(c(10_001, Bound::AtLeast), "10,001+");
        assert_eq!(c(1_234_567, Bound::Estimate), "~1.2M");
        assert_eq!(super::count(None), "n/a");
        assert_eq!(short(9_999), "9,999");
        assert_eq!(short(12_345), "12k");
        assert_eq!(short(999_999), "999k");
        assert_eq!(short(1_999_999), "1.9M");
    }

    #[test]
    fn money_keeps_small_amounts_visible() {
        for (micros, text) in [
            (18_400_000, "$18.40"),
            (12_300, "$0.0123"),
            (1_230, "$0.0012"),
            (3, "<$0.0001"),
            (0, "$0.00"),
            (1_234_560_000, "$1,234.56"),
            (12_345_000_000, "$12k"),
            (-3_000_000, "-$3.00"),
        ] {
            assert_eq!(usd(Usd(micros)), text);
        }
        assert_eq!(amount(Usd(12_300)), "0.01");
        assert_eq!(amount(Usd(1_230)), "<0.01");
        assert_eq!(amount(Usd(1_234_560_000)), "1,234.56");
    }

    #[test]
    fn rates_and_bytes() {
        assert_eq!(rate(Some(0.04)), "0");
        assert_eq!(rate(Some(2.0)), "2");
        assert_eq!(rate(Some(2.5)), "2.5");
        assert_eq!(rate(Some(212.4)), "212");
        assert_eq!(rate(None), "n/a");
        assert_eq!(bytes(812), "812 B");
        assert_eq!(bytes(3_145_728), "3.1 MB");
        assert_eq!(percent(0.003), "0.3%");
        assert_eq!(percent(0.41), "41%");
    }

    #[test]
    fn bars_are_never_empty_for_something_nor_full_before_the_end() {
        for (value, length) in [
            (40.0, 4),
            (0.001, 1),
            (0.0, 0),
            (80.0, 4),
            (39.9, 3),
            (20.0, 2),
        ] {
            assert_eq!(bar(value, 40.0, 4).chars().count(), length, "{value}");
        }
    }
}
