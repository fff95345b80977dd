//! What went wrong with TLS, in a sentence that says what to do about it.

use super::authority::Unfit;
use super::files::there;
use super::v1::Unlisted;
use super::{Tls, Witness};
use crate::connect::endpoint::Endpoint;
use rustls::{AlertDescription, CertificateError, Error};
use std::error::Error as StdError;
use std::io::ErrorKind;

/// The sentence for an error that has one of TLS's somewhere in it.
pub fn words(
    error: &(dyn StdError + 'static),
    endpoint: &Endpoint,
    tls: &Tls,
    witness: &Witness,
) -> Option<String> {
    let found = find(error)?;
    Some(match found {
        Error::InvalidCertificate(why) => certificate(why, endpoint, tls),
        Error::AlertReceived(alert) => refused(*alert, tls, witness.asked()),
        Error::PeerIncompatible(_) => nothing_common(),
        Error::InvalidMessage(_) if tls.direct => not_direct(),
        other => format!("TLS failed: {other}"),
    })
}

fn nothing_common() -> String {
    "the server's TLS and jobtop's have nothing in common: TLS 1.2 or 1.3, ECDHE with AES-GCM or ChaCha20, and a key of RSA, ECDSA \
     P-256, P-384 or Ed25519 are what jobtop knows"
        .into()
}

/// An older server takes a direct handshake for nonsense, and hangs up.
pub fn not_direct() -> String {
    "the server does not take sslnegotiation=direct, which came with version 17: leave it out"
        .into()
}

/// The other side went away without TLS's goodbye, which rustls tells with a link to its manual.
pub fn cut(error: &(dyn StdError + 'static)) -> Option<String> {
    let error = error.downcast_ref::<std::io::Error>()?;
    let cut =
        error.kind() == ErrorKind::UnexpectedEof && error.to_string().contains("close_notify");
    cut.then(|| "the connection was cut: did the server's process crash?".into())
}

fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        // an io::Error gives its inner error's source as its own
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(|e| e.get_ref());
        if let Some(found) = inner.and_then(|e| e.downcast_ref::<Error>()) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn certificate(why: &CertificateError, endpoint: &Endpoint, tls: &Tls) -> String {
    use CertificateError as E;
    if !tls.verifies() {
        return format!(
            "the server's certificate cannot be used, although nothing verifies it: {why}; have it made anew"
        );
    }
    let (trusted, lists) = (tls.roots.words(), tls.revoked.words());
    let unverified = |file: Option<String>| {
        let file = file.unwrap_or("a root certificate".into());
        format!("sslmode=require without {file} encrypts without verifying")
    };
    let file = tls.roots.file().map(|f| f.display().to_string());
    let that = file.as_ref().map(|_| "that file".to_string());
    if let E::Other(error) = why
        && let Some(unfit) = error.0.downcast_ref::<Unfit>()
    {
        return format!(
            "the server's certificate comes from no authority in {trusted}, where a certificate {unfit}: have that file renewed; {}",
            unverified(that)
        );
    }
    match why {
        E::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            let name = |n: &String| match n.split_once('(') {
                // DnsName("db") and the like
                Some((_, name)) => name.trim_end_matches(')').trim_matches('"').to_string(),
                None => n.clone(),
            };
            let names: Vec<String> = presented.iter().map(name).collect();
            format!(
                "the server's certificate is for {}, not for {}: connect by that name (hostaddr can give the address), or use \
                 sslmode=verify-ca",
                names.join(", "),
                endpoint.host
            )
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => format!(
            "the server's certificate is not for {}: connect by the name that it is for, or use sslmode=verify-ca",
            endpoint.host
        ),
        E::Expired | E::ExpiredContext { .. } => {
            format!(
                "the server's certificate has expired: renew it; {}",
                unverified(file)
            )
        }
        E::Revoked => format!(
            "the server's certificate has been revoked by its authority, says {lists}: have it replaced, and trust nothing that \
             shows it"
        ),
        E::UnknownRevocationStatus => format!(
            "{lists} has no list from the authority of the server's certificate, or of one above it: add that, or do without lists"
        ),
        E::ExpiredRevocationList | E::ExpiredRevocationListContext { .. } => format!(
            "the list of revoked certificates has expired in {lists}: fetch the authority's new one"
        ),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: look at the clocks of both machines".into()
        }
        E::Other(error) if error.0.is::<Unlisted>() => format!(
            "the server's certificate was made without extensions, and is not looked for in {lists}: have it made anew with openssl \
             x509 -req -extfile, or do without lists"
        ),
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the server's certificate, or its authority's, is signed in a way that jobtop cannot check: RSA with PKCS#1, ECDSA P-256 \
             with SHA-256, P-384 with SHA-384 and Ed25519 it can"
                .into()
        }
        E::Other(error) if format!("{error:?}").contains("CaUsedAsEndEntity") => format!(
            "the server's certificate is its own authority, which is not in {trusted}: give that certificate itself with \
             sslrootcert=FILE; {}",
            unverified(that)
        ),
        // signed by another authority of that name
        E::UnknownIssuer | E::BadSignature => format!(
            "the server's certificate comes from no authority in {trusted}: give the authority's certificate with \
             sslrootcert=FILE; {}",
            unverified(that)
        ),
        other => format!("the server's certificate cannot be used with {trusted}: {other}"),
    }
}

fn refused(alert: AlertDescription, tls: &Tls, asked: bool) -> String {
    use AlertDescription as A;
    let file = tls.client_certificate().filter(|p| there(p));
    match (alert, file) {
        (A::HandshakeFailure, _) if !asked => nothing_common(),
        (A::CertificateRequired | A::HandshakeFailure | A::AccessDenied, None) => format!(
            "the server wants a client certificate, and {}: give sslcert=FILE and sslkey=FILE",
            tls.shows()
        ),
        (A::NoApplicationProtocol, _) => {
            "the server speaks another protocol than Postgres's: look at host and port".into()
        }
        (A::ProtocolVersion, _) => {
            "the server takes none of the TLS versions that are allowed here: look at ssl_min_protocol_version and \
             ssl_max_protocol_version, here and there"
                .into()
        }
        (_, Some(path)) if asked => format!(
            "the server refuses the client certificate {}: {}",
            path.display(),
            of_ours(alert)
        ),
        _ => format!("the server ended the TLS handshake: {alert:?}, look into its log"),
    }
}

/// What the server has against our certificate.
fn of_ours(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::UnknownCA => "its authority is not in the server's ssl_ca_file".into(),
        A::CertificateExpired => "it has expired, or is not valid yet".into(),
        A::CertificateRevoked => "it has been revoked".into(),
        A::UnsupportedCertificate => "it is not for clients, by its extendedKeyUsage".into(),
        alert => format!("{alert:?}, look into the server's log"),
    }
}
