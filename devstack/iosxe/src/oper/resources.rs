//! Resources of the device for apps, as in `app-hosting-oper-data/app-resources`.

use serde_json::{Value, json};

use crate::iox::{AppConfig, Iox};

/// The share of the CPU for apps, in percent.
const SHARE: u64 = 75;

/// The resources, and what is left of them.
pub(crate) fn resources(iox: &Iox, config: AppConfig<'_>) -> Value {
    let (all, left) = (iox.options.resources, iox.left(config));
    let percent = SHARE * left.cpu_units / all.cpu_units.max(1);
    let storage = |name: &str| json!({ "name": name, "quota": all.disk_mb, "available": left.disk_mb });
    json!({
        "name": "global",
        "cpu": [{
            "name": "system CPU",
            "quota": SHARE,
            "available": percent,
            "quota-unit": all.cpu_units.to_string(),
            "available-unit": left.cpu_units.to_string(),
        }],
        "memory": [{ "name": "memory", "quota": all.memory_mb, "available": left.memory_mb }],
        "storage-device": [storage("bootflash"), storage("IOx persist-disk")],
    })
}
