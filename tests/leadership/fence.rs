//! What the program itself refuses once its term is over: in one process with the test, which holds a handler back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::{Controller, ControllerError};
use staffetta::leadership::{Loss, Role};
use staffetta_apiserver::{Fault, Requests};
use staffetta_handler::{Registration, ResourceEventHandler, causes};
use tokio::sync::{mpsc, watch};

use crate::process::eventually;
use crate::world::{SHORT, World};

/// Waits before it calls its driver; leaves a task behind that writes by itself.
struct Patient {
    client: Client,
    goes_on: watch::Receiver<bool>,
    began: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
    written: mpsc::UnboundedSender<kube::Result<Pod>>,
}

impl ResourceEventHandler<Pod> for Patient {
    type Error = std::convert::Infallible;

    async fn on_present(&self, _: &Arc<Pod>) -> Result<(), Self::Error> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), "default");
        let (mut goes_on, written) = (self.goes_on.clone(), self.written.clone());
        tokio::spawn(async move {
            goes_on.wait_for(|goes_on| *goes_on).await.unwrap();
            let late = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/late": "yes" } } }));
            written.send(pods.patch("web", &PatchParams::default(), &late).await).unwrap();
        });
        self.began.fetch_add(1, Ordering::SeqCst);
        self.goes_on.clone().wait_for(|goes_on| *goes_on).await.unwrap();
        self.calls.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn after_its_term_neither_a_handler_nor_what_it_left_behind_goes_on() {
    let world = World::embedded().await;
    let proxy = world.proxy().await;
    let (let_go, goes_on) = watch::channel(false);
    let (began, calls) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (written, mut results) = mpsc::unbounded_channel();
    let mut registry = staffetta::assembly::registry();
    let (begin, call) = (Arc::clone(&began), Arc::clone(&calls));
    registry.handler("patient", "Waits.", move |setup| {
        let patient = Patient {
            client: setup.client(),
            goes_on: goes_on.clone(),
            began: Arc::clone(&begin),
            calls: Arc::clone(&call),
            written: written.clone(),
        };
        Ok(Registration::new(patient).on::<Pod>().erase())
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = format!(
        "[kubernetes]\nenabled_handlers = [\"patient\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n[leader_election]\n{SHORT}"
    );
    std::fs::write(file.path(), options).unwrap();
    let schema = FileSchema::assemble(&registry).unwrap();
    let configuration = Configuration::load(&schema, Some(file.path()), []).unwrap();
    let client = world.client_of(&proxy).await;
    let controller = Controller::start(registry, &configuration, client).await.unwrap();
    world.pod("web").await;
    eventually("the handler waits", async || began.load(Ordering::SeqCst) == 1).await;
    eventually("the lease was renewed", async || controller.leadership().renewals > 0).await;
    assert_eq!(controller.leadership().role, Role::Leader);

    proxy.faults().inject(Requests::any().resource("leases"), usize::MAX, Fault::status(500));
    let ended = controller.ended().await.unwrap_err();
    assert!(matches!(ended, ControllerError::Deposed(Loss::Expired)), "{ended:?}");
    let_go.send(true).unwrap();
    let refused = causes(&results.recv().await.unwrap().unwrap_err());
    assert!(refused.contains("this process does not hold the lease of the leader"), "{refused}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert!(world.pods().get("web").await.unwrap().metadata.annotations.is_none());
}
