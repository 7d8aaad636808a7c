//! Reads and checks the devices in the configuration and in files.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use staffetta_driver::app_hosting::{AppHostingDriverTable, Password};
use staffetta_handler::causes;

use super::check::mistake;
use super::device::DeviceDescription;
use super::entry::DeviceEntry;
use super::name::{is_name, node_name};

/// The maximum size of a file with devices or with a password, in bytes.
const LARGEST: u64 = 4 << 20;

/// Errors of reading the devices from the configuration and from files.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file with devices or with a password cannot be read, or is larger than 4 MiB.
    #[error("read {file} ({purpose})")]
    Read {
        /// The path of the file with devices or with a password.
        file: PathBuf,
        /// The purpose of the file, for the message: `device descriptions` or `password`.
        purpose: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is not a valid list of devices. The message never contains a password.
    #[error("{file} is not a valid list of devices: {reason}")]
    Malformed {
        /// The path of the file with devices.
        file: PathBuf,
        /// The cause, with line and column if it is at one place in the file.
        reason: String,
    },
    /// The node name, the port, `maxPods`, a label or a taint of a device is invalid or reserved.
    #[error("{origin}: device `{name}`: {mistake}")]
    Mistake {
        /// The file with the device, or `the configuration`.
        origin: String,
        /// The name of the node of the device.
        name: String,
        /// The path of the field, and the rule that its value violates.
        mistake: String,
    },
    /// The driver of a device refuses its specification.
    #[error("device `{name}`: {reason}")]
    Refused {
        /// The name of the node of the device.
        name: String,
        /// The cause, with the path of the field.
        reason: String,
    },
    /// Two devices have the same node name.
    #[error("two devices have the node name `{name}`: in {first} and in {second}")]
    DuplicateName {
        /// The node name that both devices have.
        name: String,
        /// The file with the first device, or `the configuration`.
        first: String,
        /// The file with the second device, or `the configuration`.
        second: String,
    },
}

/// The content of a file: one device under `device:`, as in Cisco's provider, or a list under `devices:`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile<S = Map<String, Value>> {
    device: Option<DeviceDescription<S>>,
    devices: Option<Vec<DeviceEntry<S>>>,
}

impl<S> DeviceFile<S> {
    /// Returns the devices of the file; `None` if it has neither key.
    fn entries(self) -> Option<Vec<DeviceEntry<S>>> {
        if self.device.is_none() && self.devices.is_none() {
            return None;
        }
        let single = self.device.map(|device| DeviceEntry { name: None, password_file: None, device });
        Some(single.into_iter().chain(self.devices.into_iter().flatten()).collect())
    }
}

/// Returns the devices of the configuration (`entries`) and of `files`, by the name of their node. Returns an error if
/// a file cannot be read or is malformed, if a device is invalid, or if two devices have the same node name. `S` is the type of the
/// section of drivers in the files ([`DeviceDescription::xe`]); the devices of the configuration are checked with it.
pub fn read<S: DeserializeOwned + Serialize>(
    entries: &[DeviceEntry],
    files: &[PathBuf],
) -> Result<BTreeMap<String, DeviceEntry>, FileError> {
    let mut devices = BTreeMap::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut add = |origin: &str, entry: DeviceEntry| {
        let name = checked(origin, &entry)?;
        if let Some(first) = seen.insert(name.clone(), origin.to_owned()) {
            return Err(FileError::DuplicateName { name, first, second: origin.to_owned() });
        }
        devices.insert(name, entry);
        Ok(())
    };
    for entry in entries {
        add("the configuration", entry.clone())?;
    }
    for file in files {
        for entry in of_text::<S>(file, &text(file, "device descriptions")?)? {
            add(&file.display().to_string(), entry)?;
        }
    }
    Ok(devices)
}

/// Checks that each device has a driver that accepts its specification, and can read the certificate files in it. Sends nothing
/// to the devices, and reads neither Secrets nor password files. Returns an error with the name of the device and the path of the
/// field if one is refused.
pub fn check(
    devices: &BTreeMap<String, DeviceEntry>,
    drivers: &AppHostingDriverTable,
) -> Result<(), FileError> {
    let mut ways = HashMap::new();
    for (name, entry) in devices {
        let mut spec = entry.device.spec();
        let way = (spec.address.to_ascii_lowercase(), spec.management_port());
        if let Some(other) = ways.insert(way, name) {
            let reason = format!("address: the node {other} has the same address and port");
            return Err(FileError::Refused { name: name.clone(), reason });
        }
        // An account from a Secret or a file is not read here.
        let in_secret = entry.device.credential_secret_ref.is_some();
        if in_secret {
            spec.username = "not-read".into();
        }
        if in_secret || entry.password_file.is_some() {
            spec.password = Some(Password::new("not read"));
        }
        let refused = |error| FileError::Refused { name: name.clone(), reason: causes(&error) };
        drivers.driver(&spec).map_err(refused)?;
    }
    Ok(())
}

