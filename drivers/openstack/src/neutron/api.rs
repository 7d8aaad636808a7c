//! Neutron's API calls for ports and trunks.

use std::fmt::Display;

use futures_util::future::try_join_all;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use staffetta_driver::{SecurityGroupId, VifId};

use super::wire::{NewPort, PortBody, TrunkBody};
use crate::cloud::{ApiCall, Service};
use crate::error::{Result, StepName, existing};
use crate::mark::PortMark;

/// The maximum number of ids in one list request. An id has at most 36 characters, so the request line stays below 4 KiB, the default limit
/// of application servers.
const MAX_IDS: usize = 70;

/// The fields of a trunk that are read.
const TRUNK_FIELDS: &str = "id sub_ports";

/// The client of Neutron for ports, trunks and default security groups.
#[derive(Clone, Debug)]
pub(crate) struct NeutronApi {
    /// The general client of Neutron, for API calls for which this type has no method.
    pub(crate) service: Service,
}

impl NeutronApi {
    /// Creates the client on top of `service`, the general client of Neutron.
    pub(crate) fn new(service: Service) -> Self {
        Self { service }
    }

    /// Returns `true` if Neutron accepts tags in the request that creates a port (extension `tag-ports-during-bulk-creation`). Otherwise
    /// new ports are not tagged, and only their description is an ownership mark: if a second request added the tags, a stop of the process
    /// between both would leave a port without tags.
    pub(crate) async fn tags_new_ports(&self) -> Result<bool> {
        self.service.has_extension("tag-ports-during-bulk-creation").await
    }

    /// Creates a port, with its tags if Neutron accepts tags in that request.
    pub(crate) async fn create_port(&self, step: StepName, port: &NewPort) -> Result<PortBody> {
        let body = json!({ "port": self.body(port).await? });
        with_request_id(self.service.post(step, "ports").json(&body)).await
    }

    /// Creates all ports or none. The result has the order of Neutron's response, which Neutron's API does not specify.
    pub(crate) async fn create_ports(&self, step: StepName, ports: &[&NewPort]) -> Result<Vec<PortBody>> {
        let bodies = try_join_all(ports.iter().map(|port| self.body(port))).await?;
        let call = self.service.post(step, "ports").json(&json!({ "ports": bodies })).items(ports.len());
        let (mut ports, request_id) = call.json_member_with_id::<Vec<PortBody>>("ports").await?;
        for port in &mut ports {
            port.request_id = Some(request_id.clone());
        }
        Ok(ports)
    }

    /// Returns `port` as the body of a creation request contains it: a copy, without its tags if Neutron does not accept tags in that
    /// request.
    async fn body(&self, port: &NewPort) -> Result<NewPort> {
        let tags = if self.tags_new_ports().await? { port.tags.clone() } else { Vec::new() };
        Ok(NewPort { tags, ..port.clone() })
    }

    /// Reads a port, or returns `None` if it does not exist.
    pub(crate) async fn port(&self, step: StepName, id: &VifId) -> Result<Option<PortBody>> {
        existing(self.service.get(step, format!("ports/{id}")).json_member("port").await)
    }

