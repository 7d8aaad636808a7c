//! Devices: from the configuration, from files, and from custom resources at run time.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta_virtual_node::app_hosting::{CiscoDevice, DeviceDescription};

use crate::custom_resource::{
    DEFINITION, change, define, device, devices, for_devices, message, options, secret, until_gone,
    until_phase, world,
};
use crate::world::World;

#[tokio::test]
async fn a_device_of_a_file_is_a_node_and_pods_run_on_it() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), "device:\n  driver: FAKE\n  address: 192.0.2.7\n  zone: a\n").unwrap();
    let world = world(&format!("device_files = [{:?}]", file.path())).await;
    let controller = world.controller().await;
    let node = world.node_ready("cisco-vk-192-0-2-7", "True").await;
    assert_eq!(node.metadata.labels.unwrap()["topology.kubernetes.io/zone"], "a");
    world.pod("web", json!({ "nodeName": "cisco-vk-192-0-2-7" })).await;
    let pod = world.pod_in("web", "Running").await;
    assert_eq!(pod.status.unwrap().host_ip.as_deref(), Some("192.0.2.7"));
    world.delete("web").await;
    world.until_pod_is_gone("web").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn devices_of_the_configuration_are_nodes_with_the_password_of_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "hunter2\n").unwrap();
    let devices = format!(
        "devices = [{{ name = \"edge\", passwordFile = {password:?}, device = {{ address = \"192.0.2.7\", zone = \"a\", podCIDR = \"10.0.0.0/24\" }} }},\n\
         {{ device = {{ address = \"192.0.2.8\", maxPods = 3 }} }}]"
    );
    let world = world(&devices).await;
    let controller = world.controller().await;
    let edge = world.node_ready("edge", "True").await;
    assert_eq!(edge.metadata.labels.unwrap()["topology.kubernetes.io/zone"], "a");
    let other = world.node_ready("cisco-vk-192-0-2-8", "True").await;
    assert_eq!(other.status.unwrap().capacity.unwrap()["pods"].0, "3");
    controller.stop().await.unwrap();
}

