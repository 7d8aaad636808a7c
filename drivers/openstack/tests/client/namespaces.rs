use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use staffetta_driver::{
    Activation, DriverError, NamespaceSubnetDriver, NetworkId, Owned, Owner, PodVifDriver, Reason, Vif,
    VifPoolDriver, VifRequest,
};
use staffetta_openstack::NamespaceNetworks;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::world::{refused, without_login};

/// As much of Neutron as the driver of namespace networks asks for. It can stop to answer after so many changes.
#[derive(Default)]
struct Neutron {
    things: Mutex<BTreeMap<String, Vec<Value>>>,
    changes: Mutex<usize>,
    /// The answer to this change gets lost: it is done, and a 502 is answered.
    lost: Mutex<Option<usize>>,
}

impl Neutron {
    async fn start() -> (Arc<Self>, MockServer) {
        let (neutron, server) = (Arc::new(Self::default()), MockServer::start().await);
        let answers = Arc::clone(&neutron);
        let answer = move |request: &Request| answers.answer(request);
        Mock::given(any()).respond_with(answer).mount(&server).await;
        (neutron, server)
    }

    fn answer(&self, request: &Request) -> ResponseTemplate {
        let path: Vec<_> = request.url.path().trim_start_matches("/v2.0/").split('/').collect();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let query: Vec<(String, String)> = request.url.query_pairs().into_owned().collect();
        if request.method == "GET" {
            return self.get(&path, &query);
        }
        let answer = match (request.method.as_str(), &path[..]) {
            ("POST", [kind]) => self.post(kind, &body),
            ("PUT", ["routers", router, change]) => self.route(router, change, &body),
            ("PUT", ["trunks", "7b", "remove_subports"]) => {
                let port = &body["sub_ports"][0]["port_id"];
                let mut things = self.things.lock().unwrap();
                things.get_mut("trunks").unwrap()[0]["sub_ports"]
                    .as_array_mut()
                    .unwrap()
                    .retain(|sub| sub["port_id"] != *port);
                ResponseTemplate::new(200).set_body_json(json!({}))
            }
            ("DELETE", [kind, id]) => self.delete(kind, id),
            other => panic!("nobody asks for {other:?}"),
        };
        let mut changes = self.changes.lock().unwrap();
        *changes += 1;
        let lost = *self.lost.lock().unwrap() == Some(*changes);
        if lost { ResponseTemplate::new(502) } else { answer }
    }

    fn get(&self, path: &[&str], query: &[(String, String)]) -> ResponseTemplate {
        if let ["subnetpools", _] = path {
            return ResponseTemplate::new(200).set_body_json(json!({ "subnetpool": { "ip_version": 4 } }));
        }
        let things = self.things(path[0]);
        let filters: Vec<_> =
            query.iter().filter(|(name, _)| !["fields", "limit"].contains(&name.as_str())).collect();
        let found: Vec<_> = things
            .into_iter()
            .filter(|thing| filters.iter().all(|(name, value)| thing[name] == **value))
            .collect();
        ResponseTemplate::new(200).set_body_json(json!({ path[0]: found }))
    }

    fn post(&self, kind: &str, body: &Value) -> ResponseTemplate {
        let singular = kind.trim_end_matches('s');
        let mut thing = body[singular].as_object().cloned().unwrap();
        let id = self.add(kind, &mut thing);
        thing.insert("id".into(), id.into());
        ResponseTemplate::new(201).set_body_json(json!({ singular: thing }))
    }

    fn add(&self, kind: &str, thing: &mut Map<String, Value>) -> String {
        let mut things = self.things.lock().unwrap();
        let of_kind = things.entry(kind.to_owned()).or_default();
        let id = format!("{kind}-{}", of_kind.len() + 1);
        thing.insert("id".into(), id.clone().into());
        of_kind.push(thing.clone().into());
        id
    }

    fn route(&self, router: &str, change: &str, body: &Value) -> ResponseTemplate {
        let subnet = &body["subnet_id"];
        let is_place =
            |port: &Value| port["device_id"] == router && port["fixed_ips"][0]["subnet_id"] == *subnet;
        let joined = self.things("ports").iter().any(is_place);
        match (change, joined) {
            ("add_router_interface", true) => refused(400, "BadRequest"),
            ("add_router_interface", false) => {
                let network =
                    self.things("subnets").into_iter().find(|known| known["id"] == *subnet).unwrap();
                let port = json!({ "device_owner": "network:router_interface", "device_id": router,
                    "network_id": network["network_id"], "fixed_ips": [{ "subnet_id": subnet }], "tags": [] });
                self.add("ports", &mut port.as_object().cloned().unwrap());
                ResponseTemplate::new(200).set_body_json(json!({}))
            }
            (_, true) => {
                self.things.lock().unwrap().get_mut("ports").unwrap().retain(|port| !is_place(port));
                ResponseTemplate::new(200).set_body_json(json!({}))
            }
            (_, false) => refused(404, "RouterInterfaceNotFoundForSubnet"),
        }
    }

