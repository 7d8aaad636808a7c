//! The operational data of an app, as in `app-hosting-oper-data/app`.

use std::net::Ipv4Addr;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::iox::{App, AppConfig, State};
use crate::options::Options;

/// The operational data of one app.
pub(crate) fn app(app: &App, config: AppConfig<'_>, options: &Options, now: Instant) -> Value {
    let mut data = json!({
        "name": app.name,
        "details": details(app, config),
        "pkg-policy": "iox-pkg-policy-unsigned",
    });
    if app.is_active() {
        let running = app.state == State::Running;
        data["utilization"] = utilization(app, config, running);
        data["storage-utils"] = json!({ "storage-util": [storage(config.profile(&app.name).disk_mb)] });
        data["network-interfaces"] = json!({ "network-interface": [interface(app, config, options, now)] });
        if running {
            data["network-utils"] = json!({ "network-util": [traffic(app, now)] });
            data["processes"] = json!({ "process": [process(app, now)] });
        }
    }
    data
}

fn details(app: &App, config: AppConfig<'_>) -> Value {
    let mut package = json!({
        "name": app.name,
        "path": app.package,
        "application": { "name": app.name, "installed-version": "1.0", "type": "docker", "owner": "iox" },
    });
    if app.package.contains("://") {
        package["url-path"] = app.package.clone().into();
    }
    let mut details = Map::new();
    details.insert("state".into(), app.reported().into());
    if app.state != State::Installing {
        details.insert("package-information".into(), package);
    }
    if app.is_active() {
        let profile = config.profile(&app.name);
        let reservation = json!({
            "disk": profile.disk_mb.to_string(),
            "memory": profile.memory_mb.to_string(),
            "cpu": profile.cpu_units.to_string(),
            "vcpu": config.vcpus(&app.name).to_string(),
        });
        details.insert("activated-profile-name".into(), "custom".into());
        details.insert("resource-reservation".into(), reservation);
        details.insert("docker-run-opts".into(), config.run_opts(&app.name).join(" ").into());
        details.insert("health-status".into(), 0.into());
    }
    details.into()
}

fn interface(app: &App, config: AppConfig<'_>, options: &Options, now: Instant) -> Value {
    let address = app.address_at(now).filter(|_| options.reports_addresses).unwrap_or(Ipv4Addr::UNSPECIFIED);
    json!({
        "mac-address": app.mac(),
        "attached-interface": "eth0",
        "ipv4-address": address,
        "network-name": config.interface(&app.name),
    })
}

fn utilization(app: &App, config: AppConfig<'_>, running: bool) -> Value {
    let profile = config.profile(&app.name);
    let (percent, kilobytes) = if running { (3, profile.memory_mb * 256) } else { (0, 0) };
    json!({
        "name": app.name,
        "cpu-util": {
            "requested-application-util": profile.cpu_units.to_string(),
            "actual-application-util": percent.to_string(),
            "cpu-state": if running { "RUNNING" } else { "STOPPED" },
        },
        "memory-util": {
            "memory-allocation": profile.memory_mb.to_string(),
            "memory-used": kilobytes.to_string(),
        },
    })
}

fn storage(megabytes: u64) -> Value {
    json!({
        "name": "disk",
        "alias": "Data",
        "capacity": (megabytes * 1024).to_string(),
        "available": (megabytes * 768).to_string(),
        "used": (megabytes * 256).to_string(),
        "usage": "25",
    })
}

/// Ten packets a second in each direction.
fn traffic(app: &App, now: Instant) -> Value {
    let packets = seconds(app, now) * 10;
    json!({
        "name": "eth0",
        "rx-packets": packets.to_string(),
        "rx-bytes": (packets * 400).to_string(),
        "rx-errors": "0",
        "tx-packets": packets.to_string(),
        "tx-bytes": (packets * 200).to_string(),
        "tx-errors": "0",
    })
}

fn process(app: &App, now: Instant) -> Value {
    json!({
        "name": "init",
        "status": "Running",
        "pid": "1",
        "uptime": seconds(app, now).to_string(),
        "memory": "1024",
    })
}

/// The time for which the app has been running, in seconds.
fn seconds(app: &App, now: Instant) -> u64 {
    app.started.map_or(0, |started| now.saturating_duration_since(started).as_secs())
}
