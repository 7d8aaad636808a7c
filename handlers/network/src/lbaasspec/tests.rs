use serde_json::{Value, json};
use staffetta_driver::{DriverError, ProjectId, SubnetId};
use staffetta_handler::Failure;
use staffetta_memory::{MemoryOptions, MemoryServices};

use super::*;
use crate::testing::api_server::{Answer, ApiServer, THEIRS};
use crate::testing::recorder::RecordedEvents;

struct World {
    api: Arc<ApiServer<Service>>,
    handler: LbaasSpecHandler,
    recorded: RecordedEvents,
}

fn drivers() -> LbaasSpecDrivers {
    let options =
        MemoryOptions { service_security_groups: vec!["g2".into(), "g1".into()], ..MemoryOptions::default() };
    let services = Arc::new(MemoryServices::new(options));
    LbaasSpecDrivers {
        project: Arc::clone(&services) as _,
        subnets: Arc::clone(&services) as _,
        security_groups: services,
    }
}

fn world(spec: &Value) -> World {
    let api = ApiServer::new(spec, &json!({}));
    let recorded = RecordedEvents::default();
    let handler = LbaasSpecHandler::new(api.client(), drivers(), recorded.recorder());
    World { api, handler, recorded }
}

fn web() -> Value {
    json!({ "type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{ "name": "http", "port": 80 }] })
}

impl World {
    async fn feed(&self, service: Arc<Service>) -> Result<(), LbaasSpecError> {
        let event = Event::Modified(service);
        if self.handler.wants(&event).is_taken() {
            staffetta_handler::deliver(&self.handler, &event).await.map(drop)
        } else {
            Ok(())
        }
    }

    async fn event(&self) -> Result<(), LbaasSpecError> {
        self.feed(self.api.object()).await
    }

    fn shown(&self) -> Option<LbaasServiceSpec> {
        LbaasServiceSpec::of(&self.api.object()).unwrap()
    }
}

#[tokio::test]
async fn a_service_gets_its_spec_by_one_write_and_none_when_nothing_differs() {
    let world = world(&web());
    world.event().await.unwrap();
    let shown = world.shown().unwrap();
    assert_eq!(
        (shown.ip, shown.project_id.as_str(), shown.subnet_id.as_str()),
        ([10, 0, 0, 1].into(), "memory", "services")
    );
    assert_eq!(shown.security_groups_ids, ["g1".into(), "g2".into()], "sorted, whatever the driver's order");
    world.event().await.unwrap();
    let expected = json!({ "metadata": { "uid": "uid-web", "resourceVersion": "1",
        "annotations": { SPEC_ANNOTATION: shown.to_text() } } });
    assert_eq!(world.api.patches(), [("metadata", expected)]);
    assert_eq!(world.api.annotation(THEIRS).as_deref(), Some("stays"));
}

#[tokio::test]
async fn an_equal_spec_in_another_form_is_not_rewritten() {
    let world = world(&web());
    world.event().await.unwrap();
    let ours = world.api.annotation(SPEC_ANNOTATION).unwrap();
    let newer = ours.replace(r#""protocol":"TCP"}"#, r#""protocol":"TCP","targetPort":"8080"}"#);
    let newer = newer.replace(r#"["g1","g2"]"#, r#"["g2","g1"]"#);
    assert!(newer.contains("targetPort") && newer.contains(r#"["g2","g1"]"#), "{newer}");
    world.api.annotate(SPEC_ANNOTATION, &newer);
    world.event().await.unwrap();
    assert_eq!(world.api.patches().len(), 1);
}

#[tokio::test]
async fn ports_in_another_order_cost_no_write() {
    let world = world(&web());
    let ports = |order: [u16; 2]| {
        let port = |port: u16| json!({ "name": format!("p{port}"), "port": port });
        world.api.change(|service| service["spec"]["ports"] = json!(order.map(port)));
    };
    ports([80, 443]);
    world.event().await.unwrap();
    let written = world.shown().unwrap();
    ports([443, 80]);
    assert!(written.matches(&world.api.object()), "the handler `lb` does not wait for another spec either");
    world.event().await.unwrap();
    assert_eq!(world.api.patches().len(), 1);
}

#[tokio::test]
async fn a_spec_with_another_address_port_or_type_does_not_match_the_service() {
    let world = world(&web());
    world.api.change(|service| {
        service["spec"]["type"] = json!("LoadBalancer");
        service["spec"]["loadBalancerIP"] = json!("192.0.2.1");
    });
    world.event().await.unwrap();
    let (service, spec) = (world.api.object(), world.shown().unwrap());
    assert!(spec.matches(&service));
    let changed = [
        LbaasServiceSpec { ip: [10, 0, 0, 2].into(), ..spec.clone() },
        LbaasServiceSpec { lb_ip: Some([192, 0, 2, 2].into()), ..spec.clone() },
        LbaasServiceSpec { lb_ip: None, ..spec.clone() },
        LbaasServiceSpec { ports: Vec::new(), ..spec.clone() },
        LbaasServiceSpec { service_type: ServiceType::NodePort, lb_ip: None, ..spec },
    ];
    for changed in changed {
        assert!(!changed.matches(&service), "{changed:?}");
    }
}

#[tokio::test]
async fn a_change_of_the_service_is_followed() {
    let world = world(&web());
    world.event().await.unwrap();
    world.api.change(|service| service["spec"]["ports"] = json!([{ "name": "web", "port": 81 }]));
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().ports[0].0.name.as_deref(), Some("web"));
    world.api.change(|service| service["spec"]["type"] = json!("LoadBalancer"));
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().service_type, ServiceType::LoadBalancer);
}

#[tokio::test]
async fn a_dual_stack_service_is_served_at_its_first_ip_which_is_reported_once_and_is_no_failure() {
    let world = world(&web());
    let dual = |ips: Value| world.api.change(|service| service["spec"]["clusterIPs"] = ips.clone());
    dual(json!(["10.0.0.1", "fd00::1"]));
    for _ in 0..3 {
        world.event().await.unwrap();
    }
    assert_eq!(world.shown().unwrap().ip.to_string(), "10.0.0.1");
    let recorded = world.recorded.taken();
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert_eq!((recorded[0].reason, recorded[0].warning), ("SecondFamilyUnserved", true));
    assert!(recorded[0].text.contains("fd00::1"), "{}", recorded[0].text);
    dual(json!(["10.0.0.1"]));
    world.event().await.unwrap();
    dual(json!(["10.0.0.1", "fd00::2"]));
    world.event().await.unwrap();
    assert_eq!(world.recorded.reasons(), ["SecondFamilyUnserved"], "it is another one");
}

#[tokio::test]
async fn affinity_and_source_ranges_do_not_change_the_spec() {
    let world = world(&web());
    world.api.change(|service| {
        service["spec"]["sessionAffinity"] = json!("ClientIP");
        service["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    });
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.recorded.reasons().len(), world.api.patches().len()), (0, 1));
}

#[tokio::test]
async fn a_service_that_needs_no_load_balancer_any_more_loses_its_spec() {
    let world = world(&web());
    world.event().await.unwrap();
    world
        .api
        .change(|service| service["spec"] = json!({ "type": "ExternalName", "externalName": "example.com" }));
    world.event().await.unwrap();
    assert_eq!(world.shown(), None);
    assert_eq!(world.api.patches().len(), 2);
    world.event().await.unwrap();
    assert_eq!(world.api.patches().len(), 2);
}

#[tokio::test]
async fn a_service_without_a_load_balancer_is_not_queued() {
    for (spec, part) in [
        (json!({ "clusterIP": "None" }), "headless"),
        (json!({ "type": "ExternalName", "externalName": "example.com" }), "ExternalName"),
    ] {
        let world = world(&spec);
        let answer = world.handler.wants(&Event::Added(world.api.object()));
        assert!(matches!(answer, Interest::Declined(reason) if reason.contains(part)), "{answer:?}");
    }
    let world = world(&json!({ "clusterIP": "None" }));
    world.event().await.unwrap();
    assert_eq!(world.api.patches(), []);
}

#[tokio::test]
async fn a_service_of_another_class_is_taken_without_a_public_ip_and_one_of_kuryr_waits() {
    let answer = |world: &World| world.handler.wants(&Event::Added(world.api.object()));
    let world = world(&web());
    assert_eq!(answer(&world), Interest::Taken);
    world.api.change(|service| service["spec"]["loadBalancerClass"] = json!(LOAD_BALANCER_CLASS));
    assert_eq!(answer(&world), Interest::Taken);
    world.api.change(|service| service["spec"]["loadBalancerClass"] = json!("example.com/other"));
    assert!(matches!(answer(&world), Interest::Limited(reason) if reason.contains("loadBalancerClass")));
    world.api.change(|service| {
        service["metadata"]["finalizers"] = json!(["kuryr.openstack.org/service-finalizer"]);
    });
    assert!(matches!(answer(&world), Interest::Limited(reason) if reason.contains("migrate kuryr")));
}

#[tokio::test]
async fn a_service_without_a_spec_is_left_alone() {
    let world = world(&Value::Null);
    assert_eq!(world.handler.wants(&Event::Added(world.api.object())), Interest::Declined("it has no spec"));
    world.event().await.unwrap();
    assert_eq!(world.api.patches(), []);
}

#[tokio::test]
async fn a_service_whose_annotations_leave_no_room_gets_its_spec_once_there_is_some() {
    let world = world(&web());
    world.api.leave_room(100);
    let error = world.event().await.unwrap_err();
    assert!(error.reason() == "WriteRefused" && !error.transient(), "{error}");
    world.api.leave_room(10_000);
    world.event().await.unwrap();
    assert!(world.shown().is_some());
}

#[tokio::test]
async fn a_service_that_is_being_deleted_is_ignored() {
    let world = world(&web());
    world.api.change(|service| service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    world.event().await.unwrap();
    assert_eq!(world.api.patches(), []);
}

#[tokio::test]
async fn a_malformed_spec_is_a_permanent_error_and_is_not_overwritten() {
    let world = world(&web());
    world.api.annotate(SPEC_ANNOTATION, "{broken");
    let error = world.event().await.unwrap_err();
    assert!(!error.transient());
    let causes = staffetta_handler::causes(&error);
    assert!(causes.contains("{broken") && causes.contains("remove it"), "{causes}");
    assert_eq!(world.api.patches(), []);
    assert_eq!(world.api.annotation(SPEC_ANNOTATION).as_deref(), Some("{broken"));
}

#[tokio::test]
async fn an_event_older_than_our_own_write_waits_for_the_event_of_the_write() {
    let world = world(&web());
    let old = world.api.object();
    world.event().await.unwrap();
    assert_eq!(world.feed(old).await.unwrap_err().reason(), "EventAwaited");
    assert_eq!(world.api.patches().len(), 1);
}

#[tokio::test]
async fn a_deleted_service_is_no_failure_and_a_server_error_is_transient() {
    let world = world(&web());
    world.api.answer(Answer::Refuse(404, vec![]));
    world.event().await.unwrap();
    world.api.answer(Answer::Refuse(503, vec![]));
    assert!(world.event().await.unwrap_err().transient());
}

struct NoSubnets;

#[async_trait::async_trait]
impl ServiceSubnetsDriver for NoSubnets {
    async fn subnets(&self, _: &Service, _: &ProjectId) -> Result<Vec<SubnetId>, DriverError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn a_driver_without_a_subnet_is_a_configuration_error() {
    let api = ApiServer::new(&web(), &json!({}));
    let handler = LbaasSpecHandler::new(
        api.client(),
        LbaasSpecDrivers { subnets: Arc::new(NoSubnets), ..drivers() },
        Recorder::default(),
    );
    let error = handler.on_present(&api.object()).await.unwrap_err();
    assert!(!error.transient() && error.to_string().contains("service_subnets_driver"), "{error}");
}

#[tokio::test]
async fn a_service_that_kuryr_manages_by_a_custom_resource_is_left_alone_and_an_event_says_so() {
    let world = world(&web());
    let finalizers = json!(["kuryr.openstack.org/service-finalizer"]);
    world.api.change(|service| service["metadata"]["finalizers"] = finalizers);
    for _ in 0..2 {
        world.event().await.unwrap();
    }
    assert_eq!((world.shown(), world.api.patches().len()), (None, 0));
    assert_eq!(world.recorded.reasons(), ["ManagedByKuryr"]);
}
