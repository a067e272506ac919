//! What must hold of a pair beside its key and its times.

use std::fmt;
use std::sync::Arc;

use crate::event::Event;

/// A condition on pairs: two events that match by key and time are a pair only if it holds. It
/// decides what is matched, and with that everything that follows from it: which row is chosen,
/// which rows are padded, semi and anti rows, what a window gives.
///
/// It is asked once for each two events that otherwise match (in hopping windows once a window), on
/// the core that found them, the left one first. It should depend on nothing but the two: the same
/// answer each time. One that panics ends the engine with
/// [`EngineError::Panicked`](crate::engine::EngineError::Panicked), and a single-threaded join must
/// not be used any more.
///
/// ```
/// use intervale::event::{Event, Key, Side};
/// use intervale::join::{Join, JoinSpec};
/// use intervale::limits::Limits;
/// use intervale::time::Bound;
///
/// let limits = Limits::default();
/// let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(60_000))
///     .condition(|order, payment| order.row == payment.row)
///     .build(&limits)?;
/// let mut join = Join::new(spec, limits)?;
/// let mut delays = Vec::new();
/// let mut out = |order: Event<'_>, payment: Event<'_>| delays.push(payment.ts - order.ts);
/// join.push(Side::Left, Key::Int(17), 1_000, b"9.99", &mut out)?;
/// join.push(Side::Right, Key::Int(17), 2_000, b"8.00", &mut out)?;
/// join.push(Side::Right, Key::Int(17), 4_500, b"9.99", &mut out)?;
/// assert_eq!(delays, [3_500]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Condition(Arc<Holds>);

type Holds = dyn Fn(&Event<'_>, &Event<'_>) -> bool + Send + Sync;

impl Condition {
    /// A condition of the left and the right event.
    pub fn new(
        holds: impl Fn(&Event<'_>, &Event<'_>) -> bool + Send + Sync + 'static,
    ) -> Condition {
        Condition(Arc::new(holds))
    }

    /// Whether it holds. A call that is not inlined, and what the condition itself costs.
    #[inline]
    pub fn holds(&self, left: &Event<'_>, right: &Event<'_>) -> bool {
        (self.0)(left, right)
    }
}

/// Conditions are the same if one is a clone of the other.
impl PartialEq for Condition {
    fn eq(&self, other: &Condition) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Condition {}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condition")
    }
}
