//! Creates the drivers of IOS-XE devices.

use std::sync::Arc;

use staffetta_driver::app_hosting::{AppHostingDriver, AppHostingDrivers, DeviceSpec};
use staffetta_driver::{ClusterId, DriverError, Fence, Reason};
use tracing::warn;

use crate::app::{AppResourceLimits, PodNetwork, Translator};
use crate::driver::IosXeDriver;
use crate::options::IosXeOptions;
use crate::restconf::Restconf;

/// The factory of the drivers for IOS-XE devices (those whose specification names the driver `XE`) of one cluster.
///
/// ```
/// use staffetta_driver::Reason;
/// use staffetta_driver::app_hosting::{AppHostingDrivers, DeviceSpec, Password};
/// use staffetta_iosxe::{IosXeDrivers, IosXeOptions};
///
/// let drivers = IosXeDrivers::new(IosXeOptions::default(), "east".into());
/// let spec = DeviceSpec {
///     driver: "XE".into(),
///     address: "192.0.2.1".into(),
///     username: "admin".into(),
///     password: Some(Password::new("secret")),
///     sections: [("xe".to_owned(), serde_json::json!({}))].into_iter().collect(),
///     ..DeviceSpec::default()
/// };
/// assert!(drivers.driver(&spec).is_ok());
/// let incomplete = DeviceSpec { sections: serde_json::Map::new(), ..spec };
/// assert_eq!(drivers.driver(&incomplete).err().map(|error| error.reason()), Some(Reason::Refused));
/// ```
#[derive(Clone, Debug)]
pub struct IosXeDrivers {
    options: IosXeOptions,
    cluster: ClusterId,
    fence: Fence,
}

impl IosXeDrivers {
    /// Creates the driver factory. The ownership labels of all applications contain `cluster`.
    pub fn new(options: IosXeOptions, cluster: ClusterId) -> Self {
        Self { options, cluster, fence: Fence::default() }
    }

    /// Makes all drivers send requests only while `fence` lets them pass, which means that this process is the leader.
    #[must_use]
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }
}

impl AppHostingDrivers for IosXeDrivers {
    fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
        let refused = || DriverError::new(Reason::Refused, "read the description of a device");
        let wrong = |refusal: DriverError| refused().because(refusal);
        if !spec.sections.contains_key("xe") {
            return Err(refused().detail("xe: required for a device of the kind `XE`, even if empty"));
        }
        if !spec.driver_options.is_empty() {
            return Err(refused().detail("driverOptions: the options of the driver `XE` are in `xe`"));
        }
        for key in without_effect(spec) {
            warn!(device = spec.address, key, "a key in the description of a device is ignored");
        }
        let limits = AppResourceLimits::read(&spec.resource_limits).map_err(wrong)?;
        let network = PodNetwork::read(spec).map_err(wrong)?;
        let translator = Translator::new(&self.cluster, limits, network);
        let client = Arc::new(Restconf::new(spec, &self.options, self.fence.clone())?);
        Ok(Arc::new(IosXeDriver::new(client, translator, self.options.clone())))
    }
}

/// Returns the paths of the fields of the specification that are set, but have no effect: they are accepted for compatibility with
/// Cisco's virtual kubelet provider.
fn without_effect(spec: &DeviceSpec) -> impl Iterator<Item = &'static str> {
    let keys = [
        ("logLevel", spec.sections.contains_key("logLevel")),
        ("resourceLimits.others", !spec.resource_limits.others.is_empty()),
    ];
    keys.into_iter().filter(|(_, there)| *there).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};
    use staffetta_driver::app_hosting::{Password, TlsSpec};

    use super::*;
    use crate::spec::{InterfaceSpec, Networking, VirtualPortGroup, XeSpec};

    fn xe(section: Value) -> Map<String, Value> {
        [("xe".to_owned(), section)].into_iter().collect()
    }

    fn spec() -> DeviceSpec {
        DeviceSpec {
            driver: "XE".into(),
            address: "192.0.2.1".into(),
            username: "admin".into(),
            password: Some(Password::new("hunter2")),
            sections: xe(json!({})),
            ..DeviceSpec::default()
        }
    }

    fn refused(spec: &DeviceSpec) -> String {
        let drivers = IosXeDrivers::new(IosXeOptions::default(), "east".into());
        let error = drivers.driver(spec).err().unwrap();
        assert_eq!(error.reason(), Reason::Refused);
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    }

    #[test]
    fn a_description_that_cannot_be_right_is_refused_by_path_before_anything_is_sent() {
        let tls = |tls: TlsSpec| DeviceSpec { tls: TlsSpec { enabled: true, ..tls }, ..spec() };
        let bare = InterfaceSpec {
            virtual_port_group: Some(VirtualPortGroup::default()),
            ..InterfaceSpec::default()
        };
        let bare = json!(XeSpec { networking: Networking { interface: Some(bare) } });
        for (wrong, path) in [
            (DeviceSpec { sections: Map::new(), ..spec() }, "xe: "),
            (
                DeviceSpec {
                    driver_options: [("slot".to_owned(), 3.into())].into_iter().collect(),
                    ..spec()
                },
                "driverOptions: ",
            ),
            (DeviceSpec { sections: xe(bare), ..spec() }, "podCIDR: "),
            (DeviceSpec { username: String::new(), ..spec() }, "username: "),
            (DeviceSpec { password: None, ..spec() }, "password: "),
            (DeviceSpec { address: String::new(), ..spec() }, "address: "),
            (DeviceSpec { address: "r1/x".into(), ..spec() }, "address: "),
            (DeviceSpec { address: "me@r1".into(), ..spec() }, "address: "),
            (tls(TlsSpec { ca_file: Some("/nowhere.pem".into()), ..TlsSpec::default() }), "tls.caFile: "),
            (tls(TlsSpec { cert_file: Some("/c.pem".into()), ..TlsSpec::default() }), "tls.keyFile: "),
            (tls(TlsSpec { key_file: Some("/k.pem".into()), ..TlsSpec::default() }), "tls.certFile: "),
            (
                tls(TlsSpec { certificate_sha256: Some("00:11".into()), ..TlsSpec::default() }),
                "tls.certificateSha256: ",
            ),
        ] {
            let error = refused(&wrong);
            assert!(error.contains(path) && !error.contains("hunter2"), "{path} in {error}");
        }
    }

    #[test]
    fn a_key_that_is_read_for_the_existing_provider_alone_is_reported_and_refuses_no_device() {
        let mut spec = spec();
        assert_eq!(without_effect(&spec).count(), 0);
        spec.sections.insert("logLevel".to_owned(), json!("debug"));
        spec.resource_limits.others = [("usb".to_owned(), "1".to_owned())].into();
        assert_eq!(without_effect(&spec).collect::<Vec<_>>(), ["logLevel", "resourceLimits.others"]);
        let drivers = IosXeDrivers::new(IosXeOptions::default(), "east".into());
        assert!(drivers.driver(&spec).is_ok());
    }
}
