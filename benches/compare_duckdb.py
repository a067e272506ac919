#!/usr/bin/env python3
"""Times `intervale join` beside DuckDB: the same CSV files, the same join, CSV out.

    cargo build --release && python3 benches/compare_duckdb.py

Makes 2 M orders and 2 M payments (workload w1a: unique ids, payment 0 to 60 s later, disorder up
to 5 s), then runs both programs in turn, five times each, two threads each. DuckDB is told every
column's type, gets integer keys, and its own start-up and Python's are left out of its time; for
intervale the whole process counts. Outputs are compared pair by pair. Needs Python 3 and, once, a
network for `pip install duckdb` into target/.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "compare_duckdb"
INTERVALE = ROOT / "target" / "release" / "intervale"

# Runs in the environment that has DuckDB; prints one line of JSON.
DUCKDB_RUN = """
import json, resource, sys, time
import duckdb
left, right, out, threads = sys.argv[1:]
connection = duckdb.connect(config={"threads": int(threads)})
columns = "columns={'key': 'BIGINT', 'ts': 'BIGINT', 'id': 'BIGINT'}, header=true, delim=','"
query = f'''
COPY (
    SELECT l.key, l.ts, l.id, r.key AS key_right, r.ts AS ts_right, r.id AS id_right
    FROM read_csv('{left}', {columns}) l JOIN read_csv('{right}', {columns}) r
    ON l.key = r.key AND r.ts BETWEEN l.ts AND l.ts + 300000
) TO '{out}' (FORMAT csv, HEADER)
'''
def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
wall, cpu = time.perf_counter(), cpu_s()
connection.execute("SET preserve_insertion_order = false")
connection.execute("SET enable_progress_bar = false")
connection.execute(query)
wall, cpu = time.perf_counter() - wall, cpu_s() - cpu
print(json.dumps({"wall_s": wall, "cpu_s": cpu, "version": duckdb.__version__}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=4_000_000, help="rows of both files")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runtime", default="auto", help="of intervale: auto, glommio, threads")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    options = parser.parse_args()
    if not INTERVALE.exists():
        sys.exit(f"{INTERVALE} is missing; run: cargo build --release")
    FOLDER.mkdir(parents=True, exist_ok=True)
    python = duckdb_python()
    left, right = FOLDER / "left.csv", FOLDER / "right.csv"
    run([INTERVALE, "gen", "--workload", "w1a", "--events", str(options.events),
         "--left", left, "--right", right])

    outputs = {name: FOLDER / f"{name}.csv" for name in ("intervale", "duckdb")}
    figures = {name: [] for name in outputs}
    version = None
    for _ in range(options.runs):
        figures["intervale"].append(
            run([INTERVALE, "join", "--left", left, "--right", right, "--on", "key",
                 "--left-time", "ts", "--right-time", "ts", "--time-format", "ms",
                 "--between", "0..5m", "--out-of-orderness", "5s", "--stats", "none",
                 "--cores", str(options.threads), "--runtime", options.runtime,
                 "--output", outputs["intervale"]]))
        done = subprocess.run(
            [python, "-c", DUCKDB_RUN, left, right, outputs["duckdb"], str(options.threads)],
            check=True, stdout=subprocess.PIPE, text=True)
        figure = json.loads(done.stdout.splitlines()[-1])
        version = figure["version"]
        figures["duckdb"].append((figure["wall_s"], figure["cpu_s"]))

    pairs = {name: digest(path) for name, path in outputs.items()}
    if pairs["intervale"] != pairs["duckdb"]:
        sys.exit(f"the outputs differ (pairs, digest): {pairs}; the times mean nothing")
    report(options, version, pairs["duckdb"][0], figures)


def duckdb_python():
    """The interpreter of an environment that has DuckDB; made at the first use."""
    environment = ROOT / "target" / "compare_duckdb_venv"
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    if subprocess.run([python, "-c", "import duckdb"], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "duckdb"], check=True)
    return python


def run(command):
    """Wall and CPU seconds of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def digest(path):
    """The number of pairs, and a sum over them that does not depend on their order."""
    count, total = 0, 0
    with open(path) as lines:
        header = next(lines).rstrip("\n").split(",")
        left, right = header.index("id"), header.index("id_right")
        for line in lines:
            fields = line.rstrip("\n").split(",")
            count += 1
            total += hash((int(fields[left]), int(fields[right])))
    return count, total


def report(options, version, pairs, figures):
    rows = {}
    for name, runs in figures.items():
        walls, cpus = zip(*runs)
        rows[name] = {
            "wall_s_best": round(min(walls), 3),
            "wall_s_median": round(statistics.median(walls), 3),
            "cpu_s_best": round(min(cpus), 3),
            "cpu_s_median": round(statistics.median(cpus), 3),
        }
    ratio = rows["duckdb"]["wall_s_best"] / rows["intervale"]["wall_s_best"]
    if options.json:
        print(json.dumps({"events": options.events, "threads": options.threads, "pairs": pairs,
                          "runs": options.runs, "duckdb_version": version,
                          "duckdb_wall_over_intervale": round(ratio, 2), **rows}))
        return
    print(f"{options.events} rows in, {pairs} pairs out, {options.threads} threads, "
          f"{options.runs} runs, DuckDB {version}, {os.cpu_count()} cores")
    print(f"{'seconds':<10} {'wall best':>10} {'median':>8} {'cpu best':>10} {'median':>8}")
    for name, row in rows.items():
        print(f"{name:<10} {row['wall_s_best']:>10.3f} {row['wall_s_median']:>8.3f} "
              f"{row['cpu_s_best']:>10.3f} {row['cpu_s_median']:>8.3f}")
    print(f"DuckDB takes {ratio:.2f} times as long (wall, best of each)")


if __name__ == "__main__":
    main()
