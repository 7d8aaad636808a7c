//! The conditions under which the VIFs of a pod are bound: others than the controller may write its annotations and finalizers.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use staffetta_network::os_vif::{KURYR_VIF, PodState};
use staffetta_network::proof::{ProofKey, VIF_PROOF};

/// The finalizer of the handler `vif`. A pod without it was given no VIF by our controller, whatever its annotation says.
const FINALIZER: &str = "staffetta.dev/vif";

/// The VIFs that a node binds. By default: VIFs of each class that has a driver, of each pod with the finalizer of the controller.
#[derive(Clone, Default)]
pub struct Acceptance {
    /// The classes of VIFs, such as `VIFBridge`; `None` for all.
    pub classes: Option<BTreeSet<String>>,
    /// The key by which pods prove that the controller has accepted their VIFs; `None` if no proof is required.
    pub key: Option<ProofKey>,
}

/// The proofs that a pod has shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Proofs {
    /// The last valid proof.
    current: Option<String>,
    /// The proofs of VIFs that the pod had before, which may belong to other pods by now.
    earlier: BTreeSet<String>,
}

impl Acceptance {
    /// Returns the VIFs in the annotation of a pod, or the reason why they are not bound. Updates `proofs`, those that the pod has shown.
    pub(crate) fn vifs(&self, meta: &ObjectMeta, proofs: &mut Proofs) -> Result<PodState, String> {
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let Some(text) = annotation(KURYR_VIF) else {
            return Err("the controller has not given it a VIF yet".to_owned());
        };
        if !meta.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER) {
            return Err(format!(
                "it has a VIF, but not the finalizer {FINALIZER}, so the VIF is not from the controller"
            ));
        }
        let state = PodState::read(text).map_err(|error| staffetta_handler::causes(&error))?;
        if let Some(key) = &self.key {
            let proof = annotation(VIF_PROOF).map(String::as_str).unwrap_or_default();
            if !key.proves(meta.uid.as_deref().unwrap_or_default(), &state, proof) {
                return Err(format!(
                    "the annotation {VIF_PROOF} does not prove that the controller has accepted its VIF"
                ));
            }
            proofs.show(proof)?;
        }
        let refused = |class: &&str| self.classes.as_ref().is_some_and(|classes| !classes.contains(*class));
        if let Some(class) = state.vifs().map(|vif| vif.class.name()).find(refused) {
            let class: String = class.chars().take(64).collect();
            return Err(format!("this node binds no VIF of the class `{class}` (`cni_daemon.vif_classes`)"));
        }
        Ok(state)
    }
}

impl Proofs {
    /// Records a valid proof. Fails if the pod has shown another one since, so that somebody has restored an earlier annotation.
    fn show(&mut self, proof: &str) -> Result<(), String> {
        if self.earlier.contains(proof) {
            return Err(format!("the annotation {VIF_PROOF} is that of a VIF that the pod had before"));
        }
        if let Some(former) = self.current.replace(proof.to_owned()).filter(|former| former != proof) {
            self.earlier.insert(former);
        }
        Ok(())
    }
}
