//! The task that owns the connection: connects, polls what is due, listens, answers orders, comes back.

use super::full;
use super::hands::{Hands, no_connection, struck};
use super::pace::Pace;
use super::push::Push;
use super::{News, Order};
use crate::config::Config;
use crate::connect::session::Purpose;
use crate::connect::{Fault, Session, Target};
use crate::feed::round::Round;
use crate::findings::Tracker;
use crate::log::{self, told};
use crate::once::Refused;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::{sleep_until, timeout};
use tracing::{error, info};

/// Retries after a loss, and while no connection slot is free. Both are jittered by a quarter.
const RETRY: Duration = Duration::from_millis(800);
const RETRY_NO_SLOT: Duration = Duration::from_secs(4);
/// After a refused login, doubled each time up to the second: servers count them, and lock accounts.
const RETRY_LOGIN: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(60));

/// Orders that may wait for the end of a refresh.
const LATER: usize = 16;

/// Everything the feed needs to know.
pub struct Sampler {
    target: Target,
    news: mpsc::Sender<News>,
    orders: Orders,
    pace: Pace,
    round: Round,
    tracker: Tracker,
    hands: Hands,
    push: Push,
    first: Option<Session>,
    /// Refreshes come less often than wanted.
    stretched: bool,
}

enum End {
    Stop,
    Sleep,
    Lost(Fault),
}

