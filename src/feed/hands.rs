//! What an operator asks for goes over a connection of its own for as long as it takes, so that polling goes on; where
//! no slot is free, the poll session does it between two refreshes.

use super::News;
use crate::action::strike::{Strike, Struck, With};
use crate::action::{Asker, Outcome, Progress, Run, drive};
use crate::connect::session::Purpose;
use crate::connect::{Fault, Session, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::info;

/// How our second session is called.
const NAME: &str = "jobtop write";

/// Something to be done for the operator.
enum Errand {
    /// Read what an action is about; the number names the dialog.
    Look(u64, Box<Asker>),
    /// Carry a plan out.
    Act(Box<Run>),
    /// End a session that is not ours.
    Strike(Box<Strike>, Box<With>),
}

/// Does errands.
pub struct Hands {
    target: Target,
    news: mpsc::Sender<News>,
    /// Connections of their own that are open now.
    open: Arc<AtomicU32>,
    under_way: JoinSet<()>,
    /// Errands that found no free slot.
    back: (mpsc::Sender<Errand>, mpsc::Receiver<Errand>),
    /// The one that the poll session carries out.
    mine: Option<Errand>,
    stop: Option<Arc<AtomicBool>>,
}

impl Hands {
    /// Nothing to do yet.
    pub fn new(target: Target, news: mpsc::Sender<News>) -> Self {
        Self {
            target,
            news,
            open: Arc::default(),
            under_way: JoinSet::new(),
            back: mpsc::channel(4),
            mine: None,
            stop: None,
        }
    }

    /// Connections that errands hold now.
    pub fn connections(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Reads what an action is about.
    pub fn look(&mut self, n: u64, asker: Asker) {
        self.start(Errand::Look(n, Box::new(asker)));
    }

    /// Carries a plan out.
    pub fn act(&mut self, run: Run) {
        self.stop = Some(run.stop());
        self.start(Errand::Act(Box::new(run)));
    }

    /// Ends a session.
    pub fn strike(&mut self, strike: Box<Strike>, with: With) {
        self.start(Errand::Strike(strike, Box::new(with)));
    }

    /// The run under way ends after its chunk.
    pub fn stop(&self) {
        if let Some(stop) = &self.stop {
            stop.store(true, Ordering::Relaxed);
        }
    }

    fn start(&mut self, errand: Errand) {
        let (target, news, open) = (self.target.clone(), self.news.clone(), self.open.clone());
        let back = self.back.0.clone();
        while self.under_way.try_join_next().is_some() {}
        self.under_way.spawn(async move {
            let purpose = match errand {
                Errand::Look(..) => Purpose::Poll,
                Errand::Act(_) | Errand::Strike(..) => Purpose::Write,
            };
            open.fetch_add(1, Ordering::Relaxed);
            match Session::open(&target, purpose, NAME).await {
                Ok(session) => {
                    errand.on(&session, &target, &news).await;
                    session.close().await;
                }
                Err(fault) if fault.no_slot() => {
                    info!("no slot for a session of its own: the poll session does it");
                    // the sampler takes it; it is gone only with the program
                    let _ = back.send(errand).await;
                }
                Err(fault) => errand.failed(&fault, &news).await,
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Waits until there is something for the poll session to do.
    pub async fn wanted(&mut self) {
        if self.mine.is_none() {
            // `back` keeps a sender, so this waits as long as there is nothing
            self.mine = self.back.1.recv().await;
        }
        if let Some(Errand::Act(run)) = &self.mine
            && let Some(due) = run.due()
        {
            tokio::time::sleep_until(due.into()).await;
        }
    }

    /// Does the next thing that is due, on the poll session.
    pub async fn help(&mut self, session: &Session) {
        match self.mine.take() {
            Some(Errand::Act(mut run)) => {
                run.step(session, &self.target).await;
                tell(&self.news, News::Progress(run.progress())).await;
                match run.due() {
                    Some(_) => self.mine = Some(Errand::Act(run)),
                    None => tell(&self.news, News::Outcome(Box::new(run.outcome()))).await,
                }
            }
            Some(errand) => errand.on(session, &self.target, &self.news).await,
            None => {}
        }
    }

    /// The poll session is gone, and what it was carrying out with it.
    pub async fn dropped(&mut self, fault: &Fault) {
        if let Some(errand) = self.mine.take() {
            errand.failed(fault, &self.news).await;
        }
    }

    /// Waits, for a second at most, until no errand has a connection of its own.
    pub async fn quiet(&mut self) {
        let all = async { while self.under_way.join_next().await.is_some() {} };
        let _ = timeout(Duration::from_secs(1), all).await;
    }

    /// The program ends: what is under way finishes its transaction, and is told as far as it came.
    pub async fn rest(&mut self) {
        self.stop();
        let all = async { while self.under_way.join_next().await.is_some() {} };
        // a transaction lasts two seconds at most; its session ends with the program in any case
        let _ = timeout(Duration::from_millis(2500), all).await;
        let quit = Fault::own("stopped on request");
        let mut left = || self.mine.take().or_else(|| self.back.1.try_recv().ok());
        while let Some(errand) = left() {
            errand.failed(&quit, &self.news).await;
        }
    }
}

impl Errand {
    async fn on(self, session: &Session, target: &Target, news: &mpsc::Sender<News>) {
        match self {
            Errand::Look(n, asker) => {
                let read = asker.read(session).await;
                let read = read.map(Box::new).map_err(|f| f.to_string());
                tell(news, News::Preview(n, read)).await;
            }
            Errand::Act(mut run) => {
                let told = |progress: Progress| {
                    // a full queue: the next one tells more
                    let _ = news.try_send(News::Progress(progress));
                };
                drive(&mut run, session, target, told).await;
                tell(news, News::Outcome(Box::new(run.outcome()))).await;
            }
            Errand::Strike(strike, with) => {
                let done = strike.carry_out(session, &with).await;
                struck(news, done).await;
            }
        }
    }

    async fn failed(self, fault: &Fault, news: &mpsc::Sender<News>) {
        match self {
            Errand::Look(n, _) => tell(news, News::Preview(n, Err(fault.to_string()))).await,
            Errand::Act(mut run) => {
                run.give_up(fault);
                tell(news, News::Outcome(Box::new(run.outcome()))).await;
            }
            Errand::Strike(strike, _) => struck(news, strike.not_begun(fault)).await,
        }
    }
}

/// An attempt to end a session is finished: every one passes here, however it ended.
pub(super) async fn struck(news: &mpsc::Sender<News>, struck: Struck) {
    tell(news, News::Struck(Box::new(struck))).await;
}

/// Nobody listens any more only when the program ends.
async fn tell(news: &mpsc::Sender<News>, what: News) {
    let _ = news.send(what).await;
}

/// What an order to act is answered with while there is no session.
pub fn no_connection(plan: &crate::action::Plan) -> Outcome {
    let why = "nothing was written: no connection to the database";
    Outcome::nothing(plan.verb, plan.targets.len(), why)
}
