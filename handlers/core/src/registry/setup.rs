//! The arguments of the functions that build handlers and drivers.

use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::dry_run::DryRunPlan;
use super::event_recorder::Recorder;
use super::{DriverTrait, Registry};
use crate::chain::HandlerError;

/// The client, the configuration and the drivers for a handler or driver that is being built.
pub struct Setup {
    registry: Arc<Registry>,
    client: Client,
    configuration: Value,
    served: HashSet<String>,
    /// Set if every API version counts as served.
    serves_all: bool,
    plan: Option<DryRunPlan>,
    recorder: Recorder,
    drivers: Mutex<HashMap<(TypeId, String), Arc<dyn Any + Send + Sync>>>,
    checks: Mutex<Vec<Check>>,
}

/// A check that must pass before the program is ready.
pub struct Check {
    /// The name, as `/readyz` shows it.
    pub name: String,
    /// Runs the check.
    pub run: CheckFn,
}

/// The function of a [`Check`].
pub type CheckFn = Box<dyn Fn() -> BoxFuture<'static, Result<(), HandlerError>> + Send + Sync>;

/// A handler or a driver could not be built.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No handler has that name.
    #[error("there is no handler `{name}`; the handlers are {known}")]
    UnknownHandler {
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// No driver has that name.
    #[error("there is no driver `{name}` for `{option}`; the drivers are {known}")]
    UnknownDriver {
        /// The option that names it.
        option: String,
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// The driver trait is not registered.
    #[error("the driver trait {0} is not registered")]
    UnknownDriverTrait(&'static str),
    /// A dry run is not possible, because the drivers of this trait have no recorder.
    #[error(
        "a dry run is not possible: the drivers of {driver_trait} (`{option}`) have no recorder; disable \
         the handler, or register the trait with `recorded` or `reads_only`"
    )]
    NoRecorder {
        /// The option that names the driver.
        option: String,
        /// The trait.
        driver_trait: &'static str,
    },
    /// A section of the configuration is invalid.
    #[error("the section `[{section}]` is invalid")]
    Section {
        /// The section.
        section: String,
        /// The error.
        #[source]
        source: serde_json::Error,
    },
    /// The options contradict one another, or an external system refused them.
    #[error("{0}")]
    Invalid(String),
}

impl Registry {
    /// The [`Setup`] for building handlers and drivers. `configuration` holds a value for each section, `served` the API versions
    /// (`v1`, `apps/v1`) of the server.
    pub fn setup(self: &Arc<Self>, client: Client, configuration: Value, served: HashSet<String>) -> Setup {
        Setup {
            registry: Arc::<Self>::clone(self),
            client,
            configuration,
            served,
            serves_all: false,
            plan: None,
            recorder: Recorder::default(),
            drivers: Mutex::default(),
            checks: Mutex::default(),
        }
    }
}

impl Setup {
    /// Turns this into the setup of a dry run: drivers read only, and record changes in `plan`; the recorder of Events is
    /// silent. The client is not replaced: pass one that sends writes as dry runs.
    #[must_use]
    pub fn dry_run(mut self, plan: DryRunPlan) -> Self {
        self.plan = Some(plan);
        self.recorder = Recorder::silent();
        self
    }

    /// Treats every API version as served, where the server is not known.
    #[must_use]
    pub fn serving_all(mut self) -> Self {
        self.serves_all = true;
        self
    }

    /// The plan of the dry run; `None` in a real run.
    pub fn plan(&self) -> Option<&DryRunPlan> {
        self.plan.as_ref()
    }

    /// Sets the event recorder of the handlers.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = recorder;
        self
    }

    /// The recorder for Kubernetes Events that report no failure.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// The client of the Kubernetes API.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The options of a section.
    pub fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, SetupError> {
        let value = self.configuration.get(name).cloned().unwrap_or_else(|| Value::Object(Map::new()));
        serde_json::from_value(value)
            .map_err(|source| SetupError::Section { section: name.to_owned(), source })
    }

    /// The configured driver of the trait `D`. It is built once.
    pub fn driver<D: ?Sized + Send + Sync + 'static>(&self) -> Result<Arc<D>, SetupError> {
        self.driver_named(&self.driver_name::<D>()?)
    }

    /// All drivers of the trait `D` by name, for a driver that chooses among them at run time. Each is built once.
    pub fn drivers<D: ?Sized + Send + Sync + 'static>(&self) -> Result<BTreeMap<String, Arc<D>>, SetupError> {
        let names = self.driver_trait::<D>()?.drivers.keys();
        names.map(|name| Ok((name.clone(), self.driver_named(name)?))).collect()
    }

    /// The name of the configured driver of the trait `D`.
    pub fn driver_name<D: ?Sized + 'static>(&self) -> Result<String, SetupError> {
        let driver_trait = self.driver_trait::<D>()?;
        let section = self.configuration.get("kubernetes");
        let named = section.and_then(|section| section.get(driver_trait.option())?.as_str());
        Ok(named.unwrap_or(&driver_trait.default).to_owned())
    }

    /// The driver of the trait `D` called `name`. It is built once.
    pub fn driver_named<D: ?Sized + Send + Sync + 'static>(&self, name: &str) -> Result<Arc<D>, SetupError> {
        self.once((TypeId::of::<D>(), name.to_owned()), || {
            let made = self.driver_trait::<D>()?.make(name, self)?;
            Ok(*made.downcast::<Arc<D>>().expect("the factory was registered for this trait"))
        })
    }

    fn driver_trait<D: ?Sized + 'static>(&self) -> Result<&DriverTrait, SetupError> {
        self.registry.driver_trait_of(TypeId::of::<D>(), type_name::<D>())
    }

    /// A value that several drivers share, such as a client or a simulated network; `make` builds it at the first call.
    pub fn shared<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        self.once((TypeId::of::<T>(), String::new()), || make().map(Arc::new))
    }

    /// Sets the value that [`shared`](Self::shared) returns, such as a counter of the metrics.
    pub fn share<T: Send + Sync + 'static>(&self, value: Arc<T>) {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.insert((TypeId::of::<T>(), String::new()), Arc::new(value));
    }

    /// The cluster id, with which everything created outside is marked.
    pub fn cluster_id(&self) -> Result<String, SetupError> {
        let section = self.configuration.get("kubernetes");
        let cluster_id = section.and_then(|section| section.get("cluster_id")?.as_str());
        cluster_id
            .map(str::to_owned)
            .ok_or_else(|| SetupError::Invalid("`kubernetes.cluster_id` is missing".into()))
    }

    /// Returns `true` if the server has the API version of `K`.
    pub fn serves<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.serves_all || self.served.contains(&*K::api_version(&()))
    }

    /// Adds a check that must pass before the program is ready.
    pub fn check<F>(&self, name: &str, run: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let check = Check { name: name.to_owned(), run: Box::new(move || Box::pin(run())) };
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Returns the checks.
    pub fn into_checks(self) -> Vec<Check> {
        self.checks.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of `key`; `make` may itself request other values.
    fn once<D: ?Sized + Send + Sync + 'static>(
        &self,
        key: (TypeId, String),
        make: impl FnOnce() -> Result<Arc<D>, SetupError>,
    ) -> Result<Arc<D>, SetupError> {
        let lock = || self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = lock().get(&key) {
            let made = Arc::clone(made).downcast::<Arc<D>>().expect("the key holds the type");
            return Ok(Arc::clone(&made));
        }
        let made = make()?;
        lock().insert(key, Arc::new(Arc::clone(&made)));
        Ok(made)
    }
}
