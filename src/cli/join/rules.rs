//! `--rules`: rules that take each other's place at stated times, from a file or a stream.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::cli::Failure;
use crate::cli::join::expressions::{Expressions, FilterMaker};
use crate::cli::join::matching::Matching;
use crate::cli::join::plan::Plan;
use crate::event::Side;
use crate::join::{Condition, JoinSpec, Rule, Rules};
use crate::source::fields::delimited;
use crate::source::schema::closest;
use crate::time::text::{IntervalText, TimeParser, TimeUnit};
use crate::time::{Interval, Timestamp};

/// The columns of a rules file.
const COLUMNS: [&str; 3] = ["from", "between", "where"];

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
        spec: JoinSpec,
    ) -> Result<(Control, JoinSpec), Failure> {
        let control = Control { fault: Arc::default() };
        let Some(path) = &plan.rules else { return Ok((control, spec)) };
        if !matches!(plan.matching, Matching::Between { .. }) {
            return Err(Failure::usage(
                "--rules goes with --between: a rule's interval takes the place of its one",
            ));
        }
        let filters = expressions.filters(plan.machine.deterministic);
        let first = (spec.interval(), expressions.condition(plan.machine.deterministic));
        let rule = rule_of(first.0, first.1.clone());
        let rules = Rules::new(spec.interval(), rule)
            .map_err(|error| Failure::failed(format!("--rules: {error}")))?;
        let spec = spec.with_condition(rules.condition());
        let time = TimeParser::new(&plan.side(Side::Left).time_format, &plan.zone, unit);
        let mut reader = RuleReader::open(path, Reading { rules, time, unit, filters, first })?;
        let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        if is_file {
            reader.read_all()?;
            return Ok((control, spec));
        }
        // Those that have come together with the header hold from the start.
        while reader.lines.buffer().contains(&b'\n')
            && let Some(line) = reader.next_line()?
        {
            reader.take(&line)?;
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
    path: PathBuf,
    lines: BufReader<File>,
    line: u64,
    /// By [`COLUMNS`]: the place of each in a line.
    places: [Option<usize>; 3],
    cell_count: usize,
    /// When the rule before starts.
    last: Option<Timestamp>,
    reading: Reading,
}

impl RuleReader {
    fn open(path: &Path, reading: Reading) -> Result<RuleReader, Failure> {
        let failed =
            |error: std::io::Error| Failure::failed(format!("--rules {}: {error}", path.display()));
        let lines = BufReader::new(File::open(path).map_err(failed)?);
        let mut reader = RuleReader {
            path: path.to_owned(),
            lines,
            line: 0,
            places: [None; 3],
            cell_count: 0,
            last: None,
            reading,
        };
        let Some(header) = reader.next_line()? else {
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
        while let Some(line) = self.next_line()? {
            self.take(&line)?;
        }
        Ok(())
    }

    /// Makes a rule of a line, and puts it in force.
    fn take(&mut self, line: &str) -> Result<(), Failure> {
        let cells = self.cells(line)?;
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
        rules.replace(from, rule).map_err(|error| self.wrong(&error.to_string()))?;
        self.last = Some(from);
        Ok(())
    }

    /// The next line that is not blank.
    fn next_line(&mut self) -> Result<Option<String>, Failure> {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line);
            self.line += 1;
            if read.map_err(|error| self.wrong(&error.to_string()))? == 0 {
                return Ok(None);
            }
            if !line.trim().is_empty() {
                return Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()));
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
        Failure::failed(format!("--rules {}, line {}: {what}", self.path.display(), self.line))
    }
}
