//! TLS by libpq's rules: what `sslmode` asks for, which certificates are trusted, and who we are. The server's certificate is
//! looked at in verify; files are read anew for each connection, since certificates are renewed while jobtop runs.

mod authority;
mod files;
mod key;
mod name;
mod proof;
mod revoked;
mod roots;
mod v1;
mod verify;
mod words;

pub use key::Locked;
pub use verify::Witness;
pub(super) use words::{cut, not_direct, words};

use super::Secret;
use super::settings::{self, Env, Settings};
use anyhow::{Result, anyhow, bail, ensure};
use proof::Proof;
use roots::Roots;
use rustls::crypto::ring::default_provider;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, Error, SupportedProtocolVersion};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use verify::Unusable;

/// `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Never TLS.
    Disable,
    /// Only where the server insists.
    Allow,
    /// Where the server can.
    Prefer,
    /// Always; verified where a root certificate is there.
    Require,
    /// Always, and the certificate comes from a trusted authority.
    VerifyCa,
    /// Always, and the certificate is that host's.
    VerifyFull,
}

impl Mode {
    /// As in `sslmode`.
    pub fn name(self) -> Option<&'static str> {
        let found = MODES.iter().find(|(_, mode)| *mode == self);
        found.map(|(name, _)| *name)
    }
}

const MODES: [(&str, Mode); 6] = [
    ("disable", Mode::Disable),
    ("allow", Mode::Allow),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-ca", Mode::VerifyCa),
    ("verify-full", Mode::VerifyFull),
];

/// Our own certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Client {
    certificate: PathBuf,
    key: PathBuf,
    /// What opens the key.
    phrase: Option<Secret>,
    /// It is an error if there is none, or the server does not ask for it.
    needed: bool,
}

/// What the settings say about TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    /// `sslmode`.
    pub mode: Mode,
    /// `sslnegotiation=direct`: without asking first, from server version 17 on.
    pub direct: bool,
    /// Files were named: nothing may be done without them.
    pub named: bool,
    roots: Roots,
    revoked: revoked::Places,
    client: Option<Client>,
    sni: bool,
    versions: Versions,
}

type Versions = &'static [&'static SupportedProtocolVersion];

static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

impl Tls {
    /// None at all.
    pub fn off() -> Self {
        Self {
            mode: Mode::Disable,
            direct: false,
            named: false,
            roots: Roots::Usual(PathBuf::new()),
            revoked: revoked::Places::default(),
            client: None,
            sni: true,
            versions: &BOTH,
        }
    }

    /// As the settings have it.
    pub fn read(s: &Settings, env: &Env<'_>) -> Result<Self> {
        let home = settings::home(env).unwrap_or_default();
        let usual = |name: &str| home.join(".postgresql").join(name);
        let path = |key: &str| s.text(key).map(PathBuf::from);
        let given = s.word("sslmode", &MODES)?;
        let system = s.text("sslrootcert") == Some("system");
        let mode = given.unwrap_or(if system {
            Mode::VerifyFull
        } else {
            Mode::Prefer
        });
        ensure!(
            !system || mode == Mode::VerifyFull,
            "sslrootcert=system trusts many authorities, so it needs sslmode=verify-full: leave the other sslmode out"
        );
        let direct = s.word("sslnegotiation", &[("postgres", false), ("direct", true)])?;
        let direct = direct.unwrap_or_default();
        ensure!(
            !direct || mode >= Mode::Require,
            "sslnegotiation=direct cannot do without TLS: add sslmode=require, verify-ca or verify-full"
        );
        let certmode = [
            ("disable", None),
            ("allow", Some(false)),
            ("require", Some(true)),
        ];
        let needed = s.word("sslcertmode", &certmode)?.unwrap_or(Some(false));
        let client = needed.map(|needed| Client {
            certificate: path("sslcert").unwrap_or_else(|| usual("postgresql.crt")),
            key: path("sslkey").unwrap_or_else(|| usual("postgresql.key")),
            phrase: s.text("sslpassword").map(Secret::new),
            needed,
        });
        Ok(Self {
            mode,
            direct,
            named: ["sslrootcert", "sslcert", "sslkey"]
                .iter()
                .any(|key| s.text(key).is_some()),
            roots: match path("sslrootcert") {
                _ if system => Roots::System,
                Some(file) => Roots::File(file),
                None => Roots::Usual(usual("root.crt")),
            },
            revoked: revoked::Places {
                file: path("sslcrl"),
                directory: path("sslcrldir"),
                usual: usual("root.crl"),
            },
            client,
            // libpq looks at the first character only
            sni: s.text("sslsni").is_none_or(|on| on.starts_with('1')),
            versions: versions(s)?,
        })
    }

