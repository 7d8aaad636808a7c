//! Reads the resources of a device and their usage by pods.

use std::collections::BTreeMap;

use serde_json::Value;
use staffetta_driver::app_hosting::{DeviceResources, ReservedResources};
use staffetta_driver::virtual_node::{ContainerUsage, PodUsage};
use staffetta_driver::{DriverError, Uid};

use super::reading::fetch;
use crate::model::oper::{App, OperData, number, total};
use crate::model::resource;
use crate::observe::Observed;
use crate::restconf::NetworkClient;

const MEBIBYTE: u64 = 1 << 20;

/// The number of nanocores in a CPU unit of the device, which is a thousandth of a CPU.
const NANOCORES_PER_UNIT: u64 = 1_000_000;

/// Reads the resources of the device for applications, and the part that applications other than those of this cluster
/// have reserved.
pub(super) async fn read_resources(
    client: &dyn NetworkClient,
    observed: &Observed,
    cluster: &str,
) -> Result<DeviceResources, DriverError> {
    const STEP: &str = "read the resources of the device";
    let data: OperData = fetch(client, resource::AMOUNTS, STEP).await?;
    let is_ours = |name: &str| observed.apps.get(name).is_some_and(|app| app.is_of(cluster));
    Ok(resources(&data, is_ours))
}

/// Computes the resources of the device: in total, free, and reserved by applications of others. `is_ours` returns `true` for the name
/// of an application of this cluster.
fn resources(data: &OperData, is_ours: impl Fn(&str) -> bool) -> DeviceResources {
    let sum = |list: &str, leaf: &str| {
        data.resources.iter().filter_map(|all| total(&all[list], leaf)).fold(0, u64::saturating_add)
    };
    let disks: Vec<_> = data.resources.iter().filter_map(|all| disk(&all["storage-device"])).collect();
    let disk = |leaf: &str| disks.iter().filter_map(|disk| number(&disk[leaf])).fold(0, u64::saturating_add);
    let others: Vec<_> = data.apps.iter().filter(|app| !is_ours(&app.name)).collect();
    let taken = |amount: fn(&App) -> Option<u64>| {
        others.iter().filter_map(|app| amount(app)).fold(0, u64::saturating_add)
    };
    let bytes = |megabytes: u64| megabytes.saturating_mul(MEBIBYTE);
    DeviceResources {
        enabled: data.globals.as_ref().map_or(!data.resources.is_empty(), |globals| globals.iox_enabled),
        cpu_millis: sum("cpu", "quota-unit"),
        free_cpu_millis: sum("cpu", "available-unit"),
        memory_bytes: bytes(sum("memory", "quota")),
        free_memory_bytes: bytes(sum("memory", "available")),
        storage_bytes: bytes(disk("quota")),
        free_storage_bytes: bytes(disk("available")),
        taken: ReservedResources {
            cpu_millis: taken(|app| app.cpu),
            memory_bytes: bytes(taken(|app| app.memory)),
            storage_bytes: bytes(taken(|app| app.disk)),
        },
    }
}

/// Returns the storage device for the data of applications: the one whose name contains `persist`, or else the largest.
/// The other entries are not counted: they include the file system that contains this storage device.
fn disk(devices: &Value) -> Option<&Value> {
    let devices = devices.as_array()?;
    let is_persistent = |disk: &&Value| disk["name"].as_str().is_some_and(|name| name.contains("persist"));
    let persistent = devices.iter().find(is_persistent);
    persistent.or_else(|| devices.iter().max_by_key(|device| number(&device["quota"])))
}

