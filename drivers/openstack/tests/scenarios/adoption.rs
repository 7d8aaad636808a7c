//! The driver `openstack` of adoptions: what Kuryr made gets our mark, and nothing else of it changes.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{
    Adoption, AdoptionDriver, ExistingAttachment, ExistingMark, ExistingPort, LoadBalancerDriver, Owner,
    PodVifDriver, Reason, ServicePublicIpDriver, Subnet, UnusedResource, VifId,
};
use staffetta_openstack::{OctaviaDefaults, OpenStackAdoption, PodVifNestedOptions, PortOptions};

use super::world::{Machine, World, text, within};

pub(crate) fn driver(world: &World, machine: Option<&Machine>) -> OpenStackAdoption {
    let options = PortOptions { ovs_bridge: "br-int".into(), port_debug: false };
    let nested = PodVifNestedOptions {
        worker_nodes_subnets: machine.map(|machine| machine.subnet.id.clone()).into_iter().collect(),
        ..PodVifNestedOptions::default()
    };
    OpenStackAdoption::new(&world.cloud, world.cluster("east"), world.marked_ports("east", options), nested)
}

/// A port as Kuryr makes it for a pod or, without one, for its pool.
pub(crate) async fn kuryrs(world: &World, subnet: &Subnet, host: Option<&str>, pod: Option<&Owner>) -> VifId {
    let mut wish = json!({
        "project_id": world.project, "network_id": subnet.network.id, "fixed_ips": [{ "subnet_id": subnet.id }],
        "device_owner": "compute:kuryr", "admin_state_up": true,
    });
    if let Some(host) = host {
        wish["binding:host_id"] = json!(host);
    }
    if let Some(pod) = pod {
        wish["device_id"] = json!(pod.uid);
    }
    text(&world.create("ports", "port", wish).await["id"]).into()
}

async fn listed(driver: &OpenStackAdoption, id: &VifId) -> ExistingPort {
    driver.ports().await.unwrap().into_iter().find(|port| port.id == *id).expect("it is listed")
}

fn adoption(port: &ExistingPort, machine: Option<&Machine>, owner: &Owner) -> Adoption {
    let host = machine.map(|machine| machine.address);
    Adoption::Port { port: Box::new(port.clone()), host, owner: owner.clone() }
}

/// The properties of a port on which its traffic depends.
fn traffic(port: &Value) -> Value {
    let fields = [
        "id",
        "mac_address",
        "fixed_ips",
        "binding:host_id",
        "binding:vif_type",
        "status",
        "security_groups",
        "admin_state_up",
        "allowed_address_pairs",
    ];
    fields.map(|field| port[field].clone()).into_iter().collect()
}

pub(crate) async fn a_port_of_kuryr_gets_our_mark_and_keeps_all_that_its_traffic_depends_on(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let (driver, web) = (driver(world, None), world.owner("web"));
    for pod in [Some(&web), None] {
        let id = kuryrs(world, &subnet, Some(&host), pod).await;
        world.wire(&id, &host).await;
        let before = world.port(id.as_str()).await;
        let port = listed(&driver, &id).await;
        assert_eq!((&port.pod, &port.mark), (&pod.map(|pod| pod.uid.clone()), &ExistingMark::Unmarked));
        assert_eq!((port.active, &port.attachment), (true, &ExistingAttachment::Host(host.clone())));
        assert_eq!(port.mac_address, text(&before["mac_address"]));
        // Twice, as when the command was stopped after it.
        for _ in 0..2 {
            driver.adopt(&adoption(&port, None, &web)).await.unwrap();
        }
        let after = world.port(id.as_str()).await;
        assert_eq!(traffic(&after), traffic(&before));
        assert_eq!(
            (text(&after["device_owner"]), text(&after["device_id"])),
            ("compute:staffetta", web.uid.as_str())
        );
        assert_eq!(listed(&driver, &id).await.mark, ExistingMark::Owned(web.clone()));
        let found = world.bound("east").vifs(Some(&web)).await.unwrap();
        assert_eq!(found.iter().map(|found| &found.resource.id).collect::<Vec<_>>(), [&id]);
        let refused = driver.adopt(&adoption(&port, None, &world.owner("other"))).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::Refused);
        world.bound("east").release_vif(&web, &found[0].resource).await.unwrap();
        assert_eq!(world.ports(&subnet).await, [Value::Null; 0]);
    }
}

