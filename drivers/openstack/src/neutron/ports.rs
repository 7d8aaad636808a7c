//! The marked ports of a cluster: creation, lists, ownership and deletion.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use futures_util::future::{join_all, try_join_all};
use staffetta_driver::{
    ClusterId, DriverError, Owned, Owner, ProjectId, Reason, SecurityGroupId, SubnetId, Uid, Vif, VifId,
    VifRequest,
};
use tokio::sync::OnceCell;
use tracing::warn;

use super::api::NeutronApi;
use super::batches::BatchRegistry;
use super::creation::PortCreator;
use super::options::PortOptions;
use super::wire::{DEVICE_OWNER, KURYR_OWNER, NewPort, PortBody, SUBPORT_OWNER, VIF_FIELDS};
use crate::cached::Cached;
use crate::cloud::Cloud;
use crate::error::{DriverResult, OpenStackError, Result, Step};
use crate::mark::{Nesting, PortMark, Purpose, cluster_tag, uid_tag};
use crate::poll::Coalescer;
use crate::subnets::{SubnetMap, Subnets};
use crate::text::{self, is_well_formed};

/// The time for which the default security group of a project is cached.
const GROUP_TTL: Duration = Duration::from_secs(300);
/// The maximum number of pods in one list request: a tag has 50 characters, and the request stays below 4 KiB.
const MAX_PODS: usize = 40;
const LIST: Step = "list the ports of this cluster";

/// The filter for ports of pods, of all clusters.
pub(super) fn device_owner_filter() -> Vec<(&'static str, String)> {
    [DEVICE_OWNER, SUBPORT_OWNER].map(|owner| ("device_owner", owner.to_owned())).to_vec()
}

/// A port with its mark.
pub(crate) type MarkedPort = (PortMark, PortBody);

/// The ports with the mark of one cluster.
#[derive(Debug)]
pub(crate) struct MarkedPorts {
    pub(crate) neutron: NeutronApi,
    subnets: Arc<Subnets>,
    pub(crate) cluster: ClusterId,
    pub(crate) options: PortOptions,
    creator: PortCreator,
    /// The bulk requests of this process.
    pub(super) batches: BatchRegistry,
    lists: Coalescer<Uid, DriverResult<Vec<MarkedPort>>>,
    /// The default security groups of projects.
    default_groups: Cached<ProjectId, Vec<SecurityGroupId>>,
    /// Set when all marked ports have tags. Ports that were created before Neutron accepted tags in that request have none.
    tagged: OnceCell<()>,
    /// The projects and marks of ports that this process has read. They never change, so a port is deleted without reading its mark
    /// again.
    records: DashMap<VifId, (ProjectId, PortMark)>,
}

/// The relation of a port to the pod that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortOwnership {
    /// The port was created for the pod and may be deleted.
    Owned(Option<Nesting>),
    Missing,
    /// The port belongs to another pod, a pool, or another cluster, and is not changed.
    Foreign,
}

impl MarkedPorts {
    pub(crate) fn new(
        cloud: &Cloud,
        subnets: Arc<Subnets>,
        cluster: ClusterId,
        options: PortOptions,
    ) -> Self {
        let neutron = NeutronApi::new(cloud.network());
        Self {
            creator: PortCreator::new(neutron.clone()),
            neutron,
            subnets,
            cluster,
            options,
            batches: BatchRegistry::new(),
            lists: Coalescer::default(),
            default_groups: Cached::new(GROUP_TTL),
            tagged: OnceCell::new(),
            records: DashMap::new(),
        }
    }

    /// The request for the port of a pod.
    pub(crate) fn for_pod(
        &self,
        request: &VifRequest,
        nesting: Option<Nesting>,
        host: Option<&str>,
    ) -> NewPort {
        let Owner { namespace, name, uid } = &request.owner;
        let mark = self.mark(Purpose::Pod(request.owner.clone()), nesting);
        let port_name = || text::name(&format!("{namespace}/{name}"));
        NewPort {
            // Neutron adds no port with a device to a trunk.
            device_id: if mark.trunk().is_some() { String::new() } else { uid.to_string() },
            name: self.options.port_debug.then(port_name),
            security_groups: request.security_groups.clone(),
            project_id: request.project.clone(),
            ..NewPort::marked(&mark, &request.subnets, host)
        }
    }

    pub(super) fn mark(&self, purpose: Purpose, nesting: Option<Nesting>) -> PortMark {
        PortMark { cluster: self.cluster.clone(), purpose, nesting }
    }

    /// Creates a port, by one call with others that are requested meanwhile.
    pub(crate) async fn create(&self, port: NewPort) -> Result<PortBody> {
        let project = port.project_id.clone();
        let port = self.creator.create(port).await.map_err(|error| name_project(error, &project))?;
        self.record([&port]);
        Ok(port)
    }

