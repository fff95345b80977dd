//! The neutral rows that every source is turned into, and the casts of the outer select: nothing leaves the server
//! but text, int8, float8 and bool.

/// How a neutral column leaves the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// Text, cut after so many characters.
    Text(u16),
    /// Seconds since 1970.
    Time,
    /// int8.
    Int,
    /// float8.
    Float,
    /// A numeric, as text.
    Money,
    /// bool.
    Flag,
    /// Text cut after 4,096 characters, with the size of the whole beside it (`name_bytes`).
    Long,
}

use Cast::{Flag, Float, Int, Long, Money, Text, Time};

/// A task.
pub const TASK: &[(&str, Cast)] = &[
    ("id", Text(200)),
    ("queue", Text(200)),
    ("kind", Text(200)),
    ("state", Text(20)),
    ("native_state", Text(80)),
    ("priority", Float),
    ("created_at", Time),
    ("eligible_at", Time),
    ("claimed_at", Time),
    ("started_at", Time),
    ("finished_at", Time),
    ("lease_until", Time),
    ("heartbeat_at", Time),
    ("worker", Text(200)),
    ("worker_version", Text(80)),
    ("attempt", Int),
    ("max_attempts", Int),
    ("lease_token", Int),
    ("last_error", Text(200)),
    ("agent", Text(200)),
    ("tenant", Text(200)),
    ("application", Text(200)),
    ("batch", Text(200)),
    ("cancel_requested_at", Time),
    ("cost", Money),
    ("payload", Long),
    ("result", Long),
    ("error", Long),
    ("confidence", Float),
    ("more", Long),
];

/// A task in a list: without what is fetched for one task only.
pub fn listed() -> impl Iterator<Item = &'static (&'static str, Cast)> {
    TASK.iter()
        .filter(|(name, cast)| *cast != Long && *name != "confidence")
}

/// An arrival.
pub const ARRIVAL: &[(&str, Cast)] = &[("queue", Text(200))];

/// A try that ended.
pub const ATTEMPT: &[(&str, Cast)] = &[
    ("task", Text(200)),
    ("queue", Text(200)),
    ("kind", Text(200)),
    ("tenant", Text(200)),
    ("worker", Text(200)),
    // succeeded, failed, cancelled: how the try ended
    ("outcome", Text(20)),
    // the neutral final state that the task reached with it; NULL where it goes on
    ("task_state", Text(20)),
    ("created_at", Time),
    ("eligible_at", Time),
    ("claimed_at", Time),
    ("started_at", Time),
    ("finished_at", Time),
    ("error", Text(300)),
    ("cost", Money),
];

/// One of a task's tries.
pub const TRY: &[(&str, Cast)] = &[
    ("attempt", Int),
    ("worker", Text(200)),
    ("claimed_at", Time),
    ("started_at", Time),
    ("finished_at", Time),
    ("outcome", Text(80)),
    ("error", Text(500)),
    ("run_id", Text(200)),
    ("trace_id", Text(200)),
    ("input_tokens", Int),
    ("output_tokens", Int),
    ("cost", Money),
];

/// Spend.
pub const COST: &[(&str, Cast)] = &[
    ("task", Text(200)),
    ("attempt", Int),
    ("kind", Text(200)),
    ("agent", Text(200)),
    ("tenant", Text(200)),
    ("application", Text(200)),
    ("model", Text(200)),
    ("model_usd", Money),
    ("compute_usd", Money),
    ("input_tokens", Int),
    ("output_tokens", Int),
    // on a try that failed or was superseded
    ("failed", Flag),
    // by a task that runs now
    ("running", Flag),
    // no price is known for its tokens
    ("unpriced", Flag),
];

/// A try that lost its worker.
pub const LOST: &[(&str, Cast)] = &[
    ("task", Text(200)),
    ("queue", Text(200)),
    ("worker", Text(200)),
];

/// Parameters that are jobtop's own.
pub const RESERVED: &[&str] = &[
    "since", "until", "end", "id", "ids", "seen", "attempts", "tokens", "reason", "bound", "head",
    "limit", "batch", "kinds", "queues", "usual", "state", "queue", "slot", "wide", "rows", "scan",
    "locked", "each", "tenants", "states", "before", "failure", "priority",
];

impl Cast {
    /// The expression, cast.
    pub fn of(self, expr: &str) -> String {
        match self {
            Text(n) => format!("left(({expr})::text, {n})"),
            Long => format!("left(({expr})::text, 4096)"),
            Time => format!("date_part('epoch', ({expr})::timestamptz)"),
            Int => format!("({expr})::int8"),
            Float => format!("({expr})::float8"),
            Money => format!("({expr})::numeric::text"),
            Flag => format!("({expr})::bool"),
        }
    }

    /// A NULL of its type.
    pub fn null(self) -> &'static str {
        match self {
            Text(_) | Long | Money => "NULL::text",
            Time | Float => "NULL::float8",
            Int => "NULL::int8",
            Flag => "NULL::bool",
        }
    }
}
