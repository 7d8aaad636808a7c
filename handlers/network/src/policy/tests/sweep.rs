//! Recovery after a restart and garbage collection.

use std::time::Duration;

use staffetta_memory::{Fault, NetworkPolicyMethod};

use super::*;

#[tokio::test]
async fn a_restart_without_changes_makes_no_changing_call() {
    let old = World::new().await;
    old.policy("p", &admits("web")).await.unwrap();
    let db = old.pod("db", &json!({ "app": "db" })).await;
    let new = World::on(Arc::clone(&old.network));
    new.handler.recover().await.unwrap();
    new.namespace("shop", &json!({ "team": "shop" }));
    NetworkPolicyObserver::present(&*new.index, &policy("p", &admits("web")));
    new.shows("db", &json!({ "app": "db" }), &db).await.unwrap_err();
    new.policy("p", &admits("web")).await.unwrap();
    new.shows("db", &json!({ "app": "db" }), &db).await.unwrap();
    assert_eq!(new.changes(0), []);
}

#[tokio::test]
async fn the_groups_of_a_missed_deletion_are_found_by_their_owner() {
    let old = World::new().await;
    old.policy("p", &admits("web")).await.unwrap();
    let db = old.pod("db", &json!({ "app": "db" })).await;
    let new = World::on(Arc::clone(&old.network));
    new.handler.recover().await.unwrap();
    new.namespace("shop", &json!({ "team": "shop" }));
    new.shows_unverified("db", &json!({ "app": "db" }), &db).await.unwrap();
    let owners = new.handler.owners().await.unwrap();
    let [owner] = &owners[..] else { panic!("{owners:?}") };
    assert_eq!((owner.name.as_str(), owner.uid.as_str()), ("p", "uid-p"));
    let missed = Event::<NetworkPolicy>::Deleted(Tombstone::Missed(Arc::new(owner.clone())));
    let (error, before) = (deliver(&new.handler, &missed).await.unwrap_err(), old.groups_of(&db));
    assert!(matches!(error, PolicyError::InUse(1)), "{error}");
    assert!(before.contains("policy-uid-p"), "the handler `vif` has not handled the pod yet");
    new.shows("db", &json!({ "app": "db" }), &db).await.unwrap();
    deliver(&new.handler, &missed).await.unwrap();
    assert_eq!(new.groups(), BTreeSet::new());
    assert_eq!(new.groups_of(&db), ["default".to_owned()].into());
    assert_eq!(new.handler.owners().await.unwrap(), []);
}

#[tokio::test]
async fn a_change_from_outside_is_reverted_by_garbage_collection() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let db = world.pod("db", &json!({ "app": "db" })).await;
    let own = world.network.security_groups().into_iter().find(|group| group.name.as_str() == "policy-uid-p");
    world.network.remove_security_rule(&own.unwrap().rules[0].id);
    world.driver.set_vif_groups(&db.id, &["default".into()]).await.unwrap();
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    assert_eq!(world.rules("policy-uid-p").len(), 2);
    assert!(world.groups_of(&db).contains("policy-uid-p"));
    let before = world.calls();
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    assert_eq!(world.changes(before), []);
}

#[tokio::test]
async fn a_duplicate_group_is_deleted_when_the_marks_are_read() {
    let world = World::on(Arc::new(MemoryNetwork::new(MemoryOptions::default())));
    for _ in 0..2 {
        world.driver.create_group(&"open-egress".into(), None).await.unwrap();
    }
    world.handler.recover().await.unwrap();
    assert_eq!(world.network.security_groups().len(), 2, "one for each direction");
}

#[tokio::test]
async fn a_duplicate_group_is_deleted_although_a_free_vif_has_it() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let free = world.pod("db", &json!({ "app": "db" })).await;
    world.no_pod("db").await;
    let duplicate = world.driver.create_group(&"policy-uid-p".into(), None).await.unwrap().id;
    world.driver.set_vif_groups(&free.id, std::slice::from_ref(&duplicate)).await.unwrap();
    let exists = || world.network.security_groups().iter().any(|group| group.id == duplicate);
    world.handler.owners().await.unwrap();
    assert!(exists(), "the VIF has it");
    world.handler.owners().await.unwrap();
    assert!(!exists());
}

#[tokio::test]
async fn an_unpublished_vif_does_not_block_the_deletion_of_a_group() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let db = world.pod("db", &json!({ "app": "db" })).await;
    // Its VIF goes back to the pool with its groups.
    world.no_pod("db").await;
    world.no_policy("p").await.unwrap();
    assert_eq!(world.groups(), BTreeSet::new());
    assert!(!world.groups_of(&db).contains("policy-uid-p"));
}

