//! The resources under the root of RESTCONF, and the requested part of each (RFC 8040, section 4.8.3).

/// A resource that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The path below the RESTCONF root.
    pub(crate) path: &'static str,
    /// The query for just what is needed; none where all of it is.
    pub(crate) fine: Option<&'static str>,
    /// The path for devices that do not support the more specific one.
    pub(crate) coarse: Option<&'static str>,
}

impl Resource {
    /// The name of the container that it is, without its module.
    pub(crate) fn container(self) -> &'static str {
        self.path.rsplit_once(':').map_or(self.path, |(_, name)| name)
    }
}

const OPER: &str = "data/Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data";

/// The configured applications.
pub(crate) const CONFIG: Resource = whole("data/Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data");

/// The states and interfaces of the applications: nothing that counts up, so that the answer stays the same while they do.
pub(crate) const STATES: Resource = Resource {
    path: OPER,
    fine: Some("fields=app(name;details/state;network-interfaces)"),
    coarse: Some("fields=app"),
};

/// The same, with the notifications about them, and a flag that the device hosts applications.
pub(crate) const EVENTS: Resource = Resource {
    path: OPER,
    fine: Some("fields=app(name;details/state;network-interfaces);app-notifications;app-globals"),
    coarse: None,
};

/// All data of the applications, including resource usage.
pub(crate) const USAGE: Resource =
    Resource { path: OPER, fine: Some("fields=app"), coarse: Some("fields=app") };

/// The device's resources for applications, and the reservation of each application.
pub(crate) const AMOUNTS: Resource = Resource {
    path: OPER,
    fine: Some("fields=app-resources;app-globals;app(name;details/resource-reservation)"),
    coarse: None,
};

/// The ARP tables.
pub(crate) const ARP: Resource = whole("data/Cisco-IOS-XE-arp-oper:arp-data");

/// Information about the device.
pub(crate) const HARDWARE: Resource = whole("data/Cisco-IOS-XE-device-hardware-oper:device-hardware-data");

const fn whole(path: &'static str) -> Resource {
    Resource { path, fine: None, coarse: None }
}
