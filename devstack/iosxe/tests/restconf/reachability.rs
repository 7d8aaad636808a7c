//! A device that cannot be reached, in each way, and one that is restarted.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::Value;
use staffetta_iosxe_device::{Device, Effect, Kept, Reachability, Times};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Asking, CFG, PATIENCE, configure, device, get, operate, until_state};

async fn asked(device: &Device) -> std::io::Result<u16> {
    Asking::new("GET", CFG, &Value::Null).of(device).await.map(|answer| answer.code)
}

/// Asks until it is answered: the listening socket changes a moment after it is told to.
async fn until_answered(device: &Device) {
    let answered = async {
        while asked(device).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, answered).await.expect("it answers again");
}

/// Asks until it fails like this.
async fn until_fails(device: &Device, kind: ErrorKind) {
    let failed = async {
        while asked(device).await.err().map(|error| error.kind()) != Some(kind) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, failed).await.unwrap_or_else(|_| panic!("it does not fail with {kind}"));
}

#[tokio::test]
async fn connections_are_refused_or_reset_until_it_is_up_again_at_its_address() {
    let (_site, device) = device(|_| ());
    assert_eq!(asked(&device).await.unwrap(), 204);
    for (reachability, kind) in [
        (Reachability::Refuses, ErrorKind::ConnectionRefused),
        (Reachability::Resets, ErrorKind::ConnectionReset),
    ] {
        device.reach(reachability);
        until_fails(&device, kind).await;
        device.reach(Reachability::Up);
        until_answered(&device).await;
    }
}

#[tokio::test]
async fn a_device_that_hangs_takes_connections_and_answers_none() {
    let (_site, device) = device(|_| ());
    device.reach(Reachability::Hangs);
    timeout(Duration::from_millis(50), asked(&device)).await.unwrap_err();
    device.reach(Reachability::Up);
    until_answered(&device).await;
}

#[tokio::test]
async fn connections_that_are_open_end_when_it_goes() {
    let (_site, device) = device(|_| ());
    let stream = TcpStream::connect(device.address()).await.unwrap();
    // Another answer shows that the connection before it was taken in.
    assert_eq!(asked(&device).await.unwrap(), 204);
    device.reach(Reachability::Refuses);
    until_fails(&device, ErrorKind::ConnectionRefused).await;
    let sent = Asking::new("GET", CFG, &Value::Null).over(stream);
    timeout(PATIENCE, sent).await.expect("it has ended").unwrap_err();
}

#[tokio::test]
async fn after_a_reboot_it_knows_what_it_kept() {
    for (kept, apps, configured) in
        [(Kept::Apps, 1, true), (Kept::Configuration, 0, true), (Kept::Nothing, 0, false)]
    {
        let (_site, device) = device(|options| options.times = Times::each(Duration::from_millis(1)));
        configure(&device, "web").await;
        operate(&device, "install", "web").await;
        until_state(&device, "web", Some("RUNNING")).await;
        device.reboot(kept, Duration::from_millis(20));
        until_fails(&device, ErrorKind::ConnectionRefused).await;
        until_answered(&device).await;
        assert_eq!(get(&device, &format!("{CFG}/apps/app=web")).await.code == 200, configured);
        if apps == 1 {
            until_state(&device, "web", Some("RUNNING")).await;
        } else {
            until_state(&device, "web", None).await;
            assert!(device.ledger().of("web").any(|effect| *effect == Effect::Forgotten));
        }
        assert_eq!(device.ledger().existing().is_empty(), kept == Kept::Nothing);
    }
}
