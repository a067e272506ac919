use super::*;
use proptest::prelude::*;

fn parser(format: &str, zone: &str, unit: TimeUnit) -> TimeParser {
    TimeParser::new(&TimeFormat::parse(format).unwrap(), &Zone::parse(zone).unwrap(), unit)
}

fn ms(format: &str, text: &str) -> Result<i64, TimeTextError> {
    parser(format, "UTC", TimeUnit::Ms).parse(text.as_bytes())
}

fn ns(format: &str, text: &str) -> Result<i64, TimeTextError> {
    parser(format, "UTC", TimeUnit::Ns).parse(text.as_bytes())
}

#[test]
fn auto_takes_text_and_milliseconds() {
    let expected = 1_357_034_400_000;
    for text in [
        "2013-01-01T10:00:00Z",
        "2013-01-01T10:00:00.000000Z",
        "2013-01-01 10:00:00",
        "2013-01-01T10:00:00",
        "2013-01-01 10:00:00.000",
        "2013-01-01T11:00:00+01:00",
        "2013-01-01T11:00:00+0100",
        "2013-01-01T05:00:00-05:00[America/New_York]",
        "2013-01-01T10:00Z",
        " 2013-01-01T10:00:00Z ",
        "1357034400000",
        "+1357034400000",
        " 1357034400000",
        "1357034400000.0",
        "0000001357034400000",
        "00000000000000000001357034400000",
    ] {
        assert_eq!(ms("auto", text), Ok(expected), "{text}");
    }
    assert_eq!(ms("auto", "2013-01-01"), Ok(expected - 36_000_000));
    assert_eq!(ms("auto", "1969-12-31T23:59:59.999Z"), Ok(-1));
}

#[test]
fn a_number_of_another_unit_is_named() {
    for (text, unit) in [
        ("1704103200", Some("s")),
        ("1704103200.123", Some("s")),
        ("1704103200000000", Some("us")),
        ("1704103200000000000", Some("ns")),
        ("0", None),
        ("10", None),
        ("-1704103200000", None),
        ("999999999999999999", Some("ns")),
        ("9999999999999999999", None),
    ] {
        assert_eq!(
            ms("auto", text),
            Err(TimeTextError::Implausible { looks_like: unit }),
            "{text}"
        );
    }
    let message = ms("auto", "1704103200").unwrap_err().to_string();
    assert!(message.contains("seconds: give --time-format s"), "{message}");
}

#[test]
fn the_plausible_years_are_1971_to_2200() {
    let at = |text: &str| ms("rfc3339", text).unwrap();
    assert_eq!(PLAUSIBLE_FROM_MS, at("1971-01-01T00:00:00Z"));
    assert_eq!(PLAUSIBLE_TO_MS, at("2201-01-01T00:00:00Z"));
    for ms_text in [PLAUSIBLE_FROM_MS, PLAUSIBLE_TO_MS - 1] {
        assert_eq!(ms("auto", &ms_text.to_string()), Ok(ms_text));
    }
    for ms_text in [PLAUSIBLE_FROM_MS - 1, PLAUSIBLE_TO_MS] {
        assert!(ms("auto", &ms_text.to_string()).is_err());
    }
}

#[test]
fn counts_of_every_unit_are_exact() {
    assert_eq!(ms("s", "1704103200"), Ok(1_704_103_200_000));
    assert_eq!(ms("s", "-1"), Ok(-1_000));
    assert_eq!(ms("s", "1.25"), Ok(1_250));
    assert_eq!(ms("s", "-1.25"), Ok(-1_250));
    assert_eq!(ms("ms", "10"), Ok(10));
    assert_eq!(ms("us", "10000"), Ok(10));
    assert_eq!(ns("us", "10.001"), Ok(10_001));
    assert_eq!(ns("ns", "9223372036854775807"), Ok(i64::MAX));
    assert_eq!(ns("ns", "-9223372036854775807"), Ok(-i64::MAX));
    assert_eq!(ms("ms", "-9223372036854775807"), Ok(-i64::MAX));
}

#[test]
fn precision_is_never_lost_in_silence() {
    let finer = |unit| Err(TimeTextError::Finer { unit });
    assert_eq!(ms("us", "10001"), finer(TimeUnit::Ms));
    assert_eq!(ms("ms", "10.5"), finer(TimeUnit::Ms));
    assert_eq!(ms("auto", "2013-01-01T10:00:00.0001Z"), finer(TimeUnit::Ms));
    assert_eq!(ms("%F %T%.f", "2013-01-01 10:00:00.0001"), finer(TimeUnit::Ms));
    assert_eq!(ns("ns", "1.5"), finer(TimeUnit::Ns));
    assert_eq!(ns("s", "1.0000000001"), finer(TimeUnit::Ns));
    assert!(
        ms("auto", "2013-01-01T10:00:00.0001Z").unwrap_err().to_string().contains("--time-unit us")
    );
}

#[test]
fn out_of_range_is_an_error_and_so_is_the_value_that_means_no_time() {
    let range = |unit| Err(TimeTextError::OutOfRange { unit });
    assert_eq!(ns("ns", "-9223372036854775808"), range(TimeUnit::Ns));
    assert_eq!(ns("ns", "9223372036854775808"), range(TimeUnit::Ns));
    assert_eq!(ns("ms", "9223372036854776"), range(TimeUnit::Ns));
    assert_eq!(ns("rfc3339", "2263-01-01T00:00:00Z"), range(TimeUnit::Ns));
    assert_eq!(ms("s", "99999999999999999999"), range(TimeUnit::Ms));
    assert!(ms("rfc3339", "9999-12-31T23:59:59Z").is_ok());
}

