//! What a device has, and what pods use of it.

use std::collections::BTreeMap;

use staffetta_driver::app_hosting::{DeviceResources, TakenResources};
use staffetta_driver::virtual_node::{ContainerUsage, PodUsage};
use staffetta_driver::{DriverError, Uid};

use super::fetch::fetch;
use crate::model::oper::{Amount, App, OperData, Reservation};
use crate::model::resource;
use crate::observe::Observed;
use crate::restconf::NetworkClient;

const MEBIBYTE: u64 = 1 << 20;

/// A unit of CPU is a thousandth of one, and that is a million billionths.
const NANOCORES_A_UNIT: u64 = 1_000_000;

/// What the device has for applications, and what of that is not for pods of this cluster.
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

fn resources(data: &OperData, is_ours: impl Fn(&str) -> bool) -> DeviceResources {
    let all = || data.resources.iter();
    let units = |unit: fn(&crate::model::oper::Cpu) -> Option<u64>| -> u64 {
        all().flat_map(|resources| &resources.cpu).filter_map(unit).fold(0, u64::saturating_add)
    };
    let bytes = |amounts: &mut dyn Iterator<Item = Option<u64>>| {
        amounts.flatten().fold(0, u64::saturating_add).saturating_mul(MEBIBYTE)
    };
    let memory = || all().flat_map(|resources| &resources.memory);
    let disk = all().filter_map(|resources| disk(&resources.storage_device)).collect::<Vec<_>>();
    DeviceResources {
        enabled: data.globals.as_ref().map_or(!data.resources.is_empty(), |globals| globals.iox_enabled),
        cpu_millis: units(|cpu| cpu.quota_unit),
        free_cpu_millis: units(|cpu| cpu.available_unit),
        memory_bytes: bytes(&mut memory().map(|memory| memory.quota)),
        free_memory_bytes: bytes(&mut memory().map(|memory| memory.available)),
        storage_bytes: bytes(&mut disk.iter().map(|disk| disk.quota)),
        free_storage_bytes: bytes(&mut disk.iter().map(|disk| disk.available)),
        taken: taken(data.apps.iter().filter(|app| !is_ours(&app.name))),
    }
}

/// What these applications have reserved.
fn taken<'a>(apps: impl Iterator<Item = &'a App>) -> TakenResources {
    let all: Vec<_> = apps.map(|app| &app.details.resource_reservation).collect();
    let sum = |amount: fn(&Reservation) -> Option<u64>| {
        all.iter().filter_map(|reserved| amount(reserved)).fold(0, u64::saturating_add)
    };
    TakenResources {
        cpu_millis: sum(|reserved| reserved.cpu),
        memory_bytes: sum(|reserved| reserved.memory).saturating_mul(MEBIBYTE),
        storage_bytes: sum(|reserved| reserved.disk).saturating_mul(MEBIBYTE),
    }
}

/// The disk of applications. Devices tell the file system on which it lies too, which is no further one.
fn disk(devices: &[Amount]) -> Option<&Amount> {
    let persistent = devices.iter().find(|device| device.name.contains("persist"));
    persistent.or_else(|| devices.iter().max_by_key(|device| device.quota))
}

/// What the pods of this cluster use.
pub(super) async fn read_usage(
    client: &dyn NetworkClient,
    observed: &Observed,
    cluster: &str,
) -> Result<Vec<PodUsage>, DriverError> {
    const STEP: &str = "read what pods use";
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
        for interface in &app.network_utils.network_util {
            pod.received_bytes = sum(pod.received_bytes, interface.rx_bytes);
            pod.sent_bytes = sum(pod.sent_bytes, interface.tx_bytes);
        }
        pod.containers.push(usage(&mark.container, app));
    }
    Ok(pods.into_values().collect())
}

fn usage(name: &str, app: &App) -> ContainerUsage {
    let reserved = app.details.resource_reservation.cpu;
    let percent = app.utilization.cpu_util.actual_application_util;
    let cpu = reserved
        .zip(percent)
        .map(|(reserved, percent)| reserved.saturating_mul(NANOCORES_A_UNIT).saturating_mul(percent) / 100);
    let blocks = app.storage_utils.storage_util.iter().fold(None, |all, storage| sum(all, storage.used));
    ContainerUsage {
        name: name.to_owned(),
        cpu_nanocores: cpu,
        memory_bytes: app.utilization.memory_util.memory_used.map(|kilobytes| kilobytes.saturating_mul(1024)),
        storage_bytes: blocks.map(|blocks| blocks.saturating_mul(1000)),
    }
}

/// Both together, where one is known.
fn sum(all: Option<u64>, one: Option<u64>) -> Option<u64> {
    match (all, one) {
        (Some(all), Some(one)) => Some(all.saturating_add(one)),
        (all, one) => all.or(one),
    }
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
            taken: TakenResources { cpu_millis: 7, memory_bytes: 5 << 20, storage_bytes: 3 << 20 },
        };
        let is_ours = |name: &str| name == "ours";
        assert_eq!(resources(&serde_json::from_value(data).unwrap(), is_ours), expected);
        assert_eq!(resources(&OperData::default(), is_ours), DeviceResources::default());
    }

    #[test]
    fn use_is_told_in_the_units_of_kubernetes_and_what_is_not_told_is_absent() {
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
        assert_eq!(usage("app", &serde_json::from_value(app).unwrap()), expected);
        let nothing = ContainerUsage { name: "app".into(), ..ContainerUsage::default() };
        assert_eq!(usage("app", &App::default()), nothing);
    }
}
