//! Compares translated pods with golden files. `GOLDEN=overwrite` rewrites the files.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use staffetta_driver::app_hosting::DeviceSpec;
use staffetta_driver::virtual_node::EnvironmentVariable;

use super::*;
use crate::app::image::copy_of;
use crate::model::operation::DeviceOperation;

const UID: &str = "00000000-0000-0000-0000-000000000001";

fn spec(interface: &Value) -> DeviceSpec {
    let networking = json!({ "interface": interface });
    let spec = json!({
        "driver": "XE", "address": "r1", "podCIDR": "10.0.0.0/24", "xe": { "networking": networking },
    });
    serde_json::from_value(spec).unwrap()
}

fn translator(spec: &DeviceSpec) -> Translator {
    let limits = AppResourceLimits::read(&spec.resource_limits).unwrap();
    Translator::new(&"east".into(), limits, PodNetwork::read(spec).unwrap())
}

fn pod(name: &str, containers: &Value) -> PodRequest {
    let pod = json!({
        "metadata": { "namespace": "shop", "name": name, "uid": UID }, "spec": { "containers": containers },
    });
    PodRequest { pod: Arc::new(serde_json::from_value(pod).unwrap()), environment: [].into() }
}

fn simple() -> PodRequest {
    pod("web", &json!([{ "name": "app", "image": "flash:/hello.tar" }]))
}

