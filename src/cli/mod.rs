//! The command line: what the user typed, what it resolves to, and one file a command.
//!
//! A command is a module with an `Args` (what clap parses) and a `run` of it that may fail with a
//! [`Failure`]. To add one: write it, add a variant to [`Command`] and an arm to `run` below.
//!
//! Results go to standard output, everything else to standard error. The exit status is 0 when the
//! work is done, 1 when it failed while running, 2 for wrong use, 130 after Ctrl-C and 143 after
//! SIGTERM.

mod bench;
mod calibrate;
mod choices;
mod completions;
mod console;
mod doctor;
mod failure;
mod r#gen;
mod join;
mod layout;
mod load;
mod machine;
mod number;
mod os;
mod plot;
mod profile;
mod progress;
mod run;
mod shape;
mod text;
mod tune;
mod verify;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use console::{Console, out, out_line};
pub use failure::Failure;
pub use os::StopSignal;

use profile::Profile;

/// What clap parses.
#[derive(Debug, Parser)]
#[command(
    name = "intervale",
    version,
    propagate_version = true,
    about = "Joins event streams by key and time interval, on every core of one machine.",
    max_term_width = 100,
    arg_required_else_help = true,
    subcommand_required = true
)]
pub struct Cli {
    /// The command and its options.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order of the help text.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Joins two streams of files, or more, by key and time interval
    Join(Box<join::Args>),
    /// Runs a join whose options are in a file
    Run(run::Args),
    /// Measures the join on a made workload, beside what memory alone would charge
    Bench(Box<bench::Args>),
    /// Loads an engine at given rates, and measures latency from when events were due
    Load(Box<load::Args>),
    /// Writes a made workload as two files
    Gen(Box<r#gen::Args>),
    /// Compares a result, pair by pair, with an offline join of the whole files
    Verify(Box<verify::Args>),
    /// Suggests the settings of a join from historical files
    Calibrate(Box<calibrate::Args>),
    /// Checks this host, and says what to change
    Doctor(doctor::Args),
    /// Tries settings on a workload or on files, and writes a profile of those that help
    Tune(Box<tune::Args>),
    /// Prints a completion script for a shell
    Completions(completions::Args),
}

/// Runs the program on the process's arguments and says how it ended. The process is the program's
/// own from here on: what signals do is its business.
pub fn main() -> ExitCode {
    os::ignore_file_size_signal();
    run_from(std::env::args_os())
}

/// Runs the program on given arguments, the program's name first. Prints what goes wrong.
pub fn run_from(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    os::start_usage();
    let args: Vec<OsString> = args.into_iter().collect();
    let (matches, profile) = match parse(&args) {
        Ok(parsed) => parsed,
        Err(Stop::Clap(error)) => return clap_ended(&error),
        Err(Stop::Failure(failure)) => return ended(Err(failure)),
    };
    let settings: Vec<join::Settings> = profile::file(&matches).into_iter().collect();
    let done = match Cli::from_arg_matches(&matches) {
        Ok(cli) => run_command(cli.command, &settings),
        Err(error) => return clap_ended(&in_words_of_command(error, &matches)),
    };
    ended(done.map_err(|failure| match &profile {
        Some(profile) => profile.explain(failure, &matches),
        None => failure,
    }))
}

/// Why there is nothing to run.
enum Stop {
    /// Wrong use, or a text that was asked for.
    Clap(clap::Error),
    /// A profile that cannot be used.
    Failure(Failure),
}

/// Parses arguments; a profile among them is read, and changes the defaults of the others.
fn parse(args: &[OsString]) -> Result<(ArgMatches, Option<Profile>), Stop> {
    let matches = command().try_get_matches_from(args).map_err(Stop::Clap)?;
    let Some(name) = profile::given(&matches) else { return Ok((matches, None)) };
    let profile = Profile::load(name).map_err(Stop::Failure)?;
    let matches = profile.apply(command()).try_get_matches_from(args).map_err(|error| {
        Console::stderr().note(&format!("with the settings of {}:", profile.from));
        Stop::Clap(error)
    })?;
    Ok((matches, Some(profile)))
}

/// An error of what was typed, with the usage of the command that it was typed for.
fn in_words_of_command(error: clap::Error, matches: &ArgMatches) -> clap::Error {
    let mut root = command();
    root.build();
    let name = matches.subcommand_name().unwrap_or_default();
    match root.find_subcommand_mut(name) {
        Some(command) => error.format(command),
        None => error.format(&mut root),
    }
}

/// Prints what clap has to say.
fn clap_ended(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Where standard error has gone, too, there is nobody to tell.
        let _ = error.print();
        return ExitCode::from(failure::USAGE);
    }
    ended(console::check_stdout().map(|()| {
        // A reader that has gone has seen enough of a help text.
        let _ = error.print();
    }))
}

/// Tells the program that it began without a standard output (`>&-`), so that whatever needs one
/// fails instead of writing to where Rust's runtime redirects it, which is nowhere.
pub fn note_closed_stdout() {
    os::note_closed_stdout();
}

/// Says what went wrong, and gives the exit status.
fn ended(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(failure::DONE),
        Err(failure) => {
            if let Some(message) = failure.message() {
                Console::stderr().error(message);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// The whole command line as clap sees it: for completions and tests.
pub fn command() -> clap::Command {
    profile::with_option(Cli::command())
}

fn run_command(command: Command, settings: &[join::Settings]) -> Result<(), Failure> {
    match command {
        Command::Join(args) => join::run(*args, settings),
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Gen(args) => r#gen::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Completions(args) => completions::run(&args),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        super::command().debug_assert();
    }
}
