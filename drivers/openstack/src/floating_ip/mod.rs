//! The driver `neutron_floating_ip` of public addresses: floating IPs that lead to the ports of load balancers.
//!
//! A floating IP out of the pool is found by its description, which Neutron takes in the call that makes it. One that the
//! user made bears no mark, and is left as it is but for where it leads to.

mod wire;

use async_trait::async_trait;
use serde_json::{Value, json};
use staffetta_driver::{
    Allocation, ClusterId, DriverError, Marked, NetworkId, Owner, PortId, PublicIp, PublicIpId,
    PublicIpRequest, Reason, ServicePublicIpDriver, SubnetId,
};

use self::wire::{FIELDS, FloatingIp, NewFloatingIp};
use crate::cloud::{Call, Cloud, Service, well_formed};
use crate::error::{OpenStackError, existing};
use crate::mark;

const LIST: &str = "list the public addresses of this cluster";
const NAMED: &str = "find the public address that the user named";

/// The driver `neutron_floating_ip`.
#[derive(Clone, Debug)]
pub struct NeutronFloatingIps {
    network: Service,
    cluster: ClusterId,
    pool: NetworkId,
    subnet: Option<SubnetId>,
}

impl NeutronFloatingIps {
    /// Takes floating IPs out of the external network `pool`, and there out of `subnet` if one is named, and marks them
    /// with `cluster`.
    pub fn new(cloud: &Cloud, cluster: ClusterId, pool: NetworkId, subnet: Option<SubnetId>) -> Self {
        Self { network: cloud.network(), cluster, pool, subnet }
    }

