//! Whoever may change a service may write anything into its annotations, and name what belongs to others.

use staffetta_driver::memory::Fault;
use staffetta_driver::{
    Allocation, DriverError, ListenerSettings, ListenerSpec, LoadBalancerDriver, MemberSpec, PoolSpec,
    PublicIp, Reason,
};

use super::*;
use crate::lb::testing::load_balancer;

const VICTIMS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

fn victim() -> Owner {
    Owner { namespace: "default".into(), name: "victim".into(), uid: "uid-victim".into() }
}

impl World {
    /// The load balancer of another service.
    async fn victims(&self) -> LoadBalancer {
        let member = MemberSpec {
            ip: [10, 1, 0, 99].into(),
            port: 8080,
            name: "default/victim-1:8080".into(),
            subnet: "services".into(),
        };
        let pool = PoolSpec { members: vec![member], ..PoolSpec::default() };
        let listener = ListenerSpec { at: HTTP, settings: ListenerSettings::default(), pool };
        let spec = LoadBalancerSpec { listeners: vec![listener], ..bare(VICTIMS) };
        self.balancers.ensure_load_balancer(&victim(), &spec).await.unwrap()
    }

    /// The load balancer at that address.
    fn at(&self, vip: IpAddr) -> LoadBalancer {
        let mut found = self.services.load_balancers().into_iter().map(|(_, tree)| tree);
        found.find(|tree| tree.vip == vip).expect("it is there")
    }

    /// An address that somebody made, and that leads to a load balancer that bears no mark.
    async fn address_elsewhere(&self) -> PublicIp {
        let (ip, port) = ([192, 0, 2, 1].into(), staffetta_driver::PortId::from("victims-port"));
        let theirs = load_balancer("default/other", "10.0.0.9");
        self.services.insert_load_balancer(LoadBalancer {
            id: "victims".into(),
            port: port.clone(),
            ..theirs
        });
        let id = self.services.insert_public_ip(ip);
        let found = PublicIp { id, ip, allocation: Allocation::User, port: Some(port.clone()) };
        self.drivers().public_ip.associate(&found, &port).await.unwrap();
        found
    }

    fn leads_to(&self, address: &PublicIp) -> Option<staffetta_driver::PortId> {
        self.services.public_ip(&address.id).unwrap().thing.port
    }
}

#[tokio::test]
async fn what_another_text_calls_the_load_balancer_is_held_against_the_marks_and_not_changed() {
    type Want = fn(&World);
    let wants: [Want; 3] = [
        |world| world.index(&Event::Modified(slice("s1", &["10.1.0.2"])).erase()),
        |world| world.want(&LbaasServiceSpec { ports: vec![port("http", 8000)], ..spec() }),
        |world| world.api.annotate(MEMBER_TIMEOUT_ANNOTATION, "5000"),
    ];
    for (number, want) in wants.into_iter().enumerate() {
        let world = standing(&spec()).await;
        let theirs = world.victims().await;
        let own = world.at([10, 0, 0, 1].into());
        let forged = LoadBalancer { vip: own.vip, ..theirs.clone() };
        let forged = Standing { load_balancer: Some(forged), ..Standing::default() };
        world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
        want(&world);
        let calls = world.calls().len();
        world.event().await.unwrap();
        assert_eq!(world.calls()[calls], "list", "{number}");
        assert_eq!(world.at(VICTIMS), theirs, "{number}");
        assert_ne!(world.at(own.vip), own, "{number}: its own is changed");
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.at(own.vip)), "{number}");
    }
}

#[tokio::test]
async fn what_another_text_calls_the_load_balancer_is_not_released_with_the_service() {
    let world = standing(&spec()).await;
    let theirs = world.victims().await;
    let forged = Standing { load_balancer: Some(theirs.clone()), ..Standing::default() };
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
    world.delete();
    world.event().await.unwrap();
    assert_eq!(world.tree(), theirs, "its own is gone, and nothing else");
}

#[tokio::test]
async fn a_load_balancer_or_an_address_elsewhere_is_no_predecessors() {
    let world = world();
    world.want(&public());
    let address = world.address_elsewhere().await;
    let theirs = world.at(VICTIMS);
    let pooled =
        PublicIp { allocation: Allocation::Pool, port: Some(theirs.port.clone()), ..address.clone() };
    let forged =
        Standing { load_balancer: Some(theirs.clone()), public_ip: Some(pooled), ..Standing::default() };
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.at(VICTIMS), theirs);
    let marked = world.balancers.load_balancers(None).await.unwrap();
    assert_eq!((marked.len(), marked[0].thing.vip), (1, [10, 0, 0, 1].into()));
    let found = world.services.public_ip(&address.id).unwrap();
    assert_eq!((found.owner, found.thing.port), (None, address.port));
}

