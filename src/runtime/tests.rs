//! Both drivers, on small workers.

use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use super::*;

const CHOICES: [RuntimeChoice; 2] = [RuntimeChoice::Threads, RuntimeChoice::Auto];

/// Counts down; what it does at its last step is its plan.
struct Countdown {
    left: usize,
    plan: Plan,
    stopped: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Done,
    Fail,
    Panic,
    /// Idles until it is stopped.
    Wait,
    /// Idles until it is stopped, and fails then.
    FailToStop,
}

impl Worker for Countdown {
    type Error = String;

    fn step(&mut self) -> StepOutcome<String> {
        if self.left > 0 {
            self.left -= 1;
            return StepOutcome::Busy;
        }
        match self.plan {
            Plan::Done => StepOutcome::Done,
            Plan::Fail => StepOutcome::Failed("on purpose".to_owned()),
            Plan::Panic => panic!("a planned panic"),
            Plan::Wait | Plan::FailToStop => StepOutcome::Idle,
        }
    }

    fn stop(&mut self) -> Result<(), String> {
        self.stopped = true;
        if self.plan == Plan::FailToStop { Err("at the stop".to_owned()) } else { Ok(()) }
    }
}

#[test]
fn a_driver_that_dies_while_it_is_set_up_is_not_waited_for() {
    fn driver(seat: Seat<Countdown>) -> Option<Ended<Countdown>> {
        assert_ne!(seat.index, 1, "a planned panic");
        seat.take_worker(Ok(None));
        None
    }
    let placement = CoreChoice::count(3).unwrap().place(&Topology::read()).unwrap();
    let control = Arc::new(Control::new(3));
    let seated = seat(driver, &placement, IdleStrategy::Auto, &control);
    assert!(matches!(seated.err(), Some(RuntimeError::Spawn(why)) if why.contains("panicked")));
    assert!(!control.is_stopped(), "another driver may be tried");
}

fn run(choice: RuntimeChoice, plans: &[Plan]) -> (Running<Countdown>, Arc<Control>) {
    let control = Arc::new(Control::new(plans.len()));
    let topology = Topology::read();
    let placement = CoreChoice::count(plans.len()).unwrap().place(&topology).unwrap();
    let workers =
        plans.iter().map(|&plan| Countdown { left: 1000, plan, stopped: false }).collect();
    let idle = IdleStrategy::Auto;
    let running = start(workers, &placement, choice, idle, &topology, &control).unwrap();
    (running, control)
}

#[test]
fn workers_run_to_their_end_even_when_there_are_more_than_cpus() {
    for choice in CHOICES {
        for count in [1, 2, 8] {
            let (running, control) = run(choice, &vec![Plan::Done; count]);
            let ended = running.join();
            assert_eq!(ended.len(), count);
            for ended in ended {
                assert_eq!(ended.end, End::Done);
                let worker = ended.worker.unwrap();
                assert!(worker.left == 0 && !worker.stopped);
            }
            assert_eq!((control.is_stopped(), control.first_fault()), (false, None));
        }
    }
}

#[test]
fn a_fault_stops_all_the_others_and_keeps_its_cause() {
    let cases = [
        (Plan::Fail, End::Failed("on purpose".to_owned())),
        (Plan::Panic, End::Panicked("a planned panic".to_owned())),
    ];
    for choice in CHOICES {
        for (plan, end) in &cases {
            let (running, control) = run(choice, &[Plan::Wait, *plan, Plan::FailToStop]);
            let ended = running.join();
            assert_eq!(&ended[1].end, end);
            assert_eq!(ended[0].end, End::Stopped);
            assert!(ended[0].worker.as_ref().unwrap().stopped);
            assert_eq!(ended[2].end, End::Failed("at the stop".to_owned()));
            assert_eq!(ended[1].worker.is_none(), *plan == Plan::Panic);
            assert_eq!(control.first_fault(), Some(1));
        }
    }
}

