//! Lists of revoked certificates: `sslcrl`, `sslcrldir`, else `~/.postgresql/root.crl`. As with libpq, a file that is not there
//! or holds no list is as good as none (which is said aloud where it was named), and a directory is for files with the names
//! that `openssl rehash` gives.

use crate::files;
use anyhow::Result;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::{PemObject, SectionKind};
use std::path::{Path, PathBuf};

/// Lists, one or more.
pub type Lists = Vec<CertificateRevocationListDer<'static>>;

/// Where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// A file that was named.
    pub file: Option<PathBuf>,
    /// A directory that was named.
    pub directory: Option<PathBuf>,
    /// The file that counts where neither was.
    pub usual: PathBuf,
}

impl Places {
    /// The lists that are to be looked at, read anew. `None` where nothing is to be looked at; an empty list of them refuses
    /// every certificate, as an empty directory does there.
    pub fn load(&self) -> Option<Lists> {
        let named = self.file.is_some() || self.directory.is_some();
        let file = self.file.as_ref().or((!named).then_some(&self.usual));
        let from_file = file.and_then(|path| file_of_lists(path));
        let from_directory = self.directory.as_ref().map(|path| hashed(path));
        if from_file.is_none() && from_directory.is_none() {
            return None;
        }
        let mut lists = from_file.unwrap_or_default();
        lists.extend(from_directory.unwrap_or_default());
        Some(lists)
    }

    /// Where they are looked for, in words.
    pub fn words(&self) -> String {
        let named = [("sslcrl", &self.file), ("sslcrldir", &self.directory)];
        let named = named.into_iter().filter_map(|(name, path)| {
            let path = path.as_ref()?;
            Some(format!("{} ({name})", path.display()))
        });
        let named: Vec<String> = named.collect();
        match named.is_empty() {
            true => self.usual.display().to_string(),
            false => named.join(" or "),
        }
    }

    /// What the person at the terminal should know.
    pub fn warning(&self) -> Option<String> {
        let path = self.file.as_ref()?;
        file_of_lists(path).is_none().then(|| {
            format!(
                "no revoked certificate is refused for sslcrl, as with psql: {} cannot be read, or is no PEM file",
                path.display()
            )
        })
    }
}

/// The lists of a PEM file. None at all are some where it has certificates, which OpenSSL takes for success.
fn file_of_lists(path: &Path) -> Option<Lists> {
    let text = files::bytes(path).ok()?;
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let sections = sections.ok().filter(|found| !found.is_empty())?;
    let lists = sections
        .into_iter()
        .filter(|(kind, _)| *kind == SectionKind::Crl);
    Some(lists.map(|(_, der)| der.into()).collect())
}

/// Files such as `0123abcd.r0`.
fn hashed(directory: &Path) -> Lists {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter(|e| is_hash(&e.file_name().to_string_lossy()));
    named
        .filter_map(|e| file_of_lists(&e.path()))
        .flatten()
        .collect()
}

fn is_hash(name: &str) -> bool {
    let Some((hash, number)) = name.split_once(".r") else {
        return false;
    };
    let digits = number.bytes().all(|b| b.is_ascii_digit());
    hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit()) && digits && !number.is_empty()
}
