//! The calls of Neutron for ports and trunks.

use std::fmt::Display;

use futures_util::future::try_join_all;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use staffetta_driver::{SecurityGroupId, VifId};

use super::wire::{NewPort, PortBody, TrunkBody};
use crate::cloud::{ApiCall, Service};
use crate::error::{Result, Step, existing};
use crate::mark::PortMark;

/// The most characters of ids in one list request. The request stays below 4 KiB, the default limit of application servers.
const MAX_IDS: usize = 2800;

const TRUNK_FIELDS: &str = "id sub_ports";

/// The client of Neutron for ports and trunks.
#[derive(Clone, Debug)]
pub(crate) struct NeutronApi {
    pub(crate) service: Service,
}

impl NeutronApi {
    pub(crate) fn new(service: Service) -> Self {
        Self { service }
    }

    /// Returns `true` if Neutron accepts tags in the request that creates a port. Otherwise ports are not tagged: a tag that is added
    /// later is no mark, since the process may be stopped before.
    pub(crate) async fn tags_new_ports(&self) -> Result<bool> {
        self.service.has_extension("tag-ports-during-bulk-creation").await
    }

    pub(crate) async fn create_port(&self, step: Step, port: &NewPort) -> Result<PortBody> {
        let body = json!({ "port": self.body(port).await? });
        with_request_id(self.service.post(step, "ports").json(&body)).await
    }

    /// Creates all of the ports or none. The result has their order.
    pub(crate) async fn create_ports(&self, step: Step, ports: &[&NewPort]) -> Result<Vec<PortBody>> {
        let bodies = try_join_all(ports.iter().map(|port| self.body(port))).await?;
        let call = self.service.post(step, "ports").json(&json!({ "ports": bodies })).items(ports.len());
        let (mut ports, request_id) = call.answer_with_id::<Vec<PortBody>>("ports").await?;
        for port in &mut ports {
            port.request_id = Some(request_id.clone());
        }
        Ok(ports)
    }

    /// The body of a new port, with its tags if Neutron accepts them.
    async fn body(&self, port: &NewPort) -> Result<Value> {
        let mut body = json!(port);
        if let (Value::Object(body), false) = (&mut body, self.tags_new_ports().await?) {
            body.remove("tags");
        }
        Ok(body)
    }

    /// The port with this id, or `None` if it does not exist.
    pub(crate) async fn port(&self, step: Step, id: &VifId) -> Result<Option<PortBody>> {
        existing(self.service.get(step, format!("ports/{id}")).answer_in("port").await)
    }

