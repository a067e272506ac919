//! What the user typed after `intervale join`.

use std::path::PathBuf;

use crate::cli::choices::{Format, HotKeysChoice, Idle, Kind, Match, Runtime, SimdChoice, choices};
use crate::cli::join::then::ThenArgs;
use crate::cli::layout::LayoutArgs;
use crate::limits::{BATCH_EVENTS_MAX, LANE_BATCHES_DEFAULT, LANE_BATCHES_MAX};
use crate::time::text::TimeSpan;

pub(super) const EXAMPLES: &str = "\
Example (in a clone of the repository):
  intervale join --left tests/data/orders.csv --right tests/data/payments.csv \\
      --on order_id --left-time ts --right-time ts --between -5m..5m --out-of-orderness 5s

Each order with the payment nearest to it, within 5 minutes:
  intervale join --left tests/data/orders.csv --right tests/data/payments.csv \\
      --on order_id --left-time ts --right-time ts --asof nearest --tolerance 5m

Orders and payments of the same 5 minutes:
  intervale join --left tests/data/orders.csv --right tests/data/payments.csv \\
      --on order_id --left-time ts --right-time ts --window tumble:5m

Only orders that were paid in full, with how long that took:
  intervale join --left tests/data/orders.csv --right tests/data/payments.csv \\
      --on order_id --left-time ts --right-time ts --between -5m..5m --out-of-orderness 5s \\
      --where \"pay_amount >= amount AND status = 'SUCCESS'\" \\
      --select \"order_id, amount, ts_right - ts AS took\"

Orders, their payments, and the parcel of each payment:
  intervale join --left tests/data/orders.csv --right tests/data/payments.csv \\
      --on order_id --left-time ts --right-time ts --between -5m..5m \\
      --then tests/data/parcels.csv --then-on right.order_id=order_id --then-between 0..1d \\
      --then-time ts

Durations: 250ms, 5s, -20m, 1h30m, 2d, 0; units w d h m s ms us ns. A day is 24 hours.
Exit status: 0 done, 1 failed while running, 2 wrong use, 130 stopped by Ctrl-C, 143 by SIGTERM.
Stopped, it ends with complete rows and a report; a file that was to be replaced stays, and the rows
are in PATH.partial. A second Ctrl-C ends it at once: the rows of files are lost then, and their
temporary (.NAME.PID-N.tmp) is removed by the next run that writes the same file.";

/// Options of `intervale join`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) matching: MatchArgs,
    #[command(flatten)]
    pub(super) condition: ConditionArgs,
    #[command(flatten)]
    pub(super) then: ThenArgs,
    #[command(flatten)]
    pub(super) time: TimeArgs,
    #[command(flatten)]
    pub(super) trouble: TroubleArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) machine: MachineArgs,
}

/// Where rows come from.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Input")]
pub(in crate::cli) struct InputArgs {
    /// A file of the left side, or - for standard input; repeat for several, each a source with
    /// its own watermark
    #[arg(long, required = true, value_name = "PATH")]
    pub(super) left: Vec<PathBuf>,
    /// A file of the right side, likewise
    #[arg(long, required = true, value_name = "PATH")]
    pub(super) right: Vec<PathBuf>,
    /// Format of the left files [default: by file ending, csv for standard input]
    #[arg(long, value_name = "FORMAT")]
    pub(super) left_format: Option<Format>,
    /// Format of the right files [default: by file ending, csv for standard input]
    #[arg(long, value_name = "FORMAT")]
    pub(super) right_format: Option<Format>,
    /// The files have no header line; name their columns with --left-columns and --right-columns
    #[arg(long)]
    pub(super) no_header: bool,
    /// Names of the left columns, in the order of the file; with JSON Lines, the fields that become
    /// columns of CSV output
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub(super) left_columns: Vec<String>,
    /// The same for the right files
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub(super) right_columns: Vec<String>,
}

/// What matches.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Join")]
pub(in crate::cli) struct MatchArgs {
    /// The key: a column that both sides have, or LEFT=RIGHT; repeat for a key of several columns.
    /// Keys compare as text; a missing or empty key matches nothing
    #[arg(long, required = true, value_name = "COL|LCOL=RCOL")]
    pub(in crate::cli) on: Vec<String>,
    /// Pairs with left.time + LO <= right.time <= left.time + HI. [LO,HI) and the like open an end
    #[arg(
        long,
        value_name = "LO..HI",
        allow_hyphen_values = true,
        required_unless_present_any = ["asof", "window"]
    )]
    pub(in crate::cli) between: Option<String>,
    /// In place of --between: each left row with one right row, the last at or before its time, the
    /// first at or after it, or the nearest (the earlier wins a tie)
    #[arg(
        long,
        value_name = "DIRECTION",
        conflicts_with_all = ["between", "choice", "window"]
    )]
    pub(in crate::cli) asof: Option<AsofChoice>,
    /// How far from the left row's time the right one of --asof may be
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(in crate::cli) tolerance: Option<String>,
    /// A right row at the very time of the left one does not count for --asof
    #[arg(long)]
    pub(in crate::cli) strict: bool,
    /// In place of --between: rows of a key in one window of time, when it is over: tumble:5m, or
    /// tumble:1d,6h to start at 06:00; hop:10m,1m, a window of 10 minutes every minute;
    /// session:30s, rows of either side that follow each other by less
    #[arg(long, value_name = "WINDOW", conflicts_with_all = ["between", "choice"])]
    pub(in crate::cli) window: Option<String>,
    /// Which rows come out: pairs (inner), pairs and unmatched rows padded (left, right, full),
    /// left rows with a match (semi) or without one (anti)
    #[arg(
        long = "type",
        value_name = "TYPE",
        default_value = "inner",
        hide_possible_values = true
    )]
    pub(in crate::cli) kind: Kind,
    /// Which matches of a left row count: all, at once, or one, as soon as no row that is on time
    /// can change it: the first or last by right time, or the nearest in time (the earlier wins a
    /// tie); one-to-one: the first, by the pair's time, whose two rows are in no other pair
    #[arg(long = "match", value_name = "CHOICE", default_value = "all")]
    pub(in crate::cli) choice: Match,
}

