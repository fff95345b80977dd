//! Whether notifications reach us: tried, not guessed. A second, short-lived session sends one to ourselves while our
//! own is idle, as a worker's would be: on one connection it could arrive by accident, through a pooler.

use crate::connect::session::{ECHO, Purpose};
use crate::connect::{Cells, Fault, Footing, Session, Target};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::Type;

/// A notification that did not arrive within this will not.
const PATIENCE: Duration = Duration::from_secs(2);

/// Until it is tried again, and where it could not be tried.
const AGAIN: Duration = Duration::from_secs(30 * 60);
const SOON: Duration = Duration::from_secs(60);

/// How often it is looked in which session of the server a statement runs.
const LOOKS: usize = 4;

/// How often the session that has listened is looked for among those of a pooler, to take it back there.
const UNLISTENS: usize = 20;

/// What became of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It arrived.
    Received,
    /// It did not.
    Lost,
    /// Not sent: statements of ours and of others run in the same session of the server, so a LISTEN would stay with
    /// whoever comes next.
    Shared,
    /// It could not be tried, and why.
    Untried(String),
}

/// Sends `db` a notification from a session of its own, called `name`.
///
/// # Errors
/// Where `db` is lost.
pub async fn test(db: &Session, target: &Target, name: &str) -> Result<Sent, Fault> {
    let sender = Session::open(target, Purpose::Poll, name).await;
    through(db, sender, &mut None).await
}

/// Sends `db` a notification from `sender`, which is in `kept` as long as it is open: where this is dropped before its end,
/// whoever holds that closes it.
async fn through(
    db: &Session,
    sender: Result<Session, Fault>,
    kept: &mut Option<Session>,
) -> Result<Sent, Fault> {
    let sender = match sender {
        Ok(sender) => kept.insert(sender),
        Err(fault) => return Ok(Sent::Untried(format!("no second session: {fault}"))),
    };
    let sent = from(db, sender).await;
    if let Some(sender) = kept.take() {
        sender.close().await;
    }
    sent
}

/// Sends `db`, which is idle, a notification from `sender`.
///
/// # Errors
/// Where `db` is lost.
pub async fn from(db: &Session, sender: &Session) -> Result<Sent, Fault> {
    if db.footing() == Footing::Transaction && shared(db, Some(sender)).await? {
        return Ok(Sent::Shared);
    }
    let channel = format!("{ECHO}{:016x}", rand::random::<u64>());
    let listened = match listen(db, &channel).await {
        Err(fault) if fault.closed => return Err(fault),
        Err(fault) => return Ok(Sent::Untried(fault.to_string())),
        Ok(pid) => pid,
    };
    let sql = "SELECT pg_notify($1::text, '')::text AS sent";
    let sent = sender.query(sql, &[(&channel, Type::TEXT)]).await;
    let outcome = match sent {
        Err(fault) => Sent::Untried(fault.to_string()),
        Ok(_) => match timeout(PATIENCE, db.echo().notified()).await {
            Ok(()) => Sent::Received,
            Err(_) => Sent::Lost,
        },
    };
    for _ in 0..UNLISTENS {
        db.begin(Purpose::Poll).await?;
        let there = pid(db).await? == listened;
        if there {
            db.execute(&format!("UNLISTEN {channel}")).await?;
        }
        db.end("COMMIT").await?;
        if there {
            break;
        }
    }
    Ok(outcome)
}

/// Listens, and tells in which session of the server.
async fn listen(db: &Session, channel: &str) -> Result<i64, Fault> {
    db.begin(Purpose::Poll).await?;
    let done = async {
        let pid = pid(db).await?;
        db.execute(&format!("LISTEN {channel}")).await?;
        Ok(pid)
    };
    match done.await {
        Ok(pid) => db.end("COMMIT").await.map(|()| pid),
        Err(fault) => {
            // fails only where the session does, and that is told next
            let _ = db.end("ROLLBACK").await;
            Err(fault)
        }
    }
}

/// Do the statements of `db` come from more than one session of the server, or from one that `other` is given, too?
///
/// # Errors
/// Where `db` is lost.
pub async fn shared(db: &Session, other: Option<&Session>) -> Result<bool, Fault> {
    let first = pid(db).await?;
    for _ in 1..LOOKS {
        let theirs = match other {
            Some(other) => pid(other).await.ok(),
            None => None,
        };
        if theirs == Some(first) || pid(db).await? != first {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn pid(db: &Session) -> Result<i64, Fault> {
    let rows = db
        .query("SELECT pg_backend_pid()::int8 AS pid", &[])
        .await?;
    let pid = rows.first().map(|row| row.int("pid")).transpose()?;
    pid.flatten()
        .ok_or_else(|| Fault::own("the server returned no row"))
}

/// When the next test is due, and the session for it.
#[derive(Default)]
pub struct Push {
    due: Option<Instant>,
    opening: Option<JoinHandle<Result<Session, Fault>>>,
    /// Open, until its test is over.
    sender: Option<Session>,
}

impl Push {
    /// A new session: nothing is known of its way.
    pub fn connected(&mut self) {
        self.yields();
        self.due = Some(Instant::now());
    }

    /// Opens the second session, if it is time.
    pub fn prepare(&mut self, target: &Target) {
        if self.opening.is_some() || self.due.is_none_or(|due| due > Instant::now()) {
            return;
        }
        let target = target.clone();
        self.opening = Some(tokio::spawn(async move {
            Session::open(&target, Purpose::Poll, "jobtop push").await
        }));
    }

    /// The operator needs a second connection: there are never three.
    pub fn yields(&mut self) {
        if let Some(opening) = self.opening.take() {
            opening.abort();
            self.due = Some(Instant::now() + SOON);
        }
    }

    /// The program is to hold no session: waits, for a second at most, until the second one is closed.
    pub async fn rest(&mut self) {
        if self.opening.is_some() {
            let opened = timeout(Duration::from_secs(1), self.sender()).await;
            self.sender = opened.ok().and_then(Result::ok);
        }
        self.yields();
        if let Some(sender) = self.sender.take() {
            sender.close().await;
        }
    }

    /// Waits for the second session, where one is wanted.
    pub async fn sender(&mut self) -> Result<Session, Fault> {
        let Some(opening) = &mut self.opening else {
            return std::future::pending().await;
        };
        let opened = opening.await;
        self.opening = None;
        opened.unwrap_or_else(|_| Err(Fault::own("it was not opened")))
    }

    /// Carries the test out; to be called while `db` is idle. Where it is dropped before its end, [`rest`](Self::rest)
    /// closes the second session.
    ///
    /// # Errors
    /// Where `db` is lost.
    pub async fn carry_out(
        &mut self,
        db: &Session,
        sender: Result<Session, Fault>,
    ) -> Result<Sent, Fault> {
        let sent = through(db, sender, &mut self.sender).await?;
        let pause = match sent {
            Sent::Untried(_) => SOON,
            _ => AGAIN,
        };
        self.due = Some(Instant::now() + pause);
        Ok(sent)
    }
}
