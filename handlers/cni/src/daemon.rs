//! The daemon: executes the commands of the CNI plugin for the pods of one node.

mod bind;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::Value;
use staffetta_cni::error::{CniError, Code};
use staffetta_cni::message::{CniRequest, ValidAttachments};
use staffetta_driver::{MacAddress, VifBindingDriver};
use staffetta_handler::{EventNote, Identity, Recorder};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinError;
use tracing::{info, warn};

use crate::acceptance::Acceptance;
use crate::locks::Locks;
use crate::pods::{Found, PodEntry, PodTable};
use crate::records::{Record, Records};
use crate::target::PodTarget;

/// The reason of the Event of a pod that waits for its VIF.
pub(crate) const WAITING_FOR_VIF: &str = "WaitingForVif";
/// The reason of the Event of a pod whose VIF cannot be bound.
pub(crate) const BINDING_FAILED: &str = "BindingFailed";
/// The name of the handler that keeps the daemon's table of pods up to date.
pub const HANDLER: &str = "cni";

/// The binding drivers, by the class of the VIFs that they bind.
pub type Bindings = BTreeMap<String, Arc<dyn VifBindingDriver>>;

/// The type of a function that is called after each command: with its name, the code of its error (`none` for
/// success), and its duration.
pub type OnRequest = Arc<dyn Fn(&'static str, &'static str, Duration) + Send + Sync>;

/// The number of pods whose interfaces are changed at the same time. The kernel serializes such changes, so more would only wait.
const MAX_CONCURRENT_CHANGES: usize = 8;

/// The number of times that `ADD` binds the VIFs of a pod, if they are replaced before they are active.
const MAX_BIND_ATTEMPTS: usize = 3;

/// The daemon that executes the commands of the CNI plugin for the pods of one node.
pub struct CniDaemon {
    /// The pods of the node, as the API server shows them.
    pub(crate) pods: PodTable,
    records: Records,
    bindings: Bindings,
    locks: Locks,
    permits: Semaphore,
    /// The time limit of each of the two waits of `ADD`: for the VIF of the pod, and then for its port to be active.
    limit: Duration,
    /// `true` once `pods` contains all pods of the node. Until then `STATUS` fails, and `ADD` may wait in vain.
    ready: AtomicBool,
    /// `true` once the daemon stops. Then no command waits.
    stopping: watch::Sender<bool>,
    /// The interface on the node and the MAC address of the node's own port, which no pod may have.
    node_port: OnceLock<(String, MacAddress)>,
    /// The reason why the node's own port does not work; `None` if it does, or if there is none.
    node_port_error: Mutex<Option<String>>,
    recorder: OnceLock<Recorder>,
    on_request: OnceLock<OnRequest>,
}

impl CniDaemon {
    /// Creates the daemon. `limit` is the maximum time that `ADD` waits for the VIF of a pod, and then again for its port to be active.
    pub fn new(records: Records, bindings: Bindings, limit: Duration) -> Self {
        Self {
            pods: PodTable::default(),
            records,
            bindings,
            locks: Locks::default(),
            permits: Semaphore::new(MAX_CONCURRENT_CHANGES),
            limit,
            ready: AtomicBool::new(false),
            stopping: watch::Sender::new(false),
            node_port: OnceLock::new(),
            node_port_error: Mutex::default(),
            recorder: OnceLock::new(),
            on_request: OnceLock::new(),
        }
    }

    /// Makes the daemon bind only what `acceptance` says.
    #[must_use]
    pub fn accepting(mut self, acceptance: Acceptance) -> Self {
        self.pods = PodTable::accepting(acceptance);
        self
    }

    /// Sets the recorder of Kubernetes Events and the observer of commands, which exist only after the daemon.
    pub fn observe(&self, recorder: Recorder, on_request: OnRequest) {
        // The handler is created once a process.
        let _ = (self.recorder.set(recorder), self.on_request.set(on_request));
    }

    /// Sets the interface on the node and the MAC address of the node's own port, which no pod may have.
    pub fn reserve(&self, interface: String, mac: MacAddress) {
        // The handler is created once a process.
        let _ = self.node_port.set((interface, mac));
    }

    /// Sets the reason why the node's own port does not work, or `None` if it does. Until it does, the CNI command `STATUS` fails.
    /// Logs each change.
    pub fn set_node_port_error(&self, error: Option<String>) {
        let mut known = self.node_port_error.lock();
        match &error {
            Some(error) if known.is_none() => {
                warn!(error, "the port of the node does not work; the node does not reach its pods");
            }
            None if known.is_some() => info!("the port of the node works again"),
            _ => {}
        }
        *known = error;
    }

