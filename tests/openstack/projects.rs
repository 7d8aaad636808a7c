//! Namespaces whose annotation names their project.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use staffetta_real_openstack::{Port, Tenant};

use crate::world::{World, vifs_of};

/// The annotation that names the project of a namespace.
const PROJECT: &str = "openstack.org/kuryr-project";

/// The id of a project that does not exist.
const MISSING: &str = "00000000000000000000000000000000";

/// A cluster in which the namespace `default` names another project, and the namespace `plain` none.
struct Projects {
    world: World,
    other: Tenant,
}

impl Projects {
    async fn start() -> Self {
        let world = World::start().await;
        let other = world.stack.tenant().await;
        world.tenant.share("security_group", &world.group, &other).await;
        let projects = Self { world, other };
        let plain = serde_json::from_value(json!({ "metadata": { "name": "plain" } })).unwrap();
        projects.namespaces().create(&PostParams::default(), &plain).await.unwrap();
        projects
    }

    /// Options that allow the other project, and one that does not exist. The controller's own user may make ports in other projects: it
    /// has the role `service`.
    fn options(&self) -> String {
        format!(
            "[kubernetes]\npod_project_driver = \"annotation\"\n[neutron_defaults]\nprojects = [\"{}\", \"{MISSING}\"]\n",
            self.other.id
        )
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.world.client.clone())
    }

    fn plain(&self) -> Api<Pod> {
        Api::namespaced(self.world.client.clone(), "plain")
    }

    /// Lets the namespace `default` name a project.
    async fn name(&self, project: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { PROJECT: project } } }));
        self.namespaces().patch("default", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates a pod of this name in both namespaces.
    async fn pods(&self, name: &str) {
        self.world.pod(name).await;
        let pod = json!({ "metadata": { "name": name }, "spec": { "nodeName": self.world.node,
            "automountServiceAccountToken": false, "containers": [{ "name": "c", "image": "i" }] } });
        self.plain().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// The ids of the active VIFs of the pods of this name: in `default`, and in `plain`.
    async fn vifs(&self, name: &str) -> [String; 2] {
        self.world.until_active(&[name]).await;
        let mut shown = Vec::new();
        self.world
            .until(&format!("the VIF of plain/{name} is active"), async || {
                shown = vifs_of(&self.plain().get(name).await.unwrap());
                shown.first().is_some_and(|vif| vif.active)
            })
            .await;
        [self.world.vifs(name).await.remove(0).id, shown.remove(0).id]
    }

    /// The ids of the ports of pods in the other project, and in the default one.
    async fn ports(&self) -> [BTreeSet<String>; 2] {
        let network = &self.world.subnet.network;
        let ids = |ports: Vec<Port>| ports.into_iter().map(|port| port.id).collect();
        [ids(self.other.pod_ports(network).await), ids(self.world.tenant.pod_ports(network).await)]
    }

    async fn until_ports(&self, wanted: [BTreeSet<String>; 2]) {
        let what = format!("the ports of both projects are {wanted:?}");
        self.world.until(&what, async || self.ports().await == wanted).await;
    }

    /// Deletes the pods of this name in both namespaces, as a kubelet does at the end.
    async fn end(&self, name: &str) {
        self.world.end_pod(name).await;
        self.plain().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// The same, and nobody waits for what holds them.
    async fn forget(&self, name: &str) {
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        for pods in [self.world.pods(), self.plain()] {
            pods.patch(name, &PatchParams::default(), &free).await.unwrap();
        }
        self.end(name).await;
    }
}

fn only<const N: usize>(ids: [&[String; 2]; N]) -> [BTreeSet<String>; 2] {
    [0, 1].map(|project| ids.iter().map(|ids| ids[project].clone()).collect())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn pods_have_their_ports_in_the_project_of_their_namespace_and_are_swept_there_on_a_real_openstack() {
    let projects = Projects::start().await;
    let world = &projects.world;
    projects.name(&projects.other.id).await;
    let controller = world.controller(&projects.options()).await;
    for name in ["stays", "goes", "forgotten"] {
        projects.pods(name).await;
    }
    let (stays, goes) = (projects.vifs("stays").await, projects.vifs("goes").await);
    let forgotten = projects.vifs("forgotten").await;
    assert_eq!(projects.ports().await, only([&stays, &goes, &forgotten]));
    projects.end("goes").await;
    projects.until_ports(only([&stays, &forgotten])).await;

    controller.stop().await.unwrap();
    projects.forget("forgotten").await;
    assert_eq!(projects.ports().await, only([&stays, &forgotten]));
    let controller = world.controller(&projects.options()).await;
    projects.until_ports(only([&stays])).await;
    // What a namespace names by now is for those that come.
    projects.name("").await;
    projects.end("stays").await;
    projects.until_ports(only([])).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_project_that_does_not_exist_is_reported_at_the_pod_which_goes_on_in_another_one_on_a_real_openstack()
 {
    let projects = Projects::start().await;
    let world = &projects.world;
    projects.name(MISSING).await;
    let controller = world.controller(&projects.options()).await;
    world.pod("web").await;
    let said = world.until_reported("web", "ReferenceNotFound").await;
    assert!(said.contains(MISSING), "{said}");
    assert!(world.vifs("web").await.is_empty());
    projects.name(&projects.other.id).await;
    world.until_active(&["web"]).await;
    let vif = world.vifs("web").await.remove(0).id;
    assert_eq!(projects.ports().await, [[vif].into(), BTreeSet::new()]);
    world.end_pod("web").await;
    projects.until_ports(only([])).await;
    controller.stop().await.unwrap();
}
