//! Options of a device and of its answers.

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
    /// Its host name; devices of one [`Site`](crate::Site) are told apart by it.
    pub name: String,
    /// The listen address; port 0 chooses a free port, which stays the same over reboots.
    pub listen: SocketAddr,
    /// The use of TLS.
    pub tls: Tls,
    /// The user of each request.
    pub username: String,
    /// The user's password.
    pub password: String,
    /// After so many wrong passwords in a row the account is locked; None: it never is.
    pub lock_after: Option<u32>,
    /// The duration of an account lock. In JSON, whole milliseconds.
    #[serde(with = "Milliseconds")]
    pub lock_time: Duration,
    /// The root of the API, as `/.well-known/host-meta` tells it.
    pub api_root: String,
    /// Variations of the answers between devices.
    pub style: Style,
    /// The durations of state changes.
    pub times: Times,
    /// Move an app whose configuration says `start: true` from DEPLOYED to RUNNING without an operation.
    pub auto_start: bool,
    /// Install packages from URLs; otherwise such an install is refused, and the package must be copied to the device
    /// first.
    pub installs_urls: bool,
    /// The maximum number of concurrent installs; further ones fail without a message.
    pub parallel_installs: usize,
    /// The state of an app that was told to stop: ACTIVATED, or STOPPED.
    pub stops_to: StopsTo,
    /// Report the IPv4 address of an app in its operational data; otherwise it is `0.0.0.0`, and only the ARP table
    /// has the address.
    pub reports_addresses: bool,
    /// The ARP list that is filled.
    pub arp_lists: ArpLists,
    /// The DHCP pool of apps without a static address. Its first address is the gateway's.
    pub dhcp_pool: Ipv4Net,
    /// The resources that apps can reserve.
    pub resources: Resources,
    /// The packages that can be installed; `None` for all with a readable location.
    pub packages: Option<BTreeSet<String>>,
    /// The serial number of its chassis.
    pub serial_number: String,
    /// The part number of its chassis.
    pub part_number: String,
    /// The version of its software, as in `Version 17.15.1a`.
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

/// The use of TLS. The certificate names the device and its address, and is signed by the site's own authority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// It does not.
    #[default]
    Off,
    /// It shows its certificate.
    Server,
    /// And it asks clients for one that the site's authority has signed, beside the password.
    Mutual,
}

/// Variations of the answers between devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Style {
    /// The form of `error` in the body of a refusal.
    pub error: ErrorForm,
    /// The answer of a GET of something empty.
    pub empty: Empty,
    /// The answer of a DELETE of what is not there.
    pub gone: Gone,
    /// The answer of an operation that was accepted.
    pub accepted: Accepted,
    /// The top of an answer that `fields` reduced.
    pub narrowed: Narrowed,
}

/// The form of `error` in the body of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorForm {
    /// An array of errors, as RFC 8040 (section 7.1) has it.
    #[default]
    Array,
    /// The one error itself.
    Object,
}

/// The answer of a GET of something empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Empty {
    /// 204.
    #[default]
    NoContent,
    /// 404 with `invalid-value`.
    NotFound,
}

/// The answer of a DELETE of what is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gone {
    /// 404 with `invalid-value`.
    #[default]
    NotFound,
    /// 409 with `data-missing`.
    DataMissing,
}

/// The answer of an operation that was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accepted {
    /// 204.
    #[default]
    NoContent,
    /// 200 with a text.
    Result,
}

/// The top of an answer that `fields` reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Narrowed {
    /// The requested resource, as without `fields`.
    #[default]
    Whole,
    /// The one member that is left of it.
    Member,
}

/// The state of an app that was told to stop.
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
    /// From the operation until the app is DEPLOYED.
    #[serde(with = "Milliseconds")]
    pub install: Duration,
    /// Until it is ACTIVATED.
    #[serde(with = "Milliseconds")]
    pub activate: Duration,
    /// Until it is RUNNING.
    #[serde(with = "Milliseconds")]
    pub start: Duration,
    /// From RUNNING until the app has an address, where that is not a static one.
    #[serde(with = "Milliseconds")]
    pub address: Duration,
    /// Until it is stopped.
    #[serde(with = "Milliseconds")]
    pub stop: Duration,
    /// Until it is DEPLOYED again.
    #[serde(with = "Milliseconds")]
    pub deactivate: Duration,
    /// Until nothing is left of it but its configuration.
    #[serde(with = "Milliseconds")]
    pub uninstall: Duration,
    /// The duration of the operation `copy`, which is answered when it is complete.
    #[serde(with = "Milliseconds")]
    pub copy: Duration,
}

impl Times {
    /// Each change takes this long; an address is there at once.
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

/// Resources that apps can reserve.
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