    /// What the person at the terminal should know.
    pub fn warnings(&self) -> Option<String> {
        let named = self.revoked.file.is_some() || self.revoked.directory.is_some();
        match self.roots {
            Roots::System if named => Some(
                "sslcrl and sslcrldir have no effect with sslrootcert=system, as with psql: give the authority's own file there"
                    .into(),
            ),
            Roots::System => None,
            Roots::File(ref path) if self.mode < Mode::VerifyCa && self.mode > Mode::Allow && !files::there(path) => Some(format!(
                "the server's certificate is not verified, as with psql: there is no file {} (sslrootcert)",
                path.display()
            )),
            _ => self.revoked.warning(),
        }
    }

    /// Our key is encrypted, and no pass phrase is known.
    pub fn locked(&self) -> bool {
        let client = self.client.as_ref().filter(|c| c.phrase.is_none());
        let client = client.filter(|c| self.mode != Mode::Disable && files::there(&c.certificate));
        let key = client.and_then(|c| crate::files::bytes(&c.key).ok());
        key.is_some_and(|bytes| key::locked(&bytes))
    }

    /// What is wrong with a login in which the server has, or has not, `asked` for our certificate.
    pub fn unproved(&self, asked: bool) -> Option<String> {
        let needed = self.client.as_ref().is_some_and(|c| c.needed);
        (needed && !asked).then(|| {
            "the server asks for no client certificate, and sslcertmode=require wants that: leave it out, or use cert in pg_hba.conf"
                .into()
        })
    }

    /// A configuration for one connection, and who sees what becomes of it. `phrase` opens the key where the settings have
    /// none that does. An error is one sentence, or [`Locked`].
    pub fn config(&self, phrase: Option<&Secret>) -> Result<(ClientConfig, Arc<Witness>)> {
        ensure!(
            !self.versions.is_empty(),
            "no TLS version is left by ssl_min_protocol_version and ssl_max_protocol_version: 1.2 and 1.3 are supported"
        );
        let provider = Arc::new(default_provider());
        let roots = self.roots.load(self.mode)?;
        let full = self.mode == Mode::VerifyFull;
        let revoked = match (&roots, &self.roots) {
            // libpq looks for revoked certificates only where it has a file of authorities
            (None, _) | (_, Roots::System) => None,
            _ => self.revoked.load(),
        };
        let verifier = verify::verifier(roots, revoked, full, provider.clone());
        let (verifier, witness) = verifier.map_err(|unusable| match unusable {
            Unusable::Roots => anyhow!(
                "no certificate can be read in {}: X.509 version 3 is needed",
                self.roots.words()
            ),
            Unusable::Lists(error) => anyhow!(
                "a list of revoked certificates cannot be used in {}: {error}; make it with version 2",
                self.revoked.words()
            ),
        })?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(self.versions)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let pair = match &self.client {
            Some(client) => {
                let phrase = client.phrase.as_ref().or(phrase);
                let pair = files::pair(&client.certificate, &client.key, phrase)?;
                pair.map(|pair| (client, pair))
            }
            None => None,
        };
        ensure!(
            pair.is_some() || !self.client.as_ref().is_some_and(|c| c.needed),
            "sslcertmode=require wants a client certificate, and {}: give sslcert and sslkey",
            self.shows()
        );
        let proof = match pair {
            Some((client, (chain, key))) => Proof::new(chain, key, &provider, &witness).map_err(|error| {
                let (certificate, key) = (client.certificate.display(), client.key.display());
                match error {
                    Error::InconsistentKeys(_) => anyhow!(
                        "the key {key} is not the one of the client certificate {certificate}: give the one that it was made with"
                    ),
                    Error::General(_) => anyhow!(
                        "the key {key} is of a kind that jobtop cannot use: RSA to 4096 bits, ECDSA P-256 or P-384 and Ed25519 it can"
                    ),
                    error => anyhow!(
                        "the client certificate {certificate} and its key {key} cannot be used: {error}"
                    ),
                }
            })?,
            None => Proof::none(&witness),
        };
        let mut config = builder.with_client_cert_resolver(Arc::new(proof));
        config.enable_sni = self.sni;
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        // a resumed session would not be verified again
        config.resumption = rustls::client::Resumption::disabled();
        Ok((config, witness))
    }

