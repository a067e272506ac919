//! Ctrl-C while the first rows are waited for: the program ends with a report, as later on.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::join::plan::Plan;
use crate::cli::join::report::{Report, StageRows};
use crate::cli::join::run::write_nothing;
use crate::cli::{Console, Failure, StopSignal, os};
use crate::runtime::{RuntimeChoice, Topology};

/// How often it is looked whether a signal has come.
const LOOK: Duration = Duration::from_millis(20);

/// As long as it lives, a signal ends the program: a read that waits for a pipe cannot be asked to.
pub(super) struct Waiting {
    _over: Sender<()>,
}

impl Waiting {
    /// Begins to look for signals.
    ///
    /// # Errors
    /// [`Failure::Failed`] when no thread can be made.
    pub(super) fn start(plan: &Plan) -> Result<Waiting, Failure> {
        os::catch_interrupts();
        let (over, is_over) = channel();
        let (plan, started) = (plan.clone(), Instant::now());
        let look = move || {
            while is_over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if let Some(signal) = os::interrupted() {
                    end(&plan, signal, started.elapsed());
                }
            }
        };
        let thread = thread::Builder::new().name("intervale-wait".to_owned()).spawn(look);
        thread.map_err(|error| Failure::failed(format!("no thread to wait with: {error}")))?;
        Ok(Waiting { _over: over })
    }
}

/// Nothing was read, so there is nothing to put in order but the report.
fn end(plan: &Plan, signal: StopSignal, elapsed: Duration) -> ! {
    let console = Console::stderr();
    let mut code = signal.exit_code();
    if let Err(failure) = write_nothing(plan, &nothing(plan, elapsed), console) {
        console.error(failure.message().unwrap_or("no report"));
        code = failure.exit_code();
    } else {
        let name = signal.name();
        console.error(&format!("stopped by {name} before each input had its first row"));
    }
    std::process::exit(i32::from(code))
}

fn nothing(plan: &Plan, elapsed: Duration) -> Report {
    let placement = plan.machine.cores.place(&Topology::read());
    let stages = if plan.then.is_empty() { 0 } else { plan.then.len() + 1 };
    let usage = os::usage();
    Report {
        unit: plan.unit.unwrap_or_default(),
        elapsed_s: elapsed.as_secs_f64(),
        rss_bytes_peak: usage.rss_bytes_peak,
        cpu_s: usage.cpu_s,
        cores: placement.map_or(0, |placement| placement.cpus.len()),
        runtime: match plan.machine.runtime {
            RuntimeChoice::Auto => "auto",
            RuntimeChoice::Glommio => "glommio",
            RuntimeChoice::Threads => "threads",
        }
        .to_owned(),
        simd: plan.machine.simd.unwrap_or_else(crate::state::Simd::detect).name().to_owned(),
        interrupted: true,
        stages: vec![StageRows::default(); stages],
        ..Report::default()
    }
}
