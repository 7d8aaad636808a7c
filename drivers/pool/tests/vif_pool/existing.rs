use super::*;

#[tokio::test(start_paused = true)]
async fn nothing_is_handed_out_before_it_is_known_what_pods_use() {
    let world = World::with(MemoryOptions::default(), POLICY);
    assert!(world.ask("a").await.unwrap_err().transient());
    world.pool.start();
    assert!(world.ask("a").await.is_err(), "what exists is not known");
    world.pool.resync().await.unwrap();
    assert!(world.ask("a").await.is_err(), "what pods show is not known");
    world.pool.start();
    assert!(world.ask("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_what_pods_show_is_theirs_and_the_rest_is_free_once_it_has_rested() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 2, ..POLICY }).await;
    let (shown, never_written) = (before.get("a").await, before.get("b").await);
    let world = before.restarted(&[("a", &shown)]).await;
    assert!(world.holds("a").await && !world.holds("b").await);
    let VifPoolMetrics { used, cooling, free, .. } = world.metrics();
    assert_eq!((used, cooling + 1, free), (1, world.ports(), 0));
    let orders = world.orders().len();
    assert_eq!(orders, 0, "nothing is made ahead of demand meanwhile");
    pass(POLICY.cool_down).await;
    let mut got = Vec::new();
    for number in 0..before.ports() - 1 {
        got.push(world.get(&format!("p{number}")).await.id);
    }
    assert!(got.contains(&never_written.id) && !got.contains(&shown.id));
    world.release("a", &shown).await;
    pass(POLICY.cool_down).await;
    assert_eq!(world.metrics().conflicts, 0);
}

#[tokio::test(start_paused = true)]
async fn what_two_pods_show_is_reported_and_free_when_both_are_gone() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 1, ..POLICY }).await;
    let vif = before.get("a").await;
    let world = before.restarted(&[("a", &vif), ("b", &vif)]).await;
    assert_eq!(world.metrics().conflicts, 1);
    world.release("a", &vif).await;
    assert_eq!(world.metrics().used, 1);
    world.pool.pod_vifs(&pod("c"), Some(std::slice::from_ref(&vif)));
    assert_eq!(world.metrics().conflicts, 2);
    world.release("b", &vif).await;
    pass(POLICY.cool_down * 2).await;
    assert_ne!(world.get("d").await.id, vif.id);
    world.release("c", &vif).await;
    assert!(world.network.port(&vif.id).is_some());
    assert!(!world.holds("c").await);
    assert_eq!(world.metrics().cooling, 1, "it is free after the cool-down");
}

#[tokio::test(start_paused = true)]
async fn what_others_made_or_deleted_is_learned_at_the_next_reading() {
    let world = World::new(VifPoolPolicy { min: 0, batch: 1, ..POLICY }).await;
    let (kept, lost) = (world.get("a").await, world.get("b").await);
    let mut strange = world.network.port(&kept.id).unwrap();
    strange.vif.id = "strange".into();
    world.network.insert_port(strange.clone());
    strange.vif.id = "theirs".into();
    strange.cluster = Some("west".into());
    world.network.insert_port(strange);
    world.network.remove_port(&lost.id);
    let used = world.metrics().used;
    world.pool.resync().await.unwrap();
    let figures = world.metrics();
    assert_eq!((figures.used, figures.cooling, figures.conflicts), (used - 1, 1, 1));
    pass(POLICY.cool_down).await;
    let mut got = Vec::new();
    for number in 0..4 {
        got.push(world.get(&format!("p{number}")).await.id);
    }
    assert!(got.contains(&"strange".into()) && !got.contains(&"theirs".into()), "{got:?}");
}

