//! Chooses the driver of a device by the name in its spec.

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
/// ```
pub trait AppHostingDrivers: Send + Sync {
    /// Returns the driver of a device. It sends nothing yet, but may read files. An invalid description is [`Reason::Refused`], with
    /// the path of the field.
    fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError>;
}

/// The drivers of the known kinds of devices, by name.
#[derive(Clone)]
pub struct AppHostingDriverTable {
    default: String,
    kinds: BTreeMap<String, Arc<dyn AppHostingDrivers>>,
}

impl AppHostingDriverTable {
    /// Creates the table; `default` is the kind of a device that names none.
    pub fn new(default: impl Into<String>, kinds: BTreeMap<String, Arc<dyn AppHostingDrivers>>) -> Self {
        Self { default: default.into(), kinds }
    }

    /// Returns the driver of a device; an unknown kind is [`Reason::Unsupported`].
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
