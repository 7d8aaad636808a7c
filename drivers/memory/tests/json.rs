//! The JSON form of injected faults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use serde_json::json;
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::Fault;

#[test]
fn faults_are_written_as_a_person_would() {
    let outage = DriverError::new(Reason::Unavailable, "make a port");
    let faults = [
        (Fault::Fail(outage.clone()), json!({ "fail": { "reason": "unavailable", "step": "make a port" } })),
        (Fault::Hang, json!("hang")),
        (
            Fault::DoneThenFail(outage),
            json!({ "done_then_fail": { "reason": "unavailable", "step": "make a port" } }),
        ),
        (Fault::DoneThenHang, json!("done_then_hang")),
        (Fault::Delay(Duration::from_millis(20)), json!({ "delay_ms": 20 })),
        (Fault::DoneThenDelay(Duration::from_millis(20)), json!({ "done_then_delay_ms": 20 })),
    ];
    for (fault, plain) in faults {
        let json = serde_json::to_value(&fault).unwrap();
        assert_eq!(json, plain);
        let read: Fault = serde_json::from_value(plain).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), json);
    }
}
