//! Failures of the driver.

use std::time::Duration;

use staffetta_driver::PodVifDriver;
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::Failure;
use staffetta_memory::{Fault, NetworkPolicyMethod};

use super::*;
use crate::step_error::StepContext;
use crate::vif::VifError;

fn outage() -> DriverError {
    DriverError::new(Reason::Unavailable, "ask")
}

/// Repeats a policy's event while it fails with a transient error.
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
async fn a_lost_answer_creates_nothing_twice() {
    for method in [
        NetworkPolicyMethod::CreateGroup,
        NetworkPolicyMethod::UpdateRules,
        NetworkPolicyMethod::SetVifGroups,
    ] {
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
async fn an_interrupted_call_is_repeated() {
    for method in [
        NetworkPolicyMethod::CreateGroup,
        NetworkPolicyMethod::UpdateRules,
        NetworkPolicyMethod::SetVifGroups,
    ] {
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

/// Polls a future once.
async fn at_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = async {} => None,
    }
}

#[tokio::test]
async fn an_exceeded_quota_leaves_nothing_open_and_work_continues_when_it_is_raised() {
    let world = World::new().await;
    let open = json!({ "podSelector": {}, "ingress": [{}] });
    world.policy("p", &open).await.unwrap();
    world.network.set_security_group_quota(None, Some(0));
    let error =
        world.policy("p", &json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 1 }] }] })).await;
    let error = error.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("QuotaExceeded", true));
    assert_eq!(world.rules("policy-uid-p"), [""; 0], "surplus rules are removed all the same");
    world.network.set_security_group_quota(None, None);
    patiently(&world, "p", &open).await;
    assert_eq!(world.rules("policy-uid-p").len(), 2);
}

#[tokio::test]
async fn an_exceeded_quota_of_other_groups_leaves_nothing_open_in_the_group_of_a_policy() {
    let world = World::new().await;
    let open = json!({ "podSelector": {}, "ingress": [{}] });
    world.policy("p", &open).await.unwrap();
    let groups = world.network.security_groups().len();
    world.network.set_security_group_quota(Some(groups), Some(0));
    // Neither the rules of the group `nodes` nor the group of the peers can be created.
    let n1 = node("n1", "192.0.2.1");
    world.index.apply(&Event::Added(Arc::new(n1)));
    let error = world.policy("p", &admits("web")).await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("QuotaExceeded", true));
    assert_eq!(world.rules("policy-uid-p"), [""; 0], "surplus rules are removed all the same");
    world.network.set_security_group_quota(None, None);
    patiently(&world, "p", &admits("web")).await;
    assert_eq!((world.rules("policy-uid-p").len(), world.rules("nodes").len()), (2, 2));
}

