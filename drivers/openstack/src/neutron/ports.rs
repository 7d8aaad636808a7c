//! What the VIF drivers have in common: ports that carry marks.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dashmap::DashMap;
use futures_util::future::{join_all, try_join_all};
use staffetta_driver::{
    ClusterId, DriverError, Owner, ProjectId, Reason, SecurityGroupId, Subnet, SubnetId, Uid, Vif, VifId,
    VifRequest,
};
use tokio::sync::OnceCell;
use tracing::warn;

use super::api::Neutron;
use super::creation::Creation;
use super::mark::{DEVICE_OWNER, KURYR_OWNER, Mark, Nesting, Parent, Purpose, SUBPORT_OWNER};
use super::options::PortOptions;
use super::together::Together;
use super::wire::{NewPort, Port, VIF_FIELDS};
use crate::cached::Cached;
use crate::cloud::well_formed;
use crate::error::OpenStackError;
use crate::mark::{cluster_tag, uid_tag};
use crate::subnets::Subnets;

/// The longest name of a port, in characters.
const LONGEST_NAME: usize = 255;
/// How long Neutron is not asked again which group a project's ports get that name none.
const FRESH: std::time::Duration = std::time::Duration::from_secs(300);
/// How many pods one list may name: a tag has 50 characters, and the request stays below 4 KiB.
const NAMED: usize = 40;
const LIST: &str = "list the ports of this cluster";

/// What ports have in common that are made for pods, this cluster's and others'.
fn owned() -> Vec<(&'static str, String)> {
    [DEVICE_OWNER, SUBPORT_OWNER].map(|owner| ("device_owner", owner.to_owned())).to_vec()
}

/// The ports of one cluster.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) neutron: Neutron,
    subnets: Arc<Subnets>,
    pub(crate) cluster: ClusterId,
    pub(crate) options: PortOptions,
    creation: Creation,
    finds: Together<Uid, Result<Vec<(Mark, Port)>, DriverError>>,
    /// The groups that ports of a project get when they name none.
    default_groups: Cached<ProjectId, Vec<SecurityGroupId>>,
    /// Done when all that is marked is tagged. What was made before the cloud learnt to tag new ports is not, until this
    /// process has asked for it once.
    tagged: OnceCell<()>,
    /// What this process saw of marks. They never change, so that it need not look again before it removes a port.
    seen: DashMap<VifId, Seen>,
}

/// What was seen of a mark of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The project.
    pub(crate) project: ProjectId,
    /// For which pod; none for a port in stock.
    pub(crate) uid: Option<Uid>,
    /// Of what it is a part.
    pub(crate) nesting: Option<Nesting>,
}

impl Seen {
    /// Whether another port may use its addresses, whatever becomes of it.
    fn lends(&self) -> bool {
        matches!(&self.nesting, Some(Nesting { parent: Parent::Port(_), .. }))
    }
}

/// Whose a port is that is to be released or destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may go, and is a part of this.
    Ours(Option<Nesting>),
    /// It does not exist.
    Gone,
    /// It is somebody else's, and stays.
    Theirs,
}

/// A security group that another project has does not exist to Neutron in the one where a port is to be: that one is named.
fn in_project(error: OpenStackError, project: &ProjectId) -> OpenStackError {
    if error.is("SecurityGroupNotFound") {
        error.adding(&format!("the port is to be in the project {project}"))
    } else {
        error
    }
}

impl Ports {
    pub(crate) fn new(
        neutron: Neutron,
        subnets: Arc<Subnets>,
        cluster: ClusterId,
        options: PortOptions,
    ) -> Self {
        let creation = Creation::new(neutron.clone());
        let default_groups = Cached::new(FRESH);
        Self {
            neutron,
            subnets,
            cluster,
            options,
            creation,
            finds: Together::default(),
            default_groups,
            tagged: OnceCell::new(),
            seen: DashMap::new(),
        }
    }

    /// The port that `request` asks for.
    pub(crate) fn for_pod(
        &self,
        request: &VifRequest,
        nesting: Option<Nesting>,
        host: Option<&str>,
    ) -> NewPort {
        let Owner { namespace, name, uid } = &request.owner;
        // Neutron takes no port on a trunk that a device has.
        let on_a_trunk =
            nesting.as_ref().is_some_and(|nesting| matches!(nesting.parent, Parent::Trunk { .. }));
        let mark = self.mark(Purpose::Pod(request.owner.clone()), nesting);
        let named = || format!("{namespace}/{name}").chars().take(LONGEST_NAME).collect();
        NewPort {
            device_id: if on_a_trunk { String::new() } else { uid.to_string() },
            name: self.options.port_debug.then(named),
            security_groups: request.security_groups.clone(),
            project_id: request.project.clone(),
            ..NewPort::marked(&mark, &request.subnets, host)
        }
    }

