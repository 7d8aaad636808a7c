//! A device that is described by a custom resource.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use rustls::crypto::ring;
use staffetta_iosxe_device::Tls;
use staffetta_virtual_node::app_hosting::CiscoDevice;

use super::cluster::DEFINITION;
use super::world::World;
use crate::process::eventually;

/// The blocks of code in the section `In a cluster` of docs/iosxe.md, in this language.
fn printed(language: &str) -> String {
    let page = include_str!("../../../docs/iosxe.md").split_once("\n## In a cluster\n").unwrap().1;
    let block = page.split_once(&format!("```{language}\n")).unwrap().1;
    block.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn the_example_of_a_device_in_the_documentation_works_as_printed() {
    let mut world = World::new(1, |options| options.tls = Tls::Server).await;
    let client = world.nodes.clone().into_client();
    let kind = ApiResource::erase::<CustomResourceDefinition>(&());
    let definition: DynamicObject =
        serde_saphyr::from_str(&std::fs::read_to_string(DEFINITION).unwrap()).unwrap();
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    world.described.clear();
    let options = printed("toml");
    let network = "\"192.0.2.0/24\"";
    assert!(options.contains(network));
    world.options = options.replace("[app_hosting]\n", "").replace(network, "\"127.0.0.0/8\"");
    let _controller = world.controller().await;

    // Only the place of the device and its certificate are other ones.
    let example = printed("yaml");
    let (secret, device) = example.split_once("---\n").unwrap();
    let mut secret: Secret = serde_saphyr::from_str(secret).unwrap();
    // The namespace of the controller is that of its kubeconfig.
    secret.metadata.namespace = None;
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &secret).await.unwrap();
    let mut device: CiscoDevice = serde_saphyr::from_str(device).unwrap();
    let sha256 = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().unwrap().common.hash_provider;
    let digest = sha256.hash(world.device().certificate().unwrap());
    let mut fingerprint = String::new();
    digest.as_ref().iter().for_each(|byte| write!(fingerprint, "{byte:02x}").unwrap());
    assert!(
        device.spec["tls"]["certificateSha256"]
            .as_str()
            .is_some_and(|digits| digits.len() == fingerprint.len())
    );
    device.spec["tls"]["certificateSha256"] = fingerprint.into();
    device.spec["address"] = world.device().address().ip().to_string().into();
    device.spec["port"] = world.device().address().port().into();
    let devices: Api<CiscoDevice> = Api::all(client.clone());
    devices.create(&PostParams::default(), &device).await.unwrap();

    world.until_ready("branch-7", true).await;
    let node = world.nodes.get("branch-7").await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["example.com/rack"], "7");
    eventually("its status says so", async || {
        let status = devices.get("branch-7").await.unwrap().status;
        status.and_then(|status| status.phase).as_deref() == Some("Ready")
    })
    .await;
}
