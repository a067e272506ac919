//! Collects what a chain is made of, and starts it.

use std::sync::Arc;

use crate::engine::EngineError;
use crate::engine::assemble::Assembly;
use crate::engine::builder::{EngineBuilder, NoSinks, Settings, StagePlan};
use crate::engine::chain::hand_over::{HandOverPlan, LateBox};
use crate::engine::chain::row::{JoinedRow, Stream};
use crate::engine::chain::sink::{ChainSink, Last};
use crate::engine::chain::{Chain, NO_SUCH_STREAM, side_of};
use crate::event::{Key, KeyHasher, Side};
use crate::exchange::{Feed, WatermarkSlot};
use crate::join::{AnyJoin, JoinSpec, MatchChoice};
use crate::runtime::Topology;
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
    interval: Interval,
}

impl EngineBuilder<NoSinks> {
    /// Joins what comes out with one more stream: the builder is a chain's from here on, with all
    /// that was set so far. Feeds of this stage may be given before or after.
    pub fn then(self, then: Then) -> ChainBuilder<NoSinks> {
        let EngineBuilder { settings, stage, sinks } = self;
        let edge = Edge { anchor: 0, interval: stage.spec.interval() };
        let fault = fault_of(&stage.spec);
        ChainBuilder { settings, earlier: Vec::new(), last: stage, tree: vec![edge], fault, sinks }
            .then(then)
    }
}

impl ChainBuilder<NoSinks> {
    /// Adds another stage.
    pub fn then(mut self, then: Then) -> ChainBuilder<NoSinks> {
        let Then { spec, anchor, key } = then;
        let streams = self.tree.len() + 1;
        self.fault = self.fault.or(fault_of(&spec)).or_else(|| {
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
        let mut back = self.behind(anchor_now, anchor.index());
        if anchor.index() + 1 == streams && self.last.spec.choice() == MatchChoice::All {
            // Both rows of a pair are as young as that.
            back = 0;
        }
        let plan = HandOverPlan { key, anchor, back };
        self.tree.push(Edge { anchor: anchor.index(), interval: spec.interval() });
        let before = std::mem::replace(&mut self.last, StagePlan::new(spec));
        self.earlier.push((before, plan));
        self
    }

    /// How far the time of stream `to` may lie behind that of stream `from`: along the anchors to
    /// the first that both hang on.
    fn behind(&self, from: usize, to: usize) -> i64 {
        let line = |stream: usize| {
            let next = |&stream: &usize| Some(self.tree.get(stream.checked_sub(1)?)?.anchor);
            std::iter::successors(Some(stream), next).collect::<Vec<usize>>()
        };
        let (up, down) = (line(from), line(to));
        let edge = |stream: &usize| self.tree[stream - 1].interval;
        let up = up.iter().take_while(|stream| !down.contains(stream)).map(|s| edge(s).hi());
        let up_line = line(from);
        let down = down.iter().take_while(|stream| !up_line.contains(stream));
        let down = down.map(|s| edge(s).lo().saturating_neg());
        up.chain(down).map(|ticks| ticks.max(0)).fold(0, i64::saturating_add)
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

/// What a stage of a chain cannot be.
fn fault_of(spec: &JoinSpec) -> Option<&'static str> {
    if spec.windows().is_some() {
        Some("a window join cannot be a stage of a chain: its rows may lie any time apart")
    } else if spec.kind().emits_unmatched(Side::Right) {
        Some(
            "a right or full join cannot be a stage of a chain: give the sides the other way round",
        )
    } else {
        None
    }
}

impl<F> ChainBuilder<F> {
    /// As [`EngineBuilder::source_slot`].
    ///
    /// # Errors
    /// As there; [`EngineError::Chain`] when there is no such stream.
    pub fn source_slot(&self, stream: Stream) -> Result<WatermarkSlot, EngineError> {
        let (count, stage) = (self.earlier.len(), stream.stage());
        let plan = self.earlier.get(stage).map(|(plan, _)| plan);
        let plan = plan.or((stage == count).then_some(&self.last));
        let plan = plan.ok_or(EngineError::Chain(NO_SUCH_STREAM))?;
        Ok(plan.watermarks.add_source(side_of(stream))?)
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
    pub fn start(mut self) -> Result<Chain<S>, EngineError> {
        if let Some(fault) = self.fault {
            return Err(EngineError::Chain(fault));
        }
        let plans = self.earlier.iter().map(|(plan, _)| plan).chain([&self.last]);
        let specs: Vec<JoinSpec> = plans.map(|plan| plan.spec.clone()).collect();
        let simd = self.settings.simd;
        let streams = specs.len();
        let assembly = Assembly { settings: self.settings, earlier: self.earlier, last: self.last };
        let engine = assembly.start(
            |stage, _, hasher, limits| {
                AnyJoin::new(specs[stage].clone(), hasher.clone(), limits, simd)
            },
            |core, late: &LateBox| Last::new((self.sinks)(core), streams, LateBox::clone(late)),
        )?;
        Ok(Chain { engine })
    }
}
