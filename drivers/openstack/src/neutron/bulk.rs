//! Bulk creation of ports for VIF pools. The ownership mark of these ports names the cluster and no owner.

use futures_util::future::join_all;
use serde_json::json;
use staffetta_driver::{
    BulkVifRequest, BulkVifResult, DriverError, PooledVif, PooledVifList, Reason, SecurityGroupId, SubnetId,
    Vif, VifId, VifPoolKey,
};

use super::batches::{Batch, BatchCutoff};
use super::creation::has_no_room;
use super::ports::{LIST, MarkedPort, MarkedPorts, name_project};
use super::translate::PortAttachment;
use super::wire::{NewPort, PortBody, VIF_FIELDS};
use crate::error::{DriverResult, StepName, is_too_large};
use crate::mark::{Nesting, PortMark, Purpose};

/// The name of pooled ports, if the option `port_debug` gives ports names.
const NAME: &str = "staffetta-pool-port";
const GROUPS: StepName = "change the security groups of a port";
/// The maximum number of ports in one request. Neutron needs several seconds for a request of this size.
const MAX_BATCH: usize = 100;

/// Creates up to `count` ports. `create` makes one request for the given number of ports, and creates all of them or none. Requests have at
/// most 100 ports. If the first request succeeds, no other is made, and the caller calls again for the ports that are still missing. If a
/// quota or the subnet does not have enough room, or the request is too large, the number is halved, down to one, so that few requests create
/// as many ports as possible.
pub(super) async fn create_batch<F: Future<Output = BulkVifResult>>(
    count: usize,
    create: impl Fn(usize) -> F,
) -> BulkVifResult {
    let (mut created, mut halved) = (BulkVifResult::default(), false);
    let mut size = MAX_BATCH;
    while created.vifs.len() < count && created.failure.is_none() {
        size = size.min(count - created.vifs.len());
        let BulkVifResult { vifs, failure } = create(size).await;
        let is_empty = vifs.is_empty();
        created.vifs.extend(vifs);
        match failure {
            Some(error) if (has_no_room(&error) || is_too_large(&error)) && size > 1 => {
                size /= 2;
                halved = true;
            }
            None if !halved || is_empty => break,
            failure => created.failure = failure,
        }
    }
    created
}

/// Returns the result of a bulk request that created no VIF because of `error`.
pub(super) fn failed(error: DriverError) -> BulkVifResult {
    BulkVifResult { vifs: Vec::new(), failure: Some(error) }
}

/// Returns the id of each VIF, with a copy of `error`.
pub(super) fn all_failed(vifs: &[Vif], error: &DriverError) -> Vec<(VifId, DriverError)> {
    vifs.iter().map(|vif| (vif.id.clone(), error.clone())).collect()
}

