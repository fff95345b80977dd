//! Exit code and error printing, nothing else.

use std::process::ExitCode;

use jobtop::demo::supervisor;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == supervisor::ARGUMENT)
    {
        return supervisor::main();
    }
    ExitCode::SUCCESS
}