    pub(crate) fn mark(&self, purpose: Purpose, nesting: Option<Nesting>) -> Mark {
        Mark { cluster: self.cluster.clone(), purpose, nesting }
    }

    /// Makes a port, by one call with others for which somebody asks meanwhile.
    pub(crate) async fn make(&self, mut port: NewPort) -> Result<Port, OpenStackError> {
        if !self.neutron.tags_new_ports().await? {
            port.tags.clear();
        }
        let project = port.project_id.clone();
        let port = self.creation.make(port).await.map_err(|error| in_project(error, &project))?;
        self.saw(&port);
        Ok(port)
    }

    /// Makes ports, all of them or none.
    pub(crate) async fn make_all(&self, port: &NewPort, count: usize) -> Result<Vec<Port>, OpenStackError> {
        let mut port = Cow::Borrowed(port);
        if !self.neutron.tags_new_ports().await? {
            port.to_mut().tags.clear();
        }
        let made = self.neutron.create_ports("make ports", &vec![&*port; count]).await;
        let ports = made.map_err(|error| in_project(error, &port.project_id))?;
        for port in &ports {
            self.saw(port);
        }
        Ok(ports)
    }

    /// Everything with the mark of this cluster, or what of it is marked for `owner`. Many who ask at a time share their lists.
    pub(crate) async fn marked(&self, owner: Option<&Owner>) -> Result<Vec<(Mark, Port)>, DriverError> {
        match owner {
            Some(owner) => self.finds.call(owner.uid.clone(), |uids| self.marked_for(uids)).await,
            None => self.list(None).await,
        }
    }

    /// What is marked for each of these, in their order.
    async fn marked_for(&self, uids: Vec<Uid>) -> Vec<Result<Vec<(Mark, Port)>, DriverError>> {
        let listed = self.list(Some(&uids)).await;
        let of = |uid: &Uid| -> Result<Vec<(Mark, Port)>, DriverError> {
            let ports = listed.as_ref().map_err(Clone::clone)?.iter();
            Ok(ports.filter(|(mark, _)| is_for(mark, uid)).cloned().collect())
        };
        uids.iter().map(of).collect()
    }

    /// Everything with the mark of this cluster, or what of it is marked for one of these.
    async fn list(&self, uids: Option<&[Uid]>) -> Result<Vec<(Mark, Port)>, DriverError> {
        let tags = self.neutron.tags_new_ports().await?;
        let of_cluster = cluster_tag(&self.cluster);
        if tags {
            self.tagged.get_or_try_init(|| self.tag_the_rest(&of_cluster)).await?;
        }
        let filters = match (tags, uids) {
            (true, Some([uid])) => vec![vec![("tags", format!("{of_cluster},{}", uid_tag(uid)))]],
            // Neutron does not take this filter beside the other one; whose they are is seen below.
            (true, Some(uids)) => {
                let any = |uids: &[Uid]| uids.iter().map(uid_tag).collect::<Vec<_>>().join(",");
                uids.chunks(NAMED).map(|uids| vec![("tags-any", any(uids))]).collect()
            }
            (true, None) => vec![vec![("tags", of_cluster)]],
            // The device does not tell: a subport has none.
            (false, _) => vec![owned()],
        };
        let lists = filters.iter().map(|filter| self.neutron.ports(LIST, filter, &VIF_FIELDS));
        let ports = try_join_all(lists).await?.into_iter().flatten();
        let wanted = |mark: &Mark| uids.is_none_or(|uids| uids.iter().any(|uid| is_for(mark, uid)));
        let ours = |port: Port| Some((self.mark_of(&port).filter(wanted)?, port));
        let marked: Vec<_> = ports.filter_map(ours).collect();
        if uids.is_none() {
            // What is gone need not be remembered; what was made meanwhile is looked at again when it goes.
            let listed: HashSet<&VifId> = marked.iter().map(|(_, port)| &port.id).collect();
            // One that lends its addresses is remembered until its pod ends: nothing else tells where they are allowed.
            self.seen.retain(|id, seen| listed.contains(id) || seen.lends());
        }
        for (_, port) in &marked {
            self.saw(port);
        }
        Ok(marked)
    }

    /// The mark of a port of this cluster.
    fn mark_of(&self, port: &Port) -> Option<Mark> {
        port.mark().filter(|mark| mark.cluster == self.cluster)
    }

