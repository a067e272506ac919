//! Collects what a chain is made of, and starts it.

use std::sync::Arc;

use crate::engine::EngineError;
use crate::engine::assemble::Assembly;
use crate::engine::builder::{EngineBuilder, NoSinks, Settings, StagePlan};
use crate::engine::chain::hand_over::{HandOverPlan, LateBox};
use crate::engine::chain::row::{JoinedRow, Stream};
use crate::engine::chain::sink::{ChainSink, Last};
use crate::engine::chain::{Chain, NO_SUCH_STREAM, side_of};
use crate::error::SpecError;
use crate::event::{Key, KeyHasher};
use crate::exchange::{Feed, WatermarkSlot};
use crate::join::{AnyJoin, JoinSpec, MatchChoice, Window};
use crate::limits::Limits;
use crate::runtime::Topology;
use crate::state::Simd;
use crate::time::{Interval, LatePolicy};

/// One more stage of a chain: what came out so far is joined with another stream.
pub struct Then {
    spec: JoinSpec,
    anchor: Stream,
    key: Arc<super::hand_over::KeyOf>,
}

impl Then {
    /// Pairs with `t + lo <= right.ts <= t + hi`, where `t` is the time of the `anchor` in the
    /// joined row. `key` gives a joined row its key in this stage; it is called on the core that
    /// found the row and may put the key's bytes together in the scratch space that it is given,
    /// which is empty each time. It should depend on the row alone: the same key each time.
    ///
    /// ```
    /// use intervale::engine::{Stream, Then};
    /// use intervale::event::{Key, KeyKind};
    /// use intervale::join::JoinSpec;
    /// use intervale::limits::Limits;
    /// use intervale::time::Bound;
    ///
    /// let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(60_000))
    ///     .keys(KeyKind::Bytes)
    ///     .build(&Limits::default())?;
    /// // The first two letters of the left row.
    /// let stage = Then::new(spec, Stream::LEFT, |row, bytes| match row.part(Stream::LEFT) {
    ///     Some(part) => {
    ///         bytes.extend_from_slice(part.row.get(..2).unwrap_or_default());
    ///         Key::Bytes(bytes)
    ///     }
    ///     None => Key::Null,
    /// });
    /// # drop(stage);
    /// # Ok::<(), intervale::error::SpecError>(())
    /// ```
    pub fn new(
        spec: JoinSpec,
        anchor: Stream,
        key: impl for<'a> Fn(JoinedRow<'a>, &'a mut Vec<u8>) -> Key<'a> + Send + Sync + 'static,
    ) -> Then {
        Then { spec, anchor, key: Arc::new(key) }
    }
}

/// Collects what a chain is made of; see [`EngineBuilder::then`].
pub struct ChainBuilder<F> {
    settings: Settings,
    /// All but the last, each with how its rows get to the next.
    earlier: Vec<(StagePlan, HandOverPlan)>,
    last: StagePlan,
    /// By stream: what it is anchored to, and the interval.
    tree: Vec<Edge>,
    fault: Option<&'static str>,
    sinks: F,
}

/// How a stream's time hangs on that of an earlier one.
#[derive(Clone, Copy)]
struct Edge {
    anchor: usize,
    /// How far apart the two may be; `None`: any time, as in sessions.
    interval: Option<Interval>,
}

impl Edge {
    fn new(anchor: usize, spec: &JoinSpec) -> Edge {
        let is_session = matches!(spec.windows(), Some(Window::Session { .. }));
        Edge { anchor, interval: (!is_session).then(|| spec.interval()) }
    }
}

impl EngineBuilder<NoSinks> {
    /// Joins what comes out with one more stream: the builder is a chain's from here on, with all
    /// that was set so far. Feeds of this stage may be given before or after.
    pub fn then(self, then: Then) -> ChainBuilder<NoSinks> {
        let EngineBuilder { settings, stage, sinks } = self;
        let tree = vec![Edge::new(0, &stage.spec)];
        ChainBuilder { settings, earlier: Vec::new(), last: stage, tree, fault: None, sinks }
            .then(then)
    }
}

