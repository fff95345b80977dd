//! How a session begins, and what its settings come to rest on.

use super::{Footing, Session};
use crate::connect::ear::Ear;
use crate::connect::open::Opened;
use crate::connect::purpose::{Purpose, READ_BACK};
use crate::connect::{Cells, Fault, Target};
use crate::log::Talk;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use tokio::sync::watch;

impl Session {
    /// Connects as `application`. The settings of the purpose are read back, since a pooler may drop them.
    pub async fn open(target: &Target, purpose: Purpose, application: &str) -> Result<Self, Fault> {
        let mut footing = match target.refuses_options() {
            false => Footing::Session,
            true => Footing::Transaction,
        };
        let mut opened = Err(Fault::own("not tried"));
        if footing == Footing::Session {
            opened = target.connect(application, &purpose.options()).await;
            if let Err(fault) = &opened
                && fault.is("08P01")
            {
                footing = Footing::Transaction;
            }
        }
        if footing == Footing::Transaction {
            opened = target.connect(application, "").await;
            if opened.is_ok() {
                target.options_refused();
            }
        }
        let Opened {
            client,
            line,
            reached,
        } = opened?;
        let version = line.parameter("server_version").map(String::from);
        let talk = Talk::new(purpose, application);
        let (sender, closed) = watch::channel(None);
        let ear = Ear::default();
        let task = tokio::spawn(ear.clone().hear(line, talk.clone(), sender));
        let mut session = Self {
            client,
            task,
            closed,
            ear,
            kept: Mutex::default(),
            statements: AtomicU32::new(0),
            server_us: AtomicU64::new(0),
            deadline: AtomicU32::new(purpose.deadline_ms()),
            wanted: AtomicU32::new(purpose.deadline_ms()),
            purpose,
            footing,
            any_bytes: false,
            inside: AtomicBool::new(false),
            talk,
            pid: 0,
            reached,
        };
        let checked = session.check().await;
        session.talk.opened(version.as_deref(), &checked);
        checked.map(|()| session)
    }

    async fn check(&mut self) -> Result<(), Fault> {
        let sql = format!(
            "SELECT pg_backend_pid()::int8 AS pid, {READ_BACK} AS settings, \
                    (current_setting('server_encoding') = 'SQL_ASCII')::bool AS any_bytes"
        );
        // what the session has, not what a transaction of ours would give itself
        let sent = self.talk.sends(&sql, &[]);
        let mut row = None;
        let mut take = |r| {
            row = Some(r);
            Ok(())
        };
        let done = self.fetch(&sql, &[], &mut take).await;
        let rows = usize::from(row.is_some());
        sent.answered(done.as_ref().map(|()| Some(rows)), None);
        done?;
        let row = row.ok_or_else(|| Fault::own("the server returned no row"))?;
        self.pid = row.int("pid")?.unwrap_or(0) as i32;
        let settings = row.word("settings")?;
        self.talk.read_back(self.pid, &settings);
        if self
            .purpose
            .read_back()
            .is_some_and(|wanted| wanted != settings)
        {
            self.footing = Footing::Transaction;
            self.talk.unsettled();
        }
        self.any_bytes = row.flag("any_bytes")?.unwrap_or(false);
        match self.encoding() {
            Some(name) if self.footing == Footing::Session => {
                self.execute(&format!("SET client_encoding = '{name}'"))
                    .await
            }
            _ => Ok(()),
        }
    }
}
