#!/usr/bin/env python3
"""Makes forms.jsonl: what as-of, one-to-one and window joins mean, by brute force;
conditions.jsonl: what a condition on the pair means in these and in interval joins; rules.jsonl: what
rules mean that take each other's place; lives.jsonl: rows that have a time to live;
chains/chains.jsonl: joins of several streams, and chains/stages.jsonl: the same with stages of every
form; process/unpaid.jsonl: what an operator of one's own does with timers.

    python3 tests/conformance/naive.py > tests/conformance/forms.jsonl
    python3 tests/conformance/naive.py conditions > tests/conformance/conditions.jsonl
    python3 tests/conformance/naive.py rules > tests/conformance/rules.jsonl
    python3 tests/conformance/naive.py lives > tests/conformance/lives.jsonl
    python3 tests/conformance/naive.py process > tests/conformance/process/unpaid.jsonl
    python3 tests/conformance/naive.py chains > tests/conformance/chains/chains.jsonl
    python3 tests/conformance/naive.py stages > tests/conformance/chains/stages.jsonl

Written from the definitions alone, without a look at the operators: whether an answer is final is
decided by trying every time at which an event could still come. One source a side, late rows
dropped. The same seed gives the same bytes.
"""

import itertools
import json
import random
import sys

START = float("-inf")
END = float("inf")


class Naive:
    """Rows, promises and what was given out already."""

    def __init__(self, config):
        self.config = config
        self.kind = config["join"]
        self.allowed = config["allowed_lateness"]
        self.own = config.get("lateness") == "own"
        self.rows = {"L": [], "R": []}
        self.promised = {"L": START, "R": START}
        self.arrivals = 0
        self.ended = False
        self.out = []

    def merged(self):
        return min(self.promised.values())

    def judge(self, side):
        """The watermark that says what is late."""
        return self.promised[side] if self.own else self.merged()

    def emit(self, **output):
        self.out.append(output)

    def alone(self, side, row_id):
        if side == "L" and self.kind in ("left", "full"):
            self.emit(out="left_null", l=row_id)
        elif side == "L" and self.kind == "anti":
            self.emit(out="left_anti", l=row_id)
        elif side == "R" and self.kind in ("right", "full"):
            self.emit(out="right_null", r=row_id)

    def step(self, step):
        self.out = []
        if step["op"] in ("L", "R"):
            self.event(step["op"], step)
        elif step["op"] in ("WL", "WR"):
            side = step["op"][1]
            self.promised[side] = max(self.promised[side], step["ts"])
        else:
            self.promised = {"L": END, "R": END}
            self.ended = True
        self.settle()
        return self.out

    def event(self, side, step):
        if step["key"] is None:
            self.alone(side, step["id"])
            return
        if self.is_late(step["ts"], self.judge(side)):
            self.emit(out="late_left" if side == "L" else "late_right", id=step["id"])
            return
        self.arrivals += 1
        self.add(side, dict(step, arrival=self.arrivals, done=False, matched=False))

    def is_late(self, ts, watermark):
        return ts < watermark - self.allowed

    def add(self, side, row):
        self.rows[side].append(row)

    def holds(self, left, right):
        """The condition and the rule of the pair's time: without one, everything passes."""
        time, apart = max(left["ts"], right["ts"]), right["ts"] - left["ts"]
        ruling = [rule for rule in self.config.get("rules", []) if rule["from"] <= time]
        if ruling and not ruling[-1]["lower"] <= apart <= ruling[-1]["upper"]:
            return False
        condition = self.config.get("condition")
        if condition == "less":
            return left["v"] < right["v"]
        if condition == "differ":
            return left["v"] != right["v"]
        return condition is None