    /// Lists ports.
    pub(crate) async fn ports(
        &self,
        step: Step,
        filter: &[(&'static str, String)],
        fields: &str,
    ) -> Result<Vec<PortBody>> {
        self.service.get(step, "ports").fields(fields).filter(filter).list("ports").await
    }

    /// The existing ports among these ids, in any order.
    pub(crate) async fn ports_by_id(&self, step: Step, ids: &[VifId], fields: &str) -> Result<Vec<PortBody>> {
        self.by_id(step, "ports", ids, fields).await
    }

    /// Updates a port, if it still has this revision where one is given.
    pub(crate) async fn update_port(
        &self,
        step: Step,
        id: &VifId,
        change: &Value,
        revision: Option<u64>,
    ) -> Result<PortBody> {
        let call = self.service.put(step, format!("ports/{id}")).json(&json!({ "port": change }));
        with_request_id(revision.into_iter().fold(call, ApiCall::revision)).await
    }

    /// Adds a tag to a port, unless the port does not exist.
    pub(crate) async fn tag_port(&self, step: Step, id: &VifId, tag: &str) -> Result<()> {
        existing(self.service.put(step, format!("ports/{id}/tags/{tag}")).done().await).map(drop)
    }

    /// Deletes a port, unless it does not exist. Neutron rejects the deletion of a subport.
    pub(crate) async fn delete_port(&self, step: Step, id: &VifId) -> Result<()> {
        existing(self.service.delete(step, format!("ports/{id}")).done().await).map(drop)
    }

    /// Deletes the port of a pod or a pool. A subport is first removed from the trunk in its mark or, without a mark, as Kuryr
    /// created it, from the trunk that it is on. No other port is removed from a trunk.
    pub(crate) async fn delete_pod_port(
        &self,
        step: Step,
        id: &VifId,
        mark: Option<&PortMark>,
    ) -> Result<()> {
        let may_be_subport = mark.is_none_or(|mark| mark.trunk().is_some());
        match self.delete_port(step, id).await {
            Err(error) if error.is("PortInUseAsSubPort") && may_be_subport => {}
            result => return result,
        }
        let trunks = match mark.and_then(PortMark::trunk) {
            Some((trunk, _)) => self.trunks_by_id(step, &[trunk.to_owned()]).await?,
            None => self.service.get(step, "trunks").fields(TRUNK_FIELDS).list("trunks").await?,
        };
        let has_port = |trunk: &&TrunkBody| trunk.sub_ports.iter().any(|port| port.port_id == *id);
        for trunk in trunks.iter().filter(has_port) {
            existing(self.remove_subports(step, &trunk.id, std::slice::from_ref(id)).await)?;
        }
        self.delete_port(step, id).await
    }

    /// The existing trunks among these ids, in any order.
    pub(crate) async fn trunks_by_id(&self, step: Step, ids: &[String]) -> Result<Vec<TrunkBody>> {
        self.by_id(step, "trunks", ids, TRUNK_FIELDS).await
    }

    /// Adds ports with their VLANs to the trunk, all of them or none.
    pub(crate) async fn add_subports(&self, step: Step, trunk: &str, ports: &[(VifId, u16)]) -> Result<()> {
        let subport = |(id, vlan): &(VifId, u16)| json!({ "port_id": id, "segmentation_type": "vlan", "segmentation_id": vlan });
        let subports: Vec<_> = ports.iter().map(subport).collect();
        let call = self.service.put(step, format!("trunks/{trunk}/add_subports"));
        call.json(&json!({ "sub_ports": subports })).items(ports.len()).done().await
    }

    /// Removes all of the subports from the trunk, or none.
    pub(crate) async fn remove_subports(&self, step: Step, trunk: &str, subports: &[VifId]) -> Result<()> {
        let subports: Vec<_> = subports.iter().map(|id| json!({ "port_id": id })).collect();
        let call = self.service.put(step, format!("trunks/{trunk}/remove_subports"));
        call.json(&json!({ "sub_ports": subports })).items(subports.len()).done().await
    }

    /// The default security group of a project; none if the user may not see it.
    pub(crate) async fn default_group(&self, step: Step, project: &str) -> Result<Vec<SecurityGroupId>> {
        #[derive(Deserialize)]
        struct GroupIdBody {
            id: SecurityGroupId,
        }
        let call = self.service.get(step, "security-groups").fields("id").query("name", "default");
        let groups: Vec<GroupIdBody> = call.query("project_id", project).list("security_groups").await?;
        Ok(groups.into_iter().map(|group| group.id).collect())
    }

    /// Lists resources by id, by as few simultaneous calls as the length of URLs allows.
    async fn by_id<T: DeserializeOwned, I: Display>(
        &self,
        step: Step,
        collection: &'static str,
        ids: &[I],
        fields: &str,
    ) -> Result<Vec<T>> {
        let lists = chunks(ids).into_iter().map(|ids| {
            let call = self.service.get(step, collection).fields(fields);
            ids.iter().fold(call, |call, id| call.query("id", id.to_string())).list(collection)
        });
        Ok(try_join_all(lists).await?.into_iter().flatten().collect())
    }
}

async fn with_request_id(call: ApiCall<'_>) -> Result<PortBody> {
    let (port, request_id) = call.answer_with_id::<PortBody>("port").await?;
    Ok(PortBody { request_id: Some(request_id), ..port })
}

/// Divides ids into chunks that fit into a URL each.
fn chunks<I: Display>(ids: &[I]) -> Vec<Vec<&I>> {
    const PARAMETER: usize = "id=&".len();
    let mut chunks: Vec<Vec<&I>> = Vec::new();
    let mut room = 0;
    for id in ids {
        let length = id.to_string().len() + PARAMETER;
        match chunks.last_mut() {
            Some(chunk) if length <= room => chunk.push(id),
            _ => {
                chunks.push(vec![id]);
                room = MAX_IDS;
            }
        }
        room = room.saturating_sub(length);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_many_ids_becomes_as_few_as_fit_into_a_url() {
        let ids: Vec<String> =
            (0..150).map(|number| format!("00000000-0000-4000-8000-{number:012}")).collect();
        let chunks = chunks(&ids);
        assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [70, 70, 10]);
        assert_eq!(chunks.concat().into_iter().cloned().collect::<Vec<_>>(), ids);
        assert!(super::chunks::<String>(&[]).is_empty());
    }
}
