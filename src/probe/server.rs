//! The server: version, role, limits.

use super::ServerTime;
use serde::{Deserialize, Serialize};

/// The server and how we reached it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// `15.18`.
    pub version: String,
    /// `150018`.
    pub version_num: i32,
    /// Database name.
    pub database: String,
    /// Host name, address or socket directory, as connected to.
    pub host: String,
    /// Role we are logged in as.
    pub user: String,
    /// A standby.
    pub in_recovery: bool,
    /// Our session cannot write.
    pub read_only: bool,
    /// `listen`, `polling`, or `off: reason`.
    pub push: String,
    /// When the postmaster started.
    pub started_at: Option<ServerTime>,
    /// May see the sessions of all roles (pg_read_all_stats).
    pub sees_all: bool,
    /// Server's clock minus the local clock, in seconds; shown, never used.
    pub clock_skew_s: Option<f64>,
    /// Processor cores of the server's machine; known only where that is this one (a socket or loopback).
    #[serde(default)]
    pub cores: Option<u32>,
    /// The server's `TimeZone` setting.
    pub time_zone: String,
}
