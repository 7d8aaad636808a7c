//! The Helm chart and the manifests rendered from it, checked without a cluster.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};
use staffetta::config::FileSchema;

use crate::rendered::{
    CONTROLLERS, PRESETS, configuration, container, environment, file, helm, objects, of_kind, only, pod,
    rendered, yaml,
};
use crate::rights::{of_handlers, of_rules};
use crate::{PROGRAM, folder};

#[test]
fn there_are_manifests_and_sample_values_for_each_preset() {
    for place in ["chart/presets", "values", "manifests"] {
        let files = fs::read_dir(folder().join(place)).unwrap();
        let names: BTreeSet<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names, PRESETS.map(|preset| format!("{preset}.yaml")).into(), "{place}");
    }
    for preset in PRESETS {
        assert_eq!(yaml(&format!("values/{preset}.yaml"))["preset"], preset);
    }
}

#[test]
fn the_program_reads_the_configuration_of_each_preset_with_the_variables_of_its_container() {
    for preset in PRESETS {
        let read = configuration(&objects(preset));
        let given = &yaml(&format!("chart/presets/{preset}.yaml"))["config"];
        for (section, options) in given.as_object().unwrap() {
            for (option, value) in options.as_object().unwrap() {
                let sample = &yaml(&format!("values/{preset}.yaml"))["config"][section][option];
                let expected = if sample.is_null() { value } else { sample };
                assert_eq!(&read.value[section][option], expected, "{preset}: {section}.{option}");
            }
        }
    }
}

#[test]
fn nothing_is_missing_in_the_configuration_of_a_preset() {
    let place = tempfile::tempdir().unwrap();
    let (path, clouds) = (place.path().join("staffetta.toml"), place.path().join("clouds.yaml"));
    let access = "{auth_url: 'http://192.0.2.1/v3', username: u, password: p, project_name: p}";
    fs::write(&clouds, format!("clouds: {{openstack: {{auth: {access}}}}}")).unwrap();
    for preset in CONTROLLERS {
        let objects = objects(preset);
        fs::write(&path, file(&objects)).unwrap();
        let output = Command::new(PROGRAM)
            .args(["config", "check", "--config"])
            .arg(&path)
            .envs(environment(&objects))
            .env("OS_CLIENT_CONFIG_FILE", &clouds)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{preset}: {output:?}");
    }
}

#[test]
fn no_preset_simulates_anything() {
    for preset in PRESETS {
        let objects = objects(preset);
        for simulated in ["memory", "simulated", "FAKE"] {
            assert!(!file(&objects).contains(&format!("{simulated:?}")), "{preset}: {simulated}");
        }
    }
}

#[test]
fn every_handler_has_the_rights_in_the_chart_that_it_uses_and_no_more() {
    let rights = yaml("chart/files/rights.yaml");
    let of_chart = rights["handlers"].as_object().unwrap();
    let registry = staffetta::assembly::registry();
    let handlers: BTreeSet<_> = registry.handlers().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(of_chart.keys().cloned().collect::<BTreeSet<_>>(), handlers);
    let of_all = of_handlers(&[]);
    for handler in &handlers {
        let used: BTreeSet<_> = of_handlers(&[handler]).difference(&of_all).cloned().collect();
        // The names of objects are in the rules, and in no right of this form.
        let used = used.iter().map(|right| right.replace(" amazon-vpc-cni", "")).collect();
        assert_eq!(of_rules(&of_chart[handler]), used, "{handler}");
    }
}

#[test]
fn the_chart_is_of_this_version_and_so_is_its_image() {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let chart = yaml("chart/Chart.yaml");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(VERSION), &json!(VERSION)));
    for preset in PRESETS {
        let objects = objects(preset);
        assert_eq!(container(&objects)["image"], format!("registry.example/staffetta:{VERSION}"), "{preset}");
    }
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn prometheus_and_grafana_get_what_the_folder_of_the_monitoring_has_with_helm() {
    let values = json!({
        "prometheusRule": { "enabled": true, "labels": { "release": "prometheus" },
            "runbookUrl": "https://wiki.example/alerts" },
        "podMonitor": { "enabled": true, "interval": "30s" },
        "serviceMonitor": { "enabled": true },
        "dashboards": { "enabled": true },
    });
    let objects = rendered("staffetta", "openstack", &values);
    let rule = only(&objects, "PrometheusRule");
    let alerts = yaml("../monitoring/alerts.yaml").to_string();
    let here = alerts.replace("docs/alerts.md", "https://wiki.example/alerts");
    assert_eq!(rule["spec"], serde_json::from_str::<Value>(&here).unwrap());
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
    let endpoint = json!([{ "port": "probes", "path": "/metrics", "interval": "30s" }]);
    assert_eq!(only(&objects, "PodMonitor")["spec"]["podMetricsEndpoints"], endpoint);
    let (service, monitor) = (only(&objects, "Service"), only(&objects, "ServiceMonitor"));
    let selector = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(
        selector.iter().all(|(name, value)| service["metadata"]["labels"][name] == *value),
        "{selector:?}"
    );
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
    let maps = of_kind(&objects, "ConfigMap");
    let map = maps.iter().find(|map| map["metadata"]["labels"]["grafana_dashboard"] == "1").unwrap();
    let dashboard: Value = serde_json::from_str(map["data"]["staffetta.json"].as_str().unwrap()).unwrap();
    assert_eq!(dashboard, yaml("../monitoring/dashboard.json"));
}

