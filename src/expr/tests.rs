//! Texts, what they give on one pair, and what is said of those that are none.

use std::sync::Arc;

use super::*;
use crate::source::RowFormat;
use crate::time::text::{TimeUnit, Zone};

const LEFT: &str = "o1,100,9.5,Ärger,,2024-03-01 10:30:00,true,007,\"a,\"\"b\"";
const RIGHT: &str =
    r#"{"id":"o1","amount":100.0,"n":7,"flag":false,"nil":null,"list":[1, 2],"num":"7"}"#;
/// 2024-03-01T12:00:00Z.
const LEFT_TS: i64 = 1_709_294_400_000;

fn scope() -> Arc<Scope> {
    let names = |list: &str| list.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let columns = "id amount price name empty at ok code quoted ts";
    let left = SideColumns {
        format: RowFormat::CSV,
        names: names(columns),
        output_names: names(columns),
        types: ColumnType::of_sample([LEFT.as_bytes()].into_iter(), b',', 9),
        given: Vec::new(),
    };
    let mut left = SideColumns { given: vec![false; 10], ..left };
    left.types.push(ColumnType::EventTime);
    let right = SideColumns {
        format: RowFormat::JsonLines,
        names: names("id amount n flag nil list num ts"),
        output_names: names("id_right amount_right n flag nil list num ts_right"),
        types: [vec![ColumnType::Auto; 7], vec![ColumnType::EventTime]].concat(),
        given: vec![false; 8],
    };
    Arc::new(Scope::new([left, right], TimeUnit::Ms, &Zone::UTC))
}

fn rows<'a>() -> Rows<'a> {
    let left = Row { bytes: LEFT.as_bytes(), ts: LEFT_TS };
    let right = Row { bytes: RIGHT.as_bytes(), ts: LEFT_TS + 90_000 };
    Rows::of_sides([Some(left), Some(right)])
}

/// The text of a value, `NULL`, or what is wrong.
fn shown(text: &str, scope: &Arc<Scope>, rows: &Rows<'_>) -> String {
    match Selection::parse(&format!("{text} AS x"), scope, false) {
        Err(error) => error.to_string(),
        Ok(selection) => {
            let mut shown = String::new();
            selection.pick(rows, |picked| {
                shown = match picked {
                    Picked::Missing => "NULL".to_owned(),
                    Picked::Text(text) => String::from_utf8_lossy(&text).into_owned(),
                    Picked::Json(json) => json.to_owned(),
                    Picked::Value(value) => match selection.text(value) {
                        Some(text) => String::from_utf8_lossy(&text).into_owned(),
                        None => "NULL".to_owned(),
                    },
                };
            });
            shown
        }
    }
}

#[track_caller]
fn gives(cases: &[(&str, &str)]) {
    let scope = scope();
    for (text, expected) in cases {
        assert_eq!(shown(text, &scope, &rows()), *expected, "{text}");
    }
}

