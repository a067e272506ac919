//! Puts an engine together: for each stage its lanes and shards, for each core a worker.

use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Instant;

use crate::engine::builder::{EngineBuilder, Settings, StagePlan};
use crate::engine::chain::{HandOver, HandOverPlan, LateBox};
use crate::engine::source::Registry;
use crate::engine::worker::{EarlierStage, EngineWorker, FeedIntake};
use crate::engine::{Engine, EngineError, Shared, StageHandle};
use crate::error::SpecError;
use crate::event::{KeyHasher, Side};
use crate::exchange::{
    Doorbell, Feed, HotKeys, LinkReceiver, LinkSender, Pace, Pacer, Producer, ProducerOptions,
    Promise, SplitPlan, Splitter, Watermarks, mesh,
};
use crate::join::{IntervalJoin, JoinSpec, Sink};
use crate::limits::{Limits, Overflow};
use crate::runtime::{Control, Placement, Topology, start};
use crate::shard::{Operator, Shard, ShardHandle};
use crate::state::Simd;

impl<S, F> EngineBuilder<F>
where
    S: Sink + 'static,
    F: FnMut(usize) -> S,
{
    /// Starts the engine.
    ///
    /// # Errors
    /// [`EngineError::Runtime`] when its workers cannot be started where and as they should,
    /// [`EngineError::Spec`] when the operator cannot do what the spec asks for.
    pub fn start(self) -> Result<Engine<S>, EngineError> {
        let (spec, simd) =
            (self.stage.spec.clone(), self.settings.simd.unwrap_or_else(Simd::detect));
        self.start_with(|_, hasher, limits| {
            IntervalJoin::with_simd(spec.clone(), hasher.clone(), limits, simd)
        })
    }

    /// Starts an engine of other operators, made for each shard from its number, the engine's
    /// hasher and the limits of all shards together, which the engine sees to. Where shards are to
    /// make room the limits say so, and name no bound: how much, they are told
    /// ([`Operator::make_room`]).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with<J: Operator + Send + 'static>(
        self,
        mut operators: impl FnMut(usize, &KeyHasher, Limits) -> Result<J, SpecError>,
    ) -> Result<Engine<S, J>, EngineError> {
        let EngineBuilder { settings, stage, mut sinks } = self;
        let assembly = Assembly { settings, earlier: Vec::new(), last: stage };
        assembly.start(
            |_, shard, hasher, limits| operators(shard, hasher, limits),
            |shard, _| sinks(shard),
        )
    }
}

/// An engine, and the workers of its cores.
pub(super) type PutTogether<S, J> = (Engine<S, J>, Vec<EngineWorker<S, J>>);

/// What an engine is made of: the stages of a chain, or one.
pub(super) struct Assembly {
    pub(super) settings: Settings,
    /// All stages but the last.
    pub(super) earlier: Vec<(StagePlan, HandOverPlan)>,
    pub(super) last: StagePlan,
}

/// What all stages share.
struct Common<'a> {
    settings: &'a Settings,
    bells: &'a [Doorbell],
    pacer: &'a Pacer,
    is_chain: bool,
}

/// The lanes of one stage, for each core.
struct Lanes {
    options: ProducerOptions,
    spec: JoinSpec,
    watermarks: Watermarks,
    receivers: Vec<Vec<LinkReceiver>>,
    intakes: Vec<Option<FeedIntake>>,
    /// To this stage from the one before, if there is one.
    incoming: Vec<Vec<LinkSender>>,
}

impl Assembly {
    /// Starts it: `operators` makes an operator from the numbers of its stage and shard, `sinks`
    /// the sink of a core, which gets the late rows of the core's earlier stages in the box.
    pub(super) fn start<S: Sink + 'static, J: Operator + Send + 'static>(
        self,
        operators: impl FnMut(usize, usize, &KeyHasher, Limits) -> Result<J, SpecError>,
        sinks: impl FnMut(usize, &LateBox) -> S,
    ) -> Result<Engine<S, J>, EngineError> {
        let (runtime, idle) = (self.settings.runtime, self.settings.idle);
        let topology = Topology::read();
        let placement = self.settings.cores.place(&topology)?;
        let (mut engine, workers) = self.put_together(&placement, operators, sinks)?;
        engine.started = Instant::now();
        let control = &engine.shared.control;
        let running = start(workers, &placement, runtime, idle, &topology, control)?;
        engine.running = Some(running);
        Ok(engine)
    }

