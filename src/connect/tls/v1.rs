//! Certificates that webpki does not read, above all of version 1: what `openssl x509 -req` made before version 3.2 where it was
//! told no extensions, as in the recipe of Postgres's manual. OpenSSL takes them, and so does libpq.

use super::authority::{may_sign, read, strange, timely, unfit};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{
    CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError};
use std::sync::Arc;
use webpki::RawPublicKeyEntity;
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::Encode;

/// Lists of revoked certificates are to be looked at, which is not done for a certificate of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is of version 1, and lists of revoked certificates are to be looked at")]
pub struct Unlisted;

impl From<Unlisted> for CertificateError {
    fn from(unlisted: Unlisted) -> Self {
        Self::Other(OtherError(Arc::new(unlisted)))
    }
}

/// As many authorities may stand between a certificate and a trusted one.
const BETWEEN: u8 = 3;

/// Does webpki read it?
pub fn modern(certificate: &CertificateDer<'_>) -> bool {
    ParsedCertificate::try_from(certificate).is_ok()
}

/// The public key that a certificate of any version is for.
pub fn key(
    certificate: &CertificateDer<'_>,
) -> Result<SubjectPublicKeyInfoDer<'static>, CertificateError> {
    let about = read(certificate)?.tbs_certificate;
    let key = about.subject_public_key_info.to_der();
    Ok(key.map_err(|_| CertificateError::BadEncoding)?.into())
}

/// Has the owner of the certificate signed a message of TLS 1.2?
pub fn signed_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    known: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let key = key(certificate)?;
    let mut schemes = known.mapping.iter();
    let found = schemes.find(|(scheme, _)| *scheme == signed.scheme);
    let algorithms = found.map_or(&[][..], |(_, algorithms)| algorithms);
    by(
        &key,
        algorithms.iter().copied(),
        message,
        signed.signature(),
    )?;
    Ok(())
}

/// What certificates are held against.
#[derive(Clone, Copy)]
pub struct Measure<'a> {
    /// Authorities whose word is enough.
    pub trusted: &'a [CertificateDer<'a>],
    /// Authorities that the server names.
    pub between: &'a [CertificateDer<'a>],
    /// The time.
    pub now: UnixTime,
    /// Ways to sign.
    pub known: &'a WebPkiSupportedAlgorithms,
}

impl Measure<'_> {
    /// A certificate of version 1: is it good now, and does it come from one of the trusted, or is one of them?
    ///
    /// # Errors
    /// Why not. `None` where it is not of version 1.
    pub fn verified(
        self,
        certificate: &CertificateDer<'_>,
    ) -> Option<Result<(), CertificateError>> {
        let about = read(certificate).ok()?;
        let old = about.tbs_certificate.version == Version::V1;
        old.then(|| {
            timely(&about, self.now)?;
            match self.trusted.iter().any(|t| t == certificate) {
                true => Ok(()),
                false => self.chained(&about, 0),
            }
        })
    }

    /// Is it signed by one of the trusted, or by an authority below one, of which so many stand between already?
    fn chained(self, about: &Certificate, between: u8) -> Result<(), CertificateError> {
        let signs = |authority: &&CertificateDer<'_>| signed_by(about, authority, self.known);
        for authority in self.trusted.iter().filter(signs) {
            let authority = read(authority)?;
            if unfit(&authority, between, self.now).is_none() {
                return Ok(());
            }
        }
        let mut reason = CertificateError::UnknownIssuer;
        if between < BETWEEN {
            for authority in self.between.iter().filter(signs) {
                let authority = read(authority)?;
                if !may_sign(&authority, between) || strange(&authority) {
                    continue;
                }
                let tried = timely(&authority, self.now)
                    .and_then(|()| self.chained(&authority, between + 1));
                match tried {
                    Ok(()) => return Ok(()),
                    Err(error) => reason = error,
                }
            }
        }
        Err(reason)
    }
}

fn signed_by(
    about: &Certificate,
    authority: &CertificateDer<'_>,
    known: &WebPkiSupportedAlgorithms,
) -> bool {
    let Ok(theirs) = read(authority) else {
        return false;
    };
    if theirs.tbs_certificate.subject != about.tbs_certificate.issuer {
        return false;
    }
    let (Ok(key), Ok(message), Ok(how)) = (
        key(authority),
        about.tbs_certificate.to_der(),
        about.signature_algorithm.to_der(),
    ) else {
        return false;
    };
    let Some(signature) = about.signature.as_bytes() else {
        return false;
    };
    // the list has it without the outermost tag and length, which are a byte each: it is short
    let named = known.all.iter().copied().filter(|algorithm| {
        how.get(2..)
            .is_some_and(|how| how == algorithm.signature_alg_id().as_ref())
    });
    by(&key, named, &message, signature).is_ok()
}

/// Is it a signature by that key, by one of those algorithms?
fn by<'a>(
    key: &SubjectPublicKeyInfoDer<'_>,
    algorithms: impl Iterator<Item = &'a dyn SignatureVerificationAlgorithm>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), CertificateError> {
    let key = RawPublicKeyEntity::try_from(key).map_err(|_| CertificateError::BadEncoding)?;
    let mut tried = algorithms.map(|a| key.verify_signature(a, message, signature));
    match tried.any(|outcome| outcome.is_ok()) {
        true => Ok(()),
        false => Err(CertificateError::BadSignature),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SigningKey};

    /// Postgres does not start with a key that is not its certificate's, so no server of the tests signs with another.
    #[test]
    fn only_the_certificates_own_key_signs() {
        let pair = || KeyPair::generate().expect("a key");
        let (own, other) = (pair(), pair());
        let params = CertificateParams::new(vec!["db".into()]).expect("names");
        let certificate = params.self_signed(&own).expect("signed");
        let its_key = key(certificate.der()).expect("read");
        let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let signed = |key: &KeyPair, message: &[u8]| {
            let signature = key.sign(message).expect("signed");
            by(
                &its_key,
                known.all.iter().copied(),
                b"a message",
                &signature,
            )
        };
        assert_eq!(signed(&own, b"a message"), Ok(()));
        let refused = Err(CertificateError::BadSignature);
        assert_eq!(signed(&own, b"another message"), refused);
        assert_eq!(signed(&other, b"a message"), refused);
    }
}
