//! The ports of pods and pools with the ownership mark of a cluster: their creation, lists, ownership and deletion.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use futures_util::future::{join_all, try_join_all};
use staffetta_driver::{
    ClusterId, DriverError, Owned, Owner, ProjectId, Reason, SecurityGroupId, SubnetId, Uid, Vif, VifId,
    VifRequest,
};
use tokio::sync::Mutex;
use tracing::warn;

use super::api::NeutronApi;
use super::batches::BatchRegistry;
use super::creation::PortCreator;
use super::options::PortOptions;
use super::translate::{self, PortAttachment};
use super::wire::{AddressPair, DEVICE_OWNER, NewPort, PortBody, SUBPORT_OWNER, VIF_FIELDS};
use crate::cached::Cached;
use crate::cloud::Cloud;
use crate::error::{DriverResult, OpenStackError, Result, StepName};
use crate::mark::{Nesting, PortMark, Purpose, cluster_tag, uid_tag};
use crate::placement::{SubnetMap, Subnets};
use crate::poll::Coalescer;
use crate::text::{self, is_well_formed};

/// The time for which the default security group of a project is cached. Only its deletion by an
/// administrator changes it.
const GROUP_TTL: Duration = Duration::from_secs(300);
/// The maximum number of pods in one list request. A tag has about 50 characters, so the request stays below 4 KiB.
const MAX_PODS: usize = 40;
/// The operation that errors name when the ports of this cluster cannot be listed.
pub(super) const LIST: StepName = "list the ports of this cluster";

/// Returns the filter that selects the ports of staffetta in all clusters, and all subports, by `device_owner`.
pub(super) fn device_owner_filter() -> Vec<(&'static str, String)> {
    [DEVICE_OWNER, SUBPORT_OWNER].map(|owner| ("device_owner", owner.to_owned())).to_vec()
}

/// A port with its parsed ownership mark.
pub(crate) type MarkedPort = (PortMark, PortBody);

/// The client for the ports with the ownership mark of one cluster, and a cache of these marks. The VIF drivers of the cluster share it.
#[derive(Debug)]
pub struct MarkedPorts {
    /// The client of Neutron's API.
    pub(crate) neutron: NeutronApi,
    subnets: Arc<Subnets>,
    /// The cluster that the ownership marks of the ports name.
    pub(crate) cluster: ClusterId,
    /// The options of new ports.
    pub(crate) options: PortOptions,
    creator: PortCreator,
    /// The bulk requests of this process that create pooled ports.
    pub(super) batches: BatchRegistry,
    /// The coalescer of calls that list the ports of single pods: simultaneous calls share requests. The question of a call is the UID of
    /// the pod.
    lists: Coalescer<Uid, DriverResult<Vec<MarkedPort>>>,
    /// The coalescer of calls that list all ports of this cluster: simultaneous calls of several drivers share requests.
    full_lists: Coalescer<(), DriverResult<Vec<MarkedPort>>>,
    /// The coalescer of calls that list the ports of Kuryr: simultaneous calls share requests. The question of a call is the `device_owner`
    /// of the ports.
    pub(super) kuryr_lists: Coalescer<&'static str, DriverResult<Vec<PortBody>>>,
    /// The cached default security group of each project.
    default_groups: Cached<ProjectId, Vec<SecurityGroupId>>,
    /// `true` if all ports with an ownership mark also have tags. Ports that were created while Neutron accepted no tags in creation
    /// requests, before an upgrade or during it, have none at first. Locked while tags are added.
    tagged: Mutex<bool>,
    /// The project and the mark of ports that this process has created or read. A list of all ports removes the entries that it lacks,
    /// except those with a parent port.
    records: DashMap<VifId, PortRecord>,
}

/// The project and the ownership mark of a port. They never change, so a port can be deleted without reading its mark again.
#[derive(Debug)]
struct PortRecord {
    project: ProjectId,
    mark: PortMark,
    /// The pairs by which the parent port is allowed to use the addresses of this port; they may outlive it. Empty for a port without a
    /// parent port.
    pairs: Vec<AddressPair>,
}

impl MarkedPorts {
    /// Creates the client for the ports of `cluster`, without any cached port.
    pub fn new(cloud: &Cloud, subnets: Arc<Subnets>, cluster: ClusterId, options: PortOptions) -> Self {
        let neutron = NeutronApi::new(cloud.network());
        Self {
            creator: PortCreator::new(neutron.clone()),
            neutron,
            subnets,
            cluster,
            options,
            batches: BatchRegistry::new(),
            lists: Coalescer::default(),
            full_lists: Coalescer::default(),
            kuryr_lists: Coalescer::default(),
            default_groups: Cached::new(GROUP_TTL),
            tagged: Mutex::default(),
            records: DashMap::new(),
        }
    }

    /// Returns the request that creates the port of a pod. `nesting` is the node and the parent of a nested port; `host` is the node on
    /// which Neutron binds a port that is not nested.
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

    /// Returns the ownership mark of a new port of this cluster.
    pub(super) fn mark(&self, purpose: Purpose, nesting: Option<Nesting>) -> PortMark {
        PortMark { cluster: self.cluster.clone(), purpose, nesting }
    }

