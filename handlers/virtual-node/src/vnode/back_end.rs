//! The back end of a node that is a base.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use staffetta_driver::app_hosting::HostedPods;
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_driver::{ContainerKey, DriverError, Owner, Reason, RequestLog};
use tokio::time::Instant;

use super::base::{Base, containers, pod_key};
use super::containers::ContainerStep;
use super::operation::ContainerAction;
use super::sent_baselines::SentBaselines;
use crate::back_end::{NodeBackEnd, PodRemoval, Reply};
use crate::error::IMAGE_CONFLICT;
use crate::node::NodeHealth;

/// The delay before an operation in progress is checked again. An answer of the base ends the delay.
const POLL: Duration = Duration::from_secs(5);

/// The back end of a node that is a base: starts and stops containers through its tunnel. All answers come as events of the
/// tunnel.
pub(super) struct BaseBackEnd {
    pub(super) base: Arc<Base>,
    /// The baselines that this process has sent to bases.
    pub(super) sent_baselines: Arc<SentBaselines>,
}

#[async_trait]
impl NodeBackEnd for BaseBackEnd {
    /// Asks the base for its health. The answer arrives later, as a report of the tunnel.
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError> {
        let Base { id, tunnel, .. } = &*self.base;
        tunnel.tunnel.fetch_health_data(id).await?;
        Ok(Reply::Later)
    }

    /// Asks the base for all its modules. The answer arrives later, as a report of the tunnel.
    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError> {
        let Base { id, tunnel, .. } = &*self.base;
        tunnel.tunnel.query_all_container_status_data(id).await?;
        Ok(Reply::Later)
    }

    /// Takes the next step to start each container of the pod, and returns the first error afterwards.
    async fn apply(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.each(&request.pod, ContainerAction::Start).await
    }

    /// Takes the next step to stop the containers of the pod, except those that another pod on the node also has. Does nothing without
    /// the pod object: reports contain no UID, so the containers of the pod are not known.
    async fn remove(&self, removal: &PodRemoval) -> Result<PodProgress, DriverError> {
        let Some(pod) = &removal.pod else { return Ok(PodProgress::Done) };
        let in_progress = self.base.containers.lock().under_way().next().is_some();
        let progress = self.each(pod, ContainerAction::Stop).await;
        if in_progress {
            // Its end is seen by a report. Another query may be in progress.
            let _ = self.inventory().await;
        }
        progress
    }

    fn receives_reports(&self) -> bool {
        self.base.tunnel.tunnel.connected()
    }
}

impl BaseBackEnd {
    /// Takes the next step to start (also by activating it) or stop each container of a pod, and returns the first error afterwards.
    async fn each(&self, pod: &Arc<Pod>, goal: ContainerAction) -> Result<PodProgress, DriverError> {
        self.base.time_out();
        let mut progress = Ok(PodProgress::Done);
        for container in containers(pod) {
            let step = match goal {
                ContainerAction::Stop => self.stop(pod, container).await,
                _ => self.start(pod, container).await,
            };
            progress = progress.and_then(|progress| Ok(progress.and(step?)));
        }
        progress
    }

    /// Takes the next step to start a container of a pod, or to replace it if its image has changed. Returns [`PodProgress::Failing`] while
    /// an older pod on the node has the same module with another image.
    async fn start(&self, pod: &Arc<Pod>, container: &Container) -> Result<PodProgress, DriverError> {
        let key = self.base.key(pod, container);
        if let Some((first, theirs)) = self.base.claimants(&key).first()
            && first.metadata.uid != pod.metadata.uid
            && theirs.image != container.image
        {
            let Owner { namespace, name, .. } = Owner::of(&first.metadata);
            return Ok(PodProgress::Failing {
                reason: Cow::Borrowed(IMAGE_CONFLICT),
                message: format!(
                    "{}: the older pod {namespace}/{name} on this node has {key} with another image; use another version",
                    container.name
                ),
                poll_after: POLL * 6,
            });
        }
        let image = container.image.as_deref().unwrap_or_default();
        // A container that has not run for the pod may run since the base has loaded its baseline.
        let baseline = || self.sent_baselines.image(&self.base.node, &key);
        let differs = || baseline().is_some_and(|loaded| loaded != image);
        let changed = match status_of(pod, container) {
            Some(status) => {
                (!status.image.is_empty() && status.image != image)
                    || waits_for_module(status)
                    || (!has_run(status) && differs())
            }
            None => differs(),
        };
        let rivals = self.base.rivals(pod, &key, &container.name);
        let now = Instant::now();
        let step = {
            let mut known = self.base.containers.lock();
            let step = known.start(&key, (&pod_key(pod), image, changed), &rivals, now);
            if let ContainerStep::Send(action) = &step {
                // Recorded before it is sent, so that it is sent once.
                known.sending(&key, *action, image, now);
            }
            step
        };
        self.execute_step(pod, container, &key, step).await
    }

