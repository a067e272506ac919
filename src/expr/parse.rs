//! Text into expressions, by precedence: OR, AND, NOT, comparisons, `||`, `+ -`, `* / %`, signs,
//! `::`.

mod words;

use super::build::{self, Typed};
use super::columns::Scope;
use super::error::{ExprError, Span};
use super::lex::{Token, tokens};
use super::tree::{Comparison, Expr, Operation};
use super::value::{self, Value};
use crate::event::stream_name;
use crate::source::schema::closest;

type Result<T> = std::result::Result<T, ExprError>;

/// Parentheses in parentheses and the like beyond this are refused: each takes some stack.
const NESTED_MAX: usize = 60;

/// Words that are no names of columns unless in quotes.
const RESERVED: [&str; 19] = [
    "and", "or", "not", "is", "in", "like", "ilike", "between", "case", "when", "then", "else",
    "end", "null", "true", "false", "as", "from", "distinct",
];

/// For those who wrote a text as in other languages.
const TEXT_IN_SINGLE_QUOTES: &str = "; double quotes are of names, a text has single ones";

// How strongly operators bind what stands beside them.
const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARE: u8 = 4;
const APPEND: u8 = 5;
const ADD: u8 = 6;
const MULTIPLY: u8 = 7;
const SIGN: u8 = 8;
const CAST: u8 = 9;

