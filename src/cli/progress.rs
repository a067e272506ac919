//! A line that says how far the work is: redrawn in place on a terminal, a line each time where
//! `always` asks for it elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crate::cli::Console;
use crate::cli::text::{show_count, show_rate};
use crate::event::Side;
use crate::time::text::TimeUnit;

/// Time between two redraws.
const REDRAW: Duration = Duration::from_millis(200);
const BAR_WIDTH: usize = 20;

/// How far the work is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    /// By [`Side::index`].
    pub(super) rows: [u64; 2],
    pub(super) pairs: u64,
    pub(super) buffered: u64,
    /// By [`Side::index`].
    pub(super) watermarks: [i64; 2],
    pub(super) unit: TimeUnit,
    /// Bytes read of bytes there are, where that is known.
    pub(super) bytes: Option<(u64, u64)>,
}

/// The line.
#[derive(Debug)]
pub(super) struct Progress {
    console: Console,
    terminal: bool,
    start: Instant,
    drawn: Option<Instant>,
    /// When the rate was last taken, and the rows by then.
    rate_from: (Instant, u64),
    rate: f64,
}

impl Progress {
    /// A line on standard error; `None` where it should not be.
    pub(super) fn new(always: bool, never: bool) -> Option<Progress> {
        let terminal = io::stderr().is_terminal();
        if never || !(always || terminal) {
            return None;
        }
        let start = Instant::now();
        Some(Progress {
            console: Console::stderr(),
            terminal,
            start,
            drawn: None,
            rate_from: (start, 0),
            rate: 0.0,
        })
    }

    /// Whether it is time to draw again.
    pub(super) fn is_due(&self) -> bool {
        self.drawn.unwrap_or(self.start).elapsed() >= REDRAW
    }

    /// Draws.
    pub(super) fn draw(&mut self, snapshot: &Snapshot) {
        let rows = snapshot.rows.iter().sum::<u64>();
        let (from, rows_then) = self.rate_from;
        let seconds = from.elapsed().as_secs_f64();
        if seconds > 0.0 {
            self.rate = rows.saturating_sub(rows_then) as f64 / seconds;
        }
        let now = Instant::now();
        self.rate_from = (now, rows);
        self.drawn = Some(now);
        let line = line(snapshot, self.rate);
        if self.terminal {
            // Back to the start, the line, and nothing left of a longer one before it.
            self.console.text(&format!("\r{line}\x1b[K"));
        } else {
            self.console.text(&format!("{line}\n"));
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if self.terminal && self.drawn.is_some() {
            self.console.text("\r\x1b[K");
        }
    }
}

fn line(snapshot: &Snapshot, rate: f64) -> String {
    let Snapshot { rows, pairs, buffered, watermarks, unit, bytes } = *snapshot;
    let mut text = String::new();
    if let Some((read, total)) = bytes.filter(|(_, total)| *total > 0) {
        let done = (read as f64 / total as f64).clamp(0.0, 1.0);
        let filled = (done * BAR_WIDTH as f64) as usize;
        text = format!("[{:<BAR_WIDTH$}] {:>3.0} %  ", "=".repeat(filled), done * 100.0);
    }
    // The merged watermark: what has surely been seen of both sides.
    let watermark = watermarks.into_iter().min().unwrap_or(i64::MIN);
    text + &format!(
        "left {}, right {} rows, {} rows/s, pairs {}, buffered {}, watermark {}",
        show_count(rows[Side::Left.index()]),
        show_count(rows[Side::Right.index()]),
        show_rate(rate),
        show_count(pairs),
        show_count(buffered),
        unit.format(watermark)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_it_all() {
        let snapshot = Snapshot {
            rows: [1_234_567, 8],
            pairs: 9,
            buffered: 10,
            watermarks: [1_704_103_200_000, i64::MAX],
            unit: TimeUnit::Ms,
            bytes: Some((500, 1_000)),
        };
        assert_eq!(
            line(&snapshot, 2_500_000.0),
            "[==========          ]  50 %  left 1,234,567, right 8 rows, 2.50 M rows/s, pairs 9, \
             buffered 10, watermark 2024-01-01T10:00:00Z"
        );
        let snapshot = Snapshot { bytes: None, watermarks: [i64::MIN; 2], ..snapshot };
        assert!(line(&snapshot, 0.0).ends_with("watermark -"));
    }
}