pub(crate) async fn a_port_that_has_changed_since_it_was_listed_is_left_alone(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let (driver, web) = (driver(world, None), world.owner("web"));
    let id = kuryrs(world, &subnet, Some(&host), None).await;
    let port = listed(&driver, &id).await;
    let change = json!({ "port": { "device_id": world.owner("other").uid } });
    world.ask(Method::PUT, &format!("ports/{id}"), &change).await;
    let before = world.port(id.as_str()).await;
    let refused = driver.adopt(&adoption(&port, None, &web)).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::Refused);
    assert_eq!(world.port(id.as_str()).await["description"], before["description"]);
    world.remove(&format!("ports/{id}")).await;
    assert_eq!(driver.adopt(&adoption(&port, None, &web)).await.unwrap_err().reason(), Reason::NotFound);
}

pub(crate) async fn a_subport_of_kuryr_stays_on_its_trunk_with_its_vlan(world: &World) {
    let (machine, subnet) =
        (world.machine(&world.subnet("10.2.0.0/24").await).await, world.subnet("10.1.0.0/24").await);
    let (driver, web) = (driver(world, Some(&machine)), world.owner("web"));
    let id = kuryrs(world, &subnet, None, None).await;
    let subport = json!({ "port_id": id, "segmentation_type": "vlan", "segmentation_id": 77 });
    let path = format!("trunks/{}/add_subports", machine.trunk);
    let (status, answer) = world.ask(Method::PUT, &path, &json!({ "sub_ports": [subport] })).await;
    assert_eq!(status, 200, "{answer}");
    let port = listed(&driver, &id).await;
    let ExistingAttachment::Trunk { id: trunk, vlan, node_ips } = &port.attachment else {
        panic!("{port:?}")
    };
    assert_eq!((trunk, *vlan, &node_ips[..]), (&machine.trunk, 77, &[machine.address][..]));
    driver.adopt(&adoption(&port, Some(&machine), &web)).await.unwrap();
    assert_eq!(world.subports(&machine).await, [(id.to_string(), 77)]);
    assert_eq!(
        text(&world.port(id.as_str()).await["device_id"]),
        "",
        "it could not be added to a trunk again"
    );
    // Our driver knows its trunk by the mark.
    let found = world.vlan("east", &machine).vifs(Some(&web)).await.unwrap();
    assert_eq!(found.len(), 1);
    world.vlan("east", &machine).release_vif(&web, &found[0].resource).await.unwrap();
    assert!(world.subports(&machine).await.is_empty() && world.ports(&subnet).await.is_empty());
}

pub(crate) async fn a_macvlan_port_of_kuryr_is_found_by_the_pair_that_allows_it_on_its_node(world: &World) {
    let (machine, subnet) =
        (world.machine(&world.subnet("10.2.0.0/24").await).await, world.subnet("10.1.0.0/24").await);
    let (driver, web) = (driver(world, Some(&machine)), world.owner("web"));
    let id = kuryrs(world, &subnet, None, Some(&web)).await;
    assert_eq!(listed(&driver, &id).await.attachment, ExistingAttachment::Nothing);
    let port = world.port(id.as_str()).await;
    let pair =
        json!({ "ip_address": port["fixed_ips"][0]["ip_address"], "mac_address": port["mac_address"] });
    let change = json!({ "port": { "allowed_address_pairs": [pair] } });
    world.ask(Method::PUT, &format!("ports/{}", machine.port), &change).await;
    let listed = listed(&driver, &id).await;
    let node_ips = vec![machine.address];
    assert_eq!(
        listed.attachment,
        ExistingAttachment::AllowedPair { port: machine.port.as_str().into(), node_ips }
    );
    driver.adopt(&adoption(&listed, Some(&machine), &web)).await.unwrap();
    let found = world.macvlan("east", &machine).vifs(Some(&web)).await.unwrap();
    world.macvlan("east", &machine).release_vif(&web, &found[0].resource).await.unwrap();
    assert!(world.pairs(&machine.port).await.is_empty() && world.ports(&subnet).await.is_empty());
}

pub(crate) async fn of_the_ports_of_kuryr_only_one_of_a_pool_that_nothing_uses_is_deleted(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = driver(world, None);
    let (idle, used) =
        (kuryrs(world, &subnet, Some(&host), None).await, kuryrs(world, &subnet, Some(&host), None).await);
    let of_pod = kuryrs(world, &subnet, Some(&host), Some(&world.owner("web"))).await;
    world.wire(&used, &host).await;
    for id in [&used, &of_pod] {
        let refused = driver.delete(&UnusedResource::Port(id.clone())).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::Refused);
    }
    for _ in 0..2 {
        driver.delete(&UnusedResource::Port(idle.clone())).await.unwrap();
    }
    assert_eq!(world.ports(&subnet).await.len(), 2);
}

