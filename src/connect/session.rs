//! One session: its settings travel as startup options and are read back, or else with each transaction; its connection
//! is polled by a task of its own that only keeps the last fault and sets a flag on notifications.

mod start;

pub use super::ear::ECHO;
use super::ear::Ear;
use super::kept::{Kept, Way};
pub use super::purpose::Purpose;
use super::{Cells, Fault, Reached};
use crate::log::Talk;
use futures_util::TryStreamExt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, RowStream};

/// A parameter and its type: the server never has to guess, and statements can be sent unnamed.
pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// What takes a row.
type Take<'a> = &'a mut (dyn FnMut(Row) -> Result<(), Fault> + Send);

/// No answer of the server takes longer than its own statement_timeout; this is the second line, for networks
/// that died. In seconds.
const CLIENT_DEADLINE: Duration = Duration::from_secs(8);

/// What is said when it has passed.
pub const SILENT: &str = "the server does not answer";

/// One database session.
pub struct Session {
    client: Client,
    task: JoinHandle<()>,
    closed: watch::Receiver<Option<Fault>>,
    ear: Ear,
    kept: Mutex<Kept>,
    statements: AtomicU32,
    server_us: AtomicU64,
    /// Milliseconds that a statement may take: as the server knows, and as is wanted from now on.
    deadline: AtomicU32,
    wanted: AtomicU32,
    purpose: Purpose,
    footing: Footing,
    /// Text of no known encoding: the server would refuse to send what is not UTF-8.
    any_bytes: bool,
    /// In a transaction that was begun by name.
    inside: AtomicBool,
    talk: Arc<Talk>,
    /// Our backend.
    pub pid: i32,
    /// Which server it is, and what protects the connection.
    pub reached: Reached,
}

/// What the settings of a session rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footing {
    /// On the session: they were asked for as it began, and are there.
    Session,
    /// On each transaction: a pooler on the way refuses or drops what a session asks for, and may give each transaction
    /// another session of the server.
    Transaction,
}