    fn delete(&self, kind: &str, id: &str) -> ResponseTemplate {
        if kind == "networks" && self.things("ports").iter().any(|port| port["network_id"] == id) {
            return refused(409, "NetworkInUse");
        }
        if self.things("trunks").iter().any(|trunk| trunk["sub_ports"][0]["port_id"] == id) {
            return refused(409, "PortInUseAsSubPort");
        }
        let mut things = self.things.lock().unwrap();
        let of_kind = things.entry(kind.to_owned()).or_default();
        let before = of_kind.len();
        of_kind.retain(|thing| thing["id"] != id);
        if of_kind.len() == before {
            return refused(404, "NotFound");
        }
        if let Some(subnets) = things.get_mut("subnets").filter(|_| kind == "networks") {
            subnets.retain(|subnet| subnet["network_id"] != id);
        }
        ResponseTemplate::new(204)
    }

    fn things(&self, kind: &str) -> Vec<Value> {
        self.things.lock().unwrap().get(kind).cloned().unwrap_or_default()
    }

    /// The numbers of networks, subnets and ports.
    fn counts(&self) -> [usize; 3] {
        ["networks", "subnets", "ports"].map(|kind| self.things(kind).len())
    }

    fn port(&self, description: &str) {
        let port = json!({ "network_id": "networks-1", "device_owner": "compute:kuryr", "description": description });
        self.add("ports", &mut port.as_object().cloned().unwrap());
    }

    /// The descriptions of the ports that there are.
    fn left(&self) -> Vec<Value> {
        self.things("ports").into_iter().map(|port| port["description"].clone()).collect()
    }
}

fn driver(server: &MockServer, cluster: &str) -> NamespaceNetworks {
    let network = without_login(&server.uri(), std::time::Duration::from_secs(10)).network();
    NamespaceNetworks::new(network, cluster.into(), "pool".into(), Some("router".into()))
}

fn owner(name: &str) -> Owner {
    Owner { namespace: String::new(), name: name.into(), uid: format!("uid-{name}").into() }
}

#[tokio::test]
async fn a_namespace_gets_a_network_a_subnet_and_a_place_at_the_router() {
    let (neutron, server) = Neutron::start().await;
    let driver = driver(&server, "east");
    let made = driver.ensure_network(&owner("shop"), &"p1".into()).await.unwrap();
    assert_eq!((made.network.as_str(), made.subnet.as_str()), ("networks-1", "subnets-1"));
    let description = "staffetta:cluster=east staffetta:uid=uid-shop staffetta:name=shop";
    let network =
        json!({ "id": "networks-1", "name": "east/shop", "description": description, "project_id": "p1" });
    assert_eq!(neutron.things("networks"), [network]);
    let subnet = json!({ "id": "subnets-1", "name": "east/shop", "description": description, "project_id": "p1",
        "network_id": "networks-1", "subnetpool_id": "pool", "ip_version": 4, "enable_dhcp": false });
    assert_eq!(neutron.things("subnets"), [subnet]);
    assert_eq!(neutron.things("ports")[0]["device_id"], "router");
    assert_eq!(driver.ensure_network(&owner("shop"), &"p1".into()).await.unwrap(), made, "found again");
    assert_eq!(neutron.counts(), [1, 1, 1]);
}

#[tokio::test]
async fn killed_after_any_change_and_run_again_nothing_is_made_twice_and_nothing_is_left() {
    for lost in 1..=5 {
        let (neutron, server) = Neutron::start().await;
        *neutron.lost.lock().unwrap() = Some(lost);
        let mut failures = 0;
        while driver(&server, "east").ensure_network(&owner("shop"), &"p1".into()).await.is_err() {
            failures += 1;
        }
        assert_eq!(neutron.counts(), [1, 1, 1], "change {lost}");
        while driver(&server, "east").release_network(&owner("shop")).await.is_err() {
            failures += 1;
        }
        assert_eq!((neutron.counts(), failures), ([0, 0, 0], 1), "change {lost}");
        driver(&server, "east").release_network(&owner("shop")).await.unwrap();
    }
}

#[tokio::test]
async fn what_the_cluster_left_goes_with_the_network_and_what_others_use_keeps_it() {
    let (neutron, server) = Neutron::start().await;
    let driver = driver(&server, "east");
    driver.ensure_network(&owner("shop"), &"p1".into()).await.unwrap();
    neutron.port("staffetta:cluster=east batch=1-1");
    neutron.port("staffetta:cluster=west batch=1-1");
    let error = driver.release_network(&owner("shop")).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Conflict);
    assert!(error.to_string().contains("NetworkInUse"), "{error}");
    assert_eq!(neutron.left(), ["staffetta:cluster=west batch=1-1"]);
    neutron.things.lock().unwrap().remove("ports");
    driver.release_network(&owner("shop")).await.unwrap();
    assert_eq!(neutron.counts(), [0, 0, 0]);
}

