//! A proxy is no hindrance for kubectl, and its faults are seen by people as those of a server.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use staffetta_apiserver::{Fault, Requests};

use crate::WEB;
use crate::command::Kubectl;

#[test]
#[ignore = "needs kubectl: devstack/real/test"]
fn everyday_verbs_and_faults_on_the_embedded_server() {
    let kubectl = Kubectl::proxied();
    everyday_verbs_and_faults(&kubectl);
}

#[test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
fn everyday_verbs_and_faults_on_a_real_server() {
    let kubectl = Kubectl::real();
    everyday_verbs_and_faults(&kubectl);
}

fn everyday_verbs_and_faults(kubectl: &Kubectl) {
    let namespace = format!("proxied-{}", std::process::id());
    let run = |arguments: &str| kubectl.run(&format!("-n {namespace} {arguments}"));
    kubectl.write("web.yaml", WEB);
    kubectl.run(&format!("create namespace {namespace}"));
    assert_eq!(run("apply -f web.yaml"), "deployment.apps/web created\nservice/web created\n");
    assert_eq!(run("apply -f web.yaml"), "deployment.apps/web unchanged\nservice/web unchanged\n");
    assert!(run("get deployments,services").contains("deployment.apps/web"));

    let get = "get services -w -o name";
    let mut watching =
        kubectl.command(&format!("-n {namespace} {get}")).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "service/web");
    run("label service web seen=yes");
    assert_eq!(lines.next().unwrap().unwrap(), "service/web", "events come when they happen");
    kubectl.faults().cut_watches();
    assert!(lines.next().is_none(), "kubectl gives up a watch that is cut");
    watching.wait().unwrap();

    let services = || Requests::any().resource("services").namespace(&namespace);
    kubectl.faults().inject(services().verb("patch"), 1, Fault::status(403));
    let said = kubectl.fail(&format!("-n {namespace} label service web seen-"));
    assert!(said.contains("Error from server (Forbidden): this request was chosen to fail"), "{said}");
    kubectl.faults().inject(services().verb("get"), 1, Fault::CutMid);
    let said = kubectl.fail(&format!("-n {namespace} get service web"));
    assert!(said.contains("unexpected EOF"), "{said}");

    assert!(run("delete -f web.yaml --timeout=60s").contains("service \"web\" deleted"));
    kubectl.run(&format!("delete namespace {namespace} --wait=false"));
}
