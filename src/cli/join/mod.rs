//! `intervale join`: what the user typed ([`Args`]), what it resolves to (`plan`), the run, the
//! closing report.

mod args;
mod bounds;
mod chain;
mod expressions;
mod feeds;
mod hint;
mod late;
mod left_out;
mod matching;
mod offline;
mod open;
mod outputs;
mod paths;
mod plan;
mod report;
mod rules;
mod run;
mod size;
mod streams;
mod then;
mod waiting;
mod window;

pub use args::Args;
pub(in crate::cli) use args::{
    AsofChoice, BadRows, ConditionArgs, InputArgs, MatchArgs, OnFull, TimeArgs,
};
pub(in crate::cli) use offline::{Ask, Row, Table, Tables, read};
pub(in crate::cli) use paths::check_distinct;

pub(in crate::cli) use size::{memory_bytes, parse_size, show_size};
pub(in crate::cli) use then::ThenArgs;
pub(in crate::cli) use then::{is_flag as then_is_flag, repeats as then_repeats};
pub(in crate::cli) use window::WindowText;

use crate::cli::Failure;

/// A file that options were read from: what it is called in messages, and where it is. No output
/// may take its place.
pub(in crate::cli) type Settings = (String, std::path::PathBuf);

/// Joins the files and reports.
///
/// # Errors
/// Wrong use, a failure while running, Ctrl-C, a closed pipe.
pub fn run(args: Args, settings: &[Settings]) -> Result<(), Failure> {
    let plan = plan::Plan::resolve(&args, settings)?;
    if plan.then.is_empty() { run::run(&plan) } else { chain::run(&plan) }
}
