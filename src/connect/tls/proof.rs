//! Our certificate, if there is one, for a server that asks for it, which is noted: `sslcertmode=require` wants to know, and a
//! handshake that fails may have failed for that.

use super::{Witness, v1};
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureScheme};
use std::sync::Arc;

/// A certificate with its chain and key, or none.
#[derive(Debug)]
pub struct Proof {
    key: Option<Arc<CertifiedKey>>,
    witness: Arc<Witness>,
}

impl Proof {
    /// We have none.
    pub fn none(witness: &Arc<Witness>) -> Self {
        Self {
            key: None,
            witness: witness.clone(),
        }
    }

    /// An error where the key is not the certificate's, of whatever version that is.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
        witness: &Arc<Witness>,
    ) -> Result<Self, Error> {
        let key = match chain.first().is_some_and(|own| !v1::modern(own)) {
            false => CertifiedKey::from_der(chain, key, provider)?,
            true => {
                let key = CertifiedKey::new(chain, provider.key_provider.load_private_key(key)?);
                let theirs = v1::key(key.end_entity_cert()?)?;
                match key.key.public_key() {
                    Some(ours) if ours != theirs => {
                        return Err(InconsistentKeys::KeyMismatch.into());
                    }
                    _ => key,
                }
            }
        };
        Ok(Self {
            key: Some(Arc::new(key)),
            witness: witness.clone(),
        })
    }
}

impl ResolvesClientCert for Proof {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.witness.ask();
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}
