//! A Neutron that fails, and a network between that does.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use staffetta_driver::{
    Activation, AdoptionDriver, BulkVifDriver, BulkVifRequest, PodVifDriver, Reason, UnusedResource, Vif,
    VifClass, VifId,
};
use staffetta_openstack::{NestedMacvlanDriver, PodVifNestedOptions, PortOptions};

use crate::fake::{Fake, Fault};
use crate::scenarios::adoption;
use crate::scenarios::stock::order;
use crate::scenarios::world::{World, text};
use crate::{an_hour_passes, fake};

#[tokio::test]
async fn a_port_whose_answer_got_lost_is_found_by_its_mark_and_none_is_made_twice() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    fake.inject(Method::POST, "ports", Fault::DoneThenClose);
    let error = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap_err();
    assert!(error.ambiguous() && error.transient(), "{error}");
    let found = driver.vifs(Some(&world.owner("web"))).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(fake.requests().iter().filter(|request| *request == "POST ports").count(), 1);
    driver.release_vif(&world.owner("web"), &found[0].resource).await.unwrap();
    assert!(world.ports(&subnet).await.is_empty());
}

#[tokio::test]
async fn a_lot_of_ports_whose_answer_got_lost_is_found_by_its_mark() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    let request = world.request("any", &host, &subnet);
    let order = order(&stock, &request, 4);
    // Ports of another call are not taken for those of this one, not even where lists are not filtered by descriptions.
    let first = stock.create_vifs(&order).await.vifs;
    for ignored in [false, true] {
        fake.state().ignores_descriptions = ignored;
        fake.inject(Method::POST, "ports", Fault::DoneThenClose);
        let made = stock.create_vifs(&order).await;
        assert!(made.failure.is_none() && made.vifs.len() == 4, "{:?}", made.failure);
        assert!(made.vifs.iter().all(|vif| first.iter().all(|other| other.id != vif.id)));
    }
    assert_eq!(world.ports(&subnet).await.len(), 12);
}

#[tokio::test]
async fn of_the_ports_of_a_repeated_call_a_node_gets_as_many_as_were_wanted() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let stock = world.vlan("east", &machine);
    let order = order(&stock, &world.nested_request("any", &machine, &subnet), 4);
    assert_eq!(stock.create_vifs(&order).await.vifs.len(), 4);
    let (sender, mut held) = tokio::sync::mpsc::unbounded_channel();
    fake.inject(Method::POST, "ports", Fault::DoneThenClose);
    fake.inject(Method::GET, "ports", Fault::Hold(sender));
    let repeated = async {
        let hold = held.recv().await.unwrap();
        let mut port = world.ports(&subnet).await.pop().unwrap();
        port["id"] = json!("ffffffff-0000-4000-8000-000000000001");
        fake.state().ports.insert(text(&port["id"]).to_owned(), port);
        drop(hold);
    };
    let (made, ()) = tokio::join!(stock.create_vifs(&order), repeated);
    assert!(made.failure.is_none() && made.vifs.len() == 4, "{:?}", made.failure);
    assert_eq!((world.subports(&machine).await.len(), world.ports(&subnet).await.len()), (8, 9));
    let list = stock.list_vifs().await.unwrap();
    assert_eq!((list.usable.len(), list.incomplete.len()), (8, 1), "the pool deletes it");
}

#[tokio::test]
async fn a_service_that_is_unavailable_is_reported_as_such_and_recovered_from() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let request = world.request("web", &host, &subnet);
    fake.inject(Method::POST, "ports", Fault::Html(503));
    let error = driver.request_vif(&request).await.unwrap_err();
    assert!(error.reason() == Reason::Unavailable && error.to_string().contains("HTTP 503"), "{error}");
    assert!(driver.vifs(Some(&request.owner)).await.unwrap().is_empty());
    let vif = driver.request_vif(&request).await.unwrap();
    fake.inject(Method::DELETE, "ports", Fault::Html(503));
    assert!(driver.release_vif(&request.owner, &vif).await.unwrap_err().transient());
    driver.release_vif(&request.owner, &vif).await.unwrap();
    assert!(world.ports(&subnet).await.is_empty());
}

