//! Edits the allowed address pairs of the ports of nodes. An allowed address pair lets a port send and
//! receive for an address that is not its own.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use dashmap::DashMap;
use ipnet::IpNet;
use serde_json::json;
use staffetta_driver::{DriverError, MacAddress, PortId, Reason};

use super::api::NeutronApi;
use super::wire::{AddressPair, PortBody};
use crate::error::{DriverResult, OpenStackError};
use crate::poll::Coalescer;

const READ: &str = "read the address pairs of the port of the node";
const WRITE: &str = "change the address pairs of the port of the node";

/// The waiting edits of the address pairs of one port, which a [`Coalescer`] joins to one update.
type Edits = Coalescer<Edit, DriverResult<()>>;

/// Edits the allowed address pairs of ports. Each update replaces the whole list in Neutron, so the update is rejected if the port was
/// changed since the list was read. Simultaneous edits of this process are made by one update, so they do not conflict with each other.
#[derive(Debug)]
pub(crate) struct AddressPairs {
    neutron: NeutronApi,
    /// The maximum number of attempts of an update while other programs change the port.
    attempts: NonZeroU32,
    ports: DashMap<PortId, Arc<Edits>>,
}

/// An edit of the allowed address pairs of one port.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Adds these pairs. Existing ones stay.
    Add(Vec<AddressPair>),
    /// Removes these pairs. Missing ones are ignored.
    Remove(Vec<AddressPair>),
}

impl AddressPairs {
    /// Creates the editor of allowed address pairs. If other programs change the same port, an edit is attempted up to `attempts` times.
    pub(crate) fn new(neutron: NeutronApi, attempts: NonZeroU32) -> Self {
        Self { neutron, attempts, ports: DashMap::new() }
    }

    /// Makes an edit. All edits of the same port that arrive while a request is in flight are made by the next request. The error is
    /// `Quota` if the port has the maximum number of pairs, `NotFound` if pairs are added to a port that does not exist, and `Conflict` if
    /// other programs changed the port during all attempts.
    pub(crate) async fn edit(&self, port: &PortId, edit: Edit) -> DriverResult<()> {
        let edits = Arc::clone(&self.ports.entry(port.clone()).or_default());
        let done = edits.call(edit, |edits| self.apply(port, edits)).await;
        // Two references are those of the map and of this call: no other call is waiting.
        self.ports.remove_if(port, |_, edits| Arc::strong_count(edits) == 2);
        done
    }

    /// Makes all of these edits of a port together, or each one alone if the port does not exist or does not have room for all. The results
    /// are in the order of `edits`.
    async fn apply(&self, port: &PortId, edits: Vec<Edit>) -> Vec<DriverResult<()>> {
        match self.attempt(port, &edits).await {
            // There may be room for some of them; of a port that does not exist, pairs can be removed only.
            Err(error) if edits.len() > 1 && matches!(error.reason(), Reason::Quota | Reason::NotFound) => {
                let mut results = Vec::new();
                for edit in edits {
                    results.push(self.attempt(port, &[edit]).await);
                }
                results
            }
            result => vec![result; edits.len()],
        }
    }

    /// Makes all of these edits of a port by one read and one update. Neutron rejects the update if the port was changed or deleted between
    /// the two. In that case both are repeated, up to the maximum number of attempts.
    async fn attempt(&self, port: &PortId, edits: &[Edit]) -> DriverResult<()> {
        let id = port.as_str().into();
        let mut attempts = self.attempts.get();
        loop {
            attempts -= 1;
            let Some(read) = self.neutron.port(READ, &id).await? else {
                // A port that does not exist has no pairs.
                if edited(&[], edits).is_empty() {
                    return Ok(());
                }
                let detail = format!("port {port} does not exist");
                return Err(DriverError::new(Reason::NotFound, READ).detail(detail));
            };
            let PortBody { allowed_address_pairs: old, revision_number, .. } = read;
            let new = edited(&old, edits);
            if new == old {
                return Ok(());
            }
            let change = json!({ "allowed_address_pairs": new });
            match self.neutron.update_port(WRITE, &id, &change, revision_number).await {
                Ok(_) => return Ok(()),
                Err(error) if attempts > 0 && matches!(error.status(), Some(404 | 412)) => {}
                Err(error) => return Err(rejected(error)),
            }
        }
    }
}

/// Returns the error of a rejected update. If the maximum number of pairs (`max_allowed_address_pair`, by default 10) is exceeded, the
/// error is [`Reason::Quota`], which is transient, because removed pairs make room.
fn rejected(error: OpenStackError) -> DriverError {
    if error.is("AllowedAddressPairExhausted") {
        return DriverError::new(Reason::Quota, WRITE).detail(error.to_string());
    }
    error.into()
}

/// Returns the pairs after the edits, which are applied in their order. Existing pairs keep their notation.
fn edited(old: &[AddressPair], edits: &[Edit]) -> Vec<AddressPair> {
    let mut new = old.to_vec();
    for edit in edits {
        match edit {
            Edit::Add(pairs) => {
                for pair in pairs {
                    if !new.iter().any(|other| is_same(other, pair)) {
                        new.push(pair.clone());
                    }
                }
            }
            Edit::Remove(pairs) => new.retain(|other| !pairs.iter().any(|pair| is_same(other, pair))),
        }
    }
    new
}

/// Returns `true` if two pairs contain the same addresses, even in different notations.
fn is_same(one: &AddressPair, other: &AddressPair) -> bool {
    let network = |pair: &AddressPair| {
        let text = &pair.ip_address;
        text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| text.clone())
    };
    let mac_address =
        |pair: &AddressPair| pair.mac_address.as_deref().and_then(|text| text.parse::<MacAddress>().ok());
    network(one) == network(other) && mac_address(one) == mac_address(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ip: &str, mac: &str) -> AddressPair {
        AddressPair { ip_address: ip.into(), mac_address: Some(mac.into()) }
    }

    #[test]
    fn a_pair_that_is_there_in_other_words_is_neither_added_again_nor_left() {
        let old = [pair("10.0.0.5/32", "FA:16:3E:00:00:01"), pair("10.0.0.0/24", "fa:16:3e:00:00:02")];
        let wish = vec![pair("10.0.0.5", "fa:16:3e:00:00:01")];
        assert_eq!(edited(&old, &[Edit::Add(wish.clone())]), old);
        assert_eq!(edited(&old, &[Edit::Remove(wish)]), old[1..]);
    }

    #[test]
    fn changes_are_made_in_their_order_and_leave_others_alone() {
        let (foreign, mine) = (pair("10.0.0.9", "fa:16:3e:00:00:09"), pair("10.0.0.5", "fa:16:3e:00:00:01"));
        let edits = [
            Edit::Remove(vec![mine.clone()]),
            Edit::Add(vec![mine.clone()]),
            Edit::Add(vec![pair("fd00::5", "fa:16:3e:00:00:01")]),
            Edit::Remove(vec![
                pair("fd00:0::5/128", "fa:16:3e:00:00:01"),
                pair("10.0.0.5", "fa:16:3e:00:00:02"),
            ]),
        ];
        assert_eq!(edited(std::slice::from_ref(&foreign), &edits), [foreign, mine]);
    }
}
