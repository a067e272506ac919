//! Charts as SVG, alone or in a page of HTML, without anything that has to be fetched.

mod axis;
mod file;
mod page;
mod words;

use std::fmt::Write;

use axis::Axis;
pub(super) use axis::Scale;
pub(super) use file::PlotFile;
pub(super) use page::{Page, Part};
use words::{Anchor, Words};

/// Lines, or bars, over one pair of axes.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: AxisText,
    pub(super) y: AxisText,
    pub(super) series: Vec<Series>,
    /// Lines across: a value of `y` and its name.
    pub(super) bounds: Vec<(f64, String)>,
    /// Upright lines: a value of `x` and its name.
    pub(super) marks: Vec<(f64, String)>,
    /// What is said below it, where it stands alone: on a page, the page says it.
    pub(super) caption: Vec<String>,
}

/// What an axis says.
pub(super) struct AxisText {
    pub(super) label: String,
    pub(super) scale: Scale,
    /// Where ticks stand; if nowhere, at round values.
    pub(super) ticks: Vec<f64>,
    /// Writes a value at a tick.
    pub(super) show: fn(f64) -> String,
}

/// One line through points, or one bar a point.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
    pub(super) form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Line,
    Bars,
    /// A thin line without its points: for many of them.
    Trace,
}

/// A value at a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Drawn as a ring: a value that does not count as the others do.
    pub(super) is_hollow: bool,
    /// A whisker from the least to the most of what the value is the middle of.
    pub(super) range: Option<(f64, f64)>,
}

/// The picture, as far as the legend does not make it larger.
const HEIGHT_MIN: f64 = 480.0;
/// Where the axes are.
const LEFT: f64 = 90.0;
const RIGHT: f64 = 710.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 420.0;
/// The legend: from here on, a line in so much, and as wide as its longest name within these.
const LEGEND_LEFT: f64 = RIGHT + 26.0;
const LEGEND_LINE: f64 = 18.0;
const LEGEND_WIDTH: (f64, f64) = (124.0, 420.0);
/// What is said below the chart: a line in so much, of letters so high.
const CAPTION_LINE: f64 = 15.0;
const CAPTION_SIZE: f64 = 11.0;
/// From a name's swatch to the name.
const SWATCH: f64 = 18.0;
/// Told apart by people who see red and green alike, too.
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"];
/// Lines that have a colour once more are broken.
const DASHES: [&str; 4] = ["", "8 4", "2 3", "9 3 2 3"];
const MARKED: &str = "stroke=\"#900\" stroke-dasharray=\"6 4\"";

