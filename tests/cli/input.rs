//! Files as they come: formats, headers, quotes, line ends, several files, standard input.

use crate::support::{Dir, data, number, sorted_rows};

const ON_ID: &str = "--on id --left-time ts --right-time ts --between -10ms..10ms";

const T: i64 = 1_700_000_000_000;

/// Joins `l.csv` and `r.csv` on `id` within 10 ms and returns the rows, sorted.
fn rows(dir: &Dir, rest: &str) -> Vec<String> {
    dir.rows(&format!("--left l.csv --right r.csv {ON_ID} {rest}"))
}

#[test]
fn files_without_a_header_are_named_by_options() {
    let dir = Dir::new();
    dir.write("l.csv", format!("a,1,{T}\nb,2,{T}\n")).write("r.csv", format!("{T},a\n{T},b\n"));
    let names = "--no-header --left-columns id,n,ts --right-columns ts,id";
    let (out, report) = dir.join(&format!("--left l.csv --right r.csv {ON_ID} {names}"));
    assert_eq!(out.lines().next(), Some("id,n,ts,ts_right,id_right"));
    assert_eq!(sorted_rows(&out), [format!("a,1,{T},{T},a"), format!("b,2,{T},{T},b")]);
    assert_eq!(number(&report, "left_rows"), 2);
    let unnamed = format!("join --left l.csv --right r.csv {ON_ID} --no-header");
    dir.run(&unnamed).fails(2, &["--left-columns"]);
}