#[tokio::test]
async fn the_port_of_a_pod_stays_and_keeps_the_network_of_its_namespace() {
    let (neutron, server) = Neutron::start().await;
    let driver = driver(&server, "east");
    driver.ensure_network(&owner("shop"), &"p1".into()).await.unwrap();
    let of_a_pod = "staffetta:cluster=east uid=u1 pod=shop/web";
    neutron.port(of_a_pod);
    neutron.port("staffetta:cluster=east batch=1-1");
    let error = driver.release_network(&owner("shop")).await.unwrap_err();
    assert!(error.transient() && error.to_string().contains("NetworkInUse"), "{error}");
    assert_eq!(neutron.left(), [of_a_pod]);
}

#[tokio::test]
async fn a_port_is_removed_from_the_trunk_in_its_mark_before_it_is_deleted_and_from_no_other_trunk() {
    for (nesting, is_deleted) in [("host=10.2.0.1 trunk=7b ", true), ("", false)] {
        let (neutron, server) = Neutron::start().await;
        let driver = driver(&server, "east");
        driver.ensure_network(&owner("shop"), &"p1".into()).await.unwrap();
        neutron.port(&format!("staffetta:cluster=east {nesting}batch=1-1"));
        let trunk = json!({ "id": "7b", "sub_ports": [{ "port_id": "ports-2", "segmentation_id": 7 }] });
        neutron.things.lock().unwrap().insert("trunks".into(), vec![trunk]);
        let released = driver.release_network(&owner("shop")).await;
        assert_eq!(released.is_ok(), is_deleted, "{released:?}");
        assert_eq!(neutron.things("trunks")[0]["sub_ports"].as_array().unwrap().is_empty(), is_deleted);
        assert_eq!(neutron.counts() == [0, 0, 0], is_deleted);
    }
}

#[tokio::test]
async fn only_what_carries_the_mark_of_the_cluster_is_reported_or_touched() {
    let (neutron, server) = Neutron::start().await;
    let (east, west) = (driver(&server, "east"), driver(&server, "west"));
    east.ensure_network(&owner("shop"), &"p1".into()).await.unwrap();
    west.ensure_network(&owner("shop"), &"p1".into()).await.unwrap();
    neutron.add("networks", &mut json!({ "description": "mine" }).as_object().cloned().unwrap());
    let reported = east.networks().await.unwrap();
    assert_eq!(reported.into_iter().map(|marked| marked.owner).collect::<Vec<_>>(), [Some(owner("shop"))]);
    east.release_network(&owner("shop")).await.unwrap();
    assert_eq!((east.networks().await.unwrap().len(), west.networks().await.unwrap().len()), (0, 1));
    assert_eq!(neutron.things("networks").len(), 2);
}

/// A pool that is told to leave networks. It has left one when `busy` is false.
#[derive(Default)]
struct Leaving {
    busy: AtomicBool,
    left: Mutex<Vec<NetworkId>>,
}

#[async_trait]
impl VifPoolDriver for Leaving {
    async fn drain_network(&self, network: &NetworkId) -> Result<(), DriverError> {
        self.left.lock().unwrap().push(network.clone());
        let busy = self.busy.load(Ordering::Relaxed);
        if busy { Err(DriverError::new(Reason::Conflict, "leave a network")) } else { Ok(()) }
    }
}

#[async_trait]
impl PodVifDriver for Leaving {
    async fn request_vif(&self, _: &VifRequest) -> Result<Vif, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "request a VIF"))
    }

    async fn release_vif(&self, _: &Owner, _: &Vif) -> Result<(), DriverError> {
        Ok(())
    }

    async fn activate_vif(&self, _: &Owner, _: &Vif) -> Result<Activation, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "activate a VIF"))
    }

    async fn vifs(&self, _: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_pool_leaves_the_network_before_anything_of_it_is_removed() {
    let (neutron, server) = Neutron::start().await;
    let pool = Arc::new(Leaving::default());
    let driver = driver(&server, "east").with_pool(Arc::clone(&pool) as _);
    driver.ensure_network(&owner("shop"), &"p1".into()).await.unwrap();
    neutron.port("staffetta:cluster=east batch=1-1");
    pool.busy.store(true, Ordering::Relaxed);
    let error = driver.release_network(&owner("shop")).await.unwrap_err();
    assert_eq!((error.reason(), neutron.counts()), (Reason::Conflict, [1, 1, 2]));
    pool.busy.store(false, Ordering::Relaxed);
    driver.release_network(&owner("shop")).await.unwrap();
    assert_eq!(neutron.counts(), [0, 0, 0]);
    driver.release_network(&owner("other")).await.unwrap();
    let left: Vec<_> = pool.left.lock().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(left, ["networks-1", "networks-1"], "nobody leaves what is not there");
}
