//! One session: its settings travel as startup options and are read back; its connection is polled by a task of
//! its own that only keeps the last fault and sets a flag on notifications.

use super::kept::{Kept, Way};
use super::open::Opened;
use super::{Cells, Fault, Reached, Target};
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row};

/// A parameter and its type: the server never has to guess, and statements can be sent unnamed.
pub type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// No answer of the server takes longer than its own statement_timeout; this is the second line, for networks
/// that died. In seconds.
const CLIENT_DEADLINE: Duration = Duration::from_secs(8);

/// One database session.
pub struct Session {
    client: Client,
    task: JoinHandle<()>,
    closed: watch::Receiver<Option<Fault>>,
    hint: Arc<Notify>,
    kept: Mutex<Kept>,
    statements: AtomicU32,
    server_us: AtomicU64,
    /// Milliseconds that a statement may take: as the server knows, and as is wanted from now on.
    deadline: AtomicU32,
    wanted: AtomicU32,
    /// Our backend.
    pub pid: i32,
    /// Which server it is, and what protects the connection.
    pub reached: Reached,
}

/// What a session may do, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Polling: read-only, short deadlines.
    Poll,
    /// One write: read-write, short deadlines.
    Write,
    /// Migration, seeding, simulated workers: the server's own defaults.
    Plain,
}

impl Purpose {
    fn options(self) -> &'static str {
        match self {
            Purpose::Poll => {
                "-c default_transaction_read_only=on -c statement_timeout=3000 -c lock_timeout=100 \
                 -c idle_in_transaction_session_timeout=5000 -c tcp_keepalives_idle=30 \
                 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3 -c jit=off \
                 -c max_parallel_workers_per_gather=0"
            }
            Purpose::Write => {
                "-c default_transaction_read_only=off -c statement_timeout=2000 -c lock_timeout=250 \
                 -c idle_in_transaction_session_timeout=2000 -c tcp_keepalives_idle=30 \
                 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
            }
            Purpose::Plain => "",
        }
    }

    /// The `statement_timeout` among them.
    fn deadline_ms(self) -> u32 {
        match self {
            Purpose::Poll => 3000,
            Purpose::Write => 2000,
            Purpose::Plain => 0,
        }
    }

    fn read_back(self) -> Option<&'static str> {
        match self {
            Purpose::Poll => Some("on 3s 100ms 5s"),
            Purpose::Write => Some("off 2s 250ms 2s"),
            Purpose::Plain => None,
        }
    }
}