impl MarkedPorts {
    /// Creates `count` ports for a VIF pool by one request, of which Neutron creates all or none. If the response is lost, lists the ports with
    /// the ownership mark of `batch` and returns up to `count` of them; if there are fewer, also returns the error, and the others may appear
    /// later. Ports beyond `count`, which a proxy that repeats requests creates, are not returned; the next list of pooled VIFs has them.
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
        let ports = vec![&port; count];
        let created = self.noting_untagged(self.neutron.create_ports("create ports", &ports)).await;
        let error = match created.map_err(|error| name_project(error, &port.project_id)) {
            Ok(created) => {
                self.record(&created);
                return (created, None);
            }
            Err(error) if !error.ambiguous() => return (Vec::new(), Some(error.into())),
            Err(error) => error,
        };
        let filter = [("description", port.description.clone())];
        let step = "list the ports that may have been created";
        let mut found = self.neutron.ports(step, &filter, VIF_FIELDS).await.unwrap_or_default();
        // Some releases ignore filters that they do not know.
        found.retain(|found| found.description == port.description);
        found.truncate(count);
        let failure = (found.len() != count).then(|| error.into());
        (found, failure)
    }

    /// Converts ports to VIFs, and divides the pooled ones into usable ones, for which `is_complete` returns `true`, and incomplete ones. An
    /// incomplete port is omitted unless the bulk request that created it had ended before `cutoff`. `attachment` returns the way in which a
    /// port is attached to its node.
    pub(super) async fn pooled_vifs<'a>(
        &self,
        marked: Vec<MarkedPort>,
        cutoff: BatchCutoff,
        attachment: impl Fn(&MarkedPort) -> PortAttachment<'a>,
        is_complete: impl Fn(&PortBody) -> bool,
    ) -> DriverResult<PooledVifList> {
        let mut list = PooledVifList::default();
        let vifs = self.vifs(&marked, attachment).await?;
        for ((mark, port), vif) in marked.into_iter().zip(vifs) {
            let Purpose::Pool(batch) = &mark.purpose else {
                list.owned.push(vif);
                continue;
            };
            let pooled = if is_complete(&port) {
                &mut list.usable
            } else if self.batches.has_ended(batch, cutoff) {
                &mut list.incomplete
            } else {
                continue;
            };
            let default_groups = self.default_groups(LIST, &port.project_id).await?;
            let security_groups = requested_groups(&port, &default_groups);
            pooled.push(PooledVif { key: key(&mark, &port), vif: vif.resource, security_groups });
        }
        Ok(list)
    }

    /// Sets the security groups of a port. Without any group, sets the default group of the port's project, as Neutron does for new ports.
    /// The error is [`Reason::Refused`] if a group does not exist or the default group is not visible, and [`Reason::NotFound`] if the port
    /// does not exist.
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

    /// Deletes ports simultaneously, each only if it still has its revision number, if one is given. Returns those that could not be deleted,
    /// with their errors.
    pub(super) async fn delete_all(
        &self,
        ports: impl IntoIterator<Item = (VifId, Option<u64>)>,
    ) -> Vec<(VifId, DriverError)> {
        let deletions = ports.into_iter().map(|(id, revision)| async move {
            let deleted = self.delete_revision(&id, revision).await;
            deleted.err().map(|error| (id, error.into()))
        });
        join_all(deletions).await.into_iter().flatten().collect()
    }
}

/// Returns the key of the VIF pool of a port: the node for which it was created, and the port's project, network and subnets.
fn key(mark: &PortMark, port: &PortBody) -> VifPoolKey {
    let host = mark.nesting.as_ref().map_or_else(|| port.host.clone(), |nesting| nesting.host.to_string());
    let mut subnets: Vec<SubnetId> = port.fixed_ips.iter().map(|fixed| fixed.subnet_id.clone()).collect();
    subnets.sort_unstable();
    subnets.dedup();
    VifPoolKey { host, project: port.project_id.clone(), network: port.network_id.clone(), subnets }
}

/// Returns the security groups that the creation of `port` requested. The list is empty if the port has exactly the default groups of its
/// project.
fn requested_groups(port: &PortBody, default_groups: &[SecurityGroupId]) -> Vec<SecurityGroupId> {
    let groups = &port.security_groups;
    let is_default =
        default_groups.len() == groups.len() && default_groups.iter().all(|group| groups.contains(group));
    if is_default { Vec::new() } else { groups.clone() }
}

#[cfg(test)]
mod tests {

    use parking_lot::Mutex;
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

    /// Requests `count` ports from a cloud with room for `room`. Returns the result and the sizes of the requests.
    async fn request(count: usize, room: usize, error: DriverError) -> (BulkVifResult, Vec<usize>) {
        let (left, sizes) = (Mutex::new(room), Mutex::new(Vec::new()));
        let created = create_batch(count, |size| {
            sizes.lock().push(size);
            let mut left = left.lock();
            let result = if size <= *left {
                *left -= size;
                BulkVifResult { vifs: vifs(size), failure: None }
            } else {
                failed(error.clone())
            };
            async move { result }
        });
        (created.await, sizes.into_inner())
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
    async fn a_request_that_creates_nothing_and_does_not_fail_is_the_last_one() {
        let sizes = Mutex::new(Vec::new());
        let created = create_batch(50, |size| {
            sizes.lock().push(size);
            assert!(sizes.lock().len() < 10, "it never ends");
            let full = failed(DriverError::new(Reason::Quota, "create"));
            std::future::ready(if size > 25 { full } else { BulkVifResult::default() })
        });
        let created = created.await;
        assert_eq!((created.vifs.len(), created.failure.is_none()), (0, true));
        assert_eq!(sizes.into_inner(), [50, 25]);
    }

    #[tokio::test]
    async fn any_other_failure_ends_the_request() {
        let (created, sizes) = request(50, 20, DriverError::new(Reason::Unavailable, "create")).await;
        assert_eq!((created.vifs.len(), sizes), (0, vec![50]));
        assert!(created.failure.is_some());
    }
}
