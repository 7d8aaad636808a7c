//! Quantities as Kubernetes writes them (`resource.Quantity`): `500m`, `1.5Gi`, `1e3`.

/// The exact amount that a quantity states. Two amounts are equal if their values are equal, in whatever form
/// they were written. It is stored as `rest` · 2^`twos` · 5^`fives`, which represents every quantity without
/// rounding.
///
/// ```
/// use staffetta_driver::ExactQuantity;
///
/// assert_eq!(ExactQuantity::parse("2000m"), ExactQuantity::parse("2"));
/// assert_eq!(ExactQuantity::parse("1.5Gi").and_then(|amount| amount.times(1)), Some(3 << 29));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactQuantity {
    negative: bool,
    /// The digits as an integer, divided by two and by five as often as possible; 0 if the amount is zero.
    rest: u128,
    /// The exponent of the factor two; 0 if the amount is zero.
    twos: i32,
    /// The exponent of the factor five; 0 if the amount is zero.
    fives: i32,
}

impl ExactQuantity {
    /// Parses a quantity. Returns `None` if the text is not a quantity, if its digits exceed 128 bits, or if its exponent exceeds 32 bits.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let split = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let (binary, decimal) = exponents(suffix)?;
        let decimal = decimal.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        // Neither no digit nor a second point is a number.
        let rest: u128 = format!("{whole}{fraction}").parse().ok()?;
        if rest == 0 {
            return Some(Self { negative: false, rest, twos: 0, fives: 0 });
        }
        let (rest, twos) = without(2, rest);
        let (rest, fives) = without(5, rest);
        let twos = binary.checked_add(decimal)?.checked_add(twos)?;
        Some(Self { negative, rest, twos, fives: decimal.checked_add(fives)? })
    }

    /// Returns `factor` times the amount, rounded up to an integer; `None` if the amount is negative, the result exceeds 64 bits, or the
    /// product exceeds 128 bits before it is divided.
    pub fn times(self, factor: u64) -> Option<u64> {
        if self.negative {
            return None;
        }
        let product = self.rest.checked_mul(factor.into())?;
        if product == 0 {
            return Some(0);
        }
        let (twos, fives) = (power(2, self.twos), power(5, self.fives));
        let above =
            [twos.0, fives.0].into_iter().try_fold(product, |above, power| above.checked_mul(power?))?;
        let below = twos.1.zip(fives.1).and_then(|(twos, fives)| twos.checked_mul(fives));
        // What is divided by more than 128 bits hold is less than one.
        let amount = below.map_or(1, |below| above.div_ceil(below));
        u64::try_from(amount).ok()
    }
}

/// Divides `number` by `prime` as often as possible. Returns the quotient and the number of divisions.
fn without(prime: u128, mut number: u128) -> (u128, i32) {
    let mut times = 0;
    while number.is_multiple_of(prime) {
        number /= prime;
        times += 1;
    }
    (number, times)
}

/// Returns `base` to the power of `exponent` as a multiplier and a divisor. Each is `None` if it exceeds 128 bits.
fn power(base: u128, exponent: i32) -> (Option<u128>, Option<u128>) {
    let power = base.checked_pow(exponent.unsigned_abs());
    if exponent < 0 { (Some(1), power) } else { (power, Some(1)) }
}

/// Returns the exponents of two and of ten that the suffix of a quantity (`Ki`, `m`, `e3`) stands for; `None` for any other suffix.
fn exponents(suffix: &str) -> Option<(i32, i32)> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let place = |suffixes: &[&str]| {
        (0..).zip(suffixes).find_map(|(place, known)| (*known == suffix).then_some(place))
    };
    if let Some(place) = place(&DECIMAL) {
        return Some((0, 3 * (place - 3)));
    }
    if let Some(place) = place(&BINARY) {
        return Some((10 * (place + 1), 0));
    }
    Some((0, suffix.strip_prefix(['e', 'E'])?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_rounded_up() {
        for (text, factor, expected) in [
            ("500m", 1000, 500),
            ("2", 1000, 2000),
            ("+2", 1000, 2000),
            ("1.5", 1000, 1500),
            ("0.0001", 1000, 1),
            ("1n", 1000, 1),
            ("100u", 1000, 1),
            (".5", 1000, 500),
            ("5.", 1, 5),
            ("1Ki", 1, 1024),
            ("1.5Gi", 1, 3 << 29),
            ("1e3", 1, 1000),
            ("1E-3", 1000, 1),
            ("3E", 1, 3_000_000_000_000_000_000),
            ("18446744073709551615", 1, u64::MAX),
            ("0", 1, 0),
            ("0Ei", 1000, 0),
            ("1e-99", 1, 1),
            ("7", 0, 0),
        ] {
            assert_eq!(
                ExactQuantity::parse(text).and_then(|amount| amount.times(factor)),
                Some(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_negative_or_too_much_is_no_number() {
        for text in ["-1", "-1n", "20E", "1e40", "1e2147483647", "18446744073709551616"] {
            assert_eq!(ExactQuantity::parse(text).expect(text).times(1000), None, "{text}");
        }
        assert_eq!(ExactQuantity::parse("-0").and_then(|amount| amount.times(1)), Some(0));
    }

    #[test]
    fn what_is_no_quantity_is_none() {
        for text in [
            "",
            ".",
            "-",
            "--1",
            "x",
            "1x",
            "1.2.3",
            "1 Gi",
            "1gi",
            "one",
            "e3",
            "1.5e-2147483648",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(ExactQuantity::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_amount_is_the_same_however_it_is_written() {
        for (one, other) in [
            ("2000m", "2"),
            ("4096M", "4096000000"),
            ("4Gi", "4294967296"),
            ("1.5", "1500m"),
            ("1e3", "1k"),
            ("2E", "2000P"),
            ("12e-1", "1200m"),
            ("0", "0Ki"),
            ("-0", "0"),
            ("1e40", "10e39"),
        ] {
            assert!(ExactQuantity::parse(one).is_some(), "{one}");
            assert_eq!(ExactQuantity::parse(one), ExactQuantity::parse(other), "{one} and {other}");
        }
        for (one, other) in [("2", "2m"), ("1Ki", "1k"), ("1", "-1"), ("4Gi", "4G")] {
            assert_ne!(ExactQuantity::parse(one), ExactQuantity::parse(other), "{one} and {other}");
        }
    }
}
