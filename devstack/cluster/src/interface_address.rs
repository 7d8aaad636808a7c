//! The annotation `vpc.amazonaws.com/PrivateIPv4Address`, as read by the node whose interface has the address.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

const ANNOTATION: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// The address of the pod; none of an annotation that cannot be read.
pub(crate) fn interface_address(pod: &Pod) -> Option<IpAddr> {
    let (address, _) = pod.annotations().get(ANNOTATION)?.split_once('/')?;
    address.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::pod;

    #[test]
    fn the_address_stands_before_the_length_of_its_prefix() {
        let read = |annotation: &str| {
            interface_address(&pod(json!({ "metadata": { "annotations": { ANNOTATION: annotation } } })))
        };
        assert_eq!(read("10.0.0.5/32"), Some(IpAddr::from([10, 0, 0, 5])));
        assert_eq!(read("web"), None);
        assert_eq!(interface_address(&Pod::default()), None);
    }
}