    /// Takes the next step to stop a container of a pod. Does nothing if another pod on the node has the same module, or if the base has it
    /// for another pod. If a living pod has another version of a module that runs, takes the next step to start that one first, until it runs
    /// or fails.
    async fn stop(&self, pod: &Arc<Pod>, container: &Container) -> Result<PodProgress, DriverError> {
        let key = self.base.key(pod, container);
        self.base.containers.lock().forget_starts(&key);
        let is_another = |(other, _): &(Arc<Pod>, _)| other.metadata.uid != pod.metadata.uid;
        let kept = self.base.claimants(&key).iter().any(is_another)
            || self.base.containers.lock().is_of_another(&key, &pod_key(pod));
        if kept {
            return Ok(PodProgress::Done);
        }
        let runs = |key: &ContainerKey| self.base.containers.lock().is_active(key);
        let mut successors = if runs(&key) { self.base.versions(&key, &container.name) } else { Vec::new() };
        if successors.iter().any(|(other, ..)| runs(other)) {
            successors.clear();
        }
        // The youngest one first.
        while let Some((other, successor, version)) = successors.pop() {
            let waits = |state: &str| {
                let state = format!("{}: {other} is to run first ({state})", container.name);
                Ok(PodProgress::Working { state, poll_after: POLL })
            };
            match self.start(&successor, &version).await {
                Ok(PodProgress::Working { state, .. }) => return waits(&state),
                Ok(PodProgress::Failing { message, .. }) if self.base.containers.lock().is_lost(&other) => {
                    return waits(&message);
                }
                Err(error) if error.transient() => return Err(error),
                // It runs by now, or it will not.
                _ => {}
            }
        }
        let now = Instant::now();
        let step = {
            let mut known = self.base.containers.lock();
            let step = known.stop(&key, now);
            if let ContainerStep::Send(action) = &step {
                known.sending(&key, *action, "", now);
            }
            step
        };
        self.execute_step(pod, container, &key, step).await
    }

    /// Executes `step` for a container of a pod and returns the progress. If an operation failed, the requests that were sent for it are
    /// added to the request log of the handler's current attempt.
    async fn execute_step(
        &self,
        pod: &Arc<Pod>,
        container: &Container,
        key: &ContainerKey,
        step: ContainerStep,
    ) -> Result<PodProgress, DriverError> {
        let name = &container.name;
        let working =
            |state: &str| PodProgress::Working { state: format!("{name}: {state}"), poll_after: POLL };
        let requests = self.base.containers.lock().requests(key);
        match step {
            ContainerStep::Done => Ok(PodProgress::Done),
            ContainerStep::Wait(state) => Ok(working(&state)),
            ContainerStep::Failing { reason, message, after } => {
                RequestLog::current().extend(&requests);
                Ok(PodProgress::Failing {
                    reason: reason.into(),
                    message: format!("{name}: {message}"),
                    poll_after: after,
                })
            }
            ContainerStep::Send(action) => {
                self.base.follow(Some(Owner::of(&pod.metadata)), key, action);
                match requests.collect(self.send(pod, container, action)).await {
                    Ok(()) => {
                        self.base.containers.lock().sent(key);
                        Ok(working(action.progress()))
                    }
                    Err(error) => {
                        self.base.containers.lock().unsent(key);
                        match error.reason() {
                            // The base is busy with an earlier operation.
                            Reason::Conflict | Reason::Queued | Reason::Awaited => {
                                Ok(working(&error.to_string()))
                            }
                            _ => {
                                RequestLog::current().extend(&requests);
                                Err(error)
                            }
                        }
                    }
                }
            }
        }
    }

