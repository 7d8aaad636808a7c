//! Tests of commands that are not sent.

use std::sync::Arc;

use serde_json::json;
use staffetta_driver::RequestLog;

use super::*;

#[tokio::test]
async fn a_command_that_cannot_be_queued_leaves_no_record_and_is_not_under_way() {
    let (tunnel, base) = (MqttTunnel::new(MqttTunnelOptions::default()), "base-1".parse().unwrap());
    let env = json!([{ "name": "BIZ_VERSION", "value": "1" }]);
    let cart = json!({ "name": "cart", "image": "https://example.com/cart.jar", "env": env });
    let cart: Container = serde_json::from_value(cart).unwrap();
    let log = Arc::new(RequestLog::default());
    let load = || log.collect(tunnel.start_container(&base, &PodKey::All, &cart));
    let error = load().await.unwrap_err();
    assert!(error.to_string().contains("the tunnel does not run"), "{error}");

    *lock(&tunnel.state.topics) = Some(Topics::new("dev").unwrap());
    let error = load().await.unwrap_err();
    assert!(error.to_string().contains("there is no connection"), "{error}");

    // A connection that sends nothing.
    let (client, _events) = link::open(&tunnel.state.options, None, "test");
    *lock(&tunnel.state.link) = Some(client);
    while tunnel.fetch_health_data(&base).await.is_ok() {}
    let error = load().await.unwrap_err();
    assert!(error.to_string().contains("cannot be queued"), "{error}");
    let end =
        || lock(&tunnel.state.operations).end(&base, ArkletCommand::InstallBiz, Some(&module::key_of(&cart)));
    assert!(!end() && log.is_empty(), "{:?}", log.requests());

    let (client, _events) = link::open(&tunnel.state.options, None, "test");
    *lock(&tunnel.state.link) = Some(client);
    load().await.unwrap();
    assert!(end(), "it is under way");
    let requests = log.requests();
    assert_eq!((requests.len(), requests[0].path.as_str()), (1, "koupleless_dev/base-1/installBiz"));
}