/// Checks the node name and the specification of a device, and reads its password file to prove that it is readable. Returns the node
/// name.
fn checked(origin: &str, entry: &DeviceEntry) -> Result<String, FileError> {
    let name = entry.name.clone().unwrap_or_else(|| node_name(&entry.device.address));
    let mistake =
        if is_name(&name) { mistake(&entry.device) } else { Some("no node may have this name".to_owned()) };
    if let Some(mistake) = mistake {
        return Err(FileError::Mistake { origin: origin.to_owned(), name, mistake });
    }
    entry.password_file.as_deref().map(password).transpose()?;
    Ok(name)
}

/// Returns the password in a file, without a line break at the end.
pub(super) fn password(file: &Path) -> Result<Password, FileError> {
    // An editor ends the last line of a file, and no password ends so.
    Ok(Password::new(text(file, "password")?.trim_end_matches(['\r', '\n'])))
}

/// Returns the content of a file of at most [`LARGEST`] bytes.
fn text(file: &Path, purpose: &'static str) -> Result<String, FileError> {
    let fail = |source| FileError::Read { file: file.to_owned(), purpose, source };
    let mut text = String::new();
    let opened = fs::File::open(file).map_err(fail)?;
    opened.take(LARGEST + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > LARGEST {
        return Err(fail(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB")));
    }
    Ok(text)
}

/// Parses a file of devices: one below `device:`, or a list below `devices:`. Their sections must be of the type `S`. An error holds no
/// excerpt of the file, which may contain a password.
fn of_text<S: DeserializeOwned + Serialize>(file: &Path, text: &str) -> Result<Vec<DeviceEntry>, FileError> {
    let malformed = |reason: &str| FileError::Malformed { file: file.to_owned(), reason: reason.to_owned() };
    let wrong = |error: serde_saphyr::Error| {
        // After the first line there is an excerpt of the file, which may contain a password.
        malformed(error.to_string().lines().next().unwrap_or_default())
    };
    let typed = serde_saphyr::from_str::<DeviceFile<S>>(text).map_err(wrong)?.entries();
    let untyped = serde_saphyr::from_str::<DeviceFile>(text).map_err(wrong)?.entries();
    // Whoever runs without devices names no file: the nodes of those that were in it would be deleted.
    let (Some(typed), Some(mut entries)) = (typed, untyped) else {
        return Err(malformed("it has neither `device:` nor `devices:`"));
    };
    for (entry, typed) in entries.iter_mut().zip(typed) {
        // Only its type says whether a 0 in YAML is a number or a string.
        let section = typed.device.xe.map(serde_json::to_value).transpose();
        let section = section.map_err(|error| malformed(&error.to_string()))?;
        entry.device.xe = section.and_then(|section| section.as_object().cloned());
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "devices.yaml";

    fn devices(text: &str) -> Result<Vec<(String, DeviceEntry)>, FileError> {
        let entries = of_text::<Map<String, Value>>(Path::new(FILE), text)?.into_iter();
        entries.map(|entry| Ok((checked(FILE, &entry)?, entry))).collect()
    }

    #[test]
    fn the_file_of_an_existing_provider_is_one_device_with_the_name_that_it_has_there() {
        let text = "device:\n  driver: XE\n  address: 192.0.2.1\n  username: admin\n  password: hunter2\n  tls:\n    \
                    enabled: true\n  podCIDR: 10.0.0.0/24\n  xe:\n    networking:\n      interface:\n        \
                    type: VirtualPortGroup\n        virtualPortGroup:\n          dhcp: true\n          interface: \"0\"\n";
        let devices = devices(text).unwrap();
        assert_eq!((devices.len(), devices[0].0.as_str()), (1, "cisco-vk-192-0-2-1"));
        assert_eq!(devices[0].1.device.spec().management_port(), 443);
        assert!(!format!("{devices:?}").contains("hunter2"));
    }

    #[test]
    fn a_scalar_of_a_section_has_the_type_that_the_section_gives_it() {
        #[derive(Serialize, Deserialize)]
        struct Section {
            interface: String,
            dhcp: bool,
        }
        let text = "device:\n  driver: XE\n  address: r1\n  xe:\n    interface: 0\n    dhcp: \"true\"\n";
        let entries = of_text::<Section>(Path::new(FILE), text).unwrap();
        let section = entries[0].device.xe.clone().unwrap();
        assert_eq!(Value::from(section), serde_json::json!({ "interface": "0", "dhcp": true }));
    }

    #[test]
    fn a_list_names_its_nodes() {
        let text = "devices:\n- name: east\n  device: { driver: FAKE, address: r1 }\n- device: { driver: FAKE, address: r2 }\n";
        let names: Vec<_> = devices(text).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["east", "cisco-vk-r2"]);
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_place_and_without_what_the_file_holds() {
        let text = "device:\n  driver: XE\n  address: r1\n  password: hunter2\n  colour: red\n";
        let error = devices(text).unwrap_err().to_string();
        assert!(error.contains("colour") && error.contains(FILE), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        let name = devices("devices:\n- name: East\n  device: { driver: FAKE, address: r1 }\n").unwrap_err();
        assert!(matches!(name, FileError::Mistake { name, .. } if name == "East"));
        let label = devices("device: { driver: FAKE, address: r1, labels: { type: edge } }\n").unwrap_err();
        assert!(matches!(label, FileError::Mistake { mistake, .. } if mistake.contains("`type`")));
        let port = devices("device: { driver: FAKE, address: r1, port: 0 }\n").unwrap_err().to_string();
        assert!(port.contains("port: must be 1 to 65535"), "{port}");
        let taint = "device: { driver: FAKE, address: r1, taints: [{ key: a b, effect: NoExecute }] }\n";
        let taint = devices(taint).unwrap_err().to_string();
        assert!(taint.starts_with("devices.yaml: device `cisco-vk-r1`: taints[0].key: "), "{taint}");
    }

    #[test]
    fn a_section_that_is_not_as_its_driver_reads_it_is_refused_with_its_place() {
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Section {
            #[serde(rename = "slot")]
            _slot: u8,
        }
        let text = |key: &str| format!("device:\n  driver: XE\n  address: r1\n  xe:\n    {key}: 1\n");
        let read = |key| of_text::<Section>(Path::new(FILE), &text(key));
        assert_eq!(read("slot").unwrap()[0].device.xe.as_ref().unwrap()["slot"], 1);
        let error = read("colour").unwrap_err().to_string();
        assert!(error.contains("colour") && error.contains("line 5") && error.contains(FILE), "{error}");
    }

    #[test]
    fn a_file_without_devices_is_no_list_of_devices_unless_it_says_so() {
        for text in ["", "# nothing yet\n", "{}"] {
            assert!(devices(text).is_err(), "{text:?}");
        }
        assert!(devices("devices: []\n").unwrap().is_empty());
    }

    #[test]
    fn a_file_that_is_not_there_and_a_name_that_is_there_twice_are_named() {
        let missing = read::<Map<String, Value>>(&[], &["/nowhere/devices.yaml".into()]).unwrap_err();
        assert_eq!(missing.to_string(), "read /nowhere/devices.yaml (device descriptions)");
        let folder = tempfile::tempdir().unwrap();
        let files = ["one.yaml", "two.yaml"].map(|name| folder.path().join(name));
        for file in &files {
            fs::write(file, "device: { driver: FAKE, address: r1 }\n").unwrap();
        }
        let twice = read::<Map<String, Value>>(&[], &files).unwrap_err();
        assert!(matches!(twice, FileError::DuplicateName { name, .. } if name == "cisco-vk-r1"));
        let entry = of_text::<Map<String, Value>>(Path::new(FILE), "device: { driver: FAKE, address: r1 }\n")
            .unwrap();
        let twice = read::<Map<String, Value>>(&entry, &files[..1]).unwrap_err().to_string();
        assert!(
            twice.starts_with("two devices have the node name `cisco-vk-r1`: in the configuration and in "),
            "{twice}"
        );
    }

    #[test]
    fn two_nodes_on_one_device_are_refused_with_both_names_and_two_ports_are_two_devices() {
        let drivers =
            std::sync::Arc::new(staffetta_memory::MemoryDevices::default().of_cluster("east".into()));
        let drivers = AppHostingDriverTable::new("FAKE", [("FAKE".to_owned(), drivers as _)].into());
        let checked = |second: &str| {
            let text = format!(
                "devices:\n- name: east\n  device: {{ address: r1 }}\n- name: west\n  device: {{ {second} }}\n"
            );
            check(&devices(&text).unwrap().into_iter().collect(), &drivers)
        };
        let error = causes(&checked("address: R1").unwrap_err());
        assert!(error.contains("west") && error.contains("east has the same address and port"), "{error}");
        assert!(checked("address: r1, port: 8443").is_ok() && checked("address: r2").is_ok());
    }

    #[test]
    fn a_password_comes_from_its_file_without_the_end_of_the_line_and_is_not_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "hunter2\n").unwrap();
        let of = |path: &Path| {
            let text = format!(
                "devices:\n- passwordFile: {}\n  device: {{ address: r1, password: other }}\n",
                path.display()
            );
            devices(&text)
        };
        let found = of(file.path()).unwrap();
        assert_eq!(found[0].1.password_file.as_deref(), Some(file.path()));
        let password = password(file.path()).unwrap();
        assert_eq!(password.expose(), "hunter2");
        assert!(!format!("{password:?}").contains("hunter2"));
        let missing = of(Path::new("/nowhere/password")).unwrap_err();
        assert_eq!(missing.to_string(), "read /nowhere/password (password)");
    }
}
