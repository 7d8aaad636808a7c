use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::patch::Form;
use crate::selector::Selector;
use crate::table::builtin;

fn cluster() -> Cluster {
    Cluster::new(1000, Timestamp::UNIX_EPOCH)
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn create(cluster: &mut Cluster, resource: &Resource, body: &Value) -> Object {
    cluster.create(resource, Some("default"), body.clone(), false, now()).unwrap()
}

fn config_map(cluster: &mut Cluster, metadata: &Value) -> Object {
    create(cluster, &builtin("", "configmaps"), &json!({"metadata": metadata}))
}

fn patch(cluster: &mut Cluster, name: &str, patch: &Value) -> Result<Object, Status> {
    let change = Change::Patch(Form::Merge, patch.to_string().into());
    cluster.update(&builtin("", "configmaps"), &Key::new("default", name), Part::Main, change, false, now())
}

#[test]
fn a_fresh_cluster_has_its_namespaces_and_their_accounts() {
    let cluster = cluster();
    assert_eq!(cluster.store.list("namespaces", None).len(), STANDARD_NAMESPACES.len());
    assert_eq!(cluster.store.list("serviceaccounts", Some("default")).len(), 1);
}

#[test]
fn what_changes_nothing_takes_no_revision() {
    let mut cluster = cluster();
    config_map(&mut cluster, &json!({"name": "a", "labels": {"x": "y"}}));
    let before = cluster.store.revision();
    patch(&mut cluster, "a", &json!({"metadata": {"labels": {"x": "y"}}})).unwrap();
    assert_eq!(cluster.store.revision(), before);
    patch(&mut cluster, "a", &json!({"metadata": {"labels": {"x": "z"}}})).unwrap();
    assert_eq!(cluster.store.revision(), before + 1);
}

#[test]
fn a_dry_run_answers_and_stores_nothing() {
    let mut cluster = cluster();
    let before = cluster.store.revision();
    let maps = builtin("", "configmaps");
    let answer =
        cluster.create(&maps, Some("default"), json!({"metadata": {"name": "a"}}), true, now()).unwrap();
    assert_eq!(meta(&answer, "name"), "a");
    assert_eq!(cluster.store.revision(), before);
}

#[test]
fn a_dependent_that_comes_after_its_owner_has_gone_is_collected() {
    let mut cluster = cluster();
    let owner = config_map(&mut cluster, &json!({"name": "owner"}));
    let at = Key::new("default", "owner");
    cluster.delete(&builtin("", "configmaps"), &at, &DeleteOptions::default(), now()).unwrap();
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": meta(&owner, "uid")});
    config_map(&mut cluster, &json!({"name": "late", "ownerReferences": [reference]}));
    assert!(cluster.store.get("configmaps", &Key::new("default", "late")).is_none());
}

#[test]
fn a_dependent_of_a_kind_that_nobody_serves_stays() {
    let mut cluster = cluster();
    let reference = json!({"apiVersion": "example.org/v1", "kind": "Device", "name": "owner", "uid": "u"});
    config_map(&mut cluster, &json!({"name": "a", "ownerReferences": [reference]}));
    assert!(cluster.store.get("configmaps", &Key::new("default", "a")).is_some());
}

#[test]
fn a_chain_of_owners_ends_with_its_first() {
    let mut cluster = cluster();
    let mut owner = config_map(&mut cluster, &json!({"name": "m0"}));
    for step in 1..5 {
        let reference = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": format!("m{}", step - 1), "uid": meta(&owner, "uid"),
        });
        owner =
            config_map(&mut cluster, &json!({"name": format!("m{step}"), "ownerReferences": [reference]}));
    }
    let at = Key::new("default", "m0");
    cluster.delete(&builtin("", "configmaps"), &at, &DeleteOptions::default(), now()).unwrap();
    assert!(cluster.store.list("configmaps", None).is_empty());
}

#[test]
fn a_page_goes_on_where_the_last_one_ended() {
    let mut cluster = cluster();
    for name in ["a", "b", "c"] {
        config_map(&mut cluster, &json!({"name": name}));
    }
    let maps = builtin("", "configmaps");
    let all = Selector::default();
    let query = ListQuery { limit: 2, ..ListQuery::default() };
    let first = cluster.list(&maps, None, &all, &query).unwrap();
    let (token, left) = first.next.unwrap();
    assert_eq!((first.objects.len(), left), (2, Some(1)));
    let query = ListQuery { continue_from: token, ..query };
    let last = cluster.list(&maps, None, &all, &query).unwrap();
    assert_eq!((last.objects.len(), last.next.is_none()), (1, true));
}

#[test]
fn the_addresses_of_services_are_given_back() {
    let mut cluster = cluster();
    let services = builtin("", "services");
    let body = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    let first = create(&mut cluster, &services, &body("a"));
    cluster.delete(&services, &Key::new("default", "a"), &DeleteOptions::default(), now()).unwrap();
    let second = create(&mut cluster, &services, &body("b"));
    assert_eq!(first["spec"]["clusterIP"], second["spec"]["clusterIP"]);
}
