//! Amounts of resources, compared by what they say: an API server writes `2` where it was told `2000m`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Billionths, the smallest unit that there is.
const ONE: i128 = 1_000_000_000;

/// Whether both name the same resources and amounts.
pub(super) fn same(
    one: Option<&BTreeMap<String, Quantity>>,
    other: Option<&BTreeMap<String, Quantity>>,
) -> bool {
    let nothing = BTreeMap::new();
    let (one, other) = (one.unwrap_or(&nothing), other.unwrap_or(&nothing));
    let equal = |(one, other): (&Quantity, &Quantity)| {
        one == other || billionths(&one.0).is_some_and(|amount| Some(amount) == billionths(&other.0))
    };
    one.keys().eq(other.keys()) && one.values().zip(other.values()).all(equal)
}

/// The amount; none where it is none, or larger than any that means something.
fn billionths(text: &str) -> Option<i128> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && !matches!(letter, '.' | '+' | '-'));
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let factor = factor(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let parts = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let amount = digits.checked_mul(factor)?;
    // What is finer than a billionth is rounded up by the server, and asked for by nobody.
    (amount % parts == 0).then_some(amount / parts)
}

/// What one unit of a suffix is, in billionths.
fn factor(suffix: &str) -> Option<i128> {
    let power = |base: i128, exponent: usize| base.checked_pow(u32::try_from(exponent).ok()?);
    let place = |names: &[&str]| names.iter().position(|name| *name == suffix);
    if let Some(thousands) = place(&["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]) {
        return power(1000, thousands);
    }
    if let Some(units) = place(&["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]) {
        return power(1024, units + 1)?.checked_mul(ONE);
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let scale = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent < 0 { (ONE % scale == 0).then_some(ONE / scale) } else { ONE.checked_mul(scale) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert!(billionths(one).is_some(), "{one}");
            assert_eq!(billionths(one), billionths(other), "{one} and {other}");
        }
        for (one, other) in [("2", "2m"), ("1Ki", "1k"), ("1", "-1"), ("4Gi", "4G")] {
            assert_ne!(billionths(one), billionths(other), "{one} and {other}");
        }
        for text in ["", "x", "1x", "1.2.3", "99999999999999999999999999999999999999999E"] {
            assert_eq!(billionths(text), None, "{text}");
        }
    }

    #[test]
    fn resources_are_the_same_when_all_of_them_are() {
        let amounts = |amounts: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
            amounts.iter().map(|(name, text)| ((*name).to_owned(), Quantity((*text).to_owned()))).collect()
        };
        let told = amounts(&[("cpu", "2000m"), ("pods", "16")]);
        assert!(same(Some(&told), Some(&amounts(&[("cpu", "2"), ("pods", "16")]))));
        assert!(!same(Some(&told), Some(&amounts(&[("cpu", "2")]))) && !same(Some(&told), None));
        assert!(!same(Some(&told), Some(&amounts(&[("cpu", "2"), ("pods", "17")]))));
        let odd = amounts(&[("cpu", "much")]);
        assert!(same(Some(&odd), Some(&odd.clone())) && same(None, Some(&BTreeMap::new())));
    }
}
