//! What a worker does when it finds nothing to do, and how it is called back.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crossbeam::utils::{Backoff, CachePadded};

/// How a worker waits for work: latency against the CPU time that waiting takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleStrategy {
    /// Look again at once, for ever: the least latency, for cores that nobody else needs.
    Spin,
    /// Let other threads of the CPU go first, then look again.
    Yield,
    /// Sleep until called (some microseconds to wake up).
    Park,
    /// Spin for some microseconds, then yield, then park; park at once when workers share CPUs.
    #[default]
    Auto,
}

impl FromStr for IdleStrategy {
    type Err = IdleStrategyError;

    fn from_str(text: &str) -> Result<IdleStrategy, IdleStrategyError> {
        match text {
            "spin" => Ok(IdleStrategy::Spin),
            "yield" => Ok(IdleStrategy::Yield),
            "park" => Ok(IdleStrategy::Park),
            "auto" => Ok(IdleStrategy::Auto),
            _ => Err(IdleStrategyError(text.to_owned())),
        }
    }
}

/// A text that is no [`IdleStrategy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleStrategyError(String);

impl fmt::Display for IdleStrategyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no way to idle; choose spin, yield, park or auto", self.0)
    }
}

impl std::error::Error for IdleStrategyError {}

/// Rounds of spinning and yielding (some microseconds each) before `Auto` parks.
const BACKOFF_ROUNDS: u32 = 8;
/// The first sleep of a row; each further one is twice as long, up to what the worker allows.
const PARK_FIRST: Duration = Duration::from_micros(50);
/// Doubling that often takes the first sleep to seconds.
const PARK_DOUBLINGS_MAX: u32 = 16;

/// What to do after a step that found nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Step again; the pause, if any, has been made.
    Again,
    /// Arm the call, then step once more: whoever made work before did not see it armed.
    Arm,
    /// Sleep until called, at most that long.
    Park(Duration),
}

/// One worker's way of waiting; remembers how long it has been idle.
#[derive(Debug)]
pub(crate) struct Idler {
    strategy: IdleStrategy,
    oversubscribed: bool,
    backoff: Backoff,
    rounds: u32,
    parks: u32,
    armed: bool,
}

impl Idler {
    /// A worker that shares its CPU must not spin: what it waits for could not be done meanwhile.
    pub(crate) fn new(strategy: IdleStrategy, oversubscribed: bool) -> Idler {
        let strategy = match strategy {
            IdleStrategy::Spin if oversubscribed => IdleStrategy::Auto,
            other => other,
        };
        let backoff = Backoff::new();
        Idler { strategy, oversubscribed, backoff, rounds: 0, parks: 0, armed: false }
    }

    /// The worker had something to do. Returns whether a call is armed and has to be disarmed.
    #[inline]
    pub(crate) fn busy(&mut self) -> bool {
        self.rounds = 0;
        self.parks = 0;
        self.backoff.reset();
        std::mem::take(&mut self.armed)
    }

    /// The worker found nothing to do; it may sleep `park_max` in a row.
    pub(crate) fn idle(&mut self, park_max: Duration) -> Wait {
        match self.strategy {
            IdleStrategy::Spin => std::hint::spin_loop(),
            IdleStrategy::Yield => std::thread::yield_now(),
            IdleStrategy::Auto if !self.oversubscribed && self.rounds < BACKOFF_ROUNDS => {
                self.backoff.snooze();
                if self.backoff.is_completed() {
                    self.backoff.reset();
                    self.rounds += 1;
                }
            }
            IdleStrategy::Auto | IdleStrategy::Park => {
                self.armed = !self.armed;
                if self.armed {
                    return Wait::Arm;
                }
                let wait = PARK_FIRST * (1 << self.parks);
                self.parks = (self.parks + 1).min(PARK_DOUBLINGS_MAX);
                return Wait::Park(wait.min(park_max));
            }
        }
        Wait::Again
    }
}

/// Calls sleeping workers back. Whoever makes work for others calls [`wake_all`](Self::wake_all)
/// afterwards; while nobody sleeps that costs a fence and a load.
#[derive(Debug)]
pub struct Wakers {
    /// One bit a worker: it is about to sleep, or sleeps.
    armed: CachePadded<[AtomicU64; ARMED_WORDS]>,
    slots: Box<[Mutex<Option<Waker>>]>,
}

const ARMED_WORDS: usize = crate::limits::SHARD_COUNT_MAX.div_ceil(64);