#[tokio::test]
async fn a_group_is_deleted_although_a_pod_names_a_free_vif_that_has_it() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let free = world.pod("db", &json!({ "app": "db" })).await;
    world.no_pod("db").await;
    world.shows_unverified("thief", &json!({}), &free).await.unwrap();
    let error = world.no_policy("p").await.unwrap_err();
    assert!(matches!(error, PolicyError::InUse(1)), "it may be the pod's: {error}");
    world.claims.set_foreign(&"uid-thief".into(), std::slice::from_ref(&free));
    world.no_policy("p").await.unwrap();
    assert_eq!(world.groups(), BTreeSet::new());
    assert!(!world.groups_of(&free).contains("policy-uid-p"));
}

#[tokio::test]
async fn a_pod_without_a_node_keeps_no_group_in_use() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let free = world.pod("db", &json!({ "app": "db" })).await;
    world.no_pod("db").await;
    let mut waiting = pod("waiting", &json!({}), Some(&free));
    waiting.spec.as_mut().unwrap().node_name = None;
    world.index.set_pod(&waiting);
    world.no_policy("p").await.unwrap();
    assert_eq!(world.groups(), BTreeSet::new());
}

#[tokio::test]
async fn the_deletion_of_a_group_in_use_is_retried() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let db = world.pod("db", &json!({ "app": "db" })).await;
    let gone = policy("p", &json!({}));
    NetworkPolicyObserver::gone(&*world.index, &"uid-p".into());
    let event = Event::Deleted(Tombstone::Last(Arc::new(gone)));
    let error = deliver(&world.handler, &event).await.unwrap_err();
    assert!(matches!(error, PolicyError::InUse(1)), "{error}");
    world.follow().await.unwrap();
    deliver(&world.handler, &event).await.unwrap();
    assert_eq!((world.groups().len(), world.groups_of(&db).len()), (0, 1));
}

#[tokio::test]
async fn a_vif_created_since_the_last_list_has_no_drift_unless_its_groups_differ() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    let db = world.pod("db", &json!({ "app": "db" })).await;
    world.handler.owners().await.unwrap();
    assert_eq!(world.index.take_changes(), index::IndexChanges::default());
    let other = world.pod("other", &json!({ "app": "db" })).await;
    world.driver.set_vif_groups(&other.id, &["default".into()]).await.unwrap();
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    assert_eq!(world.groups_of(&other), world.groups_of(&db));
}

#[tokio::test]
async fn a_change_from_outside_that_a_deletion_finds_first_is_reverted() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    world.policy("q", &json!({ "podSelector": { "matchLabels": { "app": "old" } } })).await.unwrap();
    let db = world.pod("db", &json!({ "app": "db" })).await;
    // Its VIF keeps the group, so that the groups of VIFs are listed when the policy is deleted.
    world.pod("old", &json!({ "app": "old" })).await;
    world.no_pod("old").await;
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    world.driver.set_vif_groups(&db.id, &["default".into()]).await.unwrap();
    world.no_policy("q").await.unwrap();
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    assert!(world.groups_of(&db).contains("policy-uid-p"));
}

#[tokio::test]
async fn a_removed_common_group_is_created_again_without_any_policy() {
    let world = World::new().await;
    let groups = world.network.security_groups();
    for group in &groups {
        world.network.remove_security_group(&group.id).unwrap();
    }
    world.handler.owners().await.unwrap();
    assert_eq!(world.network.security_groups().len(), groups.len());
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_a_pod_gets_during_the_removal_of_groups_ends_up_with_the_pods_groups() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    world.policy("q", &json!({ "podSelector": { "matchLabels": { "app": "old" } } })).await.unwrap();
    let vif = world.pod("old", &json!({ "app": "old" })).await;
    world.no_pod("old").await;
    world.handler.owners().await.unwrap();
    let late = Fault::Delay(Duration::from_secs(2));
    world.driver.faults().inject(NetworkPolicyMethod::SetVifGroups, 1, late);
    let handed_out = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let labels = json!({ "app": "db" });
        let bare = pod("db", &labels, None);
        world.index.set_pod(&bare);
        let groups = PolicySecurityGroups::new(Arc::clone(&world.index), false);
        let groups = groups.security_groups(&bare, &"memory".into()).await.unwrap();
        // The pool assigns them to the VIF.
        world.driver.set_vif_groups(&vif.id, &groups).await.unwrap();
        world.shows("db", &labels, &vif).await.unwrap();
    };
    let (gone, ()) = tokio::join!(world.no_policy("q"), handed_out);
    gone.unwrap();
    world.follow().await.unwrap();
    assert!(world.groups_of(&vif).contains("policy-uid-p"), "{:?}", world.groups_of(&vif));
}
