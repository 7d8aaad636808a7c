//! Quantities as Kubernetes writes them: `500m`, `1.5Gi`, `1e3`.

/// `text` times `factor`, rounded up to a whole number; none where it is no quantity, is negative or has no place in 64
/// bits.
pub(super) fn scaled(text: &str, factor: u64) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let (binary, mut decimal) = exponents(suffix)?;
    decimal -= i32::try_from(fraction.len()).ok()?;
    let mut value: u128 = digits.parse().ok()?;
    value = value.checked_mul(factor.into())?.checked_mul(1_u128 << binary)?;
    let power = 10_u128.checked_pow(decimal.unsigned_abs());
    let value = match (decimal < 0, power) {
        (false, Some(power)) => value.checked_mul(power)?,
        (false, None) if value == 0 => 0,
        (false, None) => return None,
        (true, Some(power)) => value.div_ceil(power),
        (true, None) => u128::from(value > 0),
    };
    u64::try_from(value).ok()
}

/// The powers of two and of ten that a suffix stands for.
fn exponents(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => (0, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_rounded_up() {
        for (text, factor, expected) in [
            ("500m", 1000, 500),
            ("2", 1000, 2000),
            ("1.5", 1000, 1500),
            ("0.0001", 1000, 1),
            ("1n", 1000, 1),
            ("100u", 1000, 1),
            (".5", 1000, 500),
            ("1Ki", 1, 1024),
            ("1.5Gi", 1, 3 << 29),
            ("1e3", 1, 1000),
            ("1E-3", 1000, 1),
            ("3E", 1, 3_000_000_000_000_000_000),
            ("0", 1, 0),
            ("1e-99", 1, 1),
        ] {
            assert_eq!(scaled(text, factor), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_or_too_much_is_none() {
        for text in [
            "",
            ".",
            "-1",
            "1.2.3",
            "1 Gi",
            "1gi",
            "one",
            "e3",
            "20E",
            "1e40",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(scaled(text, 1000), None, "{text}");
        }
    }
}
