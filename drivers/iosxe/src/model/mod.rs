//! The parts of the Cisco IOS-XE YANG modules that this crate uses, as types. Revisions of the modules: app-hosting-cfg
//! 2022-11-01, app-hosting-oper 2023-03-01, arp-oper 2022-11-01, device-hardware-oper 2025-03-01, rpc 2025-07-10.

pub(crate) mod arp;
pub(crate) mod config;
pub(crate) mod hardware;
pub(crate) mod oper;
pub(crate) mod operation;
pub(crate) mod quote;
pub(crate) mod resource;
mod top;

pub(crate) use top::read;

/// The path of the list of configured applications below the RESTCONF root.
pub(crate) const APPS: &str = "data/Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data/apps";