#[test]
fn quoted_fields_hold_commas_quotes_and_newlines() {
    let dir = Dir::new();
    let text = "\"one, \"\"two\"\"\nthree\"";
    dir.write("l.csv", format!("id,text,ts\n\"k,1\",{text},{T}\nk2,plain,{T}\n"));
    dir.write("r.csv", format!("id,ts\n\"k,1\",{T}\n\"k2\",{T}\n"));
    let (out, _) = dir.join(&format!("--left l.csv --right r.csv {ON_ID}"));
    assert!(out.contains(&format!("\"k,1\",{text},{T},\"k,1\",{T}\n")), "{out}");
    assert!(
        out.contains(&format!("k2,plain,{T},\"k2\",{T}\n")),
        "quotes are no part of a key: {out}"
    );
    let (out, _) = dir.join(&format!("--left l.csv --right r.csv {ON_ID} --output-format jsonl"));
    assert!(out.contains(r#""text":"one, \"two\"\nthree""#), "{out}");
}

#[test]
fn line_ends_marks_and_empty_lines_are_no_data() {
    let plain = format!("id,ts\na,{T}\nb,{T}\n");
    let right = format!("id,ts,x\na,{T},1\nb,{T},2\n");
    let dir = Dir::new();
    dir.write("r.csv", &right);
    for (name, left) in [
        ("crlf", plain.replace('\n', "\r\n")),
        ("byte order mark", format!("\u{feff}{plain}")),
        ("empty lines", plain.replace('\n', "\n\n")),
        ("empty crlf lines", plain.replace('\n', "\r\n\r\n")),
        ("no last line end", plain.trim_end().to_owned()),
        ("no last line end, crlf", plain.replace('\n', "\r\n").trim_end().to_owned()),
    ] {
        dir.write("l.csv", left);
        let (out, report) = dir.join(&format!("--left l.csv --right r.csv {ON_ID}"));
        assert_eq!(out.lines().next(), Some("id,ts,id_right,ts_right,x"), "{name}");
        assert_eq!(
            sorted_rows(&out),
            [format!("a,{T},a,{T},1"), format!("b,{T},b,{T},2")],
            "{name}"
        );
        assert!(!out.contains('\r'), "{name}: {out:?}");
        assert_eq!(number(&report, "left_rows"), 2, "{name}");
    }
}

#[test]
fn a_file_with_only_a_header_is_a_side_without_rows() {
    let dir = Dir::new();
    dir.write("l.csv", format!("id,ts\na,{T}\n"));
    for right in ["id,ts\n", "id,ts", "\u{feff}id,ts\r\n"] {
        dir.write("r.csv", right);
        assert!(rows(&dir, "").is_empty());
        assert_eq!(rows(&dir, "--type left"), [format!("a,{T},,")], "{right:?}");
    }
}

#[test]
fn an_empty_file_has_no_header_and_that_is_said() {
    let dir = Dir::new();
    dir.write("l.csv", "").write("r.csv", format!("id,ts\na,{T}\n"));
    let join = format!("join --left l.csv --right r.csv {ON_ID}");
    dir.run(&join).fails(1, &["l.csv", "header"]);
    // Without a header there is nothing that an empty file lacks.
    dir.write("r.csv", format!("a,{T}\n"));
    let names = "--no-header --left-columns id,ts --right-columns id,ts --type right";
    assert_eq!(rows(&dir, names), [format!(",,a,{T}")]);
}

#[test]
fn a_column_that_is_not_there_is_named_with_those_that_are() {
    let dir = Dir::with_sample();
    let join = "join --left orders.csv --right payments.csv --between 0..1s";
    let rest = "--left-time ts --right-time ts";
    dir.run(&format!("{join} --on order {rest}"))
        .fails(2, &["\"order\"", "orders.csv", "order_id, amount, ts"]);
    dir.run(&format!("{join} --on order_id=order {rest}")).fails(2, &["\"order\"", "payments.csv"]);
    dir.run(&format!("{join} --on order_id --left-time t --right-time ts"))
        .fails(2, &["\"t\"", "orders.csv", "--left-time"]);
}

#[test]
fn a_header_that_is_none_comes_with_a_hint() {
    let dir = Dir::new();
    dir.write("r.csv", format!("id,ts\na,{T}\n"));
    for (left, code, words) in [
        (format!("a,{T}\nb,{T}\n"), 2, ["\"id\"", "--no-header and --left-columns"]),
        (format!("id\tts\na\t{T}\n"), 2, ["\"id\"", "--left-format tsv"]),
        (format!("id;ts\na;{T}\n"), 2, ["are id;ts", "\";\" between are not read"]),
        (format!("id,id,ts\na,b,{T}\n"), 2, ["two columns", "rename one"]),
        (format!("id,ts\ra,{T}\r"), 1, ["l.csv", "end with \\r alone"]),
    ] {
        dir.write("l.csv", left);
        dir.run(&format!("join --left l.csv --right r.csv {ON_ID}")).fails(code, &words);
    }
    for bytes in [&b"\x1f\x8b\x08\0"[..], b"i\xe9,ts\n"] {
        dir.write("l.csv", bytes);
        let ran = dir.run(&format!("join --left l.csv --right r.csv {ON_ID}"));
        ran.fails(1, &["l.csv", "not UTF-8", "compressed"]);
    }
}

#[test]
fn a_wrong_column_count_names_file_and_line() {
    let dir = Dir::with_sample();
    let orders = dir.read("orders.csv").replace("o003,150.0,", "o003,150.0,x,");
    dir.write("orders.csv", orders);
    let join = format!("join {} --between -5m..5m", crate::sample::JOIN);
    dir.run(&join).fails(1, &["orders.csv", "line 4", "4", "3"]);
    let skip = format!("{} --between -5m..5m --bad-rows skip", crate::sample::JOIN);
    let (_, report) = dir.join(&skip);
    assert_eq!(number(&report, "left_bad"), 1);
    assert_eq!(number(&report, "pairs"), 2);
}

#[test]
fn utf_8_keys_are_keys() {
    let dir = Dir::new();
    dir.write("l.csv", format!("订单,ts\n订单一,{T}\nπ,{T}\n"));
    dir.write("r.csv", format!("订单,ts\n订单一,{T}\n订单二,{T}\n"));
    let on = "--on 订单 --left-time ts --right-time ts --between 0..0";
    let (out, _) = dir.join(&format!("--left l.csv --right r.csv {on}"));
    assert_eq!(out, format!("订单,ts,订单_right,ts_right\n订单一,{T},订单一,{T}\n"));
}

#[test]
fn keys_compare_as_text() {
    let dir = Dir::new();
    dir.write("l.csv", format!("id,ts\n1,{T}\n01,{T}\n1.0,{T}\n a,{T}\n"));
    dir.write("r.csv", format!("id,ts\n1,{T}\na,{T}\n"));
    assert_eq!(rows(&dir, ""), [format!("1,{T},1,{T}")]);
}

#[test]
fn keys_of_several_columns_match_column_by_column() {
    let dir = Dir::new();
    dir.write("l.csv", format!("a,b,ts\nx,yz,{T}\nxy,z,{T}\nx,,{T}\n"));
    dir.write("r.csv", format!("c,b,ts\nxy,z,{T}\nx,,{T}\n"));
    let on = "--on a=c --on b --left-time ts --right-time ts --between 0..0";
    let (out, report) = dir.join(&format!("--left l.csv --right r.csv {on}"));
    assert_eq!(sorted_rows(&out), [format!("xy,z,{T},xy,z,{T}")], "xyz is not xyz");
    assert_eq!(number(&report, "left_null_key"), 1, "a part of the key is missing");
}

#[test]
fn tabs_and_json_lines_are_read_and_written() {
    let dir = Dir::new();
    dir.write("l.csv", format!("id,n,ts\na,\"1,5\",{T}\n"));
    dir.write("l.tsv", format!("id\tn\tts\na\t1,5\t{T}\n"));
    dir.write("l.jsonl", format!("{{\"id\":\"a\",\"n\":\"1,5\",\"ts\":{T}}}\n"));
    dir.write("r.csv", format!("id,x,ts\na,y,{T}\n"));
    for left in ["l.csv", "l.tsv", "l.jsonl"] {
        let join = format!("--left {left} --right r.csv {ON_ID}");
        let (out, _) = dir.join(&join);
        let expected = format!("id,n,ts,id_right,x,ts_right\na,\"1,5\",{T},a,y,{T}\n");
        assert_eq!(out, expected, "{left}");
        let (out, _) = dir.join(&format!("{join} --output-format tsv"));
        let expected = format!("id\tn\tts\tid_right\tx\tts_right\na\t1,5\t{T}\ta\ty\t{T}\n");
        assert_eq!(out, expected, "{left}");
        let (out, _) = dir.join(&format!("{join} --output-format jsonl"));
        let row: serde_json::Value = serde_json::from_str(&out).expect("one object");
        let keys: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(row["id_right"], "a", "{left}: {out}");
        assert_eq!(row["n"], "1,5", "{left}: {out}");
        assert_eq!(keys.len(), 6, "{left}: {out}");
        let far = ON_ID.replace("-10ms..10ms", "1ms..2ms");
        let anti = format!("--left {left} --right r.csv {far} --type anti --output-format jsonl");
        let (out, _) = dir.join(&anti);
        assert!(out.starts_with("{\"id\":\"a\",\"n\":\"1,5\",\"ts\":"), "{left}: {out}");
        assert_eq!(out.lines().count(), 1, "{left}: {out}");
    }
    let padded = "--on id --left-time ts --right-time ts --between 1ms..2ms --type left";
    let (out, _) =
        dir.join(&format!("--left l.jsonl --right r.csv {padded} --output-format jsonl"));
    let row: serde_json::Value = serde_json::from_str(&out).expect("one object");
    assert!(row["x"].is_null() && row["ts_right"].is_null() && row["ts"] == T, "{out}");
}

#[test]
fn json_keys_that_are_missing_or_null_match_nothing() {
    let dir = Dir::new();
    dir.write(
        "l.jsonl",
        format!("{{\"id\":null,\"ts\":{T}}}\n{{\"ts\":{T}}}\n\n{{\"id\":\"a\",\"ts\":{T}}}\n"),
    );
    dir.write("r.csv", format!("id,ts\na,{T}\n"));
    let (_, report) = dir.join(&format!("--left l.jsonl --right r.csv {ON_ID}"));
    assert_eq!(number(&report, "left_null_key"), 2);
    assert_eq!(number(&report, "pairs"), 1);
}

#[test]
fn a_format_overrides_the_file_ending_and_an_unknown_one_is_refused() {
    let dir = Dir::new();
    dir.write("l.txt", format!("id\tts\na\t{T}\n")).write("r.csv", format!("id,ts\na,{T}\n"));
    let rest = format!("--right r.csv {ON_ID}");
    dir.run(&format!("join --left l.txt {rest}")).fails(2, &["l.txt", "--left-format"]);
    let (out, _) = dir.join(&format!("--left l.txt --left-format tsv {rest}"));
    assert_eq!(out.lines().nth(1), Some(format!("a,{T},a,{T}").as_str()));
    dir.run(&format!("join --left l.txt --left-format xml {rest}")).fails(2, &["xml", "csv"]);
}

#[test]
fn several_files_of_a_side_are_one_input() {
    let dir = Dir::new();
    dir.write("l1.csv", format!("id,ts\na,{T}\n")).write("l2.csv", format!("id,ts\nb,{}\n", T + 5));
    dir.write("r.csv", format!("id,ts\na,{T}\nb,{T}\n"));
    let join = format!("--left l1.csv --left l2.csv --right r.csv {ON_ID}");
    assert_eq!(dir.rows(&join).len(), 2);
    // Each file is a source with a watermark of its own: an old one beside a new one is not late.
    dir.write("l2.csv", format!("id,ts\nb,{}\n", T + 1_000_000));
    dir.write("r.csv", format!("id,ts\na,{T}\nb,{}\n", T + 1_000_000));
    let (_, report) = dir.join(&join);
    assert_eq!(number(&report, "pairs"), 2);
    assert_eq!(number(&report, "left_late"), 0);
    dir.write("l2.csv", format!("key,ts\nb,{T}\n"));
    dir.run(&format!("join {join}")).fails(2, &["l2.csv"]);
}

#[test]
fn standard_input_is_one_side() {
    let dir = Dir::with_sample();
    let orders = dir.read("orders.csv");
    let rest = "--right payments.csv --on order_id --left-time ts --right-time ts \
                --between -5m..5m --out-of-orderness 5s";
    let ran = dir.run_with_input(&format!("join --left - {rest}"), orders.as_bytes()).ok();
    assert_eq!(sorted_rows(&ran.out).len(), 3);
    let both = rest.replace("payments.csv", "-");
    dir.run(&format!("join --left - {both}")).fails(2, &["standard input"]);
    let json = "{\"order_id\":\"o001\",\"ts\":1704103200000}\n";
    let join = format!("join --left - --left-format jsonl {rest}");
    assert_eq!(sorted_rows(&dir.run_with_input(&join, json.as_bytes()).ok().out).len(), 1);
}

#[test]
fn a_path_that_does_not_exist_or_is_no_file_is_named() {
    let dir = Dir::with_sample();
    let rest = "--on order_id --left-time ts --right-time ts --between 0..1s";
    dir.run(&format!("join --left no.csv --right payments.csv {rest}"))
        .fails(1, &["no.csv", "No such file", "check its name"]);
    dir.run(&format!("join --left orders.csv --right . --right-format csv {rest}"))
        .fails(1, &[".: cannot open it", "irectory", "name the files in it"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_read_that_fails_names_the_file_and_the_place() {
    let dir = Dir::with_sample();
    let rest = "--on order_id --left-time ts --right-time ts --between 0..1s";
    // The first page of a process is never there to be read.
    dir.run(&format!("join --left orders.csv --right /proc/self/mem --right-format csv {rest}"))
        .fails(1, &["/proc/self/mem: reading failed at byte 0", "run again"]);
}

#[test]
fn a_side_may_join_itself() {
    let orders = data("orders.csv");
    let orders = orders.display();
    let dir = Dir::new();
    let rows = dir.rows(&format!(
        "--left {orders} --right {orders} --on order_id --left-time ts --right-time ts --between 0..0"
    ));
    assert_eq!(rows.len(), 4);
}
