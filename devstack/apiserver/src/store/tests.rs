use super::*;
use serde_json::json;

fn pods() -> Arc<str> {
    "pods".into()
}

fn pod(name: &str) -> (Key, Value) {
    (Key::new("default", name), json!({"metadata": {"namespace": "default", "name": name}}))
}

fn put(store: &mut Store, name: &str) -> u64 {
    let (key, object) = pod(name);
    crate::object::revision(&store.put(&pods(), key, object))
}

fn names(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(|object| meta(object, "name")).collect()
}

#[test]
fn every_write_takes_the_next_revision() {
    let mut store = Store::new(10);
    assert_eq!(put(&mut store, "a"), 1);
    assert_eq!(put(&mut store, "a"), 2);
    store.remove(&pods(), &pod("a").0);
    assert_eq!(store.revision(), 3);
}

#[test]
fn an_earlier_state_is_read_from_the_log() {
    let mut store = Store::new(10);
    put(&mut store, "a");
    let then = put(&mut store, "b");
    store.remove(&pods(), &pod("a").0);
    put(&mut store, "c");
    assert_eq!(names(&store.list("pods", None)), ["b", "c"]);
    assert_eq!(names(&store.list_at("pods", None, then).unwrap()), ["a", "b"]);
}

#[test]
fn a_state_older_than_the_log_has_expired() {
    let mut store = Store::new(2);
    for name in ["a", "b", "c", "d"] {
        put(&mut store, name);
    }
    assert_eq!(store.list_at("pods", None, 1), Err(Expired { oldest: 2 }));
    assert_eq!(store.events_after(2).unwrap().count(), 2);
    store.trim();
    assert!(store.events_after(3).is_err());
    assert_eq!(store.events_after(4).unwrap().count(), 0);
}

#[test]
fn a_namespace_does_not_see_its_neighbours() {
    let mut store = Store::new(10);
    for namespace in ["a", "a-b", "b"] {
        store.put(
            &pods(),
            Key::new(namespace, "x"),
            json!({"metadata": {"namespace": namespace, "name": "x"}}),
        );
    }
    assert_eq!(store.list("pods", Some("a")).len(), 1);
    assert_eq!(store.contents("a-b"), [(pods(), Key::new("a-b", "x"))]);
}

#[test]
fn dependents_follow_the_owner_references() {
    let mut store = Store::new(10);
    let (key, mut object) = pod("a");
    object["metadata"]["ownerReferences"] = json!([{"uid": "u"}]);
    store.put(&pods(), key.clone(), object);
    assert_eq!(store.dependents("u"), [(pods(), key.clone())]);
    put(&mut store, "a");
    assert!(store.dependents("u").is_empty());
}