pub(crate) async fn a_load_balancer_and_its_address_get_our_marks(world: &World) {
    let (subnet, pool) = (world.subnet("10.1.0.0/24").await, world.external("203.0.113.0/28").await);
    let (driver, web) = (driver(world, None), world.owner("web"));
    let theirs = json!({ "loadbalancer": { "name": "default/web", "project_id": world.project,
        "vip_address": "10.1.0.100", "vip_subnet_id": subnet.id, "description": "kuryr" } });
    let (status, answer) = world.balance(Method::POST, "loadbalancers", &theirs).await;
    assert_eq!(status, 201, "{answer}");
    let wish = json!({ "floating_network_id": pool.network.id, "project_id": world.project, "description": "kuryr" });
    let floating = world.create("floatingips", "floatingip", wish).await;
    let (balancers, ips) = (driver.load_balancers().await.unwrap(), driver.public_ips().await.unwrap());
    assert_eq!((balancers.len(), ips.len()), (1, 1));
    assert_eq!(
        (balancers[0].vip, &balancers[0].subnet),
        (Some([10, 1, 0, 100].into()), &Some(subnet.id.clone()))
    );
    assert_eq!((&balancers[0].mark, &ips[0].mark), (&ExistingMark::Unmarked, &ExistingMark::Unmarked));
    let adoptions = |owner: &Owner| {
        [
            Adoption::LoadBalancer(balancers[0].id.clone(), owner.clone()),
            Adoption::PublicIp(ips[0].id.clone(), owner.clone()),
        ]
    };
    for adoption in [adoptions(&web), adoptions(&web)].concat() {
        within(async {
            while let Err(error) = driver.adopt(&adoption).await {
                assert!(error.transient(), "{error}");
                tokio::time::sleep(error.retry_after().unwrap_or(Duration::from_millis(200))).await;
            }
        })
        .await;
    }
    for adoption in adoptions(&world.owner("other")) {
        assert_eq!(driver.adopt(&adoption).await.unwrap_err().reason(), Reason::Refused);
    }
    let owned = ExistingMark::Owned(web.clone());
    assert_eq!(driver.load_balancers().await.unwrap()[0].mark, owned);
    assert_eq!(driver.public_ips().await.unwrap()[0].mark, owned);
    let found =
        world.balancers("east", &OctaviaDefaults::default()).load_balancers(Some(&web)).await.unwrap();
    assert_eq!(found.iter().map(|found| &found.resource.id).collect::<Vec<_>>(), [&balancers[0].id]);
    let found = world.floating("east", &pool).public_ips(Some(&web)).await.unwrap();
    assert_eq!(found[0].resource.id.as_str(), text(&floating["id"]));
}

pub(crate) async fn the_network_of_a_namespace_is_marked_with_its_subnet(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = driver(world, None);
    let owner = Owner { namespace: String::new(), ..world.owner("shop") };
    let network = &subnet.network.id;
    let wrong =
        Adoption::Network(network.clone(), "00000000-0000-4000-8000-000000000000".into(), owner.clone());
    assert_eq!(driver.adopt(&wrong).await.unwrap_err().reason(), Reason::NotFound);
    for _ in 0..2 {
        driver.adopt(&Adoption::Network(network.clone(), subnet.id.clone(), owner.clone())).await.unwrap();
    }
    let listed = driver.networks().await.unwrap();
    let listed = listed.iter().find(|listed| listed.id == *network).unwrap();
    assert_eq!((&listed.mark, &listed.subnets[..]), (&ExistingMark::Owned(owner), &[subnet.id][..]));
    let another = Adoption::Network(network.clone(), listed.subnets[0].clone(), world.owner("other"));
    assert_eq!(driver.adopt(&another).await.unwrap_err().reason(), Reason::Refused);
}

pub(crate) async fn a_security_group_of_kuryr_is_deleted_when_no_port_has_it(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = driver(world, None);
    let group = async |description: &str| {
        let wish =
            json!({ "name": "sg-default-web", "project_id": world.project, "description": description });
        let group = world.create("security-groups", "security_group", wish).await;
        UnusedResource::SecurityGroup(text(&group["id"]).into(), "default/web".to_owned())
    };
    for other in ["bastion", "Kuryr-Kubernetes Network Policy default/web-1 SG"] {
        let refused = driver.delete(&group(other).await).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::Refused, "{other}");
    }
    driver.delete(&group("Kuryr-Kubernetes NetPolicy SG").await).await.unwrap();
    let group = group("Kuryr-Kubernetes Network Policy default/web SG").await;
    let UnusedResource::SecurityGroup(id, _) = &group else { unreachable!() };
    let wish = json!({ "network_id": subnet.network.id, "fixed_ips": [{ "subnet_id": subnet.id }],
        "project_id": world.project, "security_groups": [id] });
    let port = world.create("ports", "port", wish).await;
    driver.delete(&group).await.unwrap_err();
    world.remove(&format!("ports/{}", text(&port["id"]))).await;
    for _ in 0..2 {
        driver.delete(&group).await.unwrap();
    }
}
