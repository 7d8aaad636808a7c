//! Helpers for tests of devices.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta_virtual_node::app_hosting::CiscoDevice;

use crate::world::World;

pub(crate) const DEFINITION: &str = include_str!("../../etc/deploy/chart/files/ciscodevices.yaml");

pub(crate) async fn define(world: &World, definition: &str) {
    let definition: DynamicObject = serde_saphyr::from_str(definition).unwrap();
    let kind = kube::core::ApiResource::erase::<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >(&());
    let definitions: Api<DynamicObject> = Api::all_with(world.client.clone(), &kind);
    definitions.create(&PostParams::default(), &definition).await.unwrap();
}

/// A world whose API server has `CiscoDevice`s.
pub(crate) async fn world(options: &str) -> World {
    let mut world = World::new().await;
    define(&world, DEFINITION).await;
    world.options = self::options(options);
    world
}

pub(crate) fn devices(world: &World) -> Api<CiscoDevice> {
    Api::all(world.client.clone())
}

/// The usual options, with these beside in the section of the handler.
pub(crate) fn options(options: &str) -> String {
    format!(
        "[kubernetes]\nenabled_handlers = [\"app_hosting\"]\napp_hosting_driver = \"FAKE\"\n\
         [app_hosting]\npoll_interval_ms = 30\nhealth_interval_ms = 100\norphan_grace_ms = 300\nunreachable_after_ms = 100\nkubelet = false\n\
         allowed_addresses = [\"one\", \"two\", \"three\", \"x\", \"real\", \"theirs\"]\nallowed_label_prefixes = [\"rack\"]\n\
         secret_namespaces = [\"default\"]\n{options}\n"
    )
}

pub(crate) async fn device(world: &World, name: &str, spec: Value) {
    let device = json!({ "metadata": { "name": name }, "spec": spec });
    devices(world).create(&PostParams::default(), &serde_json::from_value(device).unwrap()).await.unwrap();
}

pub(crate) async fn until_phase(world: &World, name: &str, phase: &str) -> CiscoDevice {
    let mut found = None;
    world
        .until(&format!("the device {name} is {phase}"), async || {
            let device = devices(world).get_opt(name).await.unwrap();
            let is = device.as_ref().and_then(|device| device.status.as_ref()?.phase.clone());
            found = device;
            is.as_deref() == Some(phase)
        })
        .await;
    found.unwrap()
}

pub(crate) fn message(device: CiscoDevice) -> String {
    device.status.unwrap().conditions.remove(0).message
}

pub(crate) async fn change(world: &World, name: &str, spec: Value) {
    let change = json!({ "spec": spec });
    devices(world).patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

pub(crate) async fn until_gone(world: &World, name: &str) {
    let what = format!("the device {name} is gone");
    world.until(&what, async || devices(world).get_opt(name).await.unwrap().is_none()).await;
}

/// The label of Secrets that may be sent to devices.
pub(crate) fn for_devices() -> Value {
    json!({ "staffetta.dev/device-credentials": "true" })
}

/// Creates a Secret with a password.
pub(crate) async fn secret(world: &World, metadata: Value) -> Api<k8s_openapi::api::core::v1::Secret> {
    let secret = json!({ "metadata": metadata, "data": { "password": "aHVudGVyMg==" } });
    let secrets = Api::namespaced(world.client.clone(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    secrets
}
