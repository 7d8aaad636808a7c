use super::*;

#[tokio::test(start_paused = true)]
async fn a_warm_hand_out_and_a_return_cost_no_call() {
    let world = World::new(POLICY).await;
    let first = world.get("a").await;
    pass(Duration::from_secs(5)).await;
    let (calls, owned) = (world.bulk.calls(), world.vifs.calls());
    let second = world.get("b").await;
    assert_ne!(first.id, second.id);
    assert!(second.active, "it became active in the pool");
    world.release("b", &second).await;
    assert_eq!((world.bulk.calls(), world.vifs.calls()), (calls, owned));
    assert_eq!(world.network.returned(), [second.id], "what was seen of it is not true of the next pod's");
    let VifPoolMetrics { cooling, used, warm, waited, .. } = world.metrics();
    assert_eq!((cooling, used, warm, waited), (1, 1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_the_same_share_one_call_and_the_refill_comes_with_it() {
    let world = World::new(POLICY).await;
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 1, Fault::Delay(Duration::from_secs(3)));
    let asked: Vec<_> = (0..30)
        .map(|number| {
            let (pool, request) =
                (Arc::clone(&world.pool), world.request_for(&format!("p{number}"), "n1", &["default"]));
            tokio::spawn(async move { pool.request_vif(&request).await.unwrap().id })
        })
        .collect();
    run_until_idle().await;
    assert_eq!(world.orders().len(), 1, "one at a time");
    let mut got = Vec::new();
    for asked in asked {
        got.push(asked.await.unwrap());
    }
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 30, "each its own");
    assert!(world.orders().len() <= 2, "{:?}", world.orders());
    assert_eq!((world.metrics().waited, world.metrics().waiting), (30, 0));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_has_his_before_a_large_refill_is_made() {
    let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
    let bulk = MemoryBulkVifDriver::new(Arc::clone(&network), "east".into()).max_per_call(8);
    let world = World::on(network, bulk, VifPoolPolicy { min: 40, ..POLICY });
    world.start().await;
    let call = Duration::from_secs(3);
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 100, Fault::Delay(call));
    let began = Instant::now();
    world.ask("a").await.unwrap();
    assert_eq!(began.elapsed(), call, "after the first call");
    for _ in 0..10 {
        pass(call).await;
    }
    // One pod and a batch first, by two calls; then all that is missing, by four.
    assert_eq!(world.orders(), [11, 3, 30, 22, 14, 6]);
    assert_eq!((world.ports(), world.metrics().free, world.metrics().short_refills), (41, 40, 0));
}

#[tokio::test(start_paused = true)]
async fn whether_a_vif_is_active_is_never_taken_from_what_a_pod_shows() {
    let options = MemoryOptions { activation_delay_ms: 60_000, ..MemoryOptions::default() };
    let world = World::with(options, VifPoolPolicy { min: 0, max: 1, batch: 1, ..POLICY });
    world.start().await;
    let vif = world.get("a").await;
    assert!(!vif.active);
    world.release("a", &Vif { active: true, ..vif.clone() }).await;
    pass(POLICY.cool_down).await;
    let again = world.get("b").await;
    assert_eq!((&again.id, again.active), (&vif.id, false));
    world.release("b", &again).await;
    for _ in 0..10 {
        pass(Duration::from_secs(10)).await;
    }
    let active = world.get("c").await;
    assert_eq!((&active.id, active.active), (&vif.id, true), "its activation was polled");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_rests_and_is_used_again() {
    let world = World::new(VifPoolPolicy { min: 0, batch: 1, ..POLICY }).await;
    let vif = world.get("a").await;
    world.release("a", &vif).await;
    world.release("a", &vif).await;
    assert_ne!(world.get("b").await.id, vif.id, "it rests");
    let ports = world.ports();
    pass(POLICY.cool_down).await;
    let got: Vec<_> = [world.get("c").await.id, world.get("d").await.id].into();
    assert!(got.contains(&vif.id), "{got:?}");
    assert_eq!((got.len(), ports), (2, 3), "one ahead of demand");
}

#[tokio::test(start_paused = true)]
async fn past_the_most_that_may_be_ready_a_vif_is_destroyed_once_it_has_rested() {
    let world = World::new(VifPoolPolicy { min: 0, max: 1, batch: 1, ..POLICY }).await;
    let vifs = [world.get("a").await, world.get("b").await, world.get("c").await];
    for (name, vif) in ["a", "b", "c"].into_iter().zip(&vifs) {
        world.release(name, vif).await;
    }
    assert!(world.ports() >= 3);
    pass(POLICY.cool_down * 3).await;
    assert_eq!((world.ports(), world.metrics().free), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn other_security_groups_cost_one_call_and_the_same_ones_none() {
    let world = World::new(POLICY).await;
    world.get("a").await;
    let request = world.request_for("b", "n1", &["web", "db"]);
    let vif = world.pool.request_vif(&request).await.unwrap();
    let port = world.network.port(&vif.id).unwrap();
    assert_eq!(port.security_groups, ["db".into(), "web".into()]);
    world.release("b", &vif).await;
    pass(POLICY.cool_down).await;
    let again = world.request_for("c", "n1", &["db", "web"]);
    assert_eq!(world.pool.request_vif(&again).await.unwrap().id, vif.id, "it is as it is wanted");
    let adapted =
        world.bulk.calls().into_iter().filter(|call| matches!(call, BulkVifCall::SetSecurityGroups(_)));
    assert_eq!(adapted.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_was_deleted_outside_is_passed_over_when_its_groups_are_to_change() {
    let world = World::new(POLICY).await;
    world.get("a").await;
    let request = world.request_for("b", "n1", &["web"]);
    let gone = world.network.ports().into_iter().nth(1).unwrap().vif.id;
    world.network.remove_port(&gone);
    let vif = world.pool.request_vif(&request).await.unwrap();
    assert_ne!(vif.id, gone);
    assert!(world.bulk.calls().contains(&BulkVifCall::SetSecurityGroups(gone)), "it was tried");
    assert!(
        world.pool.vifs(Some(&owner("b"))).await.unwrap().iter().all(|marked| marked.resource.id == vif.id)
    );
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_loses_nothing_to_the_pool() {
    let world = World::new(VifPoolPolicy { min: 0, batch: 1, ..POLICY }).await;
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 1, Fault::Delay(Duration::from_secs(3)));
    let (pool, request) = (Arc::clone(&world.pool), world.request_for("a", "n1", &["default"]));
    let asked = tokio::spawn(async move { pool.request_vif(&request).await });
    run_until_idle().await;
    asked.abort();
    pass(Duration::from_secs(3)).await;
    let VifPoolMetrics { free, used, waiting, .. } = world.metrics();
    assert_eq!((free, used, waiting), (1, 0, 0), "it was made all the same");
    world.bulk.faults().inject(BulkVifMethod::SetSecurityGroups, 1, Fault::Hang);
    let (pool, request) = (Arc::clone(&world.pool), world.request_for("b", "n1", &["web"]));
    let asked = tokio::spawn(async move { pool.request_vif(&request).await });
    run_until_idle().await;
    assert_eq!(world.metrics().used, 1);
    asked.abort();
    run_until_idle().await;
    let VifPoolMetrics { free, used, .. } = world.metrics();
    assert_eq!((free, used), (world.ports(), 0));
    assert!(world.pool.request_vif(&world.request_for("c", "n1", &["web"])).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_its_node_binds_is_handed_out_inactive_and_activated_by_the_driver() {
    let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
    let bulk = MemoryBulkVifDriver::new(Arc::clone(&network), "east".into()).active_when_bound();
    let world = World::on(network, bulk, POLICY);
    world.start().await;
    let vif = world.get("a").await;
    assert!(!vif.active);
    pass(Duration::from_secs(5)).await;
    assert!(matches!(world.pool.activate_vif(&owner("a"), &vif).await.unwrap(), Activation::Active(_)));
    world.release("a", &Vif { active: true, ..vif.clone() }).await;
    pass(POLICY.cool_down).await;
    for name in ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k"] {
        assert!(!world.get(name).await.active, "what was active for one pod is not for the next");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_cannot_change_what_the_next_one_gets() {
    let world = World::new(VifPoolPolicy { min: 0, max: 1, batch: 1, ..POLICY }).await;
    let forgeries: [fn(&mut Vif); 3] = [
        |vif| vif.subnets[0].ips = vec!["10.10.9.9".parse().unwrap()],
        |vif| vif.address = "fa:16:3e:00:00:99".parse().unwrap(),
        |vif| vif.class = VifClass::MacvlanNested { vif_name: "eth0".into() },
    ];
    for forge in forgeries {
        let vif = world.get("a").await;
        let mut forged = vif.clone();
        forge(&mut forged);
        world.release("a", &forged).await;
        assert!(world.network.port(&vif.id).is_none(), "nobody else gets it");
    }
    let vif = world.get("b").await;
    world.release("c", &vif).await;
    assert!(world.holds("b").await && world.metrics().cooling == 0, "it was not the pod's to give back");
    pass(POLICY.cool_down).await;
    assert_ne!(world.get("d").await.id, vif.id);
}

#[tokio::test(start_paused = true)]
async fn what_the_cloud_reported_of_a_subnet_is_handed_out_whatever_a_pod_shows() {
    let before = World::new(VifPoolPolicy { min: 0, max: 1, batch: 1, ..POLICY }).await;
    let vif = before.get("a").await;
    // A name server of its subnet was another one when the pod got it, or somebody says so.
    let mut shown = vif.clone();
    shown.subnets[0].dns = vec!["10.10.0.53".parse().unwrap()];
    shown.subnets[0].gateway = Some("10.10.9.9".parse().unwrap());
    shown.network.mtu = Some(68);
    let world = before.restarted(&[("a", &shown)]).await;
    world.release("a", &shown).await;
    pass(POLICY.cool_down).await;
    let next = world.get("b").await;
    assert_eq!(next.id, vif.id, "it is no other VIF for that");
    assert_eq!(Vif { active: vif.active, ..next }, vif);
}

#[tokio::test(start_paused = true)]
async fn after_a_burst_more_is_kept_ahead_and_later_no_more_is_made() {
    let world = World::new(POLICY).await;
    for number in 0..100 {
        world.get(&format!("p{number}")).await;
    }
    let free = world.metrics().free;
    assert!((50..=70).contains(&free), "{free}");
    let orders = world.orders().len();
    pass(Duration::from_secs(600)).await;
    for number in 100..105 {
        world.get(&format!("p{number}")).await;
    }
    assert_eq!(world.orders().len(), orders, "what is there is enough");
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_is_not_pooled_is_passed_on_to_the_driver() {
    let world = World::new(POLICY).await;
    let noop = NoopVifPool::new(Arc::clone(&world.vifs) as _);
    let vif = noop.request_vif(&world.request_for("a", "n1", &["default"])).await.unwrap();
    assert_eq!(world.pool.vifs(Some(&owner("a"))).await.unwrap().len(), 1);
    world.release("a", &vif).await;
    assert_eq!(world.ports(), 0);
    assert!(world.vifs.calls().contains(&VifCall::Release("uid-a".into(), vif.id)));
}

#[tokio::test(start_paused = true)]
async fn the_figures_of_a_pool_that_is_gone_are_what_it_has_counted_and_keep_nothing_alive() {
    let world = World::new(POLICY).await;
    world.get("web").await;
    let (metrics, bulk) = (world.pool.metrics(), Arc::downgrade(&world.bulk));
    let VifPoolMetrics { used, waited, refills, .. } = metrics();
    assert_eq!((used, waited, refills), (1, 1, 1));
    drop(world);
    pass(Duration::from_secs(3600)).await;
    assert_eq!(bulk.strong_count(), 0);
    assert_eq!(metrics(), VifPoolMetrics { waited, refills, ..VifPoolMetrics::default() });
}

/// The security groups of a VIF change while a pod holds it, or after that. Answers whether the next pod that wants those of
/// the first one gets it with these, and how many calls that took.
async fn reused(change: impl AsyncFnOnce(&World, &Vif)) -> (bool, usize) {
    let world = World::new(VifPoolPolicy { min: 0, max: 1, batch: 1, ..POLICY }).await;
    let vif = world.get("a").await;
    change(&world, &vif).await;
    world.release("a", &vif).await;
    pass(POLICY.cool_down).await;
    let adapted =
        || world.bulk.calls().iter().filter(|call| matches!(call, BulkVifCall::SetSecurityGroups(_))).count();
    let before = adapted();
    let mut right = true;
    for name in ["b", "c"] {
        let groups = world.network.port(&world.get(name).await.id).unwrap().security_groups;
        right &= groups == ["default".into()];
    }
    (right, adapted() - before)
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_never_gets_a_vif_with_the_groups_that_somebody_put_in_front_of_it_meanwhile() {
    let guard = async |world: &World, vif: &Vif, groups: &[&str]| {
        let groups: Vec<SecurityGroupId> = groups.iter().map(|group| (*group).into()).collect();
        world.pool.security_groups_changed(&vif.id, None);
        world.bulk.set_security_groups(vif, &groups).await.unwrap();
        world.pool.security_groups_changed(&vif.id, Some(&groups));
    };
    let other = async |world: &World, vif: &Vif| guard(world, vif, &["default", "isolated"]).await;
    assert_eq!(reused(other).await, (true, 1), "while a pod held it");
    let there_and_back = async |world: &World, vif: &Vif| {
        guard(world, vif, &["isolated"]).await;
        guard(world, vif, &["default"]).await;
    };
    assert_eq!(reused(there_and_back).await, (true, 0));
    let none = async |world: &World, vif: &Vif| guard(world, vif, &[]).await;
    assert_eq!(reused(none).await, (true, 1));
    let unsure = async |world: &World, vif: &Vif| world.pool.security_groups_changed(&vif.id, None);
    assert_eq!(reused(unsure).await, (true, 1), "nobody knows what became of a call");
    let in_pool = async |world: &World, vif: &Vif| {
        world.release("a", vif).await;
        guard(world, vif, &["isolated"]).await;
    };
    assert_eq!(reused(in_pool).await, (true, 1), "while it cooled down");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_groups_that_was_cut_off_is_not_forgotten_because_it_was_not_seen_meanwhile() {
    let world = World::new(VifPoolPolicy { min: 0, batch: 2, ..POLICY }).await;
    world.bulk.faults().inject(BulkVifMethod::SetSecurityGroups, 1, Fault::Hang);
    world.get("a").await;
    let request = world.request_for("b", "n1", &["isolated"]);
    let asked = {
        let (pool, request) = (Arc::clone(&world.pool), request.clone());
        tokio::spawn(async move { pool.request_vif(&request).await })
    };
    run_until_idle().await;
    let adapted = |call| if let BulkVifCall::SetSecurityGroups(id) = call { Some(id) } else { None };
    let id = world.bulk.calls().into_iter().find_map(adapted).unwrap();
    // What exists is read, then the call takes effect, and nobody waits for its answer.
    world.pool.resync().await.unwrap();
    let vif = world.network.port(&id).unwrap().vif;
    world.bulk.set_security_groups(&vif, &request.security_groups).await.unwrap();
    asked.abort();
    run_until_idle().await;
    let mut got = Vec::new();
    for name in ["c", "d"] {
        got.push(world.get(name).await.id);
    }
    assert!(got.contains(&id), "{got:?}");
    assert_eq!(world.network.port(&id).unwrap().security_groups, ["default".into()]);
}
