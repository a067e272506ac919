//! How long threads of a load were ready to run and stood in the run queue of a CPU instead, as
//! something else ran there: what the host adds to latency.
//!
//! Each thread looks at its own figures, at most once a millisecond and only when it has work
//! anyhow, so that measuring wakes nobody: the kernel's count of the time waited (in
//! `/proc/thread-self/schedstat`, a microsecond to read) and of switches that the thread did not
//! ask for. A single wait is not told by the kernel; what is known is the waiting between two
//! looks, which is one long wait or several short ones. Routine waking is taken off.

use std::fs::File;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::workload::cpu_clock::switches_unasked;
use crate::workload::load::{LoadRun, sink};

/// Between two looks.
const LOOK_EVERY_NS: u64 = 1_000_000;
/// What a wake-up takes on a CPU that has nothing else to do, halted virtual ones included.
const WAKE_NS: u64 = 50_000;
/// Waits of this share of p99 or more may be what made it: on its way a pair may meet a waiting
/// producer, a waiting worker, and the queue of either.
const PART_OF_P99: u64 = 4;
/// So large a share of pairs held up explains p99, which one in a hundred pairs is above: behind
/// what came due during a wait about as much again queues up, at half load.
const HELD_UP_MAX: f64 = 0.005;
/// A worker that is behind has lost this share of its capacity at least before that is said.
const CAPACITY_LOST_MAX: f64 = 0.05;
/// Share of the machine's CPU time that its own host took.
const STOLEN_MAX: f64 = 0.01;

/// What one thread waited for a CPU, over the measured part of a load.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// For how long that was looked at.
    pub over: Duration,
    /// Time in the run queue.
    pub waited: Duration,
    /// The most between two looks: no single wait was longer.
    pub longest: Duration,
    /// Switches to another thread that this one did not ask for; `None` where the system does not
    /// count them.
    pub preempted: Option<u64>,
    /// The waiting between two looks, each counted by its length.
    by_length: Histogram<u64>,
}

impl Waiting {
    /// The share of its time in which it waited.
    pub fn share(&self) -> f64 {
        self.waited.as_secs_f64() / self.over.as_secs_f64().max(1e-9)
    }

    /// The share of its time that it spent in waits of at least so long.
    fn share_of_waits_from(&self, least_ns: u64) -> f64 {
        let long_ns = self.by_length.count_between(least_ns.max(1), sink::LATENCY_NS_MAX);
        long_ns as f64 / (self.over.as_nanos() as f64).max(1.0)
    }
}

/// What a load's threads waited for CPUs. `None` stands for a thread that could not tell, or had
/// nothing to measure.
#[derive(Clone, Debug, Default)]
pub struct HostWaits {
    /// Of each worker, and how many pairs it measured.
    pub workers: Vec<(Option<Waiting>, u64)>,
    /// Of each producer.
    pub producers: Vec<Option<Waiting>>,
    /// Share of the whole machine's CPU time that its host gave to others, over the whole load.
    pub stolen: Option<f64>,
}

impl HostWaits {
    /// The worker that waited for the largest share of its time.
    pub fn worst_worker(&self) -> Option<&Waiting> {
        let known = self.workers.iter().filter_map(|(waiting, _)| waiting.as_ref());
        known.max_by(|a, b| a.share().total_cmp(&b.share()))
    }

    /// All threads that can tell.
    pub fn known(&self) -> impl Iterator<Item = &Waiting> {
        let workers = self.workers.iter().map(|(waiting, _)| waiting);
        workers.chain(&self.producers).flatten()
    }

    /// The share of pairs that came due while a thread on their way stood in waits of at least so
    /// long: that of each worker by its share of the pairs, and that of producers, which push about
    /// as much each. `None` where no worker can tell.
    pub fn held_up_share(&self, least_ns: u64) -> Option<f64> {
        self.worst_worker()?;
        let pairs: u64 = self.workers.iter().map(|(_, pairs)| pairs).sum();
        let of_workers = self.workers.iter().map(|(waiting, of)| {
            let share =
                waiting.as_ref().map_or(0.0, |waiting| waiting.share_of_waits_from(least_ns));
            share * *of as f64 / pairs.max(1) as f64
        });
        let producers = self.producers.iter().flatten();
        let of_producers = producers.map(|waiting| waiting.share_of_waits_from(least_ns));
        let count = self.producers.len().max(1) as f64;
        Some(of_workers.sum::<f64>() + of_producers.sum::<f64>() / count)
    }
}

/// How the host may have made the figures of a load what they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HostEffect {
    /// This share of the pairs came due during waits that are long enough to make p99.
    Tail(f64),
    /// The load fell behind, and a worker waited for this share of its time.
    Capacity(f64),
    /// This share of the machine's CPU time was taken by its own host.
    Stolen(f64),
}