impl Session {
    fn encoding(&self) -> Option<&'static str> {
        self.any_bytes.then_some("SQL_ASCII")
    }

    /// What the settings rest on.
    pub fn footing(&self) -> Footing {
        self.footing
    }

    /// Runs one statement and returns its rows. Counts it and what it cost the server, measured there in the outermost
    /// select. It is a transaction of its own, which begins when the server reads it: so planning (and parsing, where
    /// it is not prepared) is in, while `statement_timestamp()` would be the moment of the Execute message after both.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let mut rows = Vec::new();
        self.each(sql, params, |row| {
            rows.push(row);
            Ok(())
        })
        .await?;
        Ok(rows)
    }

    /// The same for rows that may be very many: each is taken as it arrives, so that not all of them are in memory. The
    /// first failure of `take` is the answer.
    pub async fn each(
        &self,
        sql: &str,
        params: &[Param<'_>],
        mut take: impl FnMut(Row) -> Result<(), Fault> + Send,
    ) -> Result<(), Fault> {
        let (sent, before) = (self.talk.sends(sql, params), self.spent());
        let mut n = 0;
        let mut take = |row| {
            n += 1;
            take(row)
        };
        let done = self.ask(sql, params, &mut take).await;
        let us = self.spent().saturating_sub(before).as_micros() as u64;
        sent.answered(done.as_ref().map(|()| Some(n)), Some(us));
        done
    }

    async fn ask(&self, sql: &str, params: &[Param<'_>], take: Take<'_>) -> Result<(), Fault> {
        let sql = format!(
            "SELECT s.*, (extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1e6)::int8 \
               AS jobtop_us FROM ({sql}) s"
        );
        let begun = Instant::now();
        let mut us = None;
        self.sent(&sql, params, &mut |row| {
            us = Some(row.count("jobtop_us")?);
            take(row)
        })
        .await?;
        // no row says what it cost: the round trip is more than that
        let us = us.unwrap_or_else(|| begun.elapsed().as_micros() as u64);
        self.server_us.fetch_add(us, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a statement with what has to go before it and after it. All of it leaves together: nothing waits for an
    /// answer, and no transaction waits for us.
    async fn sent(&self, sql: &str, params: &[Param<'_>], take: Take<'_>) -> Result<(), Fault> {
        let count = |n| self.statements.fetch_add(n, Ordering::Relaxed);
        count(1);
        if self.inside.load(Ordering::Relaxed) {
            return self.fetch(sql, params, take).await;
        }
        if self.footing == Footing::Transaction && self.purpose != Purpose::Plain {
            count(3);
            let deadline = self.wanted.load(Ordering::Relaxed);
            let begin = self.purpose.begin(deadline, self.encoding());
            self.talk.along(&begin);
            let begin = self.guard(self.client.batch_execute(&begin));
            // an aborted transaction ends with this as well
            let end = self.guard(self.client.batch_execute("COMMIT"));
            let (begin, done, end) = tokio::join!(begin, self.plain(sql, params, take), end);
            return begin.and(done).and(end);
        }
        match self.change_of_deadline() {
            None => self.fetch(sql, params, take).await,
            Some(set) => {
                count(1);
                self.talk.along(&set);
                let set = self.guard(self.client.batch_execute(&set));
                let (set, done) = tokio::join!(set, self.fetch(sql, params, take));
                set.and(done)
            }
        }
    }

    /// From now on the server ends each statement of [`query`](Self::query) after this.
    pub fn within(&self, deadline: Duration) {
        let ms = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        self.wanted.store(ms, Ordering::Relaxed);
    }

    fn change_of_deadline(&self) -> Option<String> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        let known = self.deadline.swap(wanted, Ordering::Relaxed);
        (wanted != known).then(|| format!("SET statement_timeout = {wanted}"))
    }

    async fn fetch(&self, sql: &str, params: &[Param<'_>], take: Take<'_>) -> Result<(), Fault> {
        let way = match self.footing {
            Footing::Session => self.kept().way(sql),
            // what one session of the server has prepared, the next does not know
            Footing::Transaction => Way::Plain,
        };
        let mut taken = false;
        match way {
            Way::Plain => self.plain(sql, params, take).await,
            way => match self
                .prepared(way, sql, params, &mut |row| {
                    taken = true;
                    take(row)
                })
                .await
            {
                Err(fault) if self.kept().failed(sql, &fault) && !taken => {
                    self.plain(sql, params, take).await
                }
                done => done,
            },
        }
    }

    async fn plain(&self, sql: &str, params: &[Param<'_>], take: Take<'_>) -> Result<(), Fault> {
        let params = params.iter().map(|(value, of)| (*value, of.clone()));
        self.stream(self.client.query_typed_raw(sql, params), take)
            .await
    }

    async fn prepared(
        &self,
        way: Way,
        sql: &str,
        params: &[Param<'_>],
        take: Take<'_>,
    ) -> Result<(), Fault> {
        let statement = match way {
            Way::Ready(statement) => statement,
            _ => {
                let types: Vec<Type> = params.iter().map(|p| p.1.clone()).collect();
                let begun = Instant::now();
                let statement = self.guard(self.client.prepare_typed(sql, &types)).await?;
                let us = begun.elapsed().as_micros() as u64;
                self.server_us.fetch_add(us, Ordering::Relaxed);
                self.talk.prepared(begun);
                self.kept().keep(sql, &statement);
                statement
            }
        };
        let values = params.iter().map(|p| p.0);
        self.stream(self.client.query_raw(&statement, values), take)
            .await
    }

    /// Reads all rows: also those after one that could not be taken, since the server sends them in any case.
    async fn stream(
        &self,
        rows: impl Future<Output = Result<RowStream, tokio_postgres::Error>>,
        take: Take<'_>,
    ) -> Result<(), Fault> {
        let mut taken = Ok(());
        self.guard(async {
            let mut rows = pin!(rows.await?);
            while let Some(row) = rows.try_next().await? {
                if taken.is_ok() {
                    taken = take(row);
                }
            }
            Ok(())
        })
        .await?;
        taken
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a transaction with the settings of `purpose`, whatever the session's own are. What follows runs in it,
    /// until [`end`](Self::end).
    pub async fn begin(&self, purpose: Purpose) -> Result<(), Fault> {
        let encoding = match self.footing {
            Footing::Session => None,
            Footing::Transaction => self.encoding(),
        };
        self.inside.store(true, Ordering::Relaxed);
        let begun = self
            .execute(&purpose.begin(purpose.deadline_ms(), encoding))
            .await;
        if begun.is_err() {
            self.inside.store(false, Ordering::Relaxed);
        }
        begun
    }

    /// Ends the transaction: `COMMIT` or `ROLLBACK`.
    pub async fn end(&self, how: &str) -> Result<(), Fault> {
        self.inside.store(false, Ordering::Relaxed);
        self.execute(how).await
    }

    /// Runs statements that return nothing (LISTEN, SAVEPOINT, …).
    pub async fn execute(&self, sql: &str) -> Result<(), Fault> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        let sent = self.talk.sends(sql, &[]);
        let done = self.guard(self.client.batch_execute(sql)).await;
        sent.answered(done.as_ref().map(|()| None), None);
        done
    }

    /// Runs one statement as it stands, uncounted: for writes, whose cost is not a refresh's.
    pub async fn write(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let sent = self.talk.sends(sql, params);
        let rows = self.guard(self.client.query_typed(sql, params)).await;
        sent.answered(rows.as_ref().map(|r| Some(r.len())), None);
        rows
    }

    async fn guard<T>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        let error = match timeout(CLIENT_DEADLINE, work).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => Fault::from(error),
            Err(_) => Fault {
                closed: true,
                ..Fault::own(SILENT)
            },
        };
        if !error.closed || error.code.is_some() {
            return Err(error);
        }
        // the connection's task knows why
        let mut closed = self.closed.clone();
        let _ = timeout(Duration::from_millis(50), closed.changed()).await;
        let known = closed.borrow().clone();
        Err(known.unwrap_or(error))
    }

    /// Why the session ended, once it has.
    pub fn ended(&self) -> Option<Fault> {
        self.closed.borrow().clone()
    }

    /// Waits until the session ends, and says why.
    pub async fn wait_closed(&self) -> Fault {
        let mut closed = self.closed.clone();
        let fault = closed.wait_for(Option::is_some).await;
        let fault = fault.ok().and_then(|f| f.clone());
        fault.unwrap_or_else(|| Fault::own("the connection ended"))
    }

    /// Woken by notifications: however many arrive, one waits.
    pub fn hint(&self) -> Arc<Notify> {
        self.ear.hint.clone()
    }

    /// Woken by notifications of channels that begin with [`ECHO`].
    pub fn echo(&self) -> Arc<Notify> {
        self.ear.echo.clone()
    }

    /// Server time since the last [`Session::take_cost`].
    pub fn spent(&self) -> Duration {
        Duration::from_micros(self.server_us.load(Ordering::Relaxed))
    }

    /// Statements and microseconds of server time since the last call.
    pub fn take_cost(&self) -> (u32, u64) {
        (
            self.statements.swap(0, Ordering::Relaxed),
            self.server_us.swap(0, Ordering::Relaxed),
        )
    }

    /// Ends the session and waits (briefly) until the server has been told. Then the line is cut: a statement that
    /// still runs ends by its deadline, and finds nobody.
    pub async fn close(self) {
        if self.ended().is_none() {
            self.talk.closed();
        }
        let Self {
            client, mut task, ..
        } = self;
        drop(client);
        if timeout(Duration::from_millis(500), &mut task)
            .await
            .is_err()
        {
            task.abort();
            let _ = task.await;
        }
    }
}
