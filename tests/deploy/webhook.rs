//! The admission webhook of the chart: its objects, and a real API server that calls it.

use std::net::TcpListener;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, from_value, json};

use staffetta::config::WebhookOptions;

use crate::cluster::{CLUSTER, may_only};
use crate::process::eventually;
use crate::rendered::{configuration, container, objects, of_kind, only, rendered};
use crate::rights::{self, Rights, at_home, of_handlers};
use crate::site::Site;

const ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

#[test]
fn the_objects_of_the_webhook_and_the_options_of_the_program_name_the_same_things() {
    let objects = objects("prefix");
    let of_program: WebhookOptions = from_value(configuration(&objects).value["webhook"].clone()).unwrap();
    let configuration = only(&objects, "MutatingWebhookConfiguration");
    let webhook = &configuration["webhooks"][0];
    let (service, secret) = (only(&objects, "Service"), only(&objects, "Secret"));
    assert_eq!(configuration["metadata"]["name"], json!(of_program.configuration_name));
    assert_eq!(secret["metadata"]["name"], json!(of_program.secret_name));
    assert_eq!(secret.get("data"), None, "applying it again must not change its content");
    let target = &webhook["clientConfig"]["service"];
    assert_eq!(
        (&target["name"], &target["namespace"]),
        (&service["metadata"]["name"], &service["metadata"]["namespace"])
    );
    assert_eq!(
        (&target["path"], &target["port"]),
        (&json!("/mutate-v1-pod"), &service["spec"]["ports"][0]["port"])
    );
    let ports = container(&objects)["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == service["spec"]["ports"][0]["targetPort"]).unwrap();
    assert_eq!(port["containerPort"], json!(of_program.listen.unwrap().port()));
    assert_eq!(webhook["failurePolicy"], "Ignore", "an outage of the webhook must block no pod");
    let named = of_kind(&objects, "Role").into_iter().chain(of_kind(&objects, "ClusterRole"));
    let rules = named.flat_map(|role| role["rules"].as_array().unwrap());
    let ours = rules.filter(|rule| {
        [json!(["secrets"]), json!(["mutatingwebhookconfigurations"])].contains(&rule["resources"])
    });
    let names: Vec<_> = ours.map(|rule| rule["resourceNames"].clone()).collect();
    assert_eq!(names, [json!(["staffetta-webhook"]), json!(["staffetta-webhook"])]);
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn options_of_a_webhook_that_nobody_serves_make_no_objects_with_helm() {
    let values = json!({ "config": { "webhook": { "certificate_lifetime": "90d" } } });
    for object in rendered("staffetta", "openstack", &values) {
        let is_file = object["metadata"]["name"] == "staffetta-configuration";
        assert!(is_file || !object.to_string().to_lowercase().contains("webhook"), "{object}");
    }
}

/// A pod with this part of its spec, which the pod security standard admits.
fn pod(name: &str, spec: &Value) -> Pod {
    let mut whole = json!({
        "automountServiceAccountToken": false,
        "tolerations": [{ "operator": "Exists" }],
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "web", "image": "web:1", "resources": { "limits": { "cpu": "1" } },
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }],
    });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    from_value(json!({ "metadata": { "name": name }, "spec": whole })).unwrap()
}

/// The number of addresses that the first container requests, and its limit.
fn requested(pod: &Pod) -> [Option<String>; 2] {
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
    [resources.requests, resources.limits].map(|part| Some(part?.get(ADDRESS)?.0.clone()))
}

