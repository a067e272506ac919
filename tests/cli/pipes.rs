//! Several named pipes, all written by one process: it waits whenever one of them is not read.

#![cfg(unix)]

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::{Child, Command};

use crate::support::{Dir, Lines};

const JOIN: &str = "join --left l.csv --right r.csv --on k --left-time ts --right-time ts \
                    --between 0..1s --stats none";
const T: i64 = 1_704_103_200_000;

/// A child that does not outlive a test that fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It has ended already, unless the test fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rows of a join of two pipes that `write` writes. Fails when none comes for a minute.
fn join(rest: &str, write: impl FnOnce([PathBuf; 2]) + Send + 'static) -> usize {
    let dir = Dir::new();
    for name in ["l.csv", "r.csv"] {
        assert!(Command::new("mkfifo").arg(dir.path(name)).status().unwrap().success());
    }
    let mut child = Killed(dir.spawn(&format!("{JOIN} {rest}")));
    let paths = ["l.csv", "r.csv"].map(|name| dir.path(name));
    let writer = std::thread::spawn(move || write(paths));
    let lines = Lines::of(child.0.stdout.take().unwrap());
    assert_eq!(lines.next().as_deref(), Some("k,ts,id,k_right,ts_right,id_right"));
    let rows = std::iter::from_fn(|| lines.next()).count();
    writer.join().unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    rows
}

fn open(path: &PathBuf) -> BufWriter<File> {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    BufWriter::with_capacity(64 << 10, file)
}

/// One stream in the order of time, every `ratio`-th row for the right side. The first `flushed`
/// rows are not held back in the writer's buffers.
fn split([left, right]: [PathBuf; 2], rows: i64, ratio: i64, flushed: i64) {
    let [mut left, mut right] = [&left, &right].map(|path| {
        let mut pipe = open(path);
        pipe.write_all(b"k,ts,id\n").unwrap();
        pipe.flush().unwrap();
        pipe
    });
    for row in 0..rows {
        let pipe = if row % ratio == 0 { &mut right } else { &mut left };
        writeln!(pipe, "k{},{},{row}", row % 97, T + row * 10).unwrap();
        if row < flushed {
            pipe.flush().unwrap();
        }
    }
}

/// A right row has one left row with its key within a second, 97 rows before; the first have none.
#[test]
fn a_stream_that_is_split_by_its_writer_is_read_on_while_one_side_has_nothing() {
    for rest in ["--cores 1", "--cores 2 --deterministic"] {
        assert_eq!(join(rest, |paths| split(paths, 200_000, 20, 2_000)), 10_000 - 5);
    }
    assert_eq!(join("", |paths| split(paths, 400_000, 100, 2_000)), 4_000 - 1);
}

#[test]
fn one_pipe_is_read_while_the_first_row_of_another_is_waited_for() {
    assert_eq!(join("", |paths| split(paths, 200_000, 20, 0)), 10_000 - 5);
}

#[test]
fn pipes_are_opened_at_the_same_time() {
    for order in [[0, 1], [1, 0]] {
        let rows = join("", move |paths| {
            let mut pipes = order.map(|index| open(&paths[index]));
            for (pipe, index) in pipes.iter_mut().zip(order) {
                let ts = T + [0, 500][index];
                write!(pipe, "k,ts,id\na,{ts},{index}\n").unwrap();
            }
        });
        assert_eq!(rows, 1, "{order:?}");
    }
}