#[tokio::test]
async fn a_port_that_cannot_be_removed_after_a_failed_binding_is_found_by_its_mark() {
    let (fake, world) = fake().await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.bound("east");
    let request = world.request("web", "late", &subnet);
    fake.inject(Method::DELETE, "ports", Fault::Html(503));
    let error = driver.request_vif(&request).await.unwrap_err();
    assert!(error.ambiguous(), "{error}");
    let found = driver.vifs(Some(&request.owner)).await.unwrap().remove(0).resource;
    // Its host gets an agent, and the driver lets Neutron bind it again.
    let failed = driver.activate_vif(&request.owner, &found).await.unwrap_err();
    assert!(failed.transient() && failed.to_string().contains("`late`"), "{failed}");
    let (status, _) = world.ask(Method::PUT, "_agent/host/late", &Value::Null).await;
    assert_eq!(status, 204);
    driver.activate_vif(&request.owner, &found).await.unwrap();
    assert_eq!(text(&world.port(found.id.as_str()).await["binding:vif_type"]), "ovs");
    world.wire(&found.id, "late").await;
    let active = crate::scenarios::world::activated(&driver, &request.owner, &found).await.unwrap();
    assert_eq!(active, Vif { active: true, ..found });
}

#[tokio::test]
async fn a_proxy_that_does_not_find_neutron_says_nothing_of_a_port() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let request = world.request("web", &host, &subnet);
    let vif = driver.request_vif(&request).await.unwrap();
    fake.inject(Method::DELETE, "ports", Fault::Html(404));
    let error = driver.release_vif(&request.owner, &vif).await.unwrap_err();
    assert!(error.reason() == Reason::Unavailable && error.to_string().contains("HTTP 404"), "{error}");
    assert_eq!(world.ports(&subnet).await.len(), 1);
    fake.inject(Method::GET, "ports", Fault::Html(404));
    let error = world.bound("east").release_vif(&request.owner, &vif).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable, "{error}");
    fake.inject(Method::GET, "ports", Fault::Html(404));
    let error = world.bound("east").activate_vif(&request.owner, &vif).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable, "no other VIF is made for that: {error}");
    driver.release_vif(&request.owner, &vif).await.unwrap();
    assert!(world.ports(&subnet).await.is_empty());
}

#[tokio::test]
async fn a_port_that_is_not_this_clusters_is_not_bound_again_whoever_shows_it() {
    let (fake, world) = fake().await;
    let (subnet, driver) = (world.subnet("10.1.0.0/24").await, world.bound("east"));
    let (west, uid) = (world.cluster("west"), world.owner("web").uid);
    let foreign = serde_json::json!({ "network_id": subnet.network.id, "project_id": world.project,
        "fixed_ips": [{ "subnet_id": subnet.id }], "binding:host_id": "late", "device_owner": "compute:staffetta",
        "device_id": uid, "tags": [format!("staffetta:cluster={west}")],
        "description": format!("staffetta:cluster={west} uid={uid} pod=default/web") });
    let foreign = world.create("ports", "port", foreign).await;
    let vif = driver.request_vif(&world.request("web", &world.host("node").await, &subnet)).await.unwrap();
    let shown = Vif { id: text(&foreign["id"]).into(), ..vif };
    world.ask(Method::PUT, "_agent/host/late", &Value::Null).await;
    fake.requests();
    let error = driver.activate_vif(&world.owner("web"), &shown).await.unwrap_err();
    assert!(error.to_string().contains("does not belong to the pod"), "{error}");
    assert!(fake.requests().iter().all(|request| request.starts_with("GET ")));
    assert_eq!(text(&world.port(text(&foreign["id"])).await["binding:vif_type"]), "binding_failed");
}

#[tokio::test]
async fn a_binding_that_fails_names_the_request_that_made_the_port() {
    let (_fake, world) = fake().await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let error = world.bound("east").request_vif(&world.request("web", "nowhere", &subnet)).await.unwrap_err();
    assert!(error.to_string().ends_with("(request req-of-the-fake)"), "{error}");
}