/// The schema of the configuration as the chart has it: each section in one line, without texts.
fn compact(schema: &Value, names: bool) -> Value {
    const TEXTS: [&str; 6] = ["$schema", "default", "description", "examples", "format", "title"];
    match schema {
        Value::Object(entries) => {
            let kept = entries.iter().filter(|(key, _)| names || !TEXTS.contains(&key.as_str()));
            let compacted =
                kept.map(|(key, value)| (key.clone(), compact(value, !names && key == "properties")));
            Value::Object(compacted.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| compact(item, false)).collect(),
        other => other.clone(),
    }
}

/// Compares the schemas. With `STAFFETTA_OVERWRITE` in the environment, it writes that of the chart.
#[test]
fn the_chart_knows_every_option_of_the_program() {
    let schema = FileSchema::assemble(&staffetta::assembly::registry()).unwrap().to_json();
    let sections = compact(&schema, false)["properties"].clone();
    let path = folder().join("chart/values.schema.json");
    let text = fs::read_to_string(&path).unwrap();
    let (written, _) = text.split_once("    \"config\": {\n").unwrap();
    let lines: Vec<_> = sections
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, section)| format!("        {name:?}: {section}"))
        .collect();
    let expected = format!(
        "{written}    \"config\": {{\n      \"type\": \"object\",\n      \"additionalProperties\": false,\n      \
         \"properties\": {{\n{}\n      }}\n    }}\n  }}\n}}\n",
        lines.join(",\n")
    );
    if std::env::var_os("STAFFETTA_OVERWRITE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(text == expected, "run STAFFETTA_OVERWRITE=1 cargo test --test deploy the_chart_knows");
}

#[test]
fn the_chart_accepts_the_options_that_the_program_accepts_with_a_warning() {
    let schema = FileSchema::assemble(&staffetta::assembly::registry()).unwrap().to_json();
    for option in ["coalesce", "queue_depth"] {
        assert_eq!(schema["properties"]["relay"]["properties"][option]["deprecated"], true, "{option}");
    }
}