#[test]
fn what_is_wrong_with_a_device_of_the_configuration_is_reported_with_its_place_and_without_its_password() {
    let registry = staffetta::assembly::registry();
    let schema = staffetta::config::FileSchema::assemble(&registry).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let wrong = "[[app_hosting.devices]]\nname = \"Edge\"\n[app_hosting.devices.device]\nadress = \"192.0.2.1\"\npassword = 7\n\
                 [[app_hosting.devices]]\ndevice = { address = \"r\", port = 70000, password = \"hunter2\" }\n";
    std::fs::write(file.path(), wrong).unwrap();
    let error =
        || staffetta::config::Configuration::load(&schema, Some(file.path()), []).unwrap_err().to_string();
    let mistakes = error();
    for part in [":2:8: ", ":4:1: ", "did you mean \"address\"", ":5:12: ", ":7:", "65535"] {
        assert!(mistakes.contains(part), "{part} in {mistakes}");
    }
    assert!(!mistakes.contains("hunter2"), "{mistakes}");
    let incomplete = "[[app_hosting.devices]]\ndevice = { password = \"hunter2\" }\n";
    std::fs::write(file.path(), incomplete).unwrap();
    let missing = error();
    assert!(missing.contains("missing field `address`") && missing.contains(":2:"), "{missing}");
    assert!(!missing.contains("hunter2"), "{missing}");
    let right = "[[app_hosting.devices]]\ndevice = { address = \"r1\", password = \"hunter2\" }\n";
    std::fs::write(file.path(), right).unwrap();
    let cluster_id = ("STAFFETTA_KUBERNETES__CLUSTER_ID".into(), "kubernetes".into());
    let configuration =
        staffetta::config::Configuration::load(&schema, Some(file.path()), [cluster_id]).unwrap();
    let shown = configuration.show(&schema);
    assert!(shown.contains("devices = \"(secret)\"") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn what_the_driver_of_a_device_refuses_is_reported_by_the_check_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (options, devices) = (folder.path().join("staffetta.toml"), folder.path().join("devices.yaml"));
    let handler = "[kubernetes]\nenabled_handlers = [\"app_hosting\"]\n";
    let section = format!("{handler}[app_hosting]\nkubelet = false\ndevice_files = [{devices:?}]\n");
    std::fs::write(&options, section).unwrap();
    let two = "type: Management, management: {dhcp: true}, virtualPortGroup: {dhcp: true}";
    let account = "address: r1, username: admin, password: hunter2";
    for (device, expected) in [
        (format!("device: {{driver: XE, {account}, xe: {{}}}}"), None),
        (format!("device: {{driver: XR, {account}}}"), Some("device `cisco-vk-r1`: ")),
        (format!("device: {{driver: XE, {account}}}"), Some("xe: required")),
        (
            format!("device: {{driver: XE, {account}, xe: {{networking: {{interface: {{{two}}}}}}}}}"),
            Some("xe.networking.interface"),
        ),
        (format!("device: {{driver: XE, {account}, port: 0, xe: {{}}}}"), Some("port: must be 1 to 65535")),
        (
            format!(
                "device: {{driver: XE, {account}, tls: {{enabled: false, certificateSha256: a}}, xe: {{}}}}"
            ),
            Some("tls.enabled: "),
        ),
        (
            format!("device: {{driver: XE, {account}, tls: {{caFile: /nowhere.pem}}, xe: {{}}}}"),
            Some("tls.caFile: "),
        ),
        ("# none yet".to_owned(), Some("it has neither `device:` nor `devices:`")),
    ] {
        std::fs::write(&devices, &device).unwrap();
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_staffetta"));
        let output = check.args(["config", "check", "--config"]).arg(&options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), expected.is_none(), "{device}: {said}");
        assert!(said.contains(expected.unwrap_or_default()) && !said.contains("hunter2"), "{device}: {said}");
    }
}

