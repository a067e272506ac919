//! What a worker does when it finds nothing to do, and how it is called back.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam::utils::Backoff;

use crate::exchange::Doorbell;

/// How a worker waits for work: latency against the CPU time that waiting takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleStrategy {
    /// Look again at once, for ever: the least latency, for cores that nobody else needs.
    Spin,
    /// Let other threads of the CPU go first, then look again.
    Yield,
    /// Sleep until called (some microseconds to wake up).
    Park,
    /// Spin for some microseconds, then yield, then park; park at once when workers share CPUs, and
    /// for a while after another thread has taken the CPU.
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
/// A pause of spinning or yielding that takes so long has given the CPU to somebody else, who keeps
/// it for milliseconds next time, too; whoever is woken gets it back sooner.
const CPU_LOST: Duration = Duration::from_micros(200);
/// So often in a row `Auto` parks at once then, before it looks whether the CPU is its own again.
const PARKS_WHEN_CROWDED: u32 = 256;
/// The first sleep of a worker that polls; each further one in a row is twice as long.
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
    /// Parks that are still to be made at once.
    crowded: u32,
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
        Idler { strategy, oversubscribed, crowded: 0, backoff, rounds: 0, parks: 0, armed: false }
    }

    /// The worker had something to do. Returns whether a call is armed and has to be disarmed.
    #[inline]
    pub(crate) fn busy(&mut self) -> bool {
        self.rounds = 0;
        self.parks = 0;
        self.backoff.reset();
        std::mem::take(&mut self.armed)
    }

    fn may_spin(&self) -> bool {
        !self.oversubscribed && self.crowded == 0 && self.rounds < BACKOFF_ROUNDS
    }

    fn paused(&mut self, took: Duration) {
        if took >= CPU_LOST {
            self.crowded = PARKS_WHEN_CROWDED;
        }
    }

    /// The worker found nothing to do; it may sleep `park_max` in one go, and begins with short
    /// sleeps if it polls.
    pub(crate) fn idle(&mut self, park_max: Duration, polls: bool) -> Wait {
        match self.strategy {
            IdleStrategy::Spin => std::hint::spin_loop(),
            IdleStrategy::Yield => std::thread::yield_now(),
            IdleStrategy::Auto if self.may_spin() => {
                let start = Instant::now();
                self.backoff.snooze();
                self.paused(start.elapsed());
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
                self.crowded = self.crowded.saturating_sub(1);
                let wait = if polls { PARK_FIRST * (1 << self.parks) } else { park_max };
                self.parks = (self.parks + 1).min(PARK_DOUBLINGS_MAX);
                return Wait::Park(wait.min(park_max));
            }
        }
        Wait::Again
    }
}

/// Calls one worker out of its sleep, whichever driver put it there.
///
/// The worker arms its call, looks for work once more, and sleeps; whoever makes work rings the
/// doorbell afterwards (see [`Doorbell`]).
#[derive(Debug)]
pub(crate) struct Call {
    bell: Doorbell,
    line: Arc<Mutex<Line>>,
}

#[derive(Debug, Default)]
struct Line {
    waker: Option<Waker>,
    called: bool,
}

impl Call {
    pub(crate) fn new() -> Call {
        let line = Arc::new(Mutex::new(Line::default()));
        let bell = Doorbell::new({
            let line = Arc::clone(&line);
            move || {
                let mut line = lock(&line);
                line.called = true;
                // By reference and under the lock: a worker's waker is dropped by itself only.
                if let Some(waker) = &line.waker {
                    waker.wake_by_ref();
                }
            }
        });
        Call { bell, line }
    }

    /// What others ring.
    pub(crate) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// From here on a ring wakes `waker`, until [`disarm`](Self::disarm).
    pub(crate) fn arm(&self, waker: &Waker) {
        {
            let mut line = lock(&self.line);
            line.called = false;
            if !line.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
                line.waker = Some(waker.clone());
            }
        }
        self.bell.prepare();
    }

    /// The worker looks for work by itself again.
    pub(crate) fn disarm(&self) {
        self.bell.awake();
    }

    /// Whether it rang since it was armed.
    #[cfg(any(test, all(feature = "glommio", target_os = "linux")))]
    pub(crate) fn is_called(&self) -> bool {
        lock(&self.line).called
    }

    /// Drops the waker: on the worker's own thread, before what it would wake is gone.
    pub(crate) fn forget(&self) {
        self.disarm();
        lock(&self.line).waker = None;
    }
}

/// A panic while the lock is held leaves nothing half done.
fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MAX: Duration = Duration::from_millis(1);

    #[test]
    fn auto_spins_then_arms_then_parks_longer_and_longer() {
        let mut idler = Idler::new(IdleStrategy::Auto, false);
        let mut again = 0;
        while idler.idle(MAX, true) == Wait::Again {
            again += 1;
            // Whatever else this machine is doing.
            idler.crowded = 0;
        }
        assert!(again >= BACKOFF_ROUNDS);
        let mut parks = Vec::new();
        for _ in 0..7 {
            match idler.idle(MAX, true) {
                Wait::Park(wait) => parks.push(wait.as_micros()),
                other => panic!("{other:?}"),
            }
            assert_eq!(idler.idle(MAX, true), Wait::Arm);
        }
        assert_eq!(parks, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(idler.idle(MAX, true), Wait::Park(MAX));
        assert_eq!(idler.idle(MAX, true), Wait::Arm);
        assert!(idler.busy(), "armed, so it must be disarmed");
        assert!(!idler.busy());
        assert_eq!(idler.idle(MAX, true), Wait::Again, "spinning again after work");
    }

    #[test]
    fn auto_parks_for_a_while_after_the_cpu_was_lost() {
        let mut idler = Idler::new(IdleStrategy::Auto, false);
        idler.paused(CPU_LOST - Duration::from_nanos(1));
        assert!(idler.may_spin());
        idler.paused(CPU_LOST);
        for _ in 0..PARKS_WHEN_CROWDED {
            assert_eq!(idler.idle(MAX, false), Wait::Arm, "at once, after work too");
            assert_eq!(idler.idle(MAX, false), Wait::Park(MAX));
            idler.busy();
        }
        assert!(idler.may_spin());
    }

    #[test]
    fn nobody_spins_on_a_shared_cpu() {
        for strategy in [IdleStrategy::Spin, IdleStrategy::Auto, IdleStrategy::Park] {
            let mut idler = Idler::new(strategy, true);
            assert_eq!(idler.idle(MAX, true), Wait::Arm, "{strategy:?}");
        }
        let mut spinner = Idler::new(IdleStrategy::Spin, false);
        assert!((0..10_000).all(|_| spinner.idle(MAX, false) == Wait::Again));
    }

    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ring_reaches_the_armed_once_and_nobody_else() {
        let call = Call::new();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let woken = || count.0.load(Ordering::Relaxed);
        call.bell().ring();
        let waker = Waker::from(Arc::clone(&count));
        call.arm(&waker);
        assert!(!call.is_called());
        call.bell().ring();
        call.bell().ring();
        assert_eq!((woken(), call.is_called()), (1, true));
        call.arm(&waker);
        assert!(!call.is_called());
        call.disarm();
        call.bell().ring();
        assert_eq!(woken(), 1);
        call.forget();
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1, "the waker is gone");
    }

    #[test]
    fn texts() {
        assert_eq!("park".parse(), Ok(IdleStrategy::Park));
        let error = "sleep".parse::<IdleStrategy>().unwrap_err().to_string();
        assert_eq!(error, "`sleep` is no way to idle; choose spin, yield, park or auto");
    }
}
