//! Registers the tunnels to the bases of Koupleless.

use std::num::NonZeroU64;
use std::sync::Arc;

use staffetta_driver::tunnel::Tunnel;
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_koupleless::{HttpTunnel, HttpTunnelOptions, MqttTunnel, MqttTunnelOptions};
use staffetta_virtual_node::vnode::{HANDLER, VnodeOptions};

/// Adds the tunnels `http` and `mqtt`, each with its section.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<HttpTunnelOptions>("vnode_http");
    registry.section::<MqttTunnelOptions>("vnode_mqtt");
    registry.driver::<dyn Tunnel>("http", "Koupleless, over the HTTP API of Arklet.", |setup| {
        let options: HttpTunnelOptions = setup.section("vnode_http")?;
        let vnode = vnode(setup, "vnode_http", options.operation_timeout_ms)?;
        Ok(Arc::new(HttpTunnel::new(HttpTunnelOptions { send_limit: vnode.send_limit(), ..options })))
    });
    registry.driver::<dyn Tunnel>("mqtt", "Koupleless, over an MQTT broker.", |setup| {
        let options: MqttTunnelOptions = setup.section("vnode_mqtt")?;
        let vnode = vnode(setup, "vnode_mqtt", options.operation_timeout_ms)?;
        if u32::from(options.keep_alive_s.get()) * 2 > vnode.lease_duration_s.get() {
            let text = "`vnode_mqtt.keep_alive_s` must be at most half of `vnode.lease_duration_s`";
            return Err(SetupError::Invalid(text.to_owned()));
        }
        Ok(Arc::new(MqttTunnel::new(MqttTunnelOptions { send_limit: vnode.send_limit(), ..options })))
    });
}

/// Returns the options of the section `[vnode]`. Fails unless the time limit of an operation there is longer than `limit`, which is that of
/// the tunnel with the section `section`.
fn vnode(setup: &Setup, section: &str, limit: NonZeroU64) -> Result<VnodeOptions, SetupError> {
    let vnode: VnodeOptions = setup.section(HANDLER)?;
    if vnode.operation_timeout_ms <= limit {
        return Err(SetupError::Invalid(format!(
            "`vnode.operation_timeout_ms` must be longer than `{section}.operation_timeout_ms`"
        )));
    }
    Ok(vnode)
}
