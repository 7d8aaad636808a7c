//! Forged annotations: everybody who may change a service can name resources of others in its
//! annotations.

use staffetta_driver::{
    Allocation, DriverError, ListenerSettings, ListenerSpec, LoadBalancerDriver, MemberSpec, PoolSpec,
    ProjectId, PublicIp, Reason, ServiceSubnetsDriver, SubnetId,
};
use staffetta_handler::Pending;
use staffetta_memory::Fault;

use super::*;
use crate::lb::testing::load_balancer;

/// A driver without subnets.
struct NoSubnets;

#[async_trait::async_trait]
impl ServiceSubnetsDriver for NoSubnets {
    async fn subnets(&self, _: &Service, _: &ProjectId) -> Result<Vec<SubnetId>, DriverError> {
        Ok(Vec::new())
    }
}

const VICTIMS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

fn victim() -> Owner {
    Owner { namespace: "default".into(), name: "victim".into(), uid: "uid-victim".into() }
}

impl World {
    /// Creates the load balancer of another service.
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

    /// Returns the load balancer at that address.
    fn at(&self, vip: IpAddr) -> LoadBalancer {
        let mut found = self.services.load_balancers().into_iter().map(|(_, tree)| tree);
        found.find(|tree| tree.vip == vip).expect("it is there")
    }

    /// Creates a user-provided address that is associated with an unmarked load balancer.
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
        self.services.public_ip(&address.id).unwrap().resource.port
    }
}

#[tokio::test]
async fn a_forged_state_is_compared_with_the_marks_and_the_named_load_balancer_is_not_changed() {
    type Want = fn(&World);
    let wants: [Want; 3] = [
        |world| world.index(&Event::Modified(slice("s1", &["10.1.0.2"])).erase()),
        |world| world.want(&LbaasServiceSpec { ports: vec![port("http", 8000)], ..spec() }),
        |world| world.api.annotate(MEMBER_TIMEOUT_ANNOTATION, "5000"),
    ];
    for (number, want) in wants.into_iter().enumerate() {
        let world = balanced(&spec()).await;
        let theirs = world.victims().await;
        let own = world.at([10, 0, 0, 1].into());
        let forged = LoadBalancer { vip: own.vip, ..theirs.clone() };
        let forged = LbaasState { load_balancer: Some(forged), ..LbaasState::default() };
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
async fn a_forged_state_does_not_release_the_named_load_balancer() {
    let world = balanced(&spec()).await;
    let theirs = world.victims().await;
    let forged = LbaasState { load_balancer: Some(theirs.clone()), ..LbaasState::default() };
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
    world.delete();
    world.event().await.unwrap();
    assert_eq!(world.tree(), theirs, "only its own is released");
}

#[tokio::test]
async fn a_load_balancer_or_an_address_elsewhere_is_not_adopted() {
    let world = adopting();
    world.want(&public());
    let address = world.address_elsewhere().await;
    let theirs = world.at(VICTIMS);
    let pooled =
        PublicIp { allocation: Allocation::Pool, port: Some(theirs.port.clone()), ..address.clone() };
    let forged =
        LbaasState { load_balancer: Some(theirs.clone()), public_ip: Some(pooled), ..LbaasState::default() };
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.at(VICTIMS), theirs);
    let marked = world.balancers.load_balancers(None).await.unwrap();
    assert_eq!((marked.len(), marked[0].resource.vip), (1, [10, 0, 0, 1].into()));
    let found = world.services.public_ip(&address.id).unwrap();
    assert_eq!((found.owner, found.resource.port), (None, address.port));
}

#[tokio::test]
async fn an_address_associated_elsewhere_stays_there_whatever_an_annotation_names() {
    for at_rest_before in [true, false] {
        let world = if at_rest_before { balanced(&spec()).await } else { adopting() };
        let address = world.address_elsewhere().await;
        let port: staffetta_driver::PortId = "victims-port".into();
        let tree = LoadBalancer { port, ..load_balancer("default/web", "10.0.0.1") };
        let forged = LbaasState {
            load_balancer: Some(tree),
            public_ip: Some(address.clone()),
            ..LbaasState::default()
        };
        world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
        world.event().await.unwrap();
        world.event().await.unwrap();
        assert_eq!(world.leads_to(&address), address.port, "{at_rest_before}");
        assert_eq!(world.shown().unwrap().public_ip, None, "{at_rest_before}");
    }
}

#[tokio::test]
async fn unmarked_resources_are_not_released_when_the_spec_is_removed() {
    let world = world();
    let lost = Fault::DoneThenFail(DriverError::new(Reason::Unavailable, "ask"));
    world.balancers.faults().inject(LoadBalancerMethod::Ensure, 1, lost);
    world.event().await.unwrap_err();
    let address = world.address_elsewhere().await;
    let pooled = PublicIp { allocation: Allocation::Pool, ..address.clone() };
    let tree = LoadBalancer { port: "victims-port".into(), ..load_balancer("default/web", "10.0.0.1") };
    let forged = LbaasState { load_balancer: Some(tree), public_ip: Some(pooled), ..LbaasState::default() };
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&forged));
    world.want_nothing();
    world.event().await.unwrap();
    assert_eq!(world.tree(), world.at(VICTIMS), "the load balancer is found by its mark");
    assert_eq!(world.leads_to(&address), address.port);
}

