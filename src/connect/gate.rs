//! `require_auth`: which way of logging in the server may ask for. Its requests are read on their way to the client library,
//! so that a password is not sent before one that is not allowed has been refused.

use anyhow::{Result, bail, ensure};
use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// libpq's names; `none` is for a server that asks for nothing (a client certificate is no question of this kind).
const METHODS: [&str; 7] = [
    "password",
    "md5",
    "gss",
    "sspi",
    "scram-sha-256",
    "oauth",
    "none",
];

/// What is allowed, and the words that said so.
#[derive(Clone, Debug)]
pub struct Rule {
    allowed: BTreeSet<&'static str>,
    words: String,
}

impl Rule {
    /// A list with commas: those that are allowed, or each with a `!` those that are not.
    pub fn read(text: &str) -> Result<Self> {
        let mut named = BTreeSet::new();
        let mut negative = None;
        for word in text.split(',') {
            let (not, word) = match word.strip_prefix('!') {
                Some(word) => (true, word),
                None => (false, word),
            };
            ensure!(
                *negative.get_or_insert(not) == not,
                "require_auth has methods with ! and without: name those that are allowed, or those that are not"
            );
            match METHODS.iter().find(|m| **m == word) {
                Some(method) => ensure!(
                    named.insert(*method),
                    "require_auth names {method} twice: name it once"
                ),
                None => bail!("require_auth is a list of {}", METHODS.join(", ")),
            }
        }
        let allowed = |m: &&str| named.contains(m) != negative.unwrap_or_default();
        Ok(Self {
            allowed: METHODS.into_iter().filter(allowed).collect(),
            words: text.into(),
        })
    }

    fn refuse(&self, method: &str) -> io::Error {
        let what = match method {
            "none" => "asks for no proof of who we are".to_string(),
            "password" => "asks for the password in the clear".to_string(),
            method => format!("asks for {method}"),
        };
        io::Error::other(format!(
            "the server {what}, which require_auth={} does not allow: change that, or pg_hba.conf",
            self.words
        ))
    }
}

/// Where in the server's messages we are.
#[derive(Debug)]
struct Place {
    rule: Rule,
    /// The answer to the question for TLS, one byte, comes first.
    answer: bool,
    /// The server has asked for something.
    asked: bool,
    /// Type and length of a message, and what is asked for.
    head: Vec<u8>,
    /// Bytes of a message that say nothing.
    skip: usize,
}

impl Place {
    /// Looks at what has come. `false` when nothing more has to be looked at.
    fn read(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.skip > 0 {
                let n = self.skip.min(bytes.len());
                self.skip -= n;
                bytes = &bytes[n..];
                continue;
            }
            bytes = rest;
            if std::mem::take(&mut self.answer) {
                if *first == b'S' {
                    return Ok(false);
                }
                continue;
            }
            self.head.push(*first);
            let request = self.head[0] == b'R';
            if self.head.len() < if request { 9 } else { 5 } {
                continue;
            }
            let number = |at: usize| {
                self.head[at..at + 4]
                    .iter()
                    .fold(0, |n, b| n << 8 | *b as usize)
            };
            self.skip = (number(1) + 1).saturating_sub(self.head.len());
            if request && self.goes_on(number(5))? {
                return Ok(false);
            }
            self.head.clear();
        }
        Ok(true)
    }

    /// Is this request the last one?
    fn goes_on(&mut self, request: usize) -> io::Result<bool> {
        let method = match request {
            0 if self.asked => return Ok(true),
            0 => "none",
            3 => "password",
            5 => "md5",
            7 => "gss",
            9 => "sspi",
            10 => "scram-sha-256",
            // parts of what has begun
            _ => return Ok(false),
        };
        self.asked = true;
        match self.rule.allowed.contains(method) {
            true => Ok(request == 0),
            false => Err(self.rule.refuse(method)),
        }
    }
}

/// A line whose server is watched while it asks who we are.
#[derive(Debug)]
pub struct Gate<S> {
    line: S,
    /// The answer to the question for TLS is still to come.
    answer: bool,
    place: Option<Place>,
}

impl<S> Gate<S> {
    fn new(line: S, rule: Option<Rule>, answer: bool) -> Self {
        let place = rule.map(|rule| Place {
            rule,
            answer,
            asked: false,
            head: Vec::new(),
            skip: 0,
        });
        Self {
            line,
            answer,
            place,
        }
    }

