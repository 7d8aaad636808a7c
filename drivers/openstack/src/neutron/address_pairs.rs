//! The pairs of addresses with which the port of a node may send besides its own.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use dashmap::DashMap;
use ipnet::IpNet;
use staffetta_driver::{DriverError, MacAddress, PortId, Reason};

use super::api::Neutron;
use super::together::Together;
use super::wire::{AddressPair, Port, PortChange};
use crate::error::OpenStackError;

const READ: &str = "read the address pairs of the port of the node";
const WRITE: &str = "change the address pairs of the port of the node";

/// The changes of one port.
type Edits = Together<Edit, Result<(), DriverError>>;

/// Changes the pairs of nodes' ports. Neutron knows lists of them only, so that a change is refused when somebody else
/// changed the port since it was read; changes of this process never get into each other's way.
#[derive(Debug)]
pub(crate) struct AddressPairs {
    neutron: Neutron,
    attempts: NonZeroU32,
    parents: DashMap<PortId, Arc<Edits>>,
}

/// A change of the pairs of a port.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// These are to be there.
    Add(Vec<AddressPair>),
    /// These are not.
    Remove(Vec<AddressPair>),
}

impl AddressPairs {
    /// Tries so often when others change the same port.
    pub(crate) fn new(neutron: Neutron, attempts: NonZeroU32) -> Self {
        Self { neutron, attempts, parents: DashMap::new() }
    }

    /// Makes a change. All changes of one port that come meanwhile are made together.
    pub(crate) async fn edit(&self, parent: &PortId, edit: Edit) -> Result<(), DriverError> {
        let together = Arc::clone(&self.parents.entry(parent.clone()).or_default());
        let done = together.call(edit, |edits| self.make(parent, edits)).await;
        // The place and this one: nobody else is at work.
        self.parents.remove_if(parent, |_, edits| Arc::strong_count(edits) == 2);
        done
    }

    async fn make(&self, parent: &PortId, edits: Vec<Edit>) -> Vec<Result<(), DriverError>> {
        match self.attempt(parent, &edits).await {
            Ok(()) => edits.iter().map(|_| Ok(())).collect(),
            // There is not room for all of them, but there may be for some.
            Err(error) if error.reason() == Reason::Quota && edits.len() > 1 => {
                let mut answers = Vec::new();
                for edit in edits {
                    answers.push(self.attempt(parent, &[edit]).await);
                }
                answers
            }
            Err(error) if error.reason() == Reason::NotFound => {
                // A port that is gone has no pairs.
                self.parents.remove(parent);
                let answer = |edit: &Edit| match edit {
                    Edit::Add(_) => Err(error.clone()),
                    Edit::Remove(_) => Ok(()),
                };
                edits.iter().map(answer).collect()
            }
            Err(error) => edits.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn attempt(&self, parent: &PortId, edits: &[Edit]) -> Result<(), DriverError> {
        let id = parent.as_str().into();
        let mut last = None;
        for _ in 0..self.attempts.get() {
            let read = self.neutron.port(READ, &id).await?;
            let Port { allowed_address_pairs: old, revision_number, .. } = read.ok_or_else(|| {
                DriverError::new(Reason::NotFound, READ).detail(format!("port {parent} does not exist"))
            })?;
            let new = edited(&old, edits);
            if new == old {
                return Ok(());
            }
            let change = PortChange { allowed_address_pairs: Some(new), ..PortChange::default() };
            match self.neutron.change_port(WRITE, &id, &change, Some(revision_number)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.status() == Some(412) => last = Some(error),
                Err(error) => return Err(refused(error)),
            }
        }
        Err(last.map_or_else(|| DriverError::new(Reason::Conflict, WRITE), DriverError::from))
    }
}

/// A port may have so many pairs and no more (`max_allowed_address_pair`, 10 where nobody raised it): one that goes makes
/// room, so that it is worth waiting.
fn refused(error: OpenStackError) -> DriverError {
    if error.is("AllowedAddressPairExhausted") {
        return DriverError::new(Reason::Quota, WRITE).detail(error.to_string());
    }
    error.into()
}

/// The pairs after all the changes, in their order. What is there already stays as it is written.
fn edited(old: &[AddressPair], edits: &[Edit]) -> Vec<AddressPair> {
    let mut new = old.to_vec();
    for edit in edits {
        match edit {
            Edit::Add(pairs) => {
                for pair in pairs {
                    if !new.iter().any(|other| same(other, pair)) {
                        new.push(pair.clone());
                    }
                }
            }
            Edit::Remove(pairs) => new.retain(|other| !pairs.iter().any(|pair| same(other, pair))),
        }
    }
    new
}

/// Whether two pairs say the same, however it is written.
fn same(one: &AddressPair, other: &AddressPair) -> bool {
    let address = |pair: &AddressPair| {
        let text = &pair.ip_address;
        text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| text.clone())
    };
    let hardware =
        |pair: &AddressPair| pair.mac_address.as_deref().and_then(|text| text.parse::<MacAddress>().ok());
    address(one) == address(other) && hardware(one) == hardware(other)
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
