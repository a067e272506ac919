//! The words of a chart: none leaves the picture, and none lies on others.

use std::fmt::Write;

use crate::cli::plot::escape;

/// How wide a letter is, of its height, on average: what common fonts have at the most.
const LETTER_WIDTH: f64 = 0.61;
/// Of the height of letters, what is above the line that they stand on.
const ASCENT: f64 = 0.8;
/// The size of most words.
const SIZE: f64 = 12.0;

/// About how wide a text is.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * LETTER_WIDTH
}

/// How many letters of a size have room in a width.
pub(super) fn letters((width, size): (f64, f64)) -> usize {
    (width / (size * LETTER_WIDTH)) as usize
}

/// A text in lines of at most so many letters, broken at blanks where there are any.
pub(super) fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Which part of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Left, top, right, bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area([f64; 4]);

impl Area {
    pub(super) fn of(text: &str, (x, y): (f64, f64), anchor: Anchor, size: f64) -> Area {
        let width = width(text, size);
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        let top = y - ASCENT * size;
        Area([left, top, left + width, top + size])
    }

    pub(super) fn meets(&self, other: &Area) -> bool {
        let ([left, top, right, bottom], other) = (self.0, other.0);
        left < other[2] && other[0] < right && top < other[3] && other[1] < bottom
    }

    #[cfg(test)]
    pub(super) fn is_within(&self, (width, height): (f64, f64)) -> bool {
        let [left, top, right, bottom] = self.0;
        left >= 0.0 && top >= 0.0 && right <= width && bottom <= height
    }
}

/// What has been written so far.
pub(super) struct Words {
    pub(super) svg: String,
    picture: (f64, f64),
    taken: Vec<Area>,
}

impl Words {
    pub(super) fn new(picture: (f64, f64)) -> Words {
        Words { svg: String::new(), picture, taken: Vec::new() }
    }

    /// Writes a text; what would leave the picture is cut off.
    pub(super) fn add(
        &mut self,
        place: (f64, f64),
        anchor: Anchor,
        size: f64,
        style: &str,
        text: &str,
    ) {
        let room = match anchor {
            Anchor::Start => self.picture.0 - place.0 - 2.0,
            Anchor::Middle => 2.0 * place.0.min(self.picture.0 - place.0) - 4.0,
            Anchor::End => place.0 - 2.0,
        };
        let text = cut(text, (room / (size * LETTER_WIDTH)).max(1.0) as usize);
        self.taken.push(Area::of(&text, place, anchor, size));
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let size = if size == SIZE { String::new() } else { format!(" font-size=\"{size}\"") };
        let style = if style.is_empty() { String::new() } else { format!(" {style}") };
        let ((x, y), text) = (place, escape(&text));
        let _ = writeln!(
            self.svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}{size}{style}>{text}</text>"
        );
    }

    /// Writes a text unless it would lie on another, or nearly.
    pub(super) fn add_if_free(
        &mut self,
        place: (f64, f64),
        anchor: Anchor,
        style: &str,
        text: &str,
    ) {
        if self.is_free(place, anchor, text) {
            self.add(place, anchor, SIZE, style, text);
        }
    }

    /// Writes a text at the first of some heights at which it is free, or at the last.
    pub(super) fn add_at_free(
        &mut self,
        (x, heights): (f64, impl Iterator<Item = f64>),
        anchor: Anchor,
        style: &str,
        text: &str,
    ) {
        let mut last = None;
        for y in heights {
            last = Some(y);
            if self.is_free((x, y), anchor, text) {
                break;
            }
        }
        if let Some(y) = last {
            self.add((x, y), anchor, SIZE, style, text);
        }
    }

    fn is_free(&self, place: (f64, f64), anchor: Anchor, text: &str) -> bool {
        let [left, top, right, bottom] = Area::of(text, place, anchor, SIZE).0;
        let area = Area([left - 3.0, top, right + 3.0, bottom]);
        !self.taken.iter().any(|taken| area.meets(taken))
    }
}

/// The text, or what fits of it.
fn cut(text: &str, letters_max: usize) -> String {
    if text.chars().count() <= letters_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters_max.saturating_sub(1)).collect();
    format!("{}\u{2026}", kept.trim_end())
}