impl LoadRun {
    /// Whether waiting for CPUs is enough to explain p99, or that it was not kept up with; and
    /// `None` where nothing is known about waiting.
    pub fn host_effect(&self) -> Option<Option<HostEffect>> {
        let stolen = self.host.stolen.filter(|&share| share >= STOLEN_MAX).map(HostEffect::Stolen);
        let Some(worst) = self.host.worst_worker() else { return stolen.map(Some) };
        let lost = Some(worst.share()).filter(|&share| share >= CAPACITY_LOST_MAX);
        if let Some(share) = lost.filter(|_| !self.kept_up()) {
            return Some(Some(HostEffect::Capacity(share)));
        }
        let p99_ns = self.latency_ns.value_at_quantile(0.99);
        let held_up = self.host.held_up_share(p99_ns / PART_OF_P99).unwrap_or(0.0);
        let is_tail = held_up >= HELD_UP_MAX && !self.latency_ns.is_empty();
        Some(if is_tail { Some(HostEffect::Tail(held_up.min(1.0))) } else { stolen })
    }
}

impl LoadRun {
    /// Whether the host is enough to explain that p99 is above a bound: without the pairs that were
    /// held up, and as many that queued up behind them, it would be within.
    pub fn host_explains(&self, bound_ns: u64) -> bool {
        let others = match self.host_effect() {
            Some(Some(HostEffect::Tail(held_up))) => (1.0 - 2.0 * held_up).max(0.0),
            // How many would have been faster is not known.
            Some(Some(_)) => 0.0,
            _ => return false,
        };
        let ns = match others * 0.99 {
            quantile if quantile > 0.0 => self.latency_ns.value_at_quantile(quantile),
            _ => self.latency_ns.min(),
        };
        ns <= bound_ns
    }
}

/// What the kernel counts of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    at_ns: u64,
    waited_ns: u64,
    /// How often it was given a CPU.
    turns: u64,
    preempted: Option<u64>,
}

/// Looks at the waiting of the thread that it is used on.
#[derive(Debug)]
pub(super) struct Watch {
    /// When to look again.
    due_ns: u64,
    file: Option<File>,
    /// The first and the last look.
    looks: Option<[Reading; 2]>,
    longest_ns: u64,
    by_length: Histogram<u64>,
}

impl Watch {
    pub(super) fn new() -> Watch {
        let by_length = Histogram::new_with_bounds(1, sink::LATENCY_NS_MAX, 2)
            .expect("bounds and figures are within what it allows");
        Watch { due_ns: 0, file: None, looks: None, longest_ns: 0, by_length }
    }

    /// Looks, if it is time to. The first look is where the measured part begins.
    #[inline]
    pub(super) fn look(&mut self, now_ns: u64) {
        if now_ns >= self.due_ns {
            self.look_now(now_ns);
        }
    }

    #[cold]
    fn look_now(&mut self, now_ns: u64) {
        self.due_ns = now_ns + LOOK_EVERY_NS;
        if self.looks.is_none() {
            self.file = open();
        }
        match self.file.as_ref().and_then(|file| read(file, now_ns)) {
            Some(reading) => self.add(reading),
            // A system that does not tell is not asked again.
            None => self.due_ns = u64::MAX,
        }
    }

    fn add(&mut self, reading: Reading) {
        let [_, last] = self.looks.get_or_insert([reading; 2]);
        let waited_ns = reading.waited_ns.saturating_sub(last.waited_ns);
        let turns = reading.turns.saturating_sub(last.turns);
        *last = reading;
        let waited_ns = waited_ns.saturating_sub(turns.saturating_mul(WAKE_NS));
        if waited_ns > 0 {
            self.longest_ns = self.longest_ns.max(waited_ns);
            let _ = self.by_length.record_n(waited_ns.min(sink::LATENCY_NS_MAX), waited_ns);
        }
    }

    /// What it came to; nothing without two looks.
    pub(super) fn finish(self) -> Option<Waiting> {
        let [first, last] = self.looks.filter(|[first, last]| first.at_ns < last.at_ns)?;
        let preempted = first.preempted.zip(last.preempted);
        Some(Waiting {
            over: Duration::from_nanos(last.at_ns - first.at_ns),
            waited: Duration::from_nanos(last.waited_ns.saturating_sub(first.waited_ns)),
            longest: Duration::from_nanos(self.longest_ns),
            preempted: preempted.map(|(first, last)| last.saturating_sub(first)),
            by_length: self.by_length,
        })
    }
}

/// The calling thread's file, which stays this thread's whoever reads it.
fn open() -> Option<File> {
    File::open("/proc/thread-self/schedstat").ok()
}

#[cfg(unix)]
fn read(file: &File, at_ns: u64) -> Option<Reading> {
    use std::os::unix::fs::FileExt;
    let mut text = [0; 96];
    let len = file.read_at(&mut text, 0).ok()?;
    let (waited_ns, turns) = parse(std::str::from_utf8(text.get(..len)?).ok()?)?;
    Some(Reading { at_ns, waited_ns, turns, preempted: switches_unasked() })
}

#[cfg(not(unix))]
fn read(_file: &File, _at_ns: u64) -> Option<Reading> {
    None
}

