//! A simulated device, which follows the clock of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;

use crate::model::operation::DeviceOperation;
use crate::model::resource::{self, RestconfResource};
use crate::restconf::{NetworkClient, RequestFailure};

/// The duration of each state change of an application.
pub(super) const DELAY: Duration = Duration::from_millis(700);

#[derive(Default)]
pub(super) struct Device(Mutex<Inner>);

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub(super) struct Inner {
    pub(super) config: BTreeMap<String, Value>,
    pub(super) oper: BTreeMap<String, Oper>,
    /// The accepted operations in order: `install ID`.
    pub(super) accepted: Vec<String>,
    /// The number of requests.
    pub(super) requests: usize,
    pub(super) unreachable: bool,
    pub(super) malformed: bool,
    /// The messages with which the device refuses the next steps.
    pub(super) refusals: Vec<&'static str>,
    /// `true` if the next change is executed, but its response is lost.
    pub(super) loses_answer: bool,
    /// The notification with which accepted installs fail; `None` if they succeed.
    pub(super) fails_installs: Option<&'static str>,
    /// The notification with which accepted activations fail; `None` if they succeed.
    pub(super) fails_activations: Option<&'static str>,
    /// `true` if configurations are written, but never get a response.
    pub(super) swallows_answers: bool,
    pub(super) notifications: Vec<Value>,
    pub(super) disabled: bool,
    /// The operation that the device never answers.
    pub(super) hangs: Option<&'static str>,
    /// The delays after which the device activates and starts an installed application by itself.
    pub(super) starts_apps_after: Option<Duration>,
    /// The operational data that the device returns instead of its own; empty for none.
    pub(super) hides: Option<&'static str>,
    /// The configuration that the device returns instead of its own; empty for none.
    pub(super) hides_configuration: Option<&'static str>,
    /// The wrong responses to the next reads: the number of reads before each, and the response.
    pub(super) wrong: Vec<(usize, WrongAnswer)>,
    pub(super) arp: Option<Value>,
    /// The largest number of simultaneous installs so far.
    pub(super) parallel: usize,
    /// The outcome of an install from a URL.
    pub(super) urls: Urls,
    /// The files on the flash.
    pub(super) files: BTreeSet<String>,
    /// The running copies, with the time at which each is complete. They continue without a client.
    copies: Vec<(String, Instant)>,
    /// `true` if the device refuses to delete any file.
    pub(super) keeps_files: bool,
    pub(super) refuses_copies: bool,
}

/// A wrong response to one read of the configuration or the operational data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrongAnswer {
    /// The read fails, as with a 401, a 503 or a lost connection.
    Fails(Reason),
    /// The read returns this body; an empty one stands for 204 and 404.
    Body(&'static str),
}

/// The outcome of an install from a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Urls {
    #[default]
    Work,
    /// The device refuses the install.
    Refused,
    /// The device accepts the install, but the application never appears.
    Silent,
    /// The install does not end before the application is uninstalled.
    Hang,
}

/// The duration of a copy to the flash.
pub(super) const COPY: Duration = Duration::from_secs(90);

#[derive(Clone)]
pub(super) struct Oper {
    pub(super) state: String,
    next: Option<(Instant, &'static str)>,
    pub(super) interfaces: Value,
}

impl Oper {
    pub(super) fn in_state(state: &str) -> Self {
        Self { state: state.into(), next: None, interfaces: json!([]) }
    }
}

impl Device {
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.0.lock();
        let (now, starts_apps_after) = (Instant::now(), inner.starts_apps_after);
        for oper in inner.oper.values_mut() {
            while let Some((at, state)) = oper.next.filter(|(at, _)| *at <= now) {
                let then = match state {
                    "DEPLOYED" => Some("ACTIVATED"),
                    "ACTIVATED" => Some("RUNNING"),
                    _ => None,
                };
                let next = |pause| then.map(|then| (at + pause, then));
                (oper.state, oper.next) = (state.into(), starts_apps_after.and_then(next));
            }
        }
        inner.oper.retain(|_, oper| oper.state != "gone");
        let due: Vec<_> = inner.copies.extract_if(.., |(_, at)| *at <= now).map(|(file, _)| file).collect();
        let refused = inner.refuses_copies;
        for file in due.into_iter().filter(|_| !refused) {
            inner.accepted.push(of_file("copy", &file));
            inner.files.insert(file);
        }
        let installing = inner.oper.values().filter(|oper| oper.state == "INSTALLING").count();
        inner.parallel = inner.parallel.max(installing);
        inner
    }

    /// Returns the operations that were accepted since the last call.
    pub(super) fn accepted(&self) -> Vec<String> {
        std::mem::take(&mut self.inner().accepted)
    }

