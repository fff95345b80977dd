//! Exit code and error printing, nothing else.

use jobtop::cli::Cli;
use jobtop::commands::{self, Exit};
use jobtop::demo::supervisor;
use jobtop::out;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == supervisor::ARGUMENT)
    {
        return supervisor::main();
    }
    let exit = match Cli::read(std::env::args_os()) {
        Ok(cli) => commands::run(cli),
        Err(answer) => commands::answer(&answer),
    };
    if let Some(sentence) = exit.sentence() {
        out::tell(&sentence);
    }
    ExitCode::from(Exit::code(&exit))
}