#[tokio::test]
async fn a_spec_that_contradicts_the_service_is_ignored() {
    let forged = [
        LbaasServiceSpec { ip: [10, 0, 0, 9].into(), ..spec() },
        LbaasServiceSpec { ports: vec![port("http", 8000)], ..spec() },
        LbaasServiceSpec { ports: vec![port("other", 80)], ..spec() },
        LbaasServiceSpec { ports: Vec::new(), ..spec() },
        LbaasServiceSpec { ip: VICTIMS, ..spec() },
        public(),
        LbaasServiceSpec { lb_ip: Some([192, 0, 2, 1].into()), ..public() },
    ];
    for forged in forged {
        let world = balanced(&spec()).await;
        let (tree, calls) = (world.tree(), world.balancers.calls().len());
        let before = Event::Modified(world.api.object()).erase();
        world.api.annotate(SPEC_ANNOTATION, &forged.to_text());
        world.event().await.unwrap();
        world.slice("s1", &["10.1.0.2"]).await.unwrap();
        // So does an event that was queued before.
        let error =
            world.handler.handle(&world.handler.resolve(&before), &Context::detached()).await.unwrap_err();
        assert!(error.transient() && error.pending().is_some(), "{forged:?}: {error}");
        assert_eq!((error.reason(), error.pending()), ("SpecOutdated", Some(Pending::default())));
        assert_eq!((world.tree(), world.balancers.calls().len()), (tree, calls), "{forged:?}");
        assert_eq!(world.services.public_ips(), [], "{forged:?}");
        world.want(&spec());
        world.event().await.unwrap();
        assert_eq!(world.members(HTTP), ["10.1.0.2:8080"], "{forged:?}");
    }
}

#[tokio::test]
async fn the_project_subnet_and_groups_come_from_the_drivers_whatever_the_annotation_says() {
    let world = world();
    let forged = LbaasServiceSpec {
        project_id: "theirs".into(),
        subnet_id: "theirs".into(),
        security_groups_ids: vec!["theirs".into()],
        ..spec()
    };
    world.want(&forged);
    world.event().await.unwrap();
    let honest = balanced(&spec()).await.tree();
    let tree = world.tree();
    assert_eq!((tree.project, tree.subnet), ("memory".into(), "services".into()));
    assert_eq!(tree.security_groups, honest.security_groups);
}

#[tokio::test]
async fn what_the_drivers_do_not_tell_is_not_taken_from_the_annotation() {
    let mut world = world();
    world.want(&LbaasServiceSpec { subnet_id: "theirs".into(), ..spec() });
    let placement = LbaasSpecDrivers { subnets: Arc::new(NoSubnets), ..world.drivers().placement };
    world.replace(LbDrivers { placement, ..world.drivers() }, true);
    let error = world.event().await.unwrap_err();
    assert!(!error.transient() && error.reason() == "NoSubnet", "{error}");
    assert!(world.is_empty(), "the subnet in the annotation is not used instead");
}

#[tokio::test]
async fn an_outdated_spec_changes_nothing_until_it_matches_the_service() {
    let world = balanced(&spec()).await;
    let calls = world.balancers.calls().len();
    let old = world.api.annotation(SPEC_ANNOTATION).unwrap();
    world.want(&LbaasServiceSpec { ports: vec![port("http", 8000)], ..spec() });
    let new = world.api.annotation(SPEC_ANNOTATION).unwrap();
    world.api.annotate(SPEC_ANNOTATION, &old);
    world.event().await.unwrap();
    // The deletion of endpoints does not block the awaited event.
    world.feed(Event::Deleted(Tombstone::Last(slice("s1", &["10.1.0.1"])))).await.unwrap();
    assert_eq!(world.balancers.calls().len(), calls);
    world.api.annotate(SPEC_ANNOTATION, &new);
    world.event().await.unwrap();
    assert_eq!(world.tree().listeners[0].at.port, 8000);
    // It needs no load balancer any more, and its spec is still there.
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
async fn a_deleted_service_releases_its_load_balancer_whatever_its_spec() {
    let world = balanced(&spec()).await;
    world.api.annotate(SPEC_ANNOTATION, &LbaasServiceSpec { ip: VICTIMS, ..spec() }.to_text());
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}