    /// Creates `count` equal ports, all of them or none.
    pub(crate) async fn create_all(&self, port: &NewPort, count: usize) -> Result<Vec<PortBody>> {
        let created = self.neutron.create_ports("create ports", &vec![port; count]).await;
        let ports = created.map_err(|error| name_project(error, &port.project_id))?;
        self.record(&ports);
        Ok(ports)
    }

    /// Lists the ports with the mark of this cluster, or of `owner`. Simultaneous calls share lists.
    pub(crate) async fn marked(&self, owner: Option<&Owner>) -> DriverResult<Vec<MarkedPort>> {
        match owner {
            Some(owner) => self.lists.call(owner.uid.clone(), |uids| self.marked_for(uids)).await,
            None => self.list(None).await,
        }
    }

    /// Lists the ports of each of these pods, in their order.
    async fn marked_for(&self, uids: Vec<Uid>) -> Vec<DriverResult<Vec<MarkedPort>>> {
        let listed = self.list(Some(&uids)).await;
        let of = |uid: &Uid| -> DriverResult<Vec<MarkedPort>> {
            let ports = listed.as_ref().map_err(Clone::clone)?.iter();
            Ok(ports.filter(|(mark, _)| is_for(mark, uid)).cloned().collect())
        };
        uids.iter().map(of).collect()
    }

    /// Lists the ports with the mark of this cluster, or of some pods.
    async fn list(&self, uids: Option<&[Uid]>) -> DriverResult<Vec<MarkedPort>> {
        let tagged = self.neutron.tags_new_ports().await?;
        let cluster = cluster_tag(&self.cluster);
        if tagged {
            self.tagged.get_or_try_init(|| self.tag_untagged(&cluster)).await?;
        }
        let filters = match (tagged, uids) {
            (true, Some([uid])) => vec![vec![("tags", format!("{cluster},{}", uid_tag(uid)))]],
            // Neutron does not combine this filter with `tags`; the cluster is checked below.
            (true, Some(uids)) => {
                let any = |uids: &[Uid]| uids.iter().map(uid_tag).collect::<Vec<_>>().join(",");
                uids.chunks(MAX_PODS).map(|uids| vec![("tags-any", any(uids))]).collect()
            }
            (true, None) => vec![vec![("tags", cluster)]],
            // A filter by device does not find subports, which have none.
            (false, _) => vec![device_owner_filter()],
        };
        let lists = filters.iter().map(|filter| self.neutron.ports(LIST, filter, VIF_FIELDS));
        let ports = try_join_all(lists).await?.into_iter().flatten();
        let is_wanted = |mark: &PortMark| uids.is_none_or(|uids| uids.iter().any(|uid| is_for(mark, uid)));
        let ours = |port: PortBody| Some((port.mark_of(&self.cluster).filter(is_wanted)?, port));
        let marked: Vec<_> = ports.filter_map(ours).collect();
        if uids.is_none() {
            // A port with a parent port is remembered until its pod ends: nothing else says where its addresses are allowed.
            let listed: HashSet<&VifId> = marked.iter().map(|(_, port)| &port.id).collect();
            self.records.retain(|id, (_, mark)| listed.contains(id) || mark.parent_port().is_some());
        }
        self.record(marked.iter().map(|(_, port)| port));
        Ok(marked)
    }

    /// Tags the marked ports without tags, so that lists find them. The filter selects just these: to a user who may see the ports of
    /// other projects, a list that begins with such a port shows the tags of none.
    async fn tag_untagged(&self, cluster: &str) -> DriverResult<()> {
        let filter = [device_owner_filter(), vec![("not-tags", cluster.to_owned())]].concat();
        let step = "list the ports without a tag";
        let untagged = self.neutron.ports(step, &filter, "id description").await?;
        let ours = untagged.iter().filter_map(|port| Some((port.mark_of(&self.cluster)?, &port.id)));
        let tags = ours.map(|(mark, id)| async move {
            // The tag of the cluster is added last: it says that the port has all tags.
            for tag in mark.tags().iter().rev() {
                self.neutron.tag_port("tag a port that was created without tags", id, tag).await?;
            }
            Ok(())
        });
        Ok(join_all(tags).await.into_iter().collect::<Result<()>>()?)
    }

    /// Converts ports to VIFs by `vif`, with the subnets of all ports.
    pub(crate) async fn vifs(
        &self,
        marked: Vec<MarkedPort>,
        vif: impl Fn(&PortMark, &PortBody, &SubnetMap) -> Vif,
    ) -> DriverResult<Vec<Owned<Vif>>> {
        let subnets = self.subnets(&marked).await?;
        let owned = |(mark, port): (PortMark, PortBody)| Owned {
            thing: vif(&mark, &port, &subnets),
            owner: mark.owner().cloned(),
        };
        Ok(marked.into_iter().map(owned).collect())
    }