/// Time waited, in ns, and turns, of "ran waited turns"; a kernel that does not count says 0 turns
/// of a thread that runs.
fn parse(schedstat: &str) -> Option<(u64, u64)> {
    let mut fields = schedstat.split_whitespace().skip(1).map(str::parse);
    let (waited_ns, turns) = (fields.next()?.ok()?, fields.next()?.ok()?);
    (turns > 0).then_some((waited_ns, turns))
}

/// CPU time of the machine so far that its host took, and all of it, in ticks.
pub(super) fn stolen_ticks() -> Option<[u64; 2]> {
    parse_stolen(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The share that was taken between two readings.
pub(super) fn stolen_share(from: Option<[u64; 2]>, to: Option<[u64; 2]>) -> Option<f64> {
    let ([from, from_all], [to, to_all]) = from.zip(to)?;
    let all = to_all.checked_sub(from_all).filter(|&ticks| ticks > 0)?;
    Some(to.saturating_sub(from) as f64 / all as f64)
}

fn parse_stolen(stat: &str) -> Option<[u64; 2]> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = line.split_whitespace().map_while(|time| time.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time.
    Some([*times.get(7)?, times.iter().take(8).sum()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A thread that was looked at each `every_ns` for a second, and waited so long before each
    /// look, in so many turns.
    fn waiting(every_ns: u64, waits: impl Fn(u64) -> (u64, u64)) -> Waiting {
        let mut watch = Watch::new();
        let mut reading = Reading { at_ns: 5, waited_ns: 7, turns: 3, preempted: Some(2) };
        watch.add(reading);
        for look in 0..1_000 * MS / every_ns {
            let (waited_ns, turns) = waits(look);
            reading.at_ns += every_ns;
            reading.waited_ns += waited_ns;
            reading.turns += turns;
            reading.preempted = reading.preempted.map(|count| count + turns);
            watch.add(reading);
        }
        watch.finish().expect("it was looked at twice")
    }

    #[test]
    fn long_waits_are_told_from_routine_waking() {
        // Twenty wake-ups a millisecond of 5 us each: a tenth of the time, and nothing to say.
        let waking = waiting(MS, |_| (100_000, 20));
        assert!((waking.share() - 0.1).abs() < 1e-9);
        assert_eq!((waking.longest, waking.preempted), (Duration::ZERO, Some(20_000)));
        assert_eq!(waking.share_of_waits_from(1), 0.0);
        // One wait of 4 ms each 100 ms.
        let taken = waiting(5 * MS, |look| if look % 20 == 7 { (4 * MS, 1) } else { (0, 0) });
        assert!((taken.share() - 0.04).abs() < 1e-9);
        assert_eq!(taken.longest.as_nanos() as u64, 4 * MS - WAKE_NS);
        assert!((taken.share_of_waits_from(2 * MS) - 0.0395).abs() < 1e-3);
        assert_eq!(taken.share_of_waits_from(5 * MS), 0.0);
    }

    #[test]
    fn pairs_are_held_up_by_their_own_worker_and_by_their_producer() {
        let taken = || Some(waiting(5 * MS, |look| (if look % 20 == 7 { 4 * MS } else { 0 }, 0)));
        let calm = || Some(waiting(5 * MS, |_| (0, 0)));
        let share = |workers: Vec<(Option<Waiting>, u64)>, producers| {
            HostWaits { workers, producers, stolen: None }.held_up_share(2 * MS)
        };
        let near = |share: Option<f64>, of: f64| (share.unwrap() - of).abs() < 1e-3;
        assert!(near(share(vec![(taken(), 100)], vec![calm()]), 0.04));
        // A worker that makes a tenth of the pairs holds up a tenth as many.
        assert!(near(share(vec![(taken(), 10), (calm(), 90)], vec![calm()]), 0.004));
        assert!(near(share(vec![(calm(), 1)], vec![taken(), calm()]), 0.02));
        assert_eq!(share(vec![(None, 5)], vec![taken()]), None, "no worker can tell");
    }

    #[test]
    fn figures_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse("1700 250 12\n"), Some((250, 12)));
        assert_eq!(parse("0 0 0\n"), None, "a kernel that does not count");
        assert_eq!(parse("1 2"), None);
        assert_eq!(parse("a b c"), None);
        let stat = |stolen| format!("cpu  10 0 10 70 0 0 0 {stolen} 5 0\ncpu0 1 2\n");
        let [from, to] = [10, 30].map(|stolen| parse_stolen(&stat(stolen)));
        assert_eq!(stolen_share(from, to), Some(1.0));
        assert_eq!(stolen_share(from, from), None);
        assert_eq!(stolen_share(None, to), None);
        assert_eq!(parse_stolen("cpu  1 2\n"), None);
    }

    #[test]
    fn a_thread_that_cannot_tell_is_unknown() {
        assert!(Watch::new().finish().is_none());
        let mut once = Watch::new();
        once.add(Reading { at_ns: 1, ..Reading::default() });
        assert!(once.finish().is_none(), "one look has no length");
    }
}