#[test]
fn what_is_no_time_says_what_was_expected() {
    for (format, text) in [
        ("auto", "yesterday"),
        ("auto", "2013-13-01T10:00:00Z"),
        ("auto", "2013-02-29 10:00:00"),
        ("auto", "1e12"),
        ("auto", "-"),
        ("auto", "1.2.3"),
        ("ms", "0x10"),
        ("ms", "1."),
        ("ms", "2013-01-01T10:00:00Z"),
        ("rfc3339", "1704103200000"),
        ("%d.%m.%Y", "2013-01-01"),
    ] {
        let error = ms(format, text);
        assert!(matches!(error, Err(TimeTextError::NotATime { .. })), "{format} {text}: {error:?}");
    }
    assert_eq!(ms("auto", ""), Err(TimeTextError::Empty));
    assert_eq!(ms("ms", "  "), Err(TimeTextError::Empty));
    assert_eq!(ms("rfc3339", "2013-01-01T10:00:00"), Err(TimeTextError::NoOffset));
    let broken = parser("auto", "UTC", TimeUnit::Ms).parse(b"2013\xff");
    assert!(matches!(broken, Err(TimeTextError::NotATime { .. })));
}

#[test]
fn zones_apply_where_the_text_has_none() {
    let berlin = parser("auto", "Europe/Berlin", TimeUnit::Ms);
    let at = |text: &str| berlin.parse(text.as_bytes()).unwrap();
    let utc = |text: &str| ms("auto", text).unwrap();
    assert_eq!(at("2024-07-01 12:00:00"), utc("2024-07-01T10:00:00Z"));
    assert_eq!(at("2024-01-01 12:00:00.5"), utc("2024-01-01T11:00:00.5Z"));
    assert_eq!(at("2024-07-01T12:00:00Z"), utc("2024-07-01T12:00:00Z"));
    // The hour that is skipped, and the one that comes twice.
    assert_eq!(at("2024-03-31 02:30:00"), utc("2024-03-31T01:30:00Z"));
    assert_eq!(at("2024-10-27 02:30:00"), utc("2024-10-27T00:30:00Z"));
}

#[test]
fn patterns() {
    assert_eq!(ms("%d.%m.%Y %H:%M:%S", "01.01.2013 10:00:00"), Ok(1_357_034_400_000));
    assert_eq!(ms("%d/%b/%Y:%H:%M:%S %z", "01/Jan/2013:05:00:00 -0500"), Ok(1_357_034_400_000));
    assert_eq!(ms("%F %T %Q", "2013-01-01 05:00:00 America/New_York"), Ok(1_357_034_400_000));
    assert_eq!(ms("%Y%m%d", "20130101"), Ok(1_356_998_400_000));
    assert_eq!(ms("%s", "1357034400"), Ok(1_357_034_400_000));
    assert_eq!(ms("%F %I:%M %p", "2013-01-01 10:00 AM"), Ok(1_357_034_400_000));
    let tokyo = parser("%F %T", "Asia/Tokyo", TimeUnit::Ms);
    assert_eq!(tokyo.parse(b"2013-01-01 19:00:00"), Ok(1_357_034_400_000));
}

proptest! {
    #[test]
    fn integers_read_as_the_standard_library_reads_them(value: i64, width in 0usize..20) {
        let short = (value % 1_000_000).to_string();
        for text in [value.to_string(), format!("{value:0width$}"), short] {
            if let Some(ours) = parse_integer(text.as_bytes()) {
                prop_assert_eq!(Ok(ours), text.parse::<i64>());
            } else {
                prop_assert!(text.trim_start_matches('-').len() > 18, "{}", text);
            }
        }
    }

    #[test]
    fn eight_bytes_are_digits_or_refused(bytes: [u8; 8]) {
        let text = std::str::from_utf8(&bytes).ok();
        let expected = text.filter(|t| !t.starts_with('+')).and_then(|t| t.parse::<u32>().ok());
        prop_assert_eq!(parse_eight(u64::from_le_bytes(bytes)), expected);
    }

    #[test]
    fn one_wrong_byte_among_digits_is_refused(at in 0usize..8, byte: u8) {
        let mut bytes = *b"12345678";
        bytes[at] = byte;
        let expected = byte.is_ascii_digit();
        prop_assert_eq!(parse_eight(u64::from_le_bytes(bytes)).is_some(), expected);
    }

    #[test]
    fn instants_in_text_come_back(ticks in -62_000_000_000_000_000i64..250_000_000_000_000_000) {
        let us = parser("auto", "UTC", TimeUnit::Us);
        prop_assert_eq!(us.parse(TimeUnit::Us.format(ticks).as_bytes()), Ok(ticks));
    }

    #[test]
    fn no_bytes_panic(text in prop::collection::vec(any::<u8>(), 0..40)) {
        for format in ["auto", "s", "ns", "rfc3339", "%F %T"] {
            let _ = parser(format, "Europe/Berlin", TimeUnit::Ns).parse(&text);
        }
    }
}
