//! A dry run reads everything, writes nothing, and shows the actions of a controller.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};
use staffetta::controller::ControllerError;
use staffetta::dry_run::{DryRun, dry_run};
use staffetta_apiserver::RequestRecord;
use staffetta_apiserver::{Fault, Requests};
use staffetta_driver::{DriverError, Owner, PodVifDriver, Reason, VifRequest};
use staffetta_handler::{
    Action, MetadataPatch, Registration, ResourceEventHandler, SetupError, WriteError, Writer, causes,
};
use staffetta_memory::{LoadBalancerCall, PublicIpCall, VifCall, VifMethod};

use crate::services::http;
use crate::world::{World, active};

/// The lines of a plan below an object, without their indentation.
fn lines<'a>(plan: &'a str, object: &str) -> Vec<&'a str> {
    let from = plan.lines().skip_while(|line| *line != object).skip(1);
    from.take_while(|line| !line.is_empty()).map(str::trim).collect()
}

#[tokio::test]
async fn a_new_pod_and_a_new_service_are_planned() {
    let world = World::new().await;
    world.pod("web-1", json!({}), json!({})).await;
    let spec = json!({ "type": "LoadBalancer", "clusterIP": "10.96.0.77", "ports": http() });
    world.service("web", spec).await;
    world.slice("web", &["10.10.0.5", "10.10.0.6"]).await;
    let dry_run = world.dry_run().await;
    let plan = dry_run.to_string();
    let expected = [
        "vif: would request a VIF: subnets 10.10.0.0/16, security groups default, project memory, node n1",
        "vif: would write: + annotation openstack.org/kuryr-vif, + annotation staffetta.dev/cluster kubernetes, + finalizer staffetta.dev/vif",
    ];
    assert_eq!(lines(&plan, "Pod default/web-1"), expected, "{plan}");
    let service = lines(&plan, "Service default/web");
    let expected = [
        "lbaasspec: would write: + annotation openstack.org/kuryr-lbaas-spec, + annotation staffetta.dev/cluster kubernetes",
        "lb: would create a load balancer: name default/web, address 10.96.0.77, subnet services, security groups default, project memory, listeners TCP:80 to 10.10.0.5:8080, 10.10.0.6:8080",
        "lb: would allocate a public address: project memory",
    ];
    assert_eq!(service[..3], expected, "{plan}");
    assert!(
        service[3]
            .starts_with("lb: would associate a public address with a port: address 0.0.0.0, port planned-"),
        "{plan}"
    );
    assert_eq!(
        service[4],
        "lb: would write: + annotation openstack.org/kuryr-lbaas-state, + annotation staffetta.dev/cluster kubernetes, + finalizer staffetta.dev/lb"
    );
    assert!(service[5].starts_with("lb: would write: + status.loadBalancer.ingress"), "{plan}");
    assert!(plan.ends_with("4 x write. Nothing was written.\n"), "{plan}");
    assert!(dry_run.is_complete());
    let json = serde_json::to_value(&dry_run).unwrap();
    let steps = &json["objects"][0]["steps"];
    assert_eq!(
        (&json["objects"][0]["kind"], &steps[0]["by"], &steps[0]["handler"]),
        (&json!("Pod"), &json!("vif_pool"), &json!("vif"))
    );
    assert!(steps[1]["with"][0]["to"].as_str().unwrap().contains("planned-"), "{steps}");
}

