//! Options of a device and of its responses.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::milliseconds::Milliseconds;

/// Options of a device. The default is a small edge router that works correctly and quickly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The host name, by which the devices of one [`Site`](crate::Site) are distinguished.
    pub name: String,
    /// The listen address. Port 0 chooses a free port, which the device keeps when it reboots.
    pub listen: SocketAddr,
    /// The use of TLS.
    pub tls: Tls,
    /// The user of each request.
    pub username: String,
    /// The user's password.
    pub password: String,
    /// The number of consecutive wrong passwords after which the account is locked; `None` for never.
    pub lock_after: Option<u32>,
    /// The duration of an account lock. In JSON, whole milliseconds.
    #[serde(with = "Milliseconds")]
    pub lock_time: Duration,
    /// The root of the API, as in `/.well-known/host-meta`.
    pub api_root: String,
    /// The variations of responses between devices.
    pub style: Style,
    /// The durations of state changes.
    pub times: Times,
    /// `true` if an app whose configuration contains `start: true` goes from DEPLOYED to RUNNING without an operation.
    pub auto_start: bool,
    /// `true` if packages are installed from URLs. Otherwise such an installation is rejected, and the package must be copied to
    /// the device first.
    pub installs_urls: bool,
    /// The maximum number of concurrent installations; further ones fail without a message.
    pub parallel_installs: usize,
    /// The state of an app after the operation `stop`.
    pub stops_to: StopsTo,
    /// `true` if the operational data of an app contain its IPv4 address. Otherwise they contain `0.0.0.0`, and only the ARP
    /// table has the address.
    pub reports_addresses: bool,
    /// The ARP list that is filled.
    pub arp_lists: ArpLists,
    /// The DHCP pool of apps without a static address. Its first address is the gateway.
    pub dhcp_pool: Ipv4Net,
    /// The resources that apps can reserve.
    pub resources: Resources,
    /// The packages that can be installed; `None` for all packages whose location can be parsed.
    pub packages: Option<BTreeSet<String>>,
    /// The serial number of the chassis.
    pub serial_number: String,
    /// The part number of the chassis.
    pub part_number: String,
    /// The version of the software, as in `Version 17.15.1a`.
    pub version: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "edge-1".into(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            tls: Tls::default(),
            username: "admin".into(),
            password: "cisco-123".into(),
            lock_after: None,
            lock_time: Duration::from_secs(300),
            api_root: "/restconf".into(),
            style: Style::default(),
            times: Times::default(),
            auto_start: true,
            installs_urls: true,
            parallel_installs: 1,
            stops_to: StopsTo::default(),
            reports_addresses: true,
            arp_lists: ArpLists::default(),
            dhcp_pool: Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 0), 24),
            resources: Resources::default(),
            packages: None,
            serial_number: "9ESQK0SIM01".into(),
            part_number: "C8000V".into(),
            version: "17.15.1a".into(),
        }
    }
}

/// The use of TLS. The certificate contains the name and the address of the device, and is signed by the site's own CA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// TLS is not used.
    #[default]
    Off,
    /// The device presents its certificate.
    Server,
    /// The device presents its certificate, and requires a client certificate of the site's CA in addition to the password.
    Mutual,
}

/// The variations of responses between devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Style {
    /// The form of `error` in the body of a rejection.
    pub error: ErrorForm,
    /// The response to a GET of an empty resource.
    pub empty: Empty,
    /// The response to a DELETE of a resource that does not exist.
    pub gone: Gone,
    /// The response to an accepted operation.
    pub accepted: Accepted,
    /// The top level of a response that `fields` reduced.
    pub narrowed: Narrowed,
}

/// The form of `error` in the body of a rejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorForm {
    /// An array of errors, according to RFC 8040 (section 7.1).
    #[default]
    Array,
    /// The error itself, without an array.
    Object,
}

/// The response to a GET of an empty resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Empty {
    /// 204.
    #[default]
    NoContent,
    /// 404 with `invalid-value`.
    NotFound,
}

/// The response to a DELETE of a resource that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// 404 with `invalid-value`.
    #[default]
    NotFound,
    /// 409 with `data-missing`.
    DataMissing,
}

/// The response to an accepted operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accepted {
    /// 204.
    #[default]
    NoContent,
    /// 200 with a text.
    Result,
}

/// The top level of a response that `fields` reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Narrowed {
    /// The requested resource, as without `fields`.
    #[default]
    Whole,
    /// The only member of the requested resource that is left.
    Member,
}

/// The state of an app after the operation `stop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopsTo {
    /// ACTIVATED.
    #[default]
    Activated,
    /// STOPPED.
    Stopped,
}

/// The ARP list that a device fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArpLists {
    /// Both, as in the samples of real devices.
    #[default]
    Both,
    /// Only the deprecated `arp-oper`.
    Oper,
    /// Only `arp-entry`.
    Entry,
}

/// The durations of state changes. In JSON, whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Times {
    /// The time from the operation `install` until the app is DEPLOYED.
    #[serde(with = "Milliseconds")]
    pub install: Duration,
    /// The time from the operation `activate` until the app is ACTIVATED.
    #[serde(with = "Milliseconds")]
    pub activate: Duration,
    /// The time from the operation `start` until the app is RUNNING.
    #[serde(with = "Milliseconds")]
    pub start: Duration,
    /// The time from RUNNING until the app has an address, unless its address is static.
    #[serde(with = "Milliseconds")]
    pub address: Duration,
    /// The time from the operation `stop` until the app is stopped.
    #[serde(with = "Milliseconds")]
    pub stop: Duration,
    /// The time from the operation `deactivate` until the app is DEPLOYED again.
    #[serde(with = "Milliseconds")]
    pub deactivate: Duration,
    /// The time from the operation `uninstall` until only the configuration of the app is left.
    #[serde(with = "Milliseconds")]
    pub uninstall: Duration,
    /// The duration of the operation `copy`, whose response is sent at its end.
    #[serde(with = "Milliseconds")]
    pub copy: Duration,
}

impl Times {
    /// Returns the times with `time` for each change, and no delay for addresses.
    pub fn each(time: Duration) -> Self {
        Self {
            install: time,
            activate: time,
            start: time,
            address: Duration::ZERO,
            stop: time,
            deactivate: time,
            uninstall: time,
            copy: time,
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self { install: Duration::from_millis(40), ..Self::each(Duration::from_millis(20)) }
    }
}

/// The resources that apps can reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// CPU units.
    pub cpu_units: u64,
    /// Megabytes of memory.
    pub memory_mb: u64,
    /// Megabytes of disk.
    pub disk_mb: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpu_units: 37_500, memory_mb: 16_384, disk_mb: 110_120 }
    }
}