#[tokio::test]
async fn an_address_that_leads_elsewhere_stays_there_whatever_an_annotation_says() {
    for at_rest_before in [true, false] {
        let world = if at_rest_before { standing(&spec()).await } else { world() };
        let address = world.address_elsewhere().await;
        let port: staffetta_driver::PortId = "victims-port".into();
        let tree = LoadBalancer { port, ..load_balancer("default/web", "10.0.0.1") };
        let forged =
            Standing { load_balancer: Some(tree), public_ip: Some(address.clone()), ..Standing::default() };
        world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
        world.event().await.unwrap();
        world.event().await.unwrap();
        assert_eq!(world.leads_to(&address), address.port, "{at_rest_before}");
        assert_eq!(world.shown().unwrap().public_ip, None, "{at_rest_before}");
    }
}

#[tokio::test]
async fn what_bears_no_mark_is_not_released_when_nothing_is_wanted_any_more() {
    let world = world();
    let lost = Fault::DoneThenFail(DriverError::new(Reason::Unavailable, "ask"));
    world.balancers.faults().inject(LoadBalancerMethod::Ensure, 1, lost);
    world.event().await.unwrap_err();
    let address = world.address_elsewhere().await;
    let pooled = PublicIp { allocation: Allocation::Pool, ..address.clone() };
    let tree = LoadBalancer { port: "victims-port".into(), ..load_balancer("default/web", "10.0.0.1") };
    let forged = Standing { load_balancer: Some(tree), public_ip: Some(pooled), ..Standing::default() };
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
    world.want_nothing();
    world.event().await.unwrap();
    assert_eq!(world.tree(), world.at(VICTIMS), "what was made is found by its mark");
    assert_eq!(world.leads_to(&address), address.port);
}

#[tokio::test]
async fn a_spec_that_does_not_say_what_the_service_says_is_waited_for_and_nothing_is_done_by_it() {
    let forged = [
        LbaasServiceSpec { ip: [10, 0, 0, 9].into(), ..spec() },
        LbaasServiceSpec { ports: vec![port("http", 8000)], ..spec() },
        LbaasServiceSpec { ports: vec![port("other", 80)], ..spec() },
        LbaasServiceSpec { ports: Vec::new(), ..spec() },
        LbaasServiceSpec { ip: VICTIMS, project_id: "theirs".into(), ..spec() },
        public(),
        LbaasServiceSpec { lb_ip: Some([192, 0, 2, 1].into()), ..public() },
    ];
    for forged in forged {
        let world = standing(&spec()).await;
        let (tree, calls) = (world.tree(), world.balancers.calls().len());
        let before = Event::Modified(world.api.object()).erase();
        world.api.annotate(SPEC_ANNOTATION, &forged.to_text());
        world.event().await.unwrap();
        world.slice("s1", &["10.1.0.2"]).await.unwrap();
        // So does what was to be done when it came.
        let error = world.handler.handle(&before, &Turn::alone()).await.unwrap_err();
        assert!(error.transient() && error.waits(), "{forged:?}: {error}");
        assert_eq!((error.reason(), error.patience()), ("SpecOutdated", Duration::from_secs(30)));
        assert_eq!((world.tree(), world.balancers.calls().len()), (tree, calls), "{forged:?}");
        assert_eq!(world.services.public_ips(), [], "{forged:?}");
        world.want(&spec());
        world.event().await.unwrap();
        assert_eq!(world.members(HTTP), ["10.1.0.2:8080"], "{forged:?}");
    }
}

#[tokio::test]
async fn a_spec_that_is_late_changes_nothing_until_it_says_what_the_service_says() {
    let world = standing(&spec()).await;
    let calls = world.balancers.calls().len();
    let old = world.api.annotation(SPEC_ANNOTATION).unwrap();
    world.want(&LbaasServiceSpec { ports: vec![port("http", 8000)], ..spec() });
    let new = world.api.annotation(SPEC_ANNOTATION).unwrap();
    world.api.annotate(SPEC_ANNOTATION, &old);
    world.event().await.unwrap();
    // Endpoints that go do not stand in the way of the event that is waited for.
    world.feed(Event::Deleted(Tombstone::Last(slice("s1", &["10.1.0.1"])))).await.unwrap();
    assert_eq!(world.balancers.calls().len(), calls);
    world.api.annotate(SPEC_ANNOTATION, &new);
    world.event().await.unwrap();
    assert_eq!(world.tree().listeners[0].at.port, 8000);
    // It is to have none any more, and its spec is still there.
    world
        .api
        .change(|service| service["spec"] = json!({ "type": "ExternalName", "externalName": "example.com" }));
    world.event().await.unwrap();
    assert!(!world.is_empty());
    world.want_nothing();
    world.event().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn a_service_that_goes_gives_its_load_balancer_back_whatever_its_spec_says() {
    let world = standing(&spec()).await;
    world.api.annotate(SPEC_ANNOTATION, &LbaasServiceSpec { ip: VICTIMS, ..spec() }.to_text());
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}