impl Wakers {
    pub(crate) fn new(worker_count: usize) -> Wakers {
        Wakers {
            armed: CachePadded::default(),
            slots: (0..worker_count).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Calls every worker that sleeps. What was made visible before is seen by their next step.
    #[inline]
    pub fn wake_all(&self) {
        // Pairs with the fence in `arm`: either we see the bit, or that worker's last look before
        // it sleeps sees what we made visible before.
        fence(Ordering::SeqCst);
        for (index, word) in self.armed.iter().enumerate() {
            // Relaxed: the fence above orders it.
            if word.load(Ordering::Relaxed) != 0 {
                self.wake_word(index);
            }
        }
    }

    #[cold]
    fn wake_word(&self, word_index: usize) {
        // Taking the bits makes each of them one caller's to serve. Relaxed: the slot's lock
        // orders what matters.
        let mut bits = self.armed[word_index].swap(0, Ordering::Relaxed);
        while bits != 0 {
            let worker = word_index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let slot = self.slots[worker].lock().unwrap_or_else(PoisonError::into_inner);
            // By reference and under the lock: a worker's waker is dropped by itself only.
            if let Some(waker) = slot.as_ref() {
                waker.wake_by_ref();
            }
        }
    }

    /// From here on `waker` is woken by whoever makes work, until [`disarm`](Self::disarm).
    pub(crate) fn arm(&self, worker: usize, waker: &Waker) {
        {
            let mut slot = self.slots[worker].lock().unwrap_or_else(PoisonError::into_inner);
            if !slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
                *slot = Some(waker.clone());
            }
        }
        // Relaxed, ordered by the fence, which pairs with the one in `wake_all`.
        self.armed[worker / 64].fetch_or(1 << (worker % 64), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The worker looks for work by itself again.
    pub(crate) fn disarm(&self, worker: usize) {
        self.armed[worker / 64].fetch_and(!(1 << (worker % 64)), Ordering::Relaxed);
    }

    /// Whether `worker` has been called since it armed.
    #[cfg_attr(not(feature = "glommio"), expect(dead_code, reason = "threads wait on a token"))]
    pub(crate) fn is_called(&self, worker: usize) -> bool {
        // Relaxed: the waker was woken as well, so a stale answer is asked for again.
        self.armed[worker / 64].load(Ordering::Relaxed) & (1 << (worker % 64)) == 0
    }

    /// Drops the worker's waker: on its own thread, before what it would wake is gone.
    pub(crate) fn forget(&self, worker: usize) {
        self.disarm(worker);
        *self.slots[worker].lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    const MAX: Duration = Duration::from_millis(1);

    #[test]
    fn auto_spins_then_arms_then_parks_longer_and_longer() {
        let mut idler = Idler::new(IdleStrategy::Auto, false);
        let mut again = 0;
        while idler.idle(MAX) == Wait::Again {
            again += 1;
        }
        assert!(again >= BACKOFF_ROUNDS);
        let mut parks = Vec::new();
        for _ in 0..7 {
            match idler.idle(MAX) {
                Wait::Park(wait) => parks.push(wait.as_micros()),
                other => panic!("{other:?}"),
            }
            assert_eq!(idler.idle(MAX), Wait::Arm);
        }
        assert_eq!(parks, [50, 100, 200, 400, 800, 1000, 1000]);
        assert!(idler.busy(), "armed, so it must be disarmed");
        assert!(!idler.busy());
        assert_eq!(idler.idle(MAX), Wait::Again, "spinning again after work");
    }

    #[test]
    fn nobody_spins_on_a_shared_cpu() {
        for strategy in [IdleStrategy::Spin, IdleStrategy::Auto, IdleStrategy::Park] {
            let mut idler = Idler::new(strategy, true);
            assert_eq!(idler.idle(MAX), Wait::Arm, "{strategy:?}");
        }
        let mut spinner = Idler::new(IdleStrategy::Spin, false);
        assert!((0..10_000).all(|_| spinner.idle(MAX) == Wait::Again));
    }

    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_call_reaches_the_armed_once_and_nobody_else() {
        let wakers = Wakers::new(130);
        let counts: Vec<_> = (0..130).map(|_| Arc::new(Count(AtomicUsize::new(0)))).collect();
        wakers.wake_all();
        for worker in [0, 63, 64, 129] {
            wakers.arm(worker, &Waker::from(Arc::clone(&counts[worker])));
        }
        wakers.disarm(63);
        wakers.wake_all();
        wakers.wake_all();
        let woken = |worker: usize| counts[worker].0.load(Ordering::Relaxed);
        assert_eq!([woken(0), woken(63), woken(64), woken(129), woken(1)], [1, 0, 1, 1, 0]);
        assert!(wakers.slots[0].lock().unwrap().is_some());
        wakers.forget(0);
        assert_eq!(Arc::strong_count(&counts[0]), 1, "the waker is gone");
    }

    #[test]
    fn texts() {
        assert_eq!("park".parse(), Ok(IdleStrategy::Park));
        let error = "sleep".parse::<IdleStrategy>().unwrap_err().to_string();
        assert_eq!(error, "`sleep` is no way to idle; choose spin, yield, park or auto");
    }
}
