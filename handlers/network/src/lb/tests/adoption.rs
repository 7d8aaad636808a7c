use staffetta_driver::{DriverError, LoadBalancerDriver, PublicIp, Reason};
use staffetta_memory::Fault;

use super::*;
use crate::lb::testing::{listener, load_balancer};

/// Creates resources and an annotation as Kuryr does.
fn kuryrs(world: &World) -> LbaasState {
    let tree = LoadBalancer {
        listeners: vec![listener(Protocol::Tcp, 80, &["10.1.0.1"])],
        ..load_balancer("default/web", "10.0.0.1")
    };
    world.services.insert_load_balancer(tree.clone());
    let ip = [203, 0, 113, 200].into();
    let public_ip = PublicIp {
        id: world.services.insert_public_ip(ip),
        ip,
        allocation: staffetta_driver::Allocation::Pool,
        port: Some(tree.port.clone()),
    };
    LbaasState { load_balancer: Some(tree), public_ip: Some(public_ip), unmarked: false }
}

async fn is_adopted(world: &World) {
    let marked = world.balancers.load_balancers(None).await.unwrap();
    assert_eq!(marked.len(), 1);
    assert_eq!(
        (marked[0].resource.id.as_str(), marked[0].owner.as_ref().unwrap().uid.as_str()),
        ("lb", "uid-web")
    );
    assert!(world.finalizers().contains(&FINALIZER.to_owned()));
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn resources_of_kuryr_are_marked_and_kept() {
    let world = adopting();
    world.want(&public());
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.slice("s1", &["10.1.0.2"]).await.unwrap();
    world.event().await.unwrap();
    world.event().await.unwrap();
    is_adopted(&world).await;
    assert_eq!(world.calls()[..2], ["ensure", "set members"]);
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080"]);
    let held = world.services.public_ips();
    assert_eq!((held.len(), held[0].1.id.clone()), (1, theirs.public_ip.unwrap().id));
    assert!(held[0].0.is_some(), "the address is marked too");

    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn the_state_on_endpoints_counts_until_the_service_is_annotated() {
    let mut world = adopting();
    let theirs = annotation::write(&kuryrs(&world));
    world.api.add_endpoints(&json!({ "namespace": "default", "name": "other", "uid": "e0" }));
    let metadata = json!({ "namespace": "default", "name": "web", "uid": "e1", "annotations": { STATE_ANNOTATION: theirs } });
    world.api.add_endpoints(&metadata);
    world.restart().await;
    world.event().await.unwrap();
    is_adopted(&world).await;

    world.event().await.unwrap();
    world.want_nothing();
    world.event().await.unwrap();
    world.want(&spec());
    let calls = world.addresses.calls().len();
    world.event().await.unwrap();
    assert_ne!(world.tree().id.as_str(), "lb");
    assert_eq!(world.addresses.calls().len(), calls, "released resources are not listed again");
}

#[tokio::test]
async fn an_interrupted_adoption_is_completed() {
    let mut world = adopting();
    world.want(&public());
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    let address = theirs.public_ip.unwrap();
    world.drivers().public_ip.associate(&address, &theirs.load_balancer.unwrap().port).await.unwrap();
    let broken = Fault::Fail(DriverError::new(Reason::Unavailable, "acquire"));
    world.addresses.faults().inject(staffetta_memory::PublicIpMethod::Acquire, 1, broken);
    world.event().await.unwrap_err();
    world.restart().await;
    world.event().await.unwrap();
    world.event().await.unwrap();
    is_adopted(&world).await;
    let held = world.services.public_ips();
    assert_eq!((held.len(), &held[0].1.id), (1, &address.id));
    assert!(held[0].0.is_some());
}

#[tokio::test]
async fn a_missing_load_balancer_of_kuryr_is_created_again() {
    let world = adopting();
    let theirs = LbaasState { public_ip: None, ..kuryrs(&world) };
    world.services.remove_load_balancer(&"lb".into());
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.event().await.unwrap();
    assert_ne!(world.tree().id.as_str(), "lb");
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn resources_of_kuryr_stay_while_the_service_has_no_spec() {
    let world = adopting();
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.want_nothing();
    world.event().await.unwrap();
    assert!(world.calls().is_empty() && world.api.patches().is_empty());
    assert_eq!(world.tree().id.as_str(), "lb");
}

#[tokio::test]
async fn without_the_option_nothing_of_kuryr_is_used_and_no_second_load_balancer_is_created() {
    for restarted in [false, true] {
        let mut world = world();
        world.want(&public());
        let theirs = kuryrs(&world);
        world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
        if restarted {
            world.restart().await;
        }
        for _ in 0..2 {
            let error = world.event().await.unwrap_err();
            assert!(!error.transient() && error.reason() == "LoadBalancerUnmarked", "{error}");
            let text = error.to_string();
            assert!(text.contains("remove the annotation") && text.contains("adopt_unmarked"), "{text}");
        }
        world.delete();
        world.event().await.unwrap();
        world.deleted().await.unwrap();
        assert!(world.calls().iter().all(|call| *call == "list"), "{:?}", world.calls());
        assert_eq!(world.services.load_balancers(), [(None, theirs.load_balancer.unwrap())]);
        assert_eq!(world.services.public_ip(&theirs.public_ip.unwrap().id).unwrap().owner, None);
        assert_eq!(world.api.patches(), []);
    }
}

#[tokio::test]
async fn a_service_whose_foreign_state_is_removed_gets_a_load_balancer_of_its_own() {
    let world = world();
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.event().await.unwrap_err();
    world.services.remove_load_balancer(&"lb".into());
    world.api.change(|service| {
        drop(service["metadata"]["annotations"].as_object_mut().unwrap().remove(STATE_ANNOTATION));
    });
    world.event().await.unwrap();
    assert_ne!(world.tree().id.as_str(), "lb");
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn our_own_state_without_the_finalizer_is_recognized_by_the_mark() {
    let mut world = balanced(&public()).await;
    let (tree, calls) = (world.tree(), world.calls().len());
    world.api.change(|service| service["metadata"]["finalizers"] = json!([]));
    world.replace(world.drivers(), true);
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.tree(), &world.calls()[calls..]), (tree, &["list"; 1][..]));
    assert!(world.finalizers().contains(&FINALIZER.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_kuryr_manages_by_a_custom_resource_gets_no_second_load_balancer() {
    let world = world();
    let finalizers = json!(["kuryr.openstack.org/service-finalizer"]);
    world.api.change(|service| service["metadata"]["finalizers"] = finalizers.clone());
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.balancers.load_balancers(None).await.unwrap(), world.api.patches().len()), (vec![], 0));
}
