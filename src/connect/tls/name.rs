//! The common name of a certificate without alternative names: what the examples of Postgres's manual make, and what libpq
//! accepts for the host's name. webpki does not.

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Is it this host's by its common name, since it has no alternative names?
pub fn common(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let Ok(certificate) = Certificate::from_der(certificate) else {
        return false;
    };
    let about = &certificate.tbs_certificate;
    let named = |n: &GeneralName| matches!(n, GeneralName::DnsName(_) | GeneralName::IpAddress(_));
    match about.get::<SubjectAltName>() {
        Ok(None) => {}
        Ok(Some((_, names))) if !names.0.iter().any(named) => {}
        _ => return false,
    }
    let parts = about.subject.0.iter().flat_map(|set| set.0.iter());
    let mut names = parts.filter(|part| part.oid == CN).filter_map(|part| {
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
    use super::matches;

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