#[tokio::test(start_paused = true)]
async fn the_marks_tell_who_holds_what_once_all_is_known() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 2, ..POLICY }).await;
    let vif = before.get("a").await;
    let marked = before.pool.vifs(None).await.unwrap();
    let of_a: Vec<_> = marked.iter().filter(|marked| marked.owner == Some(owner("a"))).collect();
    assert_eq!((of_a.len(), &of_a[0].resource.id), (1, &vif.id));
    assert_eq!(before.pool.vifs(Some(&owner("a"))).await.unwrap().len(), 1);
    assert_eq!(before.pool.vifs(Some(&owner("b"))).await.unwrap(), []);
    assert_eq!(before.lists(), 1, "for one pod the VIFs are not listed");
    let world = before.restarted(&[]).await;
    assert_eq!(world.pool.vifs(Some(&owner("a"))).await.unwrap(), [], "it was never written down");
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_shows_before_its_event_comes_is_not_handed_out() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 2, ..POLICY }).await;
    let shown = before.get("a").await;
    let world = before.restarted(&[]).await;
    // The last write of the process that led before takes effect now, and the watch lags.
    world.published.set([shown.id.clone()]);
    pass(POLICY.cool_down).await;
    assert_eq!((world.metrics().free, world.metrics().cooling), (1, 1));
    for name in ["b", "c"] {
        assert_ne!(world.get(name).await.id, shown.id);
    }
    world.pool.pod_vifs(&pod("a"), Some(std::slice::from_ref(&shown)));
    assert!(world.holds("a").await);
    pass(2 * POLICY.cool_down).await;
    assert_eq!((world.metrics().used, world.metrics().cooling), (3, 0));
    let lists = world.lists();
    pass(10 * POLICY.cool_down).await;
    assert_eq!(world.lists(), lists, "nothing is left to confirm");
    world.published.set([]);
    world.release("a", &shown).await;
    pass(POLICY.cool_down).await;
    assert_eq!(world.metrics().cooling, 0);
}

#[tokio::test(start_paused = true)]
async fn while_the_annotations_of_pods_cannot_be_read_nothing_that_was_found_is_handed_out_and_losses_are_noticed()
 {
    let before = World::new(VifPoolPolicy { min: 0, batch: 3, ..POLICY }).await;
    let found = before.get("a").await;
    let world = before.restarted(&[]).await;
    world.published.set_failing(true);
    let lost = world.network.ports().pop().unwrap().vif.id;
    assert_ne!(lost, found.id);
    world.network.remove_port(&lost);
    pass(POLICY.cool_down).await;
    assert_eq!((world.metrics().free, world.metrics().cooling), (0, 2));
    let lists = world.lists();
    pass(POLICY.cool_down).await;
    assert_eq!(world.lists(), lists, "it is not repeated at once");
    world.published.set_failing(false);
    pass(POLICY.cool_down).await;
    assert_eq!((world.metrics().free, world.metrics().cooling), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn what_no_pod_shows_any_more_is_handed_out_after_another_listing() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 1, ..POLICY }).await;
    let shown = before.get("a").await;
    let world = before.restarted(&[]).await;
    world.published.set([shown.id.clone()]);
    pass(POLICY.cool_down).await;
    assert_eq!((world.metrics().free, world.metrics().cooling), (0, 1));
    world.published.set([]);
    pass(2 * POLICY.cool_down).await;
    assert_eq!(world.get("b").await.id, shown.id);
}

#[tokio::test(start_paused = true)]
async fn what_was_deleted_outside_is_made_again_at_the_next_reading() {
    let world = World::new(POLICY).await;
    let kept = world.get("a").await;
    for port in world.network.ports().iter().filter(|port| port.vif.id != kept.id) {
        world.network.remove_port(&port.vif.id);
    }
    world.pool.resync().await.unwrap();
    run_until_idle().await;
    assert!(world.metrics().free >= POLICY.min && world.ports() > POLICY.min, "{:?}", world.metrics());
    let next = world.get("b").await;
    assert!(world.network.port(&next.id).is_some());
}

