//! The manifests, checked without a cluster.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta_apiserver::{ApiServer, Options};

use crate::process::Process;
use crate::site::overlay;
use crate::{PROGRAM, folder};

/// The configurations that are applied, each with the kustomization that does.
const CONFIGURATIONS: [(&str, &str); 3] = [
    ("kustomization.yaml", "base/staffetta.toml"),
    ("example/kustomization.yaml", "example/staffetta.toml"),
    ("openstack/kustomization.yaml", "openstack/staffetta.toml"),
];

/// The documents of a file.
pub(crate) fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The only document of a file below etc/deploy.
pub(crate) fn document(path: &str) -> Value {
    let mut documents = documents(&folder().join(path));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

/// The program's own reading of a configuration below etc/deploy.
pub(crate) fn configuration(path: &str) -> Configuration {
    read(&folder().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The program's own reading of a file.
fn read(file: &Path) -> Result<Configuration, String> {
    let schema = FileSchema::assemble(&staffetta::assembly::registry()).unwrap();
    Configuration::load(&schema, Some(file), []).map_err(|error| error.to_string())
}

pub(crate) fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn container(deployment: &Value) -> &Value {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    &containers[0]
}

#[test]
fn every_file_is_named_by_the_kustomization_beside_it_and_every_name_is_a_file() {
    let mut folders = vec![folder().to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let manifest = ["yaml", "toml"].map(OsStr::new).contains(&path.extension().unwrap_or_default());
            if path.is_dir() {
                folders.push(path);
            } else if manifest && path.file_name() != Some(OsStr::new("kustomization.yaml")) {
                files.insert(path);
            }
        }
        let path = folder.join("kustomization.yaml");
        if files.is_empty() && !path.exists() {
            continue;
        }
        let kustomization = &documents(&path)[0];
        let generated = kustomization["configMapGenerator"].as_array().into_iter().flatten();
        let patches = kustomization["patches"].as_array().into_iter().flatten();
        let named = strings(&kustomization["resources"])
            .into_iter()
            .chain(strings(&kustomization["components"]))
            .chain(patches.map(|patch| patch["path"].as_str().unwrap().to_owned()))
            .chain(generated.flat_map(|generator| strings(&generator["files"])));
        let named: BTreeSet<PathBuf> = named.map(|name| folder.join(name)).collect();
        let (folders, named): (BTreeSet<_>, _) = named.into_iter().partition(|path| path.is_dir());
        assert_eq!(named, files, "{}", path.display());
        for folder in folders {
            assert!(folder.join("kustomization.yaml").exists(), "{}", folder.display());
        }
        seen += files.len();
    }
    assert!(seen > 10, "the folder was walked");
}

#[test]
fn every_handler_has_a_component_and_those_that_are_enabled_are_applied() {
    let folders = fs::read_dir(folder().join("handlers")).unwrap();
    let folders: BTreeSet<_> =
        folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let registry = staffetta::assembly::registry();
    assert_eq!(folders, registry.handlers().map(|(name, _)| name.to_owned()).collect());

    for (kustomization, configured) in CONFIGURATIONS {
        let components = strings(&document(kustomization)["components"]);
        let handlers = components.iter().filter_map(|path| Some(path.rsplit_once("handlers/")?.1.to_owned()));
        let enabled = configuration(configured).kubernetes.enabled_handlers;
        assert_eq!(handlers.collect::<BTreeSet<_>>(), enabled.into_iter().collect(), "{kustomization}");
    }
}

#[test]
fn one_port_is_listened_at_probed_and_let_through() {
    let deployment = document("base/deployment.yaml");
    let port = container(&deployment)["ports"][0]["containerPort"].clone();
    for (_, path) in CONFIGURATIONS {
        let listen = configuration(path).admin.listen;
        assert!(listen.ip().is_unspecified(), "the kubelet asks from outside of the pod");
        assert_eq!(json!(listen.port()), port, "{path}");
    }
    let policy = document("base/network-policy.yaml");
    let ingress = policy["spec"]["ingress"].as_array().unwrap();
    assert_eq!(ingress.iter().map(|rule| &rule["ports"]).collect::<Vec<_>>(), [&json!([{ "port": port }])]);
    assert!(ingress.iter().all(|rule| rule["from"].as_array().is_some_and(|from| !from.is_empty())));

    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container(&deployment)[probe]["httpGet"]["port"], "admin");
    }
}

