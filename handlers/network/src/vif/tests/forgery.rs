//! Forged annotations: everybody who may change a pod can name the VIF of another pod in its
//! annotation.

use staffetta_driver::{MacAddress, PodVifDriver, PortProfile};
use staffetta_handler::GarbageCollector;
use staffetta_memory::MemoryPort;

use super::*;
use crate::testing::recorder::RecordedEvents;

/// Creates a pod without a VIF, and the port of another owner or of nobody.
async fn with_port_of(cluster: Option<&str>, uid: Option<&str>) -> (World, MemoryPort) {
    let world = world();
    let network = &world.network;
    let request = VifRequest {
        owner: Owner { uid: "template".into(), ..Owner::default() },
        node_name: "node-1".into(),
        host_ip: None,
        project: network.options().project.clone(),
        subnets: vec![network.subnet("10.10.0.0/16".parse().unwrap())],
        security_groups: Vec::new(),
    };
    let template = MemoryVifDriver::new(Arc::clone(network), "east".into());
    template.request_vif(&request).await.unwrap();
    let port = network.ports().pop().unwrap();
    let owner = uid.map(|uid| Owner { namespace: "shop".into(), name: "victim".into(), uid: uid.into() });
    let port = MemoryPort { cluster: cluster.map(Into::into), owner, ..port };
    network.insert_port(port.clone());
    (world, port)
}

impl World {
    fn publish(&self, vif: &Vif, active: bool) {
        self.annotate(&PodState::new(Vif { active, ..vif.clone() }).write());
    }

    fn activations(&self) -> usize {
        self.vifs.calls().iter().filter(|call| matches!(call, VifCall::Activate(_))).count()
    }

    fn is_untouched(&self, port: &MemoryPort) -> bool {
        let found = self.network.port(&port.vif.id);
        found.is_some_and(|found| (found.cluster, found.owner) == (port.cluster.clone(), port.owner.clone()))
    }
}

const FOREIGN: [(Option<&str>, Option<&str>); 4] =
    [(Some("east"), Some("uid-victim")), (Some("west"), Some(UID)), (None, Some("uid-victim")), (None, None)];

#[tokio::test(start_paused = true)]
async fn a_vif_that_is_not_the_pods_is_neither_activated_nor_released_and_a_running_pod_gets_an_event() {
    for (cluster, uid) in FOREIGN {
        for active in [true, false] {
            let (world, port) = with_port_of(cluster, uid).await;
            world.handler.recover().await.unwrap();
            world.publish(&port.vif, active);
            world.phase("Running");
            let lists = world.lists();
            let error = world.event().await.unwrap_err();
            assert!(!error.transient() && error.reason() == "VifForeign", "{error}");
            assert_eq!((world.lists() - lists, world.activations(), world.patches().len()), (1, 0, 0));
            world.phase("Succeeded");
            world.event().await.unwrap();
            world.deleted().await.unwrap();
            assert!(world.is_untouched(&port), "{cluster:?} {uid:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_names_the_vif_of_another_before_it_starts_gets_one_of_its_own() {
    for (cluster, uid) in FOREIGN {
        let (world, port) = with_port_of(cluster, uid).await;
        world.publish(&port.vif, true);
        world.event().await.unwrap();
        world.event().await.unwrap_err();
        let own = world.shown().unwrap().default_vif.id;
        assert_eq!(world.network.port(&own).unwrap().owner, Some(Owner::of(&world.api.object().metadata)));
        assert!(world.is_untouched(&port), "{cluster:?} {uid:?}");
        assert_eq!(world.requests(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_nothing_else_by_changing_the_properties_of_its_own_vif() {
    type Forge = fn(&mut Vif);
    let forgeries: [Forge; 5] = [
        |vif| vif.class = VifClass::VlanNested { vif_name: "tap".into(), vlan_id: 7 },
        |vif| vif.port_profile = Some(PortProfile::OpenVSwitch { interface_id: "victims-port".into() }),
        |vif| vif.network.bridge = Some("br-ex".into()),
        |vif| vif.subnets[0].ips[0] = [10, 10, 0, 99].into(),
        |vif| vif.address = MacAddress([2; 6]),
    ];
    for forge in forgeries {
        let world = active().await;
        world.phase("Running");
        world.event().await.unwrap();
        let mut vif = world.shown().unwrap().default_vif;
        forge(&mut vif);
        world.publish(&vif, true);
        assert_eq!(world.event().await.unwrap_err().reason(), "VifForeign");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_vifs_of_the_one_list_cost_no_call() {
    let mut world = active().await;
    world.phase("Running");
    world.restart();
    world.handler.recover().await.unwrap();
    let calls = world.vifs.calls();
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.vifs.calls(), world.patches().len()), (calls, 2));
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_nothing_knows_is_looked_up_once_by_its_mark() {
    let mut world = active().await;
    world.phase("Running");
    world.restart();
    let lists = world.lists();
    for _ in 0..3 {
        world.event().await.unwrap();
    }
    assert_eq!(world.lists(), lists + 1);
}

#[tokio::test(start_paused = true)]
async fn a_vif_of_a_former_pool_stays_with_the_pod_that_has_its_address() {
    let (mut world, port) = with_port_of(Some("east"), None).await;
    world.publish(&port.vif, true);
    world.phase("Running");
    let ip = port.vif.ips().next().unwrap().to_string();
    let mut thief = Pod::clone(&world.api.object());
    thief.metadata.uid = Some("uid-thief".into());
    let thief = Event::Modified(Arc::new(thief));
    world.api.change(|pod| pod["status"]["podIP"] = json!(ip));
    world.restart();
    world.handler.recover().await.unwrap();
    deliver(&world.handler, &thief).await.unwrap();
    world.event().await.unwrap();
    let error = deliver(&world.handler, &thief).await.unwrap_err();
    assert_eq!(error.reason(), "VifForeign");
    world.event().await.unwrap();
    assert!(world.is_untouched(&port));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_kuryr_manages_by_a_custom_resource_is_left_alone_and_an_event_says_so() {
    let (mut world, port) = with_port_of(None, Some(UID)).await;
    let (recorded, finalizer) = (RecordedEvents::default(), "kuryr.openstack.org/pod-finalizer");
    world.handler.notices = Notices::new("vif", recorded.recorder());
    world.api.change(|pod| pod["metadata"]["finalizers"] = json!([finalizer]));
    world.handler.recover().await.unwrap();
    let ports = world.ports();
    for _ in 0..2 {
        world.event().await.unwrap();
    }
    world.terminate(0).await.unwrap();
    assert_eq!((world.ports(), world.patches()), (ports, vec![]));
    assert!(world.is_untouched(&port));
    let events = recorded.taken();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.reason, "ManagedByKuryr");
    assert!(event.text.contains(finalizer), "{}", event.text);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_kuryr_on_a_pod_with_a_vif_of_ours_changes_nothing() {
    let world = active().await;
    world.api.change(|pod| {
        pod["metadata"]["finalizers"]
            .as_array_mut()
            .unwrap()
            .push(json!("kuryr.openstack.org/pod-finalizer"));
    });
    world.terminate(0).await.unwrap();
    assert_eq!(world.ports(), []);
}
