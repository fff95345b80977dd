//! Names that libpq finds a certificate to be for, and webpki does not: the common name, where there is no alternative name of the
//! kind that the host's is (what the examples of Postgres's manual make), and an address that is written as a DNS name.

use super::authority::read;
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Is it this host's all the same?
pub fn also(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let Ok(certificate) = read(certificate) else {
        return false;
    };
    let about = &certificate.tbs_certificate;
    let Ok(alternative) = about.get::<SubjectAltName>() else {
        return false;
    };
    let address = host.parse::<IpAddr>().is_ok();
    let names = || alternative.iter().flat_map(|(_, names)| &names.0);
    let same =
        |n: &GeneralName| matches!(n, GeneralName::DnsName(n) if address && n.as_str() == host);
    let alike = |n: &GeneralName| match n {
        GeneralName::DnsName(_) => !address,
        GeneralName::IpAddress(_) => address,
        _ => false,
    };
    if names().any(same) {
        return true;
    }
    if names().any(alike) {
        return false;
    }
    let parts = about.subject.0.iter().flat_map(|set| set.0.iter());
    let first = parts.filter(|part| part.oid == CN).take(1);
    let mut names = first.filter_map(|part| {
        let text = part
            .value
            .decode_as::<Utf8StringRef<'_>>()
            .map(|t| t.to_string());
        let plain = || {
            part.value
                .decode_as::<PrintableStringRef<'_>>()
                .map(|t| t.to_string())
        };
        text.or_else(|_| plain()).ok()
    });
    names.any(|name| matches(&name, host))
}

/// The same, whatever case, or with `*` for the first label.
fn matches(name: &str, host: &str) -> bool {
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    match (name.strip_prefix("*."), host.split_once('.')) {
        _ if same(name, host) => true,
        (Some(rest), Some((label, tail))) => {
            let address = host.parse::<std::net::IpAddr>().is_ok();
            !label.is_empty() && rest.contains('.') && !address && same(rest, tail)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    #[test]
    fn the_common_name_counts_where_no_alternative_is_of_the_hosts_kind() {
        let dns = |name: &str| SanType::DnsName(name.try_into().expect("a name"));
        let ip = |address: &str| SanType::IpAddress(address.parse().expect("an address"));
        let is_for = |alternatives: Vec<SanType>, host: &str| {
            let mut params = CertificateParams::default();
            params.subject_alt_names = alternatives;
            for name in ["db.example", "10.0.0.1"] {
                params.distinguished_name.push(DnType::CommonName, name);
            }
            let key = KeyPair::generate().expect("a key");
            also(params.self_signed(&key).expect("signed").der(), host)
        };
        for (alternatives, host, hit) in [
            (vec![], "10.0.0.1", true),
            (vec![], "db.example", false),
            (vec![dns("other")], "10.0.0.1", true),
            (vec![dns("other")], "db.example", false),
            (vec![ip("10.0.0.2")], "10.0.0.1", false),
            (vec![ip("10.0.0.2"), dns("10.0.0.3")], "10.0.0.3", true),
        ] {
            let text = format!("{alternatives:?} {host}");
            assert_eq!(is_for(alternatives, host), hit, "{text}");
        }
    }

    #[test]
    fn a_star_stands_for_one_label() {
        for (name, host, hit) in [
            ("db.example.com", "DB.example.com", true),
            ("db.example.com", "db.example.org", false),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "a.b.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.com", "example.com", false),
            ("*.0.0.1", "127.0.0.1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("*", "db", false),
        ] {
            assert_eq!(matches(name, host), hit, "{name} {host}");
        }
    }
}
