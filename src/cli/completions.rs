//! `intervale completions`: a script that teaches a shell the command line.

use clap::ValueEnum;
use clap_complete::{Shell, generate};

use crate::cli::{Failure, command, out};

const EXAMPLES: &str = "\
Examples:
  intervale completions bash > intervale.bash && . ./intervale.bash
  intervale completions zsh > _intervale
  intervale completions fish > intervale.fish";

/// Options of `intervale completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell to complete for
    shell: Target,
}

/// The shells there are scripts for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script.
///
/// # Errors
/// A failed write to standard output.
pub fn run(args: &Args) -> Result<(), Failure> {
    let shell = match args.shell {
        Target::Bash => Shell::Bash,
        Target::Zsh => Shell::Zsh,
        Target::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut command(), "intervale", &mut script);
    out(&String::from_utf8_lossy(&script))
}
