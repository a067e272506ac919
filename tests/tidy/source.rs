//! A source file as the checks see it: its code with comments and literals blanked out.

/// One file, its path relative to the package (with `/`).
pub struct Source {
    pub path: String,
    pub text: String,
    /// As long as `text` in characters and lines; comments and the insides of literals are spaces.
    pub code: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned(), code: blank(text) }
    }

    /// The room a file of `src/` belongs to; none for `lib.rs`, which only lists the rooms.
    pub fn room(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        let room = inside.split('/').next()?.trim_end_matches(".rs");
        (room != "lib").then_some(room)
    }

    /// How many modules deep the file lies: 1 is the room itself.
    pub fn depth(&self) -> usize {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let parts: Vec<_> = inside.split('/').collect();
        parts.len() - usize::from(parts.last() == Some(&"mod.rs"))
    }

    /// The places of a word in the code, as (line index, byte after the word).
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
        self.code.match_indices(word).filter_map(move |(at, _)| {
            let before = self.code[..at].chars().next_back();
            let after = self.code[at + word.len()..].chars().next();
            let apart = |neighbour: Option<char>| !neighbour.is_some_and(is_word);
            (apart(before) && apart(after)).then(|| (self.line_of(at), at + word.len()))
        })
    }

    /// The index of the line that byte `at` of the code lies in.
    pub fn line_of(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count()
    }

    /// Whether a line holds a comment, or part of one.
    pub fn has_comment(&self, line: usize) -> bool {
        let text = self.text.lines().nth(line).unwrap_or_default();
        let code = self.code.lines().nth(line).unwrap_or_default();
        text.contains("//") && !code.contains("//") || text.trim_start().starts_with('*')
    }

    /// Whether a line belongs to a file of tests, or to what follows `#[cfg(test)]` in a file.
    pub fn is_test(&self, line: usize) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let before = self.code.lines().take(line);
        name.ends_with("tests.rs") || before.into_iter().any(|code| code.contains("#[cfg(test)]"))
    }

    /// `path:line`, counted from 1.
    pub fn place(&self, line: usize) -> String {
        format!("{}:{}", self.path, line + 1)
    }
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces comments and the insides of literals by spaces; lines stay where they are.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => line_end(&chars, at),
            ('/', Some('*')) => block_comment_end(&chars, at),
            ('"', _) => string_end(&chars, at),
            ('r' | 'b' | 'c', _) if at == 0 || !is_word(chars[at - 1]) => {
                raw_string_end(&chars, at)
            }
            ('\'', _) => char_end(&chars, at),
            _ => at,
        };
        if end == at {
            code.push(chars[at]);
            at += 1;
        }
        for &c in &chars[at..end.max(at)] {
            code.push(if c == '\n' { '\n' } else { ' ' });
        }
        at = at.max(end);
    }
    code
}

fn line_end(chars: &[char], from: usize) -> usize {
    chars[from..].iter().position(|&c| c == '\n').map_or(chars.len(), |length| from + length)
}

/// Block comments nest.
fn block_comment_end(chars: &[char], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (at, depth) = (at + 2, depth + 1),
            ('*', '/') => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// The end of a literal with a prefix (`r"`, `r#"`, `b"`, `br#"`), or `from` if this is none.
fn raw_string_end(chars: &[char], from: usize) -> usize {
    let letters = chars[from..].iter().take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
    let hashes = chars[from + letters..].iter().take_while(|&&c| c == '#').count();
    let open = from + letters + hashes;
    if chars.get(open) != Some(&'"') {
        return from;
    }
    if !chars[from..from + letters].contains(&'r') {
        return string_end(chars, open);
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let mut at = open + 1;
    while at < chars.len() && !chars[at..].starts_with(&closing) {
        at += 1;
    }
    (at + closing.len()).min(chars.len())
}

/// The end of a character literal, or `from` for a lifetime.
fn char_end(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), Some(_)) => {
            let rest = chars[from + 3..].iter().position(|&c| c == '\'');
            rest.map_or(chars.len(), |length| from + 3 + length + 1)
        }
        (Some(_), Some('\'')) => from + 3,
        _ => from,
    }
}

#[test]
fn comments_and_literals_are_blanked_and_code_is_not() {
    let text = "let a = \"un\\\"safe\"; // unsafe\n/* unsafe /* deep */ */ let b = 'u'; f::<'u>(r#\"x\"y\"#)";
    let source = Source::new("src/a.rs", text);
    assert_eq!(source.code.len(), text.len());
    assert!(!source.code.contains("safe") && !source.code.contains('x'));
    assert!(source.code.contains("let b") && source.code.contains("f::<'u>("));
    assert!(source.has_comment(0) && source.code.lines().count() == 2);
    let lines = Source::new("src/a.rs", "let url = \"http://x\";\nlet c = '\\'';  done");
    assert!(lines.code.contains("done"));
}

#[test]
fn rooms_and_depths_come_from_paths() {
    let of = |path| Source::new(path, "");
    assert_eq!((of("src/lib.rs").room(), of("src/error.rs").room()), (None, Some("error")));
    assert_eq!(of("src/join/oracle/x.rs").room(), Some("join"));
    assert_eq!((of("src/error.rs").depth(), of("src/join/mod.rs").depth()), (1, 1));
    assert_eq!((of("src/join/spec.rs").depth(), of("src/join/oracle/x.rs").depth()), (2, 3));
}
