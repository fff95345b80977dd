//! The person at the terminal, who may be asked for what only a person knows: once for each thing, after an attempt has
//! shown that it is needed (as psql does), and never while there is a screen. The answers are kept for later connections.

use super::{Fault, Secret};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What an attempt lacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The server asks for a password.
    Password,
    /// The client key is encrypted: the name of its file.
    Phrase(String),
}

/// Asks a question on the terminal, without echo. An error is one sentence.
pub type Ask = fn(&str) -> anyhow::Result<Secret>;

#[derive(Debug, Default)]
struct State {
    ask: Option<Ask>,
    hushed: bool,
    /// Something was lacking while nobody could be asked.
    missed: bool,
    password: Option<Secret>,
    phrase: Option<Secret>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Person(Mutex<State>);

impl Person {
    /// Somebody, if there is a way to ask.
    pub fn new(ask: Option<Ask>) -> Self {
        Self(Mutex::new(State {
            ask,
            ..State::default()
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is there somebody, with or without a screen?
    pub fn exists(&self) -> bool {
        self.state().ask.is_some()
    }

    /// The password that was given. Who gave an empty one has none.
    pub fn password(&self) -> Option<Secret> {
        self.state().password.clone().filter(|p| !p.is_empty())
    }

    /// The pass phrase of the key that was given.
    pub fn phrase(&self) -> Option<Secret> {
        self.state().phrase.clone()
    }

    /// From now on nobody is asked, since there is a screen; or somebody may be again. Was something lacking meanwhile?
    pub fn hush(&self, hushed: bool) -> bool {
        let mut state = self.state();
        state.hushed = hushed;
        std::mem::take(&mut state.missed)
    }

    /// Asks for what is lacking, as `user`. `false` where it has been asked for before, or nobody can be asked.
    pub async fn add(&self, lack: &Lack, user: &str) -> Result<bool, Fault> {
        let ask = {
            let mut state = self.state();
            let before = match lack {
                Lack::Password => &state.password,
                Lack::Phrase(_) => &state.phrase,
            };
            let ask = state.ask.filter(|_| before.is_none());
            state.missed |= ask.is_some() && state.hushed;
            ask.filter(|_| !state.hushed)
        };
        let Some(ask) = ask else { return Ok(false) };
        let question = match lack {
            Lack::Password => format!("Password for user {}: ", crate::text::clean(user)),
            Lack::Phrase(file) => format!("Pass phrase for {}: ", crate::text::clean(file)),
        };
        let answer = tokio::task::spawn_blocking(move || ask(&question)).await;
        let answer = answer.map_err(anyhow::Error::from).flatten();
        let answer = answer.map_err(|error| Fault::own(format!("{error:#}")))?;
        let mut state = self.state();
        match lack {
            Lack::Password => state.password = Some(answer),
            Lack::Phrase(_) => state.phrase = Some(answer),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(question: &str) -> anyhow::Result<Secret> {
        Ok(Secret::new(question))
    }

    #[tokio::test]
    async fn each_thing_is_asked_for_once_and_not_behind_a_screen() {
        let nobody = Person::default();
        assert_eq!(nobody.add(&Lack::Password, "u").await, Ok(false));
        assert!(!nobody.hush(false), "there is nobody to miss it");
        let person = Person::new(Some(answers));
        person.hush(true);
        assert_eq!(person.add(&Lack::Password, "u").await, Ok(false));
        assert!(person.hush(false), "it was lacking");
        assert!(!person.hush(false), "that is told once");
        assert_eq!(person.add(&Lack::Password, "u\u{7}v").await, Ok(true));
        assert_eq!(person.add(&Lack::Password, "u").await, Ok(false));
        let key = Lack::Phrase("a/key".into());
        assert_eq!(person.add(&key, "u").await, Ok(true));
        assert_eq!(person.add(&key, "u").await, Ok(false));
        let said = person.password().expect("given");
        assert!(said.reveal().starts_with("Password for user u"), "cleaned");
        assert!(!said.reveal().contains('\u{7}'));
        let said = person.phrase().expect("given");
        assert_eq!(said.reveal(), "Pass phrase for a/key: ");
        assert!(!format!("{person:?}").contains("phrase for"));
    }
}
