//! The profile format: how any queue is read, as data. A profile names no code; every predicate is in the
//! system's own terms, so that its own indexes serve; what it cannot know it says.

use super::actions::Actions;
use super::grants::Grants;
use serde::Deserialize;
use std::collections::BTreeMap;

/// SQL with `{blanks}` and `:parameters`, and where in the file it stands.
pub type Sql = toml::Spanned<String>;

/// How one queue system is read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Version of this format: 1.
    pub format: u32,
    /// Name on screen and in JSON.
    pub system: toml::Spanned<String>,
    /// What it is, in one line.
    #[serde(default)]
    pub title: String,
    /// What tells it from every other table.
    pub detect: Detect,
    /// Values a user may set, bound as parameters of the same name.
    #[serde(default)]
    pub settings: BTreeMap<String, Setting>,
    /// Columns that some versions lack: `{name}` is the column where it exists, else a typed NULL.
    #[serde(default)]
    pub optional: BTreeMap<String, Opt>,
    /// One row per table or partition that holds tasks; its text columns are blanks below.
    pub fanout: Option<Sql>,
    /// Common table expressions that every statement may use (`locks AS MATERIALIZED (...)`).
    pub with: Option<Sql>,
    /// The queues, and how a task row is told to be in one.
    pub queues: Option<Queues>,
    /// The neutral row: expressions over every task source.
    pub row: BTreeMap<String, Sql>,
    /// Where tasks that are not finished are found.
    pub live: Vec<Live>,
    /// Finished tasks, newest first; `:since` bounds them. The first source whose needs are met is used.
    #[serde(default)]
    pub finished: Vec<Source>,
    /// Tasks that gave up, newest first, where an index serves them; else `finished` is searched.
    #[serde(default)]
    pub failed: Vec<Source>,
    /// One task, whatever its state: `:id`.
    #[serde(default)]
    pub by_id: Vec<Source>,
    /// Tasks by creation: `at` is the creation, `:since` and `:until` bound it.
    #[serde(default)]
    pub arrivals: Vec<Source>,
    /// Tries by end: `at` is the end (or the claim, see [`Source::ends`]), `:since` and `:until` bound it.
    #[serde(default)]
    pub attempts: Vec<Source>,
    /// All tries of one task: `:id`.
    #[serde(default)]
    pub attempts_of: Vec<Source>,
    /// The tasks of one batch: `:batch`.
    #[serde(default)]
    pub batch: Vec<Source>,
    /// Spend: one row a model call or a try; `at` orders them, `:since` and `:until` bound them.
    #[serde(default)]
    pub cost: Vec<Source>,
    /// Tries that lost their worker: `:since` bounds them.
    #[serde(default)]
    pub lost: Vec<Source>,
    /// How finished work shows.
    pub throughput: Throughput,
    /// When a running task is stuck.
    #[serde(default)]
    pub stuck: Vec<Rule>,
    /// Rows that no sound queue holds.
    #[serde(default)]
    pub invariants: Vec<Invariant>,
    /// The column whose statistics estimate how many finished tasks there are.
    pub estimate: Option<Estimate>,
    /// Neutral columns and figures it cannot know, and why.
    #[serde(default)]
    pub unknown: BTreeMap<String, String>,
    /// What an operator may do.
    #[serde(default)]
    pub actions: Actions,
    /// Which rights operators and workers need.
    #[serde(default)]
    pub grants: Grants,
    /// Channels on which the system announces changes.
    #[serde(default)]
    pub notify: Vec<Channel>,
    /// Leading columns of the index that claims read.
    #[serde(default)]
    pub claim_index: Vec<String>,
    /// Further tables of the system, whose health matters (templates).
    #[serde(default)]
    pub tables: Vec<Sql>,
    /// The table that records what operators did.
    pub journal: Option<Sql>,
    /// Who writes `claimed_at`: the database's clock, or the worker's.
    #[serde(default)]
    pub clock: Clock,
    /// A failed task that is due again is claimed by nobody: the system's workers do not look at it.
    #[serde(default)]
    pub retryable_is_ignored: bool,
    /// Facts that belong on the queue's line.
    #[serde(default)]
    pub notes: Vec<String>,
    /// File it came from.
    #[serde(skip)]
    pub file: String,
}

/// What tells a system from every other table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// Its main table; `*` stands for anything.
    pub anchor: String,
    /// Columns the main table must have.
    pub columns: Vec<String>,
    /// Columns it must not have.
    #[serde(default)]
    pub without: Vec<String>,
    /// Other tables that must be in the same schema.
    #[serde(default)]
    pub also: Vec<Also>,
    /// Schemas in which it may be; any when empty.
    #[serde(default)]
    pub schemas: Vec<String>,
    /// The main table may be a view.
    #[serde(default)]
    pub views: bool,
}

