//! `intervale run`: a join whose options are in a file.

mod job;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::FromArgMatches;

use crate::cli::{Cli, Command, Failure, Stop, clap_ended, failure, join};

use job::Job;

const EXAMPLES: &str = "\
Example (in a clone of the repository):
  intervale run tests/data/job.toml

The same on one core, to a file:
  intervale run tests/data/job.toml --cores 1 --output joined.csv

A job has the long options of `intervale join` as keys, without the dashes. An option that may be
repeated may be a list, a switch is true or false. Paths are as on the command line: relative to
where the program runs. Further streams are tables:

  left = \"orders.csv\"
  right = [\"payments-1.csv\", \"payments-2.csv\"]
  on = \"order_id\"
  left-time = \"ts\"
  right-time = \"ts\"
  between = \"-5m..5m\"
  deterministic = true

  [[then]]
  file = \"parcels.csv\"
  on = \"right.order_id=order_id\"
  between = \"0..1d\"
  time = \"ts\"
  anchor = \"right\"

What stands in [[then]] are the options --then-on, --then-between and so on.";

/// Options of `intervale run`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The job, a file in TOML
    #[arg(value_name = "JOB")]
    job: PathBuf,
    /// Options of `intervale join` that take the place of those of the job
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Runs the job.
///
/// # Errors
/// What is wrong with the job, with its line; then as `intervale join`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let job = Job::load(&args.job)?.beside(&args.options);
    let typed = job.command_line(&args.options);
    let (matches, profile) = match super::parse(&typed) {
        Ok(parsed) => parsed,
        Err(Stop::Failure(failure)) => return Err(job.explain(failure)),
        Err(Stop::Clap(error)) if !error.use_stderr() => {
            // A help text that was asked for behind the job.
            clap_ended(&error);
            return Ok(());
        }
        Err(Stop::Clap(error)) => return Err(job.explain_use(&error)),
    };
    let cli = Cli::from_arg_matches(&matches).map_err(|error| job.explain_use(&error))?;
    let job_path = args.job.clone();
    let Command::Join(args) = cli.command else {
        return Err(Failure::usage("a job is a join"));
    };
    let mut settings = vec![("the job".to_owned(), job_path)];
    settings.extend(super::profile::file(&matches));
    join::run(*args, &settings).map_err(|failure| {
        let failure = match &profile {
            Some(profile) => profile.explain(failure, &matches),
            None => failure,
        };
        if failure.exit_code() == failure::USAGE { job.explain(failure) } else { failure }
    })
}
