//! All streams read whole, for commands that look at files without joining them as streams.

use std::sync::Arc;

use clap::FromArgMatches;

use crate::cli::Failure;
use crate::cli::join::args::{Args, BadRows, ConditionArgs, InputArgs, MatchArgs, TimeArgs};
use crate::cli::join::expressions::Expressions;
use crate::cli::join::open::{InputSide, open};
use crate::cli::join::plan::{Plan, SidePlan};
use crate::cli::join::rules::{Control, Opening};
use crate::cli::join::run::{join_spec, ticks};
use crate::cli::join::streams::{Link, links};
use crate::cli::join::then::ThenArgs;
use crate::event::{Event, EventBatch, Key, KeyHasher, KeyKind, Side};
use crate::join::oracle::{ChainStage, PairHolds, chain};
use crate::join::{JoinKind, JoinSpec, MatchChoice};
use crate::limits::Limits;
use crate::source::{
    BadRow, Block, BlockParser, Chunk, Cursor, ParseOptions, RowFormat, RowSchema,
};
use crate::time::text::{TimeParser, TimeUnit};

/// What to read, as `intervale join` would be told.
pub(in crate::cli) struct Ask<'a> {
    pub(in crate::cli) input: &'a InputArgs,
    pub(in crate::cli) time: &'a TimeArgs,
    pub(in crate::cli) on: &'a [String],
    /// How they are joined; `None` where that is not asked.
    pub(in crate::cli) matching: Option<MatchArgs>,
    pub(in crate::cli) then: ThenArgs,
    pub(in crate::cli) condition: ConditionArgs,
    pub(in crate::cli) bad_rows: BadRows,
}

/// All streams, and how they were to be joined.
pub(in crate::cli) struct Tables {
    /// Left, right, the further ones.
    pub(in crate::cli) streams: Vec<Table>,
    pub(in crate::cli) unit: TimeUnit,
    pub(in crate::cli) expressions: Expressions,
    pub(in crate::cli) allowed_lateness: i64,
    /// Of each stage; the first one's has the condition.
    pub(in crate::cli) specs: Vec<JoinSpec>,
    /// Of the further streams.
    links: Vec<Link>,
}

impl Tables {
    /// The first two streams, by [`Side::index`].
    pub(in crate::cli) fn sides(&self) -> [&Table; 2] {
        [&self.streams[0], &self.streams[1]]
    }

    /// How late a row was by the watermark of its own file; 0 or less for one on time.
    pub(in crate::cli) fn lag(&self, stream: usize, row: &Row) -> i64 {
        let allowed = self.streams[stream].disorder.saturating_add(self.allowed_lateness);
        row.behind.saturating_sub(allowed)
    }

    /// Whether the condition holds of two rows, if there is one.
    pub(in crate::cli) fn holds(&self, left: &Row, right: &Row) -> bool {
        let event = |stream: usize, row: &Row| Event {
            key: Key::Null,
            ts: row.ts,
            row: self.streams[stream].text(row),
        };
        let condition = self.specs[0].condition();
        condition.is_none_or(|condition| condition.holds(&event(0, left), &event(1, right)))
    }

    /// Rows of a stream that were late by the watermark of their own file.
    pub(in crate::cli) fn late(&self, stream: usize) -> u64 {
        let rows = &self.streams[stream].rows;
        rows.iter().filter(|row| self.lag(stream, row) > 0).count() as u64
    }

    /// Whether pairs of an interval are all there is.
    pub(in crate::cli) fn is_plain(&self) -> bool {
        let spec = &self.specs[0];
        let is_all = spec.choice() == MatchChoice::All && spec.windows().is_none();
        is_all && spec.kind() == JoinKind::Inner && self.specs.len() == 1
    }

