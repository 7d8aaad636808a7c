//! The RESTCONF resources that this crate reads, with queries for parts of them (`fields`, RFC 8040, section 4.8.3).

/// A RESTCONF resource, with the queries that select the required part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestconfResource {
    /// The path of the resource below the RESTCONF root.
    pub(crate) path: &'static str,
    /// The query for exactly the required part; `None` to read the whole resource.
    pub(crate) fine: Option<&'static str>,
    /// The query for devices that do not support `fine`; `None` to read the whole resource.
    pub(crate) coarse: Option<&'static str>,
}

impl RestconfResource {
    /// Returns the name of the YANG container at `path`, without its module prefix.
    pub(crate) fn container(self) -> &'static str {
        self.path.rsplit_once(':').map_or(self.path, |(_, name)| name)
    }
}

/// The path of the operational data of app hosting below the RESTCONF root.
const OPER: &str = "data/Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data";

/// The configuration of all applications.
pub(crate) const CONFIG: RestconfResource = whole("data/Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data");

/// The states and interfaces of all applications, without counters, so that the response is the same as long as no
/// state changes.
pub(crate) const STATES: RestconfResource = RestconfResource {
    path: OPER,
    fine: Some("fields=app(name;details/state;network-interfaces)"),
    coarse: Some("fields=app"),
};

/// The states and interfaces of all applications, with the notifications about operations, and the flag that app
/// hosting is enabled.
pub(crate) const EVENTS: RestconfResource = RestconfResource {
    path: OPER,
    fine: Some("fields=app(name;details/state;network-interfaces);app-notifications;app-globals"),
    coarse: None,
};

/// All operational data of the applications, including their resource usage.
pub(crate) const USAGE: RestconfResource =
    RestconfResource { path: OPER, fine: Some("fields=app"), coarse: Some("fields=app") };

/// The amounts of CPU, memory and storage: in total and free on the device, and reserved by each application.
pub(crate) const AMOUNTS: RestconfResource = RestconfResource {
    path: OPER,
    fine: Some("fields=app-resources;app-globals;app(name;details/resource-reservation)"),
    coarse: None,
};

/// The ARP tables of all VRFs.
pub(crate) const ARP: RestconfResource = whole("data/Cisco-IOS-XE-arp-oper:arp-data");

/// The hardware inventory and the software version of the device.
pub(crate) const HARDWARE: RestconfResource =
    whole("data/Cisco-IOS-XE-device-hardware-oper:device-hardware-data");

/// Returns the resource at `path`, which is read as a whole.
const fn whole(path: &'static str) -> RestconfResource {
    RestconfResource { path, fine: None, coarse: None }
}
