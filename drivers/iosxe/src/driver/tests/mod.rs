//! Tests of the driver on a simulated device, with paused time.

mod absence;
mod device;
mod faults;
mod flash;
mod law;
mod life;
mod overlap;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use staffetta_driver::app_hosting::{AppHostingDriver, DeviceSpec, HostedContainerState, HostedPod};
use staffetta_driver::virtual_node::{PodProgress, PodRequest};

use self::device::{Device, Oper, WrongAnswer};
use super::*;
use crate::app::{AppResourceLimits, PodNetwork};

fn driver(device: &Arc<Device>) -> IosXeDriver {
    driver_of(device, "east", &json!({}))
}

/// Returns a driver of `cluster` for the device; `more` is merged into its specification.
fn driver_of(device: &Arc<Device>, cluster: &str, more: &Value) -> IosXeDriver {
    let mut spec = json!({ "driver": "XE", "address": "r1", "xe": {} });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let spec: DeviceSpec = serde_json::from_value(spec).unwrap();
    let limits = AppResourceLimits::read(&spec.resource_limits).unwrap();
    let translator = Translator::new(&cluster.into(), limits, PodNetwork::read(&spec).unwrap());
    let driver = IosXeDriver::new(Arc::clone(device) as _, translator, IosXeOptions::default());
    // The simulated device starts nothing by itself.
    driver.state.lock().starts_apps = Some(false);
    driver
}

/// Returns a device specification with static addresses from the subnet `cidr`.
fn with_addresses(cidr: &str) -> Value {
    let interface = json!({ "type": "VirtualPortGroup", "virtualPortGroup": {} });
    json!({ "podCIDR": cidr, "xe": { "networking": { "interface": interface } } })
}

fn uid(number: u8) -> String {
    format!("00000000-0000-0000-0000-0000000000{number:02}")
}

fn pod(number: u8) -> PodRequest {
    pod_with(number, &json!([{ "name": "app", "image": "flash:/a.tar" }]), "Always")
}

fn pod_with(number: u8, containers: &Value, policy: &str) -> PodRequest {
    let pod = json!({
        "metadata": { "namespace": "shop", "name": format!("web-{number}"), "uid": uid(number) },
        "spec": { "containers": containers, "restartPolicy": policy },
    });
    PodRequest { pod: Arc::new(serde_json::from_value(pod).unwrap()), environment: [].into() }
}

fn id(number: u8) -> String {
    format!("{}_{}", uid(number).replace('-', ""), crate::app::digest("app", 7))
}

/// Repeats the deployment of a pod until it is done, as the handler does.
async fn deploy(driver: &IosXeDriver, request: &PodRequest) {
    for _ in 0..20_000 {
        match driver.deploy_pod(request).await.unwrap().poll_after() {
            Some(poll_after) => tokio::time::sleep(poll_after).await,
            None => return,
        }
    }
    panic!("it never is done")
}

async fn delete(driver: &IosXeDriver, request: &PodRequest) {
    for _ in 0..20_000 {
        match driver.delete_pod(&request.owner()).await.unwrap().poll_after() {
            Some(poll_after) => tokio::time::sleep(poll_after).await,
            None => return,
        }
    }
    panic!("it never is done")
}

/// Repeats the deployment of a pod until it fails. Returns the reason, the message and the delay before the next call.
async fn failing(driver: &IosXeDriver, request: &PodRequest) -> (String, String, Duration) {
    for _ in 0..20_000 {
        match driver.deploy_pod(request).await.unwrap() {
            PodProgress::Failing { reason, message, poll_after } => {
                return (reason.to_string(), message, poll_after);
            }
            progress => tokio::time::sleep(progress.poll_after().unwrap()).await,
        }
    }
    panic!("nothing ever is wrong")
}

async fn status(driver: &IosXeDriver, number: u8) -> Option<HostedPod> {
    driver.get_pod_status(&pod(number).owner()).await.unwrap()
}

fn steps(words: &[&str], number: u8) -> Vec<String> {
    words.iter().map(|word| format!("{word} {}", id(number))).collect()
}