    /// The subnets of these ports, without those that do not exist any more.
    pub(super) async fn subnets(&self, ports: &[MarkedPort]) -> DriverResult<SubnetMap> {
        let fixed_ips = ports.iter().flat_map(|(_, port)| &port.fixed_ips);
        let ids: HashSet<&SubnetId> = fixed_ips.map(|fixed| &fixed.subnet_id).collect();
        let reads = ids.into_iter().map(|id| async move { (id, self.subnets.subnet(id).await) });
        let existing = join_all(reads).await.into_iter().filter_map(|(id, subnet)| match subnet {
            Err(error) if error.reason() == Reason::NotFound => None,
            subnet => Some(subnet.map(|subnet| (id.clone(), subnet))),
        });
        existing.collect()
    }

    /// The default security groups of a project; none if the user may not see them, as in another project.
    pub(super) async fn default_groups(
        &self,
        step: Step,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>> {
        self.default_groups.get(project, || self.neutron.default_group(step, project.as_str())).await
    }

    /// The default security groups of the projects of these ports.
    pub(super) async fn all_default_groups(
        &self,
        ports: &[MarkedPort],
    ) -> Result<HashMap<ProjectId, Vec<SecurityGroupId>>> {
        let mut groups = HashMap::new();
        for (_, PortBody { project_id, .. }) in ports {
            if !groups.contains_key(project_id) {
                groups.insert(project_id.clone(), self.default_groups(LIST, project_id).await?);
            }
        }
        Ok(groups)
    }

    /// The project of a port, or `None` if it does not exist.
    pub(super) async fn project(&self, step: Step, id: &VifId) -> Result<Option<ProjectId>> {
        let recorded = self.records.get(id).map(|record| record.0.clone());
        match recorded {
            Some(project) => Ok(Some(project)),
            None => Ok(self.neutron.port(step, id).await?.map(|port| port.project_id)),
        }
    }

    /// The recorded mark of a port of this cluster.
    fn recorded(&self, id: &VifId) -> Option<PortMark> {
        self.records.get(id).map(|record| record.1.clone())
    }

    /// Returns whether `owner` owns the port of `vif`. The port is read only if it has no record.
    pub(crate) async fn ownership(&self, owner: &Owner, vif: &Vif) -> DriverResult<PortOwnership> {
        if let Some(mark) = self.recorded(&vif.id) {
            return Ok(ownership_by(mark, &self.cluster, &owner.uid));
        }
        // An annotation may contain anything as an id.
        if !is_well_formed(vif.id.as_str()) {
            return Ok(PortOwnership::Missing);
        }
        let Some(port) = self.neutron.port("read the owner of a port", &vif.id).await? else {
            return Ok(PortOwnership::Missing);
        };
        self.record([&port]);
        let ownership = ownership(&self.cluster, &owner.uid, &port);
        if ownership == PortOwnership::Foreign {
            let PortBody { id, device_owner, .. } = &port;
            warn!(port = %id, device_owner, uid = %owner.uid, "the pod does not own the port in its annotation; the port is not changed");
        }
        Ok(ownership)
    }

    /// The parent of a port of this cluster; none of any other port.
    pub(crate) async fn nesting(&self, id: &VifId) -> DriverResult<Option<Nesting>> {
        if !self.records.contains_key(id)
            && let Some(port) = self.neutron.port("read the parent of a port", id).await?
        {
            self.record([&port]);
        }
        Ok(self.recorded(id).and_then(|mark| mark.nesting))
    }

    /// The pooled ports among these, with their parents. Those without a record are read by one list.
    pub(super) async fn pooled(&self, vifs: &[Vif]) -> DriverResult<Vec<(VifId, Option<Nesting>)>> {
        let unknown = |vif: &&Vif| !self.records.contains_key(&vif.id) && is_well_formed(vif.id.as_str());
        let unknown: Vec<VifId> = vifs.iter().filter(unknown).map(|vif| vif.id.clone()).collect();
        let read = self.neutron.ports_by_id("read the owners of ports", &unknown, VIF_FIELDS).await?;
        self.record(&read);
        let pooled = vifs.iter().filter_map(|vif| {
            let mark = self.recorded(&vif.id)?;
            mark.owner().is_none().then_some((vif.id.clone(), mark.nesting))
        });
        Ok(pooled.collect())
    }

    /// Deletes a port, unless it does not exist. A subport is first removed from its trunk.
    pub(crate) async fn delete(&self, id: &VifId) -> Result<()> {
        self.neutron.delete_pod_port("delete a port", id, self.recorded(id).as_ref()).await?;
        self.records.remove(id);
        Ok(())
    }

    /// Deletes a port that cannot be used and returns `error`, which is ambiguous if the port remains; its mark is found later.
    pub(crate) async fn undo(&self, id: &VifId, error: DriverError) -> DriverError {
        match self.delete(id).await {
            Ok(()) => error,
            Err(failure) => {
                warn!(port = %id, error = %failure, "an unusable port could not be deleted yet");
                error.maybe_applied()
            }
        }
    }

    /// Records the marks of the ports that belong to this cluster.
    fn record<'a>(&self, ports: impl IntoIterator<Item = &'a PortBody>) {
        for port in ports {
            if let Some(mark) = port.mark_of(&self.cluster) {
                self.records.insert(port.id.clone(), (port.project_id.clone(), mark));
            }
        }
    }
}

