//! Charts as SVG, alone or in a page of HTML, without anything that has to be fetched.

mod axis;
mod page;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::cli::Failure;
use crate::sink::{OpenMode, Output};
use axis::Axis;
pub(super) use axis::Scale;
pub(super) use page::{Page, Part};

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
}

/// What an axis says.
pub(super) struct AxisText {
    pub(super) label: String,
    pub(super) scale: Scale,
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
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Told apart by people who see red and green alike, too.
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"];

impl Chart {
    /// The chart as an SVG document.
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let marks = self.marks.iter().map(|mark| mark.0);
        let air = self.bar_air();
        let x = points().flat_map(|point| [point.x - air, point.x + air]).chain(marks);
        let x = Axis::new(self.x.scale, x, (LEFT, WIDTH - RIGHT));
        let is_bars = |series: &Series| series.form == Form::Bars;
        // Bars stand on 0.
        let floor = self.series.iter().any(is_bars).then_some(0.0);
        let bounds = self.bounds.iter().map(|bound| bound.0);
        let y = points().map(|point| point.y).chain(bounds).chain(floor);
        let y = Axis::new(self.y.scale, y, (HEIGHT - BOTTOM, TOP));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        text(&mut svg, (LEFT, 28.0), "font-size=\"16\"", &self.title);
        self.grid(&mut svg, &x, &y);
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            match series.form {
                Form::Line => line(&mut svg, series, colour, &x, &y),
                Form::Bars => bars(&mut svg, series, colour, self.bar_width(&x), (&x, &y)),
                Form::Trace => trace(&mut svg, series, colour, &x, &y),
            }
            let at = TOP + 10.0 + 20.0 * index as f64;
            let left = WIDTH - RIGHT + 15.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
                at - 10.0
            );
            // Long names are to end before the picture does.
            let style = if series.name.len() > 18 { "font-size=\"10\"" } else { "" };
            text(&mut svg, (left + 18.0, at), style, &series.name);
        }
        svg.push_str("</svg>\n");
        svg
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

    /// Axes, ticks, bounds and marks.
    fn grid(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in y.ticks() {
            let at = y.at(tick);
            rule(svg, (LEFT, at), (right, at), "stroke=\"#ddd\"");
            let place = (LEFT - 8.0, at + 4.0);
            text(svg, place, "text-anchor=\"end\"", &(self.y.show)(tick));
        }
        for tick in x.ticks() {
            let at = x.at(tick);
            rule(svg, (at, TOP), (at, bottom), "stroke=\"#eee\"");
            let place = (at, bottom + 18.0);
            text(svg, place, "text-anchor=\"middle\"", &(self.x.show)(tick));
        }
        rule(svg, (LEFT, bottom), (right, bottom), "stroke=\"#333\"");
        rule(svg, (LEFT, TOP), (LEFT, bottom), "stroke=\"#333\"");
        let middle = (LEFT + right) / 2.0;
        text(svg, (middle, HEIGHT - 18.0), "text-anchor=\"middle\"", &self.x.label);
        text(svg, (12.0, TOP - 10.0), "", &self.y.label);
        const DASHED: &str = "stroke=\"#900\" stroke-dasharray=\"6 4\"";
        for (value, name) in &self.bounds {
            rule(svg, (LEFT, y.at(*value)), (right, y.at(*value)), DASHED);
            text(svg, (LEFT + 6.0, y.at(*value) - 5.0), "fill=\"#900\"", name);
        }
        for (index, (value, name)) in self.marks.iter().enumerate() {
            rule(svg, (x.at(*value), TOP), (x.at(*value), bottom), DASHED);
            // One below the other, so that near ones can be read.
            let at = TOP + 14.0 + 14.0 * (index % 6) as f64;
            text(svg, (x.at(*value) + 4.0, at), "fill=\"#900\"", name);
        }
    }
}

fn line(svg: &mut String, series: &Series, colour: &str, x: &Axis, y: &Axis) {
    polyline(svg, series, (colour, 2.0), x, y);
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

fn trace(svg: &mut String, series: &Series, colour: &str, x: &Axis, y: &Axis) {
    polyline(svg, series, (colour, 1.3), x, y);
}

fn polyline(svg: &mut String, series: &Series, pen: (&str, f64), x: &Axis, y: &Axis) {
    let (colour, width) = pen;
    let places: Vec<String> = series
        .points
        .iter()
        .map(|point| format!("{:.1},{:.1}", x.at(point.x), y.at(point.y)))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
        places.join(" ")
    );
}

fn bars(svg: &mut String, series: &Series, colour: &str, width: f64, (x, y): (&Axis, &Axis)) {
    let floor = y.at(0.0);
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

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64), style: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), style: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{words}</text>");
}

/// Text as SVG and HTML have it.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What a plot file is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlotFile {
    path: PathBuf,
    is_page: bool,
}