#[test]
fn precedence_is_that_of_sql() {
    gives(&[
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("-2 * -3 - 1", "5"),
        ("10 - 3 - 2", "5"),
        ("2 = 1 + 1 AND NOT 1 > 2", "true"),
        ("true OR true AND false", "true"),
        ("NOT true OR true", "true"),
        ("NOT 1 = 2", "true"),
        ("1 + 1 || 'x' || 2 * 2", "2x4"),
        ("'1' || 1 = '11'", "true"),
        ("-1::text", "-1"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("5 between 1 and 3 + 2 and true", "true"),
        ("not 5 in (1, 2) and 'ab' like 'a%'", "true"),
    ]);
}

#[test]
fn logic_has_three_values() {
    gives(&[
        ("NULL AND false", "false"),
        ("NULL AND true", "NULL"),
        ("NULL OR true", "true"),
        ("NULL OR false", "NULL"),
        ("NOT (NULL AND true)", "NULL"),
        ("empty = 'x' OR amount = 100", "true"),
        ("empty = 'x' OR amount = 101", "NULL"),
        ("empty <> 'x'", "NULL"),
        ("empty IS NULL AND nil IS NULL AND name IS NOT NULL", "true"),
        ("nil IN (1, 2)", "NULL"),
        ("1 IN (2, nil)", "NULL"),
        ("1 IN (1, nil)", "true"),
        ("1 NOT IN (2, nil)", "NULL"),
        ("5 BETWEEN nil AND 3", "false"),
        ("5 BETWEEN nil AND 7", "NULL"),
        ("nil IS DISTINCT FROM NULL", "false"),
        ("nil IS NOT DISTINCT FROM empty", "true"),
        ("amount IS DISTINCT FROM nil", "true"),
        ("(nil = 1) IS TRUE", "false"),
        ("(nil = 1) IS NOT FALSE", "true"),
        ("amount + nil", "NULL"),
        ("name || nil", "NULL"),
        ("concat(name, nil, 1)", "Ärger1"),
        ("CASE WHEN nil = 1 THEN 'a' ELSE 'b' END", "b"),
        ("CASE WHEN false THEN 1 END", "NULL"),
        ("lower(nil)", "NULL"),
        ("greatest(1, nil, 3)", "3"),
        ("least(nil)", "NULL"),
        ("coalesce(nil, empty, name)", "Ärger"),
    ]);
}

#[test]
fn columns_of_both_sides_have_their_names_and_types() {
    gives(&[
        ("amount = amount_right", "true"),
        ("left.amount = right.amount", "true"),
        ("LEFT.id || '-' || right.\"id\"", "o1-o1"),
        ("ok AND NOT flag", "true"),
        ("code = '007' AND code || '' = '007'", "true"),
        ("quoted", "a,\"b"),
        ("quoted = 'a,\"b'", "true"),
        ("n + 1", "8"),
        ("num || '1'", "71"),
        ("list || ''", "[1, 2]"),
        ("ts_right - ts", "1m30s"),
        ("ts_right - ts < '2m' AND ts_right > '2024-03-01 12:00:00'", "true"),
        ("at + INTERVAL '90 minutes' = ts", "true"),
        ("at", "2024-03-01 10:30:00"),
        ("at + '0s'", "2024-03-01T10:30:00Z"),
    ]);
}

#[test]
fn numbers() {
    gives(&[
        ("7 / 2", "3.5"),
        ("7 % 3 + -7 % 3", "0"),
        ("1 / 0", "NULL"),
        ("1 % 0", "NULL"),
        ("9223372036854775807 + 1", "9.223372036854776e18"),
        ("9223372036854775806 + 1", "9223372036854775807"),
        ("(9223372036854775807 + 1) > 9223372036854775807", "true"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("round(0.125, 2)", "0.13"),
        ("round(1234, -2)", "1200"),
        ("round(2.5) + floor(-0.5) + ceil(0.2) + trunc(-1.9)", "2"),
        ("abs(-3) + sign(-2.5)", "2"),
        ("sqrt(-1)", "NULL"),
        ("power(2, 10)", "1024"),
        ("exp(1000)", "NULL"),
        ("price * 2 = 19", "true"),
        ("1e3 = 1000 AND .5 = 0.50", "true"),
        ("1 = 1.0000000001", "false"),
        ("greatest(1, 2.5) - least(3, 4)", "-0.5"),
        ("mod(7, 4)", "3"),
        (
            "amount < 'abc'",
            "at character 10: 'abc' is not a number\n  amount < 'abc' AS x\n           ^^^^^",
        ),
    ]);
}

#[test]
fn texts() {
    gives(&[
        ("lower(name) || upper(name)", "ärgerÄRGER"),
        ("length(name)", "5"),
        ("substr(name, 2, 3)", "rge"),
        ("substr(name, 0, 2)", "Ä"),
        ("substr(name, -5) = name", "true"),
        ("left(name, 2) || right(name, 2)", "Ärer"),
        ("left(name, -4) || right(name, -4)", "Är"),
        ("trim('  a ') || ltrim('xxa', 'x') || rtrim('ayx', 'xy')", "aaa"),
        ("starts_with(name, 'Är') AND ends_with(name, 'er') AND contains(name, 'rg')", "true"),
        ("strpos(name, 'ger')", "3"),
        ("replace('a-b-c', '-', '')", "abc"),
        ("split_part('a-b-c', '-', 2) || split_part('a-b-c', '-', -1)", "bc"),
        ("split_part('a', '-', 5) = ''", "true"),
        ("name LIKE '_rg%' AND name ILIKE 'ÄRGER' AND name NOT LIKE 'x%'", "true"),
        ("'it''s'", "it's"),
        ("nullif(name, 'Ärger')", "NULL"),
        ("nullif(amount, 5)", "100"),
        ("ifnull(empty, 'none')", "none"),
        ("if(amount > 50, 'much', 'little')", "much"),
        ("CASE amount WHEN 99 THEN 'a' WHEN 100 THEN 'b' END", "b"),
        ("'b' > 'a' AND 'B' < 'a'", "true"),
    ]);
}

#[test]
fn times() {
    gives(&[
        ("date_trunc('day', ts)", "2024-03-01T00:00:00Z"),
        ("date_trunc('hour', ts_right) = ts", "true"),
        ("extract(hour FROM ts) * 100 + extract(MINUTE FROM ts_right)", "1201"),
        ("date_part('dow', ts)", "5"),
        ("extract(epoch FROM ts_right - ts)", "90"),
        ("seconds(ts - ts_right)", "-90"),
        ("epoch_ms(ts)", "1709294400000"),
        ("epoch(ts)", "1709294400"),
        ("from_epoch_ms(epoch_ms(ts)) = ts AND from_epoch_s(1709294400) = ts", "true"),
        ("strftime(ts, '%Y/%m/%d')", "2024/03/01"),
        ("strptime('01.03.2024 12:00', '%d.%m.%Y %H:%M') = ts", "true"),
        ("abs(ts - ts_right) <= '90s'", "true"),
        ("(ts_right - ts) / '30s'", "3"),
        ("(ts_right - ts) * 2 - INTERVAL '1 minute'", "2m"),
        ("-(ts_right - ts)", "-1m30s"),
        ("ts - '2024-02-29T12:00:00Z'", "1d"),
        ("CAST('2024-03-01T12:00:00Z' AS time) = ts", "true"),
        ("duration_s(1.5)", "1s500ms"),
    ]);
}

#[test]
fn casts() {
    gives(&[
        ("'12'::int + 1", "13"),
        ("'x'::text::float", "NULL"),
        ("2.5::int", "3"),
        ("code::int", "7"),
        ("amount::text || '!'", "100!"),
        ("true::int + false::int", "1"),
        ("0::bool", "false"),
        ("num::float > 6", "true"),
        ("CAST(price AS TEXT)", "9.5"),
    ]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let scope = scope();
    let all = [
        "amout = 1",
        "left.Amount = 1",
        "lenght(name) = 1",
        "amount = ",
        "amount = 1 = 2",
        "(amount = 1",
        "amount + name",
        "name + name",
        "amount = name",
        "ts > 5",
        "ts - ts_right > 5",
        "nil = NULL",
        "name AND ok",
        "name > 5",
        "substr(name)",
        "lower(amount)",
        "date_trunc('fortnight', ts)",
        "ts > 'yesterday'",
        "ts - ts_right < '5 parsecs'",
        "ts::int",
        "x.y = 1",
        "end = 1",
        "amount IN ()",
        "amount = 1 ; 2",
        "CASE WHEN ok THEN 1",
        "amount::decimals",
        "strptime(name, '%Q')",
        "coalesce(amount, name)",
        "name = \"o1\"",
    ];
    let said = all.map(|text| match Filter::parse(text, &scope) {
        Err(error) => error.to_string(),
        Ok(_) => format!("nothing is wrong with {text}"),
    });
    expect_test::expect_file!["tests.txt"].assert_eq(&(said.join("\n") + "\n"));
}

#[test]
fn values_of_another_type_are_null_and_counted() {
    let scope = scope();
    let filter = Filter::parse("amount > 5", &scope).unwrap();
    let right = Row { bytes: RIGHT.as_bytes(), ts: 0 };
    for bytes in [&b"o1,n/a"[..], b"o1,6", b"o1,", b"o1"] {
        assert_eq!(filter.holds(Row { bytes, ts: 0 }, right), bytes == b"o1,6");
    }
    let mixed = Filter::parse("num > 5", &scope).unwrap();
    assert!(!mixed.holds(Row { bytes: b"", ts: 0 }, right), "a text is in no order with 5");
    assert_eq!(
        scope.warnings(),
        [
            "left.amount was once not a number, first \"n/a\", and counted as null there; give \
             --left-types amount:text to take its values as text",
            "values of different types met once, like a text and a number, and gave null; cast \
             them, as in amount::float",
        ]
    );
}

#[test]
fn a_side_that_is_not_there_is_null() {
    let left_alone = Rows::of_sides([rows().sides[0], None]);
    let scope = scope();
    for (text, expected) in [
        ("n IS NULL AND ts_right IS NULL AND id = 'o1'", "true"),
        ("coalesce(n, -1)", "-1"),
        ("ts_right - ts", "NULL"),
    ] {
        assert_eq!(shown(text, &scope, &left_alone), expected, "{text}");
    }
}

#[test]
fn columns_are_chosen_by_name_and_made() {
    let scope = scope();
    let names = |text: &str, left_only: bool| match Selection::parse(text, &scope, left_only) {
        Ok(selection) => selection.names().join(" "),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        names("id, right.amount, n * 2 AS twice, lower(name)", false),
        "id amount_right twice lower(name)"
    );
    assert_eq!(
        names("right.*, \"id\" as \"a b\"", false),
        "id_right amount_right n flag nil list num ts_right a b"
    );
    assert_eq!(names("*", true), "id amount price name empty at ok code quoted ts");
    for (text, left_only, why) in [
        ("id, id", false, "would be called \"id\""),
        ("*, n", false, "would be called \"n\""),
        ("id, n", true, "no right columns"),
        ("right.*", true, "no right columns"),
        ("id,", false, "a value is wanted"),
        ("id amount", false, "a comma"),
        ("idd", false, "did you mean \"id\""),
    ] {
        let said = names(text, left_only);
        assert!(said.contains(why), "{text}: {said}");
    }
    let selection = Selection::parse("n, quoted, empty, list", &scope, false).unwrap();
    let mut picked = Vec::new();
    selection.pick(&rows(), |cell| picked.push(cell));
    let text = |text: &'static [u8]| Picked::Text(text.into());
    assert_eq!(picked, [Picked::Json("7"), text(b"a,\"b"), text(b""), Picked::Json("[1, 2]")]);
    assert_eq!(scope.streams()[0].names.len(), 10);
}

#[test]
fn types_are_those_of_all_values_of_a_sample() {
    let of = |rows: &[&str]| {
        let count = rows.iter().map(|row| row.split(',').count()).max().unwrap_or(0);
        ColumnType::of_sample(rows.iter().map(|row| row.as_bytes()), b',', count)
    };
    use ColumnType::{Auto, Bool, Number, Text, Time};
    assert_eq!(
        of(&["1,x,true,2024-01-01T00:00:00Z,,01", "2.5,1,FALSE,2024-01-01 10:00:00,,2"]),
        [Number, Text, Bool, Time, Auto, Text]
    );
    assert_eq!(of(&["1704103200000,1", ",yes"]), [Number, Text]);
    assert_eq!(of(&[]), []);
}

#[test]
fn what_is_nested_too_deeply_is_refused_and_chains_are_not() {
    let scope = scope();
    let filter = |text: String| Filter::parse(&text, &scope);
    let nested = |depth: usize| format!("{}ok{}", "(".repeat(depth), ")".repeat(depth));
    assert!(filter(nested(50)).is_ok());
    assert!(filter(nested(100_000)).unwrap_err().to_string().contains("nested too deeply"));
    assert!(filter(format!("{} ok", "NOT ".repeat(100_000))).is_err());
    assert!(filter(format!("amount = {}1", "- ".repeat(100_000))).is_err());
    assert!(filter(format!("0 {} = 1", "+ amount ".repeat(100_000))).is_err());
    let long = vec!["amount = 7"; 20_000].join(" OR ");
    let filter = filter(long).unwrap();
    let Rows { sides: [Some(left), Some(right)], .. } = rows() else { panic!("both are there") };
    assert!(!filter.holds(left, right));
}

mod random {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            text in "([a-z(),.'\"+*/<>=|:0-9-]|amount|ts| AND | CASE | IN ){0,20}",
        ) {
            let scope = scope();
            if let Ok(filter) = Filter::parse(&text, &scope) {
                let Rows { sides: [Some(left), Some(right)], .. } = rows() else { panic!("both") };
                filter.holds(left, right);
            }
        }

        /// Comparisons of what rows hold give what comparing the numbers gives.
        #[test]
        fn numbers_compare_as_numbers(a in -20..20i64, b in -20..20i64, c in -20..20i64) {
            let scope = scope();
            let left = format!("x,{a},{b}.5");
            let right = format!("{{\"n\":{c}}}");
            let row = |text| Row { bytes: str::as_bytes(text), ts: 0 };
            let pair = (row(left.as_str()), row(right.as_str()));
            let (x, y, z) = (a as f64, format!("{b}.5").parse::<f64>().unwrap(), c as f64);
            for (text, expected) in [
                ("amount < price", x < y),
                ("amount >= n", x >= z),
                ("amount + n * 2 = price - 0.5", x + z * 2.0 == y - 0.5),
                ("n BETWEEN amount AND price", x <= z && z <= y),
                ("amount <> n AND price > 0 OR n < 0", x != z && y > 0.0 || z < 0.0),
                ("least(amount, n) = n", z <= x),
            ] {
                let filter = Filter::parse(text, &scope).unwrap();
                prop_assert_eq!(filter.holds(pair.0, pair.1), expected, "{}", text);
            }
        }
    }
}