    /// Sends the command for one container to the base. Success means that the base has taken the command; its report follows.
    async fn send(
        &self,
        pod: &Pod,
        container: &Container,
        action: ContainerAction,
    ) -> Result<(), DriverError> {
        let (Base { id, tunnel, .. }, pod) = (&*self.base, &pod_key(pod));
        match action {
            ContainerAction::Start => tunnel.tunnel.start_container(id, pod, container).await,
            ContainerAction::Activate => tunnel.tunnel.activate_container(id, pod, container).await,
            ContainerAction::Stop => tunnel.tunnel.shutdown_container(id, pod, container).await,
        }
    }
}

/// Returns the status of a container from the status of its pod; `None` if the pod has none for it.
fn status_of<'a>(pod: &'a Pod, container: &Container) -> Option<&'a ContainerStatus> {
    let mut statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.find(|status| status.name == container.name)
}

/// Returns `true` if the container runs or has run for its pod, by its current and last state in the status of the pod.
fn has_run(status: &ContainerStatus) -> bool {
    let mut states = [&status.state, &status.last_state].into_iter().flatten();
    states.any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Returns `true` if the base had the module of the container with another image when this status was written.
fn waits_for_module(status: &ContainerStatus) -> bool {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(IMAGE_CONFLICT))
}

#[cfg(test)]
mod tests {

    use parking_lot::Mutex;
    use serde_json::json;
    use staffetta_driver::tunnel::ContainerStatusData;

    use super::*;
    use crate::node::NodeMarks;
    use crate::vnode::base::{BaseProfile, NamedTunnel};
    use crate::vnode::known::tests::{NoTunnel, described};
    use crate::vnode::tracker::tests::Texts;
    use crate::vnode::tracker::{OperationTracker, TrackerPolicy};

    const LIMIT: Duration = Duration::from_secs(330);

    /// A back end whose base has reported that it has no container, with the operations that ended and the Events.
    struct World {
        back_end: BaseBackEnd,
        tracker: OperationTracker,
        ended: Arc<Mutex<Vec<String>>>,
        events: Texts,
    }

    fn world() -> World {
        let (ended, events) = (Arc::new(Mutex::new(Vec::new())), Texts::default());
        let (recorded, recorder) = (Arc::clone(&ended), events.recorder());
        let policy = TrackerPolicy { stuck_after: Duration::ZERO, ..TrackerPolicy::default() };
        let tracker = OperationTracker::new(policy, recorder, move |ended| {
            recorded.lock().push(format!("{} {}", ended.operation.key, ended.outcome.name()));
        });
        let tunnel = NamedTunnel { name: "none".into(), tunnel: Arc::new(NoTunnel::default()) };
        let profile = BaseProfile { description: described("ACTIVATED"), marks: NodeMarks::default() };
        let names = ("one".parse().unwrap(), "vnode.one.dev".into());
        let base = Base::new(names, tunnel, profile, Arc::default(), tracker.clone(), LIMIT);
        base.report(Vec::<ContainerStatusData>::new());
        let back_end = BaseBackEnd { base: Arc::new(base), sent_baselines: Arc::default() };
        World { back_end, tracker, ended, events }
    }

