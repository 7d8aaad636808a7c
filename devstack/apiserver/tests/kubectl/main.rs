//! The everyday verbs of a stock kubectl against the embedded server, and through a proxy.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod command;
mod kubectl_through_a_proxy;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use command::Kubectl;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: server, image: 'web:1', ports: [{containerPort: 80}], env: [{name: A, value: a}, {name: B, value: b}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

/// The names of the tests begin with `kubectl`, by which those are found that need one.
mod kubectl {
    use super::*;

    #[test]
    #[ignore = "needs kubectl: devstack/real/test"]
    fn apply_creates_changes_and_leaves_alone() {
        let kubectl = Kubectl::embedded();
        kubectl.write("web.yaml", WEB);
        assert_eq!(kubectl.run("apply -f web.yaml"), "deployment.apps/web created\nservice/web created\n");
        assert_eq!(
            kubectl.run("apply -f web.yaml"),
            "deployment.apps/web unchanged\nservice/web unchanged\n"
        );
        kubectl.run("set env deployment/web C=c");
        kubectl.write("web.yaml", &WEB.replace("web:1", "web:2").replace("{name: A, value: a}, ", ""));
        assert_eq!(
            kubectl.run("apply -f web.yaml"),
            "deployment.apps/web configured\nservice/web unchanged\n"
        );
        let path = "{.spec.template.spec.containers[0].image}{range.spec.template.spec.containers[0].env[*]}{.name}{end}";
        let container = kubectl.run(&format!("get deployment web -o jsonpath={path}"));
        assert_eq!(container, "web:2BC", "what others added stays, what the file dropped goes");
    }

    #[test]
    #[ignore = "needs kubectl: devstack/real/test"]
    fn get_prints_the_columns_people_know() {
        let kubectl = Kubectl::embedded();
        kubectl.write("web.yaml", WEB);
        kubectl.run("apply -f web.yaml");
        let first = |arguments: &str| {
            let lines = kubectl.run(arguments);
            lines.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(first("get deployments"), "NAME READY UP-TO-DATE AVAILABLE AGE");
        assert_eq!(first("get svc"), "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE");
        assert_eq!(first("get ns"), "NAME STATUS AGE");
        assert!(kubectl.run("get all -A").contains("deployment.apps/web"));
        assert!(kubectl.run("get svc web -o yaml").contains("clusterIP: 10.96."));
        assert_eq!(kubectl.run("get deploy,svc -l app=web -o name"), "deployment.apps/web\n");
        assert!(kubectl.fail("get pod absent").contains("pods \"absent\" not found"));
        assert!(
            kubectl.fail("get nothings").contains("the server doesn't have a resource type \"nothings\"")
        );
    }

    #[test]
    #[ignore = "needs kubectl: devstack/real/test"]
    fn describe_tells_of_objects_and_their_events() {
        let kubectl = Kubectl::embedded();
        kubectl.write("web.yaml", WEB);
        kubectl.run("apply -f web.yaml");
        let uid = kubectl.run("get service web -o jsonpath={.metadata.uid}");
        kubectl.write(
        "event.yaml",
        &format!(
            "apiVersion: v1\nkind: Event\nmetadata: {{name: e}}\nreason: Noticed\nmessage: something\ntype: Normal\n\
             involvedObject: {{kind: Service, name: web, namespace: default, uid: {uid}}}\n"
        ),
    );
        kubectl.run("apply -f event.yaml");
        let service = kubectl.run("describe service web");
        assert!(service.contains("app=web") && service.contains("Noticed"), "{service}");
        let deployment = kubectl.run("describe deployment web");
        assert!(deployment.contains("2 desired"), "{deployment}");
    }

    #[test]
    #[ignore = "needs kubectl: devstack/real/test"]
    fn patch_annotate_label_and_scale_write() {
        let kubectl = Kubectl::embedded();
        kubectl.write("web.yaml", WEB);
        kubectl.run("apply -f web.yaml");
        kubectl.run("annotate service web a/b=c");
        kubectl.run("label service web color=red");
        assert_eq!(kubectl.run("get service -l color=red -o name"), "service/web\n");
        assert!(kubectl.fail("label service web color=blue").contains("already has a value"));
        kubectl.run("label service web color-");
        kubectl.run("annotate service web a/b-");
        kubectl.run(r#"patch service web -p {"spec":{"ports":[{"port":80,"name":"http"}]}}"#);
        kubectl.run(r#"patch service web --type=json -p [{"op":"replace","path":"/spec/ports/0/targetPort","value":8080}]"#);
        kubectl.run(r#"patch service web --type=merge -p {"spec":{"sessionAffinity":"ClientIP"}}"#);
        let path =
            "{.spec.ports[0].name}/{.spec.ports[0].targetPort}/{.spec.sessionAffinity}/{.metadata.labels}";
        assert_eq!(kubectl.run(&format!("get service web -o jsonpath={path}")), "http/8080/ClientIP/");
        assert_eq!(kubectl.run("scale deployment web --replicas=5"), "deployment.apps/web scaled\n");
        assert_eq!(kubectl.run("get deployment web -o jsonpath={.spec.replicas}"), "5");
    }

    #[test]
    #[ignore = "needs kubectl: devstack/real/test"]
    fn create_makes_objects_from_flags_and_files() {
        let kubectl = Kubectl::embedded();
        kubectl.write("web.yaml", WEB);
        kubectl.run("create namespace team");
        kubectl.run("create -n team -f web.yaml");
        kubectl.run("create -n team deployment api --image=api:1 --replicas=3 --port=8080");
        kubectl.run("create -n team configmap settings --from-literal=a=b");
        kubectl.run("create -n team secret generic key --from-literal=a=b");
        kubectl.run("create -n team service clusterip plain --tcp=80:8080");
        kubectl.run("expose -n team deployment api");
        kubectl.run("run -n team one --image=one:1");
        let path = "{.spec.replicas}{.spec.template.spec.containers[0].image}{.spec.template.spec.containers[0].ports[0].containerPort}";
        assert_eq!(kubectl.run(&format!("get -n team deployment api -o jsonpath={path}")), "3api:18080");
        assert_eq!(kubectl.run("get -n team configmap settings -o jsonpath={.data.a}"), "b");
        assert_eq!(kubectl.run("get -n team secret key -o jsonpath={.data.a}"), "Yg==");
        let path = "{.spec.ports[0].port}:{.spec.ports[0].targetPort}";
        assert_eq!(kubectl.run(&format!("get -n team service plain -o jsonpath={path}")), "80:8080");
        assert!(kubectl.fail("create namespace team").contains("already exists"));
    }

    #[test]
    #[ignore = "needs kubectl: devstack/real/test"]
    fn delete_waits_until_objects_are_gone() {
        let kubectl = Kubectl::embedded();
        kubectl.write("web.yaml", WEB);
        kubectl.run("create namespace team");
        kubectl.run("apply -n team -f web.yaml");
        kubectl.run("run -n team one --image=one:1");
        assert!(kubectl.run("delete -n team pod one").contains("pod \"one\" deleted"));
        kubectl.run("delete -n team -f web.yaml");
        assert_eq!(kubectl.run("get -n team deployments,services -o name"), "");
        kubectl.run("delete namespace team --timeout=20s");
        assert!(kubectl.fail("get namespace team").contains("not found"));
    }

    #[test]
    #[ignore = "needs kubectl: devstack/real/test"]
    fn get_watch_prints_what_happens() {
        let kubectl = Kubectl::embedded();
        kubectl.run("run one --image=one:1");
        let mut watching = kubectl.command("get pods -w -o name").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "pod/one");
        kubectl.run("run two --image=two:1");
        assert_eq!(lines.next().unwrap().unwrap(), "pod/two");
        kubectl.run("label pod one seen=yes");
        assert_eq!(lines.next().unwrap().unwrap(), "pod/one");
        watching.kill().unwrap();
        watching.wait().unwrap();
    }

    #[test]
    #[ignore = "needs kubectl: devstack/real/test"]
    fn custom_resources_are_objects_like_others() {
        let kubectl = Kubectl::embedded();
        kubectl.write(
            "definition.yaml",
            "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: devices.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: devices, kind: Device, shortNames: [dev]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns: [{name: Address, type: string, jsonPath: .spec.address}]
",
        );
        kubectl.run("apply -f definition.yaml");
        kubectl.run("wait --for=condition=Established crd/devices.example.org --timeout=20s");
        let device =
            "apiVersion: example.org/v1\nkind: Device\nmetadata: {name: a}\nspec: {address: 10.0.0.1}\n";
        kubectl.write("device.yaml", device);
        assert_eq!(kubectl.run("apply -f device.yaml"), "device.example.org/a created\n");
        assert!(kubectl.run("get dev").contains("10.0.0.1"));
        kubectl.write("device.yaml", &device.replace("10.0.0.1", "10.0.0.2"));
        assert_eq!(kubectl.run("apply -f device.yaml"), "device.example.org/a configured\n");
        kubectl.run("delete -f definition.yaml");
        kubectl.fail("get devices");
        assert_eq!(kubectl.run("get crd -o name"), "");
    }
}