#[tokio::test]
async fn where_ports_cannot_be_tagged_they_are_found_by_what_else_they_say() {
    let (fake, world) = fake().await;
    fake.state().extensions.remove("tag-ports-during-bulk-creation");
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let (bound, nested) = (world.bound("east"), world.vlan("east", &machine));
    let host = machine.host.clone();
    bound.request_vif(&world.request("a", &host, &subnet)).await.unwrap();
    nested.request_vif(&world.nested_request("b", &machine, &subnet)).await.unwrap();
    world.bound("west").request_vif(&world.request("c", &host, &subnet)).await.unwrap();
    let ports = world.ports(&subnet).await;
    assert!(ports.iter().all(|port| port["tags"].as_array().unwrap().is_empty()));
    for (driver, pod) in [(&bound as &dyn PodVifDriver, "a"), (&nested, "b")] {
        let owner = world.owner(pod);
        for asked in [None, Some(&owner)] {
            let found = driver.vifs(asked).await.unwrap();
            assert_eq!((found.len(), found[0].owner.as_ref()), (1, Some(&owner)));
        }
    }
    let stock = bound;
    let request = world.request("any", &host, &subnet);
    let order = order(&stock, &request, 3);
    assert_eq!(stock.create_vifs(&order).await.vifs.len(), 3);
    assert_eq!(stock.list_vifs().await.unwrap().usable.len(), 3);
}

#[tokio::test]
async fn what_was_made_before_ports_could_be_tagged_is_found_afterwards() {
    let (fake, world) = fake().await;
    fake.state().extensions.remove("tag-ports-during-bulk-creation");
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    let request = world.request("web", &host, &subnet);
    world.bound("east").request_vif(&request).await.unwrap();
    world.bound("west").request_vif(&request).await.unwrap();
    let order = order(&stock, &request, 2);
    assert_eq!(stock.create_vifs(&order).await.vifs.len(), 2);
    // The cloud is upgraded, and the controller is started anew once that is known.
    fake.state().extensions.insert("tag-ports-during-bulk-creation");
    an_hour_passes().await;
    let (driver, stock) = (world.bound("east"), world.bound("east"));
    for _ in 0..2 {
        assert_eq!(driver.vifs(Some(&request.owner)).await.unwrap().len(), 1);
        assert_eq!(
            (driver.vifs(None).await.unwrap().len(), stock.list_vifs().await.unwrap().usable.len()),
            (3, 2)
        );
    }
    let last = fake.requests().pop().unwrap();
    let tagged = world.ports(&subnet).await;
    let tagged = tagged.iter().filter(|port| !port["tags"].as_array().unwrap().is_empty()).count();
    assert!(tagged == 3 && last.contains("tags="), "{tagged} {last}");
    // While servers are upgraded one after the other, some of them accept tags and some do not.
    let later = world.request("later", &host, &subnet);
    fake.state().extensions.remove("tag-ports-during-bulk-creation");
    an_hour_passes().await;
    driver.request_vif(&later).await.unwrap();
    fake.state().extensions.insert("tag-ports-during-bulk-creation");
    an_hour_passes().await;
    assert_eq!(driver.vifs(Some(&later.owner)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_tagged_is_not_tagged_again_by_one_who_starts_anew() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    world.bound("east").request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    assert_eq!(world.bound("east").vifs(None).await.unwrap().len(), 1);
    let tags: Vec<_> = fake.requests().into_iter().filter(|request| request.contains("/tags/")).collect();
    assert_eq!(tags, [""; 0]);
}

/// The outcome of `deletion`, while whose request for the port is on its way an agent wires the port.
async fn wired_meanwhile<T>(
    fake: &Fake,
    world: &World,
    (port, host): (&VifId, &str),
    deletion: impl Future<Output = T>,
) -> T {
    let (sender, mut held) = tokio::sync::mpsc::unbounded_channel();
    fake.inject(Method::DELETE, "ports", Fault::Hold(sender));
    let wired = async {
        let release = held.recv().await.unwrap();
        world.wire(port, host).await;
        release.send(()).unwrap();
    };
    tokio::join!(deletion, wired).0
}

#[tokio::test]
async fn a_port_that_is_wired_while_its_deletion_is_on_its_way_stays() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let (stock, kuryr) = (world.bound("east"), adoption::driver(&world, None));
    let request = order(&stock, &world.request("any", &host, &subnet), 2);
    let pooled = stock.create_vifs(&request).await.vifs;
    let first = &pooled[..1];
    let left = wired_meanwhile(&fake, &world, (&first[0].id, &host), stock.delete_vifs(first)).await;
    assert_eq!((left[0].1.reason(), left[0].1.ambiguous()), (Reason::Conflict, false));
    let id = adoption::kuryrs(&world, &subnet, Some(&host), None).await;
    let unused = UnusedResource::Port(id.clone());
    let error = wired_meanwhile(&fake, &world, (&id, &host), kuryr.delete(&unused)).await.unwrap_err();
    assert_eq!((error.reason(), error.ambiguous()), (Reason::Conflict, false));
    assert_eq!(world.ports(&subnet).await.len(), 3);
    assert!(stock.delete_vifs(first).await.is_empty(), "it is read again");
    // An older Neutron shows no revision numbers, and refuses conditions.
    fake.state().extensions.remove("revision-if-match");
    assert!(stock.delete_vifs(&pooled[1..]).await.is_empty());
    assert_eq!(world.ports(&subnet).await.len(), 1);
}

#[tokio::test]
async fn pairs_that_somebody_else_adds_meanwhile_stay() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let driver = world.macvlan("east", &machine);
    let request = world.nested_request("web", &machine, &machine.subnet);
    fake.inject(Method::PUT, "ports", Fault::Interfere);
    let vif = driver.request_vif(&request).await.unwrap();
    let foreign = "192.0.2.77 fa:16:3e:77:77:77";
    let pairs = world.pairs(&machine.port).await;
    assert!(pairs.len() == 2 && pairs.contains(&foreign.to_owned()), "{pairs:?}");
    driver.release_vif(&request.owner, &vif).await.unwrap();
    assert_eq!(world.pairs(&machine.port).await, [foreign]);
}

