//! Bulk creation of ports for VIF pools: ports with the mark of the cluster and without an owner.

use std::collections::HashMap;

use futures_util::future::join_all;
use serde_json::json;
use staffetta_driver::{
    BulkVifRequest, BulkVifResult, DriverError, PooledVif, PooledVifList, ProjectId, Reason, SecurityGroupId,
    SubnetId, Vif, VifId, VifPoolKey,
};

use super::batches::{Batch, BatchCutoff};
use super::ports::{MarkedPort, MarkedPorts};
use super::wire::{NewPort, PortBody, VIF_FIELDS};
use crate::error::{DriverResult, OpenStackError, Step};
use crate::mark::{Nesting, PortMark, Purpose};
use crate::subnets::SubnetMap;

/// The name of pooled ports, where ports have names.
const NAME: &str = "staffetta-pool-port";
const GROUPS: Step = "change the security groups of a port";
/// The maximum number of ports in one request: several seconds of work for Neutron.
const MAX_BATCH: usize = 100;

/// A pooled port as its driver sees it.
pub(super) struct PooledPort {
    /// The host in the key of the VIF.
    pub(super) host: String,
    pub(super) vif: Vif,
    /// The port has what pods need of it.
    pub(super) complete: bool,
}

/// Creates a batch of `count` ports by `create`, which creates all ports of a request or none, and leaves the rest to the next call.
/// If quota or subnet have no room, the size is halved until they have, down to one: few requests create as many ports as possible.
pub(super) async fn create_batch<F: Future<Output = BulkVifResult>>(
    count: usize,
    create: impl Fn(usize) -> F,
) -> BulkVifResult {
    let (mut created, mut halved) = (BulkVifResult::default(), false);
    let mut size = MAX_BATCH;
    while created.vifs.len() < count && created.failure.is_none() {
        size = size.min(count - created.vifs.len());
        let BulkVifResult { vifs, failure } = create(size).await;
        created.vifs.extend(vifs);
        match failure {
            Some(error) if has_no_room(&error) && size > 1 => (size, halved) = (size / 2, true),
            None if !halved => break,
            failure => created.failure = failure,
        }
    }
    created
}

/// Returns `true` if fewer ports may have room.
fn has_no_room(error: &DriverError) -> bool {
    matches!(error.reason(), Reason::Quota | Reason::NoAddress) && !error.ambiguous()
}

/// The result without any VIF.
pub(super) fn failed(error: DriverError) -> BulkVifResult {
    BulkVifResult { vifs: Vec::new(), failure: Some(error) }
}

/// Returns all VIFs with the same error.
pub(super) fn all_failed(vifs: &[Vif], error: &DriverError) -> Vec<(VifId, DriverError)> {
    vifs.iter().map(|vif| (vif.id.clone(), error.clone())).collect()
}

impl MarkedPorts {
    /// Creates the ports of a bulk request by one call, all of them or none. If the response is lost, they are found by their mark, though
    /// more may follow.
    pub(super) async fn create_pooled(
        &self,
        request: &BulkVifRequest,
        batch: &Batch<'_>,
        count: usize,
        nesting: Option<Nesting>,
        host: Option<&str>,
    ) -> (Vec<PortBody>, Option<DriverError>) {
        let mark = self.mark(Purpose::Pool(batch.name()), nesting);
        let port = NewPort {
            project_id: request.key.project.clone(),
            security_groups: request.security_groups.clone(),
            name: self.options.port_debug.then(|| NAME.to_owned()),
            ..NewPort::marked(&mark, &request.subnets, host)
        };
        let error = match self.create_all(&port, count).await {
            Ok(created) => return (created, None),
            Err(error) if !error.ambiguous() => return (Vec::new(), Some(error.into())),
            Err(error) => error,
        };
        let filter = [("description", port.description.clone())];
        let step = "list the ports that may have been created";
        let mut found = self.neutron.ports(step, &filter, VIF_FIELDS).await.unwrap_or_default();
        // Some releases ignore filters that they do not know.
        found.retain(|found| found.description == port.description);
        let failure = (found.len() != count).then(|| error.into());
        (found, failure)
    }

    /// Divides pooled ports, as `pooled` converts them, into usable and incomplete ones. An incomplete port of a batch that has not
    /// ended before `cutoff` is left out.
    pub(super) async fn pooled_vifs(
        &self,
        marked: Vec<MarkedPort>,
        cutoff: BatchCutoff,
        pooled: impl Fn(&PortMark, &PortBody, &SubnetMap) -> Option<PooledPort>,
    ) -> DriverResult<PooledVifList> {
        let subnets = self.subnets(&marked).await?;
        let default_groups = self.all_default_groups(&marked).await?;
        let mut list = PooledVifList::default();
        for (mark, port) in marked {
            let Some(PooledPort { host, vif, complete }) = pooled(&mark, &port, &subnets) else { continue };
            let security_groups = requested_groups(&port, &default_groups);
            let pooled = PooledVif { key: key(&port, host), vif, security_groups };
            match &mark.purpose {
                _ if complete => list.usable.push(pooled),
                Purpose::Pool(batch) if self.batches.has_ended(batch, cutoff) => list.incomplete.push(pooled),
                _ => {}
            }
        }
        Ok(list)
    }

