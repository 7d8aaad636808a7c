//! Wrong passwords and certificates.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use staffetta_driver::Reason;
use staffetta_iosxe_device::Tls;

use crate::world::{World, delete, deploy, secure, until, web};

#[tokio::test]
async fn a_wrong_password_is_tried_once_until_its_time_comes() {
    let world = World::new(|options| {
        (options.lock_after, options.lock_time) = (Some(3), Duration::from_secs(3600));
    });
    let mut spec = world.spec();
    spec["password"] = "wrong".into();
    let driver = world.driver_by(&spec);
    for _ in 0..20 {
        let error = driver.check_connection().await.unwrap_err();
        assert_eq!(error.reason(), Reason::Refused, "{error}");
        assert!(error.retry_after().is_some(), "it says when it is worth trying again");
        assert!(!format!("{error:?} {error}").contains("wrong\""), "the password is not told");
        driver.list_pods().await.unwrap_err();
        driver.deploy_pod(&web()).await.unwrap_err();
    }
    assert_eq!((world.device.denied(), world.device.locks()), (1, 0));
    world.driver().check_connection().await.unwrap();
}

#[tokio::test]
async fn a_password_that_was_changed_on_the_device_costs_one_attempt() {
    let world = World::new(|options| options.lock_after = Some(3));
    let driver = world.driver();
    deploy(&*driver, &web()).await;
    world.device.set_credentials("admin", "new");
    until("it is refused", async || driver.list_pods().await.is_err()).await;
    for _ in 0..10 {
        assert_eq!(driver.list_pods().await.unwrap_err().reason(), Reason::Refused);
    }
    assert_eq!((world.device.denied(), world.device.locks()), (1, 0));
    let mut spec = world.spec();
    spec["password"] = "new".into();
    let other = world.driver_by(&spec);
    delete(&*other, &web().owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn a_certificate_is_taken_from_the_authority_that_was_named_or_when_it_is_the_pinned_one() {
    let world = secure();
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, world.site.authority()).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, world.device.certificate().unwrap());
    let mut pin = String::new();
    digest.as_ref().iter().for_each(|octet| write!(pin, "{octet:02x}").unwrap());
    let with = |tls: serde_json::Value| {
        let mut spec = world.spec();
        spec["tls"] = tls;
        world.driver_by(&spec)
    };
    for tls in [
        json!({ "enabled": true, "caFile": authority }),
        json!({ "enabled": true, "certificateSha256": pin }),
        json!({ "enabled": true, "insecureSkipVerify": true }),
    ] {
        with(tls.clone()).check_connection().await.unwrap_or_else(|error| panic!("{tls}: {error}"));
    }
    for tls in [json!({ "enabled": true }), json!({ "enabled": true, "certificateSha256": "0".repeat(64) })] {
        let error = with(tls.clone()).check_connection().await.unwrap_err();
        assert!(format!("{error:?}").to_lowercase().contains("certificate"), "{tls}: {error:?}");
        if tls.get("certificateSha256").is_some() {
            let (mut reported, mut cause) = (String::new(), Some(&error as &dyn std::error::Error));
            while let Some(error) = cause {
                reported += &error.to_string();
                cause = error.source();
            }
            assert!(reported.contains("tls.certificateSha256") && reported.contains(&pin), "{reported}");
        }
    }
    assert_eq!(world.device.denied(), 0, "no password was told to a stranger");
}

#[tokio::test]
async fn a_device_that_asks_for_a_certificate_gets_ours() {
    let world = World::new(|options| options.tls = Tls::Mutual);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = world.site.client_certificate().unwrap();
    let mut spec = world.spec();
    spec["tls"] = json!({ "enabled": true, "caFile": path("ca.pem", world.site.authority()) });
    world.driver_by(&spec).check_connection().await.unwrap_err();
    spec["tls"]["certFile"] = path("client.pem", &certificate).display().to_string().into();
    spec["tls"]["keyFile"] = path("client.key", &key).display().to_string().into();
    world.driver_by(&spec).check_connection().await.unwrap();
}