#[tokio::test]
async fn a_port_that_others_change_all_the_time_is_left_as_it_is() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let driver = world.macvlan("east", &machine);
    for _ in 0..3 {
        fake.inject(Method::PUT, "ports", Fault::Refuse(412, "RevisionNumberConstraintFailed"));
    }
    let request = world.nested_request("web", &machine, &machine.subnet);
    let error = driver.request_vif(&request).await.unwrap_err();
    assert_eq!((error.reason(), error.ambiguous()), (Reason::Conflict, false));
    assert_eq!((world.ports(&machine.subnet).await.len(), world.pairs(&machine.port).await.len()), (1, 0));
    // As often as the option says.
    for _ in 0..3 {
        fake.inject(Method::PUT, "ports", Fault::Refuse(412, "RevisionNumberConstraintFailed"));
    }
    let nested = PodVifNestedOptions {
        worker_nodes_subnets: vec![machine.subnet.id.clone()],
        rev_update_attempts: 4.try_into().unwrap(),
    };
    let ports = PortOptions { ovs_bridge: "br-int".into(), port_debug: true };
    let patient = NestedMacvlanDriver::new(world.marked_ports("east", ports), nested);
    patient.request_vif(&request).await.unwrap();
    assert_eq!((world.ports(&machine.subnet).await.len(), world.pairs(&machine.port).await.len()), (2, 1));
}

#[tokio::test]
async fn pods_for_whose_addresses_there_is_no_room_wait_and_the_others_do_not() {
    let (fake, world) = fake().await;
    fake.state().pairs = 3;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let driver = world.macvlan("east", &machine);
    let requests: Vec<_> =
        (0..5).map(|pod| world.nested_request(&format!("pod-{pod}"), &machine, &machine.subnet)).collect();
    let vifs =
        futures_util::future::join_all(requests.iter().map(|request| driver.request_vif(request))).await;
    let (made, refused): (Vec<_>, Vec<_>) = vifs.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (3, 2));
    for error in refused {
        assert_eq!(error.unwrap_err().reason(), Reason::Quota);
    }
    assert_eq!(world.ports(&machine.subnet).await.len(), 4, "the node's and three");
}

#[tokio::test]
async fn subports_whose_answer_got_lost_are_on_the_trunk_once() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.vlan("east", &machine);
    fake.inject(Method::PUT, "trunks", Fault::DoneThenClose);
    let request = world.nested_request("web", &machine, &subnet);
    let vif = driver.request_vif(&request).await.unwrap();
    assert_eq!(world.subports(&machine).await.len(), 1);
    fake.inject(Method::PUT, "trunks", Fault::DoneThenClose);
    driver.release_vif(&request.owner, &vif).await.unwrap();
    assert!(world.subports(&machine).await.is_empty() && world.ports(&subnet).await.is_empty());
}

