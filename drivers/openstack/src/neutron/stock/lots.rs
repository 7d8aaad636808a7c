//! How an order is filled: in lots, which become smaller when there is not room for all of one.

use std::future::Future;

use staffetta_driver::{DriverError, Reason, StockMade, Vif};

/// The most ports that are made by one call: several seconds' work for Neutron.
const LARGEST: usize = 100;

/// What came of one lot.
#[derive(Debug, Default)]
pub(super) struct Lot {
    pub(super) vifs: Vec<Vif>,
    pub(super) failure: Option<DriverError>,
}

impl From<DriverError> for Lot {
    fn from(error: DriverError) -> Self {
        Self { vifs: Vec::new(), failure: Some(error) }
    }
}

/// Makes a first lot of `count` by `make`, which makes all of a lot or none of it: who waits has his before the rest is asked
/// for. When the quota or the subnet has not room for a lot, half of it is tried, and so on to the end: what there is room for
/// is made, by few calls.
pub(super) async fn in_lots<F: Future<Output = Lot>>(count: usize, make: impl Fn(usize) -> F) -> StockMade {
    let (mut made, mut scarcely) = (StockMade::default(), false);
    let mut size = LARGEST;
    while made.vifs.len() < count && made.failure.is_none() {
        size = size.min(count - made.vifs.len());
        let Lot { vifs, failure } = make(size).await;
        made.vifs.extend(vifs);
        match failure {
            Some(error) if scarce(&error) && size > 1 => (size, scarcely) = (size / 2, true),
            None if !scarcely => break,
            failure => made.failure = failure,
        }
    }
    made
}

/// Whether there may be room for fewer.
fn scarce(error: &DriverError) -> bool {
    matches!(error.reason(), Reason::Quota | Reason::NoAddress) && !error.ambiguous()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;

    fn vifs(count: usize) -> Vec<Vif> {
        let vif = json!({
            "id": "a", "address": "fa:16:3e:00:00:01", "active": false, "plugin": "ovs", "subnets": [],
            "class": { "macvlan_nested": { "vif_name": "tap" } }, "has_traffic_filtering": false,
            "network": { "id": "n", "should_provide_bridge": false, "should_provide_vlan": false },
            "preserve_on_delete": false,
        });
        vec![serde_json::from_value(vif).unwrap(); count]
    }

    /// Orders `count` of a world that has room for so many; answers what was made and the sizes of the calls.
    async fn order(count: usize, room: usize, error: DriverError) -> (StockMade, Vec<usize>) {
        let (left, calls) = (Mutex::new(room), Mutex::new(Vec::new()));
        let made = in_lots(count, |size| {
            calls.lock().unwrap().push(size);
            let mut left = left.lock().unwrap();
            let lot = if size <= *left {
                *left -= size;
                Lot { vifs: vifs(size), failure: None }
            } else {
                error.clone().into()
            };
            async move { lot }
        });
        (made.await, calls.into_inner().unwrap())
    }

    #[tokio::test]
    async fn of_a_large_order_a_lot_of_bounded_size_is_made_and_told_at_once() {
        let (made, calls) = order(230, 1000, DriverError::new(Reason::Quota, "make")).await;
        assert_eq!((made.vifs.len(), made.failure.is_none(), calls), (100, true, vec![100]));
    }

    #[tokio::test]
    async fn what_there_is_room_for_is_made_when_there_is_not_room_for_all() {
        for reason in [Reason::Quota, Reason::NoAddress] {
            let (made, calls) = order(50, 20, DriverError::new(reason, "make")).await;
            assert_eq!((made.vifs.len(), made.failure.unwrap().reason()), (20, reason));
            assert_eq!(calls, [50, 25, 12, 12, 6, 6, 3, 1, 1, 1]);
        }
    }

    #[tokio::test]
    async fn any_other_failure_ends_the_order_at_once() {
        let (made, calls) = order(50, 20, DriverError::new(Reason::Unavailable, "make")).await;
        assert_eq!((made.vifs.len(), calls), (0, vec![50]));
        assert!(made.failure.is_some());
    }
}
