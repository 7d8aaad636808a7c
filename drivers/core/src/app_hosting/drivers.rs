//! Which driver a device gets: by the name in its description.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::driver::AppHostingDriver;
use super::spec::DeviceSpec;
use crate::error::{DriverError, Reason};

/// Makes the drivers of one kind of devices. It is registered under the name by which [`DeviceSpec::driver`] chooses it.
///
/// ```
/// use std::sync::Arc;
/// use staffetta_driver::DriverError;
/// use staffetta_driver::app_hosting::{AppHostingDriver, AppHostingDrivers, DeviceSpec};
/// use staffetta_driver::memory::MemoryDevices;
///
/// /// Devices that all are the same one.
/// struct OneForAll(Arc<dyn AppHostingDriver>);
///
/// impl AppHostingDrivers for OneForAll {
///     fn driver(&self, _: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
///         Ok(Arc::clone(&self.0))
///     }
/// }
///
/// let fake = MemoryDevices::default().of_cluster("east".into());
/// let spec = DeviceSpec { driver: "FAKE".into(), address: "r1".into(), ..DeviceSpec::default() };
/// assert!(OneForAll(fake.driver(&spec).unwrap()).driver(&spec).is_ok());
/// ```
pub trait AppHostingDrivers: Send + Sync {
    /// The driver of a device. It sends nothing yet; it may read files, and is called where that holds up nobody. A description that
    /// cannot be right is [`Reason::Refused`], with the path of the field.
    fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError>;
}

/// The kinds of devices that exist, by name.
#[derive(Clone)]
pub struct DriverTable {
    default: String,
    kinds: BTreeMap<String, Arc<dyn AppHostingDrivers>>,
}

impl DriverTable {
    /// These kinds, of which `default` is the one of a device that names none.
    pub fn new(default: impl Into<String>, kinds: BTreeMap<String, Arc<dyn AppHostingDrivers>>) -> Self {
        Self { default: default.into(), kinds }
    }

    /// The driver of a device, of the kind that it names; for a kind that is not there [`Reason::Unsupported`].
    pub fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
        let name = if spec.driver.is_empty() { &self.default } else { &spec.driver };
        let drivers = self.kinds.get(name).ok_or_else(|| {
            let known = self.kinds.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let detail = format!("unsupported device type `{name}` in `driver`; supported are {known}");
            DriverError::new(Reason::Unsupported, "make the driver of a device").detail(detail)
        })?;
        drivers.driver(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevices;

    #[test]
    fn a_kind_that_is_not_there_is_unsupported_by_name() {
        let fake: Arc<dyn AppHostingDrivers> = Arc::new(MemoryDevices::default().of_cluster("east".into()));
        let table = DriverTable::new("FAKE", [("FAKE".to_owned(), fake)].into());
        let spec = |driver: &str| DeviceSpec {
            driver: driver.into(),
            address: "r1".into(),
            ..DeviceSpec::default()
        };
        assert!(table.driver(&spec("FAKE")).is_ok() && table.driver(&spec("")).is_ok());
        for name in ["XR", "NXOS", "xe"] {
            let error = table.driver(&spec(name)).err().unwrap();
            assert_eq!(error.reason(), Reason::Unsupported);
            let expected = format!("unsupported device type `{name}` in `driver`; supported are `FAKE`");
            assert!(error.to_string().ends_with(&expected), "{error}");
        }
    }
}
