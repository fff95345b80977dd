//! Is the server who it says it is? Signatures of the handshake are always checked; the certificate as far as `sslmode` asks.

use super::name;
use anyhow::{Result, anyhow};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Sees what a handshake came to.
#[derive(Debug)]
pub struct Witness {
    version: AtomicU8,
    verified: &'static str,
}

impl Witness {
    /// What protects the connection: `TLS 1.3, verified`. `None` as long as nothing does.
    pub fn words(&self) -> Option<String> {
        let version = match self.version.load(Ordering::Relaxed) {
            0 => return None,
            version => version,
        };
        Some(format!("TLS 1.{version}, {}", self.verified))
    }
}

/// A verifier: against `roots`, if there are any, with the host's name, if so.
pub fn verifier(
    roots: Option<Vec<CertificateDer<'static>>>,
    name: bool,
    provider: Arc<CryptoProvider>,
) -> Result<(Arc<Verifier>, Arc<Witness>)> {
    let verified = match (&roots, name) {
        (None, _) => "not verified",
        (_, false) => "verified, name not checked",
        (_, true) => "verified",
    };
    let witness = Arc::new(Witness {
        version: AtomicU8::new(0),
        verified,
    });
    let trusted = roots.unwrap_or_default();
    let inner = if trusted.is_empty() {
        None
    } else {
        let mut store = RootCertStore::empty();
        let (good, _) = store.add_parsable_certificates(trusted.iter().cloned());
        if good == 0 {
            return Err(anyhow!(
                "none of the root certificates can be read: X.509 version 3 is needed"
            ));
        }
        Some(
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
                .build()?,
        )
    };
    let verifier = Verifier {
        inner,
        trusted,
        name,
        provider,
        witness: witness.clone(),
    };
    Ok((Arc::new(verifier), witness))
}

/// See [`verifier`].
#[derive(Debug)]
pub struct Verifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    trusted: Vec<CertificateDer<'static>>,
    name: bool,
    provider: Arc<CryptoProvider>,
    witness: Arc<Witness>,
}

impl Verifier {
    /// What webpki says of the chain is the last word, but for a certificate that is itself among the trusted ones: it is its
    /// own authority (`openssl req -x509` makes such), which webpki does not take, and OpenSSL does. Its dates were looked at first.
    fn chain_is_fine(&self, error: &Error, certificate: &CertificateDer<'_>) -> bool {
        use CertificateError as E;
        let Error::InvalidCertificate(error) = error else {
            return false;
        };
        match error {
            E::NotValidForName | E::NotValidForNameContext { .. } => true,
            E::UnknownIssuer | E::Other(_) => self.trusted.iter().any(|t| t == certificate),
            _ => false,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else {
            return Ok(ServerCertVerified::assertion());
        };
        match inner.verify_server_cert(certificate, intermediates, host, ocsp, now) {
            Err(error) if self.chain_is_fine(&error, certificate) => {}
            done => return done,
        }
        if self.name && !name::common(certificate, &host.to_str()) {
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
        let valid = verify_tls12_signature(message, certificate, signed, known)?;
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
        let valid = verify_tls13_signature(message, certificate, signed, known)?;
        self.witness.version.store(3, Ordering::Relaxed);
        Ok(valid)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
