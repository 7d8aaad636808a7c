//! The objects of the chart: as rendered into etc/deploy/manifests, and rendered by Helm with other values.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use serde_json::Value;
use staffetta::config::{Configuration, FileSchema};

use crate::folder;

pub(crate) const PRESETS: [&str; 5] = ["cni", "iosxe", "koupleless", "openstack", "prefix"];

/// The presets of the controller.
pub(crate) const CONTROLLERS: [&str; 4] = ["iosxe", "koupleless", "openstack", "prefix"];

/// The objects of the manifests of a preset.
pub(crate) fn objects(preset: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder().join(format!("manifests/{preset}.yaml"))).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{preset}: {error}"))
}

/// A file below etc/deploy with one document.
pub(crate) fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(folder().join(path)).unwrap()).unwrap()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The only object of a kind.
pub(crate) fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(objects, kind);
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}

/// The pod of the Deployment or DaemonSet.
pub(crate) fn pod(objects: &[Value]) -> &Value {
    let kinds = ["Deployment", "DaemonSet"].map(Value::from);
    let workload = objects.iter().find(|object| kinds.contains(&object["kind"])).unwrap();
    &workload["spec"]["template"]["spec"]
}

/// The only container of that pod.
pub(crate) fn container(objects: &[Value]) -> &Value {
    let containers = pod(objects)["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    &containers[0]
}

/// The text of staffetta.toml, in the ConfigMap that the pod mounts.
pub(crate) fn file(objects: &[Value]) -> &str {
    let volume = &pod(objects)["volumes"][0]["configMap"]["name"];
    let maps = of_kind(objects, "ConfigMap");
    let map = maps.iter().find(|map| map["metadata"]["name"] == *volume).unwrap();
    map["data"]["staffetta.toml"].as_str().unwrap()
}

/// The variables of the container. The pod has the address `192.0.2.7`, and so has everything else that a variable refers to.
pub(crate) fn environment(objects: &[Value]) -> Vec<(OsString, OsString)> {
    let variables = container(objects)["env"].as_array().unwrap();
    let value = |variable: &Value| match variable["value"].as_str() {
        Some(value) => value.replace("$(POD_IP)", "192.0.2.7"),
        None => "192.0.2.7".to_owned(),
    };
    variables.iter().map(|one| (one["name"].as_str().unwrap().into(), value(one).into())).collect()
}

/// The program's own reading of the configuration, in the container.
pub(crate) fn configuration(objects: &[Value]) -> Configuration {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("staffetta.toml");
    fs::write(&path, file(objects)).unwrap();
    let schema = FileSchema::assemble(&staffetta::assembly::registry()).unwrap();
    Configuration::load(&schema, Some(&path), environment(objects))
        .unwrap_or_else(|error| panic!("{error}: {}", file(objects)))
}

/// The output of `helm template` with `values`, on top of the sample values of a preset if there are any, for a cluster with the kinds of
/// the Prometheus operator if `flags` name them.
pub(crate) fn helm(namespace: &str, preset: &str, values: &Value, flags: &[&str]) -> Result<String, String> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("values.yaml");
    fs::write(&path, values.to_string()).unwrap();
    let sample = folder().join(format!("values/{preset}.yaml"));
    let sample = sample.exists().then(|| ["--values".into(), sample.into_os_string()]);
    let output = Command::new(staffetta_apiserver::testing::program("helm"))
        .args(["template", "staffetta", "--namespace", namespace, "--no-hooks", "--kube-version", "1.30.0"])
        .args(flags)
        .arg(folder().join("chart"))
        .args(sample.into_iter().flatten())
        .arg("--values")
        .arg(&path)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The objects that Helm renders.
pub(crate) fn rendered(namespace: &str, preset: &str, values: &Value) -> Vec<Value> {
    let flags = ["--set", "namespace.create=true", "--api-versions", "monitoring.coreos.com/v1"];
    let text = helm(namespace, preset, values, &flags).unwrap_or_else(|error| panic!("{error}"));
    serde_saphyr::from_multiple(&text).unwrap()
}