    /// What comes out by the reference, which is nested loops: for each stream the place of its
    /// row, if it has one.
    pub(in crate::cli) fn by_reference(&self) -> Vec<Vec<Option<usize>>> {
        let times: Vec<Vec<i64>> = self
            .streams
            .iter()
            .map(|table| table.rows.iter().map(|row| row.ts).collect())
            .collect();
        let own_key = |stream: usize, place: usize| {
            let (table, row) = (&self.streams[stream], &self.streams[stream].rows[place]);
            row.has_key.then(|| table.key(row).to_vec())
        };
        let stages = self.specs.iter().enumerate().map(|(number, spec)| ChainStage {
            spec: spec.clone(),
            anchor: number.checked_sub(1).map_or(0, |then| self.links[then].anchor),
            left_key: Box::new(move |row| match number.checked_sub(1) {
                None => own_key(0, row[0]?),
                Some(then) => self.link_key(then, row),
            }),
            right_key: Box::new(move |place| own_key(number + 1, place)),
            condition: match number.checked_sub(1) {
                None => Some(Box::new(|row, place| {
                    let left = row[0].map(|left| &self.streams[0].rows[left]);
                    left.is_some_and(|left| self.holds(left, &self.streams[1].rows[place]))
                })),
                Some(then) => self.expressions.then_filter(then).map(|filter| {
                    let holds: Box<PairHolds<'_>> = Box::new(move |row, place| {
                        let parts = row.iter().copied().chain([Some(place)]).enumerate();
                        let rows = parts.map(|(stream, place)| {
                            let table = &self.streams[stream];
                            let row = &table.rows[place?];
                            Some(crate::expr::Row { bytes: table.text(row), ts: row.ts })
                        });
                        let rows: Vec<_> = rows.collect();
                        filter.holds_of(&crate::expr::Rows::of_streams(&rows))
                    });
                    holds
                }),
            },
        });
        chain(&times, &stages.collect::<Vec<_>>())
    }

    /// The key of a joined row for a further stream.
    fn link_key(&self, then: usize, row: &[Option<usize>]) -> Option<Vec<u8>> {
        let row_of = |stream: usize| {
            let table = &self.streams[stream];
            Some(table.text(&table.rows[row[stream]?]))
        };
        let mut bytes = Vec::new();
        match self.links[then].key_of(row_of, &mut bytes) {
            Key::Bytes(key) => Some(key.to_vec()),
            Key::Int(_) | Key::Null => None,
        }
    }
}

/// All rows of one stream.
pub(in crate::cli) struct Table {
    pub(in crate::cli) schema: Arc<RowSchema>,
    /// Rows with a time, in the order of the files.
    pub(in crate::cli) rows: Vec<Row>,
    /// Keys and texts of all rows, one behind the other.
    bytes: Vec<u8>,
    pub(in crate::cli) bad: u64,
    /// What the watermark of a source was to trail by.
    pub(in crate::cli) disorder: i64,
    /// The names of the files, by number.
    pub(in crate::cli) files: Vec<String>,
}

/// A row: where it stands, when it was, and how far it lies behind.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Row {
    pub(in crate::cli) ts: i64,
    /// How far the largest time before it in its file is ahead of it; 0 for a row in order.
    pub(in crate::cli) behind: i64,
    start: usize,
    key_len: u32,
    text_len: u32,
    pub(in crate::cli) has_key: bool,
    pub(in crate::cli) file: u32,
}

impl Table {
    pub(in crate::cli) fn format(&self) -> RowFormat {
        self.schema.format()
    }

    /// The key; empty without one.
    pub(in crate::cli) fn key(&self, row: &Row) -> &[u8] {
        &self.bytes[row.start..][..row.key_len as usize]
    }

    /// The record as it stands in its file.
    pub(in crate::cli) fn text(&self, row: &Row) -> &[u8] {
        &self.bytes[row.start + row.key_len as usize..][..row.text_len as usize]
    }

    /// The numbers of the rows that have a key, sorted by key and time.
    pub(in crate::cli) fn by_key_and_time(&self) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.rows.len()).filter(|&row| self.rows[row].has_key).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&self.rows[a], &self.rows[b]);
            self.key(a).cmp(self.key(b)).then(a.ts.cmp(&b.ts))
        });
        order
    }

    fn push(&mut self, batch: &EventBatch, index: usize, hasher: &KeyHasher, file: u32) {
        let event = batch.event(index, hasher);
        let key: &[u8] = if let Key::Bytes(key) = event.key { key } else { &[] };
        // Cannot truncate: keys and rows have limits far below.
        let row = Row {
            ts: event.ts,
            behind: 0,
            start: self.bytes.len(),
            key_len: key.len() as u32,
            text_len: event.row.len() as u32,
            has_key: event.key != Key::Null,
            file,
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(event.row);
        self.rows.push(row);
    }
}

/// Reads all files of both sides into memory.
///
/// # Errors
/// As `intervale join` would fail on them.
pub(in crate::cli) fn read(ask: &Ask<'_>) -> Result<Tables, Failure> {
    let plan = Plan::resolve(&join_args(ask)?, &[])?;
    let mut inputs = open(&plan)?;
    let expressions = Expressions::new(&plan, &mut inputs)?;
    let (unit, limits) =
        (inputs.unit, Limits { state_bytes_max: Some(u64::MAX), ..Limits::default() });
    let links = links(&plan, &inputs)?;
    let mut first = join_spec(&plan, unit, &limits)?;
    if let Some(condition) = expressions.condition(false) {
        first = first.with_condition(condition);
    }
    let rules = Opening::start(&plan)?;
    if rules.as_ref().is_some_and(|rules| !rules.is_file()) {
        return Err(Failure::usage(
            "--rules: a join that is over is judged by a file; write the rules to one",
        ));
    }
    let (_, first) = Control::start(&plan, unit, &expressions, (first, rules))?;
    let lateness = first.lateness();
    let mut specs = vec![first];
    for then in &plan.then {
        specs.push(then.spec(unit, lateness, &limits)?);
    }
    let sides = inputs.sides.into_iter().chain(inputs.then);
    let streams = plan.streams().zip(sides).enumerate();
    let streams = streams.map(|(stream, (side, input))| table(stream, side, input, &plan, unit));
    Ok(Tables {
        streams: streams.collect::<Result<_, _>>()?,
        unit,
        expressions,
        allowed_lateness: ticks("--allowed-lateness", plan.allowed_lateness, unit)?,
        specs,
        links,
    })
}

