//! The calls of Neutron that the VIF drivers make.

use std::fmt::Display;

use futures_util::future::try_join_all;
use serde::de::DeserializeOwned;
use serde_json::json;
use staffetta_driver::{SecurityGroupId, VifId};

use super::wire::{NewPort, Port, PortChange, SubPort, Trunk};
use crate::cloud::{Call, Cloud, Service};
use crate::error::{OpenStackError, existing};

/// How many characters of ids one list may name. With what else there is, a request stays below 4 KiB, which is what an
/// application server takes that nobody configured.
const IDS: usize = 2800;

/// Neutron, as far as ports and trunks are concerned.
#[derive(Clone, Debug)]
pub(crate) struct Neutron {
    service: Service,
}

impl Neutron {
    pub(crate) fn new(cloud: &Cloud) -> Self {
        Self { service: cloud.network() }
    }

    /// How many calls may be in flight.
    pub(crate) fn max_concurrency(&self) -> usize {
        self.service.max_concurrency()
    }

    /// Whether tags may be given to a port in the call that makes it. Where not, nothing is tagged: a tag that comes later
    /// is no mark, for whoever makes the port may be stopped before.
    pub(crate) async fn tags_new_ports(&self) -> Result<bool, OpenStackError> {
        self.service.has_extension("tag-ports-during-bulk-creation").await
    }

    pub(crate) async fn create_port(
        &self,
        step: &'static str,
        port: &NewPort,
    ) -> Result<Port, OpenStackError> {
        let call = self.service.post(step, "ports").json(&json!({ "port": port }));
        let (port, request_id) = call.signed_answer_in::<Port>("port").await?;
        Ok(Port { request_id: Some(request_id), ..port })
    }

    /// Makes all of the ports or none. The answer has their order.
    pub(crate) async fn create_ports(
        &self,
        step: &'static str,
        ports: &[&NewPort],
    ) -> Result<Vec<Port>, OpenStackError> {
        let call = self.service.post(step, "ports").json(&json!({ "ports": ports })).things(ports.len());
        let (mut ports, request_id) = call.signed_answer_in::<Vec<Port>>("ports").await?;
        for port in &mut ports {
            port.request_id = Some(request_id.clone());
        }
        Ok(ports)
    }

    /// The port of that id, if there is one.
    pub(crate) async fn port(&self, step: &'static str, id: &VifId) -> Result<Option<Port>, OpenStackError> {
        existing(self.service.get(step, format!("ports/{id}")).answer_in("port").await)
    }

    /// The ports that pass the filter.
    pub(crate) async fn ports(
        &self,
        step: &'static str,
        filter: &[(&'static str, String)],
        fields: &[&str],
    ) -> Result<Vec<Port>, OpenStackError> {
        let call = self.service.get(step, "ports").fields(fields);
        filter.iter().fold(call, |call, (name, value)| call.query(*name, value)).list("ports").await
    }

    /// Those ports of these ids that exist, in any order.
    pub(crate) async fn ports_by_id(
        &self,
        step: &'static str,
        ids: &[VifId],
        fields: &[&str],
    ) -> Result<Vec<Port>, OpenStackError> {
        self.by_id(step, "ports", ids, fields).await
    }

    /// Changes a port; at a revision, only if it still has that one.
    pub(crate) async fn change_port(
        &self,
        step: &'static str,
        id: &VifId,
        change: &PortChange,
        revision: Option<u64>,
    ) -> Result<Port, OpenStackError> {
        let call = self.service.put(step, format!("ports/{id}")).json(&json!({ "port": change }));
        let call = revision.into_iter().fold(call, Call::revision);
        let (port, request_id) = call.signed_answer_in::<Port>("port").await?;
        Ok(Port { request_id: Some(request_id), ..port })
    }

    /// Gives a port one more tag; one that does not exist needs none.
    pub(crate) async fn tag_port(
        &self,
        step: &'static str,
        id: &VifId,
        tag: &str,
    ) -> Result<(), OpenStackError> {
        existing(self.service.put(step, format!("ports/{id}/tags/{tag}")).done().await).map(drop)
    }

    /// Deletes a port; one that does not exist is deleted.
    pub(crate) async fn delete_port(&self, step: &'static str, id: &VifId) -> Result<(), OpenStackError> {
        existing(self.service.delete(step, format!("ports/{id}")).done().await).map(drop)
    }

    /// All trunks.
    pub(crate) async fn trunks(&self, step: &'static str) -> Result<Vec<Trunk>, OpenStackError> {
        self.service.get(step, "trunks").fields(&["id", "sub_ports"]).list("trunks").await
    }

    /// Those trunks of these ids that exist, in any order.
    pub(crate) async fn trunks_by_id(
        &self,
        step: &'static str,
        ids: &[String],
    ) -> Result<Vec<Trunk>, OpenStackError> {
        self.by_id(step, "trunks", ids, &["id", "sub_ports"]).await
    }

    /// Adds all of the subports to the trunk, or none.
    pub(crate) async fn add_subports(
        &self,
        step: &'static str,
        trunk: &str,
        subports: &[SubPort],
    ) -> Result<(), OpenStackError> {
        let call = self.service.put(step, format!("trunks/{trunk}/add_subports"));
        call.json(&json!({ "sub_ports": subports })).things(subports.len()).done().await
    }

    /// Removes all of the subports from the trunk, or none.
    pub(crate) async fn remove_subports(
        &self,
        step: &'static str,
        trunk: &str,
        subports: &[VifId],
    ) -> Result<(), OpenStackError> {
        let subports: Vec<_> = subports.iter().map(|id| json!({ "port_id": id })).collect();
        let call = self.service.put(step, format!("trunks/{trunk}/remove_subports"));
        call.json(&json!({ "sub_ports": subports })).things(subports.len()).done().await
    }

    /// The security group that ports of a project get when they name none. Each project with a port has one, but not everybody
    /// may see that of another project.
    pub(crate) async fn default_group(
        &self,
        step: &'static str,
        project: &str,
    ) -> Result<Vec<SecurityGroupId>, OpenStackError> {
        #[derive(serde::Deserialize)]
        struct Group {
            id: SecurityGroupId,
        }
        let call = self.service.get(step, "security-groups").fields(&["id"]).query("name", "default");
        let groups: Vec<Group> = call.query("project_id", project).list("security_groups").await?;
        Ok(groups.into_iter().map(|group| group.id).collect())
    }

    /// Those of a collection that have one of the ids: as few calls as fit into URLs, all at a time.
    async fn by_id<T: DeserializeOwned, I: Display>(
        &self,
        step: &'static str,
        collection: &'static str,
        ids: &[I],
        fields: &[&str],
    ) -> Result<Vec<T>, OpenStackError> {
        let lists = chunks(ids).into_iter().map(|ids| {
            let call = self.service.get(step, collection).fields(fields);
            ids.iter().fold(call, |call, id| call.query("id", id.to_string())).list(collection)
        });
        Ok(try_join_all(lists).await?.into_iter().flatten().collect())
    }
}

/// Parts of a list that fit into a URL each.
fn chunks<I: Display>(ids: &[I]) -> Vec<Vec<&I>> {
    const NAMED: usize = "id=&".len();
    let mut chunks: Vec<Vec<&I>> = Vec::new();
    let mut room = 0;
    for id in ids {
        let length = id.to_string().len() + NAMED;
        match chunks.last_mut() {
            Some(chunk) if length <= room => chunk.push(id),
            _ => {
                chunks.push(vec![id]);
                room = IDS;
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