    /// All of it but what drives it: the workers are to be stepped.
    pub(super) fn put_together<S: Sink + 'static, J: Operator + Send + 'static>(
        self,
        placement: &Placement,
        mut operators: impl FnMut(usize, usize, &KeyHasher, Limits) -> Result<J, SpecError>,
        mut sinks: impl FnMut(usize, &LateBox) -> S,
    ) -> Result<PutTogether<S, J>, EngineError> {
        let Assembly { settings, earlier, last } = self;
        let shard_count = placement.cpus.len();
        let control = Arc::new(Control::new(shard_count));
        let bells: Vec<_> = (0..shard_count).map(|shard| control.doorbell(shard)).collect();
        let shared = shared(&settings, &control);
        let tables = earlier.iter().map(|(plan, _)| &plan.watermarks).chain([&last.watermarks]);
        let tables: Vec<Watermarks> = tables.cloned().collect();
        let pace = Pace {
            max_drift: settings.max_drift,
            state_bytes_max: settings.limits.state_bytes_max,
            state_rows_max: settings.limits.state_rows_max,
            waits_when_full: !settings.fail_when_full,
            makes_room: settings.limits.overflow != Overflow::Refuse,
        };
        let pacer = Pacer::of_stages(&tables, &bells, pace);
        let is_chain = !earlier.is_empty();
        let common = Common { settings: &settings, bells: &bells, pacer: &pacer, is_chain };
        let late: Vec<LateBox> = bells.iter().map(|_| LateBox::default()).collect();
        let mut lanes = common.lanes(last, !earlier.is_empty());
        let stage = earlier.len();
        let mut stages = Vec::new();
        let mut workers = Vec::new();
        let (shards, handle) = common
            .shards(stage, &mut lanes, &mut operators, |shard| Ok(sinks(shard, &late[shard])))?;
        stages.push(handle);
        for (index, shard) in shards.into_iter().enumerate() {
            let (place, shared) = ((index, shard_count), Arc::clone(&shared));
            workers.push(EngineWorker::new(place, shard, lanes.intakes[index].take(), shared));
        }
        for (stage, (plan, hand_over)) in earlier.into_iter().enumerate().rev() {
            let mut own = common.lanes(plan, stage > 0);
            let (shards, handle) = common.shards(stage, &mut own, &mut operators, |shard| {
                common.hand_over(&hand_over, (stage, shard), &mut lanes, &late[shard])
            })?;
            stages.push(StageHandle { back: hand_over.back, ..handle });
            for (index, shard) in shards.into_iter().enumerate() {
                workers[index].put_before(EarlierStage::new(shard, own.intakes[index].take()));
            }
            lanes = own;
        }
        stages.reverse();
        let Settings { lane_batches, max_jump, .. } = settings;
        let engine = Engine {
            running: None,
            shared,
            stages,
            pacer,
            lane_batches,
            max_jump,
            cores: placement.cpus.clone(),
            started: Instant::now(),
            sealing: Mutex::new(()),
        };
        Ok((engine, workers))
    }
}

fn shared(settings: &Settings, control: &Arc<Control>) -> Arc<Shared> {
    Arc::new(Shared {
        control: Arc::clone(control),
        registry: Registry::default(),
        linger_ns: u64::try_from(settings.linger.as_nanos()).unwrap_or(u64::MAX),
        when_full: settings.when_full,
        fault: OnceLock::new(),
        ended: Mutex::new(0),
        ended_changed: Condvar::new(),
    })
}