impl Chart {
    /// The chart as an SVG document.
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let marks = self.marks.iter().map(|mark| mark.0);
        let air = self.bar_air();
        let x = points().flat_map(|point| [point.x - air, point.x + air]).chain(marks);
        let x = Axis::new(self.x.scale, x, (LEFT, RIGHT));
        let is_bars = |series: &Series| series.form == Form::Bars;
        // Bars stand on 0.
        let floor = self.series.iter().any(is_bars).then_some(0.0);
        let bounds = self.bounds.iter().map(|bound| bound.0);
        let ends = points().flat_map(|point| point.range).flat_map(|(least, most)| [least, most]);
        let y = points().map(|point| point.y).chain(ends).chain(bounds).chain(floor);
        let y = Axis::new(self.y.scale, y, (BOTTOM, TOP));
        let shown: Vec<&Series> =
            self.series.iter().filter(|series| !series.points.is_empty()).collect();
        let legend_size = if shown.len() > 20 { 10.0 } else { 12.0 };
        let names = shown.iter().map(|series| words::width(&series.name, legend_size));
        let (least, most) = LEGEND_WIDTH;
        let legend_width = names.fold(0.0, f64::max) + SWATCH + 8.0;
        let width = (LEGEND_LEFT + legend_width.clamp(least, most)).ceil();
        let legend_end = TOP + LEGEND_LINE * shown.len() as f64 + 10.0;
        let chart_end = legend_end.max(HEIGHT_MIN).ceil();
        let letters = words::letters((LEGEND_LEFT - LEFT, CAPTION_SIZE));
        let caption: Vec<String> =
            self.caption.iter().flat_map(|line| words::wrapped(line, letters)).collect();
        let height = chart_end + CAPTION_LINE * caption.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        let mut texts = Words::new((width, height));
        texts.add((LEFT, 24.0), Anchor::Start, 16.0, "", &self.title);
        self.grid(&mut svg, &mut texts, &x, &y);
        for (index, series) in shown.into_iter().enumerate() {
            let pen = Pen::of(index);
            match series.form {
                Form::Line => line(&mut svg, series, pen, &x, &y),
                Form::Bars => {
                    bars(&mut svg, series, pen, self.bar_width(&x), (&x, &y));
                    self.bar_value(&mut texts, series, &x, &y);
                }
                Form::Trace => polyline(&mut svg, series, (pen, 1.3), &x, &y),
            }
            whiskers(&mut svg, series, pen, (&x, &y));
            let at = TOP + 10.0 + LEGEND_LINE * index as f64;
            swatch(&mut svg, series.form, pen, at);
            let place = (LEGEND_LEFT + SWATCH, at);
            texts.add(place, Anchor::Start, legend_size, "", &series.name);
        }
        for (line, number) in caption.iter().zip(0..) {
            let place = (LEFT, chart_end + CAPTION_LINE * f64::from(number));
            texts.add(place, Anchor::Start, CAPTION_SIZE, "fill=\"#555\"", line);
        }
        svg.push_str(&texts.svg);
        svg.push_str("</svg>\n");
        svg
    }

    /// Writes the value of a bar that is a series of its own above it, if there is room.
    fn bar_value(&self, texts: &mut Words, series: &Series, x: &Axis, y: &Axis) {
        if let [point] = series.points[..] {
            let digits = if point.y.abs() < 100.0 { 10.0 } else { 1.0 };
            let value = short(&(self.y.show)((point.y * digits).round() / digits));
            let top = point.range.map_or(point.y, |(_, most)| most.max(point.y));
            texts.add_if_free((x.at(point.x), y.at(top) - 5.0), Anchor::Middle, "", &value);
        }
    }

    /// As wide as the smallest gap between two bars of whatever series.
    fn bar_width(&self, x: &Axis) -> f64 {
        self.bar_gap(|value| x.at(value)).clamp(1.0, 40.0)
    }

    /// What a linear axis has beside the outermost bars, so that they stand inside, as a value.
    fn bar_air(&self) -> f64 {
        let gap = if self.x.scale == Scale::Linear { self.bar_gap(|value| value) } else { 0.0 };
        if gap.is_finite() { gap / 2.0 } else { 0.0 }
    }

    /// The smallest gap between bars; without end if there are not two.
    fn bar_gap(&self, place: impl Fn(f64) -> f64) -> f64 {
        let bars = self.series.iter().filter(|series| series.form == Form::Bars);
        let points = bars.flat_map(|series| &series.points);
        let mut places: Vec<f64> = points.map(|point| place(point.x)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min)
    }

    /// Axes, ticks, bounds and marks. Of ticks that are too near each other, some have no number.
    fn grid(&self, svg: &mut String, texts: &mut Words, x: &Axis, y: &Axis) {
        texts.add((12.0, TOP - 10.0), Anchor::Start, 12.0, "", &self.y.label);
        for tick in y.ticks() {
            let at = y.at(tick);
            rule(svg, (LEFT, at), (RIGHT, at), "stroke=\"#ddd\"");
            let place = (LEFT - 8.0, at + 4.0);
            texts.add_if_free(place, Anchor::End, "", &short(&(self.y.show)(tick)));
        }
        let ticks = if self.x.ticks.is_empty() { x.ticks() } else { x.within(&self.x.ticks) };
        for tick in ticks {
            let at = x.at(tick);
            let text = short(&(self.x.show)(tick));
            if text.is_empty() {
                continue;
            }
            rule(svg, (at, TOP), (at, BOTTOM), "stroke=\"#eee\"");
            // The legend begins a little to the right.
            let most = LEGEND_LEFT - 6.0 - words::width(&text, 12.0) / 2.0;
            texts.add_if_free((at.min(most), BOTTOM + 18.0), Anchor::Middle, "", &text);
        }
        rule(svg, (LEFT, BOTTOM), (RIGHT, BOTTOM), "stroke=\"#333\"");
        rule(svg, (LEFT, TOP), (LEFT, BOTTOM), "stroke=\"#333\"");
        let middle = ((LEFT + RIGHT) / 2.0, BOTTOM + 42.0);
        texts.add(middle, Anchor::Middle, 12.0, "", &self.x.label);
        for (value, name) in &self.bounds {
            let at = y.at(*value);
            rule(svg, (LEFT, at), (RIGHT, at), MARKED);
            // Below the line where there is no room above it.
            let above = if at - 5.0 < TOP + 12.0 { at + 14.0 } else { at - 5.0 };
            texts.add((LEFT + 6.0, above), Anchor::Start, 12.0, "fill=\"#900\"", name);
        }
        for (value, name) in &self.marks {
            let at = x.at(*value);
            rule(svg, (at, TOP), (at, BOTTOM), MARKED);
            let fits = at + 4.0 + words::width(name, 12.0) <= RIGHT + 12.0;
            let (left, anchor) =
                if fits { (at + 4.0, Anchor::Start) } else { (at - 4.0, Anchor::End) };
            // One below the other where they are near.
            let rows = (0..20).map(|row| TOP + 14.0 + 14.0 * f64::from(row));
            texts.add_at_free((left, rows), anchor, "fill=\"#900\"", name);
        }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy)]
