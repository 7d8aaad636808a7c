//! Pages and versions of lists.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::Place;

async fn config_maps(place: &Place, names: &[&str]) {
    for name in names {
        let body = json!({"metadata": {"name": name, "labels": {"test": "list"}}});
        place.post(&place.core("configmaps"), &body).await.expect(201, name);
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

pub(crate) async fn pages_show_one_revision(place: Arc<Place>) {
    let place = &*place;
    config_maps(place, &["a", "b", "c", "d", "e"]).await;
    let path = place.core("configmaps?labelSelector=test=list&limit=2");
    let first = place.get(&path).await.expect(200, &path);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"].get("remainingItemCount"), None, "nobody counts what a selector leaves");
    place.delete(&place.core("configmaps/c"), &Value::Null).await.expect(200, "delete c");
    config_maps(place, &["cc", "f"]).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = place.get(&format!("{path}&continue={token}")).await.expect(200, "the second page");
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let last = place.get(&format!("{path}&continue={token}")).await.expect(200, "the last page");
    assert_eq!((names(&last), last["metadata"]["continue"].as_str().unwrap_or_default()), (vec!["e"], ""));
    let counted = place.get(&place.core("configmaps?limit=2")).await.expect(200, "a page of all");
    assert!(counted["metadata"]["remainingItemCount"].as_u64() >= Some(4), "{}", counted["metadata"]);
    let refused = place.get(&format!("{path}&continue=nonsense")).await;
    refused.refused(400, "BadRequest", &[], "a token that no list gave");
    let refused = place.get(&format!("{path}&continue={token}&resourceVersion=5")).await;
    refused.refused(400, "BadRequest", &[], "a token and a version");
}

pub(crate) async fn versions_of_a_list_are_honoured_or_refused(place: Arc<Place>) {
    let place = &*place;
    config_maps(place, &["a"]).await;
    let path = place.core("configmaps?labelSelector=test=list");
    let then = place.version(&path).await;
    config_maps(place, &["b"]).await;
    for (query, wanted) in [
        (String::new(), &["a", "b"][..]),
        (format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan"), &["a", "b"]),
        (format!("resourceVersion={then}&resourceVersionMatch=Exact"), &["a"]),
    ] {
        let list = place.get(&format!("{path}&{query}")).await.expect(200, &query);
        assert_eq!(names(&list), wanted, "{query}");
    }
    place.get(&format!("{path}&resourceVersion=0")).await.expect(200, "any version");
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=5&resourceVersionMatch=No",
    ] {
        let refused = place.get(&format!("{path}&{query}")).await;
        refused.refused(422, "Invalid", &["resourceVersionMatch"], query);
    }
    place.get(&format!("{path}&resourceVersion=abc")).await.refused(400, "BadRequest", &[], "no version");
    let future = place.get(&format!("{path}&resourceVersion=999999999")).await;
    assert_eq!((future.code, &future.body["reason"]), (504, &json!("Timeout")), "{}", future.body);
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

pub(crate) async fn selectors_that_cannot_be_read_are_400(place: Arc<Place>) {
    let place = &*place;
    for query in [
        "labelSelector=a%20b",
        "labelSelector=a%20in%20b",
        "fieldSelector=spec.color=red",
        "fieldSelector=nonsense",
        "limit=x",
    ] {
        let path = place.core(&format!("pods?{query}"));
        place.get(&path).await.refused(400, "BadRequest", &[], query);
    }
    for query in ["fieldSelector=spec.nodeName=n,status.phase!=Running", "fieldSelector=metadata.namespace=a"]
    {
        place.get(&place.core(&format!("pods?{query}"))).await.expect(200, query);
    }
}
