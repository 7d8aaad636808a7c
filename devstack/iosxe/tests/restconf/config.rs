//! The configuration: POST, GET, PUT, PATCH and DELETE, and what the module does not allow.

use serde_json::{Value, json};
use staffetta_iosxe_device::{Empty, ErrorForm, Gone, Style};

use crate::client::{Asking, CFG, app, ask, configure, device, get, operate, until_state};

const APP: &str = "Cisco-IOS-XE-app-hosting-cfg:app";

fn apps() -> String {
    format!("{CFG}/apps")
}

#[tokio::test]
async fn an_app_is_made_once_read_changed_and_removed_once() {
    let (_site, device) = device(|_| ());
    let made = configure(&device, "web_1").await;
    assert_eq!((made.code, made.body.as_str()), (201, ""));
    assert!(made.head.contains("location: ") && made.head.contains("/apps/app=web_1"), "{}", made.head);
    let twice = configure(&device, "web_1").await;
    assert_eq!((twice.code, twice.tag().as_str()), (409, "data-exists"));

    let path = format!("{}/app=web_1", apps());
    assert_eq!(get(&device, &path).await.json(), app("web_1"));
    let all = get(&device, CFG).await.json();
    assert_eq!(
        all["Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data"]["apps"]["app"][0],
        app("web_1")[APP][0]
    );

    let line = json!({ "line-index": 3, "line-run-opts": "--label more=1" });
    let patch = json!({ APP: [{ "application-name": "web_1", "start": false, "run-optss": { "run-opts": [line] } }] });
    assert_eq!(ask(&device, "PATCH", &path, &patch).await.code, 204);
    let patched = get(&device, &path).await.json()[APP][0].clone();
    assert_eq!(patched["run-optss"]["run-opts"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&patched["start"], &patched["application-resource-profile"]["cpu-units"]),
        (&json!(false), &json!(1000))
    );

    let put = json!({ APP: [{ "application-name": "web_1" }] });
    assert_eq!(ask(&device, "PUT", &path, &put).await.code, 204);
    assert_eq!(get(&device, &path).await.json(), put);
    let other = format!("{}/app=other", apps());
    let made = ask(&device, "PUT", &other, &json!({ APP: [{ "application-name": "other" }] })).await;
    assert_eq!(made.code, 201);

    for path in [&path, &other] {
        assert_eq!(ask(&device, "DELETE", path, &Value::Null).await.code, 204);
        assert_eq!(ask(&device, "DELETE", path, &Value::Null).await.code, 404);
        assert_eq!(ask(&device, "PATCH", path, &put).await.code, if *path == other { 400 } else { 404 });
    }
    assert!(device.ledger().existing().is_empty());
}

#[tokio::test]
async fn what_the_module_does_not_allow_is_refused_with_its_tag_and_changes_nothing() {
    let (_site, device) = device(|_| ());
    let with = |pointer: &str, value: Value| {
        let mut body = app("web");
        *body.pointer_mut(&format!("/{APP}/0{pointer}")).unwrap() = value;
        body
    };
    let profile = |leaf: &str, value: Value| with(&format!("/application-resource-profile/{leaf}"), value);
    let rule = |id: u32| {
        let mut body = app("web");
        body[APP][0]["appintf-vlan-rules"] = json!({ "appintf-vlan-rule": [{ "vlan-id": id }] });
        body
    };
    let mut unknown = app("web");
    unknown[APP][0]["docker"] = true.into();
    let mut keyless = app("web");
    keyless[APP][0].as_object_mut().unwrap().remove("application-name");
    let mut twice = app("web");
    twice[APP][0]["run-optss"]["run-opts"][1]["line-index"] = 1.into();
    let refused = [
        ("a name of 41 characters", app(&"a".repeat(41)), 400, "invalid-value"),
        ("a name with a hyphen", app("web-1"), 400, "invalid-value"),
        (
            "a line of 236 characters",
            with("/run-optss/run-opts/0/line-run-opts", "x".repeat(236).into()),
            400,
            "invalid-value",
        ),
        ("line 31", with("/run-optss/run-opts/0/line-index", 31.into()), 400, "invalid-value"),
        ("two lines with one number", twice, 400, "invalid-value"),
        ("32000 CPU units", profile("cpu-units", 32000.into()), 400, "invalid-value"),
        ("32768 MB", profile("memory-capacity-mb", 32768.into()), 400, "invalid-value"),
        ("a number as text", profile("vcpu", "1".into()), 400, "invalid-value"),
        ("a profile with a space", profile("profile-name", "my own".into()), 400, "invalid-value"),
        (
            "interface 4",
            with("/application-network-resource/virtualportgroup-guest-interface-name-1", "4".into()),
            400,
            "invalid-value",
        ),
        ("VLAN 0", rule(0), 412, "operation-failed"),
        ("VLAN 4095", rule(4095), 412, "operation-failed"),
        ("an unknown leaf", unknown, 400, "unknown-element"),
        ("no key", keyless, 400, "missing-element"),
        ("no module", json!({ "app": [{ "application-name": "web" }] }), 400, "malformed-message"),
        (
            "two apps",
            json!({ APP: [{ "application-name": "a" }, { "application-name": "b" }] }),
            400,
            "malformed-message",
        ),
    ];
    for (what, body, code, tag) in refused {
        let answer = ask(&device, "POST", &apps(), &body).await;
        assert_eq!((answer.code, answer.tag().as_str()), (code, tag), "{what}: {}", answer.body);
    }
    assert_eq!(get(&device, &apps()).await.code, 204);
    for body in [app(&"a".repeat(40)), profile("cpu-units", 20000.into()), rule(4094)] {
        let name = body[APP][0]["application-name"].as_str().unwrap().to_owned();
        assert_eq!(ask(&device, "POST", &apps(), &body).await.code, 201);
        assert_eq!(ask(&device, "DELETE", &format!("{}/app={name}", apps()), &Value::Null).await.code, 204);
    }
}

