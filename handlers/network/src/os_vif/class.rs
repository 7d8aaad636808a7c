//! The classes of VIFs and port profiles: their names, and the fields that only they have.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use staffetta_driver::{PortProfile, VifClass};

type Fields = Map<String, Value>;

const VIF_VERSION: &str = "1.0";

#[derive(Serialize, Deserialize)]
struct Bridged {
    bridge_name: String,
    vif_name: String,
}

#[derive(Serialize, Deserialize)]
struct VHostUser {
    mode: String,
    path: String,
    vif_name: String,
}

#[derive(Serialize, Deserialize)]
struct VlanNested {
    vif_name: String,
    vlan_id: u16,
}

#[derive(Serialize, Deserialize)]
struct MacvlanNested {
    vif_name: String,
}

#[derive(Serialize, Deserialize)]
struct DpdkNested {
    dev_driver: String,
    pci_address: String,
    vif_name: String,
}

#[derive(Serialize, Deserialize)]
struct OpenVSwitchProfile {
    interface_id: String,
}

/// Name, version and own fields of a class.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) fields: Fields,
}

impl Parts {
    fn of(name: &str, version: &str, fields: &impl Serialize) -> Self {
        let Ok(Value::Object(fields)) = serde_json::to_value(fields) else {
            unreachable!("the fields of a class are a struct of texts and numbers")
        };
        Self { name: name.into(), version: version.into(), fields }
    }
}

/// Takes a VIF's class apart.
pub(super) fn vif_parts(class: &VifClass) -> Parts {
    match class.clone() {
        VifClass::OpenVSwitch { vif_name, bridge_name } => {
            Parts::of("VIFOpenVSwitch", VIF_VERSION, &Bridged { bridge_name, vif_name })
        }
        VifClass::Bridge { vif_name, bridge_name } => {
            Parts::of("VIFBridge", VIF_VERSION, &Bridged { bridge_name, vif_name })
        }
        VifClass::VHostUser { vif_name, path, mode } => {
            Parts::of("VIFVHostUser", VIF_VERSION, &VHostUser { mode, path, vif_name })
        }
        VifClass::VlanNested { vif_name, vlan_id } => {
            Parts::of("VIFVlanNested", VIF_VERSION, &VlanNested { vif_name, vlan_id })
        }
        VifClass::MacvlanNested { vif_name } => {
            Parts::of("VIFMacvlanNested", VIF_VERSION, &MacvlanNested { vif_name })
        }
        VifClass::DpdkNested { vif_name, pci_address, dev_driver } => {
            Parts::of("VIFDPDKNested", VIF_VERSION, &DpdkNested { dev_driver, pci_address, vif_name })
        }
        VifClass::Other { name, version, fields } => Parts { name, version, fields },
    }
}

/// The class of a VIF.
pub(super) fn vif_class(
    name: String,
    version: String,
    fields: Fields,
) -> Result<VifClass, serde_json::Error> {
    Ok(match name.as_str() {
        "VIFOpenVSwitch" => {
            let Bridged { bridge_name, vif_name } = known(fields)?;
            VifClass::OpenVSwitch { vif_name, bridge_name }
        }
        "VIFBridge" => {
            let Bridged { bridge_name, vif_name } = known(fields)?;
            VifClass::Bridge { vif_name, bridge_name }
        }
        "VIFVHostUser" => {
            let VHostUser { mode, path, vif_name } = known(fields)?;
            VifClass::VHostUser { vif_name, path, mode }
        }
        "VIFVlanNested" => {
            let VlanNested { vif_name, vlan_id } = known(fields)?;
            VifClass::VlanNested { vif_name, vlan_id }
        }
        "VIFMacvlanNested" => {
            let MacvlanNested { vif_name } = known(fields)?;
            VifClass::MacvlanNested { vif_name }
        }
        "VIFDPDKNested" => {
            let DpdkNested { dev_driver, pci_address, vif_name } = known(fields)?;
            VifClass::DpdkNested { vif_name, pci_address, dev_driver }
        }
        _ => VifClass::Other { name, version, fields },
    })
}

/// Takes a port profile apart.
pub(super) fn profile_parts(profile: &PortProfile) -> Parts {
    match profile.clone() {
        PortProfile::OpenVSwitch { interface_id } => {
            Parts::of("VIFPortProfileOpenVSwitch", "1.4", &OpenVSwitchProfile { interface_id })
        }
        PortProfile::Other { name, version, fields } => Parts { name, version, fields },
    }
}

/// The port profile.
pub(super) fn profile(
    name: String,
    version: String,
    fields: Fields,
) -> Result<PortProfile, serde_json::Error> {
    if name == "VIFPortProfileOpenVSwitch" {
        let OpenVSwitchProfile { interface_id } = known(fields)?;
        return Ok(PortProfile::OpenVSwitch { interface_id });
    }
    Ok(PortProfile::Other { name, version, fields })
}

fn known<T: DeserializeOwned>(fields: Fields) -> Result<T, serde_json::Error> {
    serde_json::from_value(Value::Object(fields))
}
