//! Whole numbers of options: read as people write them, and refused with what is wrong.

use crate::cli::bench::count;

/// A parser for clap of whole numbers (`2000`, `2_000`, `2e3`) from `least` to `most`, which fit
/// the type.
pub(super) fn whole<T>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: TryFrom<u64>,
{
    move |text| {
        let range = || match most {
            u64::MAX => format!("give a whole number from {least} on"),
            _ => format!("give a whole number from {least} to {most}"),
        };
        if text.starts_with('-') && text[1..].starts_with(|first: char| first.is_ascii_digit()) {
            return Err(format!("it is negative; {}", range()));
        }
        let number = match count(text) {
            Ok(number) => number,
            // Digits alone that are too many are a number all the same.
            Err(_) if is_large(text) => return Err(format!("it is too large; {}", range())),
            Err(_) => return Err(format!("it is no whole number; {}", range())),
        };
        match number {
            n if n < least => Err(format!("it is too small; {}", range())),
            n if n > most => Err(format!("it is too large; {}", range())),
            n => T::try_from(n).map_err(|_| range()),
        }
    }
}

/// Whether a text is a number beyond all that `count` reads: `1e30`, or more digits than fit.
fn is_large(text: &str) -> bool {
    let is_written = |letter: char| letter.is_ascii_digit() || "_eE".contains(letter);
    text.chars().all(is_written)
        && text.replace('_', "").parse::<f64>().is_ok_and(|number| number >= u64::MAX as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them_and_refused_with_the_reason() {
        let read = whole::<u16>(1, 4_096);
        assert_eq!([read("1"), read("4_096"), read("1e3")], [Ok(1), Ok(4_096), Ok(1_000)]);
        for (text, told) in [
            ("0", "it is too small; give a whole number from 1 to 4096"),
            ("1e9", "it is too large; "),
            ("1e30", "it is too large; "),
            ("99999999999999999999999", "it is too large; "),
            ("-5", "it is negative; "),
            ("2.5", "it is no whole number; "),
            ("", "it is no whole number; "),
            ("many", "it is no whole number; "),
            ("inf", "it is no whole number; "),
        ] {
            assert!(read(text).unwrap_err().starts_with(told), "{text}: {:?}", read(text));
        }
        assert_eq!(
            whole::<u64>(0, u64::MAX)("1e30"),
            Err("it is too large; give a whole number \
            from 0 on"
                .to_owned())
        );
    }
}