    fn reached(&self) -> Result<MutexGuard<'_, Inner>, RequestFailure> {
        let mut inner = self.inner();
        inner.requests += 1;
        if inner.unreachable {
            return Err(DriverError::new(Reason::Unavailable, "reach the device").into());
        }
        Ok(inner)
    }

    fn take_configuration(&self, body: &Value) -> Result<(), RequestFailure> {
        let mut inner = self.reached()?;
        let app = body["Cisco-IOS-XE-app-hosting-cfg:app"][0].clone();
        let id = app["application-name"].as_str().unwrap().to_owned();
        if inner.config.contains_key(&id) {
            return Err(refused("HTTP 409 data-exists"));
        }
        inner.accepted.push(format!("configure {id}"));
        inner.config.insert(id, app);
        Self::answer(&mut inner)
    }

    fn answer(inner: &mut Inner) -> Result<(), RequestFailure> {
        if std::mem::take(&mut inner.loses_answer) {
            return Err(DriverError::new(Reason::Unavailable, "wait for the answer").maybe_applied().into());
        }
        Ok(())
    }
}

/// Formats an operation on the copy of a package.
fn of_file(word: &str, file: &str) -> String {
    format!("{word} {}", file.trim_start_matches("flash:/staffetta_").trim_end_matches(".tar"))
}

fn refused(device_text: &str) -> RequestFailure {
    RequestFailure {
        error: Box::new(DriverError::new(Reason::Conflict, "step").detail(device_text)),
        device_text: Some(device_text.into()),
        timed_out: false,
    }
}