class Interval(Naive):
    """Every pair at once: two rows on time that are near enough always meet."""

    def settle(self):
        lower, upper = self.config["lower"], self.config["upper"]
        for left in self.rows["L"]:
            for right in self.rows["R"]:
                apart = right["ts"] - left["ts"]
                met = left.setdefault("met", set())
                if left["key"] != right["key"] or not lower <= apart <= upper:
                    continue
                if right["arrival"] in met or not self.holds(left, right):
                    continue
                if self.kind == "semi" and not met:
                    self.emit(out="left_semi", l=left["id"])
                elif self.kind not in ("semi", "anti"):
                    ts = max(left["ts"], right["ts"])
                    self.emit(out="pair", l=left["id"], r=right["id"], ts=ts)
                met.add(right["arrival"])
                left["matched"] = right["matched"] = True
        for side, other, reach in (("L", "R", upper), ("R", "L", -lower)):
            clock = self.promised[other] if self.own else self.merged()
            for row in self.rows[side]:
                over = self.ended or clock > row["ts"] + reach + self.allowed
                if over and not row["matched"] and not row["done"]:
                    row["done"] = True
                    self.alone(side, row["id"])


class Living:
    """The same for rows that are gone a while after they came, by the clock on the wall."""

    since = None

    def step(self, step):
        if step["op"] != "tick":
            return super().step(step)
        self.out = []
        self.tick(step["ns"], self.config["ttl"])
        return self.out

    def tick(self, now, ttl):
        """Rows are taken together by eighths of their time: from a tick on that ends one."""
        if self.since is None:
            self.since = now
        if now - self.since >= max(ttl // 8, 1):
            self.since = now
            for row in self.rows["L"] + self.rows["R"]:
                row.setdefault("stored", now)
        for side in "LR":
            gone = [row for row in self.rows[side] if row.get("stored", END) + ttl <= now]
            self.rows[side] = [row for row in self.rows[side] if row not in gone]
            for row in gone:
                self.go(side, row)


class Lives(Living, Interval):
    def go(self, side, row):
        if not row["matched"] and not row["done"]:
            self.alone(side, row["id"])


class Unpaid(Naive):
    """An alarm for each order that is not paid in time, and a correction if it is paid later."""

    def __init__(self, config):
        super().__init__(config)
        self.states = {}
        self.timers = []

    def add(self, side, row):
        key = row["key"]
        state = self.states.setdefault(key, {"order": None, "paid": False, "alarmed": False})
        if side == "L":
            state["order"] = row["id"]
            timer = (row["ts"] + self.config["within"], key)
            # One of a key and time is enough.
            if timer not in self.timers:
                self.timers.append(timer)
        else:
            state["paid"] = True
            if state["alarmed"]:
                self.emit(out="correction", r=row["id"], ts=row["ts"])
                del self.states[key]

    def settle(self):
        due = [timer for timer in self.timers if timer[0] <= self.merged()]
        self.timers = [timer for timer in self.timers if timer not in due]
        for ts, key in sorted(due, key=lambda timer: timer[0]):
            state = self.states.get(key)
            if state and state["paid"]:
                del self.states[key]
            elif state:
                state["alarmed"] = True
                self.emit(out="alarm", l=state["order"], ts=ts)


class Asof(Naive):
    """One right row for each left one."""

    def better(self, left, ts, best):
        direction = self.config.get("asof") or self.config["match"]
        if direction in ("backward", "last"):
            return ts > best
        if direction in ("forward", "first"):
            return ts < best
        return (abs(ts - left), ts) < (abs(best - left), best)

    def possible(self, left):
        if "match" in self.config:
            return range(left + self.config["lower"], left + self.config["upper"] + 1)
        tolerance, direction = self.config["tolerance"], self.config["asof"]
        first = left if direction == "forward" else left - tolerance
        last = left if direction == "backward" else left + tolerance
        times = range(first, last + 1)
        return [ts for ts in times if not (self.config["strict"] and ts == left)]

    def settle(self):
        # The right side's promise is what left rows wait for.
        watermark = self.promised["R"] if self.own else self.merged()
        for left in self.rows["L"]:
            if left["done"]:
                continue
            possible = self.possible(left["ts"])
            best = None
            for right in left.get("noted", []) + self.rows["R"]:
                near = right["key"] == left["key"] and right["ts"] in possible
                if near and self.holds(left, right):
                    if best is None or self.better(left["ts"], right["ts"], best["ts"]):
                        best = right
            left["noted"] = [best] if best else []
            if self.kind == "semi" and best:
                self.emit(out="left_semi", l=left["id"])
                left["done"] = True
                continue
            to_come = [ts for ts in possible if ts >= watermark - self.allowed]
            if best and self.kind != "anti":
                to_come = [ts for ts in to_come if self.better(left["ts"], ts, best["ts"])]
            if to_come and not self.ended:
                continue
            self.give(left)

    def give(self, left):
        """The left row comes out with the best that it has met."""
        left["done"] = True
        for best in left["noted"]:
            if self.kind in ("inner", "left"):
                ts = max(left["ts"], best["ts"])
                self.emit(out="pair", l=left["id"], r=best["id"], ts=ts)
        if not left["noted"]:
            self.alone("L", left["id"])


class LivesAsof(Living, Asof):
    def go(self, side, row):
        # A right row that is gone is no partner of left rows that come later.
        if side == "L" and not row["done"]:
            self.give(row)


class OneToOne(Naive):
    """Greedy, from the start, at every step."""

    def settle(self):
        watermark = self.merged()
        decided = END if self.ended else watermark - self.allowed
        pairs = []
        for left in self.rows["L"]:
            for right in self.rows["R"]:
                apart = right["ts"] - left["ts"]
                near = self.config["lower"] <= apart <= self.config["upper"]
                if left["key"] == right["key"] and near and self.holds(left, right):
                    arrivals = sorted((left["arrival"], right["arrival"]), reverse=True)
                    pairs.append((max(left["ts"], right["ts"]), arrivals, left, right))
        pairs.sort(key=lambda pair: pair[:2])
        used = set()
        for ts, _, left, right in pairs:
            if ts > decided or left["arrival"] in used or right["arrival"] in used:
                continue
            used.update((left["arrival"], right["arrival"]))
            if not left["matched"]:
                left["matched"] = right["matched"] = True
                if self.kind == "semi":
                    self.emit(out="left_semi", l=left["id"])
                elif self.kind != "anti":
                    self.emit(out="pair", l=left["id"], r=right["id"], ts=ts)
        for side in ("L", "R"):
            reach = self.config["upper"] if side == "L" else -self.config["lower"]
            for row in self.rows[side]:
                over = watermark > row["ts"] + reach + self.allowed and decided >= row["ts"]
                if not row["matched"] and not row["done"] and (over or self.ended):
                    row["done"] = True
                    self.alone(side, row["id"])


class Windows(Naive):
    """Rows of one key in one window."""

    def __init__(self, config):
        super().__init__(config)
        self.live = []

    def spans(self, ts):
        config = self.config
        if config["window"] == "session":
            return [(ts, ts + config["gap"])]
        size = config["size"]
        slide = config.get("slide", size)
        starts = range(ts - size + 1, ts + 1)
        return [(s, s + size) for s in starts if (s - config["offset"]) % slide == 0]

    def is_late(self, ts, watermark):
        return all(end <= watermark - self.allowed for _, end in self.spans(ts))

    def add(self, side, row):
        row["side"] = side
        is_session = self.config["window"] == "session"
        over = self.judge(side) - self.allowed
        for start, end in self.spans(row["ts"]):
            if end <= over:
                continue
            if is_session:
                # Sessions that ended before are over for this row, whatever the other side says.
                start = max(start, over)
            window = {"key": row["key"], "start": start, "end": end, "rows": [row], "paired": set()}
            rest = []
            for other in self.live:
                meets = other["start"] < end and start < other["end"]
                same = (other["start"], other["end"]) == (start, end)
                if other["key"] == row["key"] and (meets if is_session else same):
                    window["start"] = min(window["start"], other["start"])
                    window["end"] = max(window["end"], other["end"])
                    window["rows"] += other["rows"]
                    window["paired"] |= other["paired"]
                else:
                    rest.append(other)
            window["rows"].sort(key=lambda row: row["arrival"])
            self.live = rest + [window]

    def settle(self):
        rest = []
        # By whose own promise a session can still grow, its end is open until it closes.
        waits = self.allowed if self.own and self.config["window"] == "session" else 0
        for window in self.live:
            if not self.ended and self.merged() < window["end"] + waits:
                rest.append(window)
                continue
            paired = window["paired"]
            for left in window["rows"]:
                for right in window["rows"]:
                    pair = (left["arrival"], right["arrival"])
                    if left["side"] != "L" or right["side"] != "R" or pair in paired:
                        continue
                    if not self.holds(left, right):
                        continue
                    is_first = all(of_left != left["arrival"] for of_left, _ in paired)
                    paired.add(pair)
                    if self.kind == "semi" and is_first:
                        self.emit(out="left_semi", l=left["id"])
                    elif self.kind not in ("semi", "anti"):
                        self.emit(out="pair", l=left["id"], r=right["id"], ts=window["end"] - 1)
            if not self.ended and self.merged() < window["end"] + self.allowed:
                rest.append(window)
                continue
            met = {arrival for pair in paired for arrival in pair}
            for row in window["rows"]:
                if row["arrival"] not in met:
                    self.alone(row["side"], row["id"])
        self.live = rest


def steps(rng, length, with_values):
    listed, base = [], rng.choice([0, 0, -30, 1000])
    for number in range(length):
        pick, ts = rng.random(), base + number + rng.randint(-7, 7)
        if pick < 0.7:
            side = rng.choice("LR")
            key = None if rng.random() < 0.04 else rng.choice("ab")
            listed.append({"op": side, "key": key, "ts": ts, "id": f"{side.lower()}{number}"})
            if with_values:
                listed[-1]["v"] = rng.randint(0, 3)
        else:
            listed.append({"op": rng.choice(["WL", "WR"]), "ts": ts})
    return listed + [{"op": "end"}]


def scenario(name, model, config, rng):
    listed = steps(rng, rng.randint(8, 40), "condition" in config)
    print_line(name, model, config, listed)


def print_line(name, model, config, listed):
    naive, expected = model(config), []
    for number, step in enumerate(listed, 1):
        expected += [dict(output, step=number) for output in naive.step(step)]
    line = {"name": name, "flink": "not run", "steps": [config, *listed], "expected": expected}
    print(json.dumps(line, separators=(",", ":")))


def config_of(rng, kinds, **more):
    return {
        "join": rng.choice(kinds),
        "allowed_lateness": rng.choice([0, 0, 3]),
        "late": "drop",
        "lateness": rng.choice(["merged", "merged", "own"]),
        **more,
    }


ALL_KINDS = ["inner", "left", "right", "full", "semi", "anti"]


def conditions():
    rng = random.Random(12)

    def add(name, model, kinds, **more):
        config = config_of(rng, kinds, condition=rng.choice(["less", "differ"]), **more)
        scenario(f"{name}-if-{config['condition']}-{config['join']}", model, config, rng)

    for number in range(48):
        lower = rng.randint(-6, 4)
        ends = {"lower": lower, "upper": lower + rng.randint(0, 9)}
        add(f"interval-{number}", Interval, [ALL_KINDS[number % 6]], **ends)
        match = rng.choice(["first", "last", "nearest"])
        add(f"{match}-{number}", Asof, ["inner", "left"], match=match, **ends)
        add(f"one-to-one-{number}", OneToOne, ALL_KINDS, match="one-to-one", **ends)
    for number in range(36):
        more = {
            "asof": rng.choice(["backward", "forward", "nearest"]),
            "tolerance": rng.choice([1, 4, 10]),
            "strict": rng.random() < 0.3,
        }
        add(f"asof-{number}", Asof, ["inner", "left"], **more)
        kind = rng.choice(["tumble", "hop", "session"])
        more = {
            "tumble": {"size": rng.choice([5, 12]), "offset": rng.choice([0, 3])},
            "hop": {"size": 10, "slide": rng.choice([2, 5, 7]), "offset": 0},
            "session": {"gap": rng.choice([2, 4, 9])},
        }[kind]
        add(f"{kind}-{number}", Windows, ALL_KINDS, window=kind, **more)


def rules():
    rng = random.Random(13)
    for number in range(60):
        lower = rng.randint(-9, 2)
        upper = lower + rng.randint(4, 12)
        base, times, ruling = rng.choice([0, 0, -30, 1000]), 0, []
        for _ in range(rng.randint(1, 3)):
            times += rng.randint(3, 9)
            first = rng.randint(lower, upper)
            ruling.append({"from": base + times, "lower": first, "upper": rng.randint(first, upper)})
        more = {"lower": lower, "upper": upper, "rules": ruling}
        if rng.random() < 0.3:
            more["condition"] = rng.choice(["less", "differ"])
        config = config_of(rng, [ALL_KINDS[number % 6]], **more)
        scenario(f"rules-{number}-{config['join']}", Interval, config, rng)


def lives():
    rng = random.Random(15)
    for number in range(90):
        lower = rng.randint(-9, 2)
        more = {"lower": lower, "upper": lower + rng.randint(4, 20), "ttl": rng.choice([40, 80])}
        config = config_of(rng, [ALL_KINDS[number % 6]], **more)
        print_line(f"lives-{number}-{config['join']}", Lives, config, ticking(rng))
    for number in range(90):
        lower = rng.randint(-9, 2)
        form = rng.choice([
            {"match": rng.choice(["first", "last", "nearest"]), "lower": lower},
            {"asof": rng.choice(["backward", "forward", "nearest"]), "strict": rng.random() < 0.3},
        ])
        if "match" in form:
            form["upper"] = lower + rng.randint(4, 20)
        else:
            form["tolerance"] = rng.choice([4, 10, 20])
        kinds = ["inner", "left", "left"]
        if not (form.get("strict") and form["asof"] == "nearest"):
            kinds += ["semi", "anti"]
        config = config_of(rng, kinds, **form, ttl=rng.choice([40, 80]))
        name = f"lives-{form.get('match', form.get('asof'))}-{number}-{config['join']}"
        print_line(name, LivesAsof, config, ticking(rng))


def ticking(rng):
    """Steps with the time told between them."""
    listed, now = [], rng.choice([0, 1000])
    for step in steps(rng, rng.randint(8, 40), False):
        while rng.random() < 0.35:
            now += rng.randint(0, 30)
            listed.append({"op": "tick", "ns": now})
        listed.append(step)
    return listed


def process():
    rng = random.Random(16)
    for number in range(80):
        config = config_of(rng, ["inner"], process="unpaid", within=rng.choice([0, 3, 8]))
        scenario(f"unpaid-{number}", Unpaid, config, rng)


def main():
    rng = random.Random(11)
    for number in range(120):
        more = {
            "asof": rng.choice(["backward", "forward", "nearest"]),
            "tolerance": rng.choice([1, 4, 10]),
            "strict": rng.random() < 0.3,
        }
        kinds = ["inner", "left", "left"]
        if not (more["strict"] and more["asof"] == "nearest"):
            kinds += ["semi", "anti"]
        scenario(f"asof-{number}", Asof, config_of(rng, kinds, **more), rng)
    for number in range(60):
        lower = rng.randint(-6, 4)
        more = {"match": "one-to-one", "lower": lower, "upper": lower + rng.randint(0, 9)}
        kinds = ["inner", "left", "right", "full", "semi", "anti"]
        config = config_of(rng, kinds, **more)
        scenario(f"one-to-one-{number}", OneToOne, config, rng)
    for number in range(120):
        kind, offset = rng.choice(["tumble", "hop", "session"]), rng.choice([0, 0, 3, -4])
        more = {
            "tumble": {"window": kind, "size": rng.choice([1, 5, 12]), "offset": offset},
            "hop": {"window": kind, "size": 10, "slide": rng.choice([2, 5, 7]), "offset": offset},
            "session": {"window": kind, "gap": rng.choice([2, 4, 9])},
        }[kind]
        kinds = ["inner", "left", "right", "full", "semi", "anti"]
        scenario(f"{kind}-{number}", Windows, config_of(rng, kinds, **more), rng)


def partners(row, stage, stream):
    """The rows of a stream that a joined row, a list with None where it is padded, goes with."""
    anchor, keyed = row[stage["anchor"]], row[stage["left_key"][0]]
    if anchor is None or keyed is None or keyed[stage["left_key"][1]] is None:
        return []
    return [
        right
        for right in stream
        if right[stage["right_key"]] == keyed[stage["left_key"][1]]
        and stage["lower"] <= right["ts"] - anchor["ts"] <= stage["upper"]
    ]


def joined(streams, stages):
    """Every combination of rows, or of none, is looked at: is each stage content with it?"""
    choices = [streams[0]] + [
        stream + ([None] if stage["join"] == "left" else [])
        for stage, stream in zip(stages, streams[1:])
    ]
    for row in itertools.product(*choices):
        fits = True
        for number, stage in enumerate(stages, 1):
            found = partners(row[:number], stage, streams[number])
            fits = fits and (row[number] in found if row[number] else not found)
        if fits:
            yield [part and part["id"] for part in row]


def chains():
    rng = random.Random(12)
    for number in range(150):
        count = rng.choice([3, 3, 3, 4, 5])
        base, length = rng.choice([0, 0, -30, 1 << 40]), {3: 18, 4: 10, 5: 7}[count]
        streams, stages = [], []
        for stream in range(count):
            rows = []
            for place in range(rng.randint(length // 2, length)):
                keys = {key: rng.choice("xxxy") if rng.random() > 0.06 else None for key in "ab"}
                rows.append({"id": f"{stream}-{place}", "ts": base + place * 2 + rng.randint(-3, 3), **keys})
            streams.append(rows)
        for stage in range(1, count):
            lower = rng.randint(-9, 5)
            stages.append({
                "join": rng.choice(["inner", "inner", "left"]),
                "anchor": rng.randrange(stage),
                "lower": lower,
                "upper": lower + rng.randint(3, 22),
                "left_key": [rng.randrange(stage), rng.choice("ab")],
                "right_key": rng.choice("ab"),
            })
        line = {"name": f"chain-{number}", "flink": "not run", "streams": streams, "stages": stages}
        line["expected"] = sorted(joined(streams, stages), key=lambda row: [part or "" for part in row])
        print(json.dumps(line, separators=(",", ":")))


def groups_of(stage, lefts, rights):
    """Lists of rows that may meet: all, or those of one window. Rows are (number, time, key, right?)."""
    rows = lefts + rights
    if "window" not in stage:
        return [rows]
    if stage["window"] == "session":
        groups = []
        for row in sorted(rows, key=lambda row: (row[2], row[1])):
            last = groups[-1][-1] if groups else None
            if last and last[2] == row[2] and row[1] - last[1] < stage["gap"]:
                groups[-1].append(row)
            else:
                groups.append([row])
        return groups
    size, slide = stage["size"], stage.get("slide", stage["size"])
    starts = {ts - back for _, ts, _, _ in rows for back in range(size)}
    starts = [start for start in starts if (start - stage["offset"]) % slide == 0]
    return [[row for row in rows if start <= row[1] < start + size] for start in sorted(starts)]


def is_near(stage, apart):
    """Whether the times of two rows that are so far apart go together."""
    if "window" in stage:
        return True
    if "asof" not in stage:
        return stage["lower"] <= apart <= stage["upper"]
    sides = {"backward": apart <= 0, "forward": apart >= 0, "nearest": True}
    is_own_time = stage["strict"] and apart == 0
    return sides[stage["asof"]] and abs(apart) <= stage["tolerance"] and not is_own_time


def chosen(stage, left, found):
    """Those of the matches of a left row that count; of the same time the first."""
    choice = stage.get("match", "all")
    if "asof" in stage:
        choice = {"backward": "last", "forward": "first", "nearest": "nearest"}[stage["asof"]]
    rank = {
        "first": lambda right: right[1],
        "last": lambda right: -right[1],
        "nearest": lambda right: (abs(right[1] - left[1]), right[1]),
    }
    return found if choice == "all" or not found else [min(found, key=rank[choice])]


def stage_rows(rows, stage, stream, count):
    """What comes out of one stage, behind so many streams."""
    out, grouped = [], set()
    lefts, rights = [], []
    for number, row in enumerate(rows):
        anchor, keyed = row[stage["anchor"]], row[stage["left_key"][0]]
        if anchor and keyed and keyed[stage["left_key"][1]] is not None:
            lefts.append((number, anchor["ts"], keyed[stage["left_key"][1]], False))
    for number, right in enumerate(stream):
        if right[stage["right_key"]] is not None:
            rights.append((number, right["ts"], right[stage["right_key"]], True))
    for group in groups_of(stage, lefts, rights):
        matched = set()
        of_right = sorted(row for row in group if row[3])
        for left in group:
            if left[3]:
                continue
            found = [r for r in of_right if r[2] == left[2] and is_near(stage, r[1] - left[1])]
            for right in chosen(stage, left, found):
                matched |= {(left[0], False), (right[0], True)}
                out.append(rows[left[0]] + [stream[right[0]]])
        for number, _, _, is_right in group:
            grouped.add((number, is_right))
            if (number, is_right) not in matched:
                out += alone_in(stage, rows, stream, number, is_right, count)
    for number in range(len(rows)):
        if (number, False) not in grouped:
            out += alone_in(stage, rows, stream, number, False, count)
    for number in range(len(stream)):
        if (number, True) not in grouped:
            out += alone_in(stage, rows, stream, number, True, count)
    return out


def alone_in(stage, rows, stream, number, is_right, count):
    if is_right:
        padded = [None] * count + [stream[number]]
        return [padded] if stage["join"] in ("right", "full") else []
    return [rows[number] + [None]] if stage["join"] in ("left", "full") else []


def stages():
    rng = random.Random(14)
    for number in range(180):
        count = rng.choice([3, 3, 4])
        base, length = rng.choice([0, 0, -30, 1 << 40]), {3: 16, 4: 11}[count]
        streams, listed = [], []
        for stream in range(count):
            rows = []
            for place in range(rng.randint(length // 2, length)):
                keys = {key: rng.choice("xxxy") if rng.random() > 0.06 else None for key in "ab"}
                rows.append({"id": f"{stream}-{place}", "ts": base + place * 2 + rng.randint(-3, 3), **keys})
            streams.append(rows)
        for stage in range(1, count):
            lower, form = rng.randint(-9, 5), rng.choice(["between", "match", "asof", "window"])
            kinds = ["inner", "left"] if form in ("match", "asof") else ["left", "right", "full", "full"]
            # Behind a session window the anchors might lie too far apart.
            windows = ["tumble", "hop"] + ["session"] * (stage == count - 1)
            window = rng.choice(windows)
            listed.append({
                "join": rng.choice(kinds),
                "anchor": rng.randrange(stage),
                "left_key": [rng.randrange(stage), rng.choice("ab")],
                "right_key": rng.choice("ab"),
                **{
                    "between": {"lower": lower, "upper": lower + rng.randint(3, 12)},
                    "match": {
                        "lower": lower,
                        "upper": lower + rng.randint(3, 12),
                        "match": rng.choice(["first", "last", "nearest"]),
                    },
                    "asof": {
                        "asof": rng.choice(["backward", "forward", "nearest"]),
                        "tolerance": rng.choice([2, 6]),
                        "strict": rng.random() < 0.3,
                    },
                    "window": {
                        "window": window,
                        **{
                            "tumble": {"size": rng.choice([3, 8]), "offset": rng.choice([0, -2])},
                            "hop": {"size": 6, "slide": rng.choice([2, 4]), "offset": 0},
                            "session": {"gap": rng.choice([2, 3])},
                        }[window],
                    },
                }[form],
            })
        rows = [[row] for row in streams[0]]
        for before, (stage, stream) in enumerate(zip(listed, streams[1:]), 1):
            rows = stage_rows(rows, stage, stream, before)
        rows = [[part and part["id"] for part in row] for row in rows]
        line = {"name": f"stages-{number}", "flink": "not run", "streams": streams, "stages": listed}
        line["expected"] = sorted(rows, key=lambda row: [part or "" for part in row])
        print(json.dumps(line, separators=(",", ":")))


COMMANDS = {
    "conditions": conditions,
    "rules": rules,
    "lives": lives,
    "process": process,
    "chains": chains,
    "stages": stages,
}
COMMANDS.get("".join(sys.argv[1:]), main)()
