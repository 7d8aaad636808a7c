//! Registers the driver `XE`, which runs pods on IOS-XE devices.

use std::sync::Arc;

use staffetta_driver::app_hosting::AppHostingDrivers;
use staffetta_handler::Registry;
use staffetta_iosxe::{IosXeDrivers, IosXeOptions};

/// Registers the driver `XE`, which runs pods on Cisco IOS-XE devices, and its section `[iosxe]`.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<IosXeOptions>("iosxe");
    registry.driver::<dyn AppHostingDrivers>("XE", "IOS-XE devices, over RESTCONF.", |setup| {
        let options: IosXeOptions = setup.section("iosxe")?;
        let drivers = IosXeDrivers::new(options, setup.cluster_id()?.into());
        Ok(Arc::new(drivers.fenced(super::fence(setup)?)))
    });
}