#[async_trait]
impl NetworkClient for Device {
    async fn get(
        &self,
        resource: RestconfResource,
        _: &'static str,
    ) -> Result<Option<Vec<u8>>, RequestFailure> {
        let mut inner = self.reached()?;
        if matches!(resource, resource::STATES | resource::EVENTS | resource::CONFIG) {
            let due = inner.wrong.iter().position(|(reads, _)| *reads == 0);
            let due = due.map(|due| inner.wrong.remove(due).1);
            inner.wrong.iter_mut().for_each(|(reads, _)| *reads = reads.saturating_sub(1));
            match due {
                Some(WrongAnswer::Fails(reason)) => return Err(DriverError::new(reason, "read").into()),
                Some(WrongAnswer::Body(body)) => return Ok((!body.is_empty()).then(|| body.into())),
                None => {}
            }
        }
        if let (resource::CONFIG, Some(body)) = (resource, inner.hides_configuration) {
            return Ok((!body.is_empty()).then(|| body.into()));
        }
        if inner.malformed {
            return Ok(Some(b"{\"data\":{\"app\":[".to_vec()));
        }
        if let (resource::STATES | resource::EVENTS, Some(body)) = (resource, inner.hides) {
            return Ok((!body.is_empty()).then(|| body.into()));
        }
        let apps = || {
            let app = |(name, oper): (&String, &Oper)| {
                json!({
                    "name": name, "details": { "state": oper.state },
                    "network-interfaces": { "network-interface": oper.interfaces },
                })
            };
            inner.oper.iter().map(app).collect::<Vec<_>>()
        };
        let body = match resource {
            resource::STATES | resource::EVENTS if inner.disabled => {
                json!({ "Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data": { "app-globals": { "iox-enabled": false } } })
            }
            resource::CONFIG if inner.config.is_empty() => return Ok(None),
            resource::CONFIG => {
                let apps: Vec<_> = inner.config.values().collect();
                json!({ "Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data": { "apps": { "app": apps } } })
            }
            resource::STATES => json!({ "Cisco-IOS-XE-app-hosting-oper:app": apps() }),
            resource::EVENTS => json!({ "Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data": {
                "app": apps(), "app-notifications": inner.notifications,
                "app-globals": { "iox-enabled": !inner.disabled },
            } }),
            resource::ARP => match &inner.arp {
                Some(table) => table.clone(),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(body.to_string().into_bytes()))
    }

    fn last_answer(&self) -> Option<Instant> {
        None
    }

    async fn configure(&self, body: &Value) -> Result<(), RequestFailure> {
        let answer = self.take_configuration(body);
        if self.inner().swallows_answers { std::future::pending().await } else { answer }
    }

    async fn amend(&self, id: &str, body: &Value) -> Result<(), RequestFailure> {
        let mut inner = self.reached()?;
        let lines = body["Cisco-IOS-XE-app-hosting-cfg:app"][0]["run-optss"]["run-opts"].as_array().unwrap();
        let app = inner.config.get_mut(id).unwrap();
        let known = app["run-optss"]["run-opts"].as_array_mut().unwrap();
        for line in lines {
            *known.iter_mut().find(|known| known["line-index"] == line["line-index"]).unwrap() = line.clone();
        }
        inner.accepted.push(format!("divert {id}"));
        Self::answer(&mut inner)
    }

    async fn remove(&self, id: &str) -> Result<(), RequestFailure> {
        let mut inner = self.reached()?;
        inner.accepted.push(format!("remove {id}"));
        inner.config.remove(id);
        Self::answer(&mut inner)
    }

    async fn operate(
        &self,
        operation: &DeviceOperation,
        limit: Option<Duration>,
    ) -> Result<(), RequestFailure> {
        if let DeviceOperation::Copy { .. } | DeviceOperation::Delete { .. } = operation {
            return self.handle_file(operation, limit).await;
        }
        let word = json!(operation).as_object().and_then(|it| it.keys().next().cloned()).unwrap_or_default();
        if self.inner().hangs == Some(&*word) {
            tokio::time::sleep(Duration::from_secs(30)).await;
            let error = DriverError::new(Reason::Unavailable, "wait for the answer").maybe_applied();
            return Err(RequestFailure { timed_out: true, ..error.into() });
        }
        let mut inner = self.reached()?;
        if !inner.refusals.is_empty() {
            return Err(refused(inner.refusals.remove(0)));
        }
        let (word, id, from, now, then): (_, _, &[&str], _, _) = match operation {
            DeviceOperation::Install { appid, .. } => ("install", appid, &[][..], "INSTALLING", "DEPLOYED"),
            DeviceOperation::Activate { appid } => {
                ("activate", appid, &["DEPLOYED"], "DEPLOYED", "ACTIVATED")
            }
            DeviceOperation::Start { appid } => {
                ("start", appid, &["ACTIVATED", "STOPPED"], "ACTIVATED", "RUNNING")
            }
            DeviceOperation::Stop { appid } => ("stop", appid, &["RUNNING"], "RUNNING", "STOPPED"),
            DeviceOperation::Deactivate { appid } => {
                ("deactivate", appid, &["ACTIVATED", "STOPPED"], "ACTIVATED", "DEPLOYED")
            }
            DeviceOperation::Uninstall { appid } => {
                ("uninstall", appid, &["DEPLOYED", "INSTALLING"], "DEPLOYED", "gone")
            }
            DeviceOperation::Copy { .. } | DeviceOperation::Delete { .. } => {
                unreachable!("they concern files")
            }
        };
        let state = inner.oper.get(id).map(|oper| oper.state.clone());
        if !state.as_deref().map_or(from.is_empty(), |state| from.contains(&state)) {
            return Err(refused("HTTP 400 operation-failed: wrong state"));
        }
        let package = match operation {
            DeviceOperation::Install { package, .. } => package.as_str(),
            _ => "",
        };
        let urls = if package.starts_with("http") { inner.urls } else { Urls::Work };
        if urls == Urls::Refused {
            let error = DriverError::new(Reason::Unsupported, "install an app").into();
            return Err(RequestFailure {
                device_text: Some("HTTP 405 operation-not-supported".into()),
                ..error
            });
        }
        if package.starts_with("flash:/staffetta_") && !inner.files.contains(package) {
            return Err(refused("HTTP 400 operation-failed: no such package"));
        }
        inner.accepted.push(format!("{word} {id}"));
        if urls == Urls::Silent {
            return Self::answer(&mut inner);
        }
        let fails = match word {
            "install" => inner.fails_installs,
            "activate" => inner.fails_activations,
            _ => None,
        };
        if let Some(message) = fails {
            let reported = json!({
                "name": "event", "timestamp": format!("{:?}", inner.requests), "app-id": id,
                "ev-type": format!("im-app-{word}"), "status": "im-app-fail", "message": message,
            });
            inner.notifications.push(reported);
            return Self::answer(&mut inner);
        }
        let interfaces = inner.oper.get(id).map_or_else(|| json!([]), |oper| oper.interfaces.clone());
        let next = (urls != Urls::Hang).then(|| (Instant::now() + DELAY, then));
        // What is uninstalled stays as it is until then.
        let now = state.filter(|_| word == "uninstall").unwrap_or_else(|| now.into());
        inner.oper.insert(id.clone(), Oper { state: now, next, interfaces });
        Self::answer(&mut inner)
    }
}

impl Device {
    async fn handle_file(
        &self,
        operation: &DeviceOperation,
        limit: Option<Duration>,
    ) -> Result<(), RequestFailure> {
        match operation {
            DeviceOperation::Copy { from, to } => {
                assert!(from.starts_with("http") && limit.is_some_and(|limit| limit > COPY));
                self.reached()?.copies.push((to.clone(), Instant::now() + COPY));
                tokio::time::sleep(COPY).await;
                let mut inner = self.reached()?;
                if inner.refuses_copies {
                    return Err(refused(
                        "HTTP 500 operation-failed: %Error copying (No space left on device)",
                    ));
                }
                Self::answer(&mut inner)
            }
            DeviceOperation::Delete { file } => {
                let mut inner = self.reached()?;
                if inner.keeps_files {
                    return Err(refused("HTTP 500 operation-failed: %Error deleting (Permission denied)"));
                }
                if !inner.files.remove(file) {
                    return Err(refused("HTTP 500 operation-failed: %Error deleting (No such file)"));
                }
                inner.accepted.push(of_file("delete", file));
                Self::answer(&mut inner)
            }
            _ => unreachable!("it concerns an application"),
        }
    }
}