#[tokio::test]
async fn a_trunk_that_takes_no_subport_costs_no_port() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.vlan("east", &machine);
    let request = world.nested_request("web", &machine, &subnet);
    fake.inject(Method::PUT, "trunks", Fault::Refuse(409, "TrunkInErrorState"));
    assert_eq!(driver.request_vif(&request).await.unwrap_err().reason(), Reason::Conflict);
    for _ in 0..4 {
        fake.inject(Method::PUT, "trunks", Fault::Refuse(409, "DuplicateSubPort"));
    }
    assert_eq!(
        driver.request_vif(&request).await.unwrap_err().reason(),
        Reason::Conflict,
        "it is not tried for ever"
    );
    assert!(world.ports(&subnet).await.is_empty());
    let stock = driver.clone();
    fake.inject(Method::PUT, "trunks", Fault::Refuse(409, "TrunkInErrorState"));
    let order = order(&stock, &request, 5);
    let made = stock.create_vifs(&order).await;
    assert!(made.vifs.is_empty() && made.failure.is_some() && world.ports(&subnet).await.is_empty());
    // No VLAN was lost on the way.
    let made = stock.create_vifs(&BulkVifRequest { count: 60, ..order }).await;
    assert_eq!(made.vifs.len(), 60);
}

#[tokio::test]
async fn a_trunk_without_a_free_vlan_is_reported_as_such() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let taken = (1..=4094).map(|vlan| json!({ "port_id": format!("port-{vlan}"), "segmentation_id": vlan }));
    let taken: Vec<Value> = taken.collect();
    fake.state().trunks.get_mut(&machine.trunk).unwrap()["sub_ports"] = taken.into();
    let driver = world.vlan("east", &machine);
    let error = driver.request_vif(&world.nested_request("web", &machine, &subnet)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Quota);
    assert!(error.to_string().contains(&machine.trunk), "{error}");
    assert!(world.ports(&subnet).await.is_empty());
    // Another program releases one of them.
    let freed = |subports: &mut Value| drop(subports.as_array_mut().unwrap().remove(76));
    freed(&mut fake.state().trunks.get_mut(&machine.trunk).unwrap()["sub_ports"]);
    let vif = driver.request_vif(&world.nested_request("web", &machine, &subnet)).await.unwrap();
    assert!(matches!(vif.class, VifClass::VlanNested { vlan_id: 77, .. }), "{:?}", vif.class);
}

#[tokio::test]
async fn a_subport_that_stays_down_is_attached_again() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.vlan("east", &machine);
    let vif = driver.request_vif(&world.nested_request("web", &machine, &subnet)).await.unwrap();
    let changes = async || {
        // Time passes at once; what goes over the network takes as long as it does.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::time::resume();
        fake.requests();
        driver.activate_vif(&world.owner("web"), &vif).await.unwrap();
        fake.requests().iter().filter(|request| request.starts_with("PUT trunks")).count()
    };
    assert_eq!((changes().await, changes().await, changes().await, changes().await), (0, 2, 2, 0));
    let VifClass::VlanNested { vlan_id, .. } = vif.class else { panic!("{:?}", vif.class) };
    assert_eq!(world.subports(&machine).await, [(vif.id.to_string(), vlan_id.into())]);
}

#[tokio::test]
async fn a_subport_whose_binding_failed_is_looked_at_ever_more_seldom_and_attached_again() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.vlan("east", &machine);
    let vif = driver.request_vif(&world.nested_request("web", &machine, &subnet)).await.unwrap();
    // The agent of the node was away when Neutron was to bind the subport.
    fake.state().ports.get_mut(vif.id.as_str()).unwrap()["binding:vif_type"] = json!("binding_failed");
    fake.requests();
    let (mut waited, mut asked) = (Duration::ZERO, 0);
    while waited < Duration::from_secs(100) {
        let Activation::NotYet { poll_after } = driver.activate_vif(&world.owner("web"), &vif).await.unwrap()
        else {
            panic!("nobody bound it")
        };
        asked += 1;
        waited += poll_after;
        tokio::time::pause();
        tokio::time::advance(poll_after).await;
        tokio::time::resume();
    }
    let requests = fake.requests();
    let looks = requests.iter().filter(|request| request.starts_with("GET ports?")).count();
    assert!(looks <= 60 && asked <= 100, "{looks} looks for {asked} who asked");
    let changes = requests.iter().filter(|request| request.starts_with("PUT trunks")).count();
    assert_eq!(changes, 2, "it was detached and attached");
}