#[test]
fn a_stop_from_outside_reaches_sleepers_at_once() {
    for choice in CHOICES {
        let (running, control) = run(choice, &[Plan::Wait; 2]);
        assert!(!running.is_finished());
        control.stop();
        assert!(running.join().into_iter().all(|ended| ended.end == End::Stopped));
    }
}

/// What nobody waits for unless a call was lost.
const LOST: Duration = Duration::from_secs(10);

/// Passes a token round: each worker waits until the token shows its own number.
struct Ring {
    index: usize,
    count: usize,
    rounds: usize,
    token: Arc<AtomicUsize>,
    control: Arc<Control>,
    started: Instant,
}

impl Worker for Ring {
    type Error = String;

    fn step(&mut self) -> StepOutcome<String> {
        if self.started.elapsed() > LOST {
            return StepOutcome::Failed("a call was lost".to_owned());
        }
        // Acquire and Release pair with each other: what the last holder did comes before.
        let token = self.token.load(Ordering::Acquire);
        if token >= self.rounds * self.count {
            return StepOutcome::Done;
        }
        if token % self.count != self.index {
            return StepOutcome::Idle;
        }
        // Release: see above.
        self.token.store(token + 1, Ordering::Release);
        self.control.doorbell((self.index + 1) % self.count).ring();
        if token + 1 == self.rounds * self.count {
            (0..self.count).for_each(|worker| self.control.doorbell(worker).ring());
        }
        StepOutcome::Busy
    }

    fn park_max(&self) -> Duration {
        // All rounds together take far less, so one lost call shows.
        2 * LOST
    }
}

#[test]
fn no_call_is_lost_between_the_last_look_and_the_sleep() {
    for choice in CHOICES {
        for idle in [IdleStrategy::Park, IdleStrategy::Auto] {
            let (count, rounds) = (3, 300);
            let control = Arc::new(Control::new(count));
            let topology = Topology::read();
            let placement = CoreChoice::count(count).unwrap().place(&topology).unwrap();
            let token = Arc::new(AtomicUsize::new(0));
            let started = Instant::now();
            let worker = |index| {
                let (token, control) = (Arc::clone(&token), Arc::clone(&control));
                Ring { index, count, rounds, token, control, started }
            };
            let workers = (0..count).map(worker).collect();
            let running = start(workers, &placement, choice, idle, &topology, &control).unwrap();
            let ends: Vec<_> = running.join().into_iter().map(|ended| ended.end).collect();
            assert_eq!(ends, vec![End::Done; count], "{choice:?}, {idle:?}");
        }
    }
}

#[test]
fn a_runtime_that_cannot_be_is_refused_or_replaced_with_a_note() {
    let mut topology = Topology::read();
    topology.io_uring = IoUring::Refused { reason: "of a test".to_owned() };
    let placement = CoreChoice::count(1).unwrap().place(&topology).unwrap();
    let start = |choice| {
        let workers = vec![Countdown { left: 1, plan: Plan::Done, stopped: false }];
        let control = Arc::new(Control::new(1));
        start(workers, &placement, choice, IdleStrategy::Auto, &topology, &control)
    };
    assert!(matches!(start(RuntimeChoice::Glommio), Err(RuntimeError::Glommio(_))));
    let running = start(RuntimeChoice::Auto).unwrap();
    assert_eq!(running.kind(), RuntimeKind::Threads);
    let notes = running.notes();
    assert!(notes[0].starts_with("runtime: threads instead of glommio, because"), "{notes:?}");
    running.join();
}

#[cfg(all(feature = "glommio", target_os = "linux"))]
#[test]
fn auto_is_glommio_where_the_host_allows_it() {
    if Topology::read().io_uring_refusal().is_none() {
        let (running, _) = run(RuntimeChoice::Auto, &[Plan::Done]);
        assert_eq!(running.kind(), RuntimeKind::Glommio);
        running.join();
    }
}