impl ChainBuilder<NoSinks> {
    /// Adds another stage.
    pub fn then(mut self, then: Then) -> ChainBuilder<NoSinks> {
        let Then { spec, anchor, key } = then;
        let streams = self.tree.len() + 1;
        self.fault = self.fault.or_else(|| {
            let is_odd = |policy| policy == LatePolicy::Join;
            let policies = [self.last.spec.lateness().policy, spec.lateness().policy];
            if anchor.index() >= streams {
                Some("a stage is anchored to a stream that comes after it")
            } else if is_odd(policies[0]) != is_odd(policies[1]) {
                Some("late rows are joined in all stages of a chain or in none")
            } else {
                None
            }
        });
        if self.fault.is_some() {
            return self;
        }
        let anchor_now = self.tree.last().map_or(0, |edge| edge.anchor);
        let is_newest = anchor.index() + 1 == streams;
        let back = if is_newest && self.last.spec.choice() == MatchChoice::All {
            // Both rows of a pair are as young as that.
            0
        } else if let Some(back) = self.behind(anchor_now, anchor.index()) {
            back
        } else {
            self.fault = Some(BEYOND_SESSION);
            return self;
        };
        let plan = HandOverPlan { key, anchor, back };
        self.tree.push(Edge::new(anchor.index(), &spec));
        let before = std::mem::replace(&mut self.last, StagePlan::new(spec));
        self.earlier.push((before, plan));
        self
    }

    /// How far the time of stream `to` may lie behind that of stream `from`: along the anchors to
    /// the first that both hang on. `None`: any time.
    fn behind(&self, from: usize, to: usize) -> Option<i64> {
        let line = |stream: usize| {
            let next = |&stream: &usize| Some(self.tree.get(stream.checked_sub(1)?)?.anchor);
            std::iter::successors(Some(stream), next).collect::<Vec<usize>>()
        };
        let (up, down) = (line(from), line(to));
        let edge = |stream: &usize| self.tree[stream - 1].interval;
        let up_edges = up.iter().take_while(|stream| !down.contains(stream));
        let up_edges = up_edges.map(|stream| edge(stream).map(|edge| edge.hi()));
        let down_edges = down.iter().take_while(|stream| !up.contains(stream));
        let down_edges =
            down_edges.map(|stream| edge(stream).map(|edge| edge.lo().saturating_neg()));
        up_edges
            .chain(down_edges)
            .try_fold(0_i64, |sum, ticks| Some(sum.saturating_add(ticks?.max(0))))
    }

    /// Makes the sinks, one for each core, given its number.
    pub fn sinks<S, F>(self, make: F) -> ChainBuilder<F>
    where
        S: ChainSink + 'static,
        F: FnMut(usize) -> S,
    {
        let ChainBuilder { settings, earlier, last, tree, fault, .. } = self;
        ChainBuilder { settings, earlier, last, tree, fault, sinks: make }
    }
}

/// Why there is no such chain: without a bound a row could come too late for its next stage.
const BEYOND_SESSION: &str = "behind a session window a stage is anchored to a stream on the other \
    side of the window than the stage before it: rows of a session may lie any time apart; anchor \
    both to streams of the same side, or put the session stage last";

impl<F> ChainBuilder<F> {
    /// As [`EngineBuilder::source_slot`].
    ///
    /// # Errors
    /// As there; [`EngineError::Chain`] when there is no such stream.
    pub fn source_slot(&self, stream: Stream) -> Result<WatermarkSlot, EngineError> {
        self.check()?;
        let (count, stage) = (self.earlier.len(), stream.stage());
        let plan = self.earlier.get(stage).map(|(plan, _)| plan);
        let plan = plan.or((stage == count).then_some(&self.last));
        let plan = plan.ok_or(EngineError::Chain(NO_SUCH_STREAM))?;
        Ok(plan.watermarks.add_source(side_of(stream))?)
    }