    /// Lists the ports that match `filter`, with only these fields (their names, separated by spaces).
    pub(crate) async fn ports(
        &self,
        step: StepName,
        filter: &[(&'static str, String)],
        fields: &str,
    ) -> Result<Vec<PortBody>> {
        self.service.get(step, "ports").fields(fields).filter(filter).list("ports").await
    }

    /// Reads the ports with these ids, in any order. Ports that do not exist are missing in the result.
    pub(crate) async fn ports_by_id(
        &self,
        step: StepName,
        ids: &[VifId],
        fields: &str,
    ) -> Result<Vec<PortBody>> {
        self.by_id(step, "ports", ids, fields).await
    }

    /// Updates a port with the fields of `change`. If `revision` is given, Neutron rejects the update with status 412 unless the port still
    /// has this revision number.
    pub(crate) async fn update_port(
        &self,
        step: StepName,
        id: &VifId,
        change: &Value,
        revision: Option<u64>,
    ) -> Result<PortBody> {
        let call = self.service.put(step, format!("ports/{id}")).json(&json!({ "port": change }));
        with_request_id(call.revision(revision)).await
    }

    /// Adds the tags of an ownership mark to a port. The tag of the cluster is added last: it says that the port has all tags. A port that
    /// does not exist is no error.
    pub(crate) async fn add_tags(&self, step: StepName, id: &VifId, mark: &PortMark) -> Result<()> {
        for tag in mark.tags().iter().rev() {
            existing(self.service.put(step, format!("ports/{id}/tags/{tag}")).done().await)?;
        }
        Ok(())
    }

    /// Deletes a port. A port that does not exist is no error. Neutron rejects the deletion of a subport. If `revision` is given, Neutron
    /// rejects the deletion with status 412 unless the port still has this revision number.
    pub(crate) async fn delete_port(&self, step: StepName, id: &VifId, revision: Option<u64>) -> Result<()> {
        let call = self.service.delete(step, format!("ports/{id}")).revision(revision);
        existing(call.done().await).map(drop)
    }

    /// Deletes the port of a pod or of a pool. A subport is first removed from its trunk: the trunk in its ownership mark or, for a port of
    /// Kuryr, which has no mark, the trunk that lists the port. A port whose mark does not name a trunk is never removed from one. If
    /// `revision` is given, Neutron rejects the deletion of any other port with status 412 unless the port still has this revision number.
    pub(crate) async fn delete_pod_port(
        &self,
        step: StepName,
        id: &VifId,
        mark: Option<&PortMark>,
        revision: Option<u64>,
    ) -> Result<()> {
        let may_be_subport = mark.is_none_or(|mark| mark.trunk().is_some());
        match self.delete_port(step, id, revision).await {
            Err(error) if error.is("PortInUseAsSubPort") && may_be_subport => {}
            result => return result,
        }
        let trunks = match mark.and_then(PortMark::trunk) {
            Some((trunk, _)) => self.trunks_by_id(step, &[trunk.to_owned()]).await?,
            None => self.trunks(step).await?,
        };
        let has_port = |trunk: &&TrunkBody| trunk.sub_ports.iter().any(|port| port.port_id == *id);
        for trunk in trunks.iter().filter(has_port) {
            existing(self.remove_subports(step, &trunk.id, std::slice::from_ref(id)).await)?;
        }
        self.delete_port(step, id, None).await
    }

    /// Lists all trunks.
    pub(crate) async fn trunks(&self, step: StepName) -> Result<Vec<TrunkBody>> {
        self.service.get(step, "trunks").fields(TRUNK_FIELDS).list("trunks").await
    }

    /// Reads the trunks with these ids, in any order. Trunks that do not exist are missing in the result.
    pub(crate) async fn trunks_by_id(&self, step: StepName, ids: &[String]) -> Result<Vec<TrunkBody>> {
        self.by_id(step, "trunks", ids, TRUNK_FIELDS).await
    }

    /// Adds all of these ports to the trunk as subports, each with its VLAN id, or none of them.
    pub(crate) async fn add_subports(
        &self,
        step: StepName,
        trunk: &str,
        ports: &[(VifId, u16)],
    ) -> Result<()> {
        let subport = |(id, vlan): &(VifId, u16)| json!({ "port_id": id, "segmentation_type": "vlan", "segmentation_id": vlan });
        let subports: Vec<_> = ports.iter().map(subport).collect();
        let call = self.service.put(step, format!("trunks/{trunk}/add_subports"));
        call.json(&json!({ "sub_ports": subports })).items(ports.len()).done().await
    }

    /// Removes all of these subports from the trunk, or none of them.
    pub(crate) async fn remove_subports(
        &self,
        step: StepName,
        trunk: &str,
        subports: &[VifId],
    ) -> Result<()> {
        let subports: Vec<_> = subports.iter().map(|id| json!({ "port_id": id })).collect();
        let call = self.service.put(step, format!("trunks/{trunk}/remove_subports"));
        call.json(&json!({ "sub_ports": subports })).items(subports.len()).done().await
    }

    /// Returns the default security group of a project, or an empty list if staffetta's OpenStack user may not see it.
    pub(crate) async fn default_group(&self, step: StepName, project: &str) -> Result<Vec<SecurityGroupId>> {
        /// The id of a security group, in a response that contains nothing else of it.
        #[derive(Deserialize)]
        struct GroupIdBody {
            id: SecurityGroupId,
        }
        let call = self.service.get(step, "security-groups").fields("id").query("name", "default");
        let groups: Vec<GroupIdBody> = call.query("project_id", project).list("security_groups").await?;
        Ok(groups.into_iter().map(|group| group.id).collect())
    }

    /// Lists resources by their ids, with as few simultaneous requests as the length of URLs allows.
    async fn by_id<T: DeserializeOwned, I: Display>(
        &self,
        step: StepName,
        collection: &'static str,
        ids: &[I],
        fields: &str,
    ) -> Result<Vec<T>> {
        let lists = ids.chunks(MAX_IDS).map(|ids| {
            let call = self.service.get(step, collection).fields(fields);
            ids.iter().fold(call, |call, id| call.query("id", id.to_string())).list(collection)
        });
        Ok(try_join_all(lists).await?.into_iter().flatten().collect())
    }
}

/// Sends a call, and stores the id that Neutron gave the request in the returned port.
async fn with_request_id(call: ApiCall<'_>) -> Result<PortBody> {
    let (port, request_id) = call.json_member_with_id::<PortBody>("port").await?;
    Ok(PortBody { request_id: Some(request_id), ..port })
}