#[tokio::test]
async fn requests_of_another_form_are_refused() {
    let (_site, device) = device(|_| ());
    let (path, body) = (apps(), app("web"));
    let post = |path| Asking::new("POST", path, &body);
    let wrong_type = post(&path).header("Content-Type", "application/json").of(&device).await.unwrap();
    assert_eq!(wrong_type.code, 415);
    let wrong_accept = post(&path).header("Accept", "text/html").of(&device).await.unwrap();
    assert_eq!(wrong_accept.code, 406);
    let no_json = Asking { body: "{".into(), ..post(&path) }.of(&device).await.unwrap();
    assert_eq!((no_json.code, no_json.tag().as_str()), (400, "malformed-message"));
    assert_eq!(ask(&device, "DELETE", &format!("{path}?fields=app"), &Value::Null).await.code, 400);
    assert_eq!(get(&device, &format!("{CFG}?with-defaults=trim")).await.code, 400);
    assert_eq!(get(&device, &format!("{path}/application")).await.code, 404);
    assert_eq!(get(&device, "/restconf/data/Cisco-IOS-XE-native:native").await.code, 404);
    assert_eq!(ask(&device, "PUT", crate::client::OPER, &body).await.code, 405);
    assert_eq!(post(&path).of(&device).await.unwrap().code, 201, "and nothing else was wrong with it");
}

#[tokio::test]
async fn the_configuration_of_an_installed_app_cannot_be_removed() {
    let (_site, device) = device(|_| ());
    configure(&device, "web").await;
    operate(&device, "install", "web").await;
    let path = format!("{}/app=web", apps());
    let refused = ask(&device, "DELETE", &path, &Value::Null).await;
    assert_eq!((refused.code, refused.tag().as_str()), (409, "in-use"));
    until_state(&device, "web", Some("RUNNING")).await;
    for (operation, state) in [("stop", "ACTIVATED"), ("deactivate", "DEPLOYED")] {
        assert_eq!(operate(&device, operation, "web").await.code, 204);
        until_state(&device, "web", Some(state)).await;
    }
    operate(&device, "uninstall", "web").await;
    until_state(&device, "web", None).await;
    assert_eq!(ask(&device, "DELETE", &path, &Value::Null).await.code, 204);
    assert!(device.ledger().existing().is_empty() && device.apps().is_empty());
}

#[tokio::test]
async fn devices_differ_in_how_they_say_nothing_is_there() {
    let (_site, strict) = device(|options| {
        options.style = Style {
            error: ErrorForm::Object,
            empty: Empty::NotFound,
            gone: Gone::DataMissing,
            ..Style::default()
        };
    });
    let empty = get(&strict, &apps()).await;
    assert_eq!((empty.code, empty.tag().as_str()), (404, "invalid-value"));
    assert!(empty.json()["ietf-restconf:errors"]["error"].is_object());
    let gone = ask(&strict, "DELETE", &format!("{}/app=web", apps()), &Value::Null).await;
    assert_eq!((gone.code, gone.tag().as_str()), (409, "data-missing"));
    let (_site, other) = device(|_| ());
    assert_eq!(get(&other, CFG).await.code, 204);
    let gone = ask(&other, "DELETE", &format!("{}/app=web", apps()), &Value::Null).await;
    assert!(gone.json()["ietf-restconf:errors"]["error"].is_array());
}
