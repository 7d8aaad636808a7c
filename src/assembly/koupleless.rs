//! Registers the tunnels to the bases of Koupleless.

use std::sync::Arc;

use staffetta_driver::tunnel::Tunnel;
use staffetta_handler::Registry;
use staffetta_koupleless::{HttpTunnel, HttpTunnelOptions, MqttTunnel, MqttTunnelOptions};

/// Adds the tunnels `http` and `mqtt`, each with its section.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<HttpTunnelOptions>("vnode_http");
    registry.section::<MqttTunnelOptions>("vnode_mqtt");
    registry.driver::<dyn Tunnel>("http", "Koupleless, over the HTTP API of Arklet.", |setup| {
        let options: HttpTunnelOptions = setup.section("vnode_http")?;
        Ok(Arc::new(HttpTunnel::new(options)))
    });
    registry.driver::<dyn Tunnel>("mqtt", "Koupleless, over an MQTT broker.", |setup| {
        let options: MqttTunnelOptions = setup.section("vnode_mqtt")?;
        Ok(Arc::new(MqttTunnel::new(options)))
    });
}
