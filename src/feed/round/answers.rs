//! What is read once, because somebody asked.

use super::Round;
use crate::app::row::RowId;
use crate::app::state::Detail;
use crate::connect::{Fault, Session};
use crate::probe::backend::Backend;
use crate::probe::tasks::{Filter, Task};
use std::sync::Arc;
use std::time::Duration;

/// What each statement of a detail may take: somebody waits for it, and it may be large.
const FETCH: Duration = Duration::from_secs(3);

impl Round {
    /// Fetches what the detail layer asks for.
    pub async fn fetch(&mut self, db: &Session, row: &RowId) -> Result<Arc<Detail>, String> {
        db.within(FETCH);
        let detail = match row {
            RowId::Task(key) => {
                let now = self.activity.as_ref().map(|a| a.now).ok_or("no data yet")?;
                let task = self.queues.detail(db, key, now).await;
                let task = match task {
                    Ok(task) => task,
                    Err(fault) => return Err(self.tables().named(db, fault).await.to_string()),
                };
                Detail::Task(Box::new(task.ok_or("this task is gone")?))
            }
            RowId::Session { pid, started_us } => {
                // one that is not listed is known by its pid only
                let started = (*started_us != 0).then_some(*started_us);
                let backend = Backend::read(db, *pid, started).await;
                let backend = backend.map_err(|f| f.to_string())?;
                Detail::Session(Box::new(backend.ok_or("this session has ended")?))
            }
            _ => return Err("there is nothing more to fetch for this row".into()),
        };
        Ok(Arc::new(detail))
    }

    /// Task rows by state and queue; a fault where there is no system that can be read.
    pub async fn list(&mut self, db: &Session, filter: &Filter) -> Result<Vec<Task>, Fault> {
        self.queues.detect(db).await?;
        if let Some(activity) = &mut self.activity {
            activity.fill(&mut self.snapshot);
        }
        let now = self.activity.as_ref().map(|a| a.now);
        let now = now.ok_or_else(|| Fault::own("the server's clock is not known"))?;
        if self.queues.whole().next().is_none() {
            self.queues.fill(&mut self.snapshot);
            if let Some(why) = self.snapshot.no_system() {
                return Err(Fault::own(why));
            }
        }
        match self.queues.query(db, filter, now).await {
            Ok(rows) => Ok(rows),
            Err(fault) => Err(self.tables().named(db, fault).await),
        }
    }
}
