//! Creation, changes and deletion of policies, pods and nodes.

use std::time::Duration;

use staffetta_driver::PodVifDriver;
use staffetta_handler::{Source, TriggerSender};
use staffetta_memory::{MemoryBulkVifDriver, MemoryPublishedVifs};
use staffetta_pool::{VifPoolPolicy, WarmVifPool};

use super::*;

#[tokio::test]
async fn a_policy_creates_and_deletes_its_groups() {
    let world = World::new().await;
    let (web, db) =
        (world.pod("web", &json!({ "app": "web" })).await, world.pod("db", &json!({ "app": "db" })).await);
    assert_eq!(world.groups_of(&db), ["default".to_owned()].into());
    world.policy("p", &admits("web")).await.unwrap();
    assert_eq!(world.groups().len(), 2, "its own group and that of its peers");
    let expected = ["nodes", "open-egress", "policy-uid-p"].map(str::to_owned);
    assert_eq!(world.groups_of(&db), expected.into());
    assert_eq!(world.groups_of(&web).len(), 2);
    assert_eq!(world.rules("policy-uid-p").len(), 2, "for each version of IP, and nothing that it came with");
    world.no_policy("p").await.unwrap();
    assert_eq!(world.groups(), BTreeSet::new());
    assert_eq!(world.groups_of(&db), ["default".to_owned()].into());
    assert_eq!(world.groups_of(&web), ["default".to_owned()].into());
}

#[tokio::test]
async fn a_pod_has_its_groups_from_the_start_without_another_call() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let before = world.calls();
    let db = world.pod("db", &json!({ "app": "db" })).await;
    assert!(world.groups_of(&db).contains("policy-uid-p"));
    assert_eq!(world.changes(before), []);
}

#[tokio::test]
async fn a_change_of_a_pods_labels_is_one_call() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let vif = world.pod("a", &json!({ "app": "a" })).await;
    let before = world.calls();
    world.shows("a", &json!({ "app": "web" }), &vif).await.unwrap();
    assert_eq!(world.changes(before), [NetworkPolicyCall::SetVifGroups(vif.id.clone())]);
    assert_eq!(world.groups_of(&vif).len(), 2);
    world.shows("a", &json!({ "app": "web", "other": "change" }), &vif).await.unwrap();
    assert_eq!(world.changes(before).len(), 1);
}

#[tokio::test]
async fn a_change_of_a_namespaces_labels_changes_the_groups_of_its_pods() {
    let world = World::new().await;
    let spec = json!({ "podSelector": { "matchLabels": { "app": "db" } },
        "ingress": [{ "from": [{ "namespaceSelector": { "matchLabels": { "team": "web" } } }] }] });
    world.policy("p", &spec).await.unwrap();
    let vif = world.pod("a", &json!({})).await;
    assert_eq!(world.groups_of(&vif).len(), 1);
    world.namespace("shop", &json!({ "team": "web" }));
    world.follow().await.unwrap();
    assert_eq!(world.groups_of(&vif).len(), 2);
}

#[tokio::test]
async fn a_changed_policy_updates_only_the_rules_that_differ() {
    let world = World::new().await;
    let spec = |ports: Value| json!({ "podSelector": {}, "ingress": [{ "ports": ports }] });
    world.policy("p", &spec(json!([{ "port": 80 }, { "port": 81 }]))).await.unwrap();
    let before = world.calls();
    world.policy("p", &spec(json!([{ "port": 81 }, { "port": 82 }]))).await.unwrap();
    let [NetworkPolicyCall::UpdateRules(_, removed, added)] = world.changes(before)[..] else {
        panic!("{:?}", world.changes(before))
    };
    assert_eq!((removed, added), (2, 2));
    world.policy("p", &spec(json!([{ "port": 82 }, { "port": 81 }]))).await.unwrap();
    assert_eq!(world.changes(before).len(), 1);
}

#[tokio::test]
async fn nodes_reach_every_pod() {
    let world = World::new().await;
    let n1 = node("n1", "192.0.2.1");
    let known = Arc::clone(&world.index);
    known.apply(&Event::Added(Arc::new(n1.clone())));
    deliver(&world.handler, &Event::Added(Arc::new(n1.clone()))).await.unwrap();
    assert_eq!(world.rules("nodes").len(), 2);
    assert!(world.rules("nodes")[0].contains("192.0.2.1/32"));
    let gone = Event::Deleted(Tombstone::Last(Arc::new(n1)));
    known.apply(&gone);
    deliver(&world.handler, &gone).await.unwrap();
    assert_eq!(world.rules("nodes"), [""; 0]);
}

