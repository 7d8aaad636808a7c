//! The device answers in the shapes of real ones, of which there are samples beside the modules.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::client::{ARP, OPER, device, get};
use crate::yanglint::Yanglint;

/// The leaves of a document: their paths without the places in lists, and what sort of value each is.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| leaves(value, &format!("{path}/{name}"), found));
        }
        Value::Array(entries) => entries.iter().for_each(|entry| leaves(entry, path, found)),
        Value::String(_) => drop(found.insert(format!("{path}: text"))),
        Value::Number(_) => drop(found.insert(format!("{path}: number"))),
        Value::Bool(_) => drop(found.insert(format!("{path}: boolean"))),
        Value::Null => drop(found.insert(format!("{path}: null"))),
    }
}

fn shape(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    leaves(value, "", &mut found);
    found
}

#[tokio::test]
#[ignore = "needs yanglint and the YANG modules: devstack/real/test"]
async fn a_device_without_apps_answers_in_the_shape_of_a_real_one_that_yanglint_reads() {
    let yanglint = Yanglint::find();
    let samples = yanglint.modules.join("../operational");
    let (_site, device) = device(|_| ());
    for (path, sample) in [(OPER, "app-host-data.xml"), (ARP, "arp-data.xml")] {
        let real = shape(&yanglint.json(&samples.join(sample)));
        let ours = shape(&get(&device, path).await.json());
        assert!(real.len() > 8, "{real:#?}");
        assert_eq!(ours, real, "{path}");
    }
}
