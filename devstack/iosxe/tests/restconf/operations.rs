//! The operation `app-hosting`, and `copy`.

use serde_json::json;
use staffetta_iosxe_device::{Accepted, Effect, Install, StopsTo, Style};

use crate::client::{OPER, RPC, ask, configure, device, get, operate, until_state};

#[tokio::test]
async fn only_the_input_of_the_module_is_understood() {
    let (_site, device) =
        device(|options| options.style = Style { accepted: Accepted::Result, ..Style::default() });
    let install = json!({ "install": { "appid": "web", "package": "flash:/hello.tar" } });
    let bare = ask(&device, "POST", RPC, &install).await;
    assert_eq!((bare.code, bare.tag().as_str()), (400, "malformed-message"));
    let input = |input| json!({ "Cisco-IOS-XE-rpc:input": input });
    for (what, body) in [
        ("none", json!({})),
        ("two", json!({ "start": { "appid": "a" }, "stop": { "appid": "a" } })),
        ("without a package", json!({ "install": { "appid": "a" } })),
        ("unknown", json!({ "launch": { "appid": "a" } })),
        ("an unknown leaf", json!({ "start": { "appid": "a", "force": true } })),
        ("a leaf of another operation", json!({ "start": { "appid": "a", "package": "flash:/a.tar" } })),
        ("no text", json!({ "install": { "appid": "a", "package": 7 } })),
        ("no container", json!({ "stop": "a" })),
    ] {
        assert_eq!(ask(&device, "POST", RPC, &input(body)).await.code, 400, "{what}");
    }
    let copy = json!({ "source-drop-node-name": "http://h/a.tar", "destination-drop-node-name": "flash:/a.tar", "verify": true });
    let answer = ask(&device, "POST", "/restconf/operations/Cisco-IOS-XE-rpc:copy", &input(copy)).await;
    assert_eq!((answer.code, answer.tag().as_str()), (400, "unknown-element"));
    let accepted = ask(&device, "POST", RPC, &input(install)).await;
    assert_eq!(accepted.code, 200);
    assert!(
        accepted.json()["Cisco-IOS-XE-rpc:output"]["result"].as_str().unwrap().contains("install of web")
    );
    assert_eq!(get(&device, RPC).await.code, 405);
}

#[tokio::test]
async fn an_accepted_install_may_fail_without_a_word_or_with_a_reason() {
    let (_site, device) = device(|_| ());
    device.plan_installs("web", 1, Install::FailsInSilence);
    device.plan_installs("web", 1, Install::Fails("the package is not signed".into()));
    configure(&device, "web").await;
    for _ in 0..2 {
        assert_eq!(operate(&device, "install", "web").await.code, 204);
        until_state(&device, "web", None).await;
    }
    let reported = get(&device, &format!("{OPER}?fields=app-notifications")).await.json();
    let reported =
        reported["Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data"]["app-notifications"].clone();
    let failed: Vec<_> =
        reported.as_array().unwrap().iter().filter(|one| one["status"] == "im-app-fail").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (&failed[0]["app-id"], &failed[0]["message"]),
        (&json!("web"), &json!("the package is not signed"))
    );
    operate(&device, "install", "web").await;
    until_state(&device, "web", Some("RUNNING")).await;
    assert_eq!(device.ledger().installs()["web"], 3);
}

#[tokio::test]
async fn an_app_that_ends_by_itself_or_is_asked_to_can_be_started_again() {
    let (_site, device) = device(|options| options.stops_to = StopsTo::Stopped);
    configure(&device, "web").await;
    operate(&device, "install", "web").await;
    until_state(&device, "web", Some("RUNNING")).await;
    assert!(device.crash("web") && !device.crash("web"));
    until_state(&device, "web", Some("STOPPED")).await;
    operate(&device, "start", "web").await;
    until_state(&device, "web", Some("RUNNING")).await;
    operate(&device, "stop", "web").await;
    until_state(&device, "web", Some("STOPPED")).await;
    let ledger = device.ledger();
    let ends = ledger.of("web").filter(|effect| matches!(effect, Effect::Crashed | Effect::Stopped));
    assert_eq!(ends.cloned().collect::<Vec<_>>(), [Effect::Crashed, Effect::Stopped]);
}

#[tokio::test]
async fn a_package_that_was_copied_to_the_flash_can_be_installed_from_there() {
    let (_site, device) = device(|options| options.packages = Some(["http://repo/hello.tar".into()].into()));
    let copy = "/restconf/operations/Cisco-IOS-XE-rpc:copy";
    let body = |from: &str| {
        json!({ "Cisco-IOS-XE-rpc:input": {
            "source-drop-node-name": from, "destination-drop-node-name": "flash:/hello.tar" } })
    };
    assert_eq!(ask(&device, "POST", copy, &body("http://elsewhere/hello.tar")).await.code, 500);
    assert_eq!(ask(&device, "POST", copy, &body("http://repo/hello.tar")).await.code, 204);
    configure(&device, "web").await;
    operate(&device, "install", "web").await;
    until_state(&device, "web", Some("RUNNING")).await;
    assert_eq!(device.files(), ["flash:/hello.tar"]);
    let delete = "/restconf/operations/Cisco-IOS-XE-rpc:delete";
    let of = |file: &str| json!({ "Cisco-IOS-XE-rpc:input": { "filename-drop-node-name": file } });
    assert_eq!(ask(&device, "POST", delete, &of("http://repo/hello.tar")).await.code, 400);
    assert_eq!(ask(&device, "POST", delete, &of("flash:/hello.tar")).await.code, 204);
    assert_eq!(ask(&device, "POST", delete, &of("flash:/hello.tar")).await.code, 500);
    assert_eq!(device.files(), [""; 0]);
}

#[tokio::test]
async fn a_device_that_answers_in_words_says_so_of_a_file_that_is_not_there() {
    let (_site, device) =
        device(|options| options.style = Style { accepted: Accepted::Result, ..Style::default() });
    let body = json!({ "Cisco-IOS-XE-rpc:input": { "filename-drop-node-name": "flash:/none.tar" } });
    let answer = ask(&device, "POST", "/restconf/operations/Cisco-IOS-XE-rpc:delete", &body).await;
    let said = answer.json()["Cisco-IOS-XE-rpc:output"]["result"].as_str().unwrap().to_owned();
    assert!(answer.code == 200 && said.starts_with("%Error deleting flash:/none.tar"), "{said}");
}

#[tokio::test]
async fn a_device_that_installs_from_no_url_says_so() {
    let (_site, device) = device(|options| options.installs_urls = false);
    let install = json!({ "install": { "appid": "web", "package": "https://repo/hello.tar" } });
    let answer = ask(&device, "POST", RPC, &json!({ "Cisco-IOS-XE-rpc:input": install })).await;
    assert_eq!((answer.code, answer.tag().as_str()), (400, "invalid-value"));
}
