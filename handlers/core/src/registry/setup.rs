//! The argument of the functions that build handlers and drivers.

use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;

use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::diagnosis::{Check, Finding};
use super::dry_run::DryRunPlan;
use super::event_recorder::Recorder;
use super::{DriverTrait, Registry};
use crate::failure::HandlerError;

/// The argument of the functions that build handlers and drivers. It gives access to the Kubernetes client, the configuration, other
/// drivers and shared values.
pub struct Setup {
    registry: Arc<Registry>,
    client: Client,
    configuration: Value,
    /// The API versions that the server offers; `None` if there is no server and every API version counts as served.
    served: Option<HashSet<String>>,
    /// The plan of a dry run; `None` in a real run.
    pub plan: Option<DryRunPlan>,
    /// The recorder for Kubernetes Events that do not report a failure.
    pub recorder: Recorder,
    /// The drivers and [shared values](Self::shared) that were built so far, by type and name. The name of a shared value is empty.
    drivers: Mutex<HashMap<(TypeId, String), Arc<dyn Any + Send + Sync>>>,
    /// The drivers that the handler that is being built has requested.
    requested: Mutex<Vec<DriverId>>,
    /// The checks that handlers and drivers added: those before the program is ready, and those on request.
    checks: Mutex<(Vec<Check>, Vec<Check>)>,
}

/// The names that identify a driver among all drivers of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverId {
    /// The [alias](DriverTrait::alias) of the driver's trait, such as `pod_vif`.
    #[serde(rename = "trait")]
    pub driver_trait: String,
    /// The name of the driver.
    pub name: String,
}

/// The reason for which a handler or a driver could not be built.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A dry run needs drivers of a trait for which no recorder of changes is registered.
    #[error(
        "a dry run is not possible: the drivers of {driver_trait} (`{option}`) have no recorder; disable \
         the handler, or register the trait with `recorded` or `reads_only`"
    )]
    NoRecorder {
        /// The option that chooses the driver.
        option: String,
        /// The name of the Rust trait.
        driver_trait: &'static str,
    },
    /// Options are missing. A check of the configuration continues with the options in `stand_in`, so that it reports all missing options
    /// at once.
    #[error("{message}")]
    Missing {
        /// The error message, which names the missing options.
        message: String,
        /// Valid values for the missing options, in the form of the configuration: an object with a field for each of their
        /// sections.
        stand_in: Value,
    },
    /// The options are not valid or contradict one another, an external system rejected them, or a handler, a driver or a driver trait
    /// is not registered.
    #[error("{0}")]
    Invalid(String),
}

impl Registry {
    /// Creates the [`Setup`] for building handlers and drivers. `configuration` is an object with a field for each section. `served`
    /// contains the API versions that the server offers, such as `v1` and `apps/v1`. Without a server, it is `None`, and every API version
    /// counts as served.
    pub fn setup(
        self: &Arc<Self>,
        client: Client,
        configuration: Value,
        served: Option<HashSet<String>>,
    ) -> Setup {
        Setup {
            registry: Arc::<Self>::clone(self),
            client,
            configuration,
            served,
            plan: None,
            recorder: Recorder::default(),
            drivers: Mutex::default(),
            requested: Mutex::default(),
            checks: Mutex::default(),
        }
    }
}

impl Setup {
    /// Changes this into the setup of a dry run. Drivers read only and record their changes in `plan`; the recorder of Kubernetes
    /// Events discards everything. The client is not replaced: pass a client that sends writes as dry runs.
    #[must_use]
    pub fn dry_run(mut self, plan: DryRunPlan) -> Self {
        self.plan = Some(plan);
        self.recorder = Recorder::silent();
        self
    }

    /// Returns `true` if there is no API server: the configuration is checked and nothing is started.
    pub fn is_offline(&self) -> bool {
        self.served.is_none()
    }

    /// Returns `true` if one of these handlers [represents other machines as nodes](super::HandlerEntry::has_virtual_nodes).
    pub fn any_has_virtual_nodes(&self, handlers: &[String]) -> bool {
        handlers
            .iter()
            .any(|name| self.registry.handlers.get(name).is_some_and(|entry| entry.has_virtual_nodes))
    }

    /// Returns the client of the Kubernetes API.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the options of the section `name`. Fails if they do not match `T`.
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, SetupError> {
        let value = self.configuration.get(name).cloned().unwrap_or_else(|| Value::Object(Map::new()));
        serde_json::from_value(value)
            .map_err(|error| SetupError::Invalid(format!("the section `[{name}]` is invalid: {error}")))
    }

