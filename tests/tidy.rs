//! The house rules, read off the sources themselves: which room may use which, sizes, `unsafe`.
//!
//! Each check is a function over one file's text and is itself tested on planted faults.

#[path = "tidy/source.rs"]
mod source;

use source::{Source, is_word};

/// Every room and its level. A room uses rooms of lower levels and itself; those of level 0 are
/// the common ground and use each other.
const LEVELS: &[(&str, u8)] = &[
    ("limits", 0),
    ("error", 0),
    ("spill", 0),
    ("time", 0),
    ("event", 0),
    ("state", 1),
    ("join", 2),
    ("exchange", 3),
    ("shard", 4),
    ("runtime", 5),
    ("source", 5),
    ("expr", 6),
    ("sink", 7),
    ("engine", 6),
    ("workload", 7),
    ("cli", 8),
    ("capi", 8),
    ("main", 9),
];

/// Where `unsafe` may stand: files, or folders with a slash at the end.
const UNSAFE_PLACES: &[&str] = &[
    "src/state/",
    "src/event/prefetch.rs",
    "src/exchange/deal.rs",
    "src/exchange/lane.rs",
    "src/runtime/topology.rs",
    "src/capi/",
    // Calls of the operating system, and the hand-written kernel that speed is measured against.
    "src/runtime/probe.rs",
    "src/cli/os.rs",
    "src/main.rs",
    "src/workload/cpu_clock.rs",
    "src/workload/roofline.rs",
];

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;
/// How far above an atomic access its comment may stand.
const ORDERING_COMMENT_LINES: usize = 4;

type Check = fn(&Source) -> Vec<String>;

#[test]
fn rooms_use_only_rooms_below() {
    assert_clean(&sources(&["src"]), arrows);
}

#[test]
fn files_functions_and_lines_stay_short() {
    assert_clean(&sources(&["src"]), sizes);
}

#[test]
fn unsafe_stands_in_its_places_and_says_why() {
    assert_clean(&sources(&["src"]), unsafe_places);
    assert_clean(&sources(&["src"]), safety_comments);
}

#[test]
fn atomics_say_what_they_pair_with() {
    assert_clean(&sources(&["src"]), atomics);
}

#[test]
fn nothing_is_left_undone() {
    assert_clean(&sources(&["src", "tests", "benches"]), leftovers);
}

