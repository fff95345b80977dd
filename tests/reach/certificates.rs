//! Certificates of every kind, good and bad.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber, SigningKey, date_time_ymd,
};
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use x509_cert::der::asn1::BitString;
use x509_cert::der::{Decode, Encode};

/// A directory of them, owned by whoever runs the server.
pub struct Certificates(pub PathBuf);

/// Certificates for servers: good, for another host, expired, with a common name only, its own authority. The others are of
/// [`version_1`]: good, for another host, expired, by an authority between, its own authority; the last is a usual one by an
/// authority of that version.
pub const SERVERS: [&str; 11] = [
    "good",
    "other",
    "expired",
    "cn",
    "own",
    "v1",
    "v1other",
    "v1expired",
    "v1between",
    "v1own",
    "v1ca",
];

/// Certificates of version 1 below an authority between them and the trusted one (`pinned`: which is itself the trusted one),
/// and whether libpq takes them.
pub const BELOW: [(&str, bool); 11] = [
    ("two", true),
    ("usage", true),
    ("noca", false),
    ("pinned", false),
    ("expired", false),
    ("unsigning", false),
    ("clients", false),
    ("short", false),
    ("namesake", false),
    ("critical", false),
    ("forged", false),
];

/// Trusted certificates that are no authority's, and part of what is said about certificates below them.
pub const UNFIT: [(&str, &str); 6] = [
    ("fine", ""),
    ("noca", "is no authority's"),
    ("expired", "where a certificate has expired"),
    ("future", "where a certificate is not valid yet"),
    ("unsigning", "is no authority's"),
    ("clients", "is no authority's"),
];

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

/// What keeps an authority from being one.
fn limit(params: &mut CertificateParams, how: &str) {
    match how {
        "noca" | "pinned" => params.is_ca = IsCa::ExplicitNoCa,
        "expired" => {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        "future" => params.not_before = date_time_ymd(4000, 1, 1),
        "unsigning" => params.key_usages = vec![KeyUsagePurpose::DigitalSignature],
        "clients" => params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        _ => {}
    }
}

/// The same certificate of version 1, without extensions: as `openssl x509 -req` made them before 3.2.
fn version_1(certificate: &rcgen::Certificate, issuer: &KeyPair) -> String {
    let mut made = x509_cert::Certificate::from_der(certificate.der()).expect("read");
    made.tbs_certificate.version = x509_cert::Version::V1;
    made.tbs_certificate.extensions = None;
    let signed = issuer.sign(&made.tbs_certificate.to_der().expect("written"));
    made.signature = BitString::from_bytes(&signed.expect("signed")).expect("bits");
    let made = pem::Pem::new("CERTIFICATE", made.to_der().expect("written"));
    pem::encode(&made)
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
        made.all_of_version_1(&issuer);
        made.all_below(&issuer);
        made.all_unfit();
        made
    }

    fn all_of_version_1(&self, issuer: &Issuer<'_, KeyPair>) {
        let key = || KeyPair::generate().expect("a key");
        let signed = |params: &CertificateParams, key: &KeyPair, issuer: &Issuer<'_, KeyPair>| {
            let certificate = params.signed_by(key, issuer).expect("signed");
            version_1(&certificate, issuer.key())
        };
        let pair = |name: &str, key: &KeyPair, certificate: &str| {
            self.put(&format!("{name}.key"), &key.serialize_pem(), 0o600);
            self.put(&format!("{name}.crt"), certificate, 0o644);
        };
        let own = |common: &str| {
            let (key, mut params) = (key(), names(&[], common));
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = version_1(&params.self_signed(&key).expect("signed"), &key);
            (certificate, key, params)
        };
        let mut expired = names(&[], "localhost");
        expired.not_before = date_time_ymd(2019, 1, 1);
        expired.not_after = date_time_ymd(2020, 1, 1);
        for (name, params) in [
            ("v1", names(&[], "localhost")),
            ("v1other", names(&[], "db.elsewhere")),
            ("v1expired", expired),
        ] {
            let key = key();
            pair(name, &key, &signed(&params, &key, issuer));
        }
        let mut params = names(&[], "an authority between");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let its_key = key();
        let certificate = params.signed_by(&its_key, issuer).expect("signed").pem();
        self.put("between.crt", &certificate, 0o644);
        let between = Issuer::new(params, its_key);
        let leaf = key();
        let chain = signed(&names(&[], "localhost"), &leaf, &between) + &certificate;
        pair("v1between", &leaf, &chain);
        let (certificate, key, _) = own("localhost");
        pair("v1own", &key, &certificate);
        let (certificate, key, params) = own("an authority of version 1");
        self.put("v1root.crt", &certificate, 0o644);
        self.pair(
            "v1ca",
            names(&["localhost"], "x"),
            &Issuer::new(params, key),
        );
        let key = KeyPair::from_pem(KEY).expect("a key");
        self.put(
            "v1client.crt",
            &signed(&names(&[], "certified"), &key, issuer),
            0o644,
        );
    }

    /// Those of [`BELOW`].
    fn all_below(&self, issuer: &Issuer<'_, KeyPair>) {
        let key = || KeyPair::generate().expect("a key");
        let namesake = authority("an authority").1;
        for (name, _) in BELOW {
            let mut params = names(&[], "an authority between");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let mut above = issuer;
            limit(&mut params, name);
            match name {
                "usage" => {
                    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
                    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                }
                "short" => params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)),
                "namesake" => above = &namesake,
                "critical" => {
                    let mut strange = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
                    strange.set_criticality(true);
                    params.custom_extensions = vec![strange];
                }
                _ => {}
            }
            let its_key = key();
            let mut chain = params.signed_by(&its_key, above).expect("signed").pem();
            if name == "pinned" {
                self.put("pinned.crt", &chain, 0o644);
            }
            let mut last = Issuer::new(params, its_key);
            if ["two", "short"].contains(&name) {
                let mut params = names(&[], "another between");
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                let its_key = key();
                chain = params.signed_by(&its_key, &last).expect("signed").pem() + &chain;
                last = Issuer::new(params, its_key);
            }
            let leaf = key();
            let signer = key();
            let signer = if name == "forged" {
                &signer
            } else {
                last.key()
            };
            let certificate = names(&[], "localhost")
                .signed_by(&leaf, &last)
                .expect("signed");
            self.put(&format!("below-{name}.key"), &leaf.serialize_pem(), 0o600);
            let chain = version_1(&certificate, signer) + &chain;
            self.put(&format!("below-{name}.crt"), &chain, 0o644);
        }
    }

    /// Those of [`UNFIT`].
    fn all_unfit(&self) {
        for (name, _) in UNFIT {
            let mut params = names(&[], name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            limit(&mut params, name);
            let key = KeyPair::generate().expect("a key");
            let root = params.self_signed(&key).expect("signed");
            self.put(&format!("root-{name}.crt"), &root.pem(), 0o644);
            let below = names(&["localhost"], "x");
            self.pair(&format!("under-{name}"), below, &Issuer::new(params, key));
        }
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