/// Reads the resource usage of the pods of this cluster, and of those whose ownership mark names no cluster.
pub(super) async fn read_usage(
    client: &dyn NetworkClient,
    observed: &Observed,
    cluster: &str,
) -> Result<Vec<PodUsage>, DriverError> {
    const STEP: &str = "read the resource usage of pods";
    let data: OperData = fetch(client, resource::USAGE, STEP).await?;
    let mut pods: BTreeMap<&Uid, PodUsage> = BTreeMap::new();
    for app in &data.apps {
        let known = observed.apps.get(&app.name).filter(|known| known.is_of(cluster));
        let Some(mark) = known.and_then(|known| known.mark.as_ref()) else { continue };
        let pod = pods.entry(&mark.owner.uid).or_insert_with(|| PodUsage {
            owner: mark.owner.clone(),
            containers: Vec::new(),
            received_bytes: None,
            sent_bytes: None,
        });
        pod.received_bytes = sum(pod.received_bytes, app.received_bytes);
        pod.sent_bytes = sum(pod.sent_bytes, app.sent_bytes);
        pod.containers.push(usage(&mark.container, app));
    }
    Ok(pods.into_values().collect())
}

/// Returns the CPU, memory and storage that an application uses, as the usage of the container `name`.
fn usage(name: &str, app: &App) -> ContainerUsage {
    let cpu = app.cpu.zip(app.used_cpu);
    ContainerUsage {
        name: name.to_owned(),
        cpu_nanocores: cpu
            .map(|(units, percent)| units.saturating_mul(NANOCORES_PER_UNIT).saturating_mul(percent) / 100),
        memory_bytes: app.used_memory.map(|kilobytes| kilobytes.saturating_mul(1024)),
        storage_bytes: app.used_storage.map(|blocks| blocks.saturating_mul(1000)),
    }
}

/// Adds two amounts, of which `None` is unknown and not counted. Returns `None` if both are unknown.
fn sum(all: Option<u64>, one: Option<u64>) -> Option<u64> {
    all.into_iter().chain(one).reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quotas_come_in_units_and_megabytes_the_disk_is_counted_once_and_what_others_reserved_is_taken() {
        let data = json!({
            "app-resources": [{
                "name": "global",
                "cpu": [{ "name": "system CPU", "quota": 75, "quota-unit": "30000", "available-unit": "29000" }],
                "memory": [{ "name": "memory", "quota": 4096, "available": 1024 }],
                "storage-device": [
                    { "name": "bootflash", "quota": 9000, "available": 8000 },
                    { "name": "IOx persist-disk", "quota": 8192, "available": 4096 },
                ],
            }],
            "app-globals": { "iox-enabled": true },
            "app": [
                { "name": "ours", "details": { "resource-reservation": { "cpu": "9", "memory": "9", "disk": "9" } } },
                { "name": "guest", "details": { "resource-reservation": { "cpu": "7", "memory": "5", "disk": "3" } } },
                { "name": "idle", "details": { "state": "DEPLOYED" } },
            ],
        });
        let expected = DeviceResources {
            enabled: true,
            cpu_millis: 30_000,
            free_cpu_millis: 29_000,
            memory_bytes: 4 << 30,
            free_memory_bytes: 1 << 30,
            storage_bytes: 8 << 30,
            free_storage_bytes: 4 << 30,
            taken: ReservedResources { cpu_millis: 7, memory_bytes: 5 << 20, storage_bytes: 3 << 20 },
        };
        let is_ours = |name: &str| name == "ours";
        assert_eq!(resources(&serde_json::from_value(data).unwrap(), is_ours), expected);
        assert_eq!(resources(&OperData::default(), is_ours), DeviceResources::default());
    }

    #[test]
    fn usage_is_in_the_units_of_kubernetes_and_what_is_not_reported_is_absent() {
        let app = json!({
            "name": "a", "details": { "resource-reservation": { "cpu": "1000" } },
            "utilization": {
                "cpu-util": { "actual-application-util": "25" }, "memory-util": { "memory-used": "2048" },
            },
            "storage-utils": { "storage-util": [{ "used": "3" }, { "used": "4" }] },
        });
        let expected = ContainerUsage {
            name: "app".into(),
            cpu_nanocores: Some(250_000_000),
            memory_bytes: Some(2 << 20),
            storage_bytes: Some(7000),
        };
        let data: OperData = serde_json::from_value(json!({ "app": [app] })).unwrap();
        assert_eq!(usage("app", &data.apps[0]), expected);
        let nothing = ContainerUsage { name: "app".into(), ..ContainerUsage::default() };
        assert_eq!(usage("app", &App::default()), nothing);
    }
}
