//! `--rules`: rules that take each other's place at stated times, from a file or a stream.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::cli::Failure;
use crate::cli::join::expressions::{Expressions, FilterMaker};
use crate::cli::join::paths::STANDARD;
use crate::cli::join::plan::Plan;
use crate::event::Side;
use crate::join::{Condition, JoinSpec, Rule, RuleError, Rules};
use crate::source::fields::delimited;
use crate::source::schema::closest;
use crate::source::{ReadAhead, Setup};
use crate::time::text::{IntervalText, TimeParser, TimeSpan, TimeUnit};
use crate::time::{Interval, Timestamp};

/// The columns of a rules file.
const COLUMNS: [&str; 3] = ["from", "between", "where"];

/// Bytes of rules that are read ahead of the first rows.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// Where rules come from. A stream is opened and read before the inputs are waited for, which its
/// writer may fill only afterwards.
pub(super) struct Opening {
    name: String,
    stream: Box<dyn Read + Send>,
    /// It is read to its end before anything else.
    is_file: bool,
    /// The inputs have come: rules are read as they are asked for from here on.
    setup: Arc<Setup>,
}

impl Opening {
    /// Whether it has an end that is there already.
    pub(super) fn is_file(&self) -> bool {
        self.is_file
    }

    /// Opens what the plan says, if it has rules.
    ///
    /// # Errors
    /// [`Failure::Failed`] names the file.
    pub(super) fn start(plan: &Plan) -> Result<Option<Opening>, Failure> {
        let Some(path) = &plan.rules else { return Ok(None) };
        if !plan.matching.is_between() {
            return Err(Failure::usage(
                "--rules goes with --between: a rule's interval takes the place of its one",
            ));
        }
        let is_standard = path == Path::new(STANDARD);
        let name =
            if is_standard { "standard input".to_owned() } else { path.display().to_string() };
        let failed = |error: io::Error| Failure::failed(format!("--rules {name}: {error}"));
        let setup = Arc::new(Setup::default());
        let metadata = match is_standard {
            true => {
                let stream = io::stdin().as_fd().try_clone_to_owned().map(File::from);
                stream.and_then(|stream| stream.metadata())
            }
            false => fs::metadata(path),
        };
        let metadata = metadata.map_err(failed)?;
        let is_file = metadata.is_file();
        let path = path.clone();
        let open = move || {
            let stream: Box<dyn Read + Send> =
                if is_standard { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
            Ok(stream)
        };
        let stream: Box<dyn Read + Send> = if is_file || metadata.is_dir() {
            open().map_err(failed)?
        } else {
            let ahead = ReadAhead::start(open, READ_AHEAD_BYTES, Arc::clone(&setup));
            Box::new(ahead.map_err(failed)?)
        };
        Ok(Some(Opening { name, stream, is_file, setup }))
    }
}

/// Reads rules while a join runs.
pub(super) struct Control {
    fault: Arc<Mutex<Option<Failure>>>,
}

impl Control {
    /// Puts the rules of the plan, if it has any, into the spec. A file is read to its end first; a
    /// stream on a thread of its own, as its rules come.
    ///
    /// # Errors
    /// [`Failure`] names the file, the line and what to do.
    pub(super) fn start(
        plan: &Plan,
        unit: TimeUnit,
        expressions: &Expressions,
        (spec, opening): (JoinSpec, Option<Opening>),
    ) -> Result<(Control, JoinSpec), Failure> {
        let control = Control { fault: Arc::default() };
        let Some(opening) = opening else { return Ok((control, spec)) };
        let filters = expressions.filters(plan.machine.deterministic);
        let first = (spec.interval(), expressions.condition(plan.machine.deterministic));
        let rule = rule_of(first.0, first.1.clone());
        let rules = Rules::new(spec.interval(), rule)
            .map_err(|error| Failure::failed(format!("--rules: {error}")))?;
        let spec = spec.with_condition(rules.condition());
        let time = TimeParser::new(&plan.side(Side::Left).time_format, &plan.zone, unit);
        // Relaxed: advice for the thread that reads ahead.
        opening.setup.end();
        let is_file = opening.is_file;
        let mut reader = RuleReader::open(opening, Reading { rules, time, unit, filters, first })?;
        if is_file {
            reader.read_all()?;
            return Ok((control, spec));
        }
        // Those that have come before the first rows, or together with the header, hold from the
        // start.
        while reader.lines.buffer().contains(&b'\n')
            && let Some(record) = reader.next_record()?
        {
            reader.take(&record)?;
        }
        let fault = Arc::clone(&control.fault);
        let reading = move || {
            if let Err(failure) = reader.read_all() {
                *fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            }
        };
        // It ends with its stream, or with the program.
        thread::Builder::new().name("rules".to_owned()).spawn(reading).map_err(|error| {
            Failure::failed(format!("--rules: no thread to read them: {error}"))
        })?;
        Ok((control, spec))
    }

