//! Words, numbers, texts and signs of an expression.

use super::error::{ExprError, Span};

/// The smallest part that means something.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name or a keyword, as it was written.
    Word(String),
    /// A name in double quotes or backticks: never a keyword.
    Name(String),
    /// A number without a sign, as it was written.
    Number(String),
    /// A text in single quotes.
    Text(String),
    Sign(&'static str),
    End,
}

/// All signs; of two that begin alike the longer one comes first.
const SIGNS: [&str; 21] = [
    "<>", "<=", ">=", "!=", "==", "||", "::", "(", ")", ",", ".", "+", "-", "*", "/", "%", "=",
    "<", ">", "[", "]",
];

/// Takes a text apart; the last token is the end.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, Span)>, ExprError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else {
            tokens.push((Token::End, Span { start: at, end: at }));
            return Ok(tokens);
        };
        let (token, len) = match first {
            '\'' => {
                let (content, len) = quoted(rest, at, '\'', "text")?;
                (Token::Text(content), len)
            }
            '"' | '`' => {
                let (content, len) = quoted(rest, at, first, "name")?;
                (Token::Name(content), len)
            }
            _ if first.is_alphabetic() || first == '_' => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                (Token::Word(rest[..len].to_owned()), len)
            }
            _ if starts_number(rest) => {
                let len = number_len(rest);
                (Token::Number(rest[..len].to_owned()), len)
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), sign.len()),
                None => {
                    let span = Span { start: at, end: at + first.len_utf8() };
                    return Err(ExprError::new(span, format!("\"{first}\" means nothing here")));
                }
            },
        };
        tokens.push((token, Span { start: at, end: at + len }));
        at += len;
    }
}

/// What stands in quotes, doubled ones made single, and its length with the quotes.
fn quoted(rest: &str, at: usize, quote: char, what: &str) -> Result<(String, usize), ExprError> {
    let mut content = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((place, c)) = chars.next() {
        if c != quote {
            content.push(c);
        } else if chars.next_if(|&(_, next)| next == quote).is_some() {
            content.push(quote);
        } else {
            return Ok((content, place + 1));
        }
    }
    let span = Span { start: at, end: at + rest.len() };
    Err(ExprError::new(span, format!("the {what} that begins here has no closing {quote}")))
}

fn starts_number(rest: &str) -> bool {
    let digits = rest.strip_prefix('.').unwrap_or(rest);
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// The length of `12`, `1.5`, `.5`, `1e9`, `1.5e-3`.
fn number_len(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let digits_from = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = digits_from(0);
    if bytes.get(end) == Some(&b'.') {
        end = digits_from(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = end + 1 + sign;
        if digits_from(exponent) > exponent {
            end = digits_from(exponent);
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match tokens(text) {
            Ok(tokens) => {
                tokens.iter().map(|(t, _)| format!("{t:?}")).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.of(text).to_string(),
        }
    }

    #[test]
    fn parts_are_told_apart() {
        expect_test::expect![[r#"
            Word("a") Sign(">=") Number("1.5e-3") Sign("||") Text("it's") End
            Word("left") Sign(".") Name("or\"der id") Sign("::") Word("int") End
            Word("größe") Sign("<>") Number(".5") Sign("-") Number("1e9") Word("e") End
            Name("a b") Sign("==") Number("2.") End
            End
            at character 3: "?" means nothing here
              a ? b
                ^
            at character 5: the text that begins here has no closing '
              a = 'b
                  ^^"#]]
        .assert_eq(
            &[
                "a>=1.5e-3||'it''s'",
                "left.\"or\"\"der id\"::int",
                "größe<>.5-1e9e",
                "`a b`==2.",
                " \n",
                "a ? b",
                "a = 'b",
            ]
            .map(shown)
            .join("\n"),
        );
    }
}