    /// Tags what is marked and not tagged, so that the next list finds it. Neutron is asked for just that: to one who may see the
    /// ports of other projects, a list that begins with such a port shows the tags of none.
    async fn tag_the_rest(&self, of_cluster: &str) -> Result<(), DriverError> {
        let filter = [owned(), vec![("not-tags", of_cluster.to_owned())]].concat();
        let rest =
            self.neutron.ports("list the ports without a tag", &filter, &["id", "description"]).await?;
        let ours = rest.iter().filter_map(|port| Some((self.mark_of(port)?, &port.id)));
        let tagged = ours.map(|(mark, id)| async move {
            // That of the cluster is the first of them and given last: it says that the others are there.
            for tag in mark.tags().iter().rev() {
                self.neutron.tag_port("tag a port that was made before new ports could be", id, tag).await?;
            }
            Ok(())
        });
        Ok(join_all(tagged).await.into_iter().collect::<Result<(), OpenStackError>>()?)
    }

    /// What the subnets of these ports are. One that does not exist any more is left out.
    pub(crate) async fn subnets(
        &self,
        ports: &[(Mark, Port)],
    ) -> Result<HashMap<SubnetId, Subnet>, DriverError> {
        let fixed_ips = ports.iter().flat_map(|(_, port)| &port.fixed_ips);
        let ids: HashSet<&SubnetId> = fixed_ips.map(|fixed| &fixed.subnet_id).collect();
        let mut known = HashMap::new();
        for (id, subnet) in
            join_all(ids.into_iter().map(|id| async move { (id, self.subnets.subnet(id).await) })).await
        {
            match subnet {
                Ok(subnet) => drop(known.insert(id.clone(), subnet)),
                Err(error) if error.reason() == Reason::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(known)
    }

    /// The security groups that a port of the project gets when it names none; none when Neutron does not show them, as in
    /// a project other than the user's own where he has no role that sees them.
    pub(crate) async fn default_groups(
        &self,
        step: &'static str,
        project: &ProjectId,
    ) -> Result<Vec<SecurityGroupId>, OpenStackError> {
        self.default_groups.get(project, || self.neutron.default_group(step, project.as_str())).await
    }

    /// The groups that ports of the projects of these ports get when they name none, as far as Neutron shows them.
    pub(crate) async fn all_default_groups(
        &self,
        ports: &[(Mark, Port)],
    ) -> Result<HashMap<ProjectId, Vec<SecurityGroupId>>, DriverError> {
        let projects: HashSet<&ProjectId> = ports.iter().map(|(_, port)| &port.project_id).collect();
        let mut known = HashMap::new();
        for project in projects {
            known.insert(project.clone(), self.default_groups(LIST, project).await?);
        }
        Ok(known)
    }

    /// The project of the port of `vif`; none when there is no such port.
    pub(crate) async fn project(
        &self,
        step: &'static str,
        id: &VifId,
    ) -> Result<Option<ProjectId>, OpenStackError> {
        let seen = self.seen.get(id).map(|seen| seen.project.clone());
        match seen {
            Some(project) => Ok(Some(project)),
            None => Ok(self.neutron.port(step, id).await?.map(|port| port.project_id)),
        }
    }

    /// Whether `owner` may give back the port of `vif`. Only one that this process never saw is looked at.
    pub(crate) async fn standing(&self, owner: &Owner, vif: &Vif) -> Result<Standing, DriverError> {
        let seen = self.seen.get(&vif.id).map(|seen| seen.clone());
        if let Some(Seen { uid, nesting, .. }) = seen {
            let ours = uid.is_some_and(|uid| uid == owner.uid);
            return Ok(if ours { Standing::Ours(nesting) } else { Standing::Theirs });
        }
        // What an annotation calls an id may be anything.
        if !well_formed(vif.id.as_str()) {
            return Ok(Standing::Gone);
        }
        let Some(port) = self.neutron.port("read the owner of a port", &vif.id).await? else {
            return Ok(Standing::Gone);
        };
        self.saw(&port);
        let standing = standing(&self.cluster, &owner.uid, &port);
        if standing == Standing::Theirs {
            let Port { id, device_owner, .. } = &port;
            warn!(port = %id, device_owner, uid = %owner.uid, "a port that is named by an object is not its own, and is left alone");
        }
        Ok(standing)
    }

    /// Of what a port of this cluster is a part; none of any other port.
    pub(crate) async fn nesting(&self, id: &VifId) -> Result<Option<Nesting>, DriverError> {
        if !self.seen.contains_key(id)
            && let Some(port) = self.neutron.port("read of what a port is a part", id).await?
        {
            self.saw(&port);
        }
        Ok(self.seen.get(id).and_then(|seen| seen.nesting.clone()))
    }

    /// Which of these carry the mark of this cluster and no owner, with what they are a part of. Those that this process
    /// never saw are looked at, all at once.
    pub(crate) async fn stocked(&self, vifs: &[Vif]) -> Result<Vec<(VifId, Option<Nesting>)>, DriverError> {
        let unseen = |vif: &&Vif| !self.seen.contains_key(&vif.id) && well_formed(vif.id.as_str());
        let unseen: Vec<VifId> = vifs.iter().filter(unseen).map(|vif| vif.id.clone()).collect();
        for port in self.neutron.ports_by_id("read the owners of ports", &unseen, &VIF_FIELDS).await? {
            self.saw(&port);
        }
        let stocked = vifs.iter().filter_map(|vif| {
            let seen = self.seen.get(&vif.id)?;
            seen.uid.is_none().then(|| (vif.id.clone(), seen.nesting.clone()))
        });
        Ok(stocked.collect())
    }

    /// Removes a port; one that does not exist is removed.
    pub(crate) async fn remove(&self, id: &VifId) -> Result<(), OpenStackError> {
        self.neutron.delete_port("remove a port", id).await?;
        self.seen.remove(id);
        Ok(())
    }

    /// Removes a port that is of no use, and hands on why it is not. When it cannot be removed, it is found by its mark.
    pub(crate) async fn undo(&self, id: &VifId, error: DriverError) -> DriverError {
        match self.remove(id).await {
            Ok(()) => error,
            Err(left) => {
                warn!(port = %id, error = %left, "a port that is of no use could not be removed yet");
                error.maybe_done()
            }
        }
    }

    fn saw(&self, port: &Port) {
        if let Some(mark) = port.mark().filter(|mark| mark.cluster == self.cluster) {
            let uid = mark.owner().map(|owner| owner.uid.clone());
            let seen = Seen { project: port.project_id.clone(), uid, nesting: mark.nesting };
            self.seen.insert(port.id.clone(), seen);
        }
    }
}

/// Whether the mark names the pod with this UID.
fn is_for(mark: &Mark, uid: &Uid) -> bool {
    mark.owner().is_some_and(|owner| owner.uid == *uid)
}

/// Whether the pod with this UID may give back a port that its annotation names. One in stock is the pool's, which knows who
/// uses it.
///
/// One that Kuryr made has no mark of ours. It may go when it says that Kuryr made it for that pod, so that those who come from
/// Kuryr leave nothing behind. One of Kuryr's pools says of no pod that it uses it, and may be another's by now. Whatever else is
/// not marked is none of our concern, whoever names it.
fn standing(cluster: &ClusterId, uid: &Uid, port: &Port) -> Standing {
    match port.mark() {
        Some(mark) if mark.cluster != *cluster => Standing::Theirs,
        Some(mark) if mark.owner().is_none_or(|owner| owner.uid != *uid) => Standing::Theirs,
        Some(mark) => Standing::Ours(mark.nesting),
        None => {
            let kuryrs = [KURYR_OWNER, SUBPORT_OWNER].contains(&port.device_owner.as_str());
            let its_own = port.device_id == uid.as_str();
            if kuryrs && its_own { Standing::Ours(None) } else { Standing::Theirs }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(device_owner: &str, device_id: &str, description: &str) -> Standing {
        let port =
            json!({ "device_owner": device_owner, "device_id": device_id, "description": description });
        standing(&"east".into(), &"u1".into(), &serde_json::from_value(port).unwrap())
    }

    #[test]
    fn a_port_goes_only_for_the_pod_for_which_it_was_made() {
        let ours = Standing::Ours(None);
        assert_eq!(of(DEVICE_OWNER, "u1", "staffetta:cluster=east uid=u1 pod=a/b"), ours);
        assert_eq!(
            of(DEVICE_OWNER, "", "staffetta:cluster=east batch=7"),
            Standing::Theirs,
            "it is a pool's"
        );
        assert_eq!(of(DEVICE_OWNER, "u2", "staffetta:cluster=east uid=u2 pod=a/b"), Standing::Theirs);
        assert_eq!(of(DEVICE_OWNER, "u1", "staffetta:cluster=west uid=u1 pod=a/b"), Standing::Theirs);
    }

    #[test]
    fn of_what_is_not_marked_only_kuryrs_ports_of_that_pod_go() {
        assert_eq!(of(KURYR_OWNER, "u1", ""), Standing::Ours(None));
        assert_eq!(
            of(KURYR_OWNER, "", ""),
            Standing::Theirs,
            "it is of a pool of Kuryr's, and may be anybody's"
        );
        assert_eq!(of(SUBPORT_OWNER, "u1", ""), Standing::Ours(None));
        assert_eq!(of(SUBPORT_OWNER, "", ""), Standing::Theirs);
        assert_eq!(of(KURYR_OWNER, "u2", ""), Standing::Theirs);
        for device_owner in ["compute:nova", "network:router_interface", DEVICE_OWNER, ""] {
            assert_eq!(of(device_owner, "u1", ""), Standing::Theirs, "{device_owner}");
        }
    }
}