#[tokio::test]
async fn the_program_takes_the_arguments_and_answers_the_probes() {
    let deployment = document("base/deployment.yaml");
    let container = container(&deployment);
    assert_eq!(container["args"], json!(["run"]));
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let process = Process::start(PROGRAM.as_ref(), home.path(), "", &server.kubeconfig()).await;
    process.ready().await;
    for probe in ["livenessProbe", "readinessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        assert_eq!(process.get(path).await.0, 200, "{path}");
    }
}

#[test]
fn the_configuration_lies_where_the_program_looks_for_it() {
    let pod = document("base/deployment.yaml")["spec"]["template"]["spec"].clone();
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    assert_eq!(
        mounts,
        &[json!({ "name": "configuration", "mountPath": "/etc/staffetta", "readOnly": true })]
    );
    let generator = document("base/kustomization.yaml")["configMapGenerator"][0].clone();
    assert_eq!(generator["files"], json!(["staffetta.toml"]));
    let volume = json!({ "name": "configuration", "configMap": { "name": generator["name"] } });
    assert_eq!(pod["volumes"], json!([volume]));
}

#[test]
fn there_is_time_to_drain_tell_and_give_the_lease_back_before_the_pod_is_killed() {
    let deployment = document("base/deployment.yaml");
    let grace = &deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
    let grace = Duration::from_secs(grace.as_u64().unwrap());
    for (_, path) in CONFIGURATIONS {
        let drain = Duration::from(configuration(path).shutdown.drain);
        assert!(grace >= drain + Duration::from_secs(7), "{path}");
    }
}

#[test]
fn two_replicas_agree_by_the_lease_that_their_role_names_and_one_always_stays() {
    let deployment = document("base/deployment.yaml");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(rolling, &json!({ "maxSurge": 1, "maxUnavailable": 0 }));
    assert_eq!(document("base/disruption-budget.yaml")["spec"]["maxUnavailable"], 1);

    let role = documents(&folder().join("base/leader-election.yaml")).remove(0);
    let names: Vec<_> =
        role["rules"].as_array().unwrap().iter().flat_map(|rule| strings(&rule["resourceNames"])).collect();
    for (_, path) in CONFIGURATIONS {
        let election = configuration(path).leader_election;
        assert!(election.enabled && election.namespace.is_none(), "{path}");
        assert_eq!(names, [election.lease_name], "{path}");
    }
}

