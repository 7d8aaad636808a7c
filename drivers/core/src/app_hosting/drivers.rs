//! The registry of app hosting drivers, which chooses the driver of a device by the name in its specification.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::driver::AppHostingDriver;
use super::spec::DeviceSpec;
use crate::error::{DriverError, Reason};

/// A factory of drivers for one kind of device. It is registered under the name that [`DeviceSpec::driver`] contains.
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
    /// Creates the driver of a device. It sends nothing to the device yet, but may read files. An invalid `spec` is the error
    /// [`Reason::Refused`], with the path of the invalid field.
    fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError>;
}

/// A registry of the driver factories, one for each supported kind of device (such as `XE`), by the name of the kind.
#[derive(Clone)]
pub struct AppHostingDriverTable {
    /// The kind of devices whose [`DeviceSpec::driver`] is empty.
    default: String,
    /// The factory of each kind of device, by the name of the kind.
    kinds: BTreeMap<String, Arc<dyn AppHostingDrivers>>,
}

impl AppHostingDriverTable {
    /// Creates the table. `default` is the kind of devices whose [`DeviceSpec::driver`] is empty.
    pub fn new(default: impl Into<String>, kinds: BTreeMap<String, Arc<dyn AppHostingDrivers>>) -> Self {
        Self { default: default.into(), kinds }
    }

    /// Creates the driver of a device. An unknown kind is the error [`Reason::Unsupported`].
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
