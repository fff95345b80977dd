//! Exit code and error printing, nothing else.

use jobtop::cli::Cli;
use jobtop::commands::{self, Exit};
use jobtop::demo::supervisor;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == supervisor::ARGUMENT)
    {
        return supervisor::main();
    }
    let exit = commands::run(Cli::read(std::env::args_os()).unwrap_or_else(|e| e.exit()));
    if let Some(sentence) = exit.sentence() {
        // stderr may be gone with the terminal
        let _ =
            std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("jobtop: {sentence}\n"));
    }
    ExitCode::from(Exit::code(&exit))
}
