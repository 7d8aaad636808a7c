//! delete and deletecollection on each row.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::Place;
use crate::reads::names;
use crate::rows::{made, rows};

pub(crate) async fn delete_answers_and_removes(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await {
        let called = row.called();
        let object = made(place, &row, "a").await;
        let path = row.object(place, "a");
        let answer = place.delete(&path, &Value::Null).await.expect(200, &called);
        if row.echoed {
            assert_eq!(answer["metadata"]["uid"], object["metadata"]["uid"], "{called}");
        } else {
            assert_eq!(answer["status"], "Success", "{called}: {answer}");
            let details = &answer["details"];
            let given = [&details["name"], &details["kind"], &details["uid"]];
            let wanted = [&json!(row.name(place, "a")), &json!(row.plural), &object["metadata"]["uid"]];
            assert_eq!(given, wanted, "{called}");
        }
        place.until(&format!("{called} is gone"), || async { place.get(&path).await.code == 404 }).await;
        place.delete(&path, &Value::Null).await.refused(
            404,
            "NotFound",
            &[],
            &format!("delete {called} twice"),
        );
    }
}

pub(crate) async fn delete_collection_takes_what_is_selected(place: Arc<Place>) {
    let place = &*place;
    for row in rows(place).await.into_iter().filter(|row| row.namespaced) {
        let called = row.called();
        for name in ["a", "b", "c"] {
            made(place, &row, name).await;
        }
        let selected = format!("{}?labelSelector=test%20in%20(a,b)", row.path(place));
        let list = place.delete(&selected, &Value::Null).await.expect(200, &called);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{called}: {list}");
        assert_eq!(names(place, &row, "labelSelector=test").await, [row.name(place, "c")], "{called}");
    }
    let refused = place.delete("/api/v1/namespaces", &Value::Null).await;
    refused.refused(405, "MethodNotAllowed", &[], "delete all namespaces");
}