/// Reads one text.
pub(super) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token, Span)>,
    at: usize,
    nested: usize,
    scope: &'a Scope,
    /// Whether right columns were named.
    uses_right: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, scope: &'a Scope) -> Result<Parser<'a>> {
        Ok(Parser { text, tokens: tokens(text)?, at: 0, nested: 0, scope, uses_right: false })
    }

    pub(super) fn text(&self, span: Span) -> &'a str {
        &self.text[span.start..span.end]
    }

    pub(super) fn expr(&mut self) -> Result<Typed> {
        self.binding(0)
    }

    /// One of the columns of a list, up to a comma: its name and what it is.
    pub(super) fn item(&mut self, left_only: bool) -> Result<(String, Typed)> {
        self.uses_right = false;
        let part = self.expr()?;
        let name = if self.eat_word("as") {
            match self.peek().clone() {
                Token::Word(name) | Token::Name(name) => {
                    self.advance();
                    name
                }
                _ => return self.wrong("a name behind AS"),
            }
        } else {
            match &part.expr {
                Expr::Column(column) => {
                    self.scope.streams()[column.stream].output_names[column.place].clone()
                }
                _ => self.text(part.span).trim().to_owned(),
            }
        };
        if left_only && self.uses_right {
            let why = "a semi or anti join gives left rows, so there are no right columns here";
            return Err(ExprError::new(part.span, why));
        }
        Ok((name, part))
    }

    /// `*`, `left.*`, `right.*`, `then1.*`: the streams of which all columns are wanted.
    pub(super) fn all_of(&mut self, left_only: bool) -> Result<Option<(Vec<usize>, Span)>> {
        let start = self.here();
        if self.eat("*") {
            let count = if left_only { 1 } else { self.scope.streams().len() };
            return Ok(Some(((0..count).collect(), start)));
        }
        let at = self.at;
        for stream in 0..self.scope.streams().len() {
            if self.eat_word(&stream_name(stream)) && self.eat(".") && self.eat("*") {
                if left_only && stream > 0 {
                    let why = "a semi or anti join gives left rows, so there are no right columns";
                    return Err(ExprError::new(start.to(self.before()), why));
                }
                return Ok(Some((vec![stream], start.to(self.before()))));
            }
            self.at = at;
        }
        Ok(None)
    }

    pub(super) fn is_at_end(&self) -> bool {
        *self.peek() == Token::End
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn peek_second(&self) -> &Token {
        let last = self.tokens.len() - 1;
        &self.tokens[last.min(self.at + 1)].0
    }

    /// Where the next token is.
    pub(super) fn here(&self) -> Span {
        self.tokens[self.at].1
    }

    fn before(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].1
    }

    fn advance(&mut self) -> (Token, Span) {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn eat(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(found) if *found == sign);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn expect(&mut self, sign: &str, why: &str) -> Result<()> {
        if self.eat(sign) { Ok(()) } else { self.wrong(&format!("\"{sign}\" {why}")) }
    }

    fn expect_word(&mut self, word: &str, why: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { self.wrong(&format!("{word} {why}")) }
    }

    /// Something else should stand here.
    pub(super) fn wrong<T>(&self, wanted: &str) -> Result<T> {
        let found = match self.peek() {
            Token::End => "the text ends".to_owned(),
            _ => format!("here is {}", self.text(self.here())),
        };
        Err(ExprError::new(self.here(), format!("{wanted} is wanted, and {found}")))
    }

    /// An expression of operators that bind at least so strongly.
    fn binding(&mut self, least: u8) -> Result<Typed> {
        self.nested += 1;
        if self.nested > NESTED_MAX {
            let why = "this is nested too deeply; make it simpler";
            return Err(ExprError::new(self.here(), why));
        }
        let mut left = self.operand()?;
        while let Some(strength) = self.strength().filter(|&strength| strength >= least) {
            left = self.operator(left, strength)?;
        }
        self.nested -= 1;
        Ok(left)
    }

    /// How strongly the operator that stands here binds, if one does.
    fn strength(&self) -> Option<u8> {
        Some(match self.peek() {
            Token::Sign(sign) => match *sign {
                "=" | "==" | "<>" | "!=" | "<" | "<=" | ">" | ">=" => COMPARE,
                "||" => APPEND,
                "+" | "-" => ADD,
                "*" | "/" | "%" => MULTIPLY,
                "::" => CAST,
                _ => return None,
            },
            Token::Word(word) => match word.to_ascii_lowercase().as_str() {
                "or" => OR,
                "and" => AND,
                "is" | "in" | "like" | "ilike" | "between" | "not" => COMPARE,
                _ => return None,
            },
            _ => return None,
        })
    }

    /// What follows a left operand.
    fn operator(&mut self, left: Typed, strength: u8) -> Result<Typed> {
        let scope = self.scope;
        if strength == COMPARE && matches!(self.peek(), Token::Word(_)) {
            return self.word_operator(left);
        }
        let (token, _) = self.advance();
        if strength == CAST {
            let to = self.type_name()?;
            let span = left.span.to(self.before());
            return build::cast(left, to, span, scope);
        }
        let right = self.binding(strength + 1)?;
        let sign = match token {
            Token::Sign(sign) => sign,
            _ => "",
        };
        let comparison = match sign {
            "=" | "==" => Comparison::Equal,
            "<>" | "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            "||" => return build::append(left, right),
            "+" => return build::arithmetic(left, right, Operation::Add, scope),
            "-" => return build::arithmetic(left, right, Operation::Subtract, scope),
            "*" => return build::arithmetic(left, right, Operation::Multiply, scope),
            "/" => return build::arithmetic(left, right, Operation::Divide, scope),
            "%" => return build::arithmetic(left, right, Operation::Remainder, scope),
            _ => return build::connect(left, right, strength == AND, scope),
        };
        if self.strength() == Some(COMPARE) && matches!(self.peek(), Token::Sign(_)) {
            return self.wrong("AND between two comparisons");
        }
        build::compare(left, right, comparison, scope)
    }

    /// IS, IN, LIKE, BETWEEN, with NOT or without.
    fn word_operator(&mut self, left: Typed) -> Result<Typed> {
        let scope = self.scope;
        if self.eat_word("is") {
            let is_negated = self.eat_word("not");
            return match () {
                () if self.eat_word("null") => build::is(left, None, is_negated, scope),
                () if self.eat_word("true") => build::is(left, Some(true), is_negated, scope),
                () if self.eat_word("false") => build::is(left, Some(false), is_negated, scope),
                () if self.eat_word("distinct") => {
                    self.expect_word("FROM", "behind DISTINCT")?;
                    let right = self.binding(COMPARE + 1)?;
                    // DISTINCT is itself a no.
                    build::same(left, right, !is_negated, scope)
                }
                () => self.wrong("NULL, TRUE, FALSE or DISTINCT FROM"),
            };
        }
        let is_negated = self.eat_word("not");
        if self.eat_word("between") {
            let low = self.binding(COMPARE + 1)?;
            self.expect_word("AND", "between the two ends of BETWEEN")?;
            let high = self.binding(COMPARE + 1)?;
            return build::between(left, low, high, is_negated, scope);
        }
        if self.eat_word("in") {
            self.expect("(", "behind IN")?;
            let list = self.list()?;
            if list.is_empty() {
                return self.wrong("a value in the list of IN");
            }
            return build::is_in(left, list, is_negated, scope);
        }
        for (word, any_case) in [("like", false), ("ilike", true)] {
            if self.eat_word(word) {
                let pattern = self.binding(COMPARE + 1)?;
                return build::like(left, pattern, any_case, is_negated, scope);
            }
        }
        self.wrong("IN, LIKE, ILIKE or BETWEEN")
    }

    /// Values up to a closing parenthesis.
    fn list(&mut self) -> Result<Vec<Typed>> {
        let mut list = Vec::new();
        if self.eat(")") {
            return Ok(list);
        }
        loop {
            list.push(self.expr()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")", "or a comma")?;
        Ok(list)
    }

    /// A value with what stands before it.
    fn operand(&mut self) -> Result<Typed> {
        let start = self.here();
        match self.peek().clone() {
            Token::Sign("-") => {
                self.advance();
                if let Token::Number(digits) = self.peek() {
                    // The sign is the number's own, so that the smallest one can be written.
                    let number = value::number(format!("-{digits}").as_bytes());
                    let (_, end) = self.advance();
                    return self.number(number, start.to(end));
                }
                let operand = self.binding(SIGN)?;
                let span = start.to(operand.span);
                build::negate(operand, span, self.scope)
            }
            Token::Sign("+") => {
                self.advance();
                self.binding(SIGN)
            }
            Token::Sign("(") => {
                self.advance();
                let mut inner = self.expr()?;
                self.expect(")", "for the parenthesis")?;
                inner.span = start.to(self.before());
                Ok(inner)
            }
            Token::Number(digits) => {
                self.advance();
                self.number(value::number(digits.as_bytes()), start)
            }
            Token::Text(text) => {
                self.advance();
                Ok(Typed::constant(Value::text(text), start))
            }
            Token::Word(word) => self.word(&word, start),
            Token::Name(name) => {
                self.advance();
                let column = self.column(None, &name, start);
                column.map_err(|error| error.with(TEXT_IN_SINGLE_QUOTES))
            }
            Token::Sign(_) | Token::End => self.wrong("a value"),
        }
    }

    fn number(&self, number: Option<Value<'static>>, span: Span) -> Result<Typed> {
        match number {
            Some(number) => Ok(Typed::constant(number, span)),
            None => Err(ExprError::new(span, "this number is too large")),
        }
    }

    /// A value that begins with a word.
    fn word(&mut self, word: &str, start: Span) -> Result<Typed> {
        let lower = word.to_ascii_lowercase();
        let is_call = *self.peek_second() == Token::Sign("(");
        let is_before_point = *self.peek_second() == Token::Sign(".");
        let constant = match lower.as_str() {
            "null" => Some(Value::Null),
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        };
        if let Some(constant) = constant {
            self.advance();
            return Ok(Typed::constant(constant, start));
        }
        match lower.as_str() {
            "not" => {
                self.advance();
                let operand = self.binding(NOT)?;
                let span = start.to(operand.span);
                build::not(operand, span, self.scope)
            }
            "case" => self.case(start),
            "cast" if is_call => self.cast(start),
            "extract" if is_call => self.extract(start),
            "interval" if matches!(self.peek_second(), Token::Text(_)) => self.interval(start),
            name if is_before_point && self.scope.stream_of(name).is_some() => {
                let stream = self.scope.stream_of(name).unwrap_or_default();
                self.advance();
                self.advance();
                self.stream_column(stream, start)
            }
            _ if is_call => self.call(word, start),
            _ if is_before_point => Err(ExprError::new(
                start,
                format!(
                    "only {} stand before a point, and this is {word}; a column with a point in \
                     its name goes in double quotes",
                    self.names_of_streams()
                ),
            )),
            _ if RESERVED.contains(&lower.as_str()) => Err(ExprError::new(
                start,
                format!(
                    "a value is wanted, and here is the word {word}; a column of that name goes in \
                     double quotes"
                ),
            )),
            _ => {
                self.advance();
                self.column(None, word, start)
            }
        }
    }

    /// `left and right`, and further ones.
    fn names_of_streams(&self) -> String {
        let mut names: Vec<_> = (0..self.scope.streams().len()).map(stream_name).collect();
        let last = names.pop().unwrap_or_default();
        format!("{} and {last}", names.join(", "))
    }

    fn stream_column(&mut self, stream: usize, start: Span) -> Result<Typed> {
        match self.peek().clone() {
            Token::Word(name) | Token::Name(name) => {
                let (_, end) = self.advance();
                self.column(Some(stream), &name, start.to(end))
            }
            _ => self.wrong(&format!("a {} column", stream_name(stream))),
        }
    }

    /// The column of a name: as the output names it, or with a stream as the input does.
    fn column(&mut self, stream: Option<usize>, name: &str, span: Span) -> Result<Typed> {
        let places = |of: usize| {
            let columns = &self.scope.streams()[of];
            let names = if stream.is_some() { &columns.names } else { &columns.output_names };
            names
                .iter()
                .enumerate()
                .filter(|(_, other)| *other == name)
                .map(move |(at, _)| (of, at))
        };
        let all = 0..self.scope.streams().len();
        let streams = all.filter(|of| stream.is_none_or(|stream| stream == *of));
        let mut found = streams.clone().flat_map(places);
        match (found.next(), found.next()) {
            (Some((stream, place)), None) => {
                self.uses_right |= stream > 0;
                let column = self.scope.column(stream, place);
                let kind = column.column_type.kind();
                Ok(Typed::leaf(Expr::Column(column), kind, span))
            }
            (Some(_), Some(_)) => Err(ExprError::new(
                span,
                format!("two columns are called \"{name}\", so it is not clear which; rename one"),
            )),
            (None, _) => {
                let known = streams.flat_map(|of| {
                    let columns = &self.scope.streams()[of];
                    let names =
                        if stream.is_some() { &columns.names } else { &columns.output_names };
                    names.iter().cloned()
                });
                Err(ExprError::new(span, unknown(stream, name, &known.collect::<Vec<_>>())))
            }
        }
    }
}

/// There is no such column; names the nearest.
fn unknown(stream: Option<usize>, name: &str, known: &[String]) -> String {
    let what = stream.map_or(String::new(), |stream| format!("{} ", stream_name(stream)));
    let meant =
        closest(name, known).map_or(String::new(), |near| format!(" (did you mean \"{near}\"?)"));
    let list = known.join(", ");
    format!("there is no {what}column \"{name}\"{meant}; the columns are {list}")
}