#[tokio::test]
async fn every_write_is_a_dry_run_and_no_driver_changes_anything() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.pod("ends", json!({}), json!({})).await;
    world.pod("forced", json!({}), json!({})).await;
    world.vif_of("ends", active).await;
    world.vif_of("forced", active).await;
    controller.stop().await.unwrap();
    world.end_pod("ends").await;
    world.change_pod("forced", json!({ "metadata": { "finalizers": null } })).await;
    world.end_pod("forced").await;
    world.pod("new", json!({}), json!({})).await;
    world.service("web", json!({ "type": "LoadBalancer", "ports": http() })).await;
    world.slice("web", &["10.10.0.5"]).await;

    let before = world.everything().await;
    let calls = world.vifs.calls().len();
    world.server.clear_requests();
    let dry_run = world.dry_run().await;
    let plan = dry_run.to_string();
    assert_eq!(dry_run.summary.steps["request a VIF"], 1, "{plan}");
    assert_eq!(dry_run.summary.steps["release a VIF"], 2, "{plan}");
    assert!(
        lines(&plan, "Pod default/ends").contains(
            &"vif: would write: - annotation openstack.org/kuryr-vif, - annotation staffetta.dev/cluster, - finalizer staffetta.dev/vif"
        ),
        "{plan}"
    );
    assert!(
        lines(&plan, "Pod default/forced")[0].starts_with("vif: would release a VIF"),
        "an orphan: {plan}"
    );

    let writes = world.server.requests().into_iter().filter(RequestRecord::is_write);
    let writes: Vec<_> = writes.collect();
    assert!(writes.len() > 4 && writes.iter().all(|request| request.dry_run), "{writes:#?}");
    assert!(writes.iter().all(|request| !["events", "leases"].contains(&request.resource.as_str())));
    assert_eq!(world.everything().await, before);
    assert!(world.vifs.calls()[calls..].iter().all(|call| matches!(call, VifCall::List(_))));
    let reads =
        |call: &LoadBalancerCall| matches!(call, LoadBalancerCall::List(_) | LoadBalancerCall::Progress(_));
    assert!(world.load_balancers.calls().iter().all(reads));
    assert!(world.public_ips.calls().iter().all(|call| matches!(call, PublicIpCall::List(_))));
}

impl World {
    /// All pods and services, as they are.
    async fn everything(&self) -> Vec<Value> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items;
        let services = self.web_services().list(&ListParams::default()).await.unwrap().items;
        let pods = pods.iter().map(|pod| serde_json::to_value(pod).unwrap());
        pods.chain(services.iter().map(|service| serde_json::to_value(service).unwrap())).collect()
    }
}

#[tokio::test]
async fn nothing_is_planned_when_everything_is_up_to_date() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    controller.stop().await.unwrap();
    let dry_run = world.dry_run().await;
    assert_eq!(dry_run.to_string(), "Nothing would be done. Nothing was written.\n");
    assert!(dry_run.is_complete());
}

#[tokio::test]
async fn a_changed_service_is_planned_with_its_new_spec() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.service("web", json!({ "clusterIP": "10.96.0.77", "ports": http() })).await;
    world.slice("web", &["10.10.0.5"]).await;
    world.until("it is served", async || world.members() == ["10.10.0.5"]).await;
    controller.stop().await.unwrap();
    let ports = json!([http()[0], { "name": "admin", "port": 81, "protocol": "TCP" }]);
    world.change_service("web", json!({ "spec": { "ports": ports } })).await;
    let dry_run = world.dry_run().await;
    let plan = dry_run.to_string();
    let planned = lines(&plan, "Service default/web");
    assert!(planned[0].starts_with("lbaasspec: would write: "), "{plan}");
    assert!(planned.iter().any(|line| line.starts_with("lb: would") && line.contains("TCP:81")), "{plan}");
    assert!(dry_run.is_complete(), "{plan}");
}

#[tokio::test]
async fn an_inactive_vif_is_adopted_and_activated() {
    let world = World::never_wired().await;
    let network = world.vifs.network();
    let pod = world.pod("web", json!({}), json!({})).await;
    let request = VifRequest {
        owner: Owner::of(&pod.metadata),
        node_name: "n1".into(),
        host_ip: None,
        project: "memory".into(),
        subnets: vec![network.subnet("10.10.0.0/16".parse().unwrap())],
        security_groups: vec!["default".into()],
    };
    let vif = world.vifs.request_vif(&request).await.unwrap();
    assert!(!vif.active);
    let plan = world.dry_run().await.to_string();
    let expected = [
        "vif: would write: + annotation openstack.org/kuryr-vif, + annotation staffetta.dev/cluster kubernetes, + finalizer staffetta.dev/vif".to_owned(),
        format!("vif: would activate a VIF: VIF {}", vif.id),
    ];
    assert_eq!(lines(&plan, "Pod default/web")[..2], expected, "it is adopted, not made again: {plan}");
}

