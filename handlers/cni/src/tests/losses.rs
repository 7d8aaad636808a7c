//! The law of unbinding: what a container did not bind, it does not unbind, whatever is lost at whatever step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use staffetta_cni::message::CniRequest;
use staffetta_driver::Vif;
use staffetta_network::os_vif::PodState;

use super::world::{Kernel, daemon, from, pod, request, vif};
use crate::daemon::CniDaemon;

/// The pods with these numbers have VIFs of their own. The last one, a tenant's, forges its annotation.
const PODS: std::ops::Range<u8> = 0..3;
const FORGER: u8 = 2;

/// A step of a node.
#[derive(Clone, Debug)]
enum Step {
    Add {
        pod: u8,
        sandbox: u8,
    },
    Del {
        pod: u8,
        sandbox: u8,
    },
    Collect,
    /// The forger shows the VIF of the first pod, one whose id or MAC address is alike, its own, or none.
    Forge(u8),
    LoseAnnotation(u8),
    /// A power failure cuts the record off.
    CutRecord(u8),
    LoseRecords,
    Restart,
    /// The daemon is killed after so many changes of the kernel.
    Kill(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let add = (PODS, 0..2_u8).prop_map(|(pod, sandbox)| Step::Add { pod, sandbox });
    let del = (PODS, 0..2_u8).prop_map(|(pod, sandbox)| Step::Del { pod, sandbox });
    let step = prop_oneof![
        4 => add,
        4 => del,
        1 => Just(Step::Collect),
        2 => (0..5_u8).prop_map(Step::Forge),
        1 => PODS.prop_map(Step::LoseAnnotation),
        1 => PODS.prop_map(Step::CutRecord),
        1 => Just(Step::LoseRecords),
        1 => Just(Step::Restart),
        1 => (0..4_usize).prop_map(Step::Kill),
    ];
    prop::collection::vec(step, 1..24)
}

/// The VIFs that a pod shows. The first pod has two.
fn shown(number: u8, forgery: u8) -> Option<PodState> {
    let of_first = vif(1);
    let vif = match (number, forgery) {
        (FORGER, 0) => of_first,
        (FORGER, 1) => Vif { id: "port-001-00ff".into(), ..vif(7) },
        (FORGER, 2) => Vif { address: of_first.address, ..vif(8) },
        (FORGER, 3) => return None,
        _ => vif(number + 1),
    };
    let mut state = PodState::new(vif);
    if number == 0 {
        state.additional_vifs.insert("eth1".to_owned(), super::world::vif(9));
    }
    Some(state)
}

fn name(number: u8) -> String {
    format!("u{number}")
}

fn command(pod: u8, sandbox: u8) -> CniRequest {
    request(&name(pod), &name(pod), &format!("u{pod}-c{sandbox}"))
}

/// A node with its daemon, and what its containers may rely on.
struct LossyNode {
    kernel: Arc<Kernel>,
    folder: tempfile::TempDir,
    daemon: Arc<CniDaemon>,
    forgery: u8,
    without_annotation: BTreeSet<u8>,
    /// The sandbox of each pod that was bound, and not touched by a command about it since.
    bound: BTreeMap<u8, u8>,
}

impl LossyNode {
    fn new() -> Self {
        let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
        let daemon = daemon(&kernel, folder.path());
        let node = Self {
            kernel,
            folder,
            daemon,
            forgery: 4,
            without_annotation: BTreeSet::new(),
            bound: BTreeMap::new(),
        };
        node.show();
        node
    }

    /// Shows the pods to the daemon.
    fn show(&self) {
        for number in PODS {
            let state = shown(number, self.forgery).filter(|_| !self.without_annotation.contains(&number));
            let (name, bare) = (name(number), || {
                let name = name(number);
                from(serde_json::json!({ "metadata": { "namespace": "default", "name": name, "uid": name } }))
            });
            self.daemon.pods.put(&state.map_or_else(bare, |state| pod(&name, &name, &state)));
        }
    }

    fn restart(&mut self) {
        self.kernel.left.store(usize::MAX, Ordering::Relaxed);
        self.daemon = daemon(&self.kernel, self.folder.path());
        self.show();
    }

    async fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Add { pod, sandbox } => {
                let result = self.daemon.add(&command(pod, sandbox)).await;
                // A sandbox of the same pod may have been unbound for this one.
                self.bound.remove(&pod);
                if result.is_ok() {
                    self.bound.insert(pod, sandbox);
                }
            }
            Step::Del { pod, sandbox } => {
                let result = self.daemon.delete(&command(pod, sandbox)).await;
                if self.bound.get(&pod) == Some(&sandbox) {
                    self.bound.remove(&pod);
                }
                let owner = format!("u{pod}-c{sandbox}/eth0");
                prop_assert!(result.is_err() || !self.kernel.owners().contains(&owner), "{owner} is left");
            }
            Step::Collect => {
                let valid = self.bound.iter().map(|(pod, sandbox)| staffetta_cni::message::ValidAttachment {
                    container_id: format!("u{pod}-c{sandbox}"),
                    ifname: "eth0".to_owned(),
                });
                let valid = staffetta_cni::message::ValidAttachments { valid: valid.collect() };
                let _ = self.daemon.collect(&valid).await;
            }
            Step::Forge(forgery) => self.forgery = forgery,
            Step::LoseAnnotation(pod) => drop(self.without_annotation.insert(pod)),
            Step::CutRecord(pod) => {
                let path = self.folder.path().join(format!("{}.json", name(pod)));
                if path.exists() {
                    std::fs::write(path, "{\"uid").unwrap();
                }
                self.restart();
            }
            Step::LoseRecords => {
                for entry in std::fs::read_dir(self.folder.path()).unwrap() {
                    std::fs::remove_file(entry.unwrap().path()).unwrap();
                }
                self.restart();
            }
            Step::Restart => self.restart(),
            Step::Kill(steps) => self.kernel.left.store(steps, Ordering::Relaxed),
        }
        // No change succeeds any more: it counts as killed.
        if self.kernel.left.load(Ordering::Relaxed) == 0 {
            self.restart();
        }
        self.show();
        Ok(())
    }

    /// Fails if a container has lost an interface.
    fn check(&self) -> Result<(), TestCaseError> {
        for (pod, sandbox) in &self.bound {
            let owner = format!("u{pod}-c{sandbox}/eth0");
            let interfaces = self.kernel.owners().iter().filter(|found| **found == owner).count();
            prop_assert_eq!(interfaces, if *pod == 0 { 2 } else { 1 }, "{} is not bound", owner);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_a_container_did_not_bind_it_does_not_unbind_whatever_is_lost(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut node = LossyNode::new();
            for step in &steps {
                node.take(step).await?;
                node.check()?;
            }
            node.restart();
            for (pod, sandbox) in PODS.flat_map(|pod| [(pod, 0), (pod, 1)]) {
                node.take(&Step::Del { pod, sandbox }).await?;
                node.check()?;
            }
            prop_assert!(node.kernel.ports().is_empty(), "{:?}", node.kernel.owners());
            prop_assert_eq!(std::fs::read_dir(node.folder.path()).unwrap().count(), 0);
            Ok(())
        })?;
    }
}
