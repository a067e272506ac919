//! What matches: `--between`, `--asof` or `--window`.

use std::fmt::Display;

use crate::cli::Failure;
use crate::cli::join::args::{AsofChoice, MatchArgs};
use crate::cli::join::plan::{not_negative, option};
use crate::cli::join::run::ticks;
use crate::cli::join::window::WindowText;
use crate::error::SpecError;
use crate::event::Side;
use crate::join::{Asof, JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice};
use crate::time::IntervalError;
use crate::time::text::{IntervalText, TimeSpan, TimeUnit};

/// What matches, before the unit of the run is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Matching {
    /// `--between` and `--match`.
    Between { interval: IntervalText, choice: MatchChoice },
    /// `--asof`, `--tolerance` and `--strict`.
    Asof { direction: AsofChoice, tolerance: TimeSpan, strict: bool },
    /// `--window`.
    Window(WindowText),
}

impl Matching {
    /// Makes sense of the options.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the option and what to give instead.
    pub(super) fn resolve(args: &MatchArgs) -> Result<Matching, Failure> {
        let pads_right = JoinKind::from(args.kind).emits_unmatched(Side::Right);
        if let Some(direction) = args.asof {
            let Some(tolerance) = &args.tolerance else {
                return Err(Failure::usage(
                    "--asof: give --tolerance as well, how far from the left row's time a right \
                     one may be, like 5m",
                ));
            };
            let tolerance = not_negative("--tolerance", tolerance)?;
            let leaves_none_out = JoinKind::from(args.kind).emits_pairs();
            if pads_right || (args.strict && direction == AsofChoice::Nearest && !leaves_none_out) {
                return Err(Failure::usage(
                    "--asof finds one right row for each left one, so it goes with --type inner, \
                     left, semi and anti, and nearest with --strict with inner and left only",
                ));
            }
            return Ok(Matching::Asof { direction, tolerance, strict: args.strict });
        }
        if args.tolerance.is_some() || args.strict {
            let option = if args.strict { "--strict" } else { "--tolerance" };
            return Err(Failure::usage(format!(
                "{option} goes with --asof; leave it out, or say --asof backward in place of \
                 --between"
            )));
        }
        if let Some(window) = &args.window {
            return Ok(Matching::Window(WindowText::parse(window)?));
        }
        let Some(interval) = &args.between else {
            return Err(Failure::usage("give --between LO..HI, --asof or --window"));
        };
        let choice = args.choice.into();
        if pads_right && !matches!(choice, MatchChoice::All | MatchChoice::OneToOne) {
            return Err(Failure::usage(
                "--match: first, last and nearest choose for each left row, so they go with --type \
                 inner, left, semi and anti; for a right join swap the sides",
            ));
        }
        Ok(Matching::Between { interval: option("--between", interval.parse())?, choice })
    }

    /// The coarsest unit in which it is exact.
    pub(super) fn unit_needed(&self) -> TimeUnit {
        match self {
            Matching::Between { interval, .. } => interval.unit_needed(),
            Matching::Asof { tolerance, .. } => tolerance.unit_needed(),
            Matching::Window(window) => window.unit_needed(),
        }
    }

    /// The beginning of a spec, in ticks of the run.
    ///
    /// # Errors
    /// [`Failure::Usage`] for what the unit cannot hold.
    pub(super) fn spec(&self, unit: TimeUnit) -> Result<JoinSpecBuilder, Failure> {
        match *self {
            Matching::Between { interval, choice } => {
                let (lo, hi) = option("--between", interval.bounds(unit))?;
                Ok(JoinSpec::between(lo, hi).choice(choice))
            }
            Matching::Asof { direction, tolerance, strict } => {
                let asof = match direction {
                    AsofChoice::Backward => Asof::backward(),
                    AsofChoice::Forward => Asof::forward(),
                    AsofChoice::Nearest => Asof::nearest(),
                };
                let asof = asof.within(ticks("--tolerance", tolerance, unit)?);
                Ok(JoinSpec::asof(if strict { asof.strict() } else { asof }))
            }
            Matching::Window(window) => Ok(JoinSpec::window(window.window(unit)?)),
        }
    }

    /// Why there is no such join, in the words of the options.
    pub(super) fn explain(&self, error: &SpecError, unit: TimeUnit) -> Failure {
        let say = |option: &str, why: &dyn Display| Failure::usage(format!("{option}: {why}"));
        match (self, error) {
            (
                Matching::Between { interval, .. },
                SpecError::Interval(IntervalError::Empty { .. }),
            ) => say(
                "--between",
                &format_args!(
                    "the interval {interval} is empty: no time in {unit} lies in it; give a lower \
                     end below the upper one, or close the ends"
                ),
            ),
            (Matching::Between { .. }, error) => say("--between", error),
            (Matching::Asof { .. }, SpecError::Interval(IntervalError::Empty { .. })) => say(
                "--tolerance",
                &"with --strict no time is left within it; give more than 0, or leave --strict out",
            ),
            (Matching::Asof { .. }, error) => say("--asof", error),
            (Matching::Window(_), error) => say("--window", error),
        }
    }
}