impl Sampler {
    /// A feed for one server; an error where a profile of the user's is wrong.
    pub fn new(
        target: Target,
        config: Arc<Config>,
        news: mpsc::Sender<News>,
        orders: mpsc::Receiver<Order>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            pace: Pace::new(config.interval, config.max_server_share),
            tracker: Tracker::new(&config),
            round: Round::new(target.clone(), config.clone())?,
            hands: Hands::new(target.clone(), news.clone()),
            push: Push::default(),
            target,
            news,
            orders: Orders {
                channel: orders,
                later: VecDeque::new(),
            },
            first: None,
            stretched: false,
        })
    }

    /// The first session, where there is one already.
    pub fn starting_with(mut self, session: Option<Session>) -> Self {
        self.first = session;
        self
    }

    /// Runs until nobody sends orders any more. All sessions are closed when it returns.
    pub async fn run(mut self) {
        self.watch().await;
        self.hands.rest().await;
    }

    async fn watch(&mut self) {
        let mut connected_before = false;
        let mut refusals = 0;
        loop {
            let opened = tokio::select! {
                opened = first(self.first.take(), &self.target) => opened,
                stop = refuse_orders(&mut self.orders, &self.news, &mut self.round) => match stop {
                    End::Sleep if !self.slept().await => return,
                    End::Stop => return,
                    _ => continue,
                },
            };
            let fault = match opened {
                Ok(session) => {
                    let end = self.poll(&session, &mut connected_before).await;
                    session.close().await;
                    if let End::Lost(fault) = &end {
                        self.hands.dropped(fault).await;
                    }
                    match end {
                        End::Stop => return,
                        End::Sleep if !self.slept().await => return,
                        End::Sleep => continue,
                        End::Lost(fault) => fault,
                    }
                }
                Err(fault) => fault,
            };
            let (sqlstate, reason) = (fault.code.clone(), told(&fault));
            if !connected_before && !fault.may_pass() {
                error!(sqlstate, reason, "given up: the first connection failed");
                let refused = Refused::new(&self.target.place(), fault);
                let _ = self.news.send(News::Refused(refused.to_string())).await;
                return;
            }
            let refused = fault.is("28");
            refusals = if refused { refusals + 1 } else { 0 };
            let pause = jittered(match refused {
                true => (RETRY_LOGIN.0 * 2u32.pow(refusals.min(5) - 1)).min(RETRY_LOGIN.1),
                false if fault.no_slot() => RETRY_NO_SLOT,
                false => RETRY,
            });
            info!(sqlstate, reason, retry_s = pause.as_secs_f64(), "next try");
            let mut why = full::why(&fault, &self.round.snapshot);
            if refused {
                why += ": tried ever less often; start jobtop anew to log in differently";
            }
            let news = if connected_before {
                News::Lost {
                    reason: why,
                    retry_in: pause.as_secs_f64(),
                }
            } else {
                News::Connecting(why)
            };
            let _ = self.news.send(news).await;
            let refuse = refuse_orders(&mut self.orders, &self.news, &mut self.round);
            let waited = timeout(pause, refuse).await;
            match waited {
                Ok(End::Stop) => return,
                Ok(End::Sleep) if !self.slept().await => return,
                _ => {}
            }
        }
    }

    /// Waits for [`Order::Wake`]; `false` when the program ends instead.
    async fn slept(&mut self) -> bool {
        self.push.rest().await;
        self.hands.quiet().await;
        let _ = self.news.send(News::Asleep).await;
        loop {
            match self.orders.channel.recv().await {
                Some(Order::Wake) => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }

    async fn poll(&mut self, session: &Session, connected_before: &mut bool) -> End {
        self.round.connected();
        self.push.connected();
        let hint = session.hint();
        let mut notified = false;
        loop {
            let begun = Instant::now();
            session.take_cost();
            let first = !*connected_before;
            let run = self.round.run_database(session);
            match self.orders.during(run).await {
                Ok(Ok(())) => {}
                Ok(Err(fault)) => return End::Lost(fault),
                Err(end) => return end,
            }
            *connected_before = true;
            // the first frame does not wait for the task tables
            if first && !self.emit().await {
                return End::Stop;
            }
            let run = self.round.run_queues(session);
            match self.orders.during(run).await {
                Ok(Ok(())) => {}
                Ok(Err(fault)) => return End::Lost(fault),
                Err(end) => return end,
            }
            let (statements, us) = session.take_cost();
            let now = Instant::now();
            self.pace.spent(now, Duration::from_micros(us));
            log::refreshed(begun, (statements, us), self.pace.interval());
            log::paced(&self.pace, now, &mut self.stretched);
            let own = &mut self.round.snapshot.own;
            own.connections = 1 + self.hands.connections();
            own.statements_per_refresh = statements;
            own.server_ms_per_refresh = us as f64 / 1000.0;
            own.share_of_server_time = self.pace.share(now);
            own.interval_s = self.pace.interval().as_secs_f64();
            own.pid = session.pid;
            if !self.emit().await {
                return End::Stop;
            }
            if self.round.may_be_pushed() && self.hands.connections() == 0 {
                self.push.prepare(&self.target);
            }
            let mut next = begun + self.pace.interval();
            if std::mem::take(&mut notified) {
                next = self.round.owed().map_or(next, |owed| next.min(owed));
            }
            loop {
                let hinted = async {
                    hint.notified().await;
                    sleep_until((begun + self.pace.hinted()).into()).await;
                };
                tokio::select! {
                    () = sleep_until(next.into()) => break,
                    () = hinted => { notified = true; break }
                    fault = session.wait_closed() => return End::Lost(fault),
                    () = self.hands.wanted() => self.hands.help(session).await,
                    sender = self.push.sender() => {
                        let test = self.push.carry_out(session, sender);
                        match self.orders.during(test).await {
                            Ok(Ok(sent)) => { self.round.pushed(sent); break }
                            Ok(Err(fault)) => return End::Lost(fault),
                            Err(end) => return end,
                        }
                    }
                    order = self.orders.next() => match order {
                        None => return End::Stop,
                        Some(Order::Sleep) => return End::Sleep,
                        Some(Order::Wake) => {}
                        Some(Order::Poll) => { self.round.hurry(); break }
                        Some(Order::Watch(on)) => {
                            self.round.watch(on);
                            if on {
                                next = next.min(begun + self.pace.hinted());
                            }
                        }
                        Some(Order::Interval(seconds)) => {
                            self.pace.want(seconds);
                            next = begun + self.pace.interval();
                        }
                        Some(Order::Fetch(row)) => {
                            let detail = self.round.fetch(session, &row);
                            let detail = match self.orders.during(detail).await {
                                Ok(detail) => detail,
                                Err(end) => return end,
                            };
                            let _ = self.news.send(News::Detail(row, detail)).await;
                        }
                        Some(Order::Look(n, verb, choice)) => {
                            self.push.yields();
                            match self.round.asker(verb, choice) {
                                Ok(asker) => self.hands.look(n, asker),
                                Err(why) => {
                                    let _ = self.news.send(News::Preview(n, Err(why))).await;
                                }
                            }
                        }
                        Some(Order::Act(plan)) => {
                            self.push.yields();
                            match self.round.prepare(*plan) {
                                Ok(run) => self.hands.act(run),
                                Err(outcome) => {
                                    let outcome = News::Outcome(Box::new(outcome));
                                    let _ = self.news.send(outcome).await;
                                }
                            }
                        }
                        Some(Order::Stop) => self.hands.stop(),
                        Some(Order::Strike(strike)) => {
                            self.push.yields();
                            match self.round.with(session.pid) {
                                Ok(with) => self.hands.strike(strike, with),
                                Err(why) => {
                                    let action = &strike.action_id;
                                    info!(action, reason = why, "write refused");
                                    let fault = Fault::own(why);
                                    struck(&self.news, strike.not_begun(&fault)).await;
                                }
                            }
                        }
                    },
                }
            }
        }
    }

    async fn emit(&mut self) -> bool {
        let snapshot = self.round.assemble();
        let report = self.tracker.update(&snapshot);
        let news = News::Snapshot(snapshot, Arc::new(report));
        self.news.send(news).await.is_ok()
    }
}

async fn first(ready: Option<Session>, target: &Target) -> Result<Session, Fault> {
    match ready {
        Some(session) => Ok(session),
        None => Session::open(target, Purpose::Poll, "jobtop").await,
    }
}

/// Orders as they come.
struct Orders {
    channel: mpsc::Receiver<Order>,
    /// Those that came during a refresh.
    later: VecDeque<Order>,
}

impl Orders {
    /// The next one; `None` when nobody can send any more.
    async fn next(&mut self) -> Option<Order> {
        match self.later.pop_front() {
            Some(order) => Some(order),
            None => self.channel.recv().await,
        }
    }

    /// Does what the server may take long over; neither the end of the program nor Ctrl-Z waits for it, other orders do.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                order = self.channel.recv(), if self.later.len() < LATER => match order {
                    None => return Err(End::Stop),
                    Some(Order::Sleep) => return Err(End::Sleep),
                    Some(order) => self.later.push_back(order),
                },
            }
        }
    }
}

