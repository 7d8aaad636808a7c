//! The driver `neutron_floating_ip` of public addresses: floating IPs that are associated with the ports of load balancers.
//!
//! A floating IP that the driver allocated has the ownership mark of the cluster in its description, by which it is found. A floating IP
//! that a user created has no mark; the driver changes only its association with a port.

use std::net::IpAddr;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use staffetta_driver::{
    Allocation, ClusterId, DriverError, ExistingMark, ExistingPublicIp, NetworkId, Owned, Owner, PortId,
    ProjectId, PublicIp, PublicIpId, PublicIpRequest, Reason, ServicePublicIpDriver, SubnetId,
};

use crate::cloud::{Cloud, Service};
use crate::error::{DriverResult, Result, StepName, existing};
use crate::mark;
use crate::text::{is_well_formed, or_default, without_nulls};

/// The operation that errors name when the floating IPs of this cluster cannot be listed.
const LIST: &str = "list the public addresses of this cluster";
/// The operation that errors name when a floating IP cannot be allocated.
const ALLOCATE: &str = "allocate a public address";
/// The operation that errors name when the floating IP that a user named cannot be used.
const NAMED: &str = "find the public address that the user named";
/// The operation that errors name when a floating IP cannot be given an ownership mark.
const ADOPT: &str = "adopt a public address";

/// A floating IP, with the fields of Neutron's API.
#[derive(Clone, Debug, Deserialize)]
struct FloatingIp {
    id: PublicIpId,
    #[serde(rename = "floating_ip_address")]
    address: IpAddr,
    port_id: Option<PortId>,
    #[serde(default, deserialize_with = "or_default")]
    description: String,
    #[serde(default, deserialize_with = "or_default")]
    project_id: ProjectId,
    revision_number: Option<u64>,
}

/// The fields of floating IPs that lists and reads request, separated by spaces.
const FIELDS: &str = "id floating_ip_address port_id description project_id revision_number";

/// The driver `neutron_floating_ip` of public addresses, which associates floating IPs with the ports of load balancers.
#[derive(Clone, Debug)]
pub struct NeutronFloatingIps {
    network: Service,
    cluster: ClusterId,
    /// The external network in which floating IPs are allocated. Without it, none is allocated.
    pool: Option<NetworkId>,
    subnet: Option<SubnetId>,
}

impl NeutronFloatingIps {
    /// Creates the driver. It allocates floating IPs in the external network `pool`, in `subnet` if there is one, with the ownership mark
    /// of `cluster`. Without `pool`, a service can only use a floating IP that its user names.
    pub fn new(cloud: &Cloud, cluster: ClusterId, pool: Option<NetworkId>, subnet: Option<SubnetId>) -> Self {
        Self { network: cloud.network(), cluster, pool, subnet }
    }

