//! The device's own answers are valid, in every state of an app.

use serde_json::json;
use staffetta_iosxe_device::{Accepted, ArpLists, Device, Install, StopsTo, Style};

use crate::client::{ARP, CFG, HARDWARE, OPER, RPC, ask, configure, device, get, operate, until_state};
use crate::yanglint::{Kind, Yanglint};

/// All that it tells is valid.
async fn assert_valid(yanglint: &Yanglint, device: &Device, when: &str) {
    for (kind, path) in [
        (Kind::Config, CFG.to_owned()),
        (Kind::Data, OPER.to_owned()),
        (Kind::Data, format!("{OPER}?fields=app")),
        (Kind::Data, ARP.to_owned()),
        (Kind::Data, HARDWARE.to_owned()),
    ] {
        let answer = get(device, &path).await;
        if answer.code != 204 {
            assert_eq!(answer.code, 200, "{path}: {}", answer.body);
            let complaint = yanglint.complaint(kind, &answer.json());
            assert_eq!(complaint, None, "{when}: {path}: {}", answer.body);
        }
    }
}

#[tokio::test]
#[ignore = "needs yanglint and the YANG modules: devstack/real/test"]
async fn in_every_state_of_an_app_yanglint_finds_the_answers_of_the_device_valid() {
    let yanglint = Yanglint::find();
    for (stops_to, arp_lists, reports_addresses) in
        [(StopsTo::Stopped, ArpLists::Both, true), (StopsTo::Activated, ArpLists::Entry, false)]
    {
        let (_site, device) = device(|options| {
            (options.stops_to, options.arp_lists) = (stops_to, arp_lists);
            (options.reports_addresses, options.auto_start) = (reports_addresses, false);
        });
        let patience = std::time::Duration::from_secs(3600);
        device.plan_installs("slow", 1, Install::Takes(patience));
        device.plan_installs("bad", 1, Install::Breaks("the package is broken".into()));
        device.plan_installs("none", 1, Install::Fails("no such package".into()));
        assert_valid(&yanglint, &device, "empty").await;
        configure(&device, "web").await;
        for (app, state) in [("bad", Some("ERROR")), ("none", None)] {
            operate(&device, "install", app).await;
            until_state(&device, app, state).await;
        }
        let stopped = if stops_to == StopsTo::Stopped { "STOPPED" } else { "ACTIVATED" };
        for (operation, state) in [
            ("install", Some("DEPLOYED")),
            ("activate", Some("ACTIVATED")),
            ("start", Some("RUNNING")),
            ("stop", Some(stopped)),
            ("deactivate", Some("DEPLOYED")),
            ("uninstall", None),
        ] {
            assert_eq!(operate(&device, operation, "web").await.code, 204, "{operation}");
            until_state(&device, "web", state).await;
            assert_valid(&yanglint, &device, operation).await;
        }
        operate(&device, "install", "slow").await;
        until_state(&device, "slow", Some("INSTALLING")).await;
        assert_valid(&yanglint, &device, "installing").await;
    }
}

#[tokio::test]
#[ignore = "needs yanglint and the YANG modules: devstack/real/test"]
async fn yanglint_finds_the_output_of_an_operation_valid() {
    let yanglint = Yanglint::find();
    let (_site, device) =
        device(|options| options.style = Style { accepted: Accepted::Result, ..Style::default() });
    let input =
        json!({ "Cisco-IOS-XE-rpc:input": { "install": { "appid": "web", "package": "flash:/a.tar" } } });
    assert_eq!(yanglint.complaint(Kind::Rpc, &input), None);
    let output = ask(&device, "POST", RPC, &input).await.json();
    assert_eq!(yanglint.complaint(Kind::Reply, &output), None);
    let wrong = json!({ "Cisco-IOS-XE-rpc:output": { "outcome": "none" } });
    assert!(yanglint.complaint(Kind::Reply, &wrong).is_some());
}