    /// Is the server's certificate verified?
    pub fn verifies(&self) -> bool {
        self.roots.file().is_none_or(files::there)
    }

    /// What we have to show for a certificate of our own.
    pub fn shows(&self) -> String {
        match self.client_certificate() {
            Some(path) if files::there(path) => format!("ours is {}", path.display()),
            Some(path) => format!("there is none in {}", path.display()),
            None => "sslcertmode=disable shows none".into(),
        }
    }

    /// Which file would hold our certificate, for a server that wants one.
    pub fn client_certificate(&self) -> Option<&Path> {
        self.client.as_ref().map(|c| c.certificate.as_path())
    }
}

/// The versions between the bounds. Below 1.2 there is nothing that protects; whether that is needed, a connection tells.
fn versions(s: &Settings) -> Result<Versions> {
    let names = [
        ("TLSv1", 10),
        ("TLSv1.1", 11),
        ("TLSv1.2", 12),
        ("TLSv1.3", 13),
    ];
    let bound = |key: &str, otherwise: i32| {
        let Some(text) = s.text(key) else {
            return Ok(otherwise);
        };
        match names
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
        {
            Some((_, version)) => Ok(*version),
            None => bail!("{key} is none of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"),
        }
    };
    let least = bound("ssl_min_protocol_version", 12)?;
    let most = bound("ssl_max_protocol_version", 13)?;
    ensure!(
        least <= most,
        "ssl_min_protocol_version is above ssl_max_protocol_version: leave one of them out"
    );
    Ok(match (least.max(12), most) {
        (12, 13) => &BOTH,
        (13, 13) => &BOTH[..1],
        (12, 12) => &BOTH[1..],
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::settings::Given;

    fn read(string: &str) -> Result<Tls> {
        let given = Given {
            string: Some(string.into()),
            ..Given::default()
        };
        let env = |name: &str| (name == "HOME").then(|| "/nonexistent".to_string());
        Tls::read(&Settings::gather(&given, &env)?, &env)
    }

    #[test]
    fn modes_are_libpqs() {
        for (string, mode) in [
            ("host=h", Mode::Prefer),
            ("sslmode=allow", Mode::Allow),
            ("sslmode=verify-ca", Mode::VerifyCa),
            ("sslrootcert=system", Mode::VerifyFull),
            ("postgres://h/d?ssl=true", Mode::Require),
        ] {
            assert_eq!(read(string).expect(string).mode, mode, "{string}");
        }
        for (string, part) in [
            ("sslmode=on", "verify-full"),
            ("sslmode=''", "sslmode is empty"),
            ("sslmode=require sslrootcert=system", "sslmode=verify-full"),
            ("sslnegotiation=direct", "sslmode=require"),
            ("ssl_max_protocol_version=1.2", "TLSv1.2"),
            (
                "ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
                "ssl_max_protocol_version",
            ),
        ] {
            let error = read(string).expect_err(string).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_was_asked_for_must_be_there() {
        for (string, part) in [
            ("sslmode=verify-ca", "/nonexistent/.postgresql/root.crt"),
            (
                "sslmode=verify-ca sslrootcert=/nonexistent/ca",
                "/nonexistent/ca",
            ),
            ("sslmode=require sslcertmode=require", "sslcert"),
            (
                "sslmode=require ssl_min_protocol_version=TLSv1 ssl_max_protocol_version=tlsv1.1",
                "1.2 and 1.3",
            ),
        ] {
            let error = format!(
                "{:#}",
                read(string).expect(string).config(None).expect_err(string)
            );
            assert!(error.contains(part), "{error}");
        }
        for (string, warns) in [
            ("sslmode=require", false),
            ("sslmode=require sslrootcert=/nonexistent/ca", true),
            ("sslmode=disable sslrootcert=/nonexistent/ca", false),
        ] {
            let tls = read(string).expect("reads");
            tls.config(None).expect("no verification");
            let warned = tls
                .warnings()
                .is_some_and(|w| w.contains("/nonexistent/ca"));
            assert_eq!(warned, warns, "{string}");
        }
    }
}