/// Without a session every order gets an answer that says so. Returns on those that end the waiting.
async fn refuse_orders(orders: &mut Orders, news: &mpsc::Sender<News>, round: &mut Round) -> End {
    loop {
        match orders.next().await {
            None => return End::Stop,
            Some(Order::Sleep) => return End::Sleep,
            Some(Order::Fetch(row)) => {
                let why = Err("no connection to the database".to_string());
                let _ = news.send(News::Detail(row, why)).await;
            }
            Some(Order::Look(n, ..)) => {
                let why = Err("no connection to the database".to_string());
                let _ = news.send(News::Preview(n, why)).await;
            }
            Some(Order::Act(plan)) => {
                info!(action = plan.action_id, "write refused: no connection");
                let outcome = Box::new(no_connection(&plan));
                let _ = news.send(News::Outcome(outcome)).await;
            }
            Some(Order::Watch(on)) => round.watch(on),
            Some(Order::Strike(strike)) => {
                info!(action = strike.action_id, "write refused: no connection");
                let fault = Fault::own("no connection to the database");
                struck(news, strike.not_begun(&fault)).await;
            }
            Some(Order::Poll | Order::Interval(_) | Order::Wake | Order::Stop) => {}
        }
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + rand::random::<f64>() / 4.0)
}
