//! Compares resource quantities by amount: the API server may store `2` for a written `2000m`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use staffetta_driver::ExactQuantity;

/// Returns `true` if both maps contain the same resources with the same amounts. `None` counts as an empty map.
pub(super) fn same(
    one: Option<&BTreeMap<String, Quantity>>,
    other: Option<&BTreeMap<String, Quantity>>,
) -> bool {
    let nothing = BTreeMap::new();
    let (one, other) = (one.unwrap_or(&nothing), other.unwrap_or(&nothing));
    let equal = |(one, other): (&Quantity, &Quantity)| {
        one == other
            || ExactQuantity::parse(&one.0)
                .is_some_and(|amount| Some(amount) == ExactQuantity::parse(&other.0))
    };
    one.keys().eq(other.keys()) && one.values().zip(other.values()).all(equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_the_same_when_all_of_them_are() {
        let amounts = |amounts: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
            amounts.iter().map(|(name, text)| ((*name).to_owned(), Quantity((*text).to_owned()))).collect()
        };
        let reported = amounts(&[("cpu", "2000m"), ("pods", "16")]);
        assert!(same(Some(&reported), Some(&amounts(&[("cpu", "2"), ("pods", "16")]))));
        assert!(!same(Some(&reported), Some(&amounts(&[("cpu", "2")]))) && !same(Some(&reported), None));
        assert!(!same(Some(&reported), Some(&amounts(&[("cpu", "2"), ("pods", "17")]))));
        let odd = amounts(&[("cpu", "much")]);
        assert!(same(Some(&odd), Some(&odd.clone())) && same(None, Some(&BTreeMap::new())));
        assert!(!same(Some(&odd), Some(&amounts(&[("cpu", "little")]))));
    }
}
