//! A controller with a custom handler, which greets each pod.

use k8s_openapi::api::core::v1::Pod;
use staffetta_handler::{Action, MetadataPatch, Registration, ResourceEventHandler, WriteError, Writer};
use std::{process::ExitCode, sync::Arc};

struct Greeter(Writer<Pod>);

impl ResourceEventHandler<Pod> for Greeter {
    type Error = WriteError;

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, WriteError> {
        let greeting = MetadataPatch::default().annotate("example.com/greeting", "hello");
        self.0.metadata(pod, &greeting).await.map(|_| Action::done())
    }
}

fn main() -> ExitCode {
    let mut registry = staffetta::assembly::registry();
    registry.handler("greeter", "Greets each pod.", |setup| {
        Ok(Registration::new(Greeter(Writer::new(setup.client()))).on::<Pod>().erase())
    });
    staffetta::run(registry)
}
