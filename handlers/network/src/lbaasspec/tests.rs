use serde_json::{Value, json};
use staffetta_driver::memory::{
    MemoryOptions, MemoryServiceProject, MemoryServiceSecurityGroups, MemoryServiceSubnets, MemoryServices,
};
use staffetta_driver::{DriverError, ProjectId, SubnetId};
use staffetta_handler::Failure;

use super::*;
use crate::api_server::{Answer, ApiServer, THEIRS};
use crate::notebook::Told;

struct World {
    api: Arc<ApiServer<Service>>,
    handler: LbaasSpecHandler,
    told: Told,
}

fn drivers() -> LbaasSpecDrivers {
    let options =
        MemoryOptions { service_security_groups: vec!["g2".into(), "g1".into()], ..MemoryOptions::default() };
    let services = Arc::new(MemoryServices::new(options));
    LbaasSpecDrivers {
        project: Arc::new(MemoryServiceProject(Arc::clone(&services))),
        subnets: Arc::new(MemoryServiceSubnets(Arc::clone(&services))),
        security_groups: Arc::new(MemoryServiceSecurityGroups(services)),
    }
}

fn world(spec: &Value) -> World {
    let api = ApiServer::new(spec, &json!({}));
    let told = Told::default();
    let handler = LbaasSpecHandler::new(api.client(), drivers()).telling(told.notes());
    World { api, handler, told }
}

fn web() -> Value {
    json!({ "type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{ "name": "http", "port": 80 }] })
}

impl World {
    async fn feed(&self, service: Arc<Service>) -> Result<(), LbaasSpecError> {
        let event = Event::Modified(service);
        if self.handler.wants(&event) {
            staffetta_handler::deliver(&self.handler, &event).await
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
    let expected =
        json!({ "metadata": { "uid": "uid-web", "annotations": { SPEC_ANNOTATION: shown.to_text() } } });
    assert_eq!(world.api.patches(), [("metadata", expected)]);
    assert_eq!(world.api.annotation(THEIRS).as_deref(), Some("stays"));
}

#[tokio::test]
async fn a_spec_in_another_form_that_says_the_same_is_not_rewritten() {
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
async fn a_change_of_the_service_is_followed() {
    let world = world(&web());
    world.event().await.unwrap();
    world.api.change(|service| service["spec"]["ports"] = json!([{ "name": "web", "port": 81 }]));
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().ports[0].0.name.as_deref(), Some("web"));
    world.api.change(|service| service["spec"]["type"] = json!("LoadBalancer"));
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().reach, Reach::LoadBalancer);
}

#[tokio::test]
async fn of_a_service_of_two_families_the_first_is_served_and_that_is_told_once_and_is_no_failure() {
    let world = world(&web());
    let dual = |ips: Value| world.api.change(|service| service["spec"]["clusterIPs"] = ips.clone());
    dual(json!(["10.0.0.1", "fd00::1"]));
    for _ in 0..3 {
        world.event().await.unwrap();
    }
    assert_eq!(world.shown().unwrap().ip.to_string(), "10.0.0.1");
    let told = world.told.taken();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].reason, told[0].warning), ("SecondFamilyUnserved", true));
    assert!(told[0].text.contains("fd00::1"), "{}", told[0].text);
    dual(json!(["10.0.0.1"]));
    world.event().await.unwrap();
    dual(json!(["10.0.0.1", "fd00::2"]));
    world.event().await.unwrap();
    assert_eq!(world.told.reasons(), ["SecondFamilyUnserved"], "it is another one");
}

#[tokio::test]
async fn affinity_and_source_ranges_are_no_business_of_the_spec() {
    let world = world(&web());
    world.api.change(|service| {
        service["spec"]["sessionAffinity"] = json!("ClientIP");
        service["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    });
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.told.reasons().len(), world.api.patches().len()), (0, 1));
}

#[tokio::test]
async fn a_service_that_is_balanced_no_more_loses_its_spec() {
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
async fn an_unbalanced_service_is_not_even_looked_at() {
    let world = world(&json!({ "clusterIP": "None" }));
    assert!(!world.handler.wants(&Event::Added(world.api.object())));
    world.event().await.unwrap();
    assert_eq!(world.api.patches(), []);
}

#[tokio::test]
async fn a_service_without_a_spec_is_left_alone() {
    let world = world(&Value::Null);
    assert!(!world.handler.wants(&Event::Added(world.api.object())));
    world.event().await.unwrap();
    assert_eq!(world.api.patches(), []);
}

#[tokio::test]
async fn a_service_whose_annotations_leave_no_room_gets_its_spec_once_there_is_some() {
    let world = world(&web());
    world.api.leave_room(100);
    let error = world.event().await.unwrap_err();
    assert!(matches!(error, LbaasSpecError::Write(_)) && !error.transient(), "{error}");
    world.api.leave_room(10_000);
    world.event().await.unwrap();
    assert!(world.shown().is_some());
}

#[tokio::test]
async fn a_service_that_goes_is_left_alone() {
    let world = world(&web());
    world.api.change(|service| service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    world.event().await.unwrap();
    assert_eq!(world.api.patches(), []);
}

#[tokio::test]
async fn a_malformed_spec_is_a_final_error_and_stays_as_it_is() {
    let world = world(&web());
    world.api.annotate(SPEC_ANNOTATION, "{broken");
    let error = world.event().await.unwrap_err();
    assert!(!error.transient());
    assert!(error.to_string().contains("{broken") && error.to_string().contains("remove it"), "{error}");
    assert_eq!(world.api.patches(), []);
    assert_eq!(world.api.annotation(SPEC_ANNOTATION).as_deref(), Some("{broken"));
}

#[tokio::test]
async fn an_event_older_than_our_own_write_waits_for_the_echo() {
    let world = world(&web());
    let old = world.api.object();
    world.event().await.unwrap();
    assert!(matches!(world.feed(old).await, Err(LbaasSpecError::Stale(_))));
    assert_eq!(world.api.patches().len(), 1);
}

#[tokio::test]
async fn a_service_that_is_gone_is_no_failure_and_a_server_in_trouble_is_a_passing_one() {
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
async fn a_driver_that_names_no_subnet_is_a_mistake_of_the_configuration() {
    let api = ApiServer::new(&web(), &json!({}));
    let handler =
        LbaasSpecHandler::new(api.client(), LbaasSpecDrivers { subnets: Arc::new(NoSubnets), ..drivers() });
    let error = handler.on_present(&api.object()).await.unwrap_err();
    assert!(!error.transient() && error.to_string().contains("service_subnets_driver"), "{error}");
}
