//! What a queue looks like: the profile format (profile, check, template), the profiles that come with the program
//! (builtin), detection, and the SQL that is made from them. No system has code of its own.

pub mod action;
pub mod actions;
pub mod check;
pub mod columns;
pub mod detect;
pub mod grants;
pub mod half;
pub mod instance;
pub mod load;
pub mod made;
mod names;
pub mod profile;
pub mod reach;
pub mod statement;
pub mod template;

pub use action::action_sql;
pub use detect::{Catalogue, Settings, fan_out};
pub use half::Half;
pub use instance::{Branch, Instance, Relation, faults_of};
pub use load::profiles;
pub use profile::Profile;