/// Another table of the same system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Also {
    /// Its name.
    pub relation: String,
    /// Columns it must have.
    #[serde(default)]
    pub columns: Vec<String>,
}

/// A value a user may set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: SettingType,
    /// Its value unless set; the server's `TimeZone` for an empty time zone.
    pub default: String,
    /// What it means.
    #[serde(default)]
    pub about: String,
}

/// Types of settings.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SettingType {
    /// `5 min`.
    Interval,
    /// A name of pg_timezone_names, or empty for the server's.
    TimeZone,
    /// Any text.
    Text,
    /// A whole number.
    Int,
}

/// A column that may be missing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opt {
    /// Its table (a template).
    pub relation: Sql,
    /// Its name.
    pub column: String,
    /// Its type, for the NULL in its place.
    #[serde(rename = "type")]
    pub kind: String,
    /// The table's alias in the sources.
    pub alias: Option<String>,
}

/// The queues of one branch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queues {
    /// Their names, in a column `queue`; available as `q` below.
    pub list: Sql,
    /// The task row is in queue `q`; `true` unless given.
    pub is: Option<Sql>,
    /// Tasks that may run at once.
    pub limit: Option<Sql>,
    /// Nobody claims from it on purpose.
    pub paused: Option<Sql>,
}

fn yes() -> bool {
    true
}

/// A source of live tasks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Live {
    /// Its name, for rules.
    pub name: String,
    /// FROM.
    pub from: Sql,
    /// WHERE, in native terms.
    pub r#where: Sql,
    /// Neutral states that it can hold, the most frequent one first.
    pub states: Vec<crate::probe::State>,
    /// Most urgent first, as an index gives it.
    pub order: Option<Sql>,
    /// Ready tasks are also counted by kind, where there is one.
    #[serde(default = "yes")]
    pub kinds: bool,
    /// `order` is served across all queues at once, not within each.
    #[serde(default)]
    pub spans: bool,
    /// Alias of the table whose row locks matter.
    pub lock: Option<String>,
    /// Neutral columns that differ here.
    #[serde(default)]
    pub row: BTreeMap<String, Sql>,
}

impl Live {
    /// Can it hold tasks in this state?
    pub fn holds(&self, state: crate::probe::State) -> bool {
        self.states.contains(&state)
    }
}

/// A source of rows, or why there is none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// FROM.
    pub from: Option<Sql>,
    /// WHERE, in native terms.
    pub r#where: Option<Sql>,
    /// ORDER BY.
    pub order: Option<Sql>,
    /// The time that orders rows.
    pub at: Option<Sql>,
    /// What `at` is: the end of a try, or only its claim (nothing is known about ends then).
    #[serde(default)]
    pub ends: Ends,
    /// Optional columns without which this source is of no use.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Leading columns of an index without which this source would read the whole table.
    #[serde(default)]
    pub index: Vec<String>,
    /// What this source cannot show.
    pub note: Option<String>,
    /// Neutral columns that differ here.
    #[serde(default)]
    pub row: BTreeMap<String, Sql>,
    /// There is no such source, and why.
    pub why: Option<String>,
}

/// What an attempt source's `at` is.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// The end of the try.
    #[default]
    Finished,
    /// Its claim.
    Claimed,
}

/// How finished work shows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Throughput {
    /// In rows with a time.
    Finished,
    /// Only as deleted rows of this table (a template).
    DeletedTuples(Sql),
    /// Not at all, and why.
    None(String),
}

/// When a running task is stuck.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Said on screen.
    pub name: String,
    /// Name of the live source that it looks at.
    pub live: String,
    /// In addition to that source's.
    pub r#where: Sql,
    /// Longest stuck first, as an index gives it.
    pub order: Option<Sql>,
    /// Since when it has been stuck; NULL where there is no end.
    pub since: Option<Sql>,
}

/// Rows that no sound queue holds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invariant {
    /// Which.
    pub rule: crate::probe::queues::Invariant,
    /// FROM.
    pub from: Sql,
    /// WHERE; `:since` bounds the look back.
    pub r#where: Sql,
    /// The task (or call).
    pub id: Sql,
}

/// The column whose statistics estimate finished tasks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Table (a plain name in the anchor's schema).
    pub relation: String,
    /// Column.
    pub column: String,
    /// Native value to neutral state.
    pub states: BTreeMap<String, crate::probe::State>,
}

/// A channel on which the system announces changes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// Its name: an SQL expression.
    pub channel: Sql,
    /// When it speaks.
    #[serde(default)]
    pub about: String,
}

/// Whose clock writes a column.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The database's: nothing can be said about the worker's.
    #[default]
    Server,
    /// The worker's.
    Worker,
}
