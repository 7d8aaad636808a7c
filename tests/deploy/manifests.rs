//! The objects of the controller, checked without a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use staffetta_apiserver::testing::real_kubeconfig;
use staffetta_apiserver::{ApiServer, Options};

use crate::PROGRAM;
use crate::kubectl::Kubectl;
use crate::process::Process;
use crate::rendered::{CONTROLLERS, configuration, container, objects, of_kind, only, pod, rendered};
use crate::rights::of_rules;

pub(crate) fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// The variable of the container.
fn variable<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let variables = container(objects)["env"].as_array().unwrap();
    variables.iter().find(|variable| variable["name"] == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn one_port_is_listened_at_probed_and_let_through() {
    for preset in CONTROLLERS {
        let objects = objects(preset);
        let admin = configuration(&objects).admin;
        assert!(admin.listen.ip().is_loopback(), "it is for users who may port-forward to the pod");
        let listen = admin.probes_listen.expect("the kubelet asks from outside of the pod");
        assert!(listen.ip().is_unspecified(), "{preset}");
        let port = json!(listen.port());
        assert_eq!(container(&objects)["ports"][0], json!({ "name": "probes", "containerPort": port }));
        for probe in ["livenessProbe", "readinessProbe"] {
            assert_eq!(container(&objects)[probe]["httpGet"]["port"], "probes", "{preset}");
        }
        let metrics = &only(&objects, "NetworkPolicy")["spec"]["ingress"][0];
        assert_eq!(metrics["ports"], json!([{ "port": port }]), "{preset}");
        assert!(metrics["from"].as_array().is_some_and(|from| !from.is_empty()), "{preset}");
    }
}

#[test]
fn every_port_of_the_container_is_let_through() {
    for preset in CONTROLLERS {
        let objects = objects(preset);
        let ports = |list: &Value, name: &str| -> BTreeSet<u64> {
            list.as_array().into_iter().flatten().filter_map(|port| port[name].as_u64()).collect()
        };
        let rules = only(&objects, "NetworkPolicy")["spec"]["ingress"].as_array().unwrap();
        let through: BTreeSet<u64> = rules.iter().flat_map(|rule| ports(&rule["ports"], "port")).collect();
        let listened = ports(&container(&objects)["ports"], "containerPort");
        assert!(through.is_superset(&listened), "{preset}: {listened:?}");
    }
}

#[tokio::test]
async fn the_program_takes_the_arguments_and_answers_the_probes() {
    let objects = objects("openstack");
    let container = container(&objects);
    assert_eq!(container["args"], json!(["run"]));
    let (server, home) = (ApiServer::start(Options::default()).await.unwrap(), tempfile::tempdir().unwrap());
    let options = "[admin]\nprobes_listen = \"127.0.0.1:0\"\n";
    let process = Process::start(PROGRAM.as_ref(), home.path(), options, &server.kubeconfig()).await;
    process.ready().await;
    for probe in ["livenessProbe", "readinessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        assert_eq!(process.probe(path).await.0, 200, "{path}");
    }
}

#[test]
fn the_configuration_lies_where_the_program_looks_for_it_and_a_change_rolls_the_deployment() {
    let objects = objects("iosxe");
    let mounts = json!([{ "name": "configuration", "mountPath": "/etc/staffetta", "readOnly": true }]);
    assert_eq!(container(&objects)["volumeMounts"], mounts);
    let template = &only(&objects, "Deployment")["spec"]["template"];
    let checksum = &template["metadata"]["annotations"]["checksum/configuration"];
    assert_eq!(checksum.as_str().map(str::len), Some(16));
}

#[test]
fn there_is_time_to_drain_tell_and_give_the_lease_back_before_the_pod_is_killed() {
    for preset in CONTROLLERS {
        let objects = objects(preset);
        let grace = Duration::from_secs(pod(&objects)["terminationGracePeriodSeconds"].as_u64().unwrap());
        let drain = Duration::from(configuration(&objects).shutdown.drain);
        assert!(grace >= drain + Duration::from_secs(7), "{preset}");
    }
}

#[test]
fn two_replicas_agree_by_the_lease_that_their_role_names_and_one_always_stays() {
    for preset in CONTROLLERS {
        let objects = objects(preset);
        let deployment = &only(&objects, "Deployment")["spec"];
        assert_eq!(deployment["replicas"], 2);
        assert_eq!(deployment["strategy"]["rollingUpdate"], json!({ "maxSurge": 1, "maxUnavailable": 0 }));
        assert_eq!(only(&objects, "PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
        let election = configuration(&objects).leader_election;
        assert!(election.enabled && election.namespace.is_none(), "{preset}");
        let roles = of_kind(&objects, "Role");
        let role = roles.iter().find(|role| role["metadata"]["namespace"] == "staffetta").unwrap();
        assert_eq!(role["rules"][1]["resourceNames"], json!([election.lease_name]), "{preset}");
    }
}

#[test]
fn the_role_of_operators_has_the_rights_that_the_plug_in_names_and_needs() {
    let objects = objects("openstack");
    let roles = of_kind(&objects, "ClusterRole");
    let role = roles.iter().find(|role| role["metadata"]["name"] == "staffetta-operator").unwrap();
    let rights = ["leases", "pods", "pods/portforward"].map(|resource| {
        let rules = role["rules"].as_array().unwrap().iter();
        let rule = rules.into_iter().find(|rule| rule["resources"] == json!([resource])).unwrap();
        strings(&rule["verbs"])
    });
    // kube reads the Lease, opens a WebSocket with GET, and lists pods for handlers of every replica and on the network of the nodes.
    assert_eq!(rights, [vec!["get"], vec!["get", "list"], vec!["get", "create"]]);
}

#[test]
fn the_pod_gets_nothing_that_it_does_not_need() {
    for preset in CONTROLLERS {
        let objects = objects(preset);
        let pod = pod(&objects);
        assert_eq!(pod["enableServiceLinks"], false, "links look like options: STAFFETTA_...");
        assert_eq!(
            pod["securityContext"],
            json!({ "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" } })
        );
        assert_eq!(
            container(&objects)["securityContext"],
            json!({ "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] } })
        );
        let standard = &only(&objects, "Namespace")["metadata"]["labels"];
        assert_eq!(standard["pod-security.kubernetes.io/enforce"], "restricted", "{preset}");
    }
}

#[test]
fn every_binding_binds_a_role_that_is_there_to_the_account_of_the_pod() {
    for preset in CONTROLLERS {
        let objects = objects(preset);
        let account = only(&objects, "ServiceAccount");
        assert_eq!(pod(&objects)["serviceAccountName"], account["metadata"]["name"]);
        let subject = json!({ "kind": "ServiceAccount", "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"] });
        for kind in ["Role", "ClusterRole"] {
            for binding in of_kind(&objects, &format!("{kind}Binding")) {
                assert_eq!(binding["subjects"], json!([subject]), "{preset}");
                assert_eq!(binding["roleRef"]["kind"], kind, "{preset}");
                let is_bound = |role: &&Value| {
                    let (role, place) = (&role["metadata"], &binding["metadata"]);
                    role["name"] == binding["roleRef"]["name"] && role["namespace"] == place["namespace"]
                };
                assert!(of_kind(&objects, kind).iter().any(is_bound), "{preset}: {}", binding["roleRef"]);
            }
        }
    }
}

/// The rights of the Role in a namespace.
fn rights(objects: &[Value], namespace: &str) -> BTreeSet<String> {
    let roles = of_kind(objects, "Role");
    let role = roles.iter().find(|role| role["metadata"]["namespace"] == namespace).unwrap();
    of_rules(&role["rules"])
}

#[test]
fn devices_get_leases_of_nodes_and_a_way_to_their_kubelet_apis() {
    let objects = objects("iosxe");
    let leases = ["create", "patch"].map(|verb| format!("{verb} leases.coordination.k8s.io"));
    assert_eq!(rights(&objects, "kube-node-lease"), leases.into());
    assert_eq!(variable(&objects, "STAFFETTA_APP_HOSTING__KUBELET_LISTEN")["value"], "$(POD_IP)");
    let first = &variable(&objects, "STAFFETTA_APP_HOSTING__KUBELET_FIRST_PORT")["value"];
    let rules = only(&objects, "NetworkPolicy")["spec"]["ingress"].as_array().unwrap();
    let first: u64 = first.as_str().unwrap().parse().unwrap();
    let through = |rule: &Value| rule["ports"][0]["port"] == first;
    assert!(rules.iter().any(through), "{rules:?}");
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn devices_get_the_secrets_of_the_namespaces_that_are_named_with_helm() {
    let values = json!({ "config": { "app_hosting": { "secret_namespaces": ["shop"] } } });
    let objects = rendered("staffetta", "iosxe", &values);
    assert_eq!(rights(&objects, "shop"), ["get secrets".to_owned()].into());
}

#[test]
fn the_agent_of_eks_pod_identity_can_be_reached_at_its_addresses() {
    let agents = ["169.254.170.23/32", "fd00:ec2::23/128"].map(|cidr| json!({ "ipBlock": { "cidr": cidr } }));
    let rule = json!({ "ports": [{ "port": 80 }], "to": agents });
    let reaches = |preset: &&str| {
        let rules = only(&objects(preset), "NetworkPolicy")["spec"]["egress"].clone();
        rules.as_array().unwrap().contains(&rule)
    };
    assert_eq!(CONTROLLERS.iter().filter(|preset| reaches(preset)).collect::<Vec<_>>(), [&"prefix"]);
}

#[test]
fn the_definition_of_devices_is_part_of_the_release_and_stays_without_it() {
    let objects = objects("iosxe");
    let definition = only(&objects, "CustomResourceDefinition");
    assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    assert!(of_kind(&self::objects("openstack"), "CustomResourceDefinition").is_empty());
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn in_another_namespace_all_of_it_still_belongs_together_with_helm() {
    let objects = rendered("other", "openstack", &json!({}));
    for object in &objects {
        let kind = object["kind"].as_str().unwrap();
        let global = kind == "Namespace" || kind.starts_with("ClusterRole") || kind.starts_with("Validating");
        let expected = if global { Value::Null } else { json!("other") };
        assert_eq!(object["metadata"]["namespace"], expected, "{kind}");
        assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/name"], "staffetta", "{kind}");
    }
    let account = json!([{ "kind": "ServiceAccount", "name": "staffetta", "namespace": "other" }]);
    assert_eq!(only(&objects, "ClusterRoleBinding")["subjects"], account);
    let [users, _] = writers(&objects);
    assert_eq!(users, r#"["system:serviceaccount:other:staffetta"]"#);
}

/// The expressions of the accounts and groups that may write reserved metadata.
fn writers(objects: &[Value]) -> [&str; 2] {
    let policy = only(objects, "ValidatingAdmissionPolicy");
    let variables = policy["spec"]["variables"].as_array().unwrap();
    ["users", "groups"].map(|name| {
        let variable = variables.iter().find(|variable| variable["name"] == name).unwrap();
        variable["expression"].as_str().unwrap()
    })
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn accounts_in_the_admission_policy_are_escaped_and_may_be_none_with_helm() {
    let values = json!({ "admission": { "users": ["a\"b\\c<d>", "line\nbreak"], "groups": [] } });
    let objects = rendered("staffetta", "openstack", &values);
    let [users, groups] = writers(&objects);
    let expected = r#"["system:serviceaccount:staffetta:staffetta","a\"b\\c\u003cd\u003e","line\nbreak"]"#;
    assert_eq!((users, groups), (expected, "[]"));
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn on_the_network_of_the_node_it_waits_for_no_other_and_listens_where_metrics_are_collected_with_helm() {
    let objects = rendered("staffetta", "openstack", &json!({ "hostNetwork": true }));
    let pod = pod(&objects);
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("Default")));
    let rolling = &only(&objects, "Deployment")["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(rolling, &json!({ "maxSurge": 0, "maxUnavailable": 1 }));
    // Without a host: the kubelet and Prometheus ask the address of the pod, which is that of the node.
    let probe = &container(&objects)["livenessProbe"]["httpGet"];
    assert_eq!((&probe["host"], &probe["port"]), (&Value::Null, &json!("probes")));
    for (name, path) in [("POD_IP", "status.podIP"), ("POD_NAME", "metadata.name")] {
        assert_eq!(variable(&objects, name)["valueFrom"]["fieldRef"]["fieldPath"], path);
    }
    assert_eq!(configuration(&objects).admin.probes_listen.unwrap().to_string(), "192.0.2.7:8081");
    let tolerated: Vec<_> =
        pod["tolerations"].as_array().unwrap().iter().map(|one| one["key"].clone()).collect();
    assert_eq!(tolerated, ["node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable"]);
    assert!(of_kind(&objects, "NetworkPolicy").is_empty(), "it does not apply there");
    let standard = &only(&objects, "Namespace")["metadata"]["labels"];
    assert_eq!(standard["pod-security.kubernetes.io/enforce"], "privileged");
}

/// A dry run stores nothing. An existing namespace takes the place of those that a cluster of an operator has, and only the
/// operator of Prometheus knows its kinds. The server applies each object in one step, because other tests create and delete
/// objects of the same names meanwhile.
#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn the_objects_of_each_preset_are_admitted_on_a_real_server() {
    let kubectl = Kubectl::find(&real_kubeconfig(), "");
    for preset in CONTROLLERS.into_iter().chain(["cni"]) {
        let mut objects = objects(preset);
        objects
            .retain(|object| !object["apiVersion"].as_str().unwrap().starts_with("monitoring.coreos.com/"));
        for object in objects.iter_mut().filter(|object| object["metadata"]["namespace"].is_string()) {
            object["metadata"]["namespace"] = json!("default");
        }
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
        let arguments = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
        let admitted = kubectl.feed(&arguments, &list).await;
        let count = admitted.lines().filter(|line| line.ends_with(" (server dry run)")).count();
        assert_eq!(count, objects.len(), "{preset}: {admitted}");
    }
}