#[tokio::test(start_paused = true)]
async fn one_that_was_deleted_outside_makes_the_pool_look_for_others_once() {
    let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
    let bulk = MemoryBulkVifDriver::new(Arc::clone(&network), "east".into()).active_when_bound();
    let world = World::on(network, bulk, POLICY);
    world.start().await;
    world.get("a").await;
    for port in world.network.ports() {
        world.network.remove_port(&port.vif.id);
    }
    let lists = world.lists();
    let dead = world.get("b").await;
    for _ in 0..3 {
        assert_eq!(world.pool.activate_vif(&owner("b"), &dead).await.unwrap_err().reason(), Reason::NotFound);
        run_until_idle().await;
    }
    assert_eq!(world.lists(), lists + 1);
    let alive = world.get("c").await;
    assert!(world.network.port(&alive.id).is_some(), "no other pod gets one that does not exist");
    world.release("b", &dead).await;
    assert!(world.pool.vifs(Some(&owner("b"))).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_left_half_made_is_destroyed_by_a_leader_that_knows_what_pods_use() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 3, ..POLICY }).await;
    let (shown, left) = (before.get("a").await, before.network.ports().pop().unwrap().vif);
    assert_ne!(shown.id, left.id);
    let bulk = MemoryBulkVifDriver::new(Arc::clone(&before.network), "east".into());
    for vif in [&shown, &left] {
        bulk.set_incomplete(&vif.id, true);
    }
    let world = World::on(Arc::clone(&before.network), bulk, before.policy);
    let there = |vif: &Vif| world.network.port(&vif.id).is_some();
    world.pool.resync().await.unwrap();
    run_until_idle().await;
    assert!(there(&left), "what pods use is not known yet");
    world.leads.store(false, Ordering::Relaxed);
    world.pool.pod_vifs(&pod("a"), Some(std::slice::from_ref(&shown)));
    world.pool.start();
    run_until_idle().await;
    assert!(there(&left), "this process does not lead");
    world.leads.store(true, Ordering::Relaxed);
    world.pool.resync().await.unwrap();
    run_until_idle().await;
    assert_eq!((there(&left), there(&shown)), (false, true), "a pod uses the other one");
    assert_eq!((world.metrics().used, world.pool.vifs(Some(&owner("a"))).await.unwrap().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_holds_stays_its_own_while_it_is_only_half_there() {
    let world = World::new(VifPoolPolicy { min: 0, batch: 2, ..POLICY }).await;
    let held = world.get("a").await;
    let free = world.network.ports().into_iter().map(|port| port.vif).find(|vif| vif.id != held.id).unwrap();
    for vif in [&held, &free] {
        world.bulk.set_incomplete(&vif.id, true);
    }
    world.pool.resync().await.unwrap();
    run_until_idle().await;
    let VifPoolMetrics { used, free: ready, conflicts, .. } = world.metrics();
    assert_eq!((used, ready, conflicts), (1, 0, 0), "nobody gets the other one");
    assert_eq!((world.ports(), world.pool.vifs(Some(&owner("a"))).await.unwrap().len()), (2, 1));
    for vif in [&held, &free] {
        world.bulk.set_incomplete(&vif.id, false);
    }
    world.pool.resync().await.unwrap();
    pass(POLICY.cool_down).await;
    assert_eq!((world.metrics().used, world.metrics().free), (1, 1), "it was mended meanwhile");
    world.bulk.set_incomplete(&free.id, true);
    for _ in 0..2 {
        world.pool.resync().await.unwrap();
        run_until_idle().await;
    }
    assert!(world.network.port(&free.id).is_none(), "and this time it was not");
}

/// Returns a pod that was created on this day of a month.
fn created(name: &str, day: u8) -> Pod {
    let mut pod = pod(name);
    let time = format!("\"2026-01-{day:02}T00:00:00Z\"");
    pod.metadata.creation_timestamp = serde_json::from_str(&time).unwrap();
    pod
}

impl World {
    fn claims(&self, names: [&str; 2], vif: &Vif) -> [PoolClaim; 2] {
        names.map(|name| self.pool.claim(&owner(name), vif))
    }
}

const FIRST: [PoolClaim; 2] = [PoolClaim::Held, PoolClaim::Refused];
const SECOND: [PoolClaim; 2] = [PoolClaim::Refused, PoolClaim::Held];
const NEITHER: [PoolClaim; 2] = [PoolClaim::Refused, PoolClaim::Refused];

#[tokio::test(start_paused = true)]
async fn of_two_pods_that_show_one_vif_at_the_start_the_one_with_its_address_keeps_it_or_else_neither() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 1, ..POLICY }).await;
    let vif = before.get("a").await;
    let own = vif.ips().next().map(|ip| ip.to_string());
    let other = Some("192.0.2.1".to_owned());
    let on = |pod: &Pod, node: &str, pod_ip: &Option<String>| Pod {
        spec: Some(PodSpec { node_name: Some(node.to_owned()), ..PodSpec::default() }),
        status: Some(PodStatus { pod_ip: pod_ip.clone(), ..PodStatus::default() }),
        ..pod.clone()
    };
    let with = |pod: &Pod, pod_ip: &Option<String>| on(pod, "n1", pod_ip);
    let (younger, older) = (created("a", 2), created("b", 1));
    let mut forged = vif.clone();
    forged.subnets[0].ips = vec!["192.0.2.1".parse().unwrap()];
    for (younger_on, older_on, shown, expected) in [
        (("n1", &None), ("n1", &None), &vif, NEITHER),
        (("n1", &own), ("n1", &None), &vif, FIRST),
        (("n1", &None), ("n1", &other), &vif, FIRST),
        (("n1", &None), ("n1", &other), &forged, FIRST),
        (("n1", &None), ("n2", &None), &vif, FIRST),
        (("n1", &other), ("n1", &other), &vif, NEITHER),
        (("n1", &own), ("n1", &own), &vif, SECOND),
    ] {
        let bulk = MemoryBulkVifDriver::new(Arc::clone(&before.network), "east".into());
        let world = World::on(Arc::clone(&before.network), bulk, POLICY);
        let (node, address) = younger_on;
        world.pool.pod_vifs(&on(&younger, node, address), Some(std::slice::from_ref(&vif)));
        let (node, address) = older_on;
        world.pool.pod_vifs(&on(&older, node, address), Some(std::slice::from_ref(shown)));
        world.start().await;
        assert_eq!(world.claims(["a", "b"], &vif), expected);
        // The address of a pod may follow later.
        world.pool.pod_vifs(&with(&younger, &own), Some(std::slice::from_ref(&vif)));
        world.pool.pod_vifs(&with(&older, &None), Some(std::slice::from_ref(&vif)));
        assert_eq!(world.claims(["a", "b"], &vif), FIRST);
        world.release("a", &vif).await;
        assert_eq!(world.claims(["a", "b"], &vif), SECOND, "the other one keeps it");
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_vif_that_a_pod_of_another_node_alone_names_at_the_start_is_reported() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 1, ..POLICY }).await;
    let vif = before.get("a").await;
    let mut elsewhere = on_node("b", None);
    elsewhere.spec.as_mut().unwrap().node_name = Some("n2".to_owned());
    let bulk = MemoryBulkVifDriver::new(Arc::clone(&before.network), "east".into());
    let world = World::on(Arc::clone(&before.network), bulk, POLICY);
    world.pool.pod_vifs(&elsewhere, Some(std::slice::from_ref(&vif)));
    world.start().await;
    let claim = world.pool.claim(&owner("b"), &vif);
    assert!(matches!(&claim, PoolClaim::Late(key) if key.host == "n1"), "{claim:?}");
}