impl Session {
    /// Connects as `application`. The settings of the purpose are read back, since a pooler may drop them.
    pub async fn open(target: &Target, purpose: Purpose, application: &str) -> Result<Self, Fault> {
        let Opened {
            client,
            line: mut connection,
            reached,
        } = target.connect(application, purpose.options()).await?;
        let hint = Arc::new(Notify::new());
        let (sender, closed) = watch::channel(None);
        let flag = hint.clone();
        let task = tokio::spawn(async move {
            let mut last: Option<Fault> = None;
            let mut messages = poll_fn(move |cx| connection.poll_message(cx));
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notification(_)) => flag.notify_one(),
                    // a shutdown or a crash elsewhere is announced as a notice, then the line is cut
                    Ok(AsyncMessage::Notice(n)) if n.code().code().starts_with("57P") => {
                        last = Some(Fault {
                            code: Some(n.code().code().to_string()),
                            closed: true,
                            ..Fault::own(n.message())
                        });
                    }
                    Ok(_) => {}
                    Err(error) => {
                        let fault = Fault {
                            closed: true,
                            ..Fault::from(error)
                        };
                        if fault.code.is_some() || last.is_none() {
                            last = Some(fault);
                        }
                        break;
                    }
                }
            }
            let fault = last.unwrap_or_else(|| Fault {
                closed: true,
                ..Fault::own("the server closed the connection")
            });
            sender.send_replace(Some(fault));
        });
        let mut session = Self {
            client,
            task,
            closed,
            hint,
            kept: Mutex::default(),
            statements: AtomicU32::new(0),
            server_us: AtomicU64::new(0),
            deadline: AtomicU32::new(purpose.deadline_ms()),
            wanted: AtomicU32::new(purpose.deadline_ms()),
            pid: 0,
            reached,
        };
        session.check(purpose).await?;
        Ok(session)
    }

    async fn check(&mut self, purpose: Purpose) -> Result<(), Fault> {
        let rows = self
            .query(
                "SELECT pg_backend_pid()::int8 AS pid, concat_ws(' ', \
                   current_setting('default_transaction_read_only'), current_setting('statement_timeout'), \
                   current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout') \
                 )::text AS settings, (current_setting('server_encoding') = 'SQL_ASCII')::bool AS any_bytes",
                &[],
            )
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Fault::own("the server returned no row"))?;
        self.pid = row.int("pid")?.unwrap_or(0) as i32;
        let settings = row.word("settings")?;
        let any_bytes = row.flag("any_bytes")?.unwrap_or(false);
        match purpose.read_back() {
            Some(wanted) if wanted != settings => Err(Fault::unsafe_session(&settings)),
            // text of no known encoding: the server would refuse to send what is not UTF-8
            _ if any_bytes => self.execute("SET client_encoding = 'SQL_ASCII'").await,
            _ => Ok(()),
        }
    }

    /// Runs one statement and returns its rows. Counts it and what it cost the server, measured there in the outermost
    /// select. It is a transaction of its own, which begins when the server reads it: so planning (and parsing, where
    /// it is not prepared) is in, while `statement_timestamp()` would be the moment of the Execute message after both.
    pub async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let sql = format!(
            "SELECT s.*, (extract(epoch FROM clock_timestamp() - transaction_timestamp()) * 1e6)::int8 \
               AS jobtop_us FROM ({sql}) s"
        );
        let begun = Instant::now();
        self.statements.fetch_add(1, Ordering::Relaxed);
        let rows = match self.change_of_deadline() {
            None => self.fetch(&sql, params).await?,
            // sent together: nobody waits for its answer
            Some(set) => {
                self.statements.fetch_add(1, Ordering::Relaxed);
                let set = self.guard(self.client.batch_execute(&set));
                let (set, rows) = tokio::join!(set, self.fetch(&sql, params));
                set?;
                rows?
            }
        };
        let us = match rows.last() {
            Some(row) => row.count("jobtop_us")?,
            // no row says what it cost: the round trip is more than that
            None => begun.elapsed().as_micros() as u64,
        };
        self.server_us.fetch_add(us, Ordering::Relaxed);
        Ok(rows)
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

    async fn fetch(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let way = self.kept().way(sql);
        match way {
            Way::Plain => self.plain(sql, params).await,
            way => match self.prepared(way, sql, params).await {
                Err(fault) if self.kept().failed(sql, &fault) => self.plain(sql, params).await,
                result => result,
            },
        }
    }

    async fn plain(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        self.guard(self.client.query_typed(sql, params)).await
    }

    async fn prepared(&self, way: Way, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        let statement = match way {
            Way::Ready(statement) => statement,
            _ => {
                let types: Vec<Type> = params.iter().map(|p| p.1.clone()).collect();
                let begun = Instant::now();
                let statement = self.guard(self.client.prepare_typed(sql, &types)).await?;
                let us = begun.elapsed().as_micros() as u64;
                self.server_us.fetch_add(us, Ordering::Relaxed);
                self.kept().keep(sql, &statement);
                statement
            }
        };
        let values: Vec<_> = params.iter().map(|p| p.0).collect();
        self.guard(self.client.query(&statement, &values)).await
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs statements that return nothing (LISTEN, BEGIN, …).
    pub async fn execute(&self, sql: &str) -> Result<(), Fault> {
        self.statements.fetch_add(1, Ordering::Relaxed);
        self.guard(self.client.batch_execute(sql)).await
    }

    /// Runs one statement as it stands, uncounted: for writes, whose cost is not a refresh's.
    pub async fn write(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, Fault> {
        self.guard(self.client.query_typed(sql, params)).await
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
                ..Fault::own("the server does not answer")
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
        self.hint.clone()
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