    /// Ends the waiting of all commands: `ADD` fails with the code 11 (try again later) where it would wait. What is being bound or unbound
    /// is completed.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Records that the daemon has read all pods of its node: from now on, the CNI command `STATUS` succeeds.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Unbinds the VIFs of all records from before the last reboot of the node. A VIF that cannot be unbound now is unbound when its pod
    /// is bound again.
    pub async fn release_earlier_boot(self: &Arc<Self>) {
        let records = self.records.all().into_iter();
        for record in records.filter(|record| record.boot_id != self.records.boot_id) {
            let (namespace, name) = (record.namespace.clone(), record.name.clone());
            match self.release_unless_replaced(record).await {
                Ok(()) => info!(namespace, name, "a pod from before the reboot is unbound"),
                Err(error) => {
                    let (error, details) = (error.msg, error.details);
                    warn!(namespace, name, error, details, "a pod from before the reboot cannot be unbound");
                }
            }
        }
    }

    /// Binds the VIFs of a pod, and waits until they are active. Returns the default VIF in the form of `os_vif`.
    pub async fn add(self: &Arc<Self>, request: &CniRequest) -> Result<Value, CniError> {
        let target = PodTarget::read(request)?;
        if target.netns.as_os_str().is_empty() {
            let message = "CNI_NETNS is neither in a folder `netns` nor /proc/PROCESS/ns/net";
            return Err(CniError::new(Code::InvalidEnvironment, message));
        }
        let result = self.bind_pod(&target).await;
        if let Err(error) = &result {
            self.report(&target, error);
        }
        result
    }

    /// Binds the VIFs of a pod, and returns the response to ADD when their ports are active. Waits for the annotation and for the ports. If
    /// the controller replaces a VIF meanwhile, the new one is bound, at most [`MAX_BIND_ATTEMPTS`] times in all.
    async fn bind_pod(self: &Arc<Self>, target: &PodTarget) -> Result<Value, CniError> {
        let mut pod = self.wait_for_pod(target, "has no VIF", |pod| pod.vifs.is_ok()).await?;
        for _ in 0..MAX_BIND_ATTEMPTS {
            let state = pod.vifs.map_err(|reason| CniError::new(Code::TryAgainLater, reason))?;
            let bound = bind::attachments(target, &state);
            let (daemon, its, uid) = (Arc::clone(self), target.clone(), pod.uid);
            run_to_completion(async move { daemon.bind(&its, &uid, &state).await }).await?;
            // The controller may replace a VIF before the pod uses it.
            let has_bound = |pod: &PodEntry| bind::are_of(&bound, target, pod);
            let is_decided = |pod: &PodEntry| pod.is_active() || !has_bound(pod);
            pod = self.wait_for_pod(target, "has a VIF whose port is not active", is_decided).await?;
            if has_bound(&pod) {
                return self.add_response(target, pod);
            }
        }
        Err(CniError::new(Code::TryAgainLater, "the VIFs of the pod are replaced again and again"))
    }

    /// Returns the response to `ADD`, which is the default VIF, for a pod whose VIFs were found bound and active. Starts to announce the
    /// addresses of all VIFs of the pod to the neighbours in their networks, by gratuitous ARP and neighbour advertisements. Fails if
    /// another command has unbound the pod in the meantime.
    fn add_response(self: &Arc<Self>, target: &PodTarget, pod: PodEntry) -> Result<Value, CniError> {
        // Another command may have unbound the pod in the meantime.
        let record = self.records.get(&pod.uid).filter(|record| record.owner() == target.owner());
        let unbound =
            || CniError::new(Code::UnknownContainer, "the pod was unbound while its port became active");
        self.announce(record.ok_or_else(unbound)?);
        let state = pod.vifs.map_err(|reason| CniError::new(Code::TryAgainLater, reason))?;
        let mut answer: Value = serde_json::from_str(&state.write()).unwrap_or_default();
        Ok(answer["versioned_object.data"]["default_vif"].take())
    }

    /// Announces the addresses of a bound pod to the neighbours in its networks. Runs in the background, because the containers of the pod
    /// need not wait for that.
    fn announce(self: &Arc<Self>, record: Record) {
        let daemon = Arc::clone(self);
        tokio::spawn(async move {
            let Record { namespace, name, attachments, .. } = record;
            if let Err(error) =
                daemon.each(attachments, |driver, attachment| driver.announce(attachment)).await
            {
                let error = error.details;
                warn!(namespace, name, error, "the addresses of a pod are not announced to its neighbours");
            }
        });
    }

    /// Waits until `is_ready` returns `true` for the pod. Fails if the pod is deleted, or after the time limit of the daemon; `wanting`
    /// completes the message `the pod NAME ... after 60 s`. Fails at once while the daemon stops.
    async fn wait_for_pod(
        &self,
        target: &PodTarget,
        wanting: &str,
        is_ready: impl Fn(&PodEntry) -> bool,
    ) -> Result<PodEntry, CniError> {
        let mut stopping = self.stopping.subscribe();
        let found = tokio::select! {
            found = self.pods.wait(target, self.limit, is_ready) => found,
            _ = stopping.wait_for(|stopping| *stopping) => {
                let message = format!("the pod {} {wanting}, and the daemon stops", target.pod());
                return Err(CniError::new(Code::TryAgainLater, message));
            }
        };
        match found {
            Found::Ready(pod) => Ok(*pod),
            Found::Gone => {
                Err(CniError::new(Code::UnknownContainer, format!("the pod {} was deleted", target.pod())))
            }
            Found::NotYet(pod) => {
                let reason = match pod.map(|pod| pod.vifs) {
                    None if !self.is_ready() => {
                        "the daemon has not read the pods of the node yet; is the API server reachable?"
                            .to_owned()
                    }
                    None => "no pod of this name and UID is on this node".to_owned(),
                    Some(Err(reason)) => reason,
                    Some(Ok(_)) => {
                        "the agent of Neutron on this node has not reported the port as active".to_owned()
                    }
                };
                let waited = self.limit.as_secs();
                Err(CniError::new(
                    Code::TryAgainLater,
                    format!("the pod {} {wanting} after {waited} s", target.pod()),
                )
                .details(reason))
            }
        }
    }

