//! What a measured join does with its matches: all of them, one, or by windows.

use crate::error::SpecError;
use crate::event::Event;
use crate::join::{Asof, Condition, JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice, Window};
use crate::workload::{Bounds, LayoutHints, Workload};

/// What matches count, over one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Those in the workload's interval, by this choice.
    Interval(MatchChoice),
    /// An as-of join: one right row for each left one.
    Asof {
        /// Which one.
        direction: Direction,
        /// How far away it may be, in milliseconds.
        tolerance_ms: i64,
    },
    /// Those in the same window; its lengths are milliseconds.
    Window(Window),
}

/// On which side in time an as-of join looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// At or before the left row's time.
    Backward,
    /// At or after it.
    Forward,
    /// Both.
    Nearest,
}

impl Direction {
    /// The name that `--asof` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Backward => "backward",
            Direction::Forward => "forward",
            Direction::Nearest => "nearest",
        }
    }
}

/// The condition that measured joins may have: it holds of about half of all pairs, those whose ids
/// are both even or both odd, and costs as little as one can.
pub fn half_of_pairs() -> Condition {
    let is_odd = |event: &Event<'_>| event.row.first().is_some_and(|byte| byte & 1 == 1);
    Condition::new(move |left, right| is_odd(left) == is_odd(right))
}

impl Default for Form {
    /// All pairs in the interval.
    fn default() -> Form {
        Form::Interval(MatchChoice::All)
    }
}

impl Form {
    /// The events to run it over: where one of several matches is chosen, they must not share
    /// times, or which one it is would depend on the order in which they arrive.
    pub fn workload(self, workload: Workload) -> Workload {
        match self {
            Form::Interval(MatchChoice::All) | Form::Window(_) => workload,
            Form::Interval(_) | Form::Asof { .. } => workload.fine(),
        }
    }

    /// Whether results depend on the order in which rows of one key and side arrive.
    pub fn needs_order(self) -> bool {
        self == Form::Interval(MatchChoice::OneToOne)
    }

    /// The join, over a workload that [`Form::workload`] gave.
    ///
    /// # Errors
    /// [`SpecError`] for a kind that does not go with it, an empty interval, and windows that are
    /// none.
    pub fn spec(self, workload: &Workload, kind: JoinKind) -> Result<JoinSpec, SpecError> {
        self.spec_within(workload, kind, LayoutHints::default(), &Bounds::default())
    }

    /// [`spec`](Self::spec), with state laid out and bounded as a user chose.
    ///
    /// # Errors
    /// As for [`spec`](Self::spec), and for what cannot be chosen.
    pub fn spec_within(
        self,
        workload: &Workload,
        kind: JoinKind,
        layout: LayoutHints,
        bounds: &Bounds,
    ) -> Result<JoinSpec, SpecError> {
        let builder = layout.add_to(self.builder(workload), workload.ticks_per_ms);
        bounds.add_to(builder.kind(kind)).build(&bounds.limits)
    }

    fn builder(self, workload: &Workload) -> JoinSpecBuilder {
        match self {
            Form::Interval(choice) => workload.spec(JoinKind::Inner).choice(choice),
            Form::Window(window) => JoinSpec::window(window),
            Form::Asof { direction, tolerance_ms } => {
                let asof = match direction {
                    Direction::Backward => Asof::backward(),
                    Direction::Forward => Asof::forward(),
                    Direction::Nearest => Asof::nearest(),
                };
                let tolerance = tolerance_ms.saturating_mul(workload.ticks_per_ms);
                JoinSpec::asof(asof.within(tolerance))
            }
        }
    }
}
