//! The YANG module `Cisco-IOS-XE-device-hardware-oper`: device information.

use serde::Deserialize;
use staffetta_driver::app_hosting::DeviceInfo;

/// The YANG container `device-hardware-data`: the inventory of hardware parts, and the software version.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct HardwareData {
    device_hardware: Hardware,
}

/// The YANG container `device-hardware`: the hardware parts and the system data.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Hardware {
    device_inventory: Vec<HardwareInventory>,
    device_system_data: System,
}

/// A hardware part of the device: a chassis, a module, a fan.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct HardwareInventory {
    hw_type: String,
    part_number: String,
    serial_number: String,
}

/// The YANG container `device-system-data`, of which only the software version is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct System {
    software_version: String,
}

/// The part number prefixes of devices that run applications on ARM processors.
const ARM: [&str; 6] = ["IR11", "IR18", "IR81", "IE-3", "IE3", "ESS-3"];

impl HardwareData {
    /// Returns the serial number, product id, software version and CPU architecture of the device. The serial number and the product id
    /// are those of the first chassis with a serial number.
    pub(crate) fn info(&self) -> DeviceInfo {
        let parts = &self.device_hardware.device_inventory;
        let chassis =
            parts.iter().find(|part| part.hw_type == "hw-type-chassis" && !part.serial_number.is_empty());
        let product_id = chassis.map(|part| part.part_number.clone()).unwrap_or_default();
        let arm = ARM.iter().any(|prefix| product_id.starts_with(prefix));
        DeviceInfo {
            serial_number: chassis.map(|part| part.serial_number.clone()).unwrap_or_default(),
            software_version: version(&self.device_hardware.device_system_data.software_version).to_owned(),
            product_id,
            system: "IOS-XE".into(),
            architecture: if arm { "arm64" } else { "amd64" }.into(),
        }
    }
}

/// Returns the version in the software description of a device: `..., Version 17.12.1, RELEASE SOFTWARE ...`. Without a
/// version, returns the whole description.
fn version(device_text: &str) -> &str {
    let number =
        device_text.split_once("Version ").and_then(|(_, rest)| rest.split([',', ' ', '\n', '\r']).next());
    number.filter(|number| number.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(device_text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read;

    #[test]
    fn a_device_is_its_first_chassis_and_the_version_of_its_software() {
        let body = br#"{"Cisco-IOS-XE-device-hardware-oper:device-hardware-data":{"device-hardware":{
            "device-inventory":[
                {"hw-type":"hw-type-pim","hw-dev-index":1,"part-number":"PWR","serial-number":"P1"},
                {"hw-type":"hw-type-chassis","hw-dev-index":2,"part-number":"","serial-number":""},
                {"hw-type":"hw-type-chassis","hw-dev-index":3,"part-number":"IR1101-K9","serial-number":"FCW1"}],
            "device-system-data":{"software-version":"Cisco IOS Software [Dublin], Version 17.12.1a, RELEASE"}}}}"#;
        let info = read::<HardwareData>(body, "device-hardware-data").unwrap().info();
        let expected = DeviceInfo {
            serial_number: "FCW1".into(),
            software_version: "17.12.1a".into(),
            product_id: "IR1101-K9".into(),
            system: "IOS-XE".into(),
            architecture: "arm64".into(),
        };
        assert_eq!(info, expected);
        assert_eq!(HardwareData::default().info().architecture, "amd64");
        for device_text in ["17.18.2", "Version unknown"] {
            assert_eq!(version(device_text), device_text);
        }
    }
}