#[tokio::test]
async fn a_refused_write_is_shown_with_its_reason_and_makes_the_plan_incomplete() {
    let world = World::new().await;
    world.pod("full", json!({ "annotations": { "theirs": "x".repeat(262_000) } }), json!({})).await;
    world.pod("web", json!({}), json!({})).await;
    let dry_run = world.dry_run().await;
    let plan = dry_run.to_string();
    let full = lines(&plan, "Pod default/full");
    assert!(
        full[1].contains("+ annotation openstack.org/kuryr-vif")
            && full[1].contains("the server would refuse it: 422 Invalid"),
        "{plan}"
    );
    assert!(
        full.iter().any(|line| line.starts_with("vif: would fail: record the VIFs on the pod")),
        "{plan}"
    );
    assert!(!full.iter().any(|line| line.contains("would release a VIF")), "it is kept: {plan}");
    assert_eq!(lines(&plan, "Pod default/web").len(), 2, "others are planned all the same: {plan}");
    assert_eq!((dry_run.is_complete(), dry_run.summary.failures, dry_run.summary.refused), (false, 1, 1));
}

#[tokio::test]
async fn a_write_that_a_webhook_cannot_dry_run_is_unknown() {
    let world = World::new().await;
    world.pod("web", json!({}), json!({})).await;
    let message = "admission webhook \"strict.example.com\" does not support dry run";
    let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 400,
        "reason": "BadRequest", "message": message });
    let patches = Requests::any().verb("patch").resource("pods");
    world.server.faults().inject(patches, 1000, Fault::Answer { code: 400, body: body.to_string() });
    let dry_run = world.dry_run().await;
    let plan = dry_run.to_string();
    let expected = format!(
        "vif: would write: + annotation openstack.org/kuryr-vif, + annotation staffetta.dev/cluster kubernetes, + finalizer staffetta.dev/vif; the server cannot tell whether it would refuse it: 400 BadRequest {message}"
    );
    assert_eq!(lines(&plan, "Pod default/web")[1], expected, "{plan}");
    assert_eq!((dry_run.is_complete(), dry_run.summary.failures), (false, 0), "{plan}");
}

#[tokio::test]
async fn an_object_that_changes_during_the_dry_run_is_planned_by_its_newer_version() {
    let world = World::new().await;
    world.pod("web", json!({}), json!({})).await;
    let conflict = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409,
        "reason": "Conflict", "message": "the object has been modified" });
    let patches = Requests::any().verb("patch").resource("pods");
    world.server.faults().inject(patches, 1, Fault::Answer { code: 409, body: conflict.to_string() });
    let plan = world.dry_run().await.to_string();
    assert_eq!(world.server.faults().pending(), 0);
    assert_eq!(lines(&plan, "Pod default/web").len(), 2, "{plan}");
}

#[tokio::test]
async fn unreadable_marks_and_kinds_are_reported_and_the_rest_is_planned() {
    let world = World::new().await;
    world.pod("web", json!({}), json!({})).await;
    world.service("web", json!({ "ports": http() })).await;
    let fault = || staffetta_memory::Fault::Fail(DriverError::new(Reason::Refused, "list the ports"));
    world.vifs.faults().inject(VifMethod::List, 1, fault());
    let forbidden = Fault::status(403);
    world.server.faults().inject(Requests::any().verb("list").resource("endpointslices"), 1000, forbidden);
    let dry_run = world.dry_run().await;
    let plan = dry_run.to_string();
    for expected in [
        "not planned: nothing was planned for the handler `vif`, whose marks cannot be read: list the existing VIFs: list the ports: the request was rejected",
        "not planned: the objects of the kind EndpointSlice cannot be listed: ",
        "not planned: nothing was planned for the handler `lb`, which needs all objects of EndpointSlice",
    ] {
        assert!(plan.contains(expected), "{expected}: {plan}");
    }
    assert_eq!(lines(&plan, "Pod default/web"), [""; 0]);
    assert_eq!(lines(&plan, "Service default/web").len(), 1, "{plan}");
    assert!(!dry_run.is_complete());
}