#[tokio::test]
async fn a_device_comes_changes_and_goes_with_its_custom_resource() {
    let world = world("").await;
    let controller = world.controller().await;
    device(&world, "r1", json!({ "driver": "FAKE", "address": "one" })).await;
    world.node_ready("r1", "True").await;
    let ready = until_phase(&world, "r1", "Ready").await;
    assert_eq!(ready.metadata.finalizers.unwrap(), ["cisco.vk/device-cleanup"]);
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;

    let change = json!({ "spec": { "maxPods": 3, "labels": { "rack": "9" } } });
    devices(&world).patch("r1", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    world
        .until("the node has the label and the number", async || {
            let node = world.nodes().get("r1").await.unwrap();
            node.metadata.labels.unwrap().get("rack").is_some_and(|rack| rack == "9")
                && node.status.unwrap().capacity.unwrap()["pods"].0 == "3"
        })
        .await;

    devices(&world).delete("r1", &DeleteParams::default()).await.unwrap();
    world.until("its node is gone", async || world.nodes().get_opt("r1").await.unwrap().is_none()).await;
    world.until("it is gone itself", async || devices(&world).get_opt("r1").await.unwrap().is_none()).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_without_a_valid_description_goes_with_its_node_and_the_workloads_that_stay_are_reported() {
    let world = world("").await;
    let controller = world.controller().await;
    device(&world, "r1", json!({ "driver": "FAKE", "address": "one" })).await;
    world.node_ready("r1", "True").await;
    world.pod("web", json!({ "nodeName": "r1" })).await;
    world.pod_in("web", "Running").await;
    controller.stop().await.unwrap();
    change(&world, "r1", json!({ "colour": "red" })).await;
    let controller = world.controller().await;
    until_phase(&world, "r1", "Error").await;
    assert!(world.nodes().get_opt("r1").await.unwrap().is_some());
    devices(&world).delete("r1", &DeleteParams::default()).await.unwrap();
    let reported = world.until_reported("LeftAsItIs").await;
    assert!(reported.contains("without a valid description; workloads of 1 pod may remain"), "{reported}");
    until_gone(&world, "r1").await;
    assert!(world.nodes().get_opt("r1").await.unwrap().is_none());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_that_cannot_be_right_or_has_the_name_of_another_says_so() {
    let world = world("devices = [{ name = \"r1\", device = { address = \"one\" } }]").await;
    let controller = world.controller().await;
    device(&world, "wrong", json!({ "driver": "FAKE", "address": "x", "colour": "red" })).await;
    let wrong = message(until_phase(&world, "wrong", "Error").await);
    assert!(wrong.contains("colour"), "{wrong}");
    device(&world, "strange", json!({ "driver": "XR", "address": "x" })).await;
    let strange = message(until_phase(&world, "strange", "Error").await);
    assert!(strange.contains("unsupported device type `XR`"), "{strange}");
    world.node_ready("r1", "True").await;
    device(&world, "r1", json!({ "driver": "FAKE", "address": "two" })).await;
    let second = until_phase(&world, "r1", "Error").await;
    assert_eq!(second.status.unwrap().conditions[0].reason, "NodeNameTaken");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_custom_resource_with_an_address_label_or_file_that_is_not_allowed_is_refused() {
    let world = world("").await;
    let controller = world.controller().await;
    for (name, more, field) in [
        ("stranger", json!({ "address": "169.254.169.254" }), "spec.address: "),
        ("role", json!({ "labels": { "node-role.kubernetes.io/control-plane": "" } }), "spec.labels: "),
        ("file", json!({ "tls": { "caFile": "/etc/hostname" } }), "spec.tls.caFile: "),
    ] {
        let mut spec = json!({ "driver": "FAKE", "address": "one" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        device(&world, name, spec).await;
        let message = message(until_phase(&world, name, "Error").await);
        assert!(message.starts_with(field) && message.contains("app_hosting."), "{message}");
        assert!(world.nodes().get_opt(name).await.unwrap().is_none());
    }
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_custom_resource_in_a_namespace_makes_no_node() {
    let mut world = World::new().await;
    define(&world, &DEFINITION.replace("scope: Cluster", "scope: Namespaced")).await;
    world.options = options("");
    let controller = world.controller().await;
    let kind = kube::core::ApiResource::erase::<CiscoDevice>(&());
    let devices: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), "default", &kind);
    let spec = json!({ "driver": "FAKE", "address": "one" });
    let device = json!({ "metadata": { "name": "r1" }, "spec": spec });
    devices.create(&PostParams::default(), &serde_json::from_value(device).unwrap()).await.unwrap();
    let reported = world.until_reported("DeviceInvalid").await;
    assert!(reported.contains("replace its definition"), "{reported}");
    assert!(world.nodes().get_opt("r1").await.unwrap().is_none());
    assert_eq!(devices.get("r1").await.unwrap().metadata.finalizers, None);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_of_a_namespace_that_is_not_listed_gets_no_secret() {
    let mut world = world("").await;
    world.options = world.options.replace("secret_namespaces = [\"default\"]\n", "");
    let controller = world.controller().await;
    device(&world, "r1", json!({ "driver": "FAKE", "address": "one" })).await;
    world.node_ready("r1", "True").await;
    let from = json!({ "secretKeyRef": { "name": "login", "key": "password", "optional": true } });
    let container =
        json!({ "name": "app", "image": "flash:/a.tar", "env": [{ "name": "A", "valueFrom": from }] });
    world.pod("web", json!({ "containers": [container] })).await;
    let reported = world.until_reported("SecretForbidden").await;
    assert!(reported.contains("namespace default") && reported.contains("secret_namespaces"), "{reported}");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_wrong_description_is_not_called_unreachable() {
    let world = world("").await;
    let controller = world.controller().await;
    device(&world, "r1", json!({ "driver": "XR", "address": "one" })).await;
    until_phase(&world, "r1", "Error").await;
    world.pod("web", json!({})).await;
    world
        .until("the node and the pod say so", async || world.events("MachineInvalid").await.len() == 2)
        .await;
    for reported in world.events("MachineInvalid").await {
        assert!(reported.contains("has no usable description") && reported.contains("`XR`"), "{reported}");
    }
    assert_eq!(world.events("MachineUnreachable").await, [""; 0]);
    assert_eq!(world.events("NodeUnreachable").await, [""; 0]);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_refused_pod_that_is_deleted_did_not_recover() {
    let world = world("").await;
    let controller = world.controller().await;
    device(&world, "r1", json!({ "driver": "FAKE", "address": "one" })).await;
    world.node_ready("r1", "True").await;
    let from = json!({ "resourceFieldRef": { "resource": "limits.cpu" } });
    let container =
        json!({ "name": "app", "image": "flash:/a.tar", "env": [{ "name": "A", "valueFrom": from }] });
    world.pod("web", json!({ "containers": [container] })).await;
    world.until_reported("FieldNotSupported").await;
    world.delete("web").await;
    world.until_pod_is_gone("web").await;
    // Events that are due are written before the end.
    controller.stop().await.unwrap();
    assert_eq!(world.events("Recovered").await, [""; 0]);
}

#[tokio::test]
async fn a_device_whose_description_was_corrected_is_tried_at_once() {
    let world = world("").await;
    let controller = world.controller().await;
    device(&world, "r1", json!({ "driver": "XR", "address": "one" })).await;
    until_phase(&world, "r1", "Error").await;
    let change = json!({ "spec": { "driver": "FAKE" } });
    devices(&world).patch("r1", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    // By itself it would be tried after half a minute.
    let tried = tokio::time::timeout(std::time::Duration::from_secs(20), until_phase(&world, "r1", "Ready"));
    tried.await.expect("it is tried at once");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_account_of_a_device_is_read_again_from_its_secret_when_the_device_is_tried_again() {
    let world = world("").await;
    let controller = world.controller().await;
    let spec = json!({ "driver": "FAKE", "address": "one", "credentialSecretRef": { "name": "login" } });
    device(&world, "r1", spec).await;
    let waits = until_phase(&world, "r1", "Error").await;
    let message = waits.status.unwrap().conditions[0].message.clone();
    assert!(message.contains("there is no Secret default/login"), "{message}");
    secret(&world, json!({ "name": "login", "labels": for_devices() })).await;
    // By itself it would be tried after half a minute.
    change(&world, "r1", json!({ "address": "two" })).await;
    until_phase(&world, "r1", "Ready").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_keeps_a_device_from_taking_pods_is_a_problem_of_the_controller_until_it_is_over() {
    let world = world("").await;
    let controller = world.controller().await;
    let problems = async || {
        let state = reqwest::get(format!("http://{}/debug/state", controller.admin())).await.unwrap();
        let state: Value = serde_json::from_str(&state.text().await.unwrap()).unwrap();
        state["problems"].clone()
    };
    let spec = json!({ "driver": "FAKE", "address": "one", "credentialSecretRef": { "name": "login" } });
    device(&world, "r1", spec).await;
    until_phase(&world, "r1", "Error").await;
    world
        .until("the device is a problem", async || {
            let problem = &problems().await[0];
            problem["example"] == "CiscoDevice r1"
                && problem["error"]
                    .as_str()
                    .is_some_and(|error| error.contains("there is no Secret default/login"))
        })
        .await;
    secret(&world, json!({ "name": "login", "labels": for_devices() })).await;
    change(&world, "r1", json!({ "address": "two" })).await;
    until_phase(&world, "r1", "Ready").await;
    world.until("it is none any more", async || problems().await == json!([])).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_secret_that_is_not_for_devices_is_sent_to_none() {
    let world = world("").await;
    let controller = world.controller().await;
    let secrets = secret(&world, json!({ "name": "database" })).await;
    let spec = json!({ "driver": "FAKE", "address": "one", "credentialSecretRef": { "name": "database" } });
    device(&world, "r1", spec).await;
    let waits = until_phase(&world, "r1", "Error").await;
    let message = waits.status.unwrap().conditions[0].message.clone();
    assert!(message.contains("has no label `staffetta.dev/device-credentials: \"true\"`"), "{message}");
    let labels = json!({ "metadata": { "labels": for_devices() } });
    secrets.patch("database", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    change(&world, "r1", json!({ "address": "two" })).await;
    until_phase(&world, "r1", "Ready").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_that_hosts_nothing_for_a_while_says_so_in_its_status_too() {
    let world = world("").await;
    let controller = world.controller().await;
    device(&world, "r1", json!({ "driver": "HELD", "address": "one" })).await;
    until_phase(&world, "r1", "Ready").await;
    world.devices.device("one").set_hosting(false);
    let failing = until_phase(&world, "r1", "Error").await;
    assert_eq!(failing.status.unwrap().conditions[0].reason, "AppHostingDisabled");
    world.node_ready("r1", "False").await;
    world.devices.device("one").set_hosting(true);
    until_phase(&world, "r1", "Ready").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_pods_of_a_device_that_is_known_by_a_name_have_its_address() {
    let world = world("devices = [{ name = \"edge\", device = { address = \"localhost\" } }]").await;
    let controller = world.controller().await;
    world.node_ready("edge", "True").await;
    world.pod("web", json!({ "nodeName": "edge" })).await;
    let status = world.pod_in("web", "Running").await.status.unwrap();
    let host: std::net::IpAddr = status.host_ip.unwrap().parse().unwrap();
    assert!(host.is_loopback(), "{host}");
    controller.stop().await.unwrap();
}

/// Lists keys that only one of the custom resource definition and the device description knows.
fn differences(path: &str, definition: &Value, schema: &Value, definitions: &Value, found: &mut Vec<String>) {
    let resolved = schema["$ref"].as_str().map(|name| &definitions[name.trim_start_matches("#/$defs/")]);
    let schema = resolved.unwrap_or(schema);
    let schema = schema["anyOf"].as_array().map_or(schema, |any| &any[0]);
    if schema["$ref"].is_string() {
        return differences(path, definition, schema, definitions, found);
    }
    let keys = |of: &Value| -> std::collections::BTreeSet<String> {
        of["properties"].as_object().into_iter().flat_map(|keys| keys.keys().cloned()).collect()
    };
    let (mut ours, theirs) = (keys(definition), keys(schema));
    // The older name of `dhcp`.
    ours.remove("dhcpEnabled");
    found.extend(ours.symmetric_difference(&theirs).map(|key| format!("{path}.{key}")));
    for key in &ours {
        let (definition, schema) = (&definition["properties"][key], &schema["properties"][key]);
        differences(&format!("{path}.{key}"), definition, schema, definitions, found);
    }
    if definition["items"].is_object() {
        differences(&format!("{path}[]"), &definition["items"], &schema["items"], definitions, found);
    }
}

#[cfg(feature = "iosxe")]
#[test]
fn the_definition_of_the_kind_knows_the_keys_that_a_description_may_have() {
    let definition: Value = serde_saphyr::from_str(DEFINITION).unwrap();
    let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let schema =
        serde_json::to_value(schemars::schema_for!(DeviceDescription<staffetta_iosxe::XeSpec>)).unwrap();
    let mut found = Vec::new();
    differences("spec", spec, &schema, &schema["$defs"], &mut found);
    assert_eq!(found, [""; 0]);
    // The server itself drops or refuses what is in neither, except in the options of outside drivers.
    let open = "x-kubernetes-preserve-unknown-fields";
    assert_eq!(spec["properties"]["driverOptions"][open], true);
    assert_eq!(DEFINITION.matches(open).count(), 1);
}
