//! A directory of its own for each test, and commands that run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A directory that goes away with the test.
pub struct Dir {
    dir: tempfile::TempDir,
}

/// What a command came to.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Dir {
    pub fn new() -> Dir {
        Dir { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// With the sample of orders and payments as `orders.csv` and `payments.csv`.
    pub fn with_sample() -> Dir {
        let dir = Dir::new();
        for name in ["orders.csv", "payments.csv"] {
            fs::copy(data(name), dir.path(name)).expect("the sample data");
        }
        dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Dir {
        fs::write(self.path(name), content).expect("a writable directory");
        self
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The names in the directory, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("the directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// `intervale` with arguments split at blanks, to run in the directory.
    pub fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_intervale"));
        command.current_dir(self.dir.path()).args(args.split_whitespace());
        command.env("NO_COLOR", "1").env_remove("COLUMNS").stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &str) -> Ran {
        Ran::from(self.command(args).output().expect("the binary runs"))
    }

    /// Runs with `input` on standard input.
    pub fn run_with_input(&self, args: &str, input: &[u8]) -> Ran {
        let mut child = self.spawn(args);
        let mut stdin = child.stdin.take().expect("a pipe");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A command that fails early does not read all of it.
                let _ = std::io::Write::write_all(&mut stdin, input);
            });
            Ran::from(child.wait_with_output().expect("the binary ends"))
        })
    }

    /// Starts with pipes on all three standard streams.
    pub fn spawn(&self, args: &str) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary starts")
    }

    /// Runs a join that must succeed, its report as JSON; returns the output and the report.
    pub fn join(&self, args: &str) -> (String, Value) {
        let ran = self.run(&format!("join --stats json --stats-output report.json {args}")).ok();
        let report = serde_json::from_str(&self.read("report.json")).expect("a JSON report");
        check_sums(&report);
        (ran.out, report)
    }

    /// As [`join`](Self::join), the output's rows without the header, sorted.
    pub fn rows(&self, args: &str) -> Vec<String> {
        sorted_rows(&self.join(args).0)
    }
}

impl Ran {
    /// Fails unless the exit status is 0.
    #[track_caller]
    pub fn ok(self) -> Ran {
        assert_eq!(self.code, Some(0), "stderr: {}", self.err);
        self
    }

    /// Fails unless the exit status is `code` and standard error contains all of `words`.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Ran {
        assert_eq!(self.code, Some(code), "stdout: {} stderr: {}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "no `{word}` in: {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Of rows `key,time,id` joined with such rows: `left+right` of each, sorted.
pub fn ids_of_pairs(rows: &[String]) -> Vec<String> {
    let pair = |row: &String| {
        let cells: Vec<&str> = row.split(',').collect();
        format!("{}+{}", cells[2], cells.get(5).unwrap_or(&""))
    };
    let mut pairs: Vec<String> = rows.iter().map(pair).collect();
    pairs.sort();
    pairs
}

/// The lines of a stream, read on a thread of its own, so that a test can give up waiting.
pub struct Lines(std::sync::mpsc::Receiver<String>);

impl Lines {
    pub fn of(stream: impl std::io::Read + Send + 'static) -> Lines {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let lines = std::io::BufRead::lines(std::io::BufReader::new(stream));
            lines.map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Lines(receiver)
    }

    /// The next line; `None` at the end of the stream.
    #[track_caller]
    pub fn next(&self) -> Option<String> {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        match self.0.recv_timeout(std::time::Duration::from_secs(60)) {
            Ok(line) => Some(line),
            Err(Disconnected) => None,
            Err(Timeout) => panic!("no line came within a minute"),
        }
    }
}

/// The rows under a header, sorted.
pub fn sorted_rows(text: &str) -> Vec<String> {
    let mut rows: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
    rows.sort();
    rows
}

/// A file of `tests/data`.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A number of a report.
#[track_caller]
pub fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("no number `{name}` in {report}"))
}

/// The sums that every report must keep.
fn check_sums(report: &Value) {
    for side in ["left", "right"] {
        let count = |what: &str| number(report, &format!("{side}_{what}"));
        if report[format!("{side}_matched")].is_null() {
            // Rows were copied to split a key.
            assert!(number(report, "hot_keys_split") > 0, "{side}: {report}");
            continue;
        }
        let parts = ["matched", "unmatched", "late", "bad", "null_key"].map(count);
        assert_eq!(count("rows"), parts.iter().sum::<u64>(), "{side}: {report}");
    }
}