#[tokio::test]
async fn the_group_of_peers_of_two_policies_stays_until_neither_needs_it() {
    let world = World::new().await;
    let web = world.pod("web", &json!({ "app": "web" })).await;
    world.policy("p", &admits("web")).await.unwrap();
    world.policy("q", &admits("web")).await.unwrap();
    assert_eq!(world.groups().len(), 3);
    world.no_policy("p").await.unwrap();
    assert_eq!((world.groups().len(), world.groups_of(&web).len()), (2, 2));
    world.no_policy("q").await.unwrap();
    assert_eq!((world.groups().len(), world.groups_of(&web).len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_reused_vif_has_the_groups_of_its_next_pod() {
    let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
    let stock = Arc::new(MemoryBulkVifDriver::new(Arc::clone(&network), "east".into()));
    let vifs = Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
    let published = Arc::<MemoryPublishedVifs>::default();
    let cool_down = Duration::from_secs(20);
    let sizes = VifPoolPolicy { min: 0, max: 0, batch: 1, cool_down };
    let pool = Arc::new(WarmVifPool::new(stock, vifs, published, sizes, Arc::new(|| true)));
    let observer = pool.observer().unwrap();
    observer.resync().await.unwrap();
    observer.start();
    let world = World::behind(network, Arc::clone(&pool) as _);
    world.begin().await;
    let first = world.pod("first", &json!({ "app": "db" })).await;
    world.policy("p", &admits("web")).await.unwrap();
    assert!(world.groups_of(&first).contains("policy-uid-p"));
    world.no_pod("first").await;
    let owner = Owner { namespace: "shop".into(), name: "first".into(), uid: "uid-first".into() };
    pool.release_vif(&owner, &first).await.unwrap();
    tokio::time::sleep(2 * cool_down).await;
    let second = world.pod("second", &json!({ "app": "cache" })).await;
    assert_eq!(second.id, first.id, "it is used again");
    assert_eq!(world.groups_of(&second), ["default".to_owned()].into(), "no policy applies to this one");
}

#[tokio::test]
async fn a_policy_without_pods_has_no_unresolved_ports() {
    let world = World::new().await;
    let spec = json!({ "podSelector": { "matchLabels": { "app": "db" } },
        "ingress": [{ "ports": [{ "port": "sql" }] }],
        "egress": [{ "to": [{ "podSelector": { "matchLabels": { "app": "log" } } }], "ports": [{ "port": "sink" }] }] });
    world.policy("p", &spec).await.unwrap();
    world.pod("other", &json!({ "app": "other" })).await;
    world.policy("p", &spec).await.unwrap();
    assert_eq!(*world.recorded.0.lock(), [""; 0]);
    // The policy itself does not change; only its pods are created.
    for app in ["db", "log"] {
        world.pod(app, &json!({ "app": app })).await;
    }
    let texts = std::mem::take(&mut *world.recorded.0.lock());
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].ends_with("named sql/TCP") && texts[1].contains("named sink/TCP"), "{texts:?}");
    world.no_pod("log").await;
    let uid = Owner::of(&policy("p", &spec).metadata).uid;
    assert_eq!(world.index.problems(&uid), ["no pod selected by the policy has a port named sql/TCP"]);
}

#[tokio::test]
async fn a_policy_with_ports_that_no_pod_has_is_reported_once() {
    let world = World::new().await;
    world.pod("db", &json!({ "app": "db" })).await;
    let spec =
        json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": "sql" }, { "port": "http" }] }] });
    for _ in 0..2 {
        world.policy("p", &spec).await.unwrap();
    }
    let expected = "PolicyIncomplete: no pod selected by the policy has a port named sql/TCP";
    assert_eq!(*world.recorded.0.lock(), [expected]);
}

#[tokio::test]
async fn a_pod_that_names_the_vif_of_another_changes_none_of_its_groups() {
    let world = World::new().await;
    world.policy("p", &admits("web")).await.unwrap();
    let victim = world.pod("victim", &json!({ "app": "db" })).await;
    let guarded = world.groups_of(&victim);
    let before = world.calls();
    world.shows_unverified("thief", &json!({ "app": "web" }), &victim).await.unwrap();
    world.handler.owners().await.unwrap();
    world.follow().await.unwrap();
    assert_eq!((world.changes(before), world.groups_of(&victim)), (vec![], guarded));
    // The handler `vif` finds out later that the VIF is the pod's: a trigger follows.
    let own = world.network.ports()[0].vif.clone();
    world.claims.forget(&"uid-victim".into());
    world.claims.set_verified(&"uid-thief".into(), &[own]);
    world.follow().await.unwrap();
    assert_eq!(world.groups_of(&victim).len(), 2, "the default group and that of the peers");
}

#[tokio::test]
async fn a_change_of_a_policy_lets_other_tasks_run_after_each_slice_of_pods() {
    const PODS: usize = 2_000;
    let world = World::new().await;
    for number in 0..PODS {
        world.index.set_pod(&pod(&format!("pod-{number}"), &json!({ "app": "db" }), None));
    }
    world.follow().await.unwrap();
    let start = world.index.recomputed();
    NetworkPolicyObserver::present(&*world.index, &policy("p", &admits("web")));
    assert_eq!(world.index.recomputed(), start, "nothing is computed while the watch waits");
    let source = IndexSource(Arc::clone(&world.index));
    let sent = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&sent);
    let run = source.run(TriggerSender::new(move |_| *counter.lock() += 1));
    let mut run = std::pin::pin!(run);
    let (mut polls, mut before) = (0, (start, 0));
    while before != (start + PODS, PODS + 1) {
        assert!(
            std::future::poll_fn(|task| std::task::Poll::Ready(run.as_mut().poll(task).is_pending())).await
        );
        let after = (world.index.recomputed(), *sent.lock());
        assert!(after.0 - before.0 <= 64 && after.1 - before.1 <= 65, "{before:?} {after:?}");
        (polls, before) = (polls + 1, after);
        tokio::task::yield_now().await;
    }
    assert!(polls > PODS / 64, "{polls}");
}

#[tokio::test]
async fn a_change_of_a_policy_concerns_only_the_pods_that_it_may_select() {
    let world = World::new().await;
    for app in ["db", "web", "other"] {
        world.index.set_pod(&pod(app, &json!({ "app": app }), None));
    }
    world.follow().await.unwrap();
    let before = world.index.recomputed();
    world.policy("p", &admits("web")).await.unwrap();
    assert_eq!(world.index.recomputed(), before + 2, "the selected pod and its peer");
    world.policy("p", &admits("other")).await.unwrap();
    assert_eq!(world.index.recomputed(), before + 5, "the former peer, too");
}