    /// Lists the floating IPs that match `filter`. If the user is an administrator, these may belong to any project.
    async fn list(&self, step: StepName, filter: &[(&'static str, String)]) -> Result<Vec<FloatingIp>> {
        self.network.get(step, "floatingips").fields(FIELDS).filter(filter).list("floatingips").await
    }

    /// Reads a floating IP. Returns `None` if it does not exist or `id` does not have the form of an id.
    async fn read(&self, step: StepName, id: &PublicIpId) -> Result<Option<FloatingIp>> {
        if !is_well_formed(id.as_str()) {
            return Ok(None);
        }
        let call = self.network.get(step, format!("floatingips/{id}")).fields(FIELDS);
        existing(call.json_member("floatingip").await)
    }

    /// Updates a floating IP with the fields of `change`. Neutron rejects the update if the floating IP was changed since it was read.
    async fn change(&self, step: StepName, read: &FloatingIp, change: Value) -> Result<FloatingIp> {
        let call = self.network.put(step, format!("floatingips/{}", read.id));
        let call = call.json(&json!({ "floatingip": change }));
        call.revision(read.revision_number).json_member("floatingip").await
    }

    /// Lists the floating IPs whose ownership mark names `owner`.
    async fn marked(&self, owner: &Owner) -> Result<Vec<FloatingIp>> {
        let description = ("description", mark::description(&self.cluster, owner));
        let mut listed = self.list(LIST, &[description]).await?;
        listed.retain(|found| self.is_of(found, owner));
        Ok(listed)
    }

    /// Classifies the ownership mark in the description of a floating IP: of this cluster, another one, or none. Outside the projects of
    /// the configuration, the mark of this cluster counts as another one.
    fn mark_of(&self, found: &FloatingIp) -> ExistingMark {
        let owner = mark::owner_in(&found.description, &self.cluster);
        mark::classify(owner.filter(|_| self.network.owns(&found.project_id)), &found.description, &[])
    }

    /// Returns `true` if the ownership mark of a floating IP names `owner`.
    fn is_of(&self, found: &FloatingIp, owner: &Owner) -> bool {
        matches!(self.mark_of(found), ExistingMark::Owned(marked) if marked.uid == owner.uid)
    }

    /// Converts a floating IP to a [`PublicIp`]. A floating IP with the ownership mark of this cluster was allocated by this driver, any
    /// other one by a user.
    fn public_ip(&self, found: FloatingIp) -> PublicIp {
        let ours = matches!(self.mark_of(&found), ExistingMark::Owned(_));
        let allocation = if ours { Allocation::Pool } else { Allocation::User };
        PublicIp { id: found.id, ip: found.address, allocation, port: found.port_id }
    }

    /// Returns the floating IP with the address `ip`, which the user named. It must belong to the project of the request (otherwise
    /// [`Reason::NotFound`]), have no ownership mark of another owner, and be associated with no other port (otherwise
    /// [`Reason::Conflict`]).
    async fn named(&self, owner: &Owner, request: &PublicIpRequest, ip: String) -> DriverResult<PublicIp> {
        let failed = |reason, why: &str| DriverError::new(reason, NAMED).detail(format!("{ip} {why}"));
        let filter = [("floating_ip_address", ip.clone()), ("project_id", request.project.to_string())];
        let listed = self.list(NAMED, &filter).await?;
        let Some(found) = listed.into_iter().find(|found| found.project_id == request.project) else {
            return Err(failed(Reason::NotFound, "is not a floating IP of this project"));
        };
        if self.mark_of(&found) != ExistingMark::Unmarked && !self.is_of(&found, owner) {
            return Err(failed(Reason::Conflict, "was created for another service"));
        }
        if found.port_id.as_ref().is_some_and(|associated| *associated != request.port) {
            return Err(failed(Reason::Conflict, "is associated with another port"));
        }
        Ok(self.public_ip(found))
    }

    /// Adopts the floating IP that an earlier controller allocated for the same service: writes the ownership mark of `owner` into its
    /// description. Returns `None` and changes nothing if the floating IP does not exist, has an ownership mark, is associated with another
    /// port, or belongs to another project, because an annotation may name any floating IP.
    async fn adopted(
        &self,
        owner: &Owner,
        request: &PublicIpRequest,
        id: &PublicIpId,
    ) -> Result<Option<PublicIp>> {
        let Some(found) = self.read(ADOPT, id).await? else { return Ok(None) };
        let is_elsewhere = found.port_id.as_ref().is_some_and(|port| *port != request.port);
        let is_marked = self.mark_of(&found) != ExistingMark::Unmarked;
        if is_marked || is_elsewhere || found.project_id != request.project {
            return Ok(None);
        }
        Ok(Some(self.public_ip(self.write_mark(&found, owner).await?)))
    }

    /// Writes the ownership mark of `owner` into the description of a floating IP, and returns the updated floating IP.
    async fn write_mark(&self, found: &FloatingIp, owner: &Owner) -> Result<FloatingIp> {
        self.change(ADOPT, found, json!({ "description": mark::description(&self.cluster, owner) })).await
    }

    /// Lists the floating IPs in the projects of the configuration, whichever controller or user created them.
    pub(crate) async fn existing(&self) -> DriverResult<Vec<ExistingPublicIp>> {
        let listed = self.list("list the floating IPs", &[]).await?.into_iter();
        let ours = listed.filter(|found| self.network.owns(&found.project_id));
        let existing = |found: FloatingIp| ExistingPublicIp {
            mark: self.mark_of(&found),
            id: found.id,
            ip: found.address,
            port: found.port_id,
        };
        Ok(ours.map(existing).collect())
    }

    /// Writes the ownership mark of `owner` into the description of a floating IP. Fails with [`Reason::NotFound`] if the floating IP does
    /// not exist, and with [`Reason::Refused`] if it has another mark or is in no project of the configuration.
    pub(crate) async fn adopt(&self, id: &PublicIpId, owner: &Owner) -> DriverResult<()> {
        let failed = |reason| DriverError::new(reason, ADOPT).detail(format!("floating IP {id}"));
        let found = self.read(ADOPT, id).await?.ok_or_else(|| failed(Reason::NotFound))?;
        match self.mark_of(&found) {
            ExistingMark::Unmarked if self.network.owns(&found.project_id) => {
                Ok(self.write_mark(&found, owner).await.map(drop)?)
            }
            ExistingMark::Owned(marked) if marked.uid == owner.uid => Ok(()),
            _ => Err(failed(Reason::Refused)),
        }
    }
}

#[async_trait]
impl ServicePublicIpDriver for NeutronFloatingIps {
    async fn public_ips(&self, owner: Option<&Owner>) -> DriverResult<Vec<Owned<PublicIp>>> {
        let found = match owner {
            Some(owner) => self.marked(owner).await?,
            None => self.list(LIST, &[]).await?,
        };
        // Those of other clusters and other projects are left out.
        let found = found.into_iter().filter_map(|found| {
            let owner = match self.mark_of(&found) {
                ExistingMark::Owned(owner) => Some(owner),
                ExistingMark::Unmarked if self.network.owns(&found.project_id) => None,
                ExistingMark::Unmarked | ExistingMark::Foreign => return None,
            };
            Some(Owned { owner, resource: self.public_ip(found) })
        });
        Ok(found.collect())
    }

    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> DriverResult<PublicIp> {
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
        let pool = self.pool.as_ref().ok_or_else(|| {
            DriverError::new(Reason::Refused, ALLOCATE)
                .detail("`neutron_defaults.external_svc_net` is not set")
        })?;
        let new = without_nulls(json!({
            "floating_network_id": pool,
            "subnet_id": self.subnet,
            "project_id": request.project,
            "description": mark::description(&self.cluster, owner),
        }));
        let call = self.network.post(ALLOCATE, "floatingips");
        let made = call.json(&json!({ "floatingip": new })).json_member("floatingip").await?;
        Ok(self.public_ip(made))
    }

    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> DriverResult<()> {
        const STEP: &str = "associate a public address";
        let failed =
            |reason, why: &str| DriverError::new(reason, STEP).detail(format!("{} {why}", public_ip.ip));
        let missing = || failed(Reason::NotFound, "does not exist any more");
        let found = self.read(STEP, &public_ip.id).await?.ok_or_else(missing)?;
        match &found.port_id {
            Some(associated) if associated == port => Ok(()),
            Some(_) => Err(failed(Reason::Conflict, "is associated with another port")),
            None => Ok(self.change(STEP, &found, json!({ "port_id": port })).await.map(drop)?),
        }
    }

    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> DriverResult<()> {
        const STEP: &str = "disassociate a public address";
        let found = self.read(STEP, &public_ip.id).await?;
        match found.filter(|found| found.port_id.as_ref() == Some(port)) {
            Some(found) => Ok(self.change(STEP, &found, json!({ "port_id": null })).await.map(drop)?),
            None => Ok(()),
        }
    }

    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> DriverResult<()> {
        let found = self.read("read the owner of a public address", &public_ip.id).await?;
        if !found.is_some_and(|found| self.is_of(&found, owner)) {
            return Ok(());
        }
        let call = self.network.delete("release a public address", format!("floatingips/{}", public_ip.id));
        Ok(existing(call.done().await).map(drop)?)
    }
}