impl Common<'_> {
    /// The lanes of a stage: from the cores with feeds, and from all cores if a stage is before it.
    fn lanes(&self, plan: StagePlan, is_handed: bool) -> Lanes {
        let Settings { lane_batches, batch_events, hash_seed, .. } = *self.settings;
        let options = ProducerOptions {
            hasher: KeyHasher::new(plan.spec.keys(), hash_seed),
            lateness: plan.spec.lateness(),
            batch_events,
        };
        let dealt = deal(plan.feeds, self.bells.len());
        // Cores without feeds push nothing, so they need no lanes.
        let from_feeds = mesh(lane_batches, &self.bells[..dealt.len()], self.bells);
        let mut receivers = from_feeds.receivers;
        let handed = if is_handed { self.bells } else { &[] };
        let handed = mesh(lane_batches, handed, self.bells);
        for (receivers, more) in receivers.iter_mut().zip(handed.receivers) {
            receivers.extend(more);
        }
        let feeds = from_feeds.senders.into_iter().zip(dealt).map(|(links, feeds)| {
            let producer = Producer::new(links, options.clone()).paced_by(self.pacer.clone());
            Some(FeedIntake::new(producer, feeds, self.pacer.clone()))
        });
        let mut intakes: Vec<_> = feeds.collect();
        intakes.resize_with(self.bells.len(), || None);
        Lanes {
            options,
            spec: plan.spec,
            watermarks: plan.watermarks,
            receivers,
            intakes,
            incoming: handed.senders,
        }
    }

    /// The shards of a stage, and what handles must know of them.
    fn shards<S: Sink, J: Operator>(
        &self,
        stage: usize,
        lanes: &mut Lanes,
        operators: &mut impl FnMut(usize, usize, &KeyHasher, Limits) -> Result<J, SpecError>,
        mut sinks: impl FnMut(usize) -> Result<S, EngineError>,
    ) -> Result<(Vec<Shard<S, J>>, StageHandle), EngineError> {
        let (mut shards, mut handles): (Vec<_>, Vec<ShardHandle>) = (Vec::new(), Vec::new());
        let mut splits_keys = true;
        for (index, links) in std::mem::take(&mut lanes.receivers).into_iter().enumerate() {
            let join = operators(stage, index, &lanes.options.hasher, self.operator_limits())?;
            splits_keys &= join.splits_keys();
            let (table, bell) = (&lanes.watermarks, self.bells[index].clone());
            let (shard, handle) = Shard::new(join, sinks(index)?, links, table, bell);
            let number = stage * self.bells.len() + index;
            shards.push(shard.paced_by(self.pacer.clone(), number));
            handles.push(handle);
        }
        let splitter = self.splitter(&lanes.spec, splits_keys)?;
        if let Some(splitter) = &splitter {
            for intake in &mut lanes.intakes {
                *intake = intake.take().map(|intake| intake.split_by(splitter.clone()));
            }
        }
        let handle = StageHandle {
            shards: handles,
            watermarks: lanes.watermarks.clone(),
            producer_options: lanes.options.clone(),
            emits_pairs: lanes.spec.kind().emits_pairs(),
            splitter,
            spec: lanes.spec.clone(),
            back: 0,
        };
        Ok((shards, handle))
    }

    /// The limits of one operator: where shards make room they are told how much, and a batch that
    /// is larger than a bound goes in before it is seen to.
    fn operator_limits(&self) -> Limits {
        let limits = self.settings.limits;
        match limits.overflow {
            Overflow::Refuse => limits,
            overflow => Limits { overflow, ..Limits::UNBOUNDED },
        }
    }

    /// What splits the hot keys of a stage, if they can be split.
    fn splitter(
        &self,
        spec: &JoinSpec,
        splits_keys: bool,
    ) -> Result<Option<Splitter>, EngineError> {
        let Settings { hot_keys, hash_seed, limits, .. } = *self.settings;
        let spreads = match spec.spread_sides() {
            Ok(_) if limits.overflow == Overflow::Shed => {
                Err("rows that are given up at a bound are counted once, and copies are more")
            }
            Ok(_) if self.is_chain => Err("the keys of a chain stay on their cores"),
            Ok(_) if !splits_keys => Err("the operator needs all rows of a key on one core"),
            spreads => spreads,
        };
        let spreads = match spreads {
            Ok(spreads) => spreads,
            Err(why) if hot_keys == HotKeys::Forced => return Err(SpecError::Splitting(why).into()),
            Err(_) => return Ok(None),
        };
        Ok(Splitter::new(SplitPlan {
            hot_keys,
            spreads,
            interval: spec.interval(),
            allowed: spec.lateness().allowed,
            shard_count: self.bells.len(),
            seed: hash_seed,
        }))
    }

    /// What sends the results of a shard to the stage whose lanes these are: one of its sources.
    fn hand_over(
        &self,
        plan: &HandOverPlan,
        (stage, shard): (usize, usize),
        next: &mut Lanes,
        late: &LateBox,
    ) -> Result<HandOver, EngineError> {
        let links = std::mem::take(&mut next.incoming[shard]);
        let slot = next.watermarks.add_source(Side::Left)?;
        slot.set_derived();
        let producer = Producer::new(links, next.options.clone());
        let mut producer = producer.paced_by(self.pacer.clone());
        let port = producer.add_port(slot, Promise::Explicit);
        let number = stage * self.bells.len() + shard;
        let pacer = (self.pacer.clone(), number);
        Ok(HandOver::new(plan.clone(), stage + 1, (producer, port), pacer, LateBox::clone(late)))
    }
}

/// Deals feeds out to cores in turn; as many lists as cores that get one.
fn deal(feeds: Vec<Box<dyn Feed>>, core_count: usize) -> Vec<Vec<Box<dyn Feed>>> {
    let mut dealt: Vec<Vec<Box<dyn Feed>>> = Vec::new();
    dealt.resize_with(feeds.len().min(core_count), Vec::new);
    for (number, feed) in feeds.into_iter().enumerate() {
        dealt[number % core_count].push(feed);
    }
    dealt
}
