//! What a handler or a driver is given when it is made.

use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::HandlerError;
use crate::note::Notes;
use crate::plan::Plan;

/// What a handler or a driver is given when it is made: the client, its configuration, its drivers.
pub struct Setup {
    makers: Arc<dyn Makers>,
    client: Client,
    configuration: Value,
    served: HashSet<String>,
    /// Whether the server is taken to have every API version.
    serves_all: bool,
    plan: Option<Plan>,
    notes: Notes,
    drivers: Mutex<HashMap<(TypeId, String), Arc<dyn Any + Send + Sync>>>,
    checks: Mutex<Vec<Check>>,
}

/// Who makes drivers by name.
pub(crate) trait Makers: Send + Sync {
    /// The option that names the driver of a trait, and the name that is taken when it does not.
    fn choice(&self, driver_trait: TypeId) -> Option<(String, String)>;

    /// The names of the drivers of a trait.
    fn names(&self, driver_trait: TypeId) -> Vec<String>;

    /// Makes the driver of that name: an `Arc` of the trait, in a box.
    fn make(
        &self,
        driver_trait: TypeId,
        name: &str,
        setup: &Setup,
    ) -> Result<Box<dyn Any + Send + Sync>, SetupError>;
}

/// Something that must be well before the program calls itself ready.
pub struct Check {
    /// The name, as `/readyz` shows it.
    pub name: String,
    /// Fails while it is not well.
    pub run: CheckFn,
}

/// See [`Check::run`].
pub type CheckFn =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>> + Send + Sync>;

/// Why a handler or a driver could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A handler of that name does not exist.
    #[error("there is no handler `{name}`; the handlers are {known}")]
    UnknownHandler {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A driver of that name does not exist.
    #[error("there is no driver `{name}` for `{option}`; the drivers are {known}")]
    UnknownDriver {
        /// The option that names it.
        option: String,
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// Nobody registered that driver trait.
    #[error("no driver trait {0} was registered")]
    UnknownInterface(&'static str),
    /// A dry run is wanted, and nobody said what it is to make of the drivers of this trait.
    #[error(
        "a dry run is not possible: nobody said how the drivers of {driver_trait} (`{option}`) are rehearsed; leave out \
         the handler, or register the trait with `rehearsed` or `reads_only`"
    )]
    Unrehearsed {
        /// The option that names the driver.
        option: String,
        /// The trait.
        driver_trait: &'static str,
    },
    /// A section does not fit its struct.
    #[error("the section `[{section}]` is not as it must be")]
    Section {
        /// The section.
        section: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The options fit one by one but not together, or the other world refused.
    #[error("{0}")]
    Invalid(String),
}

impl Setup {
    pub(crate) fn new(
        makers: Arc<dyn Makers>,
        client: Client,
        configuration: Value,
        served: HashSet<String>,
    ) -> Self {
        Self {
            makers,
            client,
            configuration,
            served,
            serves_all: false,
            plan: None,
            notes: Notes::default(),
            drivers: Mutex::default(),
            checks: Mutex::default(),
        }
    }

    /// Makes it the setup of a dry run: each driver only reads, and what it would be asked to do is added to `plan`. Notes go nowhere.
    /// It says nothing of the client, which has to be one that only reads too.
    #[must_use]
    pub fn rehearsing(mut self, plan: Plan) -> Self {
        self.plan = Some(plan);
        self.notes = Notes::silent();
        self
    }

    /// Makes it the setup of somebody who does not know the server: it is taken to have every API version.
    #[must_use]
    pub fn serving_all(mut self) -> Self {
        self.serves_all = true;
        self
    }

    /// The plan to which is added what would be done, in a dry run.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Makes it a setup whose handlers tell their notes to `notes`.
    #[must_use]
    pub fn telling(mut self, notes: Notes) -> Self {
        self.notes = notes;
        self
    }

    /// Where a handler tells what is worth telling at an object and is no failure.
    pub fn notes(&self) -> Notes {
        self.notes.clone()
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

    /// The driver that the configuration names for the trait `D`. It is made once, however many ask for it.
    pub fn driver<D: ?Sized + Send + Sync + 'static>(&self) -> Result<Arc<D>, SetupError> {
        self.driver_named(&self.driver_name::<D>()?)
    }

    /// All drivers of the trait `D` by name, for whoever learns only later which one is needed. Each is made once, however
    /// many ask for it.
    pub fn drivers<D: ?Sized + Send + Sync + 'static>(&self) -> Result<BTreeMap<String, Arc<D>>, SetupError> {
        let names = self.makers.names(TypeId::of::<D>()).into_iter();
        names.map(|name| Ok((name.clone(), self.driver_named(&name)?))).collect()
    }

    /// The name of the driver that the configuration chooses for the trait `D`.
    pub fn driver_name<D: ?Sized + 'static>(&self) -> Result<String, SetupError> {
        let choice = self.makers.choice(TypeId::of::<D>());
        let (option, default) = choice.ok_or(SetupError::UnknownInterface(type_name::<D>()))?;
        let named = self.configuration.get("kubernetes").and_then(|section| section.get(&option)?.as_str());
        Ok(named.map_or(default, str::to_owned))
    }

    /// The driver of that name for the trait `D`. It is made once, however many ask for it.
    pub fn driver_named<D: ?Sized + Send + Sync + 'static>(&self, name: &str) -> Result<Arc<D>, SetupError> {
        self.once((TypeId::of::<D>(), name.to_owned()), || {
            let made = self.makers.make(TypeId::of::<D>(), name, self)?;
            Ok(*made.downcast::<Arc<D>>().expect("the factory was registered for this trait"))
        })
    }

    /// A value that several drivers share, such as a client or a simulated network: made at the first call.
    pub fn shared<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, SetupError>,
    ) -> Result<Arc<T>, SetupError> {
        self.once((TypeId::of::<T>(), String::new()), || make().map(Arc::new))
    }

    /// Puts a value there that [`shared`](Self::shared) is to find, such as what counts for whoever asks the program.
    pub fn share<T: Send + Sync + 'static>(&self, value: Arc<T>) {
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.insert((TypeId::of::<T>(), String::new()), Arc::new(value));
    }

    /// The name of this cluster, which marks everything that is made outside.
    pub fn cluster_id(&self) -> Result<String, SetupError> {
        let section = self.configuration.get("kubernetes");
        let cluster_id = section.and_then(|section| section.get("cluster_id")?.as_str());
        cluster_id
            .map(str::to_owned)
            .ok_or_else(|| SetupError::Invalid("`kubernetes.cluster_id` is missing".into()))
    }

    /// Whether the server has the API version to which `K` belongs.
    pub fn serves<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.serves_all || self.served.contains(&*K::api_version(&()))
    }

    /// Adds something that must be well before the program calls itself ready.
    pub fn check<F>(&self, name: &str, run: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let check = Check { name: name.to_owned(), run: Box::new(move || Box::pin(run())) };
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// The checks that were added.
    pub fn into_checks(self) -> Vec<Check> {
        self.checks.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value under `key`; `make` may itself ask for other values.
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
