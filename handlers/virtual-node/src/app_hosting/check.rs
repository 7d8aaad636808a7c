//! Checks the specification of a device, without its driver.

use staffetta_driver::app_hosting::DeviceSpec;

use super::label;

/// Returns a message about the first field of a specification that is invalid for every driver, with the path of the field;
/// `None` if there is none.
pub(super) fn mistake(spec: &DeviceSpec) -> Option<String> {
    match (spec.port, spec.max_pods) {
        (Some(0), _) => Some("port: must be 1 to 65535".to_owned()),
        (_, 0) => Some("maxPods: must be 1 or more".to_owned()),
        _ => label::mistake(spec),
    }
}
