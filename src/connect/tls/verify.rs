//! Is the server who it says it is? Signatures of the handshake are always checked; the certificate as far as `sslmode` asks.

use super::authority::{self, Unfit, read, timely};
use super::name;
use super::revoked::Lists;
use super::v1::{self, Measure};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Sees what a handshake came to.
#[derive(Debug)]
pub struct Witness {
    version: AtomicU8,
    verified: &'static str,
    asked: AtomicBool,
}

impl Witness {
    /// The server asks for our certificate.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Has it?
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// What protects the connection: `TLS 1.3, verified`. `None` as long as nothing does.
    pub fn words(&self) -> Option<String> {
        let version = match self.version.load(Ordering::Relaxed) {
            0 => return None,
            version => version,
        };
        Some(format!("TLS 1.{version}, {}", self.verified))
    }
}

/// Files that no verifier can be made of.
pub enum Unusable {
    /// None of the root certificates can be read.
    Roots,
    /// One of the lists cannot, and why.
    Lists(String),
}

/// A verifier: against `roots`, if there are any, and the lists of `revoked` certificates, if so; with the host's name, if so.
pub fn verifier(
    roots: Option<Vec<CertificateDer<'static>>>,
    revoked: Option<Lists>,
    name: bool,
    provider: Arc<CryptoProvider>,
) -> Result<(Arc<Verifier>, Arc<Witness>), Unusable> {
    let verified = match (&roots, name) {
        (None, _) => "not verified",
        (_, false) => "verified, name not checked",
        (_, true) => "verified",
    };
    let witness = Arc::new(Witness {
        version: AtomicU8::new(0),
        verified,
        asked: AtomicBool::new(false),
    });
    let mut fit = RootCertStore::empty();
    let mut unfit = None;
    for root in roots.iter().flatten() {
        // what is none of an authority's may still be the server's own
        let why = read(root)
            .ok()
            .and_then(|root| authority::unfit(&root, 0, UnixTime::now()));
        match why {
            Some(why) => unfit = unfit.or(Some(why)),
            None => _ = fit.add(root.clone()),
        }
    }
    if roots.is_some() && fit.is_empty() && unfit.is_none() {
        return Err(Unusable::Roots);
    }
    let inner = match fit.is_empty() {
        true => None,
        false => {
            // libpq has OpenSSL look at the whole chain, and there a certificate of an authority without a list of its own is
            // refused, as is a list that has expired: webpki's own policy for the one, not for the other
            let built =
                WebPkiServerVerifier::builder_with_provider(Arc::new(fit), provider.clone())
                    .with_crls(revoked.iter().flatten().cloned())
                    .enforce_revocation_expiration()
                    .build();
            Some(built.map_err(|e| Unusable::Lists(e.to_string()))?)
        }
    };
    let verifier = Verifier {
        trusted: roots,
        inner,
        unfit,
        lists: revoked.map(|lists| lists.len()),
        name,
        provider,
        witness: witness.clone(),
    };
    Ok((Arc::new(verifier), witness))
}

/// See [`verifier`].
#[derive(Debug)]
pub struct Verifier {
    /// `None` where nothing is verified.
    trusted: Option<Vec<CertificateDer<'static>>>,
    /// `None` where none of the trusted is an authority.
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Why one of the trusted is none.
    unfit: Option<Unfit>,
    /// Where revoked certificates are looked for: in so many lists.
    lists: Option<usize>,
    name: bool,
    provider: Arc<CryptoProvider>,
    witness: Arc<Witness>,
}

impl Verifier {
    /// What webpki says of the chain is the last word, but for a certificate that is itself among the trusted ones: it is its
    /// own authority (`openssl req -x509` makes such), which webpki does not take, and OpenSSL does. Its dates were looked at first.
    fn is_its_own(&self, error: &CertificateError, certificate: &CertificateDer<'_>) -> bool {
        use CertificateError as E;
        matches!(error, E::UnknownIssuer | E::Other(_))
            && self.trusted.iter().flatten().any(|t| t == certificate)
    }

    /// No authority that is trusted has signed it: or one that may not.
    fn unknown(&self) -> CertificateError {
        match self.unfit {
            Some(unfit) => CertificateError::Other(OtherError(Arc::new(unfit))),
            None => CertificateError::UnknownIssuer,
        }
    }

    /// Is the chain good? What webpki says, or where no authority is trusted, that there is none.
    fn chain(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        match &self.inner {
            Some(inner) => inner
                .verify_server_cert(certificate, intermediates, host, &[], now)
                .map(|_| ()),
            None => {
                timely(&read(certificate)?, now)?;
                Err(CertificateError::UnknownIssuer.into())
            }
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trusted) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        use CertificateError as E;
        let measure = Measure {
            trusted,
            between: intermediates,
            now,
            known: &self.provider.signature_verification_algorithms,
        };
        if let Some(verified) = measure.verified(certificate) {
            verified.map_err(|error| match error {
                E::UnknownIssuer => self.unknown(),
                error => error,
            })?;
            return match (
                self.lists,
                self.name && !name::also(certificate, &host.to_str()),
            ) {
                (Some(_), _) => Err(E::from(v1::Unlisted).into()),
                (None, true) => Err(E::NotValidForName.into()),
                (None, false) => Ok(ServerCertVerified::assertion()),
            };
        }
        let chain = self.chain(certificate, intermediates, host, now);
        let (named, listed) = match chain {
            Ok(()) => (true, true),
            // names come last: the chain is fine
            Err(Error::InvalidCertificate(
                E::NotValidForName | E::NotValidForNameContext { .. },
            )) => (false, true),
            // no list was looked at for it, and libpq would want its own
            Err(Error::InvalidCertificate(error)) if self.is_its_own(&error, certificate) => {
                (false, false)
            }
            Err(Error::InvalidCertificate(E::UnknownIssuer)) => return Err(self.unknown().into()),
            Err(error) => return Err(error),
        };
        if self.lists.is_some_and(|n| n == 0 || !listed) {
            return Err(E::UnknownRevocationStatus.into());
        }
        if named {
            return Ok(ServerCertVerified::assertion());
        }
        if self.name && !name::also(certificate, &host.to_str()) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, host)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        let valid = match v1::modern(certificate) {
            true => verify_tls12_signature(message, certificate, signed, known)?,
            false => {
                v1::signed_tls12(message, certificate, signed, known)?;
                HandshakeSignatureValid::assertion()
            }
        };
        self.witness.version.store(2, Ordering::Relaxed);
        Ok(valid)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        let valid = match v1::modern(certificate) {
            true => verify_tls13_signature(message, certificate, signed, known)?,
            false => {
                let key = v1::key(certificate)?;
                verify_tls13_signature_with_raw_key(message, &key, signed, known)?
            }
        };
        self.witness.version.store(3, Ordering::Relaxed);
        Ok(valid)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