    /// Around a line that may get TLS within, which is asked for if so.
    pub fn outer(line: S, rule: Option<Rule>, mode: SslMode, ask: bool) -> Self {
        Self::new(line, rule.filter(|_| mode != SslMode::Require), ask)
    }
}

/// The client library would take anything but S for a server without TLS, and go on in the clear.
fn postgres(answer: u8) -> io::Result<()> {
    match answer {
        b'S' | b'N' => Ok(()),
        b'E' => Err(io::Error::other(
            "the server answered with an error when it was asked for TLS: look into its log",
        )),
        _ => Err(io::Error::other(
            "what listens there does not speak Postgres's protocol: look at host and port",
        )),
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let gate = &mut *self;
        let before = buf.filled().len();
        ready!(Pin::new(&mut gate.line).poll_read(cx, buf))?;
        if let Some(byte) = buf.filled().get(before)
            && std::mem::take(&mut gate.answer)
        {
            postgres(*byte)?;
        }
        if let Some(place) = &mut gate.place
            && !place.read(&buf.filled()[before..])?
        {
            gate.place = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.line).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_shutdown(cx)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Gate<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.line.channel_binding()
    }
}

/// Makes lines with TLS that are watched within.
pub struct Gated<T> {
    /// Makes lines with TLS.
    pub inner: T,
    /// What is allowed there.
    pub rule: Option<Rule>,
}

impl<S, T> TlsConnect<S> for Gated<T>
where
    T: TlsConnect<S> + Send + 'static,
    T::Stream: Unpin,
    T::Future: Send,
    S: Send + 'static,
{
    type Stream = Gate<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let line = self.inner.connect(stream).await?;
            Ok(Gate::new(line, self.rule, false))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &[u8] = b"R\0\0\0\x08\0\0\0\0";
    const CLEAR: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
    const MD5: &[u8] = b"R\0\0\0\x0c\0\0\0\x05salt";
    const SASL: &[u8] = b"R\0\0\0\x0c\0\0\0\x0aX\0\0R";

    /// What comes of messages that arrive in pieces of so many bytes: a word where one is refused.
    fn goes(rule: &str, answer: bool, messages: &[&[u8]], piece: usize) -> Result<bool, String> {
        let rule = Rule::read(rule).expect(rule);
        let mut place = Gate::new((), Some(rule), answer).place.expect("a rule");
        let mut more = true;
        for piece in messages.concat().chunks(piece) {
            if more {
                more = place.read(piece).map_err(|e| e.to_string())?;
            }
        }
        Ok(more)
    }

    #[test]
    fn what_is_not_allowed_is_refused_however_it_arrives() {
        let error: &[u8] = b"E\0\0\0\x06R\0";
        for piece in [1, 2, 7, 100] {
            for (rule, answer, messages, refused) in [
                ("none", false, &[OK][..], ""),
                ("scram-sha-256", false, &[OK], "no proof"),
                ("!none", false, &[OK], "no proof"),
                ("scram-sha-256", false, &[CLEAR, OK], "in the clear"),
                ("scram-sha-256,md5", false, &[MD5, OK], ""),
                ("!password", false, &[MD5, OK], ""),
                ("!md5,!password", false, &[MD5], "asks for md5"),
                ("md5", false, &[SASL], "scram-sha-256"),
                ("scram-sha-256", false, &[SASL, OK], ""),
                ("scram-sha-256", true, &[b"N", SASL, OK], ""),
                ("scram-sha-256", true, &[b"N", CLEAR], "in the clear"),
                // the rest of this line is TLS's
                ("scram-sha-256", true, &[b"S", CLEAR], ""),
                // messages of other kinds are passed over, whatever is in them
                ("scram-sha-256", false, &[error, CLEAR], "in the clear"),
            ] {
                let text = format!("{rule} {messages:?} by {piece}");
                match goes(rule, answer, messages, piece) {
                    Ok(more) => assert!(refused.is_empty() && !more, "{text}"),
                    Err(words) => assert!(
                        !refused.is_empty() && words.contains(refused),
                        "{text}: {words}"
                    ),
                }
            }
        }
    }

    #[test]
    fn a_rule_that_says_nothing_is_refused() {
        for rule in ["md5,!none", "md5,md5", "kerberos", "md5,", "! md5"] {
            let error = Rule::read(rule).expect_err(rule).to_string();
            assert!(error.contains("require_auth"), "{error}");
        }
    }
}