#[tokio::test]
async fn a_user_who_may_not_see_bindings_any_more_costs_a_pool_no_port() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    let request = world.request("any", &host, &subnet);
    let order = order(&stock, &request, 4);
    assert_eq!(stock.create_vifs(&order).await.vifs.len(), 4);
    fake.state().hides_bindings = true;
    // As a process that begins with what it reads.
    let error = world.bound("east").list_vifs().await.unwrap_err();
    assert!(error.reason() == Reason::Refused && error.to_string().contains("role"), "{error}");
    fake.state().hides_bindings = false;
    assert_eq!(stock.list_vifs().await.unwrap().usable.len(), 4);
    assert!(fake.requests().iter().all(|request| !request.starts_with("DELETE")));
}

#[tokio::test]
async fn a_default_group_that_neutron_does_not_show_is_reported_and_costs_no_port_its_groups() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let wish = json!({ "name": "web", "project_id": world.project });
    let web = text(&world.create("security-groups", "security_group", wish).await["id"]).to_owned();
    fake.state().hides_groups = true;
    let stock = world.bound("east");
    let request = world.request("any", &host, &subnet);
    let vif = stock.create_vifs(&order(&stock, &request, 1)).await.vifs.remove(0);
    let groups = async || world.port(vif.id.as_str()).await["security_groups"].clone();
    let default = groups().await;
    assert_eq!(default.as_array().unwrap().len(), 1);
    let listed = stock.list_vifs().await.unwrap().usable.remove(0).security_groups;
    assert_eq!(json!(listed), default, "nobody knows that these are what a port gets that names none");
    let error = stock.set_security_groups(&vif, &[]).await.unwrap_err();
    let reported = error.to_string();
    assert!(error.reason() == Reason::Refused && reported.contains(world.project.as_str()), "{reported}");
    assert!(reported.contains("`neutron_defaults.pod_security_groups`"), "{reported}");
    assert_eq!(groups().await, default);
    // What is named needs no look.
    stock.set_security_groups(&vif, &[web.as_str().into()]).await.unwrap();
    assert_eq!(groups().await, json!([web]));
    stock.set_security_groups(&vif, &[]).await.unwrap_err();
    assert_eq!(groups().await, json!([web]));
}

#[tokio::test]
async fn a_subport_that_could_not_be_attached_again_is_attached_by_the_next_one_who_asks() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.vlan("east", &machine);
    let vif = driver.request_vif(&world.nested_request("web", &machine, &subnet)).await.unwrap();
    let pass = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    let add: &'static str = Box::leak(format!("trunks/{}/add_subports", machine.trunk).into_boxed_str());
    fake.inject(Method::PUT, add, Fault::Html(503));
    pass(120).await;
    assert!(driver.activate_vif(&world.owner("web"), &vif).await.unwrap_err().transient());
    assert!(world.subports(&machine).await.is_empty(), "it was taken off");
    pass(11).await;
    driver.activate_vif(&world.owner("web"), &vif).await.unwrap();
    assert_eq!(world.subports(&machine).await.len(), 1);
}

#[tokio::test]
async fn whether_a_port_is_a_subport_stays_open_while_the_trunk_cannot_be_read() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.vlan("east", &machine);
    let request = world.nested_request("web", &machine, &subnet);
    fake.inject(Method::PUT, "trunks", Fault::DoneThenClose);
    fake.inject(Method::GET, "trunks", Fault::Html(503));
    let error = driver.request_vif(&request).await.unwrap_err();
    assert!(error.ambiguous() && error.transient(), "{error}");
    let found = driver.vifs(Some(&request.owner)).await.unwrap();
    assert_eq!((found.len(), world.subports(&machine).await.len()), (1, 1));
    driver.release_vif(&request.owner, &found[0].resource).await.unwrap();
    assert!(world.ports(&subnet).await.is_empty());
}