/// All Rust files below some folders of the package.
fn sources(folders: &[&str]) -> Vec<Source> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if let Ok(entries) = path.read_dir() {
            open.extend(entries.map(|entry| entry.expect("a folder entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file is UTF-8");
            let inside = path.strip_prefix(root).expect("it was found below the package");
            found.push(Source::new(&inside.to_string_lossy().replace('\\', "/"), &text));
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 10, "the sources were found");
    found
}

fn assert_clean(sources: &[Source], check: Check) {
    let faults: Vec<String> = sources.iter().flat_map(check).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn level(room: &str) -> Option<u8> {
    LEVELS.iter().find(|(name, _)| *name == room).map(|(_, level)| *level)
}

/// Uses of rooms that are not below, by `crate::` or by `super::` past the room's own roof.
fn arrows(source: &Source) -> Vec<String> {
    let Some(room) = source.room() else { return Vec::new() };
    let Some(own) = level(room) else {
        return vec![format!("{}: room {room} has no level in tests/tidy.rs", source.path)];
    };
    let mut faults = super_escapes(source);
    // The binary sees the library by its name.
    for root in ["crate", "intervale"] {
        for (line, after) in source.words(root) {
            let Some(rest) = source.code[after..].strip_prefix("::") else { continue };
            for used in first_names(rest) {
                let allowed = match level(&used) {
                    Some(used_level) => used == room || used_level < own || used_level + own == 0,
                    None => false,
                };
                if !allowed {
                    let place = source.place(line);
                    faults.push(format!("{place}: {room} (level {own}) uses {used}"));
                }
            }
        }
    }
    faults
}

/// The first names of a path or of a group of paths; a macro has none.
fn first_names(path: &str) -> Vec<String> {
    let name_of = |path: &str| path.chars().take_while(|&c| is_word(c)).collect::<String>();
    let Some(group) = path.strip_prefix('{') else {
        let name = name_of(path);
        let is_macro = path[name.len()..].starts_with('!');
        return if is_macro { Vec::new() } else { vec![name] };
    };
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(name_of(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// `super::` chains that lead out of the room.
fn super_escapes(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    for (line, after) in source.words("super") {
        let start = after - "super".len();
        let chained = source.code[..start].trim_end().ends_with("super::");
        if chained || !source.code[after..].starts_with("::") {
            continue;
        }
        let mut count = 1;
        let mut rest = &source.code[after..];
        while let Some(more) = rest.strip_prefix("::super") {
            (count, rest) = (count + 1, more);
        }
        let depth = source.depth() + inline_modules(&source.code[..start]);
        if count >= depth {
            faults.push(format!("{}: super:: leads out of the room", source.place(line)));
        }
    }
    faults
}

/// How many `mod name { ...` are open at the end of some code.
fn inline_modules(code: &str) -> usize {
    let mut open: Vec<bool> = Vec::new();
    let mut head_start = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => {
                let words: Vec<&str> = code[head_start..at].split_whitespace().collect();
                open.push(words.len() >= 2 && words[words.len() - 2] == "mod");
                head_start = at + 1;
            }
            '}' => {
                open.pop();
                head_start = at + 1;
            }
            ';' => head_start = at + 1,
            _ => {}
        }
    }
    open.iter().filter(|&&is_module| is_module).count()
}

/// Files, functions and lines over their limits.
fn sizes(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!("{}: {lines} lines, {FILE_LINES_MAX} at most", source.path));
    }
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > LINE_COLUMNS_MAX {
            faults.push(format!("{}: {columns} columns", source.place(index)));
        }
    }
    for (line, after) in source.words("fn") {
        let lines = function_lines(&source.code[after..]);
        if lines > FUNCTION_LINES_MAX {
            faults.push(format!(
                "{}: a function of {lines} lines, {FUNCTION_LINES_MAX} at most",
                source.place(line)
            ));
        }
    }
    faults
}

/// Lines of the function whose code after `fn` this is; 0 for a type or a declaration.
fn function_lines(code: &str) -> usize {
    if !code.trim_start().starts_with(is_word) {
        return 0;
    }
    let (mut depth, mut brackets) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if depth == 0 && brackets == 0 => return 0,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => continue,
        }
        if c == '}' && depth == 0 {
            return code[..at].matches('\n').count() + 1;
        }
    }
    0
}

/// `unsafe` outside its places.
fn unsafe_places(source: &Source) -> Vec<String> {
    let allowed = UNSAFE_PLACES.iter().any(|place| match place.ends_with('/') {
        true => source.path.starts_with(place),
        false => source.path == *place,
    });
    let places = source.words("unsafe").filter(|_| !allowed);
    places.map(|(line, _)| format!("{}: unsafe outside its places", source.place(line))).collect()
}

/// Unsafe blocks and implementations without a `SAFETY:` comment directly above.
fn safety_comments(source: &Source) -> Vec<String> {
    let needs_reason = |after: usize| {
        let rest = source.code[after..].trim_start();
        let foreign = rest.strip_prefix("extern").is_some_and(|r| r.trim_start().starts_with('{'));
        rest.starts_with('{') || rest.starts_with("impl") || foreign
    };
    source
        .words("unsafe")
        .filter(|&(line, after)| needs_reason(after) && !safety_above(source, line))
        .map(|(line, _)| format!("{}: no SAFETY comment above", source.place(line)))
        .collect()
}

