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

/// What was typed of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Typed<'a> {
    /// What comes before the names of its options: nothing, or `then-`.
    pub(super) prefix: &'static str,
    pub(super) kind: JoinKind,
    pub(super) between: Option<&'a str>,
    pub(super) choice: MatchChoice,
    pub(super) asof: Option<AsofChoice>,
    pub(super) tolerance: Option<&'a str>,
    pub(super) strict: bool,
    pub(super) window: Option<&'a str>,
}

/// What matches, before the unit of the run is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matching {
    prefix: &'static str,
    pub(super) form: Form,
}

/// Which of the ways it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// `--between` and `--match`.
    Between { interval: IntervalText, choice: MatchChoice },
    /// `--asof`, `--tolerance` and `--strict`.
    Asof { direction: AsofChoice, tolerance: TimeSpan, strict: bool },
    /// `--window`.
    Window(WindowText),
}

impl<'a> Typed<'a> {
    /// The first two sides' options.
    pub(super) fn of_sides(args: &'a MatchArgs) -> Typed<'a> {
        Typed {
            prefix: "",
            kind: args.kind.into(),
            between: args.between.as_deref(),
            choice: args.choice.into(),
            asof: args.asof,
            tolerance: args.tolerance.as_deref(),
            strict: args.strict,
            window: args.window.as_deref(),
        }
    }

    /// Makes sense of the options.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the option and what to give instead.
    pub(super) fn resolve(self) -> Result<Matching, Failure> {
        let form = self.form().map_err(|why| match why {
            Wrong::Said(failure) => failure,
            Wrong::Why(why) => Failure::usage(why.replace("--", &format!("--{}", self.prefix))),
        })?;
        Ok(Matching { prefix: self.prefix, form })
    }

    fn form(self) -> Result<Form, Wrong> {
        let pads_right = self.kind.emits_unmatched(Side::Right);
        if let Some(direction) = self.asof {
            let Some(tolerance) = self.tolerance else {
                return Err(Wrong::Why(
                    "--asof: give --tolerance as well, how far from the left row's time a right \
                     one may be, like 5m",
                ));
            };
            let tolerance = not_negative(&named(self.prefix, "tolerance"), tolerance)?;
            let leaves_none_out = self.kind.emits_pairs();
            if pads_right || (self.strict && direction == AsofChoice::Nearest && !leaves_none_out) {
                return Err(Wrong::Why(
                    "--asof finds one right row for each left one, so it goes with --type inner, \
                     left, semi and anti, and nearest with --strict with inner and left only",
                ));
            }
            return Ok(Form::Asof { direction, tolerance, strict: self.strict });
        }
        if self.strict {
            return Err(Wrong::Why(
                "--strict goes with --asof; leave it out, or say --asof backward in place of \
                 --between",
            ));
        }
        if self.tolerance.is_some() {
            return Err(Wrong::Why(
                "--tolerance goes with --asof; leave it out, or say --asof backward in place of \
                 --between",
            ));
        }
        if let Some(window) = self.window {
            return Ok(Form::Window(WindowText::parse(&named(self.prefix, "window"), window)?));
        }
        let Some(interval) = self.between else {
            return Err(Wrong::Why("give --between LO..HI, --asof or --window"));
        };
        if pads_right && !matches!(self.choice, MatchChoice::All | MatchChoice::OneToOne) {
            return Err(Wrong::Why(
                "--match: first, last and nearest choose for each left row, so they go with --type \
                 inner, left, semi and anti; for a right join swap the sides",
            ));
        }
        let interval = option(&named(self.prefix, "between"), interval.parse())?;
        Ok(Form::Between { interval, choice: self.choice })
    }
}

/// Why options make no sense.
enum Wrong {
    Said(Failure),
    /// In the names of the first two sides' options.
    Why(&'static str),
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Wrong {
        Wrong::Said(failure)
    }
}

/// An option's name.
fn named(prefix: &str, name: &str) -> String {
    format!("--{prefix}{name}")
}

impl Matching {
    /// As a rule has it: another interval in place of `--between`.
    pub(super) fn is_between(&self) -> bool {
        matches!(self.form, Form::Between { .. })
    }

    /// The coarsest unit in which it is exact.
    pub(super) fn unit_needed(&self) -> TimeUnit {
        match self.form {
            Form::Between { interval, .. } => interval.unit_needed(),
            Form::Asof { tolerance, .. } => tolerance.unit_needed(),
            Form::Window(window) => window.unit_needed(),
        }
    }

    /// Whether it is `--window`.
    pub(super) fn is_window(&self) -> bool {
        matches!(self.form, Form::Window(_))
    }

    /// The beginning of a spec, in ticks of the run.
    ///
    /// # Errors
    /// [`Failure::Usage`] for what the unit cannot hold.
    pub(super) fn spec(&self, unit: TimeUnit) -> Result<JoinSpecBuilder, Failure> {
        let name = |name: &str| named(self.prefix, name);
        match self.form {
            Form::Between { interval, choice } => {
                let (lo, hi) = option(&name("between"), interval.bounds(unit))?;
                Ok(JoinSpec::between(lo, hi).choice(choice))
            }
            Form::Asof { direction, tolerance, strict } => {
                let asof = match direction {
                    AsofChoice::Backward => Asof::backward(),
                    AsofChoice::Forward => Asof::forward(),
                    AsofChoice::Nearest => Asof::nearest(),
                };
                let asof = asof.within(ticks(&name("tolerance"), tolerance, unit)?);
                Ok(JoinSpec::asof(if strict { asof.strict() } else { asof }))
            }
            Form::Window(window) => Ok(JoinSpec::window(window.window(&name("window"), unit)?)),
        }
    }

    /// Why there is no such join, in the words of the options.
    pub(super) fn explain(&self, error: &SpecError, unit: TimeUnit) -> Failure {
        let say = |option: &str, why: &dyn Display| {
            Failure::usage(format!("{}: {why}", named(self.prefix, option)))
        };
        match (&self.form, error) {
            (Form::Between { interval, .. }, SpecError::Interval(IntervalError::Empty { .. })) => {
                say(
                    "between",
                    &format_args!(
                        "the interval {interval} is empty: no time in {unit} lies in it; give a \
                         lower end below the upper one, or close the ends"
                    ),
                )
            }
            (Form::Between { .. }, error) => say("between", error),
            (Form::Asof { .. }, SpecError::Interval(IntervalError::Empty { .. })) => say(
                "tolerance",
                &format_args!(
                    "with --{0}strict no time is left within it; give more than 0, or leave \
                     --{0}strict out",
                    self.prefix
                ),
            ),
            (Form::Asof { .. }, error) => say("asof", error),
            (Form::Window(_), error) => say("window", error),
        }
    }
}