    /// Returns the configured driver of the trait `D`. The driver is built at the first call. Fails if the trait or the driver is
    /// unknown, if the driver cannot be built, or in a dry run that the trait does not support.
    pub fn driver<D: ?Sized + Send + Sync + 'static>(&self) -> Result<Arc<D>, SetupError> {
        self.driver_named(&self.driver_name::<D>()?)
    }

    /// Returns all drivers of the trait `D` by name, for a driver that chooses among them at run time. Each driver is built at most
    /// once. Fails if one of them cannot be built.
    pub fn drivers<D: ?Sized + Send + Sync + 'static>(&self) -> Result<BTreeMap<String, Arc<D>>, SetupError> {
        let names = self.driver_trait::<D>()?.drivers.keys();
        names.map(|name| Ok((name.clone(), self.driver_named(name)?))).collect()
    }

    /// Returns the name of the configured driver of the trait `D`: the value of its option, or the default of the trait. Fails if `D` is
    /// not registered.
    pub fn driver_name<D: ?Sized + 'static>(&self) -> Result<String, SetupError> {
        let driver_trait = self.driver_trait::<D>()?;
        Ok(self.kubernetes(&driver_trait.option()).unwrap_or(&driver_trait.default).to_owned())
    }

    /// Returns the value of an option of the section `[kubernetes]`; `None` if it is missing or not a string.
    fn kubernetes(&self, option: &str) -> Option<&str> {
        self.configuration.get("kubernetes")?.get(option)?.as_str()
    }

    /// Returns the driver of the trait `D` called `name`. The driver is built at the first call. Fails like [`driver`](Self::driver).
    pub fn driver_named<D: ?Sized + Send + Sync + 'static>(&self, name: &str) -> Result<Arc<D>, SetupError> {
        let driver_trait = self.driver_trait::<D>()?;
        // What the driver requests while it is built is not requested by the handler.
        let mut requested = self.take_requested();
        let made = self.once((TypeId::of::<D>(), name.to_owned()), || {
            let made = driver_trait.make(name, self)?;
            Ok(*made.downcast::<Arc<D>>().expect("the factory was registered for this trait"))
        });
        let driver = DriverId { driver_trait: driver_trait.alias.clone(), name: name.to_owned() };
        if !requested.contains(&driver) {
            requested.push(driver);
        }
        *self.requested.lock() = requested;
        made
    }

    /// Removes and returns the drivers that the handler that is being built has requested.
    pub(super) fn take_requested(&self) -> Vec<DriverId> {
        std::mem::take(&mut self.requested.lock())
    }

    /// Returns the driver trait `D`. Fails if it is not registered.
    fn driver_trait<D: ?Sized + 'static>(&self) -> Result<&DriverTrait, SetupError> {
        let mut driver_traits = self.registry.driver_traits();
        let found = driver_traits.find(|driver_trait| driver_trait.type_id == TypeId::of::<D>());
        found.ok_or_else(|| {
            SetupError::Invalid(format!("the driver trait {} is not registered", type_name::<D>()))
        })
    }

    /// Returns the value of type `T` that several drivers share, such as a client or a simulated network. `make` builds the value at
    /// the first call.
    pub fn shared<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        self.once((TypeId::of::<T>(), String::new()), || make().map(Arc::new))
    }

    /// Sets the value that [`shared`](Self::shared) returns for the type `T`, such as a counter of the metrics.
    pub fn share<T: Send + Sync + 'static>(&self, value: Arc<T>) {
        let mut drivers = self.drivers.lock();
        drivers.insert((TypeId::of::<T>(), String::new()), Arc::new(value));
    }

    /// Returns the cluster id, which identifies the resources that the controller creates for this cluster in external systems. Fails
    /// if the configuration has no `kubernetes.cluster_id`.
    pub fn cluster_id(&self) -> Result<String, SetupError> {
        let cluster_id = self.kubernetes("cluster_id").map(str::to_owned);
        cluster_id.ok_or_else(|| SetupError::Invalid("`kubernetes.cluster_id` is missing".into()))
    }

    /// Returns `true` if the server offers the API version of `K`, or if there is no server.
    pub fn serves<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.served.as_ref().is_none_or(|served| served.contains(&*K::api_version(&())))
    }

    /// Adds a check that must succeed before the program is ready. `/readyz` shows it under `name`, and `kubectl staffetta check` runs it
    /// again.
    pub fn check<F>(&self, name: &str, run: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let finding = format!("{name} answers");
        let run = move || {
            let (run, finding) = (run(), Finding::ok(finding.clone(), ""));
            async { run.await.map(|()| vec![finding]) }
        };
        let check = Check { name: name.to_owned(), run: Box::new(move || Box::pin(run())) };
        self.checks.lock().0.push(check);
    }

    /// Adds a check that runs on request, for `kubectl staffetta check`. The check must change nothing, and may take ten seconds.
    ///
    /// ```
    /// use staffetta_handler::{Finding, Setup};
    ///
    /// fn lamp(setup: &Setup) {
    ///     setup.diagnosis("lamp", || async {
    ///         let oil = 3; // the answer of the lamp
    ///         let check = "the lamp has oil for a night";
    ///         Ok(vec![match oil {
    ///             0..5 => Finding::warning(check, format!("{oil} ml are left"), "refill it"),
    ///             _ => Finding::ok(check, ""),
    ///         }])
    ///     });
    /// }
    /// ```
    pub fn diagnosis<F>(&self, category: &str, run: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<Vec<Finding>, HandlerError>> + Send + 'static,
    {
        let check = Check { name: category.to_owned(), run: Box::new(move || Box::pin(run())) };
        self.checks.lock().1.push(check);
    }

    /// Returns the checks that handlers and drivers added: those before the program is ready, and those on request.
    pub fn into_checks(self) -> (Vec<Check>, Vec<Check>) {
        self.checks.into_inner()
    }

    /// Returns the value for `key`, and builds the value with `make` if there is none. `make` may request other values of this setup.
    fn once<D: ?Sized + Send + Sync + 'static>(
        &self,
        key: (TypeId, String),
        make: impl FnOnce() -> Result<Arc<D>, SetupError>,
    ) -> Result<Arc<D>, SetupError> {
        let lock = || self.drivers.lock();
        if let Some(made) = lock().get(&key) {
            let made = Arc::clone(made).downcast::<Arc<D>>().expect("the key holds the type");
            return Ok(Arc::clone(&made));
        }
        let made = make()?;
        lock().insert(key, Arc::new(Arc::clone(&made)));
        Ok(made)
    }
}