    /// Whether something is wrong with a rule that has come meanwhile.
    pub(super) fn is_faulty(&self) -> bool {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// What is wrong, once.
    pub(super) fn fault(&self) -> Option<Failure> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn rule_of(interval: Interval, condition: Option<Condition>) -> Rule {
    let rule = Rule::within(interval);
    match condition {
        Some(condition) => rule.with_condition(condition),
        None => rule,
    }
}

/// What it takes to make a rule of a line.
struct Reading {
    rules: Rules,
    time: TimeParser,
    unit: TimeUnit,
    filters: FilterMaker,
    /// Of `--between` and `--where`: what a rule that leaves one of them out has.
    first: (Interval, Option<Condition>),
}

struct RuleReader {
    name: String,
    lines: BufReader<Box<dyn Read + Send>>,
    /// Lines that were read, and the one that the record at work begins in.
    lines_read: u64,
    line: u64,
    /// By [`COLUMNS`]: the place of each in a line.
    places: [Option<usize>; 3],
    cell_count: usize,
    /// When the rule before starts.
    last: Option<Timestamp>,
    reading: Reading,
}

impl RuleReader {
    fn open(opening: Opening, reading: Reading) -> Result<RuleReader, Failure> {
        let mut reader = RuleReader {
            name: opening.name,
            // All that was read ahead comes at once.
            lines: BufReader::with_capacity(READ_AHEAD_BYTES, opening.stream),
            lines_read: 0,
            line: 1,
            places: [None; 3],
            cell_count: 0,
            last: None,
            reading,
        };
        let Some(header) = reader.next_record()? else {
            return Err(
                reader.wrong("it is empty; its first line names the columns: from,between,where")
            );
        };
        // A mark of the byte order is none of a name.
        let names = reader.cells(header.trim_start_matches('\u{feff}'))?;
        reader.cell_count = names.len();
        for (place, name) in names.iter().enumerate() {
            match COLUMNS.iter().position(|column| column == name) {
                Some(column) if reader.places[column].is_none() => {
                    reader.places[column] = Some(place);
                }
                Some(_) => return Err(reader.wrong(&format!("there are two columns \"{name}\""))),
                None => {
                    let known = COLUMNS.map(str::to_owned);
                    let meant = closest(name, &known)
                        .map_or(String::new(), |column| format!(" (did you mean \"{column}\"?)"));
                    return Err(reader.wrong(&format!(
                        "there is no column \"{name}\"{meant}; the columns are from, between and \
                         where"
                    )));
                }
            }
        }
        match reader.places {
            [Some(_), between, condition] if between.or(condition).is_some() => Ok(reader),
            _ => Err(reader.wrong("give the column from, and between or where, or both")),
        }
    }

    fn read_all(&mut self) -> Result<(), Failure> {
        while let Some(record) = self.next_record()? {
            self.take(&record)?;
        }
        Ok(())
    }

    /// Makes a rule of a record, and puts it in force.
    fn take(&mut self, record: &str) -> Result<(), Failure> {
        let cells = self.cells(record)?;
        if cells.len() != self.cell_count {
            return Err(self.wrong(&format!(
                "{} cells where the header names {}; put one with a comma in double quotes",
                cells.len(),
                self.cell_count
            )));
        }
        let cell = |column: usize| {
            let place = self.places[column];
            place.and_then(|place| cells.get(place)).map_or("", |cell| cell.trim())
        };
        let Reading { rules, time, unit, filters, first } = &self.reading;
        let from =
            time.parse(cell(0).as_bytes()).map_err(|error| self.wrong(&error.to_string()))?;
        let from = Timestamp::new(from).ok_or_else(|| self.wrong("no such time"))?;
        if self.last.is_some_and(|last| from <= last) {
            return Err(
                self.wrong("its time is not later than that of the rule before it; sort them")
            );
        }
        let interval = match cell(1) {
            "" => first.0,
            text => {
                let text: IntervalText =
                    text.parse().map_err(|error| self.wrong(&format!("between: {error}")))?;
                let (lo, hi) =
                    text.bounds(*unit).map_err(|error| self.wrong(&format!("between: {error}")))?;
                Interval::new(lo, hi).map_err(|error| self.wrong(&format!("between: {error}")))?
            }
        };
        let condition = match cell(2) {
            "" => first.1.clone(),
            text => {
                let made = filters.make(text);
                Some(made.map_err(|error| self.wrong(&format!("where: {error}")))?)
            }
        };
        let rule = rule_of(interval, condition);
        rules.replace(from, rule).map_err(|error| self.wrong(&explain(error, *unit)))?;
        self.last = Some(from);
        Ok(())
    }

    /// The next record that is not blank: a line, or several where a quoted cell goes on.
    fn next_record(&mut self) -> Result<Option<String>, Failure> {
        loop {
            let mut record = String::new();
            self.line = self.lines_read + 1;
            loop {
                let read = self.lines.read_line(&mut record);
                match read.map_err(|error| self.wrong(&error.to_string()))? {
                    0 if record.is_empty() => return Ok(None),
                    0 if is_open(&record) => {
                        return Err(self.wrong("a quote is open to the end; close it"));
                    }
                    0 => break,
                    _ => self.lines_read += 1,
                }
                if !is_open(&record) {
                    break;
                }
            }
            if !record.trim().is_empty() {
                return Ok(Some(record.trim_end_matches(['\r', '\n']).to_owned()));
            }
        }
    }

    fn cells(&self, line: &str) -> Result<Vec<String>, Failure> {
        let cells = delimited(line.as_bytes(), b',');
        cells
            .map(|cell| {
                let cell = cell.map_err(|error| self.wrong(&error.to_string()))?;
                Ok(String::from_utf8_lossy(&cell).into_owned())
            })
            .collect()
    }

    fn wrong(&self, what: &str) -> Failure {
        Failure::failed(format!("--rules {}, line {}: {what}", self.name, self.line))
    }
}

/// Why a rule was not taken, with times as they are written.
fn explain(error: RuleError, unit: TimeUnit) -> String {
    match error {
        RuleError::TooLate { earliest: Some(earliest) } => format!(
            "pairs at the rule's time may be out already; a rule can start at {} or later",
            unit.format(earliest)
        ),
        RuleError::BeyondReach { reach } => format!(
            "its interval is not within --between, {}..{}, which decides how long rows are kept; \
             widen --between",
            TimeSpan::from_ticks(reach.lo(), unit),
            TimeSpan::from_ticks(reach.hi(), unit)
        ),
        error => error.to_string(),
    }
}

/// Whether a quote is open at the end of a text.
fn is_open(text: &str) -> bool {
    text.bytes().filter(|&byte| byte == b'"').count() % 2 == 1
}