    /// Returns the ownership mark of a port, or `None` if the port does not belong to this cluster.
    pub(crate) fn mark_of(&self, port: &PortBody) -> Option<PortMark> {
        port.mark_of(&self.cluster).filter(|_| self.neutron.service.owns(&port.project_id))
    }

    /// Creates a port. Ports that are requested while many calls are in flight share bulk calls.
    pub(crate) async fn create(&self, port: NewPort) -> Result<PortBody> {
        let project = port.project_id.clone();
        let created = self.noting_untagged(self.creator.create(port)).await;
        let port = created.map_err(|error| name_project(error, &project))?;
        self.record([&port]);
        Ok(port)
    }

    /// Lists the ports with the ownership mark of this cluster, or only those of `owner`. Simultaneous calls share requests.
    pub(crate) async fn marked(&self, owner: Option<&Owner>) -> DriverResult<Vec<MarkedPort>> {
        if let Some(owner) = owner {
            return self.lists.call(owner.uid.clone(), |uids| self.marked_for(uids)).await;
        }
        let list = |callers: Vec<()>| async move { vec![self.list(None).await; callers.len()] };
        self.full_lists.call((), list).await
    }

    /// Lists, for each of these UIDs of pods, the ports with the ownership mark of this cluster and that pod, in the order of `uids`. If the
    /// request fails, each result is its error.
    async fn marked_for(&self, uids: Vec<Uid>) -> Vec<DriverResult<Vec<MarkedPort>>> {
        let listed = self.list(Some(&uids)).await;
        let of = |uid: &Uid| -> DriverResult<Vec<MarkedPort>> {
            let ports = listed.as_ref().map_err(Clone::clone)?.iter();
            Ok(ports.filter(|(mark, _)| is_for(mark, uid)).cloned().collect())
        };
        uids.iter().map(of).collect()
    }

    /// Lists the ports with the ownership mark of this cluster, or only those of the pods with these UIDs.
    async fn list(&self, uids: Option<&[Uid]>) -> DriverResult<Vec<MarkedPort>> {
        let tagged = self.neutron.tags_new_ports().await?;
        let cluster = cluster_tag(&self.cluster);
        if tagged {
            let mut all_tagged = self.tagged.lock().await;
            if !*all_tagged {
                self.tag_untagged(&cluster).await?;
                *all_tagged = true;
            }
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
        let ours = |port: PortBody| Some((self.mark_of(&port).filter(is_wanted)?, port));
        let marked: Vec<_> = ports.filter_map(ours).collect();
        if uids.is_none() {
            // A port with a parent port is remembered until its pod ends: nothing else says where its addresses are allowed.
            let listed: HashSet<&VifId> = marked.iter().map(|(_, port)| &port.id).collect();
            self.records.retain(|id, record| listed.contains(id) || record.mark.parent_port().is_some());
        }
        self.record(marked.iter().map(|(_, port)| port));
        Ok(marked)
    }

    /// Runs `creation`, which creates ports. If Neutron does not accept their tags, notes before and after it that ports without tags may
    /// exist, so that the next list by tags adds their tags first: a cancelled caller may have created ports, and a list that began
    /// meanwhile may have missed some.
    pub(super) async fn noting_untagged<T>(&self, creation: impl Future<Output = T>) -> T {
        let untagged = self.neutron.tags_new_ports().await.is_ok_and(|tagged| !tagged);
        if untagged {
            *self.tagged.lock().await = false;
        }
        let created = creation.await;
        if untagged {
            *self.tagged.lock().await = false;
        }
        created
    }

    /// Adds tags to the ports with an ownership mark of this cluster but without its tag `cluster`, so that lists by tag find them. The
    /// filter selects only ports without tags: in Neutron's response to a user who may see the ports of other projects, a list that begins
    /// with such a port shows no tags of any port.
    async fn tag_untagged(&self, cluster: &str) -> DriverResult<()> {
        let filter = [device_owner_filter(), vec![("not-tags", cluster.to_owned())]].concat();
        let step = "list the ports without a tag";
        let untagged = self.neutron.ports(step, &filter, "id project_id description").await?;
        let ours = untagged.iter().filter_map(|port| Some((self.mark_of(port)?, &port.id)));
        let step = "tag a port that was created without tags";
        let tags = ours.map(|(mark, id)| async move { self.neutron.add_tags(step, id, &mark).await });
        Ok(join_all(tags).await.into_iter().collect::<Result<()>>()?)
    }

    /// Converts ports to VIFs with their owners, in the same order. `attachment` returns the way in which a port is attached to its node.
    pub(crate) async fn vifs<'a>(
        &self,
        marked: &[MarkedPort],
        attachment: impl Fn(&MarkedPort) -> PortAttachment<'a>,
    ) -> DriverResult<Vec<Owned<Vif>>> {
        let subnets = self.subnets(marked).await?;
        let owned = |marked: &MarkedPort| Owned {
            resource: translate::listed(&marked.1, &subnets, attachment(marked)),
            owner: marked.0.owner().cloned(),
        };
        Ok(marked.iter().map(owned).collect())
    }

