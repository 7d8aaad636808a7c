//! The table of application hosting drivers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use staffetta_driver::Reason;
use staffetta_driver::app_hosting::{AppHostingDriverTable, AppHostingDrivers, DeviceSpec};
use staffetta_memory::MemoryDevices;

#[test]
fn a_kind_that_is_not_there_is_unsupported_by_name() {
    let fake: Arc<dyn AppHostingDrivers> = Arc::new(MemoryDevices::default().of_cluster("east".into()));
    let table = AppHostingDriverTable::new("FAKE", [("FAKE".to_owned(), fake)].into());
    let spec =
        |driver: &str| DeviceSpec { driver: driver.into(), address: "r1".into(), ..DeviceSpec::default() };
    assert!(table.driver(&spec("FAKE")).is_ok() && table.driver(&spec("")).is_ok());
    for name in ["XR", "NXOS", "xe"] {
        let error = table.driver(&spec(name)).err().unwrap();
        assert_eq!(error.reason(), Reason::Unsupported);
        let expected = format!("unsupported device type `{name}` in `driver`; supported are `FAKE`");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}