/// The options of a join that reads what is asked for, everything else as by default.
fn join_args(ask: &Ask<'_>) -> Result<Args, Failure> {
    let command = <Args as clap::Args>::augment_args(clap::Command::new("join"));
    let least =
        "join --left l.csv --right r.csv --on k --left-time t --right-time t --between 0..0";
    let parsed = command
        .try_get_matches_from(least.split(' '))
        .and_then(|matches| Args::from_arg_matches(&matches));
    // Only a change to the options of `join` could make this fail.
    let mut args = parsed.map_err(|error| Failure::failed(error.to_string()))?;
    args.input = ask.input.clone();
    args.time = ask.time.clone();
    args.matching.on = ask.on.to_vec();
    if let Some(matching) = &ask.matching {
        args.matching = matching.clone();
    }
    args.condition = ask.condition.clone();
    args.then = ask.then.clone();
    args.trouble.bad_rows = Some(ask.bad_rows);
    Ok(args)
}

fn table(
    stream: usize,
    side_plan: &SidePlan,
    input: InputSide,
    plan: &Plan,
    unit: TimeUnit,
) -> Result<Table, Failure> {
    let side = if stream == 0 { Side::Left } else { Side::Right };
    let mut table = Table {
        schema: Arc::clone(&input.schema),
        rows: Vec::new(),
        bytes: Vec::new(),
        bad: 0,
        disorder: ticks("--out-of-orderness", side_plan.disorder, unit)?,
        files: Vec::new(),
    };
    for (number, mut file) in (0..).zip(input.files) {
        let mut reading = parser(side, &input.schema, side_plan, plan, unit);
        let (mut block, mut max_ts) = (Block::default(), i64::MIN);
        loop {
            let more = file.reader.read_block(&mut block);
            if !more.map_err(|error| Failure::failed(format!("{}: {error}", file.name)))? {
                break;
            }
            let first = table.rows.len();
            take_block(&mut reading, &block, number, &mut table, |bad: &BadRow| {
                if plan.skip_bad_rows {
                    return Ok(());
                }
                Err(Failure::failed(bad.message(&file.name, input.schema.columns())))
            })?;
            for row in &mut table.rows[first..] {
                row.behind = max_ts.saturating_sub(row.ts).max(0);
                max_ts = max_ts.max(row.ts);
            }
        }
        table.files.push(file.name);
    }
    Ok(table)
}

fn parser(
    side: Side,
    schema: &Arc<RowSchema>,
    side_plan: &SidePlan,
    plan: &Plan,
    unit: TimeUnit,
) -> (BlockParser, KeyHasher, Chunk) {
    let hasher = KeyHasher::random(KeyKind::Bytes);
    let parser = BlockParser::new(
        Arc::clone(schema),
        TimeParser::new(&side_plan.time_format, &plan.zone, unit),
        hasher.clone(),
        ParseOptions { side, source: 0, with_position: false },
    );
    (parser, hasher, Chunk::new(side))
}

/// Adds the rows of a block in their order, those without a key between the others.
fn take_block(
    (parser, hasher, chunk): &mut (BlockParser, KeyHasher, Chunk),
    block: &Block,
    file: u32,
    table: &mut Table,
    mut on_bad: impl FnMut(&BadRow) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut cursor = Cursor::new(block);
    while !cursor.is_done(block) {
        parser.parse(block, &mut cursor, chunk);
        for bad in &chunk.bad {
            on_bad(bad)?;
            table.bad += 1;
        }
        let mut nulls = chunk.null_places.iter().enumerate().peekable();
        for index in 0..=chunk.events.len() {
            while let Some((null, _)) = nulls.next_if(|&(_, &place)| place as usize == index) {
                table.push(&chunk.nulls, null, hasher, file);
            }
            if index < chunk.events.len() {
                table.push(&chunk.events, index, hasher, file);
            }
        }
    }
    Ok(())
}