    /// Whether there is such a chain; the start says it as well.
    ///
    /// # Errors
    /// [`EngineError::Chain`] says why there is none.
    pub fn check(&self) -> Result<(), EngineError> {
        self.fault.map_or(Ok(()), |fault| Err(EngineError::Chain(fault)))
    }

    /// Adds a feed of a stream, which is polled on one of the cores; those of a stage are dealt out
    /// to them in turn. A feed of a stream that is not there is reported at the start.
    pub fn feed(mut self, stream: Stream, feed: impl Feed + 'static) -> Self {
        let count = self.earlier.len();
        match self.earlier.get_mut(stream.stage()) {
            Some((plan, _)) => plan.feeds.push(Box::new(feed)),
            None if stream.stage() == count => self.last.feeds.push(Box::new(feed)),
            None => self.fault = self.fault.or(Some(NO_SUCH_STREAM)),
        }
        self
    }

    /// As [`EngineBuilder::shard_count`].
    ///
    /// # Errors
    /// As there.
    pub fn shard_count(&self) -> Result<usize, EngineError> {
        Ok(self.settings.cores.place(&Topology::read())?.cpus.len())
    }

    /// The hasher of a stage's keys, for feeds that fill batches.
    pub fn hasher(&self, stream: Stream) -> KeyHasher {
        let plan = self.earlier.get(stream.stage()).map_or(&self.last, |(plan, _)| plan);
        KeyHasher::new(plan.spec.keys(), self.settings.hash_seed)
    }
}

impl<S, F> ChainBuilder<F>
where
    S: ChainSink + 'static,
    F: FnMut(usize) -> S,
{
    /// Starts the chain.
    ///
    /// # Errors
    /// As [`EngineBuilder::start`]; [`EngineError::Chain`] says why there is no such chain.
    pub fn start(self) -> Result<Chain<S>, EngineError> {
        let (assembly, operators, mut lasts) = self.parts()?;
        let engine = assembly.start(
            |stage, _, hasher, limits| operators.make(stage, hasher, limits),
            |core, late| lasts.make(core, late),
        )?;
        Ok(Chain { engine })
    }

    /// What is put together, and what makes the operators and sinks of it.
    pub(super) fn parts(self) -> Result<(Assembly, Operators, Lasts<F>), EngineError> {
        self.check()?;
        let plans = self.earlier.iter().map(|(plan, _)| plan).chain([&self.last]);
        let specs: Vec<JoinSpec> = plans.map(|plan| plan.spec.clone()).collect();
        let lasts = Lasts { sinks: self.sinks, streams: specs.len() };
        let operators = Operators { specs, simd: self.settings.simd };
        let assembly = Assembly { settings: self.settings, earlier: self.earlier, last: self.last };
        Ok((assembly, operators, lasts))
    }
}

/// Makes the operators of all stages.
pub(super) struct Operators {
    specs: Vec<JoinSpec>,
    simd: Option<Simd>,
}

impl Operators {
    pub(super) fn make(
        &self,
        stage: usize,
        hasher: &KeyHasher,
        limits: Limits,
    ) -> Result<AnyJoin, SpecError> {
        AnyJoin::new(self.specs[stage].clone(), hasher.clone(), limits, self.simd)
    }
}

/// Makes the sinks of the last stage.
pub(super) struct Lasts<F> {
    sinks: F,
    /// Streams of a left row of the stage.
    streams: usize,
}

impl<S: ChainSink, F: FnMut(usize) -> S> Lasts<F> {
    pub(super) fn make(&mut self, core: usize, late: &LateBox) -> Last<S> {
        Last::new((self.sinks)(core), self.streams, LateBox::clone(late))
    }
}
