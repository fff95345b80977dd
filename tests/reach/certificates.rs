//! Certificates of every kind, good and bad.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A directory of them, owned by whoever runs the server.
pub struct Certificates(pub PathBuf);

/// Certificates for servers: good, for another host, expired, with a common name only, its own authority.
pub const SERVERS: [&str; 5] = ["good", "other", "expired", "cn", "own"];

/// What `openssl rehash` would call a list of the first authority's, after its name.
pub const HASHED: &str = "5b545f4c.r0";

/// The key of the client certificate, and the same with a pass phrase, as `openssl` writes it: by `pkcs8 -topk8` (with `-v2 des3
/// -v2prf hmacWithSHA1`, `-scrypt`, `-v1 PBE-SHA1-3DES`) and by `ec -aes256` and the like.
pub const KEY: &str = include_str!("keys/plain.pem");

/// The pass phrase of all of them, as a connection string has it.
pub const PHRASE: &str = r"s3cret\\ph";

/// The serial number of the certificate `good`.
const GOOD: u64 = 7;

/// A list of what an authority has revoked, good until the end of that year.
fn list(issuer: &Issuer<'_, KeyPair>, revoked: &[u64], until: i32) -> String {
    let revoked_certs = revoked.iter().map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    });
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(until, 12, 31),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked_certs.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = params.signed_by(issuer).expect("signed");
    list.pem().expect("PEM")
}

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
        made.put("namesake.crt", &authority("an authority").0, 0o644);
        made.put("stranger.crt", &stranger, 0o644);
        let mut expired = names(&["localhost", "127.0.0.1"], "localhost");
        expired.not_before = date_time_ymd(2019, 1, 1);
        expired.not_after = date_time_ymd(2020, 1, 1);
        let mut good = names(&["localhost", "127.0.0.1"], "x");
        good.serial_number = Some(SerialNumber::from(GOOD));
        made.pair("good", good, &issuer);
        made.put("none.crl", &list(&issuer, &[GOOD + 1], 4000), 0o644);
        made.put("revoked.crl", &list(&issuer, &[GOOD], 4000), 0o644);
        made.put("expired.crl", &list(&issuer, &[], 2024), 0o644);
        made.put("stranger.crl", &list(&other_issuer, &[], 4000), 0o644);
        made.pair("other", names(&["db.elsewhere"], "localhost"), &issuer);
        made.pair("expired", expired, &issuer);
        made.pair("cn", names(&[], "localhost"), &issuer);
        let key = KeyPair::from_pem(KEY).expect("a key");
        made.keep("client", names(&[], "certified"), &key, &issuer);
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
        self.keep(name, params, &key, issuer);
    }

    fn keep(
        &self,
        name: &str,
        params: CertificateParams,
        key: &KeyPair,
        issuer: &Issuer<'_, KeyPair>,
    ) {
        let certificate = params.signed_by(key, issuer).expect("signed");
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
