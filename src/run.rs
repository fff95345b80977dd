//! The loop: keys, news and signals in; frames and effects out. Drawing never waits for the database.

use crate::action::Outcome;
use crate::app::state::App;
use crate::app::{Effect, Msg};
use crate::config::Config;
use crate::connect::{Fault, Session, Target};
use crate::feed::sampler::Sampler;
use crate::feed::{News, Order};
use crate::out::tell;
use crate::term::signals::{Asked, Signals};
use crate::term::{self, Tui};
use crate::ui;
use crate::ui::theme::{Depth, Env, Theme};
use anyhow::{Context, Result};
use crossterm::event::EventStream;
use futures_util::StreamExt;
use nix::sys::signal::Signal;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout, timeout_at};

/// The clock on the screen may be behind by this.
const CLOCK: Duration = Duration::from_millis(900);

/// Ctrl-Z waits so long at most for the end of the session.
const ASLEEP: Duration = Duration::from_secs(2);

/// How the program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By `q`.
    Quit,
    /// The first connection failed: exit code 2.
    Refused(String),
    /// By a signal: exit code 128 and its number.
    Signal(Signal),
    /// The terminal is gone: nothing may be printed.
    HangUp,
}

/// Runs the monitor on this terminal until it is told to end. It starts with the session that is given, if so; then with those
/// that it makes, for which nobody is asked anything.
pub async fn monitor(target: Target, config: Arc<Config>, first: Option<Session>) -> Result<Ended> {
    target.hush(true);
    let (news_in, mut news) = mpsc::channel(8);
    let (orders, orders_out) = mpsc::channel(16);
    let local = target.local;
    let sampler = Sampler::new(target, config.clone(), news_in, orders_out)?;
    let sampler = sampler.starting_with(first);
    let feed = tokio::spawn(sampler.run());
    let mut screen = Screen::new(&config, local, orders)?;
    let result = screen.run(&mut news).await;
    // a server that does not answer must not keep a shell waiting; a write is told how it ended
    let patience = if screen.writes > 0 { 4.0 } else { 1.0 };
    drop(screen);
    // the feed closes its sessions when nobody can send it orders any more
    let patience = Duration::from_secs_f64(patience);
    let last = timeout(patience, ending(feed, &mut news)).await;
    if let (Ok(Some(text)), Ok(Ended::Quit | Ended::Signal(_))) = (last, &result) {
        tell(&text);
    }
    result
}

/// Waits for the feed; what became of an action that was under way.
async fn ending(mut feed: JoinHandle<()>, news: &mut mpsc::Receiver<News>) -> Option<String> {
    let mut last = None;
    loop {
        tokio::select! {
            // what the feed told before it ended comes first
            biased;
            told = news.recv() => match told {
                Some(News::Outcome(outcome)) => last = Some(outcome.summary().1),
                Some(News::Struck(struck)) => last = Some(struck.summary().1),
                Some(_) => {}
                None => return last,
            },
            _ = &mut feed => return last,
        }
    }
}

struct Screen {
    app: App,
    tui: Tui,
    theme: Theme,
    orders: mpsc::Sender<Order>,
    signals: Signals,
    events: EventStream,
    begun: Instant,
    config: Arc<Config>,
    /// Actions that were begun and whose end was not heard of.
    writes: u32,
    /// Ctrl-Z was pressed.
    stop: bool,
}

impl Screen {
    fn new(config: &Arc<Config>, local: bool, orders: mpsc::Sender<Order>) -> Result<Self> {
        let theme = theme(config);
        if theme.depth == Depth::None {
            // otherwise crossterm writes an empty CSI m, which cancels bold and reverse
            crossterm::style::force_color_output(true);
        }
        let signals = Signals::listen()?;
        let tui = Tui::enter(config.mouse)
            .context("this is not a terminal: use jobtop --once, or --once --json, for scripts")?;
        let size = crossterm::terminal::size().unwrap_or((80, 24));
        let mut app = App::new(config.clone(), 0.0, size);
        app.local = local;
        Ok(Self {
            app,
            tui,
            theme,
            orders,
            signals,
            events: EventStream::new(),
            begun: Instant::now(),
            config: config.clone(),
            writes: 0,
            stop: false,
        })
    }