struct Pen {
    colour: &'static str,
    dash: &'static str,
}

impl Pen {
    fn of(index: usize) -> Pen {
        let dash = DASHES[index / COLOURS.len() % DASHES.len()];
        Pen { colour: COLOURS[index % COLOURS.len()], dash }
    }

    fn stroke(self, width: f64) -> String {
        let mut style = format!("stroke=\"{}\" stroke-width=\"{width}\"", self.colour);
        if !self.dash.is_empty() {
            let _ = write!(style, " stroke-dasharray=\"{}\"", self.dash);
        }
        style
    }
}

/// What stands before a name in the legend, `at` being the line that its letters stand on.
fn swatch(svg: &mut String, form: Form, pen: Pen, at: f64) {
    if form != Form::Bars && !pen.dash.is_empty() {
        let place = |x: f64| (LEGEND_LEFT + x, at - 4.0);
        return rule(svg, place(-4.0), place(14.0), &pen.stroke(3.0));
    }
    let (top, colour) = (at - 10.0, pen.colour);
    let _ = writeln!(
        svg,
        "<rect x=\"{LEGEND_LEFT:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
    );
}

fn line(svg: &mut String, series: &Series, pen: Pen, x: &Axis, y: &Axis) {
    polyline(svg, series, (pen, 2.0), x, y);
    let colour = pen.colour;
    for point in &series.points {
        let fill = if point.is_hollow { "#fff" } else { colour };
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\" \
             stroke-width=\"2\"/>",
            x.at(point.x),
            y.at(point.y)
        );
    }
}

fn polyline(svg: &mut String, series: &Series, (pen, width): (Pen, f64), x: &Axis, y: &Axis) {
    let places: Vec<String> = series
        .points
        .iter()
        .map(|point| format!("{:.1},{:.1}", x.at(point.x), y.at(point.y)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" {}/>",
        places.join(" "),
        pen.stroke(width)
    );
}

fn bars(svg: &mut String, series: &Series, pen: Pen, width: f64, (x, y): (&Axis, &Axis)) {
    let (floor, colour) = (y.at(0.0), pen.colour);
    for point in &series.points {
        let top = y.at(point.y);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
            x.at(point.x) - width / 2.0,
            (width - 0.5).max(0.5),
            (floor - top).max(0.0)
        );
    }
}

/// From the least to the most, with a short line across at both ends.
fn whiskers(svg: &mut String, series: &Series, pen: Pen, (x, y): (&Axis, &Axis)) {
    // On a bar of the same colour it would not be seen.
    let colour = if series.form == Form::Bars { "#333" } else { pen.colour };
    let style = format!("class=\"whisker\" stroke=\"{colour}\" stroke-width=\"1.5\"");
    for point in &series.points {
        let Some((least, most)) = point.range.filter(|(least, most)| least < most) else {
            continue;
        };
        let (at, low, high) = (x.at(point.x), y.at(least), y.at(most));
        rule(svg, (at, low), (at, high), &style);
        for end in [low, high] {
            rule(svg, (at - 5.0, end), (at + 5.0, end), &style);
        }
    }
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64), style: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
    );
}

/// A text that begins with a number, without the zeros behind its point: `50.0 MiB` as `50 MiB`.
fn short(text: &str) -> String {
    let is_digit = |letter: char| letter.is_ascii_digit() || "-.,".contains(letter);
    let end = text.find(|letter| !is_digit(letter)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    match number.contains('.') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => text.to_owned(),
    }
}

/// Text as SVG and HTML have it.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