    /// Unbinds what the container of a command has, and nothing else: neither what another sandbox of the pod has, nor what the pod only
    /// shows. Idempotent: succeeds if nothing is bound.
    pub async fn delete(self: &Arc<Self>, request: &CniRequest) -> Result<(), CniError> {
        let target = PodTarget::read(request)?;
        let _held = self.locks.lock(&target.pod()).await;
        match self.records.of_owner(&target.owner()) {
            Some(record) => self.release(record).await,
            None => self.release_unrecorded(&target).await,
        }
    }

    /// Checks that the interfaces of a pod are as `ADD` made them.
    pub async fn check(self: &Arc<Self>, request: &CniRequest) -> Result<(), CniError> {
        let target = PodTarget::read(request)?;
        let Some(record) = self.records.of_owner(&target.owner()) else {
            return Err(CniError::new(Code::UnknownContainer, "this container is not bound")
                .details(format!("the pod {}, the container {}", target.pod(), target.container_id)));
        };
        self.each(record.attachments, |driver, attachment| driver.check(attachment)).await
    }

    /// Returns an error if `ADD` cannot succeed at present, because the daemon has not read the pods of the node yet, or if the
    /// node does not reach its pods.
    pub fn status(&self) -> Result<(), CniError> {
        if !self.is_ready() {
            return Err(CniError::new(Code::Unavailable, "the daemon has not read the pods of the node yet"));
        }
        match &*self.node_port_error.lock() {
            Some(error) => {
                Err(CniError::new(Code::Unavailable, "the port of the node does not work").details(error))
            }
            None => Ok(()),
        }
    }

    /// Unbinds all pods whose sandbox and interface are not in the list of the container runtime (`GC` of CNI). If one cannot be
    /// unbound, the others still are, and then the first error is returned.
    pub async fn collect(self: &Arc<Self>, valid: &ValidAttachments) -> Result<(), CniError> {
        let owners: Vec<_> =
            valid.valid.iter().map(|valid| format!("{}/{}", valid.container_id, valid.ifname)).collect();
        let is_valid = |record: &Record| owners.iter().any(|owner| owner == record.owner());
        let mut result = Ok(());
        for record in self.records.all().into_iter().filter(|record| !is_valid(record)) {
            info!(namespace = record.namespace, name = record.name, "a pod without a sandbox is unbound");
            result = result.and(self.release_unless_replaced(record).await);
        }
        result
    }

    /// Unbinds the VIFs of a record, unless a command has replaced or removed it in the meantime.
    async fn release_unless_replaced(self: &Arc<Self>, record: Record) -> Result<(), CniError> {
        let _held = self.locks.lock(&format!("{}/{}", record.namespace, record.name)).await;
        if self.records.get(&record.uid).as_ref() == Some(&record) {
            self.release(record).await?;
        }
        Ok(())
    }

    /// Reports the duration of a command and the code of its error to the observer of commands.
    pub(crate) fn observed(&self, command: &'static str, code: &'static str, duration: Duration) {
        if let Some(on_request) = self.on_request.get() {
            on_request(command, code, duration);
        }
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Logs the failure of `ADD`, and records a Kubernetes Event on the pod.
    fn report(&self, target: &PodTarget, error: &CniError) {
        let PodTarget { namespace, name, .. } = target;
        warn!(
            kind = "Pod",
            namespace,
            name,
            code = error.code,
            error = error.msg,
            details = error.details,
            "a pod cannot be bound"
        );
        let (Some(recorder), Some(pod)) = (self.recorder.get(), self.pods.get(target)) else { return };
        let reason = if error.code == Code::TryAgainLater as u32 { WAITING_FOR_VIF } else { BINDING_FAILED };
        recorder.record(EventNote {
            handler: HANDLER,
            regarding: Identity::of::<Pod>(Some(namespace.clone()), name.clone(), pod.uid),
            warning: true,
            reason,
            text: format!("{}: {}", error.msg, error.details),
        });
    }
}

/// Runs `work` in a task of its own, which goes on when its caller is gone: nothing stops in the middle because a plugin is killed. A panic
/// of `work` becomes an error.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    work: impl Future<Output = Result<T, CniError>> + Send + 'static,
) -> Result<T, CniError> {
    let panicked =
        |error: JoinError| CniError::new(Code::Failed, "the daemon panicked").details(error.to_string());
    tokio::spawn(work).await.map_err(panicked)?
}
