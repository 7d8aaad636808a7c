//! Hardware data: the chassis and the running software.

use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::date_and_time;
use crate::iox::Iox;

/// Generates the data below `device-hardware-data`. `booted` is the time of the last boot.
pub(crate) fn hardware(iox: &Iox, booted: Timestamp, now: Instant) -> Value {
    let options = &iox.options;
    let version = &options.version;
    json!({
        "device-hardware": {
            "device-inventory": [
                {
                    "hw-type": "hw-type-chassis",
                    "hw-dev-index": 1,
                    "version": "V00",
                    "part-number": options.part_number,
                    "serial-number": options.serial_number,
                    "hw-description": format!("{} Chassis", options.part_number),
                    "dev-name": "Chassis",
                    "field-replaceable": true,
                    "hw-class": "hw-class-physical",
                },
                {
                    "hw-type": "hw-type-dram",
                    "hw-dev-index": 2,
                    "hw-description": "Physical memory",
                    "dev-name": "DRAM",
                    "field-replaceable": false,
                    "hw-class": "hw-class-physical",
                },
            ],
            "device-system-data": {
                "current-time": date_and_time(iox.event_log.clock(now)),
                "boot-time": date_and_time(booted),
                "software-version": format!(
                    "Cisco IOS Software [IOSXE], Virtual XE Software (X86_64_LINUX_IOSD-UNIVERSALK9-M), Version {version}, \
                     RELEASE SOFTWARE (fc1)"
                ),
                "rommon-version": "IOS-XE ROMMON",
                "last-reboot-reason": "Reload Command",
                "reason-severity": "normal",
                "unsaved-config": false,
                "mac-address": "00:1e:14:c4:a3:00",
            },
        },
    })
}