    async fn run(&mut self, news: &mut mpsc::Receiver<News>) -> Result<Ended> {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut drawn: Option<Instant> = None;
        let mut ticked = false;
        loop {
            if std::mem::take(&mut self.stop) {
                if let Some(ended) = self.suspend(news).await? {
                    return Ok(ended);
                }
                ticked = false;
            }
            // a frame a second keeps the clock: where data has just brought one, a tick brings no other
            if !(ticked && drawn.is_some_and(|d| d.elapsed() < CLOCK)) {
                if self.draw().is_err() {
                    return Ok(Ended::HangUp);
                }
                drawn = Some(Instant::now());
            }
            let msg = tokio::select! {
                biased;
                asked = self.signals.next() => match asked {
                    Asked::End(signal) => return Ok(Ended::Signal(signal)),
                    Asked::HangUp => return Ok(Ended::HangUp),
                    Asked::Stop => {
                        self.stop = !self.app.suspend().is_empty();
                        ticked = false;
                        continue;
                    }
                },
                event = self.events.next() => match event {
                    Some(Ok(event)) => Msg::Terminal(event),
                    _ => return Ok(Ended::HangUp),
                },
                Some(told) = news.recv() => Msg::Feed(told),
                _ = tick.tick() => {
                    if term::gone() {
                        return Ok(Ended::HangUp);
                    }
                    Msg::Tick
                }
            };
            ticked = matches!(msg, Msg::Tick);
            if let Some(ended) = self.take(msg).await? {
                return Ok(ended);
            }
            // whatever else waits is taken before the next frame
            for _ in 0..256 {
                // with this task's own waker: crossterm keeps the one it was given first until a key wakes it, and a
                // waker that wakes nobody would leave keys lying until the next snapshot
                let events = &mut self.events;
                let waiting = poll_fn(|cx| Poll::Ready(events.poll_next_unpin(cx))).await;
                let msg = match (waiting, news.try_recv()) {
                    (Poll::Ready(Some(Ok(event))), told) => {
                        if let Ok(told) = told
                            && let Some(ended) = self.take(Msg::Feed(told)).await?
                        {
                            return Ok(ended);
                        }
                        Msg::Terminal(event)
                    }
                    (_, Ok(told)) => Msg::Feed(told),
                    _ => break,
                };
                ticked = false;
                if let Some(ended) = self.take(msg).await? {
                    return Ok(ended);
                }
            }
        }
    }

    fn draw(&mut self) -> std::io::Result<()> {
        let (app, theme) = (&self.app, &self.theme);
        self.tui.draw(|frame| ui::draw(frame, app, theme))
    }

    fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    async fn take(&mut self, msg: Msg) -> Result<Option<Ended>> {
        let now = self.now();
        if let Some(why) = crate::log::trouble() {
            self.app.update(now, Msg::Saved(Err(why)));
        }
        if let Msg::Feed(News::Outcome(_) | News::Struck(_)) = &msg {
            self.writes = self.writes.saturating_sub(1);
        }
        for effect in self.app.update(now, msg) {
            if let Some(ended) = self.carry_out(effect).await? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    async fn carry_out(&mut self, effect: Effect) -> Result<Option<Ended>> {
        match effect {
            Effect::Quit => return Ok(Some(Ended::Quit)),
            Effect::Fail(why) => return Ok(Some(Ended::Refused(why))),
            Effect::Poll => self.order(Order::Poll),
            Effect::Interval(seconds) => self.order(Order::Interval(seconds)),
            Effect::Fetch(row) => self.order(Order::Fetch(row)),
            Effect::Look(n, verb, choice) => self.order(Order::Look(n, verb, choice)),
            Effect::Watch(on) => self.order(Order::Watch(on)),
            Effect::Act(plan) => {
                self.writes += 1;
                self.order(Order::Act(plan));
            }
            Effect::Stop => self.order(Order::Stop),
            Effect::Strike(strike) => {
                self.writes += 1;
                self.order(Order::Strike(strike));
            }
            Effect::Copy(text) => self.tui.copy(&text)?,
            Effect::Repaint => self.tui.repaint()?,
            Effect::Suspend => self.stop = true,
            Effect::Report => self.report()?,
            Effect::Picture => self.picture(),
        }
        Ok(None)
    }

    /// A full queue means that the feed is waiting for the server; the next poll comes anyway.
    fn order(&mut self, order: Order) {
        let Err(refused) = self.orders.try_send(order) else {
            return;
        };
        let busy = "nothing was written: the feed is busy, try again";
        let answer = match refused.into_inner() {
            Order::Fetch(row) => News::Detail(row, Err("the feed is busy, try again".into())),
            Order::Strike(strike) => {
                let fault = Fault::own("the feed is busy, try again");
                News::Struck(Box::new(strike.not_begun(&fault)))
            }
            Order::Look(n, ..) => News::Preview(n, Err(busy.into())),
            Order::Act(plan) => {
                let outcome = Outcome::nothing(plan.verb, plan.targets.len(), busy);
                News::Outcome(Box::new(outcome))
            }
            Order::Watch(on) => {
                // said again with the next message
                self.app.watching = !on;
                return;
            }
            _ => return,
        };
        let now = self.now();
        self.app.update(now, Msg::Feed(answer));
    }

    /// Ctrl-Z: the session is closed first, since a stopped program must not hold one.
    async fn suspend(&mut self, news: &mut mpsc::Receiver<News>) -> Result<Option<Ended>> {
        self.order(Order::Sleep);
        let end = Instant::now() + ASLEEP;
        while let Ok(Some(told)) = timeout_at(end.into(), news.recv()).await {
            if matches!(told, News::Asleep) {
                break;
            }
            if let Some(ended) = self.take(Msg::Feed(told)).await? {
                return Ok(Some(ended));
            }
        }
        self.tui.suspend()?;
        self.order(Order::Wake);
        if let Ok(size) = crossterm::terminal::size() {
            self.app.size = size;
        }
        Ok(None)
    }

    fn report(&mut self) -> Result<()> {
        let text = ui::report::text(&self.app);
        let saved = self.save("report.txt", &text);
        self.tui.copy(&text)?;
        let saved =
            saved.map(|path| format!("report: {path}, and sent to the terminal's clipboard"));
        let now = self.now();
        self.app.update(now, Msg::Saved(saved));
        Ok(())
    }

    fn picture(&mut self) {
        let (columns, rows) = self.app.size;
        let buffer = ui::render(&self.app, &self.theme, columns, rows);
        let picture = self.save("screen.svg", &ui::svg::svg(&buffer));
        let json = self.app.shown().map(|(snapshot, report)| {
            crate::once::json(snapshot, report).unwrap_or_else(|e| e.to_string())
        });
        let saved = picture.and_then(|picture| match json {
            Some(json) => {
                let json = self.save("snapshot.json", &json)?;
                Ok(format!("wrote {picture} and {json}"))
            }
            None => Ok(format!("wrote {picture}")),
        });
        let now = self.now();
        self.app.update(now, Msg::Saved(saved));
    }

    /// Writes a file of ours under a name that is not taken, readable by its owner only.
    fn save(&self, what: &str, text: &str) -> Result<String, String> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let directory = self.config.output_dir.clone().unwrap_or(PathBuf::from("."));
        let stamp = chrono::Utc::now().format("%Y%m%dT%H%M%S%3fZ");
        let path = directory.join(format!("jobtop-{stamp}-{what}"));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| format!("{} cannot be written: {e}; set output_dir", path.display()))?;
        Ok(path.display().to_string())
    }
}

/// The theme for these settings on this terminal.
pub fn theme(config: &Config) -> Theme {
    Theme::new(config, &env())
}

/// What the environment says about the terminal.
fn env() -> Env {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let utf8 = |l: &str| {
        let l = l.to_lowercase();
        l.contains("utf-8") || l.contains("utf8")
    };
    Env {
        no_color: set("NO_COLOR").is_some(),
        colorterm: set("COLORTERM"),
        term: set("TERM"),
        utf8: locale.as_deref().is_some_and(utf8),
    }
}