/// Returns an error if the id of a VIF, which comes from an annotation, cannot be that of a port.
pub(super) fn check_id(vif: &Vif) -> DriverResult<()> {
    if is_well_formed(vif.id.as_str()) { Ok(()) } else { Err(invalid_id(vif)) }
}

/// The error of a VIF without a port.
pub(super) fn invalid_id(vif: &Vif) -> DriverError {
    let detail = format!("`{}` is not the id of a port", vif.id.as_str().escape_debug());
    DriverError::new(Reason::NotFound, "read the status of a port").detail(detail)
}

/// Names the project in the error about a security group: groups of other projects do not exist for Neutron.
fn name_project(error: OpenStackError, project: &ProjectId) -> OpenStackError {
    if error.is("SecurityGroupNotFound") {
        error.hint(&format!("the port is to be in the project {project}"))
    } else {
        error
    }
}

/// Returns `true` if the mark names the pod with this UID.
fn is_for(mark: &PortMark, uid: &Uid) -> bool {
    mark.owner().is_some_and(|owner| owner.uid == *uid)
}

/// Returns whether the pod with this UID owns the port with this mark. Pooled ports belong to the pool.
fn ownership_by(mark: PortMark, cluster: &ClusterId, uid: &Uid) -> PortOwnership {
    let is_owned = mark.cluster == *cluster && is_for(&mark, uid);
    if is_owned { PortOwnership::Owned(mark.nesting) } else { PortOwnership::Foreign }
}

/// Returns whether the pod with this UID owns the port that its annotation names.
///
/// A port of Kuryr has no mark. It is owned if Kuryr created it for this very pod, so that a migration from Kuryr leaves nothing
/// behind. The ports of Kuryr's pools name no pod and may be in use by another one.
fn ownership(cluster: &ClusterId, uid: &Uid, port: &PortBody) -> PortOwnership {
    let is_kuryrs = || [KURYR_OWNER, SUBPORT_OWNER].contains(&port.device_owner.as_str());
    match port.mark() {
        Some(mark) => ownership_by(mark, cluster, uid),
        None if is_kuryrs() && port.device_id == uid.as_str() => PortOwnership::Owned(None),
        None => PortOwnership::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(device_owner: &str, device_id: &str, description: &str) -> PortOwnership {
        let port =
            json!({ "device_owner": device_owner, "device_id": device_id, "description": description });
        ownership(&"east".into(), &"u1".into(), &serde_json::from_value(port).unwrap())
    }

    #[test]
    fn a_port_is_owned_by_the_pod_for_which_it_was_created() {
        let foreign = PortOwnership::Foreign;
        let marked = "staffetta:cluster=east uid=u1 pod=a/b";
        assert_eq!(of(DEVICE_OWNER, "u1", marked), PortOwnership::Owned(None));
        assert_eq!(of(DEVICE_OWNER, "", "staffetta:cluster=east batch=7"), foreign, "it belongs to a pool");
        assert_eq!(of(DEVICE_OWNER, "u2", "staffetta:cluster=east uid=u2 pod=a/b"), foreign);
        assert_eq!(of(DEVICE_OWNER, "u1", "staffetta:cluster=west uid=u1 pod=a/b"), foreign);
    }

    #[test]
    fn of_the_ports_without_a_mark_only_those_of_kuryr_for_the_pod_are_owned() {
        let (owned, foreign) = (PortOwnership::Owned(None), PortOwnership::Foreign);
        assert_eq!(of(KURYR_OWNER, "u1", ""), owned);
        assert_eq!(of(KURYR_OWNER, "", ""), foreign, "it belongs to a pool of Kuryr");
        assert_eq!(of(SUBPORT_OWNER, "u1", ""), owned);
        assert_eq!(of(SUBPORT_OWNER, "", ""), foreign);
        assert_eq!(of(KURYR_OWNER, "u2", ""), foreign);
        for device_owner in ["compute:nova", "network:router_interface", DEVICE_OWNER, ""] {
            assert_eq!(of(device_owner, "u1", ""), foreign, "{device_owner}");
        }
    }
}