/// Whether the comment above a line, or above the statement that the line continues, has the word.
fn safety_above(source: &Source, line: usize) -> bool {
    let text: Vec<&str> = source.text.lines().collect();
    let code: Vec<&str> = source.code.lines().collect();
    let mut above = line;
    // Up to the statement's first line, and past its attributes.
    while above > 0 {
        let before = code[above - 1].trim();
        let starts_here = before.is_empty() || before.ends_with([';', '{', '}', ',']);
        if starts_here {
            break;
        }
        above -= 1;
    }
    let comments = text[..above].iter().rev().take_while(|line| line.trim().starts_with("//"));
    comments.into_iter().any(|comment| comment.contains("SAFETY:"))
}

/// Atomic orderings without a comment near them.
fn atomics(source: &Source) -> Vec<String> {
    const ORDERINGS: [&str; 5] = ["Acquire", "Release", "AcqRel", "Relaxed", "SeqCst"];
    let mut faults = Vec::new();
    for (line, after) in source.words("Ordering") {
        let Some(rest) = source.code[after..].strip_prefix("::") else { continue };
        let names = first_names(rest);
        if !names.iter().any(|name| ORDERINGS.contains(&name.as_str())) {
            continue;
        }
        // Tests count with relaxed atomics that pair with a join or a lock.
        if names == ["Relaxed"] && source.is_test(line) {
            continue;
        }
        let imported = source.code.lines().nth(line).is_some_and(|code| code.contains("use "));
        let first = line.saturating_sub(ORDERING_COMMENT_LINES);
        if imported {
            faults.push(format!("{}: write Ordering:: at the access", source.place(line)));
        } else if !(first..=line).any(|near| source.has_comment(near)) {
            faults.push(format!("{}: an ordering without its reason", source.place(line)));
        }
    }
    faults
}