    fn request(containers: &[&str]) -> PodRequest {
        let containers: Vec<_> = containers.iter().map(|name| json!({ "name": name })).collect();
        let metadata = json!({ "name": "web", "namespace": "default", "uid": "u" });
        let pod = json!({ "metadata": metadata, "spec": { "containers": containers } });
        PodRequest { pod: Arc::new(serde_json::from_value(pod).unwrap()), environment: [].into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_is_refused_does_not_keep_the_others_of_its_pod_from_starting() {
        let World { back_end, tracker, ended, events } = world();
        let started = back_end.apply(&request(&["bad", "good"])).await;
        assert_eq!(started.unwrap_err().reason(), Reason::Refused);
        assert_eq!(*ended.lock(), ["bad refused"]);
        let _ = tokio::time::timeout(Duration::from_secs(1), tracker.inspect()).await;
        let events = events.0.lock();
        assert!(events.len() == 1 && events[0].contains("good was sent to base one"), "{events:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_without_an_answer_ends_at_its_time_limit_although_its_pod_is_gone() {
        let World { back_end, tracker, ended, .. } = world();
        back_end.apply(&request(&["cart"])).await.unwrap();
        assert_eq!(tracker.under_way().len(), 1);
        tokio::time::advance(LIMIT).await;
        back_end.base.report(Vec::new());
        assert_eq!(*ended.lock(), ["cart failure"]);
    }

    #[tokio::test]
    async fn a_module_that_a_pod_waited_for_is_replaced_although_no_process_knows_its_image() {
        let World { back_end, .. } = world();
        let shown = json!([{ "key": "cart", "name": "cart", "pod_key": "all", "state": "activated",
            "change_time": "2026-11-24T08:00:00Z" }]);
        back_end.base.report(serde_json::from_value(shown).unwrap());
        let mut request = request(&["cart"]);
        let pod = Arc::make_mut(&mut request.pod);
        pod.spec.as_mut().unwrap().containers[0].image = Some("b".to_owned());
        let waiting = json!({ "containerStatuses": [{ "name": "cart", "image": "b", "imageID": "b", "ready": false,
            "restartCount": 0, "state": { "waiting": { "reason": IMAGE_CONFLICT } } }] });
        pod.status = Some(serde_json::from_value(waiting).unwrap());
        back_end.apply(&request).await.unwrap();
        let stopped =
            back_end.base.containers.lock().under_way().map(|(_, action)| action).collect::<Vec<_>>();
        assert_eq!(stopped, [ContainerAction::Stop]);
    }

    #[tokio::test]
    async fn a_module_that_the_base_has_for_another_pod_is_not_unloaded() {
        let World { back_end, .. } = world();
        let request = request(&["cart"]);
        for (pod_key, operations) in [("default/theirs", 0), ("default/web", 1)] {
            let shown = json!([{ "key": "cart", "name": "cart", "pod_key": pod_key, "state": "activated",
                "change_time": "2026-11-24T08:00:00Z" }]);
            back_end.base.report(serde_json::from_value(shown).unwrap());
            back_end.each(&request.pod, ContainerAction::Stop).await.unwrap();
            assert_eq!(back_end.base.containers.lock().under_way().count(), operations, "{pod_key}");
        }
    }

    #[tokio::test]
    async fn a_start_under_way_is_waited_for_although_the_base_shows_what_it_had_for_another_pod() {
        let World { back_end, .. } = world();
        let request = request(&["cart"]);
        back_end.apply(&request).await.unwrap();
        let shown = json!([{ "key": "cart", "name": "cart", "pod_key": "default/theirs", "state": "stopped",
            "change_time": "2026-11-24T08:00:00Z" }]);
        back_end.base.report(serde_json::from_value(shown).unwrap());
        let progress = back_end.each(&request.pod, ContainerAction::Stop).await.unwrap();
        assert!(matches!(progress, PodProgress::Working { .. }), "{progress:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_pod_does_not_wait_for_a_module_that_did_not_stay_loaded_for_the_one_before() {
        let World { back_end, .. } = world();
        let request = request(&["cart"]);
        let started = json!({ "container_key": "cart", "result": "success", "reason": "", "message": "" });
        let started = serde_json::from_value(started).unwrap();
        let shown = json!([{ "key": "cart", "name": "cart", "pod_key": "all", "state": "activated",
            "change_time": "2026-11-24T08:00:00Z" }]);
        let mut progress = back_end.apply(&request).await.unwrap();
        while matches!(progress, PodProgress::Working { .. }) {
            back_end.base.answered(ContainerAction::Start, &started);
            back_end.base.report(serde_json::from_value(shown.clone()).unwrap());
            tokio::time::advance(POLL).await;
            back_end.base.report(Vec::new());
            progress = back_end.apply(&request).await.unwrap();
        }
        assert!(matches!(progress, PodProgress::Failing { .. }), "{progress:?}");
        let (owner, pod) = (Owner::of(&request.pod.metadata), Some(Arc::clone(&request.pod)));
        back_end.remove(&PodRemoval { owner, pod, workload: None }).await.unwrap();
        back_end.apply(&request).await.unwrap();
        assert_eq!(back_end.base.containers.lock().under_way().count(), 1);
    }

    #[tokio::test]
    async fn the_end_of_what_is_under_way_on_a_base_that_is_lost_is_not_known_and_nothing_begins_there() {
        let World { back_end, ended, .. } = world();
        back_end.apply(&request(&["cart"])).await.unwrap();
        back_end.base.abandon();
        assert_eq!(*ended.lock(), ["cart abandoned"]);
        back_end.apply(&request(&["cart"])).await.unwrap();
        assert!(back_end.base.containers.lock().under_way().next().is_none());
    }
}