/// Compares a request body with the golden file of this name.
fn golden(name: &str, body: &Value) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(body).unwrap());
    if std::env::var_os("GOLDEN").is_some_and(|word| word == "overwrite") {
        std::fs::write(&file, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(kept, text, "{name}: run with GOLDEN=overwrite when this is meant");
}

/// Returns the configuration in the complete container, as a YANG validator needs it.
fn config(app: &Value) -> Value {
    json!({ "Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data": { "apps": { "app": [app] } } })
}

fn run_options(app: &Value) -> RunOptions {
    serde_json::from_value(app["run-optss"].clone()).unwrap()
}

fn translated(interface: &Value, request: &PodRequest, address: Option<&str>) -> Value {
    let pod = translator(&spec(interface)).translate(request).unwrap();
    config(&pod.apps[0].config(address.map(|address| address.parse().unwrap()), false))
}

#[test]
fn each_type_of_interface_has_a_body_of_its_own() {
    let group = |dhcp: bool| json!({ "type": "VirtualPortGroup", "virtualPortGroup": { "dhcp": dhcp, "interface": "2", "guestInterface": 1 } });
    let ethernet = |section: Value| json!({ "type": "AppGigabitEthernet", "appGigabitEthernet": section });
    let vlan = json!({
        "vlan": 100, "guestInterface": 2, "macForwardingEnabled": true, "multicastEnabled": true,
        "mirrorEnabled": true,
    });
    let with_dhcp = json!({ "vlan": 4094, "dhcp": true });
    let management = |dhcp: bool| json!({ "type": "Management", "management": { "dhcp": dhcp } });
    let address = Some("10.0.0.2");
    for (name, interface, address) in [
        ("config-port-group-dhcp", group(true), None),
        ("config-port-group-static", group(false), address),
        (
            "config-access-dhcp",
            ethernet(json!({ "mode": "access", "dhcp": true, "guestInterface": 63 })),
            None,
        ),
        ("config-access-vlan-static", ethernet(json!({ "mode": "access", "vlanIf": vlan })), address),
        ("config-trunk-dhcp", ethernet(json!({ "mode": "trunk", "vlanIf": with_dhcp })), None),
        ("config-trunk-static", ethernet(json!({ "mode": "trunk", "vlanIf": vlan })), address),
        ("config-management-dhcp", management(true), None),
        ("config-management-static", management(false), address),
    ] {
        golden(name, &translated(&interface, &simple(), address));
    }
}

#[test]
fn the_ends_of_every_range_have_bodies() {
    let interface = json!({ "type": "VirtualPortGroup", "virtualPortGroup": { "dhcp": true } });
    let most = json!({
        "requests": { "cpu": "20", "memory": "16Gi", "storage": "65535Mi" }, "limits": { "cpu": "65535" },
    });
    let mut largest = pod(
        &"p".repeat(253),
        &json!([{ "name": "c".repeat(63), "image": "https://h/a.tar", "resources": most }]),
    );
    let pod_of = Arc::make_mut(&mut largest.pod);
    pod_of.metadata.namespace = Some("n".repeat(63));
    let dns = json!({ "nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "2001:db8::5"] });
    pod_of.spec.as_mut().unwrap().dns_config = Some(serde_json::from_value(dns).unwrap());
    let environment = (0..23).map(|n| EnvironmentVariable::new(format!("V{n:02}"), "x".repeat(228)));
    largest.environment = [("c".repeat(63), environment.collect())].into();
    golden("config-largest", &translated(&interface, &largest, None));
    let least =
        json!({ "requests": { "cpu": "1n", "memory": "1", "storage": "1" }, "limits": { "cpu": "1m" } });
    let smallest = pod("p", &json!([{ "name": "c", "image": "usb0:a", "resources": least }]));
    golden("config-smallest", &translated(&interface, &smallest, None));
}

#[test]
fn each_step_has_a_body() {
    let appid = || translator(&DeviceSpec::default()).translate(&simple()).unwrap().apps[0].id.clone();
    let package = "flash:/hello.tar".to_owned();
    for (name, operation) in [
        ("rpc-install", DeviceOperation::Install { appid: appid(), package }),
        ("rpc-activate", DeviceOperation::Activate { appid: appid() }),
        ("rpc-start", DeviceOperation::Start { appid: appid() }),
        ("rpc-stop", DeviceOperation::Stop { appid: appid() }),
        ("rpc-deactivate", DeviceOperation::Deactivate { appid: appid() }),
        ("rpc-uninstall", DeviceOperation::Uninstall { appid: appid() }),
    ] {
        golden(name, &json!({ "Cisco-IOS-XE-rpc:app-hosting": operation.input() }));
    }
}

#[test]
fn the_way_over_the_flash_has_bodies_and_changes_one_line_of_the_configuration() {
    let request = pod("web", &json!([{ "name": "app", "image": "https://h/a.tar" }]));
    let app = translator(&DeviceSpec::default()).translate(&request).unwrap().apps.remove(0);
    let apps = json!({ "app": app.diversion(&app.id)["Cisco-IOS-XE-app-hosting-cfg:app"] });
    golden(
        "config-divert",
        &json!({ "Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data": { "apps": apps } }),
    );
    let (to, from) = (copy_of(&app.id), app.package.clone());
    golden(
        "rpc-copy",
        &json!({ "Cisco-IOS-XE-rpc:copy": DeviceOperation::Copy { from, to: to.clone() }.input() }),
    );
    golden("rpc-delete", &json!({ "Cisco-IOS-XE-rpc:delete": DeviceOperation::Delete { file: to }.input() }));
    let copied = AppMark::read(&run_options(&app.config(None, true))).unwrap();
    let plain = AppMark::read(&run_options(&app.config(None, false))).unwrap();
    assert_eq!(copied, AppMark { copied: true, ..plain });
}

#[test]
fn the_environment_comes_from_the_request_and_a_value_that_does_not_fit_is_refused_without_being_reported() {
    let mut request = simple();
    let variable = |value: &str| vec![EnvironmentVariable::new("TOKEN", value)];
    request.environment = [("app".to_owned(), variable("s3cret"))].into();
    let translator = translator(&DeviceSpec::default());
    let app = translator.translate(&request).unwrap().apps.remove(0).config(None, false);
    assert_eq!(run_options(&app).run_opts.last().unwrap().line_run_opts, "-e TOKEN=s3cret");
    request.environment = [("app".to_owned(), variable("two words"))].into();
    let error = translator.translate(&request).unwrap_err().to_string();
    assert!(error.contains("spec.containers{app}.env `TOKEN`: ") && !error.contains("words"), "{error}");
}

#[test]
fn a_form_changes_with_image_and_resources_and_with_nothing_else() {
    let form = |container: Value, environment: &str| {
        let mut request = pod("web", &json!([container]));
        request.environment = [("app".to_owned(), vec![EnvironmentVariable::new("A", environment)])].into();
        translator(&DeviceSpec::default()).translate(&request).unwrap().apps[0].form.clone()
    };
    let first = form(json!({ "name": "app", "image": "flash:a.tar" }), "1");
    assert_eq!(form(json!({ "name": "app", "image": "flash:a.tar" }), "2"), first);
    assert_ne!(form(json!({ "name": "app", "image": "flash:b.tar" }), "1"), first);
    let resources = json!({ "requests": { "cpu": "2" } });
    assert_ne!(form(json!({ "name": "app", "image": "flash:a.tar", "resources": resources }), "1"), first);
}

proptest! {
    #[test]
    fn whatever_is_translated_stays_within_the_module(
        name in "[a-z0-9.-]{1,253}", container in "[a-z0-9-]{1,63}", cpu in 0..25_000_u32, memory in 0..20_000_u32,
        values in prop_oneof![
            2 => prop::collection::vec("[a-zA-Z0-9:/._-]{0,150}", 0..40),
            1 => prop::collection::vec("[a-zA-Z0-9:/._-]{120,150}", 25..40), // each needs a line of its own
            1 => prop::collection::vec(".{0,300}", 0..40),
        ],
    ) {
        let plain = |c: char| c.is_ascii_alphanumeric() || ":/._-".contains(c);
        let few_and_plain = values.len() <= 10 && values.iter().all(|value| value.len() <= 150 && value.chars().all(plain));
        let resources = json!({ "requests": { "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") } });
        let mut request =
            pod(&name, &json!([{ "name": container, "image": "flash:a.tar", "resources": resources }]));
        let environment = values.into_iter().enumerate();
        let environment = environment.map(|(n, value)| EnvironmentVariable::new(format!("V{n}"), value)).collect();
        request.environment = [(container, environment)].into();
        if let Ok(pod) = translator(&DeviceSpec::default()).translate(&request) {
            let app = pod.apps[0].config(None, false);
            let options = run_options(&app);
            let lines = &options.run_opts;
            prop_assert!(lines.len() <= 30 && lines.iter().all(|line| line.line_run_opts.len() <= 235));
            prop_assert!(lines.iter().zip(1..).all(|(line, index)| line.line_index == index));
            let profile = &app["application-resource-profile"];
            let amount = |leaf: &str| profile[leaf].as_u64().unwrap();
            prop_assert!(amount("cpu-units") <= 20_000 && amount("memory-capacity-mb") <= 16_384);
            let mark = AppMark::read(&options).unwrap();
            prop_assert_eq!(mark.owner.uid.as_str(), UID);
        } else {
            prop_assert!(cpu > 20_000 || memory > 16_384 || !few_and_plain);
        }
    }
}

#[test]
fn containers_whose_applications_would_have_one_name_are_refused_with_both_names() {
    let containers = ["c17439", "c24164"].map(|name| json!({ "name": name, "image": "flash:/a.tar" }));
    let error = translator(&spec(&json!({ "type": "VirtualPortGroup", "virtualPortGroup": {} })))
        .translate(&pod("web", &json!(containers)))
        .unwrap_err();
    assert!(
        error.to_string().contains("spec.containers: `c17439` and `c24164`") && !error.transient(),
        "{error}"
    );
    for container in containers {
        assert!(
            translator(&spec(&json!({ "type": "VirtualPortGroup", "virtualPortGroup": {} })))
                .translate(&pod("web", &json!([container])))
                .is_ok()
        );
    }
}