    /// Reads the subnets of these ports. Subnets that do not exist any more are missing in the result.
    async fn subnets(&self, ports: &[MarkedPort]) -> DriverResult<SubnetMap> {
        let fixed_ips = ports.iter().flat_map(|(_, port)| &port.fixed_ips);
        let ids: HashSet<&SubnetId> = fixed_ips.map(|fixed| &fixed.subnet_id).collect();
        let reads = ids.into_iter().map(|id| async move { (id, self.subnets.subnet(id).await) });
        let existing = join_all(reads).await.into_iter().filter_map(|(id, subnet)| match subnet {
            Err(error) if error.reason() == Reason::NotFound => None,
            subnet => Some(subnet.map(|subnet| (id.clone(), subnet))),
        });
        existing.collect()
    }

    /// Returns the default security group of a project, or an empty list if staffetta's OpenStack user may not see it, as in another
    /// project. The result is cached for five minutes.
    pub(super) async fn default_groups(
        &self,
        step: StepName,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>> {
        self.default_groups.get(project, || self.neutron.default_group(step, project.as_str())).await
    }

    /// Returns the project of a port, or `None` if the port does not exist. The port is read only if its project is not cached.
    pub(super) async fn project(&self, step: StepName, id: &VifId) -> Result<Option<ProjectId>> {
        let recorded = self.records.get(id).map(|record| record.project.clone());
        match recorded {
            Some(project) => Ok(Some(project)),
            None => Ok(self.neutron.port(step, id).await?.map(|port| port.project_id)),
        }
    }

    /// Returns the cached ownership mark of a port of this cluster; `None` if none is cached.
    pub(super) fn recorded(&self, id: &VifId) -> Option<PortMark> {
        self.records.get(id).map(|record| record.mark.clone())
    }

    /// Returns the cached allowed address pairs that a nested port has on its parent port; none for any other port.
    pub(super) fn recorded_pairs(&self, id: &VifId) -> Vec<AddressPair> {
        self.records.get(id).map(|record| record.pairs.clone()).unwrap_or_default()
    }

    /// Reads those of the VIFs whose ports exist and belong to a pool of this cluster.
    pub(super) async fn pooled(&self, vifs: &[Vif]) -> DriverResult<Vec<MarkedPort>> {
        let ids = vifs.iter().map(|vif| vif.id.clone()).filter(|id| is_well_formed(id.as_str()));
        let ids: Vec<VifId> = ids.collect();
        let read = self.neutron.ports_by_id("read the owners of ports", &ids, VIF_FIELDS).await?;
        self.record(&read);
        let pooled = |port: PortBody| {
            let mark = self.mark_of(&port).filter(|mark| mark.owner().is_none())?;
            Some((mark, port))
        };
        Ok(read.into_iter().filter_map(pooled).collect())
    }

    /// Deletes a port. A port that does not exist is no error. A subport is first removed from its trunk.
    pub(crate) async fn delete(&self, id: &VifId) -> Result<()> {
        self.delete_revision(id, None).await
    }

    /// Deletes a port like [`delete`](Self::delete), if it still has the revision number `revision`, if one is given.
    pub(super) async fn delete_revision(&self, id: &VifId, revision: Option<u64>) -> Result<()> {
        self.neutron.delete_pod_port("delete a port", id, self.recorded(id).as_ref(), revision).await?;
        self.records.remove(id);
        Ok(())
    }

    /// Deletes a port that cannot be used, and returns `error`. If the deletion fails, the returned error is ambiguous, so that the caller
    /// later finds the port by its ownership mark.
    pub(crate) async fn delete_unusable(&self, id: &VifId, error: DriverError) -> DriverError {
        match self.delete(id).await {
            Ok(()) => error,
            Err(failure) => {
                warn!(port = %id, error = %failure, "an unusable port could not be deleted yet");
                error.maybe_applied()
            }
        }
    }

    /// Caches the project, the ownership mark and the address pairs of each of these ports that belongs to this cluster.
    pub(super) fn record<'a>(&self, ports: impl IntoIterator<Item = &'a PortBody>) {
        for port in ports {
            if let Some(mark) = self.mark_of(port) {
                let pairs = mark.parent_port().map(|_| port.address_pairs()).unwrap_or_default();
                let record = PortRecord { project: port.project_id.clone(), mark, pairs };
                self.records.insert(port.id.clone(), record);
            }
        }
    }
}

/// Adds the project to the error about a missing security group, because Neutron reports groups of other projects as missing. Other errors
/// stay as they are.
pub(super) fn name_project(error: OpenStackError, project: &ProjectId) -> OpenStackError {
    if error.is("SecurityGroupNotFound") {
        error.hint(&format!("the port is to be in the project {project}"))
    } else {
        error
    }
}

/// Returns `true` if the ownership mark of a port names the pod with this UID.
fn is_for(mark: &PortMark, uid: &Uid) -> bool {
    mark.owner().is_some_and(|owner| owner.uid == *uid)
}
