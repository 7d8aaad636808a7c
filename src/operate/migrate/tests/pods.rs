use serde_json::{Value, json};
use staffetta_driver::{ExistingAttachment, ExistingMark, ExistingNetwork, ExistingPort, Owner};
use staffetta_network::os_vif::KURYR_VIF;

use super::world::*;

const TAKEN_OVER: &str = "Pod web: mark port p1, write openstack.org/kuryr-vif and staffetta.dev/vif, \
    remove kuryr.openstack.org/pod-finalizer, remove kuryr.openstack.org/kuryrport-finalizer";

/// A pod with a `KuryrPort` that contains one VIF.
fn of_last_release(vif: &Value) -> crate::operate::migrate::read::ClusterState {
    cluster().with_pod(pod("web", "10.0.0.7", theirs())).with_kuryr_port(kuryr_port("web", eth0(vif)))
}

fn annotated(vif: &Value) -> Value {
    json!({ "annotations": { KURYR_VIF: annotation(vif) } })
}

fn refusal(planned: &[String]) -> &str {
    let [line] = planned else { panic!("{planned:?}") };
    line.strip_prefix("Pod web: refused: ").unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn a_pod_with_a_kuryr_port_is_marked_then_written_then_released() {
    let state = of_last_release(&vif("p1", "10.0.0.7")).with_ports([port("p1", "10.0.0.7", Some("web"))]);
    assert_eq!(state.planned(), [TAKEN_OVER]);
}

#[test]
fn a_pod_with_the_annotation_of_the_first_releases_keeps_it_and_gets_our_finalizer() {
    let state = cluster()
        .with_pod(pod("web", "10.0.0.7", annotated(&vif("p1", "10.0.0.7"))))
        .with_ports([port("p1", "10.0.0.7", Some("web"))]);
    assert_eq!(state.planned(), ["Pod web: mark port p1, write staffetta.dev/vif"]);
}

#[test]
fn what_is_done_is_not_planned_again() {
    let owner = Owner { namespace: "shop".into(), name: "web".into(), uid: "uid-web".into() };
    let marked = ExistingPort { mark: ExistingMark::Owned(owner), ..port("p1", "10.0.0.7", Some("web")) };
    let after_the_mark = of_last_release(&vif("p1", "10.0.0.7")).with_ports([marked.clone()]);
    let rest = TAKEN_OVER.replace("mark port p1, ", "");
    assert_eq!(after_the_mark.planned(), [rest]);

    let mut metadata = annotated(&vif("p1", "10.0.0.7"));
    metadata["finalizers"] = json!(["staffetta.dev/vif"]);
    let after_the_write = cluster()
        .with_pod(pod("web", "10.0.0.7", metadata.clone()))
        .with_kuryr_port(kuryr_port("web", eth0(&vif("p1", "10.0.0.7"))))
        .with_ports([marked.clone()]);
    assert_eq!(after_the_write.planned(), ["Pod web: remove kuryr.openstack.org/kuryrport-finalizer"]);

    let mut released = kuryr_port("web", eth0(&vif("p1", "10.0.0.7")));
    released["metadata"]["finalizers"] = json!([]);
    let done =
        cluster().with_pod(pod("web", "10.0.0.7", metadata)).with_kuryr_port(released).with_ports([marked]);
    assert_eq!(done.planned(), [""; 0]);
}

#[test]
fn a_vif_that_our_controller_has_replaced_is_not_missed() {
    let owner = Owner { namespace: "shop".into(), name: "web".into(), uid: "uid-web".into() };
    let marked = ExistingPort { mark: ExistingMark::Owned(owner), ..port("p2", "10.0.0.8", Some("web")) };
    let mut metadata = annotated(&vif("p2", "10.0.0.8"));
    metadata["finalizers"] = json!(["staffetta.dev/vif"]);
    let state = cluster()
        .with_pod(pod("web", "10.0.0.8", metadata))
        .with_kuryr_port(kuryr_port("web", eth0(&vif("p1", "10.0.0.7"))))
        .with_ports([marked]);
    assert_eq!(state.planned(), ["Pod web: remove kuryr.openstack.org/kuryrport-finalizer"]);
}

#[test]
fn a_port_on_which_neutron_does_not_agree_is_refused_with_the_reason() {
    let (vif, ours) = (vif("p1", "10.0.0.7"), port("p1", "10.0.0.7", Some("web")));
    let foreign = Owner { uid: "uid-other".into(), ..Owner::default() };
    let elsewhere = ExistingAttachment::Host("node-2".into());
    let cases: [(Option<ExistingPort>, &str); 8] = [
        (None, "port p1 does not exist in the projects of the configuration"),
        (Some(port("p1", "10.0.0.7", Some("other"))), "port p1 is that of the pod with the UID uid-other"),
        (
            Some(port("p1", "10.0.0.8", Some("web"))),
            "port p1 has the addresses [10.0.0.8], the VIF {10.0.0.7}",
        ),
        (
            Some(ExistingPort { mac_address: "fa:16:3e:ff:ff:ff".into(), ..ours.clone() }),
            "port p1 has the MAC address fa:16:3e:ff:ff:ff, the VIF fa:16:3e:00:00:a1",
        ),
        (
            Some(ExistingPort { attachment: elsewhere, ..ours.clone() }),
            "port p1 is bound on `node-2`, the pod is on `node-1`",
        ),
        (
            Some(ExistingPort { attachment: ExistingAttachment::Nothing, ..ours.clone() }),
            "port p1 is bound on no node, or the user may not see its binding",
        ),
        (
            Some(ExistingPort { mark: ExistingMark::Owned(foreign), ..ours.clone() }),
            "port p1 has the mark of another owner",
        ),
        (Some(ExistingPort { mark: ExistingMark::Foreign, ..ours }), "port p1 has the mark of another owner"),
    ];
    for (port, reason) in cases {
        assert_eq!(refusal(&of_last_release(&vif).with_ports(port.clone()).planned()), reason);
        let by_annotation = cluster().with_pod(pod("web", "10.0.0.7", annotated(&vif))).with_ports(port);
        assert_eq!(refusal(&by_annotation.planned()), reason);
    }
}

#[test]
fn a_port_of_a_pool_belongs_to_the_pod_that_has_its_address() {
    let (vif, pooled) = (vif("p1", "10.0.0.7"), port("p1", "10.0.0.7", None));
    assert_eq!(of_last_release(&vif).with_ports([pooled.clone()]).planned(), [TAKEN_OVER]);
    // A tenant writes the VIF of somebody else into the annotation of its own pod.
    let forged = cluster().with_pod(pod("web", "10.0.0.8", annotated(&vif))).with_ports([pooled.clone()]);
    let reason = "port p1 names no pod, and its address is not that in the status of the pod";
    assert_eq!(refusal(&forged.planned()), reason);
    // The pod is only starting. What Kuryr recorded is true, what an annotation says need not be.
    let mut starting = pod("web", "10.0.0.7", annotated(&vif));
    starting["status"] = json!({ "phase": "Pending", "hostIP": "192.0.2.1" });
    assert_eq!(refusal(&cluster().with_pod(starting.clone()).with_ports([pooled.clone()]).planned()), reason);
    let recorded = cluster().with_pod(starting).with_kuryr_port(kuryr_port("web", eth0(&vif)));
    assert_eq!(recorded.with_ports([pooled]).planned().len(), 1);
}

#[test]
fn of_two_pods_that_name_one_port_the_one_of_which_kuryr_says_so_has_it() {
    let vif = vif("p1", "10.0.0.7");
    let state = cluster()
        .with_pod(pod("thief", "10.0.0.7", annotated(&vif)))
        .with_pod(pod("web", "10.0.0.7", theirs()))
        .with_kuryr_port(kuryr_port("web", eth0(&vif)))
        .with_ports([port("p1", "10.0.0.7", None)]);
    let thief = "Pod thief: refused: port p1 is that of the pod shop/web";
    assert_eq!(state.planned(), [TAKEN_OVER, thief]);
}

#[test]
fn a_subport_must_be_on_the_trunk_of_the_node_with_the_vlan_of_the_vif() {
    let vif = vif_of(
        "VIFVlanNested",
        "p1",
        "10.0.0.7",
        json!({ "plugin": "noop", "vif_name": "tap1", "vlan_id": 7 }),
    );
    let subport = |vlan, node: &str| {
        let attachment =
            ExistingAttachment::Trunk { id: "t".into(), vlan, node_ips: vec![node.parse().unwrap()] };
        ExistingPort { attachment, ..port("p1", "10.0.0.7", None) }
    };
    let planned = |port: ExistingPort, driver: &str| {
        let mut state = of_last_release(&vif).with_ports([port]);
        state.vif_drivers = [driver.to_owned()].into();
        state.planned()
    };
    assert_eq!(planned(subport(7, "192.0.2.1"), "nested-vlan"), [TAKEN_OVER]);
    let refused = |port, driver| refusal(&planned(port, driver)).to_owned();
    assert_eq!(refused(subport(8, "192.0.2.1"), "nested-vlan"), "port p1 has the VLAN 8, the VIF 7");
    assert_eq!(refused(subport(7, "192.0.2.2"), "nested-vlan"), "port p1 is on the trunk of another node");
    let reason = "port p1 is one of the VIF driver `nested-vlan`; the configuration has neutron-vif";
    assert_eq!(refused(subport(7, "192.0.2.1"), "neutron-vif"), reason);
    let reason = "port p1 is attached in another way than the class of the VIF says";
    assert_eq!(refused(port("p1", "10.0.0.7", None), "nested-vlan"), reason);
}

#[test]
fn a_pod_that_is_being_deleted_gets_no_finalizer_because_the_server_accepts_none() {
    let mut terminating = theirs();
    terminating["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    terminating["deletionGracePeriodSeconds"] = json!(30);
    let state = cluster()
        .with_pod(pod("web", "10.0.0.7", terminating))
        .with_kuryr_port(kuryr_port("web", eth0(&vif("p1", "10.0.0.7"))))
        .with_ports([port("p1", "10.0.0.7", Some("web"))]);
    assert_eq!(state.planned(), [TAKEN_OVER.replace(" and staffetta.dev/vif", "")]);
}

#[test]
fn a_pod_to_which_kuryr_has_given_nothing_yet_becomes_ours_and_a_running_one_is_refused() {
    let mut starting = pod("web", "", theirs());
    starting["status"] = json!({ "phase": "Pending" });
    let released = "Pod web: remove kuryr.openstack.org/pod-finalizer";
    assert_eq!(cluster().with_pod(starting.clone()).planned(), [released]);
    let empty = cluster().with_pod(starting).with_kuryr_port(kuryr_port("web", json!({})));
    assert_eq!(empty.planned(), [format!("{released}, remove kuryr.openstack.org/kuryrport-finalizer")]);
    let running = cluster().with_pod(pod("web", "10.0.0.7", theirs()));
    assert_eq!(refusal(&running.planned()), "it runs, and no KuryrPort or annotation contains its VIFs");
}

#[test]
fn pods_that_are_not_kuryrs_are_not_in_the_plan() {
    let mut host = pod("host", "192.0.2.1", theirs());
    host["spec"]["hostNetwork"] = json!(true);
    let ours = json!({ "finalizers": ["staffetta.dev/vif"], "annotations": { KURYR_VIF: annotation(&vif("p1", "10.0.0.7")) } });
    let state =
        cluster().with_pod(host).with_pod(pod("ours", "10.0.0.7", ours)).with_pod(pod("new", "", json!({})));
    assert_eq!(state.planned(), [""; 0]);
}

#[test]
fn a_malformed_record_is_refused_and_nothing_of_it_is_changed() {
    let malformed = cluster().with_pod(pod("web", "10.0.0.7", theirs()));
    let state =
        malformed.with_kuryr_port(kuryr_port("web", json!({ "eth0": { "default": true, "vif": 7 } })));
    assert!(refusal(&state.planned()).starts_with("its KuryrPort is malformed: "), "{:?}", state.planned());
    let annotations = json!({ "annotations": { KURYR_VIF: "{" } });
    let state = cluster().with_pod(pod("web", "10.0.0.7", annotations));
    assert!(refusal(&state.planned()).contains("openstack.org/kuryr-vif"), "{:?}", state.planned());
}

#[test]
fn a_kuryr_port_without_a_pod_is_released_unless_a_port_of_a_pool_is_active() {
    let orphan = || cluster().with_kuryr_port(kuryr_port("gone", eth0(&vif("p1", "10.0.0.7"))));
    let released = "KuryrPort gone: remove kuryr.openstack.org/kuryrport-finalizer";
    assert_eq!(orphan().planned(), [released]);
    // Garbage collection releases it, because it names a pod that does not exist.
    assert_eq!(orphan().with_ports([port("p1", "10.0.0.7", Some("gone"))]).planned(), [released]);
    let active = orphan().with_ports([port("p1", "10.0.0.7", None)]);
    assert_eq!(active.planned(), ["KuryrPort gone: refused: its pod does not exist, but port p1 is active"]);
    // It is that of an earlier pod with the same name.
    let mut earlier = kuryr_port("web", eth0(&vif("p1", "10.0.0.7")));
    earlier["spec"]["podUid"] = json!("uid-earlier");
    let state = cluster().with_pod(pod("web", "10.0.0.8", json!({}))).with_kuryr_port(earlier);
    assert_eq!(state.planned(), ["KuryrPort web: remove kuryr.openstack.org/kuryrport-finalizer"]);
}

#[test]
fn idle_ports_are_those_of_pools_on_our_nodes_that_nothing_names() {
    let idle = ExistingPort { active: false, ..port("p9", "10.0.0.9", None) };
    let line = "Port p9: later: no pod uses this port of Kuryr's pools; --delete-idle-ports deletes it";
    assert_eq!(cluster().with_ports([idle.clone()]).planned(), [line]);
    let elsewhere = ExistingPort { attachment: ExistingAttachment::Host("other".into()), ..idle.clone() };
    let others = [elsewhere, port("p9", "10.0.0.9", None), port("p9", "10.0.0.9", Some("web"))];
    assert_eq!(cluster().with_ports(others).planned(), [""; 0]);
    // Even a pod that may not have the port keeps it from being deleted.
    let named = cluster()
        .with_pod(pod("web", "10.0.0.7", annotated(&vif("p9", "10.0.0.9"))))
        .with_ports([idle.clone()]);
    assert_eq!(named.planned().len(), 1);
    let malformed = json!({ "annotations": { KURYR_VIF: "{ \"default_vif\": { \"id\": \"p9\" }" } });
    let named = cluster().with_pod(pod("web", "10.0.0.7", malformed)).with_ports([idle]);
    assert!(named.planned()[0].starts_with("Pod web: refused") && named.planned().len() == 1);
}

#[test]
fn an_idle_subport_is_in_a_subnet_of_pods() {
    let planned = |subnet: &str| {
        let node_ips = vec!["192.0.2.1".parse().unwrap()];
        let attachment = ExistingAttachment::Trunk { id: "t".into(), vlan: 7, node_ips };
        let port = port("p9", "10.0.0.9", None);
        let mut state =
            cluster().with_ports([ExistingPort { attachment, subnets: vec![subnet.into()], ..port }]);
        let shop = json!({ "metadata": { "name": "shop", "uid": "uid-shop" } });
        state.namespaces.push(serde_json::from_value(shop).unwrap());
        for (name, subnet) in [("uid-shop/shop", "of-shop"), ("ns/storage", "of-storage")] {
            state.networks.push(ExistingNetwork {
                id: name.into(),
                name: name.into(),
                subnets: vec![subnet.into()],
                mark: ExistingMark::Unmarked,
            });
        }
        state.planned().len()
    };
    assert_eq!(["pods", "of-shop", "of-storage", "storage"].map(planned), [1, 1, 0, 0]);
}
