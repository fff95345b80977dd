//! Certificates and keys from files.

use super::key;
use crate::connect::Secret;
use crate::files;
use anyhow::{Context, Result, bail, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Certificates, one or more.
pub type Certificates = Vec<CertificateDer<'static>>;

/// What this machine trusts (SSL_CERT_FILE and SSL_CERT_DIR say otherwise).
pub fn system() -> Result<Certificates> {
    let found = rustls_native_certs::load_native_certs();
    ensure!(
        !found.certs.is_empty(),
        "sslrootcert=system, and this machine has no trusted certificates: install ca-certificates, or give sslrootcert=FILE"
    );
    Ok(found.certs)
}

/// Is there such a file? One in a directory that we may not look into is: reading it tells why not.
pub fn there(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// The certificates of a PEM file.
pub fn certificates(path: &Path) -> Result<Certificates> {
    let unreadable = || format!("the certificate file {} cannot be read", path.display());
    let text = files::bytes(path).with_context(unreadable)?;
    let found: Result<Certificates, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.with_context(unreadable)?;
    ensure!(
        !found.is_empty(),
        "the certificate file {} has no certificate: it must be a PEM file",
        path.display()
    );
    Ok(found)
}

/// Our certificate with its chain, and its key, which `phrase` opens where it is encrypted. `None` where there is no certificate, as libpq has it.
pub fn pair(
    certificate: &Path,
    key: &Path,
    phrase: Option<&Secret>,
) -> Result<Option<(Certificates, PrivateKeyDer<'static>)>> {
    if !there(certificate) {
        return Ok(None);
    }
    let chain = certificates(certificate)?;
    let name = key.display();
    if key.to_string_lossy().starts_with("engine:") {
        bail!("a key on a cryptographic device cannot be used: give sslkey=FILE");
    }
    let about = std::fs::metadata(key).with_context(|| {
        format!(
            "the client certificate {} has no key file {name}",
            certificate.display()
        )
    })?;
    ensure!(about.is_file(), "the key file {name} is no plain file");
    // libpq's rule: the superuser may share his keys with a group
    let others = if about.uid() == 0 { 0o037 } else { 0o077 };
    ensure!(
        about.mode() & others == 0,
        "the key file {name} is refused, since group or others may use it: chmod {} it",
        // with 0600 it would be root's alone
        match about.uid() == 0 && !nix::unistd::geteuid().is_root() {
            true => "0640",
            false => "0600",
        }
    );
    let text = files::bytes(key).with_context(|| format!("the key file {name} cannot be read"))?;
    let key = key::read(&text, &name.to_string(), phrase)?;
    Ok(Some((chain, key)))
}
