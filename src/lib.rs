//! `jobtop`: `top` for job queues that live in Postgres.
//!
//! Data flows one way and keys flow back as actions:
//!
//! ```text
//! Postgres ─► probe ─► Snapshot ─► feed ─► app state ─► panes ─► terminal
//!     ▲                                        │
//!     └──────── action (short transaction) ◄── dialog ◄── key
//! ```

pub mod action;
pub mod app;
pub mod cli;
pub mod commands;
pub mod config;
pub mod connect;
pub mod demo;
pub mod doctor;
pub mod feed;
pub mod files;
pub mod findings;
pub mod journal;
pub mod keys;
pub mod log;
pub mod migrate;
pub mod once;
pub mod out;
pub mod panes;
pub mod probe;
pub mod queue;
pub mod run;
pub mod sql;
pub mod term;
pub mod text;
pub mod ui;