    async fn list(
        &self,
        step: &'static str,
        filter: &[(&'static str, String)],
    ) -> Result<Vec<FloatingIp>, OpenStackError> {
        let call = self.network.get(step, "floatingips").fields(&FIELDS);
        let call = filter.iter().fold(call, |call, (name, value)| call.query(*name, value));
        call.list("floatingips").await
    }

    async fn read(&self, step: &'static str, id: &PublicIpId) -> Result<Option<FloatingIp>, OpenStackError> {
        let call = self.network.get(step, format!("floatingips/{id}")).fields(&FIELDS);
        existing(call.answer_in("floatingip").await)
    }

    /// Changes a floating IP that is still as it was read.
    async fn change(
        &self,
        step: &'static str,
        read: &FloatingIp,
        change: Value,
    ) -> Result<FloatingIp, OpenStackError> {
        let call = self.network.put(step, format!("floatingips/{}", read.id));
        let call = call.json(&json!({ "floatingip": change }));
        read.revision_number.into_iter().fold(call, Call::revision).answer_in("floatingip").await
    }

    async fn marked(&self, owner: &Owner) -> Result<Vec<FloatingIp>, OpenStackError> {
        let description = ("description", mark::description(&self.cluster, owner));
        let mut listed = self.list(LIST, &[description]).await?;
        listed.retain(|found| {
            mark::owner_in(&found.description, &self.cluster).is_some_and(|marked| marked.uid == owner.uid)
        });
        Ok(listed)
    }

    fn public_ip(&self, found: FloatingIp) -> PublicIp {
        let ours = mark::owner_in(&found.description, &self.cluster).is_some();
        let allocation = if ours { Allocation::Pool } else { Allocation::User };
        PublicIp { id: found.id, ip: found.address, allocation, port: found.port_id }
    }

    /// The address that the user named: it must exist, be nobody else's, and lead nowhere else.
    async fn named(
        &self,
        owner: &Owner,
        request: &PublicIpRequest,
        ip: String,
    ) -> Result<PublicIp, DriverError> {
        let failed = |reason, why: &str| DriverError::new(reason, NAMED).detail(format!("{ip} {why}"));
        let filter = [("floating_ip_address", ip.clone()), ("project_id", request.project.to_string())];
        let listed = self.list(NAMED, &filter).await?;
        let Some(found) = listed.into_iter().find(|found| found.is_of(&request.project)) else {
            return Err(failed(Reason::NotFound, "is no floating IP of this project"));
        };
        let owned = mark::owner_in(&found.description, &self.cluster);
        let is_anothers = match &owned {
            Some(marked) => marked.uid != owner.uid,
            None => mark::is_marked(&found.description, &[]),
        };
        if is_anothers {
            return Err(failed(Reason::Conflict, "was made for another service"));
        }
        if found.port_id.as_ref().is_some_and(|leads_to| *leads_to != request.port) {
            return Err(failed(Reason::Conflict, "leads to another port"));
        }
        Ok(self.public_ip(found))
    }

    /// The one that a predecessor took, marked for `owner` from now on; none where it is gone, another's, or leads elsewhere:
    /// then it is no predecessor's of this one, whoever says so.
    async fn adopted(
        &self,
        owner: &Owner,
        request: &PublicIpRequest,
        id: &PublicIpId,
    ) -> Result<Option<PublicIp>, OpenStackError> {
        const STEP: &str = "adopt a public address";
        if !well_formed(id.as_str()) {
            return Ok(None);
        }
        let Some(found) = self.read(STEP, id).await? else { return Ok(None) };
        let leads_elsewhere = found.port_id.as_ref().is_some_and(|port| *port != request.port);
        if mark::is_marked(&found.description, &[]) || leads_elsewhere || !found.is_of(&request.project) {
            return Ok(None);
        }
        let change = json!({ "description": mark::description(&self.cluster, owner) });
        Ok(Some(self.public_ip(self.change(STEP, &found, change).await?)))
    }
}

#[async_trait]
impl ServicePublicIpDriver for NeutronFloatingIps {
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Marked<PublicIp>>, DriverError> {
        let told = match owner {
            Some(owner) => self.marked(owner).await?,
            None => self.list(LIST, &[]).await?,
        };
        let told = told.into_iter().filter_map(|found| {
            let owner = mark::owner_in(&found.description, &self.cluster);
            // Another cluster's are none of our business.
            let known = owner.is_some() || !mark::is_marked(&found.description, &[]);
            known.then(|| Marked { owner, thing: self.public_ip(found) })
        });
        Ok(told.collect())
    }

    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError> {
        if let Some(ip) = request.named {
            return self.named(owner, request, ip.to_string()).await;
        }
        if let Some(found) = self.marked(owner).await?.into_iter().next() {
            return Ok(self.public_ip(found));
        }
        if let Some(id) = &request.adopt
            && let Some(adopted) = self.adopted(owner, request, id).await?
        {
            return Ok(adopted);
        }
        let new = NewFloatingIp {
            floating_network_id: &self.pool,
            subnet_id: self.subnet.as_ref(),
            project_id: &request.project,
            description: mark::description(&self.cluster, owner),
        };
        let call = self.network.post("acquire a public address", "floatingips");
        let made = call.json(&json!({ "floatingip": new })).answer_in("floatingip").await?;
        Ok(self.public_ip(made))
    }

    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        const STEP: &str = "associate a public address";
        let failed =
            |reason, why: &str| DriverError::new(reason, STEP).detail(format!("{} {why}", public_ip.ip));
        let known = well_formed(public_ip.id.as_str());
        let found = if known { self.read(STEP, &public_ip.id).await? } else { None };
        let found = found.ok_or_else(|| failed(Reason::NotFound, "does not exist any more"))?;
        match &found.port_id {
            Some(leads_to) if leads_to == port => Ok(()),
            Some(_) => Err(failed(Reason::Conflict, "leads to another port")),
            None => Ok(self.change(STEP, &found, json!({ "port_id": port })).await.map(drop)?),
        }
    }

    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        const STEP: &str = "disassociate a public address";
        if !well_formed(public_ip.id.as_str()) {
            return Ok(());
        }
        let found = self.read(STEP, &public_ip.id).await?;
        match found.filter(|found| found.port_id.as_ref() == Some(port)) {
            Some(found) => Ok(self.change(STEP, &found, json!({ "port_id": null })).await.map(drop)?),
            None => Ok(()),
        }
    }

    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError> {
        if !well_formed(public_ip.id.as_str()) {
            return Ok(());
        }
        let found = self.read("read the owner of a public address", &public_ip.id).await?;
        let marked = found.and_then(|found| mark::owner_in(&found.description, &self.cluster));
        if marked.is_none_or(|marked| marked.uid != owner.uid) {
            return Ok(());
        }
        let call = self.network.delete("release a public address", format!("floatingips/{}", public_ip.id));
        Ok(existing(call.done().await).map(drop)?)
    }
}
