//! What goes wrong on the other side.

use staffetta_driver::DriverError;
use staffetta_driver::PodVifDriver;
use staffetta_driver::memory::{Fault, NetworkPolicyMethod};
use staffetta_handler::Failure;

use super::*;
use crate::vif::VifError;

fn outage() -> DriverError {
    DriverError::new(Reason::Unavailable, "ask")
}

/// Repeats what failed for a passing reason.
async fn patiently(world: &World, name: &str, spec: &Value) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    for _ in 0..10 {
        match world.policy(name, spec).await {
            Ok(()) => return reasons,
            Err(error) => {
                assert!(error.transient(), "{error}");
                reasons.push(error.reason());
            }
        }
    }
    panic!("{reasons:?}");
}

#[tokio::test]
async fn an_answer_that_got_lost_makes_nothing_twice() {
    for method in [NetworkPolicyMethod::Make, NetworkPolicyMethod::Change, NetworkPolicyMethod::Guard] {
        let world = World::new().await;
        let db = world.pod("db", &json!({ "app": "db" })).await;
        world.driver.faults().inject(method, 1, Fault::DoneThenFail(outage()));
        assert_eq!(patiently(&world, "p", &admits("web")).await, ["DriverUnavailable"], "{method:?}");
        world.follow().await.unwrap();
        assert_eq!(world.groups().len(), 2, "{method:?}");
        assert_eq!(world.network.security_groups().len(), 5, "{method:?}");
        assert_eq!(world.rules("policy-uid-p").len(), 2, "{method:?}");
        world.shows("db", &json!({ "app": "db" }), &db).await.unwrap();
        assert!(world.groups_of(&db).contains("policy-uid-p"), "{method:?}");
    }
}

#[tokio::test]
async fn an_invocation_that_is_cut_off_anywhere_is_made_again() {
    for method in [NetworkPolicyMethod::Make, NetworkPolicyMethod::Change, NetworkPolicyMethod::Guard] {
        for fault in [Fault::Hang, Fault::DoneThenHang] {
            let world = World::new().await;
            let db = world.pod("db", &json!({ "app": "db" })).await;
            world.driver.faults().inject(method, 1, fault);
            let spec = admits("web");
            let mut cut = Box::pin(world.policy("p", &spec));
            assert!(at_once(&mut cut).await.is_none(), "{method:?} hangs");
            drop(cut);
            patiently(&world, "p", &spec).await;
            world.shows("db", &json!({ "app": "db" }), &db).await.unwrap();
            assert_eq!(world.network.security_groups().len(), 5, "{method:?}");
            assert!(world.groups_of(&db).contains("policy-uid-p"), "{method:?}");
        }
    }
}

/// What a future answers without waiting.
async fn at_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = async {} => None,
    }
}

#[tokio::test]
async fn a_quota_keeps_nothing_open_and_its_raising_lets_all_go_on() {
    let world = World::new().await;
    let open = json!({ "podSelector": {}, "ingress": [{}] });
    world.policy("p", &open).await.unwrap();
    world.network.set_security_group_quota(None, Some(0));
    let error =
        world.policy("p", &json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 1 }] }] })).await;
    let error = error.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("QuotaExceeded", true));
    assert_eq!(world.rules("policy-uid-p"), [""; 0], "what was open is closed all the same");
    world.network.set_security_group_quota(None, None);
    patiently(&world, "p", &open).await;
    assert_eq!(world.rules("policy-uid-p").len(), 2);
}

#[tokio::test]
async fn a_quota_that_fails_other_groups_keeps_nothing_open_in_a_policys_own() {
    let world = World::new().await;
    let open = json!({ "podSelector": {}, "ingress": [{}] });
    world.policy("p", &open).await.unwrap();
    let groups = world.network.security_groups().len();
    world.network.set_security_group_quota(Some(groups), Some(0));
    // Neither does the group of the nodes get its rules, nor can the one be made that the rules are to name.
    let n1 = node("n1", "192.0.2.1");
    KnownNodes(Arc::clone(&world.book)).apply(&Event::Added(Arc::new(n1)));
    let error = world.policy("p", &admits("web")).await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("QuotaExceeded", true));
    assert_eq!(world.rules("policy-uid-p"), [""; 0], "what was open is closed all the same");
    world.network.set_security_group_quota(None, None);
    patiently(&world, "p", &admits("web")).await;
    assert_eq!((world.rules("policy-uid-p").len(), world.rules("nodes").len()), (2, 2));
}