impl PlotFile {
    /// From a name that ends in `.svg` or `.html`, for clap.
    pub(super) fn parse(text: &str) -> Result<PlotFile, String> {
        let ending = Path::new(text).extension().and_then(|ending| ending.to_str());
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("svg") => Ok(PlotFile { path: text.into(), is_page: false }),
            Some("html" | "htm") => Ok(PlotFile { path: text.into(), is_page: true }),
            _ => Err("end the name in .svg or .html".to_owned()),
        }
    }

    /// Whether it is a page rather than a chart.
    pub(super) fn is_page(&self) -> bool {
        self.is_page
    }

    /// Opens the file, before the work whose result it is to show.
    ///
    /// # Errors
    /// [`Failure::Failed`] says why it cannot be written.
    pub(super) fn open(&self) -> Result<OpenPlot, Failure> {
        let opened = Output::open(&self.path, OpenMode::Replace);
        let (output, _) = opened.map_err(|error| Failure::failed(format!("--plot {error}")))?;
        Ok(OpenPlot { output, is_page: self.is_page })
    }
}

/// A file that takes its place when the plot is written.
pub(super) struct OpenPlot {
    output: Output,
    is_page: bool,
}

impl OpenPlot {
    /// Writes the chart; a page has `words` (plain text) below it.
    ///
    /// # Errors
    /// [`Failure::Failed`] says why it cannot be written.
    pub(super) fn write(self, chart: &Chart, words: &str) -> Result<(), Failure> {
        if !self.is_page {
            return self.write_text(&chart.svg());
        }
        let page = Page { title: chart.title.clone(), parts: vec![Part::Text(words.to_owned())] };
        self.write_text(&page.html_with(Some(chart)))
    }

    /// Writes a page, or, where only a chart was asked for, a chart.
    ///
    /// # Errors
    /// [`Failure::Failed`] says why it cannot be written.
    pub(super) fn write_page(self, chart: &Chart, page: &Page) -> Result<(), Failure> {
        let text = if self.is_page { page.html_with(None) } else { chart.svg() };
        self.write_text(&text)
    }

    fn write_text(self, text: &str) -> Result<(), Failure> {
        let written = self.output.write(text.as_bytes(), 0).and_then(|()| self.output.commit());
        written
            .map_err(|error| Failure::failed(format!("--plot {error}; the results are complete")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(form: Form) -> Chart {
        let point = |(x, y)| Point { x, y, is_hollow: x > 1.5 };
        let axis = || AxisText {
            label: "a < b".to_owned(),
            scale: Scale::Linear,
            show: |v| v.to_string(),
        };
        Chart {
            title: "R&D".to_owned(),
            x: axis(),
            y: axis(),
            series: vec![Series {
                name: "p99".to_owned(),
                points: [(1.0, 5.0), (2.0, 9.0)].map(point).to_vec(),
                form,
            }],
            bounds: vec![(7.0, "bound".to_owned())],
            marks: vec![(1.5, "mark".to_owned())],
        }
    }

    #[test]
    fn bars_of_all_series_stand_side_by_side_between_the_axes() {
        let mut many = chart(Form::Bars);
        many.marks.clear();
        let point = |n: u32| Point { x: f64::from(n), y: 5.0, is_hollow: false };
        let bar = |n: u32| {
            let name = n.to_string();
            Series { name, points: vec![point(n)], form: Form::Bars }
        };
        many.series = (1..=30).map(bar).collect();
        let mut end = LEFT;
        let svg = many.svg();
        let is_bar = |line: &&str| line.contains("<rect x") && !line.contains("width=\"12\"");
        for rect in svg.lines().filter(is_bar) {
            let number = |name: &str| -> f64 {
                let rest = rect.split(&format!(" {name}=\"")).nth(1).unwrap();
                rest.split('"').next().unwrap().parse().unwrap()
            };
            assert!(number("x") >= end - 0.1, "{rect}");
            end = number("x") + number("width");
        }
        assert!(end > LEFT + 500.0 && end <= WIDTH - RIGHT, "{end}");
    }

    #[test]
    fn a_chart_is_well_formed_and_shows_every_point() {
        for (form, shape, count) in [(Form::Line, "<circle", 2), (Form::Bars, "<rect", 4)] {
            let svg = chart(form).svg();
            // Two bars, the background and the legend are rectangles.
            assert_eq!(svg.matches(shape).count(), count, "{svg}");
            assert!(svg.contains("R&amp;D") && svg.contains("a &lt; b"), "{svg}");
            assert!(svg.contains(">bound<") && svg.contains(">mark<"), "{svg}");
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let svg = chart(Form::Line).svg();
        assert_eq!(svg.matches("fill=\"#fff\" stroke").count(), 1, "one ring: {svg}");
    }

    #[test]
    fn a_page_has_the_chart_and_the_words() {
        let parts = vec![Part::Text("1 < 2".to_owned())];
        let page = Page { title: "R&D".to_owned(), parts }.html_with(Some(&chart(Form::Line)));
        assert!(page.contains("<svg ") && page.contains("<pre>1 &lt; 2</pre>"), "{page}");
        assert!(page.contains("<title>R&amp;D</title>"), "{page}");
    }

    #[test]
    fn a_trace_is_a_line_without_points() {
        let svg = chart(Form::Trace).svg();
        assert!(svg.contains("<polyline") && !svg.contains("<circle"), "{svg}");
    }

    #[test]
    fn the_ending_says_what_to_write() {
        assert!(PlotFile::parse("a.SVG").is_ok_and(|file| !file.is_page));
        assert!(PlotFile::parse("a/b.html").is_ok_and(|file| file.is_page));
        assert!(PlotFile::parse("a.png").is_err() && PlotFile::parse("svg").is_err());
    }
}
