//! Who may sign certificates of servers. webpki takes whatever is in the file of the trusted ones for such an authority;
//! OpenSSL, and so libpq, does not: whoever has the key of some server's certificate that lies there could sign for any name.

use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::Decode;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::oid::db::rfc5280::{ANY_EXTENDED_KEY_USAGE, ID_KP_SERVER_AUTH};
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage, NameConstraints};

/// Why a certificate that is trusted is none of an authority's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It has ended.
    #[error("has expired")]
    Expired,
    /// It has not begun.
    #[error("is not valid yet")]
    NotYet,
    /// It must not sign others.
    #[error("is no authority's, by its basicConstraints, keyUsage or extendedKeyUsage")]
    MayNotSign,
}

/// What a certificate says.
pub fn read(certificate: &CertificateDer<'_>) -> Result<Certificate, CertificateError> {
    Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)
}

/// Is it good at that time?
pub fn timely(about: &Certificate, now: UnixTime) -> Result<(), CertificateError> {
    let validity = &about.tbs_certificate.validity;
    let now = now.as_secs();
    if now < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet);
    }
    match now > validity.not_after.to_unix_duration().as_secs() {
        true => Err(CertificateError::Expired),
        false => Ok(()),
    }
}

/// Why a trusted certificate cannot be the authority of others, with so many authorities below it. `None` where it can.
pub fn unfit(about: &Certificate, below: u8, now: UnixTime) -> Option<Unfit> {
    match timely(about, now) {
        Err(CertificateError::NotValidYet) => return Some(Unfit::NotYet),
        Err(_) => return Some(Unfit::Expired),
        Ok(()) => {}
    }
    // one of version 1 has no extensions to say it with
    let may = about.tbs_certificate.version == Version::V1 || may_sign(about, below);
    (!may).then_some(Unfit::MayNotSign)
}

/// Has an authority the right to sign certificates of servers, with so many authorities below it?
pub fn may_sign(authority: &Certificate, below: u8) -> bool {
    let about = &authority.tbs_certificate;
    let (Ok(basic), Ok(usage), Ok(purposes)) = (
        about.get::<BasicConstraints>(),
        about.get::<KeyUsage>(),
        about.get::<ExtendedKeyUsage>(),
    ) else {
        return false;
    };
    let is_one = match basic {
        Some((_, basic)) => basic.ca && basic.path_len_constraint.is_none_or(|most| most >= below),
        None => usage.is_some(),
    };
    let signs = usage.is_none_or(|(_, usage)| usage.key_cert_sign());
    let for_servers = purposes.is_none_or(|(_, purposes)| {
        let mut named = purposes.0.iter();
        named.any(|id| *id == ID_KP_SERVER_AUTH || *id == ANY_EXTENDED_KEY_USAGE)
    });
    is_one && signs && for_servers
}

/// Does it say something about its rights that is not known here?
pub fn strange(authority: &Certificate) -> bool {
    let known =
        |id| id == BasicConstraints::OID || id == KeyUsage::OID || id == ExtendedKeyUsage::OID;
    let mut extensions = authority.tbs_certificate.extensions.iter().flatten();
    extensions.any(|e| !known(e.extn_id) && (e.critical || e.extn_id == NameConstraints::OID))
}