#[tokio::test]
async fn a_pod_waits_for_a_group_that_cannot_be_made_yet() {
    let world = World::new().await;
    world.network.set_security_group_quota(Some(0), None);
    let spec = json!({ "podSelector": {} });
    assert_eq!(world.policy("p", &spec).await.unwrap_err().reason(), "QuotaExceeded");
    let db = pod("db", &json!({ "app": "db" }), None);
    world.handler.guards.apply(&Event::Added(Arc::new(db.clone())));
    let groups = PolicySecurityGroups::new(Arc::clone(&world.book), false);
    let waits = groups.security_groups(&db, &"memory".into()).await.unwrap_err();
    assert!(waits.transient() && waits.to_string().contains("policy-uid-p"), "{waits}");
    let waits = VifError::SecurityGroups(waits);
    assert_eq!((waits.waits(), waits.reason()), (true, "SecurityGroupMissing"), "it has not failed");
    world.network.set_security_group_quota(None, None);
    patiently(&world, "p", &spec).await;
    assert_eq!(groups.security_groups(&db, &"memory".into()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn whom_somebody_elses_policy_describes_goes_without_a_group_that_cannot_be_had() {
    let world = World::new().await;
    let closed = json!({ "podSelector": { "matchLabels": { "app": "db" } } });
    world.policy("own", &closed).await.unwrap();
    let db = world.pod("one", &json!({ "app": "web" })).await;
    assert!(world.groups_of(&db).contains("default"));
    world.network.set_security_group_quota(Some(world.network.security_groups().len()), None);
    let other = json!({ "podSelector": { "matchLabels": { "app": "none" } },
        "ingress": [{ "from": [{ "podSelector": {} }] }] });
    assert_eq!(world.policy("other", &other).await.unwrap_err().reason(), "QuotaExceeded");
    for pod in world.book.take_due().pods {
        world.handler.on_signal(&Moved::of::<Pod>(pod)).await.unwrap();
    }
    let isolated = ["nodes", "open-egress", "policy-uid-own"];
    world.shows("one", &json!({ "app": "db" }), &db).await.unwrap();
    assert!(world.groups_of(&db).iter().eq(isolated), "it is closed all the same");
    let second = world.pod("two", &json!({ "app": "db" })).await;
    assert!(world.groups_of(&second).iter().eq(isolated));
    world.network.set_security_group_quota(None, None);
    patiently(&world, "other", &other).await;
    for vif in [db, second] {
        let groups = world.groups_of(&vif);
        assert!(groups.len() == 4 && groups.iter().any(|name| name.starts_with("peers-")), "{groups:?}");
    }
}

#[tokio::test]
async fn a_group_that_vanished_comes_back_as_soon_as_it_is_missed() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let db = world.pod("db", &json!({ "app": "db" })).await;
    let own = world.network.security_groups().into_iter().find(|group| group.name.as_str() == "policy-uid-p");
    world.network.remove_security_group(&own.unwrap().id).unwrap();
    // A change of the policy finds it missing.
    let spec = json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 1 }] }] });
    patiently(&world, "p", &spec).await;
    world.follow().await.unwrap();
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    assert!(world.groups_of(&db).contains("policy-uid-p"), "{:?}", world.groups_of(&db));
}

#[tokio::test]
async fn what_is_left_of_one_policy_is_no_trouble_of_another() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let own = world.network.security_groups().into_iter().find(|group| group.name.as_str() == "policy-uid-p");
    // An administrator put it in front of a machine of his own.
    let west = MemoryVifDriver::new(Arc::clone(&world.network), "west".into());
    let request = VifRequest {
        owner: Owner { namespace: "else".into(), name: "where".into(), uid: "machine".into() },
        node_name: "n9".into(),
        host_ip: None,
        project: "memory".into(),
        subnets: vec![world.network.subnet("10.10.0.0/16".parse().unwrap())],
        security_groups: vec![own.unwrap().id],
    };
    west.request_vif(&request).await.unwrap();
    let error = world.no_policy("p").await.unwrap_err();
    assert!(matches!(error, PolicyError::InUse(1)), "{error}");
    world.policy("q", &admits("other")).await.unwrap();
    assert_eq!(world.handler.owners().await.unwrap().len(), 1, "the sweep finds it");
}

#[tokio::test]
async fn a_group_that_cannot_be_removed_keeps_no_other_from_going() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let refused = Fault::Fail(DriverError::new(Reason::Refused, "remove a security group"));
    world.driver.faults().inject(NetworkPolicyMethod::Remove, 1, refused);
    assert_eq!(world.no_policy("p").await.unwrap_err().reason(), "DriverRefused");
    assert_eq!(world.groups().len(), 1);
}

#[tokio::test]
async fn a_vif_that_is_gone_is_nobodys_trouble() {
    let world = World::new().await;
    let db = world.pod("db", &json!({ "app": "db" })).await;
    world.network.remove_port(&db.id);
    world.policy("p", &admits("web")).await.unwrap();
}
