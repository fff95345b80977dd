//! Our certificate for a server that asks for it, which is noted: `sslcertmode=require` wants to know.

use super::Witness;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, SignatureScheme};
use std::sync::Arc;

/// A certificate with its chain and key.
#[derive(Debug)]
pub struct Proof {
    key: Arc<CertifiedKey>,
    witness: Arc<Witness>,
}

impl Proof {
    /// An error where the key is not the certificate's.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
        witness: &Arc<Witness>,
    ) -> Result<Self, Error> {
        Ok(Self {
            key: Arc::new(CertifiedKey::from_der(chain, key, provider)?),
            witness: witness.clone(),
        })
    }
}

impl ResolvesClientCert for Proof {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.witness.ask();
        Some(self.key.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
