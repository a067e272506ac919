//! The naive join on several cores, as it is written first: a thread a core, a channel to each, and
//! keys dealt out among them.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use crate::event::Side;
use crate::workload::random::mix;
use crate::workload::{
    CpuClock, Events, Measured, NaiveJoin, StateSize, StepClock, StepTimes, Stepped, Watermarks,
};

/// Messages that a channel holds before the reader waits.
const CHANNEL_MESSAGES: usize = 64;

/// A worker's share of one batch.
struct Message {
    side: Side,
    /// Key, time, id.
    rows: Vec<(u64, i64, u64)>,
    /// The merged watermark after the batch.
    watermark: i64,
}

/// What a worker brings back.
struct Worked {
    join: NaiveJoin,
    steps: StepTimes,
    peak: StateSize,
}

/// Joins all events on `workers` threads; the caller's thread deals them out, `batch` at a time.
/// CPU time is the whole process's.
pub fn run_naive(events: &Events, workers: usize, batch: usize, clock: StepClock) -> Measured {
    let workers = workers.max(1);
    let (start, start_cpu_ns) = (Instant::now(), CpuClock::Process.now_ns());
    let mut worked: Vec<Worked> = thread::scope(|scope| {
        let (senders, threads): (Vec<_>, Vec<_>) = (0..workers)
            .map(|_| {
                let (sender, receiver) = sync_channel(CHANNEL_MESSAGES);
                let join = NaiveJoin::new(&events.workload);
                (sender, scope.spawn(move || work(join, &receiver, clock)))
            })
            .unzip();
        deal(events, batch, senders);
        let ends = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let (wall, end_cpu_ns) = (start.elapsed(), CpuClock::Process.now_ns());
    let mut measured = Measured {
        events: events.len() as u64,
        wall,
        cpu_ns: end_cpu_ns - start_cpu_ns,
        ..Measured::default()
    };
    for own in &worked {
        measured.outcome += own.join.outcome();
        measured.steps.add(&own.steps);
        measured.peak.rows += own.peak.rows;
        measured.peak.bytes += own.peak.bytes;
        measured.peak.index_bytes += own.peak.index_bytes;
    }
    worked.clear();
    measured.finish_cpu_ns = CpuClock::Process.now_ns() - end_cpu_ns;
    measured
}

/// Sends each event to the worker that has its key, and drops the channels.
fn deal(events: &Events, batch: usize, senders: Vec<SyncSender<Message>>) {
    let mut watermarks = Watermarks::of(&events.workload);
    for (side, range) in events.steps(batch) {
        let columns = events.side(side);
        watermarks.observe(side, &columns.ts[range.clone()]);
        let room = 2 * range.len() / senders.len();
        let mut shares: Vec<_> = senders.iter().map(|_| Vec::with_capacity(room)).collect();
        for i in range {
            let key = columns.keys[i];
            let worker = mix(key) as usize % senders.len();
            shares[worker].push((key, columns.ts[i], u64::from(columns.ids[i])));
        }
        let watermark = watermarks.merged();
        for (sender, rows) in senders.iter().zip(shares) {
            // A worker that has gone panicked; who joins it learns that.
            let _ = sender.send(Message { side, rows, watermark });
        }
    }
}

/// State is looked at once in so many messages.
const MESSAGES_PER_LOOK: u64 = 16;

fn work(mut join: NaiveJoin, receiver: &Receiver<Message>, clock: StepClock) -> Worked {
    let mut steps = StepTimes::new();
    let mut peak = StateSize::default();
    for Message { side, rows, watermark } in receiver {
        let start = clock.start();
        for &(key, ts, id) in &rows {
            join.event(side, key, ts, id);
        }
        join.free(watermark);
        steps.record(start.elapsed_ns());
        if steps.count().is_multiple_of(MESSAGES_PER_LOOK) {
            peak = peak.max(join.state());
        }
    }
    peak = peak.max(join.state());
    Worked { join, steps, peak }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Workload, sort_merge};

    #[test]
    fn any_number_of_workers_finds_the_pairs_of_an_offline_join() {
        for name in ["w1a", "w2", "w3a"] {
            let events = Events::new(Workload::by_name(name).unwrap(), 3, 20_000);
            let expected = sort_merge(&events);
            assert!(expected.pairs > 0, "{name}");
            for workers in [1, 2, 3] {
                let measured = run_naive(&events, workers, 100, StepClock::Wall);
                assert_eq!(measured.outcome, expected, "{name}, {workers} workers");
                assert_eq!(measured.events, 40_000);
                assert_eq!(measured.steps.count(), 400 * workers as u64);
                assert!(measured.peak.rows > 0 && measured.peak.bytes > 0);
            }
        }
    }
}
