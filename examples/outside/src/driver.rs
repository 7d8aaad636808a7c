//! Custom drivers for a switch of the vendor Acme: its ports are VIFs, which work at once, and are bound to pods on the nodes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use staffetta_driver::{
    Activation, DriverError, MacAddress, Owned, Owner, PodVifDriver, Reason, Vif, VifAttachment,
    VifBindingDriver, VifClass, VifRequest,
};
use staffetta_handler::Registry;

/// The class of the VIFs, by which `staffetta cni-daemon` finds their binding.
const CLASS: &str = "VIFAcme";

/// Makes the driver known as `acme`: `[kubernetes] pod_vif_driver = "acme"`.
pub fn register(registry: &mut Registry) {
    registry
        .driver::<dyn PodVifDriver>("acme", "Ports of the Acme switch.", |_| Ok(Arc::new(Acme::default())));
    registry.driver::<dyn VifBindingDriver>(CLASS, "A port of the Acme switch.", |_| {
        let folder = std::env::var_os("ACME_PORTS").unwrap_or_else(|| "/run/acme/ports".into());
        Ok(Arc::new(AcmeBinding { folder: folder.into() }))
    });
}

/// The switch, with the ports that were made since the process started. (A real one would be asked for them.)
#[derive(Default)]
struct Acme {
    ports: Mutex<HashMap<Owner, Vif>>,
}

impl Acme {
    fn ports(&self) -> MutexGuard<'_, HashMap<Owner, Vif>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hardware address of that number, among those that are administered locally.
fn mac(number: u32) -> MacAddress {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddress([0x02, 0xac, a, b, c, d])
}

#[async_trait]
impl PodVifDriver for Acme {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let failed = |reason| DriverError::new(reason, "request a port of the Acme switch");
        let mut ports = self.ports();
        if let Some(port) = ports.get(&request.owner) {
            return Ok(port.clone());
        }
        let subnet =
            request.subnets.first().ok_or_else(|| failed(Reason::Refused).detail("no subnet was named"))?;
        // The first address is the router's.
        let mut hosts = subnet.cidr.hosts().skip(1);
        let ip = hosts.find(|ip| ports.values().all(|port| port.ips().all(|used| used != *ip)));
        let ip = ip.ok_or_else(|| failed(Reason::NoAddress))?;
        let mut macs = (0..=u32::MAX).map(mac);
        let mac = macs.find(|mac| ports.values().all(|port| port.address != *mac));
        let vif = Vif {
            id: format!("acme-{}", request.owner.uid).into(),
            address: mac.ok_or_else(|| failed(Reason::NoAddress))?,
            active: true,
            plugin: "noop".into(),
            class: VifClass::Other { name: CLASS.into(), version: "1.0".into(), fields: Default::default() },
            network: subnet.network.clone(),
            subnets: vec![subnet.with_ips(vec![ip])],
            has_traffic_filtering: false,
            preserve_on_delete: false,
            port_profile: None,
        };
        ports.insert(request.owner.clone(), vif.clone());
        Ok(vif)
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let mut ports = self.ports();
        if ports.get(owner).is_some_and(|port| port.id == vif.id) {
            ports.remove(owner);
        }
        Ok(())
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        match self.ports().get(owner).filter(|port| port.id == vif.id) {
            Some(port) => Ok(Activation::Active(port.clone())),
            None => Err(DriverError::new(Reason::NotFound, "find the port of the pod")),
        }
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let ports = self.ports();
        let wanted = ports.iter().filter(|(of, _)| owner.is_none_or(|owner| owner == *of));
        Ok(wanted.map(|(owner, vif)| Owned { owner: Some(owner.clone()), resource: vif.clone() }).collect())
    }
}

/// The agent of the switch on a node. It makes an interface for each file in its folder: the file is named after the port, and
/// contains the network namespace of the pod.
struct AcmeBinding {
    folder: PathBuf,
}

impl AcmeBinding {
    fn file(&self, attachment: &VifAttachment) -> PathBuf {
        self.folder.join(attachment.vif.id.as_str())
    }
}

fn failed(error: std::io::Error) -> DriverError {
    DriverError::new(Reason::Unavailable, "tell the agent of the Acme switch").because(error)
}

impl VifBindingDriver for AcmeBinding {
    fn plug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        std::fs::write(self.file(attachment), attachment.netns.display().to_string()).map_err(failed)
    }

    fn unplug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        match std::fs::remove_file(self.file(attachment)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn check(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        std::fs::metadata(self.file(attachment)).map(drop).map_err(failed)
    }
}
