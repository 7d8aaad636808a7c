//! The simulated public addresses, without a lock. The current time is an argument of their methods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio::time::Instant;

use super::MemoryOptions;
use super::addresses::AddressPool;
use super::ids::IdSequence;
use super::mark::Mark;
use staffetta_driver::{
    Allocation, ClusterId, DriverError, Owner, PortId, PublicIp, PublicIpId, PublicIpRequest, Reason,
};

/// A pool of public addresses, and the addresses that users created.
#[derive(Debug)]
pub(super) struct PublicIps {
    pool: AddressPool,
    /// The existing addresses by id: those allocated from the pool, and those that users created.
    pub(super) by_id: BTreeMap<PublicIpId, MemoryPublicIp>,
    ids: IdSequence,
}

/// A public address with its ownership mark.
#[derive(Debug)]
pub(super) struct MemoryPublicIp {
    /// The ownership mark, which an address that a user created does not have.
    pub(super) mark: Mark,
    /// The address, and the port with which it is associated.
    pub(super) public_ip: PublicIp,
}

impl PublicIps {
    /// Creates a pool of the addresses in `options`, all of them free.
    pub(super) fn new(options: &MemoryOptions) -> Self {
        let pool = AddressPool::new(options.public_ips, None, options.cool_down());
        Self { pool, by_id: BTreeMap::new(), ids: IdSequence::default() }
    }

    /// Inserts an address that a user created, and returns its id.
    pub(super) fn insert_user_address(&mut self, ip: IpAddr) -> PublicIpId {
        self.insert(Mark::default(), ip, Allocation::User).id
    }

    /// Returns the address that the user named. Without one, returns the address of the owner, or else the address that the request says to
    /// adopt, or else a new one from the pool. An address with a mark or an association with another port is not adopted; an adopted one
    /// gets the mark of the owner. If the pool is empty, the error is [`Reason::NoAddress`]; for a named address, the errors are those of
    /// [`named`](Self::named).
    pub(super) fn acquire(
        &mut self,
        cluster: &ClusterId,
        owner: &Owner,
        request: &PublicIpRequest,
        now: Instant,
    ) -> Result<PublicIp, DriverError> {
        if let Some(ip) = request.named {
            return self.named(cluster, owner, ip, &request.port);
        }
        let is_own = |held: &MemoryPublicIp| held.mark.is_of(cluster, Some(owner));
        let is_adoptable = |held: &MemoryPublicIp| {
            let leads_elsewhere = held.public_ip.port.as_ref().is_some_and(|port| *port != request.port);
            let named = request.adopt.as_ref() == Some(&held.public_ip.id);
            named && held.mark.cluster.is_none() && !leads_elsewhere
        };
        let usable = self.by_id.values_mut().filter(|held| is_own(held) || is_adoptable(held));
        if let Some(held) = usable.max_by_key(|held| is_own(held)) {
            held.mark = Mark::new(cluster, owner);
            held.public_ip.allocation = Allocation::Pool;
            return Ok(held.public_ip.clone());
        }
        if let Some(ip) = self.pool.take(now) {
            return Ok(self.insert(Mark::new(cluster, owner), ip, Allocation::Pool));
        }
        let error =
            DriverError::new(Reason::NoAddress, "allocate a public address").detail("the pool is empty");
        Err(match self.pool.next_free(now) {
            Some(delay) => error.after(delay),
            None => error,
        })
    }

    /// Returns the address that the user named. If it does not exist, the error is [`Reason::NotFound`]. If it is associated with another
    /// port, or has another owner, the error is [`Reason::Conflict`].
    fn named(
        &self,
        cluster: &ClusterId,
        owner: &Owner,
        ip: IpAddr,
        port: &PortId,
    ) -> Result<PublicIp, DriverError> {
        let failed = |reason| DriverError::new(reason, "find the public address that the user named");
        let held = self.by_id.values().find(|held| held.public_ip.ip == ip);
        let held = held.ok_or_else(|| failed(Reason::NotFound).detail(format!("there is no {ip}")))?;
        let free = held.public_ip.port.as_ref().is_none_or(|associated| associated == port);
        if !free || held.mark.owner.is_some() && !held.mark.is_of(cluster, Some(owner)) {
            return Err(failed(Reason::Conflict).detail(format!("{ip} is in use")));
        }
        Ok(held.public_ip.clone())
    }

    /// Gives an address without an ownership mark the mark of the owner. Fails if it does not exist or has another mark.
    pub(super) fn adopt(
        &mut self,
        cluster: &ClusterId,
        owner: &Owner,
        id: &PublicIpId,
    ) -> Result<(), Reason> {
        let held = self.by_id.get_mut(id).ok_or(Reason::NotFound)?;
        held.mark.adopt(cluster, owner)?;
        held.public_ip.allocation = Allocation::Pool;
        Ok(())
    }

    /// Associates the address with the port. If it does not exist, the error is [`Reason::NotFound`]; if it is associated with another
    /// port, the error is [`Reason::Conflict`].
    pub(super) fn associate(&mut self, id: &PublicIpId, port: &PortId) -> Result<(), DriverError> {
        let failed =
            |reason| DriverError::new(reason, "associate a public address").detail(format!("address {id}"));
        let held = self.by_id.get_mut(id).ok_or_else(|| failed(Reason::NotFound))?;
        if held.public_ip.port.as_ref().is_some_and(|leads_to| leads_to != port) {
            return Err(failed(Reason::Conflict));
        }
        held.public_ip.port = Some(port.clone());
        Ok(())
    }

    /// Disassociates the address from the port. Does nothing if it is not associated with it.
    pub(super) fn disassociate(&mut self, id: &PublicIpId, port: &PortId) {
        if let Some(held) = self.by_id.get_mut(id)
            && held.public_ip.port.as_ref() == Some(port)
        {
            held.public_ip.port = None;
        }
    }

    /// Disassociates all addresses from a port, which is being removed.
    pub(super) fn forget_port(&mut self, port: &PortId) {
        for held in self.by_id.values_mut().filter(|held| held.public_ip.port.as_ref() == Some(port)) {
            held.public_ip.port = None;
        }
    }

    /// Releases the address if its ownership mark names the cluster and the owner.
    pub(super) fn release(&mut self, cluster: &ClusterId, owner: &Owner, id: &PublicIpId, now: Instant) {
        if self.by_id.get(id).is_some_and(|held| held.mark.is_of(cluster, Some(owner)))
            && let Some(held) = self.by_id.remove(id)
        {
            self.pool.give_back(held.public_ip.ip, now);
        }
    }

    /// Adds an address with a new id, and returns it.
    fn insert(&mut self, mark: Mark, ip: IpAddr, allocation: Allocation) -> PublicIp {
        let id = PublicIpId::from(self.ids.next(6));
        let public_ip = PublicIp { id: id.clone(), ip, allocation, port: None };
        self.by_id.insert(id, MemoryPublicIp { mark, public_ip: public_ip.clone() });
        public_ip
    }
}
