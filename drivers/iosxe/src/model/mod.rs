//! The parts of the YANG modules that are used, as types. Revisions: app-hosting-cfg 2022-11-01, app-hosting-oper
//! 2023-03-01, arp-oper 2022-11-01, device-hardware-oper 2025-03-01, rpc 2025-07-10.

pub(crate) mod arp;
pub(crate) mod config;
pub(crate) mod hardware;
mod number;
pub(crate) mod oper;
pub(crate) mod operation;
mod top;

pub(crate) use top::read;

/// The resources under the root of RESTCONF.
pub(crate) mod path {
    pub(crate) const CONFIG: &str = "data/Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data";
    pub(crate) const APPS: &str = "data/Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data/apps";
    pub(crate) const OPER: &str = "data/Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data";
    pub(crate) const OPER_APPS: &str = "data/Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data?fields=app";
    pub(crate) const ARP: &str = "data/Cisco-IOS-XE-arp-oper:arp-data";
    pub(crate) const HARDWARE: &str = "data/Cisco-IOS-XE-device-hardware-oper:device-hardware-data";
    pub(crate) const OPERATION: &str = "operations/Cisco-IOS-XE-rpc:app-hosting";
}