#[test]
fn the_pod_gets_nothing_that_it_does_not_need() {
    let pod = document("base/deployment.yaml")["spec"]["template"]["spec"].clone();
    assert_eq!(pod["enableServiceLinks"], false, "links look like options: STAFFETTA_...");
    assert_eq!(
        pod["securityContext"],
        json!({ "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
            "seccompProfile": { "type": "RuntimeDefault" } })
    );
    assert_eq!(
        pod["containers"][0]["securityContext"],
        json!({ "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] } })
    );
}

#[test]
fn the_image_is_that_of_this_version() {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let deployment = document("base/deployment.yaml");
    assert_eq!(container(&deployment)["image"], format!("staffetta:{VERSION}"));
    for (path, _) in CONFIGURATIONS {
        let image = document(path)["images"][0].clone();
        assert_eq!((&image["name"], &image["newTag"]), (&json!("staffetta"), &json!(VERSION)), "{path}");
    }
}

/// Renders a folder with kubectl, without a server.
pub(crate) fn rendered(folder: &Path) -> Vec<Value> {
    let kubectl = staffetta_apiserver::testing::program("kubectl");
    let output = Command::new(kubectl).arg("kustomize").arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(str::from_utf8(&output.stdout).unwrap()).unwrap()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[test]
#[ignore = "needs kubectl: devstack/real/test"]
fn under_names_of_its_own_all_of_it_still_belongs_together_with_kubectl() {
    let overlay = overlay("other", ".", &[]);
    let objects = rendered(overlay.path());
    let account = json!({ "kind": "ServiceAccount", "name": "staffetta-other", "namespace": "other" });
    for binding in ["RoleBinding", "ClusterRoleBinding"].into_iter().flat_map(|kind| of_kind(&objects, kind))
    {
        assert_eq!(binding["subjects"], json!([account]), "{}", binding["metadata"]["name"]);
        let role = &binding["roleRef"];
        let roles = of_kind(&objects, role["kind"].as_str().unwrap());
        assert!(roles.iter().any(|one| one["metadata"]["name"] == role["name"]), "{role}");
    }
    let role = of_kind(&objects, "Role")[0];
    assert_eq!(
        role["rules"][1]["resourceNames"],
        json!(["staffetta"]),
        "the lease is named by the configuration"
    );
    for object in &objects {
        let global = object["kind"].as_str().unwrap().starts_with("ClusterRole");
        let expected = if global || object["kind"] == "Namespace" { Value::Null } else { json!("other") };
        assert_eq!(object["metadata"]["namespace"], expected, "{}", object["kind"]);
        assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/name"], "staffetta", "{}", object["kind"]);
    }
    let pod = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], account["name"]);
    let map = &of_kind(&objects, "ConfigMap")[0]["metadata"]["name"];
    assert_eq!(pod["volumes"][0]["configMap"]["name"], *map);
}

#[test]
#[ignore = "needs kubectl: devstack/real/test"]
fn the_rights_for_leases_of_nodes_stay_where_these_are_under_names_of_its_own_with_kubectl() {
    let overlay = overlay("other", "base", &["handlers/app_hosting"]);
    let objects = rendered(overlay.path());
    let named = |kind: &str| {
        let mut found = of_kind(&objects, kind);
        found.retain(|object| object["metadata"]["name"] == "staffetta-app-hosting");
        assert_eq!(found.len(), 1, "{kind}");
        found.remove(0)
    };
    for kind in ["Role", "RoleBinding"] {
        assert_eq!(named(kind)["metadata"]["namespace"], "kube-node-lease", "{kind}");
    }
    assert_eq!(named("NetworkPolicy")["metadata"]["namespace"], "other");
    let account = json!({ "kind": "ServiceAccount", "name": "staffetta-other", "namespace": "other" });
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        assert_eq!(named(kind)["subjects"], json!([account]), "{kind}");
    }
    let bindings = of_kind(&objects, "RoleBinding");
    let secrets =
        bindings.iter().find(|object| object["metadata"]["name"] == "staffetta-device-secrets").unwrap();
    assert_eq!(
        (&secrets["metadata"]["namespace"], &secrets["subjects"]),
        (&json!("other"), &json!([account]))
    );
    let container = container(of_kind(&objects, "Deployment")[0]);
    let variable = |name: &str| {
        let variables = container["env"].as_array().unwrap();
        variables.iter().find(|variable| variable["name"] == name).unwrap().clone()
    };
    let listen = variable("STAFFETTA_APP_HOSTING__KUBELET_LISTEN");
    assert_eq!(listen["valueFrom"]["fieldRef"]["fieldPath"], "status.podIP");
    let first = variable("STAFFETTA_APP_HOSTING__KUBELET_FIRST_PORT")["value"].as_str().unwrap().to_owned();
    let let_through = &named("NetworkPolicy")["spec"]["ingress"][0]["ports"][0];
    assert_eq!(let_through["port"].to_string(), first);
}

#[test]
#[ignore = "needs kubectl: devstack/real/test"]
fn on_the_network_of_the_node_it_waits_for_no_other_and_listens_where_metrics_are_collected_with_kubectl() {
    let overlay = overlay("other", ".", &["host-network"]);
    let objects = rendered(overlay.path());
    let deployment = &of_kind(&objects, "Deployment")[0]["spec"];
    let pod = &deployment["template"]["spec"];
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("Default")));
    assert_eq!(deployment["strategy"]["rollingUpdate"], json!({ "maxSurge": 0, "maxUnavailable": 1 }));
    // Without a host: the kubelet and Prometheus ask the address of the pod, which is that of the node.
    let container = container(of_kind(&objects, "Deployment")[0]);
    let probe = &container["livenessProbe"]["httpGet"];
    assert_eq!(probe, &json!({ "path": "/livez", "port": "admin" }));
    let variables = container["env"].as_array().unwrap();
    let at = |name: &str| variables.iter().position(|variable| variable["name"] == name).unwrap();
    let (node, listen) = (at("NODE_ADDRESS"), at("STAFFETTA_ADMIN__LISTEN"));
    assert!(node < listen, "what a variable names must stand before it");
    assert_eq!(variables[node]["valueFrom"]["fieldRef"]["fieldPath"], "status.hostIP");
    let listen = variables[listen]["value"].as_str().unwrap().replace("$(NODE_ADDRESS)", "192.0.2.7");
    let schema = FileSchema::assemble(&staffetta::assembly::registry()).unwrap();
    let environment = [("STAFFETTA_ADMIN__LISTEN".into(), listen.into())];
    let file = folder().join("base/staffetta.toml");
    let configuration = Configuration::load(&schema, Some(&file), environment).unwrap();
    assert_eq!(
        configuration.admin.listen.to_string(),
        format!("192.0.2.7:{}", container["ports"][0]["containerPort"])
    );
    assert_eq!(of_kind(&objects, "NetworkPolicy"), Vec::<&Value>::new(), "none holds there");
    let labels = &of_kind(&objects, "Namespace")[0]["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
}