fn required(os: &[&str]) -> Value {
    let term = json!({ "matchExpressions": [{ "key": "kubernetes.io/os", "operator": "In", "values": os }] });
    let required = json!({ "nodeSelectorTerms": [term] });
    json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_pod_of_windows_nodes_gets_the_resource_and_an_outage_of_the_webhook_blocks_none_on_a_real_server()
{
    let _exclusive = CLUSTER.lock().await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let kubernetes = json!({ "enabled_handlers": ["prefix_ip"], "prefix_provider_driver": "memory" });
    let site = Site::apply("webhook", &json!({ "config": { "kubernetes": kubernetes } })).await;
    let hook = "staffetta-webhook";
    // No network leads from the API server to a service, and other namespaces are none of this test's business.
    let home = json!({ "matchLabels": { "kubernetes.io/metadata.name": site.namespace } });
    let direct = json!([
        { "op": "replace", "path": "/webhooks/0/clientConfig", "value": { "url": format!("https://127.0.0.1:{port}/mutate-v1-pod") } },
        { "op": "add", "path": "/webhooks/0/namespaceSelector", "value": home },
    ]);
    let resource = format!("mutatingwebhookconfiguration/{hook}");
    site.kubectl.run(&["patch", &resource, "--type=json", "--patch", &direct.to_string()]).await;
    let maps = Api::<ConfigMap>::namespaced(site.client.clone(), "kube-system");
    let map = json!({ "metadata": { "name": "amazon-vpc-cni" }, "data": { "enable-windows-ipam": "true" } });
    maps.create(&PostParams::default(), &from_value(map).unwrap()).await.unwrap();

    let account = site.account().await;
    let token = site.token(&account, "token").await;
    site.put(&token);
    let elsewhere = |configuration: String| {
        let listen = "listen = \"0.0.0.0:9443\"";
        assert!(configuration.contains(listen), "{configuration}");
        configuration.replace(listen, &format!("listen = \"127.0.0.1:{port}\""))
    };
    let mut process = site.run_changed("only", elsewhere).await;
    process.ready().await;

    let pods = Api::<Pod>::namespaced(site.client.clone(), &site.namespace);
    let tried = PostParams { dry_run: true, ..PostParams::default() };
    let created = async |spec: &Value| pods.create(&tried, &pod("web", spec)).await.unwrap();
    let one = [Some("1".to_owned()), Some("1".to_owned())];
    let windows = json!({ "nodeSelector": { "kubernetes.io/os": "windows" } });
    eventually("the API server calls the webhook", async || requested(&created(&windows).await) == one).await;
    let in_spec = json!({ "os": { "name": "windows" }, "securityContext": { "runAsNonRoot": true } });
    for spec in [windows.clone(), required(&["windows"]), in_spec] {
        let mut pod = pod("web", &spec);
        if spec.get("os").is_some() {
            // Linux-only fields are forbidden there.
            pod.spec.as_mut().unwrap().containers[0].security_context = None;
        }
        let created = pods.create(&tried, &pod).await;
        match created {
            Ok(created) => assert_eq!(requested(&created), one, "{spec}"),
            Err(error) => panic!("{spec}: {error}"),
        }
    }
    for spec in [json!({}), json!({ "os": { "name": "linux" } }), required(&["windows", "linux"])] {
        assert_eq!(requested(&created(&spec).await), [None, None], "{spec}");
    }
    let real = pods.create(&PostParams::default(), &pod("real", &windows)).await.unwrap();
    assert_eq!(requested(&real), one);

    let (expected, home) =
        (of_webhook(hook), at_home(&[]).union(&of_secret(hook)).cloned().collect::<Rights>());
    let client = site.client_of(&token).await;
    may_only(&site, &client, "default", &expected, &home).await;

    site.kubectl
        .run(&[
            "-n",
            "kube-system",
            "patch",
            "configmap/amazon-vpc-cni",
            "--patch",
            r#"{"data":{"enable-windows-ipam":"false"}}"#,
        ])
        .await;
    eventually("the function is off", async || requested(&created(&windows).await) == [None, None]).await;
    assert!(process.terminate().await.success());
    assert_eq!(
        requested(&created(&windows).await),
        [None, None],
        "without the webhook, pods are created as they are"
    );

    let user = format!("system:serviceaccount:{}:{account}", site.namespace);
    let used =
        rights::used(&site.kubeconfig, &user, &of_webhook(hook).union(&of_secret(hook)).cloned().collect());
    let own: Rights = of_secret(hook).into_iter().chain(of_configuration(hook)).collect();
    assert!(own.is_subset(&used), "rights that nobody used: {:?}", own.difference(&used));
    pods.delete("real", &DeleteParams::default().grace_period(0)).await.unwrap();
    maps.delete("amazon-vpc-cni", &DeleteParams::default()).await.unwrap();
    site.remove().await;
}

/// The rights of the handler and of the webhook in all namespaces.
fn of_webhook(hook: &str) -> Rights {
    of_handlers(&["prefix_ip"]).into_iter().chain(of_configuration(hook)).collect()
}

fn of_configuration(hook: &str) -> Rights {
    let verbs = ["list", "watch", "patch"];
    verbs
        .map(|verb| format!("{verb} mutatingwebhookconfigurations.admissionregistration.k8s.io {hook}"))
        .into()
}

fn of_secret(hook: &str) -> Rights {
    ["list", "watch", "patch"].map(|verb| format!("{verb} secrets {hook}")).into()
}