/// Notes to oneself, debugging aids and tests that do not run.
fn leftovers(source: &Source) -> Vec<String> {
    // Put together here, so that this file does not accuse itself.
    let in_text = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let in_code =
        [concat!("dbg", "!"), concat!("to", "do!"), concat!("unimplemented", "!"), "#[ignore"];
    let mut faults = Vec::new();
    for (index, (text, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
        let noted = in_text.iter().filter(|word| text.contains(**word));
        let left = in_code.iter().filter(|word| code.contains(**word));
        for word in noted.chain(left) {
            faults.push(format!("{}: {word}", source.place(index)));
        }
    }
    faults
}

mod planted {
    use super::*;

    fn count(check: Check, path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn arrows_up_and_sideways() {
        let at = |path, text| count(arrows, path, text);
        assert_eq!(at("src/state/arena.rs", "use crate::limits::X;"), 0);
        assert_eq!(at("src/state/arena.rs", "use crate::join::JoinSpec;"), 1);
        assert_eq!(at("src/state/arena.rs", "let x = crate::join::f();"), 1);
        assert_eq!(at("src/state/arena.rs", "/// See [`crate::join::Emit`].\nstruct X;"), 0);
        assert_eq!(at("src/state/mod.rs", "use crate::{event::{A, B}, join::C, shard};"), 2);
        assert_eq!(at("src/event/mod.rs", "use crate::{error::X, time::{self, Y}};"), 0);
        assert_eq!(at("src/source/csv.rs", "use crate::sink::X;"), 1);
        assert_eq!(at("src/main.rs", "use intervale::engine::Engine;"), 0);
        assert_eq!(at("src/main.rs", "use intervale::Nowhere;"), 1);
        assert_eq!(at("src/attic/mod.rs", ""), 1);
        assert_eq!(at("src/lib.rs", "pub use crate::engine::Engine;"), 0);
    }

    #[test]
    fn super_past_the_roof() {
        let at = |path, text| count(arrows, path, text);
        assert_eq!(at("src/join/spec.rs", "use super::Counters;"), 0);
        assert_eq!(at("src/join/spec.rs", "use super::super::shard::X;"), 1);
        assert_eq!(at("src/join/mod.rs", "use super::shard::X;"), 1);
        assert_eq!(at("src/join/mod.rs", "mod tests { use super::*; }"), 0);
        assert_eq!(at("src/join/mod.rs", "mod tests { fn f() {} use super::super::shard; }"), 1);
        assert_eq!(at("src/shard.rs", "fn f() { if a { b } } use super::engine::X;"), 1);
    }

    #[test]
    fn long_files_functions_and_lines() {
        let body = |lines| format!("fn f(a: [u8; 3])\n{{\n{}}}\n", "    a();\n".repeat(lines));
        let at = |text: &str| count(sizes, "src/a.rs", text);
        assert_eq!(at(&body(FUNCTION_LINES_MAX - 3)), 0);
        assert_eq!(at(&body(FUNCTION_LINES_MAX - 2)), 1);
        assert_eq!(at(&format!("trait T {{ fn f(); }}\n{}", body(5))), 0);
        assert_eq!(at(&"//\n".repeat(FILE_LINES_MAX)), 0);
        assert_eq!(at(&"//\n".repeat(FILE_LINES_MAX + 1)), 1);
        assert_eq!(at(&"é".repeat(LINE_COLUMNS_MAX)), 0);
        assert_eq!(at(&"é".repeat(LINE_COLUMNS_MAX + 1)), 1);
    }

    #[test]
    fn unsafe_elsewhere_and_without_reason() {
        let block = "fn f() {\n    unsafe { g() }\n}";
        assert_eq!(count(unsafe_places, "src/join/mod.rs", block), 1);
        assert_eq!(count(unsafe_places, "src/join/mod.rs", "#![deny(unsafe_code)] // unsafe"), 0);
        assert_eq!(count(unsafe_places, "src/state/arena.rs", block), 0);
        let at = |text| count(safety_comments, "src/state/arena.rs", text);
        assert_eq!(at(block), 1);
        assert_eq!(at("fn f() {\n    // SAFETY: fine.\n    unsafe { g() }\n}"), 0);
        assert_eq!(at("// SAFETY: fine.\nlet x =\n    unsafe { g() };"), 0);
        assert_eq!(at("// SAFETY: fine.\nlet y = 1;\nlet x = unsafe { g() };"), 1);
        assert_eq!(at("// SAFETY: first.\n\nunsafe impl Send for X {}"), 1);
        assert_eq!(at("unsafe impl Send for X {}"), 1);
        assert_eq!(at("unsafe fn f() {}"), 0);
    }

    #[test]
    fn orderings_without_reason() {
        let at = |text| count(atomics, "src/exchange/lane.rs", text);
        assert_eq!(at("x.load(Ordering::Acquire);"), 1);
        assert_eq!(at("// Pairs with the store in `push`.\nx.load(Ordering::Acquire);"), 0);
        assert_eq!(at("x.load(Ordering::Acquire); // pairs with `push`"), 0);
        assert_eq!(at("a.cmp(b) == Ordering::Less;"), 0);
        assert_eq!(at("// ok\nuse std::sync::atomic::Ordering::{Acquire, Release};"), 1);
        assert_eq!(at("#[cfg(test)]\nmod tests {\n    x.load(Ordering::Relaxed);\n}"), 0);
        assert_eq!(at("#[cfg(test)]\nmod tests {\n    x.load(Ordering::Acquire);\n}"), 1);
        assert_eq!(at(&format!("// far\n{}x.load(Ordering::Relaxed);", "a;\n".repeat(5))), 1);
    }

    #[test]
    fn things_left_undone() {
        let at = |text: &str| count(leftovers, "src/a.rs", text);
        assert_eq!(at(concat!("// TO", "DO: later")), 1);
        assert_eq!(at(concat!("dbg", "!(x); to", "do!()")), 2);
        assert_eq!(at(concat!("#[ignore", "]\nfn f() {}")), 1);
        assert_eq!(at("let method = ignore;"), 0);
    }
}
