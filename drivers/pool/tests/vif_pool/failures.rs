use super::*;

#[tokio::test(start_paused = true)]
async fn without_a_pool_one_request_at_a_time_tries_an_exhausted_quota_and_all_are_served_when_it_is_raised()
{
    const PODS: usize = 144;
    let world = World::with(MemoryOptions::default(), POLICY);
    let noop = NoopVifPool::new(Arc::clone(&world.vifs) as _);
    world.network.set_port_quota(Some(0));
    let mut due = vec![0; PODS];
    let mut served = 0;
    let mut tried = Vec::new();
    for second in 0_u64..180 {
        if second == 120 {
            world.network.set_port_quota(None);
        }
        for (pod, due) in due.iter_mut().enumerate().filter(|(_, due)| **due <= second) {
            match noop.request_vif(&world.request_for(&format!("p{pod}"), "n1", &["default"])).await {
                Ok(_) => (*due, served) = (u64::MAX, served + 1),
                Err(error) => {
                    assert_eq!((error.reason(), error.ambiguous()), (Reason::Quota, false));
                    *due = second + error.retry_after().map_or(1, |wait| wait.as_secs().max(1));
                }
            }
        }
        if [59, 119].contains(&second) {
            tried.push(world.vifs.calls().iter().filter(|call| matches!(call, VifCall::Request(_))).count());
        }
        pass(Duration::from_secs(1)).await;
    }
    assert!(tried[0] <= 8 && tried[1] - tried[0] <= 3, "{tried:?} calls");
    assert_eq!(served, PODS, "within a minute");
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_a_quota_all_hear_why_and_many_ask_no_more_often_than_one() {
    let options = MemoryOptions { port_quota: Some(3), ..MemoryOptions::default() };
    let world = World::with(options, POLICY);
    world.start().await;
    let mut refused = Vec::new();
    for number in 0..50 {
        refused.extend(world.ask(&format!("p{number}")).await.err());
    }
    run_until_idle().await;
    assert_eq!(refused.len(), 47);
    let error = refused.last().unwrap();
    assert_eq!((error.reason(), error.transient()), (Reason::Quota, true));
    assert!(error.retry_after().is_some_and(|after| after <= Duration::from_secs(1)));
    assert!(world.orders().len() <= 2, "{:?}", world.orders());
    let before = world.orders().len();
    for _ in 0..60 {
        for number in 0..50 {
            let _ = world.ask(&format!("p{number}")).await;
        }
        pass(Duration::from_secs(1)).await;
    }
    assert!((4..=8).contains(&(world.orders().len() - before)), "{:?}", world.orders());
    world.network.set_port_quota(None);
    pass(Duration::from_secs(31)).await;
    assert!(world.ask("late").await.is_ok(), "the quota was raised");
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_obeyed_and_handed_on() {
    let world = World::new(POLICY).await;
    let busy = outage().after(Duration::from_secs(90));
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 1, Fault::Fail(busy));
    let error = world.ask("a").await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(90)));
    pass(Duration::from_secs(89)).await;
    assert_eq!(world.ask("a").await.unwrap_err().retry_after(), Some(Duration::from_secs(1)));
    pass(Duration::from_secs(1)).await;
    assert!(world.ask("a").await.is_ok());
    assert_eq!(world.orders().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_got_lost_is_made_good_by_reading_what_exists() {
    let world = World::new(POLICY).await;
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 1, Fault::DoneThenFail(outage()));
    let error = world.ask("a").await.unwrap_err();
    assert!(error.transient() && !error.ambiguous(), "the pool itself sees to what was made");
    run_until_idle().await;
    assert_eq!(world.lists(), 2, "at the start, and now");
    let made = world.ports();
    pass(POLICY.cool_down).await;
    world.ask("a").await.unwrap();
    assert_eq!(world.ports(), made, "one of those that were made");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_never_answers_is_given_up_after_its_timeout() {
    let world = World::new(POLICY).await;
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 1, Fault::Hang);
    let (pool, request) = (Arc::clone(&world.pool), world.request_for("a", "n1", &["default"]));
    let asked = tokio::spawn(async move { pool.request_vif(&request).await });
    run_until_idle().await;
    pass(Duration::from_secs(420)).await;
    assert_eq!(asked.await.unwrap().unwrap_err().reason(), Reason::Unavailable);
    pass(Duration::from_secs(2)).await;
    assert!(world.ask("b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_destroyed_is_handed_to_nobody_and_destroyed_later() {
    let world = World::new(VifPoolPolicy { min: 0, max: 1, batch: 1, ..POLICY }).await;
    let vifs = [world.get("a").await, world.get("b").await];
    world.bulk.faults().inject(BulkVifMethod::DeleteVifs, 2, Fault::Fail(outage()));
    world.release("a", &vifs[0]).await;
    world.release("b", &vifs[1]).await;
    pass(POLICY.cool_down).await;
    assert!(world.metrics().deleting >= 1);
    let got = [world.get("c").await.id, world.get("d").await.id];
    assert!(vifs.iter().filter(|vif| got.contains(&vif.id)).count() <= 1, "one of them is to be destroyed");
    let doomed = vifs.iter().find(|vif| !got.contains(&vif.id)).unwrap();
    world.pool.pod_vifs(&pod("e"), Some(std::slice::from_ref(doomed)));
    assert_eq!(world.pool.claim(&owner("e"), doomed), PoolClaim::Refused);
    for _ in 0..10 {
        pass(Duration::from_secs(1)).await;
    }
    let VifPoolMetrics { deleting, used, free, .. } = world.metrics();
    assert_eq!((deleting, used, free, world.ports()), (0, 2, 1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_any_more_changes_nothing() {
    let world = World::new(VifPoolPolicy { min: 0, max: 1, batch: 1, ..POLICY }).await;
    let vifs = [world.get("a").await, world.get("b").await];
    world.leads.store(false, Ordering::Relaxed);
    let calls = world.bulk.calls().len();
    world.release("a", &vifs[0]).await;
    world.release("b", &vifs[1]).await;
    pass(POLICY.cool_down).await;
    assert!(world.ask("c").await.is_ok(), "what is warm needs no call; the write that follows is refused");
    assert!(world.ask("d").await.is_err());
    assert_eq!(world.bulk.calls().len(), calls);
}

#[tokio::test(start_paused = true)]
async fn whether_what_it_keeps_is_active_is_nobodys_question_after_the_term_and_after_the_pool() {
    for deposed in [true, false] {
        let options = MemoryOptions { activation_delay_ms: 60_000, ..MemoryOptions::default() };
        let world = World::with(options, POLICY);
        world.start().await;
        world.get("a").await;
        let asked = || world.vifs.calls().len();
        assert!(asked() > 1, "the pooled VIFs are polled");
        let (before, bulk) = (asked(), Arc::downgrade(&world.bulk));
        if deposed {
            world.leads.store(false, Ordering::Relaxed);
            pass(Duration::from_secs(120)).await;
            assert_eq!(asked(), before);
        } else {
            drop(world);
            run_until_idle().await;
            assert!(bulk.upgrade().is_none(), "nobody holds on to the pool while he waits");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_does_not_exist_is_reported_to_those_who_want_it_and_holds_up_nobody_else() {
    let world = World::new(VifPoolPolicy { min: 0, batch: 1, ..POLICY }).await;
    let missing = DriverError::new(Reason::NotFound, "make ports").detail("security group missing");
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 1, Fault::Fail(missing));
    let request = |name: &str, groups: &[&str]| {
        let (pool, request) = (Arc::clone(&world.pool), world.request_for(name, "n1", groups));
        async move { pool.request_vif(&request).await }
    };
    let began = Instant::now();
    let (one, other, good) =
        tokio::join!(request("a", &["missing"]), request("b", &["missing"]), request("c", &["default"]));
    for error in [one.unwrap_err(), other.unwrap_err()] {
        assert!(error.reason() == Reason::NotFound && !error.ambiguous(), "{error}");
    }
    assert!(good.is_ok());
    assert_eq!((began.elapsed(), world.orders().len()), (Duration::ZERO, 2), "nobody waits for anything");
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_not_asked_for_again_and_again_ahead_of_demand() {
    let world = World::new(POLICY).await;
    let missing = DriverError::new(Reason::Refused, "make ports");
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 100, Fault::Fail(missing));
    assert_eq!(world.ask("a").await.unwrap_err().reason(), Reason::Refused);
    let orders = world.orders().len();
    assert_eq!(orders, 1);
    for _ in 0..600 {
        pass(Duration::from_secs(1)).await;
    }
    assert_eq!(world.orders().len(), orders, "nobody asked");
    assert_eq!(world.ask("a").await.unwrap_err().reason(), Reason::Refused);
    assert_eq!(world.orders().len(), orders + 1, "whoever asks is answered by the other side");
    world.bulk.faults().clear();
    assert!(world.ask("a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_gone_is_not_filled_again_and_nothing_is_kept_of_it() {
    let world = World::new(POLICY).await;
    let vif = world.get("a").await;
    for port in world.network.ports() {
        world.network.remove_port(&port.vif.id);
    }
    let gone = DriverError::new(Reason::NotFound, "make ports").detail("network gone");
    world.bulk.faults().inject(BulkVifMethod::CreateVifs, 100, Fault::Fail(gone));
    let orders = world.orders().len();
    world.pool.resync().await.unwrap();
    for _ in 0..600 {
        pass(Duration::from_secs(1)).await;
    }
    assert_eq!(world.orders().len(), orders + 1, "once it was seen that they are gone");
    world.release("a", &vif).await;
    let VifPoolMetrics { free, cooling, used, creating, deleting, waiting, .. } = world.metrics();
    assert_eq!((free, cooling, used, creating, deleting, waiting), (0, 0, 0, 0, 0, 0));
    world.bulk.faults().clear();
    assert!(world.ask("b").await.is_ok());
}

/// Asks for one VIF on each of many nodes, again and again for a minute. Answers how many orders that took.
async fn a_minute_of_asking(world: &World, nodes: usize) -> usize {
    let before = world.orders().len();
    for second in 0..60 {
        for node in 0..nodes {
            let request = world.request_for(&format!("p{second}-{node}"), &format!("n{node}"), &["default"]);
            let _ = world.pool.request_vif(&request).await;
        }
        pass(Duration::from_secs(1)).await;
    }
    world.orders().len() - before
}

#[tokio::test(start_paused = true)]
async fn a_quota_or_subnet_that_is_used_up_is_asked_no_more_often_by_many_nodes_than_by_one() {
    for reason in [Reason::Quota, Reason::NoAddress] {
        let world = World::new(POLICY).await;
        let limit = |limit| match reason {
            Reason::Quota => world.network.set_port_quota(limit),
            _ => world.network.set_address_limit("10.10.0.0/16".parse().unwrap(), limit),
        };
        limit(Some(3));
        assert!(a_minute_of_asking(&world, 1).await <= 10, "{reason:?}: {:?}", world.orders());
        let many = a_minute_of_asking(&world, 40).await;
        assert!((1..=8).contains(&many), "{reason:?}: {many} orders");
        let quiet = world.orders().len();
        for _ in 0..60 {
            pass(Duration::from_secs(1)).await;
        }
        let ahead = world.orders().split_off(quiet);
        assert!(
            (1..=4).contains(&ahead.len()) && ahead.iter().all(|count| *count == 1),
            "{reason:?}: {ahead:?}"
        );
        // All learn at once that there is more.
        limit(None);
        pass(Duration::from_secs(31)).await;
        pass(Duration::from_millis(1)).await;
        assert!(world.metrics().free >= 40 * POLICY.min, "{reason:?}: {:?}", world.metrics());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_used_up_for_good_on_one_node_keeps_no_other_from_being_served() {
    let options = MemoryOptions { port_quota: Some(0), ..MemoryOptions::default() };
    let world = World::with(options, POLICY);
    world.start().await;
    for node in ["n1", "n2", "n3"] {
        let request = world.request_for("a", node, &["default"]);
        world.pool.request_vif(&request).await.unwrap_err();
    }
    let before = world.bulk.calls().len();
    for _ in 0..120 {
        pass(Duration::from_secs(1)).await;
    }
    let host = |call: &BulkVifCall| {
        if let BulkVifCall::CreateVifs(host, _) = call { Some(host.clone()) } else { None }
    };
    let hosts: Vec<_> = world.bulk.calls()[before..].iter().filter_map(host).collect();
    assert!(["n1", "n2", "n3"].iter().all(|node| hosts.iter().any(|host| host == node)), "{hosts:?}");
}
