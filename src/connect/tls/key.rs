//! A private key from a file: PEM or DER, as it is or encrypted with a pass phrase, by PKCS#8 or as OpenSSL wrote keys before
//! version 3 (`Proc-Type: 4,ENCRYPTED`).

use crate::connect::Secret;
use anyhow::{Context, Result, bail, ensure};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use md5::{Digest, Md5};
use pem::Pem;
use pkcs8::{EncryptedPrivateKeyInfoRef, Error, pkcs5};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

/// A key that cannot be used without its pass phrase: the name of its file.
#[derive(Debug, thiserror::Error)]
#[error(
    "the key file {0} is encrypted: give its pass phrase in sslpassword, or answer the question on a terminal"
)]
pub struct Locked(pub String);

/// Is it encrypted?
pub fn locked(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).contains("ENCRYPTED")
}

/// The key in a file of that name.
///
/// # Errors
/// One sentence; [`Locked`] where a pass phrase is missing.
pub fn read(bytes: &[u8], name: &str, phrase: Option<&Secret>) -> Result<PrivateKeyDer<'static>> {
    let none = || format!("the key file {name} has no private key: it must be a PEM or DER file");
    if !locked(bytes) {
        let key = PrivateKeyDer::from_pem_slice(bytes).ok();
        let der = || PrivateKeyDer::try_from(bytes.to_vec()).ok();
        return key.or_else(der).with_context(none);
    }
    let Some(phrase) = phrase.map(|p| p.reveal().as_bytes()) else {
        return Err(Locked(name.into()).into());
    };
    let blocks = pem::parse_many(bytes).with_context(none)?;
    let mut blocks = blocks.iter().filter(|b| b.tag().ends_with("PRIVATE KEY"));
    let block = blocks.next().with_context(none)?;
    let opened = match block.headers().get("DEK-Info") {
        Some(how) => traditional(block, how, phrase),
        None => modern(block, phrase),
    };
    match opened {
        Opened::Key(der) => Ok(der),
        Opened::WrongPhrase => bail!(
            "the pass phrase does not open the key file {name}: look at sslpassword, or try openssl pkey -in {name}"
        ),
        Opened::Unknown => bail!(
            "the key file {name} is encrypted in a way that jobtop does not know: write it anew with openssl pkcs8 -topk8"
        ),
    }
}

/// What trying a pass phrase came to.
enum Opened {
    Key(PrivateKeyDer<'static>),
    WrongPhrase,
    Unknown,
}

impl Opened {
    /// A wrong pass phrase may look right to a cipher, but gives no key.
    fn new(der: Option<Vec<u8>>) -> Self {
        match der.map(PrivateKeyDer::try_from) {
            Some(Ok(key)) => Self::Key(key),
            _ => Self::WrongPhrase,
        }
    }
}

fn modern(block: &Pem, phrase: &[u8]) -> Opened {
    use pkcs5::Error as E;
    let Ok(info) = EncryptedPrivateKeyInfoRef::try_from(block.contents()) else {
        return Opened::Unknown;
    };
    match info.decrypt(phrase) {
        Ok(der) => Opened::new(Some(der.as_bytes().to_vec())),
        Err(Error::EncryptedPrivateKey(E::DecryptFailed) | Error::Asn1(_)) => Opened::WrongPhrase,
        Err(_) => Opened::Unknown,
    }
}

/// `DEK-Info: AES-256-CBC,(salt and first block in hexadecimal digits)`.
fn traditional(block: &Pem, how: &str, phrase: &[u8]) -> Opened {
    let Some((cipher, Ok(iv))) = how.split_once(',').map(|(c, iv)| (c, bytes(iv))) else {
        return Opened::Unknown;
    };
    let sealed = block.contents();
    match cipher.trim() {
        "AES-128-CBC" => Opened::new(open::<aes::Aes128>(sealed, &iv, phrase)),
        "AES-192-CBC" => Opened::new(open::<aes::Aes192>(sealed, &iv, phrase)),
        "AES-256-CBC" => Opened::new(open::<aes::Aes256>(sealed, &iv, phrase)),
        "DES-EDE3-CBC" => Opened::new(open::<des::TdesEde3>(sealed, &iv, phrase)),
        _ => Opened::Unknown,
    }
}

fn bytes(digits: &str) -> Result<Vec<u8>> {
    let digits = digits.trim();
    ensure!(digits.is_ascii() && digits.len() >= 16, "no salt");
    let pairs = (0..digits.len()).step_by(2);
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2).unwrap_or_default(), 16);
    Ok(pairs.map(byte).collect::<Result<_, _>>()?)
}

/// The key of the cipher is what OpenSSL's `EVP_BytesToKey` makes of phrase and salt: MD5 over and over.
fn open<C>(sealed: &[u8], iv: &[u8], phrase: &[u8]) -> Option<Vec<u8>>
where
    C: BlockCipherDecrypt + KeyInit,
    cbc::Decryptor<C>: KeyIvInit + BlockModeDecrypt,
{
    let wanted = <cbc::Decryptor<C> as cbc::cipher::KeySizeUser>::key_size();
    let (mut key, mut last) = (Vec::new(), Vec::new());
    while key.len() < wanted {
        let hash = Md5::new_with_prefix(&last).chain_update(phrase);
        last = hash.chain_update(&iv[..8]).finalize().to_vec();
        key.extend_from_slice(&last);
    }
    let cipher = cbc::Decryptor::<C>::new_from_slices(&key[..wanted], iv).ok()?;
    let mut text = sealed.to_vec();
    let n = cipher.decrypt_padded::<Pkcs7>(&mut text).ok()?.len();
    text.truncate(n);
    Some(text)
}