/// What must hold of a pair beside key and time.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Condition")]
pub(in crate::cli) struct ConditionArgs {
    /// A condition on the pair, as in SQL: "amount = amount_right AND status <> 'REFUSED'". Columns
    /// by their output names, or left.NAME and right.NAME; a pair exists only if it holds, so rows
    /// of which none does are unmatched. Empty cells are null. See the README for the language
    #[arg(long = "where", value_name = "EXPR", allow_hyphen_values = true)]
    pub(super) condition: Option<String>,
    /// Rules that take each other's place while the join runs: CSV with the columns from (a time),
    /// between and where, each rule for the pairs whose later row has its time or a later one. An
    /// empty cell is as the option says; an interval must be within --between. A file is read
    /// before anything else; of a pipe rules hold as they come, and one too late to be exact ends
    /// the run (join only)
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) rules: Option<PathBuf>,
    /// Types of left columns in --where and --select: bool, int, float, text, time or duration
    /// [default: of CSV by the first 1000 rows of each file, of JSON Lines by each value; the
    /// column of --left-time is a time]
    #[arg(long, value_name = "COL:TYPE,...", value_delimiter = ',')]
    pub(super) left_types: Vec<String>,
    /// The same for the right side
    #[arg(long, value_name = "COL:TYPE,...", value_delimiter = ',')]
    pub(super) right_types: Vec<String>,
}

/// What time it is.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Time")]
pub(in crate::cli) struct TimeArgs {
    /// Column of the left rows' time
    #[arg(long, required = true, value_name = "COL")]
    pub(super) left_time: String,
    /// Column of the right rows' time
    #[arg(long, required = true, value_name = "COL")]
    pub(super) right_time: String,
    /// auto (RFC 3339, YYYY-MM-DD HH:MM:SS[.frac], or epoch milliseconds), s, ms, us, ns,
    /// rfc3339, or a pattern like %d/%m/%Y %H:%M
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(super) time_format: String,
    /// The same for the left side only
    #[arg(long, value_name = "FORMAT")]
    pub(super) left_time_format: Option<String>,
    /// The same for the right side only
    #[arg(long, value_name = "FORMAT")]
    pub(super) right_time_format: Option<String>,
    /// Time zone of times that carry none (an IANA name)
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub(super) timezone: String,
    /// The tick of the run: ms, us or ns [default: us where times are text (not of a pattern
    /// without fractions), ms otherwise; finer where a time or a duration calls for it]
    #[arg(long, value_name = "UNIT", hide_possible_values = true)]
    pub(super) time_unit: Option<Unit>,
    /// The watermark trails the largest time seen by this much
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "0s")]
    pub(super) out_of_orderness: String,
    /// The same for the left side only
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) left_out_of_orderness: Option<String>,
    /// The same for the right side only
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) right_out_of_orderness: Option<String>,
    /// Rows up to this far behind the watermark still join
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "0s")]
    pub(super) allowed_lateness: String,
    /// A source that is silent for this long stops holding the watermark back, also before its
    /// first row, if its columns are known by then [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) idle_timeout: Option<String>,
    /// One row moves the watermark by this much at the most, so that a wrong time far ahead does
    /// not make all that follow late: with the true disorder it should stay within
    /// --out-of-orderness. Such rows are joined and counted [default: no limit]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) max_jump: Option<String>,
}

/// What happens to rows that do not fit.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Late and bad rows")]
pub(super) struct TroubleArgs {
    /// Late rows are counted and dropped, or end the run [default: drop]
    #[arg(long, value_name = "POLICY")]
    pub(super) late: Option<LateChoice>,
    /// Late rows are written here, with a column `side`
    #[arg(long, value_name = "PATH")]
    pub(super) late_output: Option<PathBuf>,
    /// Rows that do not parse end the run, or are counted and skipped [default: fail]
    #[arg(long, value_name = "POLICY")]
    pub(super) bad_rows: Option<BadRows>,
    /// Rows that do not parse are written here with the reason, and skipped
    #[arg(long, value_name = "PATH")]
    pub(super) bad_rows_output: Option<PathBuf>,
}

