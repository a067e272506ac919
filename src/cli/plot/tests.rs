//! Charts, by what their SVG says.

use super::*;

fn chart(form: Form) -> Chart {
    let point = |(x, y)| Point { x, y, is_hollow: x > 1.5, range: None };
    let axis = || AxisText {
        label: "a < b".to_owned(),
        scale: Scale::Linear,
        ticks: Vec::new(),
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
        caption: Vec::new(),
    }
}

#[test]
fn bars_of_all_series_stand_side_by_side_between_the_axes() {
    let mut many = chart(Form::Bars);
    many.marks.clear();
    let point = |n: u32| Point { x: f64::from(n), y: 5.0, is_hollow: false, range: None };
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
    assert!(end > LEFT + 500.0 && end <= RIGHT, "{end}");
}

#[test]
fn whiskers_reach_from_the_least_to_the_most() {
    for form in [Form::Line, Form::Bars] {
        let mut spread = chart(form);
        spread.series[0].points[0].range = Some((4.0, 40.0));
        // Of one value there is none to draw.
        spread.series[0].points[1].range = Some((9.0, 9.0));
        let svg = spread.svg();
        let whiskers: Vec<&str> =
            svg.lines().filter(|line| line.contains("class=\"whisker\"")).collect();
        assert_eq!(whiskers.len(), 3, "{svg}");
        let number = |name: &str| -> f64 {
            let rest = whiskers[0].split(&format!(" {name}=\"")).nth(1).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        assert_eq!(number("x1"), number("x2"));
        let ends = [number("y1"), number("y2")];
        // Inside the axes, though no point is as high.
        assert!(ends[1] >= TOP - 0.1 && ends[0] <= BOTTOM + 0.1 && ends[0] > ends[1], "{ends:?}");
    }
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
fn numbers_at_ticks_have_no_idle_zeros() {
    for (text, expected) in [
        ("50.0 MiB", "50 MiB"),
        ("1.50 M", "1.5 M"),
        ("-0.250", "-0.25"),
        ("100", "100"),
        ("10,000", "10,000"),
        ("1m30.50s", "1m30.50s"),
        ("", ""),
    ] {
        assert_eq!(short(text), expected);
    }
}

#[test]
fn ticks_stand_where_they_are_said_to() {
    let mut said = chart(Form::Line);
    said.x.ticks = vec![0.5, 1.25, 2.0];
    let svg = said.svg();
    assert!(svg.contains(">1.25<") && svg.contains(">2<"), "{svg}");
    assert!(!svg.contains(">0.5<") && !svg.contains(">1.5<"), "outside, or not said: {svg}");
}

#[test]
fn a_bar_that_stands_for_itself_has_its_value() {
    let mut bars = chart(Form::Bars);
    let point = |x: f64, y: f64| Point { x, y, is_hollow: false, range: None };
    let bar = |x, y| Series { name: "one".to_owned(), points: vec![point(x, y)], form: Form::Bars };
    bars.series = vec![bar(1.0, 123.456), bar(2.0, 12.345)];
    let svg = bars.svg();
    assert!(svg.contains(">123<") && svg.contains(">12.3<"), "{svg}");
}

#[test]
fn a_trace_is_a_line_without_points() {
    let svg = chart(Form::Trace).svg();
    assert!(svg.contains("<polyline") && !svg.contains("<circle"), "{svg}");
}

/// The value of an attribute of an element's text.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    element.split(&format!(" {name}=\"")).nth(1)?.split('"').next()
}

/// What is wrong with the words of a picture: texts that leave it, or lie on each other.
fn faults(svg: &str) -> Vec<String> {
    let number = |element: &str, name: &str| attribute(element, name).map(|n| n.parse().unwrap());
    let picture = (number(svg, "width").unwrap(), number(svg, "height").unwrap());
    let mut texts: Vec<(words::Area, &str)> = Vec::new();
    let mut faults = Vec::new();
    for element in svg.lines().filter(|line| line.starts_with("<text")) {
        let words = element.split_once('>').unwrap().1.strip_suffix("</text>").unwrap();
        let shown = words.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
        let anchor = match attribute(element, "text-anchor") {
            None => Anchor::Start,
            Some("middle") => Anchor::Middle,
            Some(_) => Anchor::End,
        };
        let place = (number(element, "x").unwrap(), number(element, "y").unwrap());
        let size = number(element, "font-size").unwrap_or(12.0);
        let area = words::Area::of(&shown, place, anchor, size);
        if !area.is_within(picture) {
            faults.push(format!("{words} leaves the picture"));
        }
        let met = texts.iter().filter(|(other, _)| other.meets(&area));
        faults.extend(met.map(|(_, other)| format!("{words} lies on {other}")));
        texts.push((area, words));
    }
    assert!(texts.len() > 5, "{svg}");
    faults
}

fn axis(scale: Scale) -> AxisText {
    AxisText {
        label: "events a second, due".to_owned(),
        scale,
        ticks: Vec::new(),
        show: |v| format!("{v:.2} MiB"),
    }
}

fn many(form: Form, count: u32, name: &str, scales: [Scale; 2]) -> Chart {
    let series = |n: u32| {
        let point =
            |x: u32| Point { x: f64::from(x), y: f64::from(n * x), is_hollow: false, range: None };
        let points = if form == Form::Bars { vec![point(n)] } else { (1..9).map(point).collect() };
        Series { name: format!("{n}: {name}"), points, form }
    };
    Chart {
        title: format!("CPU time an event, of {name}"),
        x: axis(scales[0]),
        y: axis(scales[1]),
        series: (1..=count).map(series).collect(),
        bounds: vec![(1.0, "bound on p99: 1 ms".to_owned()), (1e3, "at the top".to_owned())],
        marks: [1.0, 1.1, 1.2, 7.9, 8.0].map(|x| (x, format!("P99: {x}m59s.123"))).to_vec(),
        caption: vec![name.to_owned(); count as usize % 4],
    }
}

#[test]
fn words_stay_in_the_picture_and_off_each_other() {
    let long =
        "w3a keys 1000000 interval -5000ms..5000ms type left match one-to-one runtime glommio";
    let scales = [Scale::Whole, Scale::FromZero, Scale::Log];
    for form in [Form::Line, Form::Bars, Form::Trace] {
        for count in [1, 2, 7, 20, 21, 90] {
            for name in ["w2", "p99.99 <&> of it", long] {
                for scale in scales.into_iter().flat_map(|x| scales.map(|y| [x, y])) {
                    let svg = many(form, count, name, scale).svg();
                    assert_eq!(faults(&svg), [""; 0], "{form:?} {count} {name} {scale:?}");
                    let bars = svg.matches("<rect").count();
                    assert!(form != Form::Bars || bars == 2 * count as usize + 1, "{bars}");
                }
            }
        }
    }
}

#[test]
fn words_that_lie_on_others_or_outside_are_seen() {
    let good = many(Form::Line, 3, "w2", [Scale::Linear; 2]).svg();
    assert!(!faults(&good.replace("y=\"24.0\"", "y=\"40.0\"")).is_empty());
    assert!(!faults(&good.replace("x=\"12.0\"", "x=\"850.0\"")).is_empty());
}

#[test]
fn lines_with_one_colour_are_told_apart() {
    let svg = many(Form::Trace, 20, "w2", [Scale::Linear; 2]).svg();
    let pens: Vec<(&str, Option<&str>)> = svg
        .lines()
        .filter(|line| line.starts_with("<polyline"))
        .map(|line| (attribute(line, "stroke").unwrap(), attribute(line, "stroke-dasharray")))
        .collect();
    let mut different = pens.clone();
    different.sort();
    different.dedup();
    assert_eq!((pens.len(), different.len()), (20, 20));
}

#[test]
fn a_caption_is_below_the_chart_in_lines_that_fit() {
    let mut said = chart(Form::Line);
    let height = |svg: &str| -> f64 { attribute(svg, "height").unwrap().parse().unwrap() };
    let without = height(&said.svg());
    said.caption = vec!["word ".repeat(100), "seed 42".to_owned()];
    let svg = said.svg();
    // 100 words of 5 letters, 96 letters a line, and the other line.
    assert_eq!(height(&svg), without + 15.0 * 7.0, "{svg}");
    assert_eq!(svg.matches("word").count(), 100, "{svg}");
    assert!(svg.contains(">seed 42<") && faults(&svg).is_empty(), "{svg}");
}
