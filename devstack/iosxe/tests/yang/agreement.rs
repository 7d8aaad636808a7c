//! The device and the validator agree on what may be sent.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::{CFG, RPC, app, ask, device};
use crate::yanglint::{Kind, Yanglint};

/// Nodes by their path in an app, each with values at the ends of what its type allows, and beyond them.
const LEAVES: &str = include_str!("leaves.json");

/// An app for each value, and what it is.
fn bodies() -> Vec<(String, Value)> {
    let leaves: BTreeMap<String, Vec<Value>> = serde_json::from_str(LEAVES).unwrap();
    let values = leaves.iter().flat_map(|(path, values)| values.iter().map(move |value| (path, value)));
    let bodies = values.map(|(path, value)| (format!("{path} = {value}"), body(path, value)));
    bodies.collect()
}

/// An app with this value at this place.
fn body(path: &str, value: &Value) -> Value {
    let value = match value["letters"].as_u64() {
        Some(count) => "x".repeat(usize::try_from(count).unwrap()).into(),
        None => value.clone(),
    };
    let mut body = app("web");
    let mut here = &mut body["Cisco-IOS-XE-app-hosting-cfg:app"][0];
    for name in path.split('/') {
        here = match name.parse::<usize>() {
            Ok(place) => &mut here[place],
            Err(_) => &mut here[name],
        };
    }
    *here = value;
    body
}

#[tokio::test]
#[ignore = "needs yanglint and the YANG modules: devstack/real/test"]
async fn the_device_takes_what_yanglint_finds_valid_and_nothing_else() {
    let yanglint = Yanglint::find();
    let (_site, device) = device(|_| ());
    let (mut taken, mut refused) = (0, 0);
    let mut differences = Vec::new();
    for (what, body) in bodies() {
        let answer = ask(&device, "POST", &format!("{CFG}/apps"), &body).await;
        match (answer.code, yanglint.complaint(Kind::Config, &body)) {
            (201, None) => taken += 1,
            (400 | 412, Some(_)) => refused += 1,
            (code, complaint) => differences.push(format!("{what}: {code} {}, {complaint:?}", answer.body)),
        }
        for app in device.apps() {
            ask(&device, "DELETE", &format!("{CFG}/apps/app={}", app.name), &Value::Null).await;
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(taken > 35 && refused > 40, "{taken} were taken and {refused} refused");
}

#[tokio::test]
#[ignore = "needs yanglint and the YANG modules: devstack/real/test"]
async fn the_device_takes_the_input_of_operations_that_yanglint_finds_valid_and_no_other() {
    let yanglint = Yanglint::find();
    let (_site, device) = device(|_| ());
    let operations = ["install", "uninstall", "activate", "deactivate", "start", "stop"];
    let each = |leaves: Value| operations.map(|operation| json!({ operation: leaves }));
    let all = [
        each(json!({ "appid": "a" })),
        each(json!({ "appid": "a", "package": "flash:/a.tar" })),
        each(json!({ "appid": 7 })),
        each(json!({ "appid": "a", "force": true })),
        each(json!("a")),
    ];
    for input in all.into_iter().flatten() {
        let body = json!({ "Cisco-IOS-XE-rpc:input": input });
        let answer = ask(&device, "POST", RPC, &body).await;
        let valid = yanglint.complaint(Kind::Rpc, &body).is_none();
        // The module does not say that an operation needs its app or package; a device does.
        let is_taken = answer.code != 400 || answer.tag() == "missing-element";
        assert_eq!(is_taken, valid, "{input}: {} {}", answer.code, answer.body);
    }
}