/// Where results go.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Where pairs go: a file, written under a temporary name and renamed when complete, or - for
    /// standard output
    #[arg(long, value_name = "PATH", default_value = "-")]
    pub(super) output: PathBuf,
    /// Format of the output, and of late and bad rows [default: by file ending, csv otherwise]
    #[arg(long, value_name = "FORMAT")]
    pub(super) output_format: Option<Format>,
    /// Columns of the output: names, left.*, then1.*, expressions as of --where with AS and a name:
    /// "order_id, amount - amount_right AS rest" [default: all left ones, then all right ones]
    #[arg(long, value_name = "COLS", allow_hyphen_values = true)]
    pub(super) select: Option<String>,
    /// Add to the output files instead of replacing them
    #[arg(long)]
    pub(super) append: bool,
    /// A progress line on standard error; auto: when it is a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(super) progress: When,
    /// The closing report
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(super) stats: Stats,
    /// Where the closing report goes [default: standard error]
    #[arg(long, value_name = "PATH")]
    pub(super) stats_output: Option<PathBuf>,
}

/// Where and how it runs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Machine")]
pub(super) struct MachineArgs {
    /// How many cores, or which (0,2-5), or all that this process may use
    #[arg(long, value_name = "N|LIST|all", default_value = "all")]
    pub(super) cores: String,
    /// What drives the cores; auto: glommio where io_uring and locked memory allow it
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    pub(super) runtime: Runtime,
    /// What a core does without work; auto: spin, then yield, then park
    #[arg(long, value_name = "STRATEGY", default_value = "auto")]
    pub(super) idle: Idle,
    /// Instructions that compare times; auto: the best this processor has
    #[arg(long, value_name = "LEVEL", default_value = "auto")]
    pub(super) simd: SimdChoice,
    /// How long rows wait in the engine for their batch to fill; 0 sends each chunk at once
    #[arg(long, value_name = "DURATION", default_value = "1ms")]
    pub(super) linger: TimeSpan,
    /// Rows of a full batch
    #[arg(
        long, value_name = "N", default_value_t = BATCH_EVENTS_MAX as u16,
        value_parser = clap::value_parser!(u16).range(1..=BATCH_EVENTS_MAX as i64)
    )]
    pub(super) batch: u16,
    /// Batches under way from one core to another; fewer take less memory and wait sooner
    #[arg(
        long, value_name = "N", default_value_t = LANE_BATCHES_DEFAULT as u16,
        value_parser = clap::value_parser!(u16).range(1..=LANE_BATCHES_MAX as i64)
    )]
    pub(super) lane_batches: u16,
    /// Keys that are too much for one core: auto splits those that sampling finds, where the join
    /// allows it; off splits none; force every key now and then, to see that nothing changes. Of
    /// rows that were copied for it the report does not say how many had a match
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub(super) hot_keys: HotKeysChoice,
    #[command(flatten)]
    pub(super) layout: LayoutArgs,
    /// The same input gives the same pairs whatever the cores, sorted by output time, key and
    /// position; late rows of --late-output likewise, held in memory until the end
    #[arg(long)]
    pub(super) deterministic: bool,
    /// Bound on buffered state, like 4GiB or 500MB [default: half of this host's memory]
    #[arg(long, value_name = "SIZE")]
    pub(super) max_state: Option<String>,
    /// Bound on buffered rows, of all sides together, like 1000000 or 1e6; those counted that are
    /// no longer needed and whose time bucket is. Some hundred rows a core may come on top
    /// [default: none]
    #[arg(long, value_name = "N")]
    pub(super) max_rows: Option<String>,
    /// Buffered rows are given up this long after they came, by the clock, up to an eighth of it
    /// later, although no watermark has passed their end: for inputs that fall silent. Rows without
    /// a match come out then where --type says so, and those whose match was yet to be chosen with
    /// the one that they have; not with --match one-to-one or --window [default: never]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) ttl: Option<String>,
    /// When a bound comes near: block stops reading what is ahead until rows are freed, shed gives
    /// the oldest rows up, whose pairs are then missing (they are counted, and come out as
    /// unmatched neither), spill puts the oldest rows into files and looks there as well, which is
    /// slower, fail goes on and ends the run at the bound
    #[arg(long, value_name = "POLICY", default_value = "block")]
    pub(super) on_full: OnFull,
    /// Where --on-full spill puts rows: a folder on a disk with room; the files in it have no names
    /// [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(super) spill_dir: Option<PathBuf>,
}

choices! {
    /// A tick.
    Unit { Ms, Us, Ns }
    /// Where the right row of a left one is looked for.
    AsofChoice { Backward, Forward, Nearest }
    /// A policy for late rows.
    LateChoice { Drop, Fail }
    /// A policy for rows that do not parse.
    BadRows { Fail, Skip }
    /// When to show progress.
    When { Auto, Always, Never }
    /// A form of the closing report.
    Stats { Text, Json, None }
    /// A policy for full state.
    OnFull { Block, Shed, Spill, Fail }
}