#[tokio::test]
async fn a_pod_waits_for_a_group_that_cannot_be_created_yet() {
    let world = World::new().await;
    world.network.set_security_group_quota(Some(0), None);
    let spec = json!({ "podSelector": {} });
    assert_eq!(world.policy("p", &spec).await.unwrap_err().reason(), "QuotaExceeded");
    let db = pod("db", &json!({ "app": "db" }), None);
    world.index.set_pod(&db);
    let groups = PolicySecurityGroups::new(Arc::clone(&world.index), false);
    let waits = groups.security_groups(&db, &"memory".into()).await.unwrap_err();
    assert!(waits.transient() && waits.to_string().contains("policy-uid-p"), "{waits}");
    let waits = VifError::SecurityGroups(
        Err::<(), _>(waits).step("find the security groups of the pod").unwrap_err(),
    );
    assert_eq!(
        (waits.pending().is_some(), waits.reason()),
        (true, "SecurityGroupMissing"),
        "it has not failed"
    );
    world.network.set_security_group_quota(None, None);
    patiently(&world, "p", &spec).await;
    assert_eq!(groups.security_groups(&db, &"memory".into()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_pod_goes_without_the_unavailable_peer_group_of_another_policy() {
    let world = World::new().await;
    let closed = json!({ "podSelector": { "matchLabels": { "app": "db" } } });
    world.policy("own", &closed).await.unwrap();
    let db = world.pod("one", &json!({ "app": "web" })).await;
    assert!(world.groups_of(&db).contains("default"));
    world.network.set_security_group_quota(Some(world.network.security_groups().len()), None);
    let other = json!({ "podSelector": { "matchLabels": { "app": "none" } },
        "ingress": [{ "from": [{ "podSelector": {} }] }] });
    assert_eq!(world.policy("other", &other).await.unwrap_err().reason(), "QuotaExceeded");
    for pod in world.index.take_changes().pods {
        world.handler.on_trigger(&PolicyRecheck(identity::<Pod>(pod))).await.unwrap();
    }
    let isolated = ["nodes", "open-egress", "policy-uid-own"];
    world.shows("one", &json!({ "app": "db" }), &db).await.unwrap();
    assert!(world.groups_of(&db).iter().eq(isolated), "it is isolated all the same");
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
async fn a_vanished_group_is_created_again_when_a_call_misses_it() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let db = world.pod("db", &json!({ "app": "db" })).await;
    let own = world.network.security_groups().into_iter().find(|group| group.name.as_str() == "policy-uid-p");
    world.network.remove_security_group(&own.unwrap().id).unwrap();
    // A change of the policy calls the missing group.
    let spec = json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": 1 }] }] });
    patiently(&world, "p", &spec).await;
    assert_eq!(world.rules("policy-uid-p").len(), 2, "before the groups are listed");
    world.follow().await.unwrap();
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    assert!(world.groups_of(&db).contains("policy-uid-p"), "{:?}", world.groups_of(&db));
}

#[tokio::test]
async fn the_remaining_groups_of_one_policy_do_not_fail_another() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let own = world.network.security_groups().into_iter().find(|group| group.name.as_str() == "policy-uid-p");
    // An administrator assigned it to another machine.
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
    let before = world.calls();
    world.policy("q", &admits("other")).await.unwrap();
    let calls = world.driver.calls().split_off(before);
    assert!(!calls.contains(&NetworkPolicyCall::VifGroups), "{calls:?}");
    let owners = world.handler.owners().await.unwrap();
    let names: BTreeSet<_> = owners.iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(names, ["p", "q"].into(), "garbage collection finds the one without a policy, among all");
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_list_of_vifs_that_fails_get_its_error() {
    let (world, method) = (World::new().await, NetworkPolicyMethod::VifGroups);
    world.driver.faults().inject(method, 1, Fault::Delay(Duration::from_secs(2)));
    world.driver.faults().inject(method, 1, Fault::Fail(outage()));
    let (before, refresh) = (world.calls(), || world.handler.vif_groups.refresh());
    let late = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::join!(refresh(), refresh(), refresh())
    };
    let (first, (second, third, fourth)) = tokio::join!(refresh(), late);
    first.unwrap();
    assert!([second, third, fourth].iter().all(Result::is_err));
    assert_eq!(world.calls(), before + 2);
    refresh().await.unwrap();
    assert_eq!(world.calls(), before + 3, "the error is not kept");
}

#[tokio::test]
async fn a_group_that_cannot_be_deleted_does_not_block_others() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let refused = Fault::Fail(DriverError::new(Reason::Refused, "remove a security group"));
    world.driver.faults().inject(NetworkPolicyMethod::DeleteGroup, 1, refused);
    assert_eq!(world.no_policy("p").await.unwrap_err().reason(), "DriverRefused");
    assert_eq!(world.groups().len(), 1);
}

#[tokio::test]
async fn a_deleted_vif_is_no_failure() {
    let world = World::new().await;
    let db = world.pod("db", &json!({ "app": "db" })).await;
    world.network.remove_port(&db.id);
    world.policy("p", &admits("web")).await.unwrap();
}

#[tokio::test]
async fn a_policy_beyond_the_limit_of_its_namespace_allows_nothing_until_there_is_room() {
    let world = World::new().await;
    world.network.set_security_group_quota(None, Some(16));
    world.handler.owners().await.unwrap();
    let ports = |ports: &[u16]| {
        let ports: Vec<_> = ports.iter().map(|port| json!({ "port": port })).collect();
        json!({ "podSelector": { "matchLabels": { "app": "db" } }, "ingress": [{ "ports": ports }] })
    };
    let db = world.pod("db", &json!({ "app": "db" })).await;
    world.policy("a", &ports(&[80, 79])).await.unwrap();
    world.policy("b", &ports(&[81, 82, 83])).await.unwrap();
    let rules = || (world.rules("policy-uid-a").len(), world.rules("policy-uid-b").len());
    assert_eq!(rules(), (4, 0));
    assert!(world.groups_of(&db).contains("policy-uid-b"), "its pods are isolated all the same");
    let recorded = std::mem::take(&mut *world.recorded.0.lock());
    let [event] = &recorded[..] else { panic!("{recorded:?}") };
    assert!(
        event.starts_with("PolicyIncomplete: the policy allows nothing")
            && event.contains("more than 8 rules"),
        "{event}"
    );
    // Rules that it had are removed when it grows beyond the limit.
    world.policy("b", &ports(&[81, 82])).await.unwrap();
    assert_eq!(rules(), (4, 4));
    world.policy("b", &ports(&[81, 82, 83])).await.unwrap();
    assert_eq!(rules(), (4, 0));
    // Others that change leave it room, or none, and a higher quota raises the limit.
    world.policy("a", &ports(&[80])).await.unwrap();
    assert_eq!(rules(), (2, 6));
    world.policy("a", &ports(&[80, 79])).await.unwrap();
    assert_eq!(rules(), (4, 0));
    world.network.set_security_group_quota(None, None);
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    assert_eq!(rules(), (4, 6));
}
