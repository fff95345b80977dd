//! Certificates of every kind, good and bad.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A directory of them, owned by whoever runs the server.
pub struct Certificates(pub PathBuf);

/// Certificates for servers: good, for another host, expired, with a common name only, its own authority.
pub const SERVERS: [&str; 5] = ["good", "other", "expired", "cn", "own"];

fn names(list: &[&str], common: &str) -> CertificateParams {
    let list: Vec<String> = list.iter().map(|n| n.to_string()).collect();
    let mut params = CertificateParams::new(list).expect("names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    params
}

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = names(&[], name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    (pem, Issuer::new(params, key))
}

impl Certificates {
    /// Makes them all in a directory of the server's.
    pub fn make(data: &Path) -> Self {
        let made = Self(data.to_path_buf());
        let (ca, issuer) = authority("an authority");
        let (stranger, other_issuer) = authority("another authority");
        made.put("ca.crt", &ca, 0o644);
        made.put("stranger.crt", &stranger, 0o644);
        let mut expired = names(&["localhost", "127.0.0.1"], "localhost");
        expired.not_before = date_time_ymd(2019, 1, 1);
        expired.not_after = date_time_ymd(2020, 1, 1);
        made.pair("good", names(&["localhost", "127.0.0.1"], "x"), &issuer);
        made.pair("other", names(&["db.elsewhere"], "localhost"), &issuer);
        made.pair("expired", expired, &issuer);
        made.pair("cn", names(&[], "localhost"), &issuer);
        made.pair("client", names(&[], "certified"), &issuer);
        made.pair("impostor", names(&[], "certified"), &other_issuer);
        // as `openssl req -x509` makes them
        let mut own = names(&[], "localhost");
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        made.put("own.key", &key.serialize_pem(), 0o600);
        made.put(
            "own.crt",
            &own.self_signed(&key).expect("signed").pem(),
            0o644,
        );
        made
    }

    fn pair(&self, name: &str, params: CertificateParams, issuer: &Issuer<'_, KeyPair>) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, issuer).expect("signed");
        self.put(&format!("{name}.key"), &key.serialize_pem(), 0o600);
        self.put(&format!("{name}.crt"), &certificate.pem(), 0o644);
    }

    fn put(&self, name: &str, text: &str, mode: u32) {
        let path = self.0.join(name);
        write(&path, text).expect("written");
        let owner = std::fs::metadata(&self.0).expect("a directory");
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).expect("given");
        set_permissions(&path, Permissions::from_mode(mode)).expect("closed");
    }

    /// A file's path.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A copy that belongs to us, as a client's own key does.
    pub fn copy(&self, name: &str, to: &Path, mode: u32) -> String {
        let path = to.join(format!("{name}-{mode:o}"));
        std::fs::copy(self.0.join(name), &path).expect("copied");
        set_permissions(&path, Permissions::from_mode(mode)).expect("set");
        path.display().to_string()
    }
}