#[test]
fn the_chart_refuses_every_secret_of_the_program_in_its_configuration() {
    let schema = FileSchema::assemble(&staffetta::assembly::registry()).unwrap().to_json();
    let check = fs::read_to_string(folder().join("chart/templates/check.yaml")).unwrap();
    for (section, of_section) in schema["properties"].as_object().unwrap() {
        let options = of_section["properties"].as_object().unwrap();
        for (option, _) in options.iter().filter(|(_, option)| option["x-secret"] == true) {
            let named = [format!("\"{section}.{option}\""), format!("`config.{section}.{option}`")];
            assert!(named.iter().any(|name| check.contains(name)), "{section}.{option}");
        }
    }
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn values_that_cannot_work_are_refused_with_a_reason_with_helm() {
    let refused = [
        ("", json!({}), "choose what to install: set `preset`"),
        ("openstack", json!({ "replica": 3 }), "additional properties 'replica' not allowed"),
        ("openstack", json!({ "config": { "neutron": { "clout": "x" } } }), "'clout' not allowed"),
        ("openstack", json!({ "config": { "vif_pool": { "ports_pool_min": "5" } } }), "want integer"),
        ("openstack", json!({ "preset": "openstak" }), "preset"),
        ("openstack", json!({ "config": { "neutron_defaults": { "project": "" } } }), "minLength"),
        ("", json!({ "preset": "openstack" }), "`config.neutron_defaults.project` is missing"),
        (
            "openstack",
            json!({ "config": { "kubernetes": { "pod_vif_driver": "memory" } } }),
            "simulated drivers (`config.kubernetes`: pod_vif_driver) cannot be combined with real ones",
        ),
        (
            "openstack",
            json!({ "config": { "kubernetes": { "pod_vif_driver": "nested-vlan" } } }),
            "the pool `neutron` needs `config.kubernetes.pod_vif_driver: neutron-vif`",
        ),
        (
            "openstack",
            json!({ "config": { "kubernetes": { "pod_security_groups_driver": "policy" } } }),
            "needs the handler `policy`",
        ),
        (
            "openstack",
            json!({ "config": { "admin": { "listen": "127.0.0.1:1" } } }),
            "`config.admin.listen` cannot be changed",
        ),
        (
            "openstack",
            json!({ "config": { "neutron": { "password": "hunter2" } } }),
            "set STAFFETTA_NEUTRON__PASSWORD in `extraEnv`",
        ),
        (
            "iosxe",
            json!({ "config": { "app_hosting": { "devices": [
                { "name": "a", "device": { "address": "192.0.2.1", "password": "hunter2" } }
            ] } } }),
            "the password of device a in `config.app_hosting.devices` would be in a ConfigMap",
        ),
        (
            "cni",
            json!({ "config": { "kubernetes": { "enabled_handlers": ["vif"] } } }),
            "install the controller with its handlers as another release",
        ),
        ("koupleless", json!({ "podMonitor": { "enabled": true } }), "Prometheus operator"),
        (
            "openstack",
            json!({}),
            "`config.neutron_defaults.external_svc_net` is still the placeholder EXTERNAL-NETWORK",
        ),
        (
            "iosxe",
            json!({ "extraConfig": { "vnode_http": { "token": "0123456789abcdef" } } }),
            "set STAFFETTA_VNODE_HTTP__TOKEN in `extraEnv`",
        ),
        ("iosxe", json!({ "replicas": 1 }), "there is no value `replicas`: set `replicaCount`"),
        ("iosxe", json!({ "nameOverride": "x" }), "names are fixed, because a cluster has one controller"),
        (
            "iosxe",
            json!({ "podLabels": { "app.kubernetes.io/name": "x" } }),
            "`podLabels` cannot change the label app.kubernetes.io/name",
        ),
        ("iosxe", json!({ "image": { "digest": "sha256:1" } }), "digest"),
        ("iosxe", json!({ "livenessProbe": { "httpGet": {} } }), "'httpGet' not allowed"),
    ];
    for (preset, values, reason) in refused {
        let error = helm("staffetta", preset, &values, &[]).expect_err(&values.to_string());
        assert!(error.contains(reason), "{values}: {error}");
    }
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn every_name_of_another_chart_is_refused_with_its_name_here_with_helm() {
    for (name, remedy) in yaml("chart/files/other-names.yaml").as_object().unwrap() {
        let error = helm("staffetta", "iosxe", &json!({ name: "x" }), &[]).unwrap_err();
        assert!(error.contains(&format!("`{name}`: {}", remedy.as_str().unwrap())), "{name}: {error}");
    }
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn the_usual_values_of_a_chart_reach_the_pods_with_helm() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let values = json!({
        "global": { "imagePullSecrets": [{ "name": "mirror" }] },
        "imagePullSecrets": [{ "name": "own" }],
        "image": { "registry": "registry.example", "repository": "team/staffetta", "digest": digest },
        "commonLabels": { "team": "network" },
        "podLabels": { "team": "pods", "tier": "system" },
        "podAnnotations": { "a": "1" },
        "deploymentAnnotations": { "reloader": "true" },
        "replicaCount": 3,
        "strategy": { "type": "Recreate" },
        "affinity": { "nodeAffinity": {} },
        "topologySpreadConstraints": [],
        "podSecurityContext": { "runAsUser": null, "runAsGroup": null, "fsGroup": 7 },
        "securityContext": { "privileged": false },
        "livenessProbe": { "periodSeconds": 60 },
        "readinessProbe": { "initialDelaySeconds": 3 },
        "dnsPolicy": "None",
        "dnsConfig": { "nameservers": ["192.0.2.53"] },
        "hostAliases": [{ "ip": "192.0.2.5", "hostnames": ["keystone"] }],
        "extraArgs": ["--config", "/etc/other.toml"],
        "extraEnv": [{ "name": "RUST_BACKTRACE", "value": "1" }],
        "serviceAccount": { "name": "robot", "labels": { "azure.workload.identity/use": "true" } },
        "podDisruptionBudget": { "minAvailable": "50%" },
    });
    let objects = rendered("staffetta", "openstack", &values);
    let deployment = only(&objects, "Deployment");
    let (pod, container) = (&deployment["spec"]["template"]["spec"], container(&objects));
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&labels["team"], &labels["tier"]), (&json!("pods"), &json!("system")));
    for object in &objects {
        assert_eq!(object["metadata"]["labels"]["team"], "network", "{}", object["kind"]);
    }
    assert_eq!(container["image"], format!("registry.example/team/staffetta@{digest}"));
    for (place, expected) in [
        (&deployment["spec"]["replicas"], &values["replicaCount"]),
        (&deployment["spec"]["strategy"], &values["strategy"]),
        (&deployment["metadata"]["annotations"], &values["deploymentAnnotations"]),
        (&deployment["spec"]["template"]["metadata"]["annotations"]["a"], &json!("1")),
        (&pod["imagePullSecrets"], &json!([{ "name": "mirror" }, { "name": "own" }])),
        (&pod["affinity"], &values["affinity"]),
        (&pod["topologySpreadConstraints"], &Value::Null),
        (
            &pod["securityContext"],
            &json!({ "runAsNonRoot": true, "fsGroup": 7, "seccompProfile": { "type": "RuntimeDefault" } }),
        ),
        (&container["securityContext"]["privileged"], &json!(false)),
        (&container["securityContext"]["capabilities"]["drop"], &json!(["ALL"])),
        (&container["livenessProbe"]["periodSeconds"], &json!(60)),
        (&container["livenessProbe"]["failureThreshold"], &json!(3)),
        (&container["readinessProbe"]["initialDelaySeconds"], &json!(3)),
        (&pod["dnsPolicy"], &values["dnsPolicy"]),
        (&pod["dnsConfig"], &values["dnsConfig"]),
        (&pod["hostAliases"], &values["hostAliases"]),
        (&container["args"], &json!(["run", "--config", "/etc/other.toml"])),
        (&pod["serviceAccountName"], &json!("robot")),
        (&only(&objects, "ServiceAccount")["metadata"]["name"], &json!("robot")),
        (&only(&objects, "PodDisruptionBudget")["spec"]["minAvailable"], &json!("50%")),
        (&only(&objects, "PodDisruptionBudget")["spec"]["maxUnavailable"], &Value::Null),
    ] {
        assert_eq!(place, expected);
    }
    assert!(container["env"].as_array().unwrap().contains(&values["extraEnv"][0]));
    for binding in of_kind(&objects, "ClusterRoleBinding").into_iter().chain(of_kind(&objects, "RoleBinding"))
    {
        assert_eq!(binding["subjects"][0]["name"], "robot", "{}", binding["metadata"]["name"]);
    }
    let policy = only(&objects, "ValidatingAdmissionPolicy")["spec"]["variables"].to_string();
    assert!(policy.contains("system:serviceaccount:staffetta:robot"), "{policy}");
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn accounts_and_rights_can_be_of_somebody_else_with_helm() {
    let values =
        json!({ "serviceAccount": { "create": false, "name": "robot" }, "rbac": { "create": false } });
    for preset in PRESETS {
        let objects = rendered("staffetta", preset, &values);
        let of_rights = |object: &&Value| {
            object["kind"] == "ServiceAccount" || object["apiVersion"] == "rbac.authorization.k8s.io/v1"
        };
        assert_eq!(objects.iter().find(of_rights), None, "{preset}");
        assert_eq!(pod(&objects)["serviceAccountName"], "robot", "{preset}");
    }
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn a_handler_of_somebody_else_gets_its_options_rights_and_definition_by_values_with_helm() {
    let rule = json!({ "apiGroups": ["example.com"], "resources": ["gadgets"], "verbs": ["list", "watch"] });
    let values = json!({
        "extraConfig": {
            "kubernetes": { "enabled_handlers": ["vif", "gadget"] },
            "gadget": { "greeting": "hello", "limits": { "each": 3 } },
        },
        "rbac": { "additionalPermissions": [rule] },
        "extraObjects": [
            { "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "{{ .Release.Name }}-gadget" } }
        ],
    });
    let objects = rendered("staffetta", "openstack", &values);
    let read: toml::Table = toml::from_str(file(&objects)).unwrap();
    let read = json!(read);
    assert_eq!(read["gadget"], values["extraConfig"]["gadget"]);
    assert_eq!(read["kubernetes"]["enabled_handlers"], json!(["vif", "gadget"]));
    assert_eq!(read["kubernetes"]["pod_vif_driver"], "neutron-vif");
    let roles = of_kind(&objects, "ClusterRole");
    let role = roles.iter().find(|role| role["metadata"]["name"] == "staffetta").unwrap();
    assert!(role["rules"].as_array().unwrap().contains(&rule));
    assert_eq!(only(&objects, "Secret")["metadata"]["name"], "staffetta-gadget");
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn the_key_of_proofs_is_mounted_where_the_configuration_names_it_with_helm() {
    for preset in ["openstack", "cni"] {
        let objects = rendered("staffetta", preset, &json!({ "vifProof": { "secret": "proofs" } }));
        let read: toml::Table = toml::from_str(file(&objects)).unwrap();
        assert_eq!(
            json!(read)["kubernetes"]["vif_proof_key_file"],
            "/etc/staffetta-vif-proof/key",
            "{preset}"
        );
        let volume = json!({ "name": "vif-proof", "secret": { "secretName": "proofs" } });
        let mount = json!({ "name": "vif-proof", "mountPath": "/etc/staffetta-vif-proof", "readOnly": true });
        assert!(pod(&objects)["volumes"].as_array().unwrap().contains(&volume), "{preset}");
        assert!(container(&objects)["volumeMounts"].as_array().unwrap().contains(&mount), "{preset}");
    }
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn options_of_the_user_replace_those_of_the_preset_even_by_nothing_with_helm() {
    let values = json!({ "config": {
        "vif_pool": { "ports_pool_min": 0 },
        "neutron": { "insecure": false },
        "app_hosting": { "devices": [{ "name": "a", "device": { "address": "192.0.2.1", "port": 443 } }] },
    } });
    let objects = rendered("staffetta", "openstack", &values);
    let read: toml::Table = toml::from_str(file(&objects)).unwrap();
    let read = json!(read);
    assert_eq!(read["vif_pool"], json!({ "ports_pool_min": 0, "ports_pool_max": 20 }));
    assert_eq!(read["neutron"], json!({ "cloud": "openstack", "insecure": false }));
    assert_eq!(read["app_hosting"], values["config"]["app_hosting"]);
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn on_an_ipv6_cluster_every_listener_has_an_address_of_ipv6_with_helm() {
    let values = json!({ "ipv6": true, "hostNetwork": true });
    let objects = rendered("staffetta", "prefix", &values);
    let read: toml::Table = toml::from_str(file(&objects)).unwrap();
    let read = json!(read);
    assert_eq!(read["admin"]["probes_listen"], "[::]:8081");
    assert_eq!(read["webhook"]["listen"], "[::]:9443");
    assert_eq!(container(&objects)["env"][2]["value"], "[$(POD_IP)]:8081");
    let objects = rendered("staffetta", "koupleless", &values);
    assert_eq!(container(&objects)["env"][3]["value"], "[$(POD_IP)]:7777");
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn the_webhook_is_called_for_pods_of_the_configured_label_with_helm() {
    let values = json!({ "config": { "prefix_ip": { "node_label": "pool=vpc" } } });
    let objects = rendered("staffetta", "prefix", &values);
    let condition = &only(&objects, "MutatingWebhookConfiguration")["webhooks"][0]["matchConditions"][0];
    let expression = condition["expression"].as_str().unwrap();
    assert!(expression.contains("['pool'].exists(key,") && expression.contains("== ['vpc']"), "{expression}");
    assert!(!expression.contains("windows") && !expression.contains("spec.os"), "{expression}");
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn bases_outside_of_the_cluster_reach_a_service_that_keeps_their_addresses_with_helm() {
    let service = |values: &Value| {
        let objects = rendered("staffetta", "koupleless", values);
        let spec = only(&objects, "Service")["spec"].clone();
        (spec["type"].clone(), spec["externalTrafficPolicy"].clone())
    };
    assert_eq!(service(&json!({})), (Value::Null, Value::Null));
    let outside = json!({ "bases": { "serviceType": "LoadBalancer" } });
    assert_eq!(service(&outside), (json!("LoadBalancer"), json!("Local")));
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn no_pod_may_report_as_a_base_until_the_chart_names_it_with_helm() {
    let admitted = |values: &Value| {
        let objects = rendered("staffetta", "koupleless", values);
        let rules = only(&objects, "NetworkPolicy")["spec"]["ingress"].as_array().unwrap().clone();
        let of_bases = rules.into_iter().filter(|rule| rule["ports"][0]["port"] == 7777);
        of_bases.map(|rule| rule["from"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(admitted(&json!({ "networkPolicy": { "basesFrom": [] } })), [json!(null); 0]);
    let bases = json!([{ "namespaceSelector": { "matchLabels": { "bases": "true" } } }]);
    assert_eq!(admitted(&json!({ "networkPolicy": { "basesFrom": bases } })), [bases]);
    assert_eq!(yaml("chart/values.yaml")["networkPolicy"]["basesFrom"], json!([]));
}