    /// Sets the security groups of a port; without any, the default group of its project, as Neutron does for new ports.
    pub(super) async fn set_groups(&self, vif: &Vif, groups: &[SecurityGroupId]) -> DriverResult<()> {
        let mut groups = groups.to_vec();
        if groups.is_empty() {
            let missing = || DriverError::new(Reason::NotFound, GROUPS).detail(format!("port {}", vif.id));
            let project = self.project(GROUPS, &vif.id).await?.ok_or_else(missing)?;
            groups = self.default_groups(GROUPS, &project).await?;
            if groups.is_empty() {
                // Without any group, no packet would pass.
                let detail = format!(
                    "Neutron does not show the default security group of the project {project}: name groups in \
                     `neutron_defaults.pod_security_groups`, or give the user a role that may see it"
                );
                return Err(DriverError::new(Reason::Refused, GROUPS).detail(detail));
            }
        }
        let change = json!({ "security_groups": groups });
        match self.neutron.update_port(GROUPS, &vif.id, &change, None).await {
            Err(error) if error.is("SecurityGroupNotFound") => {
                Err(DriverError::new(Reason::Refused, GROUPS).detail(error.to_string()))
            }
            result => Ok(result.map(drop)?),
        }
    }

    /// Deletes ports at the same time and returns those that remain.
    pub(super) async fn delete_all(
        &self,
        ids: impl IntoIterator<Item = VifId>,
    ) -> Vec<(VifId, OpenStackError)> {
        let deletions = ids.into_iter().map(|id| async {
            let deleted = self.delete(&id).await;
            deleted.err().map(|error| (id, error))
        });
        join_all(deletions).await.into_iter().flatten().collect()
    }
}

fn key(port: &PortBody, host: String) -> VifPoolKey {
    let mut subnets: Vec<SubnetId> = port.fixed_ips.iter().map(|fixed| fixed.subnet_id.clone()).collect();
    subnets.sort_unstable();
    subnets.dedup();
    VifPoolKey { host, project: port.project_id.clone(), network: port.network_id.clone(), subnets }
}

/// The security groups that the request of a port named: none if it has those of the default.
fn requested_groups(
    port: &PortBody,
    default_groups: &HashMap<ProjectId, Vec<SecurityGroupId>>,
) -> Vec<SecurityGroupId> {
    let is_default = default_groups.get(&port.project_id).is_some_and(|default| {
        default.len() == port.security_groups.len()
            && default.iter().all(|group| port.security_groups.contains(group))
    });
    if is_default { Vec::new() } else { port.security_groups.clone() }
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

    /// Requests `count` ports where there is room for `room`; returns the result and the sizes of the requests.
    async fn request(count: usize, room: usize, error: DriverError) -> (BulkVifResult, Vec<usize>) {
        let (left, sizes) = (Mutex::new(room), Mutex::new(Vec::new()));
        let created = create_batch(count, |size| {
            sizes.lock().unwrap().push(size);
            let mut left = left.lock().unwrap();
            let result = if size <= *left {
                *left -= size;
                BulkVifResult { vifs: vifs(size), failure: None }
            } else {
                failed(error.clone())
            };
            async move { result }
        });
        (created.await, sizes.into_inner().unwrap())
    }

    #[tokio::test]
    async fn of_a_large_request_one_batch_is_created_and_returned_at_once() {
        let (created, sizes) = request(230, 1000, DriverError::new(Reason::Quota, "create")).await;
        assert_eq!((created.vifs.len(), created.failure.is_none(), sizes), (100, true, vec![100]));
    }

    #[tokio::test]
    async fn as_many_ports_are_created_as_there_is_room_for() {
        for reason in [Reason::Quota, Reason::NoAddress] {
            let (created, sizes) = request(50, 20, DriverError::new(reason, "create")).await;
            assert_eq!((created.vifs.len(), created.failure.unwrap().reason()), (20, reason));
            assert_eq!(sizes, [50, 25, 12, 12, 6, 6, 3, 1, 1, 1]);
        }
    }

    #[tokio::test]
    async fn any_other_failure_ends_the_request() {
        let (created, sizes) = request(50, 20, DriverError::new(Reason::Unavailable, "create")).await;
        assert_eq!((created.vifs.len(), sizes), (0, vec![50]));
        assert!(created.failure.is_some());
    }
}