#[tokio::test]
async fn a_dry_run_that_exceeds_its_time_limit_shows_the_steps_so_far() {
    let world = World::new().await;
    world.service("web", json!({ "ports": http() })).await;
    world.pod("web", json!({}), json!({})).await;
    world.server.faults().inject(Requests::any().verb("patch").resource("services"), 1000, Fault::Hang);
    let registry = world.registry();
    let configuration = world.configuration(&registry);
    let limit = Duration::from_secs(5);
    let dry_run = dry_run(registry, &configuration, world.client.clone(), limit).await.unwrap();
    let plan = dry_run.to_string();
    assert!(plan.contains("not planned: not everything was handled within 5 s"), "{plan}");
    assert_eq!(lines(&plan, "Pod default/web").len(), 2, "{plan}");
}

#[tokio::test]
async fn a_dry_run_during_an_outage_says_so() {
    let world = World::new().await;
    world.server.faults().begin_outage();
    let dry_run = world.dry_run().await;
    assert!(dry_run.to_string().starts_with("not planned: the API server does not answer: "), "{dry_run}");
    assert!(!dry_run.is_complete());
}

/// Greets pods, and rings a bell for each.
struct Greeter(Writer<Pod>, Arc<dyn Bell>);

trait Bell: Send + Sync {
    fn ring(&self);
}

struct Silent;

impl Bell for Silent {
    fn ring(&self) {}
}

impl ResourceEventHandler<Pod> for Greeter {
    type Error = WriteError;

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, WriteError> {
        self.1.ring();
        self.0
            .metadata(pod, &MetadataPatch::default().annotate("example.com/greeting", "hello"))
            .await
            .map(|_| Action::done())
    }
}

async fn greeted(
    world: &World,
    bell: impl FnOnce(&mut staffetta_handler::Registry),
) -> Result<DryRun, ControllerError> {
    let mut registry = world.registry();
    bell(&mut registry);
    registry.driver::<dyn Bell>("silent", "Makes no sound.", |_| Ok(Arc::new(Silent)));
    registry.handler("greeter", "Greets each pod.", |setup| {
        let greeter = Greeter(Writer::new(setup.client()), setup.driver()?);
        Ok(Registration::new(greeter).on::<Pod>().erase())
    });
    let configuration = world.configuration(&registry);
    dry_run(registry, &configuration, world.client.clone(), Duration::from_secs(30)).await
}

#[tokio::test]
async fn the_writes_and_driver_calls_of_an_outside_handler_are_recorded() {
    let world = World::with("[kubernetes]\nenabled_handlers = [\"greeter\"]").await;
    world.pod("web", json!({}), json!({})).await;
    let planned = greeted(&world, |registry| {
        registry.driver_trait::<dyn Bell>("bell", "silent", "Rings.");
        registry.recorded::<dyn Bell>(|_, plan| {
            struct Recording(staffetta_handler::DryRunPlan);
            impl Bell for Recording {
                fn ring(&self) {
                    self.0.add(staffetta_handler::PlannedCall::new("bell", "ring a bell"));
                }
            }
            Arc::new(Recording(plan))
        });
    });
    let plan = planned.await.unwrap().to_string();
    let expected =
        ["greeter: would ring a bell", "greeter: would write: + annotation example.com/greeting hello"];
    assert_eq!(lines(&plan, "Pod default/web"), expected, "{plan}");
    assert_eq!(world.pods().get("web").await.unwrap().metadata.annotations, None);
}

#[tokio::test]
async fn a_driver_trait_without_a_recorder_refuses_the_dry_run_by_name() {
    let world = World::with("[kubernetes]\nenabled_handlers = [\"vif\", \"greeter\"]").await;
    world.pod("web", json!({}), json!({})).await;
    world.server.clear_requests();
    let planned = greeted(&world, |registry| {
        registry.driver_trait::<dyn Bell>("bell", "silent", "Rings.");
    });
    let error = planned.await.unwrap_err();
    let text = causes(&error);
    assert!(text.contains("`greeter`") && text.contains("Bell (`bell_driver`)"), "{text}");
    let ControllerError::Handler { source, .. } = error else { panic!("{error}") };
    assert!(matches!(source, SetupError::NoRecorder { .. }));
    assert!(world.server.requests().iter().all(|request| !request.is_write()));
}