#[tokio::test(start_paused = true)]
async fn the_pod_that_got_a_vif_from_the_pool_keeps_it_and_the_key_of_one_that_nobody_got_is_reported() {
    let world = World::new(VifPoolPolicy { min: 0, batch: 2, ..POLICY }).await;
    let vif = world.get("a").await;
    let ports = world.network.ports().into_iter().map(|port| port.vif);
    let free = ports.into_iter().find(|port| port.id != vif.id).unwrap();
    for shown in [&vif, &free] {
        world.pool.pod_vifs(&created("b", 1), Some(std::slice::from_ref(shown)));
    }
    assert_eq!(world.claims(["a", "b"], &vif), FIRST, "a may not have been written yet");
    world.pool.pod_vifs(&created("a", 2), Some(std::slice::from_ref(&vif)));
    assert_eq!(world.claims(["a", "b"], &vif), FIRST);
    let [of_a, of_b] = world.claims(["a", "b"], &free);
    assert!(
        of_a == PoolClaim::Refused && matches!(&of_b, PoolClaim::Late(key) if key.host == "n1"),
        "{of_b:?}"
    );
    let elsewhere = Vif { class: VifClass::VlanNested { vif_name: "tap".into(), vlan_id: 7 }, ..vif.clone() };
    assert_eq!(world.pool.claim(&owner("a"), &elsewhere), PoolClaim::Refused, "it has no VLAN");
    assert_eq!(world.pool.claim(&owner("a"), &Vif { id: "unknown".into(), ..vif }), PoolClaim::NotPooled);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_dropped_does_not_wait_for_a_listing() {
    let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
    let bulk = MemoryBulkVifDriver::new(Arc::clone(&network), "east".into()).active_when_bound();
    let world = World::on(network, bulk, POLICY);
    world.start().await;
    let dead = world.get("a").await;
    world.network.remove_port(&dead.id);
    let lists = world.lists();
    world.bulk.faults().inject(BulkVifMethod::ListVifs, 1, Fault::Hang);
    assert_eq!(world.pool.activate_vif(&owner("a"), &dead).await.unwrap_err().reason(), Reason::NotFound);
    run_until_idle().await;
    assert_eq!(world.lists(), lists + 1, "it is never answered");
    let World { bulk, pool, .. } = world;
    drop(pool);
    run_until_idle().await;
    assert_eq!(Arc::strong_count(&bulk), 1, "nothing of the pool is left");
}

/// Returns a pod on the node `n1` with this address.
fn on_node(name: &str, address: Option<&Vif>) -> Pod {
    let pod_ip = address.map(|vif| vif.ips().next().unwrap().to_string());
    let spec = PodSpec { node_name: Some("n1".into()), ..PodSpec::default() };
    let status = PodStatus { phase: Some("Pending".into()), pod_ip, ..PodStatus::default() };
    Pod { spec: Some(spec), status: Some(status), ..pod(name) }
}

#[tokio::test(start_paused = true)]
async fn a_vif_with_the_address_of_a_pod_on_its_node_is_used_whatever_the_annotation_of_the_pod_names() {
    for annotated in [None, Some(false), Some(true)] {
        let before = World::new(VifPoolPolicy { min: 0, batch: 3, ..POLICY }).await;
        let vif = before.get("a").await;
        let other = before.network.ports().into_iter().map(|port| port.vif).find(|other| other.id != vif.id);
        let named: Option<Vec<_>> = annotated.map(|named| other.into_iter().filter(|_| named).collect());
        let elsewhere = Pod {
            spec: Some(PodSpec { node_name: Some("n2".into()), ..PodSpec::default() }),
            ..on_node("b", Some(&vif))
        };
        let world = before.restarted(&[]).await;
        world.pool.pod_vifs(&elsewhere, Some(&[]));
        assert!(!world.pool.holds_vifs(&owner("b").uid), "another network has the address too");
        world.pool.pod_vifs(&on_node("a", Some(&vif)), named.as_deref());
        assert!(matches!(world.pool.claim(&owner("a"), &vif), PoolClaim::Late(_)));
        pass(POLICY.cool_down * 2).await;
        for number in 0..4 {
            assert_ne!(world.get(&format!("p{number}")).await.id, vif.id);
        }
        world.pool.pod_ended(&owner("a").uid);
        assert!(world.holds("a").await, "until it is released");
        world.release("a", &vif).await;
        assert!(!world.pool.holds_vifs(&owner("a").uid) || annotated == Some(true));
    }
}

#[tokio::test(start_paused = true)]
async fn as_long_as_nothing_tells_which_vif_a_pod_got_it_may_be_each_one_on_its_node() {
    let before = World::new(VifPoolPolicy { min: 0, batch: 3, ..POLICY }).await;
    let vif = before.get("a").await;
    let found = before.ports();
    for ends in [false, true] {
        let bulk = MemoryBulkVifDriver::new(Arc::clone(&before.network), "east".into());
        let world = World::on(Arc::clone(&before.network), bulk, before.policy);
        world.pool.pod_vifs(&on_node("a", None), None);
        world.start().await;
        pass(POLICY.cool_down * 2).await;
        assert_eq!((world.metrics().used, world.metrics().free), (found, 0));
        assert!(!world.holds("a").await && world.pool.claim(&owner("a"), &vif) == PoolClaim::Refused);
        if ends {
            world.pool.pod_ended(&owner("a").uid);
        } else {
            world.pool.pod_vifs(&on_node("a", Some(&vif)), None);
            assert!(world.holds("a").await);
        }
        run_until_idle().await;
        assert_eq!(
            (world.metrics().used, world.metrics().cooling),
            (usize::from(!ends), found - usize::from(!ends))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_leader_before_is_still_deleting_is_not_handed_out() {
    let before = World::new(VifPoolPolicy { min: 0, max: 1, batch: 1, ..POLICY }).await;
    let mut got = Vec::new();
    for name in ["a", "b", "c", "d"] {
        got.push(before.get(name).await);
    }
    let late = POLICY.cool_down / 2;
    before.bulk.faults().inject(BulkVifMethod::DeleteVifs, 1, Fault::Delay(late));
    for (name, vif) in ["b", "c", "d"].iter().zip(&got[1..]) {
        before.release(name, vif).await;
    }
    // The leader begins to delete what it has too many of, and hands over.
    pass(POLICY.cool_down).await;
    assert!(before.bulk.calls().iter().any(|call| matches!(call, BulkVifCall::DeleteVifs(_))));
    before.leads.store(false, Ordering::Relaxed);
    let exist = before.ports();
    let world = before.restarted(&[("a", &got[0])]).await;
    pass(late).await;
    assert!(world.ports() < exist, "it takes effect");
    pass(POLICY.cool_down / 2).await;
    for name in ["e", "f", "g"] {
        let vif = world.get(name).await;
        assert!(world.network.port(&vif.id).is_some(), "{name} has no network");
    }
    assert_eq!(world.metrics().conflicts, 0);
}
