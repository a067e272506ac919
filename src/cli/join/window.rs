//! Windows as people write them: `tumble:5m`, `hop:10m,1m`, `session:30s`.

use crate::cli::Failure;
use crate::cli::join::plan::option;
use crate::cli::join::run::ticks;
use crate::join::Window;
use crate::time::text::{TimeSpan, TimeUnit};

/// The value of `--window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum WindowText {
    Tumble { size: TimeSpan, offset: TimeSpan },
    Hop { size: TimeSpan, slide: TimeSpan, offset: TimeSpan },
    Session { gap: TimeSpan },
}

impl WindowText {
    /// Reads `tumble:SIZE[,OFFSET]`, `hop:SIZE,SLIDE[,OFFSET]` or `session:GAP`, the value of the
    /// option of that name.
    ///
    /// # Errors
    /// [`Failure::Usage`] says what is wrong and how to write it.
    pub(in crate::cli) fn parse(name: &str, text: &str) -> Result<WindowText, Failure> {
        let wrong = || {
            Failure::usage(format!(
                "{name}: \"{text}\" is no window; write it like tumble:5m, tumble:1d,6h (one of \
                 them starts at 06:00), hop:10m,1m or session:30s"
            ))
        };
        let (form, lengths) = text.split_once(':').ok_or_else(wrong)?;
        let lengths = lengths
            .split(',')
            .map(|length| option(name, length.trim().parse()))
            .collect::<Result<Vec<TimeSpan>, Failure>>()?;
        let zero = TimeSpan::ZERO;
        match (form.trim(), &lengths[..]) {
            ("tumble", &[size]) => Ok(WindowText::Tumble { size, offset: zero }),
            ("tumble", &[size, offset]) => Ok(WindowText::Tumble { size, offset }),
            ("hop", &[size, slide]) => Ok(WindowText::Hop { size, slide, offset: zero }),
            ("hop", &[size, slide, offset]) => Ok(WindowText::Hop { size, slide, offset }),
            ("session", &[gap]) => Ok(WindowText::Session { gap }),
            _ => Err(wrong()),
        }
    }

    /// The coarsest unit in which all of it is exact.
    pub(super) fn unit_needed(self) -> TimeUnit {
        let lengths = match self {
            WindowText::Tumble { size, offset } => [size, size, offset],
            WindowText::Hop { size, slide, offset } => [size, slide, offset],
            WindowText::Session { gap } => [gap; 3],
        };
        lengths.into_iter().map(TimeSpan::unit_needed).max().unwrap_or_default()
    }

    /// The window in ticks of the run.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a length that is negative or that the unit cannot hold.
    pub(in crate::cli) fn window(self, name: &str, unit: TimeUnit) -> Result<Window, Failure> {
        let length = |span| ticks(name, span, unit);
        let place = |span: TimeSpan| option(name, span.ticks(unit));
        Ok(match self {
            WindowText::Tumble { size, offset } => {
                Window::tumbling(length(size)?).starting_at(place(offset)?)
            }
            WindowText::Hop { size, slide, offset } => {
                Window::hopping(length(size)?, length(slide)?).starting_at(place(offset)?)
            }
            WindowText::Session { gap } => Window::session(length(gap)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str) -> Window {
        WindowText::parse("--w", text).unwrap().window("--w", TimeUnit::Ms).unwrap()
    }

    #[test]
    fn every_form() {
        assert_eq!(window("tumble:5m"), Window::tumbling(300_000));
        assert_eq!(window("tumble:1d,-6h"), Window::tumbling(86_400_000).starting_at(-21_600_000));
        assert_eq!(window("hop:10m, 1m"), Window::hopping(600_000, 60_000));
        assert_eq!(window("hop:10s,5s,1s"), Window::hopping(10_000, 5_000).starting_at(1_000));
        assert_eq!(window("session:30s"), Window::session(30_000));
        assert_eq!(WindowText::parse("--w", "session:3us").unwrap().unit_needed(), TimeUnit::Us);
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in
            ["", "5m", "tumble", "tumble:", "tumble:5", "hop:5m", "slide:5m", "session:1s,2s"]
        {
            assert!(WindowText::parse("--w", text).is_err(), "{text}");
        }
        assert!(
            WindowText::parse("--w", "tumble:-5m").unwrap().window("--w", TimeUnit::Ms).is_err()
        );
    }
}
