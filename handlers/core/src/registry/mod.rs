//! The registry, where all handlers, drivers and configuration sections are added by name.
//!
//! The submodules define the traits that a handler implements, and the types by which it is registered and built.

mod diagnosis;
mod dry_run;
mod event_recorder;
mod garbage_collector;
mod index;
mod interest;
mod registration;
mod resolved;
mod resource;
mod route;
mod setup;
mod source;

pub use diagnosis::{Check, CheckResult, Finding};
pub use dry_run::{DryRunPlan, PlannedCall};
pub use event_recorder::{EventNote, Recorder};
pub use garbage_collector::GarbageCollector;
pub use index::Index;
pub use interest::Interest;
pub use registration::{KindIndex, Registration};
pub use resolved::Resolved;
pub use resource::{
    CLUSTER_ANNOTATION, CLUSTER_LABEL, HANDLER_LABEL, ResourceEventHandler, TriggerHandler, deliver,
};
pub use setup::{DriverId, Setup, SetupError};
pub use source::{Source, TriggerSender};

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The registry of all handlers, drivers and configuration sections that the program knows, by name.
///
/// ```
/// use std::sync::Arc;
/// use staffetta_handler::Registry;
///
/// trait Lamp: Send + Sync {}
/// struct Candle;
/// impl Lamp for Candle {}
///
/// let mut registry = Registry::default();
/// registry.driver_trait::<dyn Lamp>("lamp", "candle", "Lights the way.");
/// registry.driver::<dyn Lamp>("candle", "A candle.", |_| Ok(Arc::new(Candle)));
/// assert_eq!(registry.driver_traits().next().map(|lamp| lamp.option()), Some("lamp_driver".into()));
/// ```
#[derive(Default)]
pub struct Registry {
    handlers: BTreeMap<String, HandlerEntry>,
    driver_traits: Vec<DriverTrait>,
    sections: Vec<Section>,
}

/// A handler that the configuration can enable.
pub struct HandlerEntry {
    /// A description in one sentence, for the command line.
    pub about: String,
    /// `true` if the handler runs in every replica, from the start of the process to its end, whoever leads. It must itself make sure
    /// that two replicas never act for the same object: neither its client nor its chain is bound to the leadership.
    pub in_every_replica: bool,
    /// `true` if the handler represents other machines as nodes, whose pods have networks of their own: pods on nodes with the label
    /// [`HANDLER_LABEL`] or `type=virtual-kubelet` get no VIF.
    pub has_virtual_nodes: bool,
    build: Factory<Registration>,
}

/// A driver that the configuration can choose.
pub struct DriverEntry {
    /// A description in one sentence, for the command line.
    pub about: String,
    build: Factory<AnyDriver>,
}

/// The type of a function that builds a handler or a driver from the [`Setup`].
type Factory<T> = Box<dyn Fn(&Setup) -> Result<T, SetupError> + Send + Sync>;

/// A driver trait, and the drivers that implement the trait.
pub struct DriverTrait {
    /// The name of the trait in the configuration: the driver of `pod_vif` is chosen by the option
    /// `pod_vif_driver`.
    pub alias: String,
    /// The name of the driver that is used when the configuration names none.
    pub default: String,
    /// A description of the trait in one sentence, for the command line.
    pub about: String,
    /// `true` if an option chooses one of the drivers; `false` if all of them are used, selected by name.
    pub has_option: bool,
    /// The drivers, by name.
    pub drivers: BTreeMap<String, DriverEntry>,
    type_id: TypeId,
    /// The name of the Rust trait, for error messages.
    type_name: &'static str,
    /// The function that wraps each driver of this trait in a dry run. If `None`, handlers that use the trait cannot be dry-run.
    recorder: Option<DriverRecorder>,
}

/// The type of a function that wraps a driver in another one, which records changes in the plan instead of making them.
type DriverRecorder = Box<dyn Fn(AnyDriver, &DryRunPlan) -> AnyDriver + Send + Sync>;

/// An `Arc<dyn Trait>` of a driver, whose type is erased.
pub(super) type AnyDriver = Box<dyn Any + Send + Sync>;

impl DriverTrait {
    /// Returns the name of the option in the section `[kubernetes]` that chooses the driver, such as `pod_vif_driver` for `pod_vif`.
    pub fn option(&self) -> String {
        format!("{}_driver", self.alias)
    }

    /// Declares that no method of the trait changes anything: a dry run uses the drivers as they are.
    pub fn reads_only(&mut self) {
        self.recorder = Some(Box::new(|driver, _| driver));
    }

    /// Builds the driver called `name`. In a dry run, the driver is wrapped so that it records changes. Fails if there is no such driver,
    /// if it cannot be built, or if this is a dry run and the trait does not support dry runs.
    fn make(&self, name: &str, setup: &Setup) -> Result<AnyDriver, SetupError> {
        let entry = self.drivers.get(name).ok_or_else(|| {
            let wanted = if self.has_option { self.option() } else { self.alias.clone() };
            let known = match &*join(self.drivers.keys()) {
                "" => "register one, or enable the feature of one".to_owned(),
                known => format!("the drivers are {known}"),
            };
            SetupError::Invalid(format!("there is no driver `{name}` for `{wanted}`; {known}"))
        })?;
        let Some(plan) = &setup.plan else { return (entry.build)(setup) };
        let record = self
            .recorder
            .as_ref()
            .ok_or_else(|| SetupError::NoRecorder { option: self.option(), driver_trait: self.type_name })?;
        Ok(record((entry.build)(setup)?, plan))
    }
}

/// A section of the configuration file. Its options are the fields of a struct.
pub struct Section {
    /// The name, as in `[name]`.
    pub name: String,
    /// The function that returns the JSON schema of the struct. The descriptions in the schema become the comments of the sample file.
    pub schema: fn() -> Schema,
    /// The function that returns the default of each option of the section, as a JSON object by option name.
    pub defaults: fn() -> Value,
    /// The function that checks options by deserializing them as the struct. A missing option gets its default.
    pub check: fn(Value) -> Result<(), SectionError>,
}

/// An error in the options of a section, with the path of the wrong value.
pub type SectionError = serde_path_to_error::Error<serde_json::Error>;

impl Registry {
    /// Adds a handler, or replaces the handler of the same name. `about` describes it in one sentence; `build` is called if the
    /// configuration enables the handler. By default it runs only in the replica that leads, and has no virtual nodes; change that in
    /// the returned entry.
    pub fn handler(
        &mut self,
        name: &str,
        about: &str,
        build: impl Fn(&Setup) -> Result<Registration, SetupError> + Send + Sync + 'static,
    ) -> &mut HandlerEntry {
        let (about, build) = (about.to_owned(), Box::new(build));
        let entry = HandlerEntry { about, in_every_replica: false, has_virtual_nodes: false, build };
        self.handlers.insert(name.to_owned(), entry);
        self.handlers.get_mut(name).expect("it was inserted just now")
    }

    /// Returns `true` if the handler `name` runs in every replica, not only in the one that leads.
    pub fn runs_in_every_replica(&self, name: &str) -> bool {
        self.handlers.get(name).is_some_and(|entry| entry.in_every_replica)
    }

    /// Adds a driver trait. `default` names the driver that is used when the configuration names none. A dry run fails if a handler
    /// uses the trait, unless [`recorded`](Self::recorded) is called for it, or [`reads_only`](DriverTrait::reads_only) on the returned
    /// value.
    pub fn driver_trait<D: ?Sized + 'static>(
        &mut self,
        alias: &str,
        default: &str,
        about: &str,
    ) -> &mut DriverTrait {
        self.driver_traits.push(DriverTrait {
            alias: alias.to_owned(),
            default: default.to_owned(),
            about: about.to_owned(),
            has_option: true,
            drivers: BTreeMap::new(),
            type_id: TypeId::of::<D>(),
            type_name: type_name::<D>(),
            recorder: None,
        });
        self.driver_traits.last_mut().expect("it was pushed just now")
    }

    /// Replaces each driver of the trait `D` by `record(driver, plan)` in a dry run. The replacement passes reads on to `driver`, and
    /// adds changes to `plan` instead of making them.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use staffetta_handler::{DryRunPlan, Registry, PlannedCall};
    ///
    /// trait Lamp: Send + Sync {
    ///     fn is_lit(&self) -> bool;
    ///     fn light(&self);
    /// }
    ///
    /// /// Passes reads on, and records changes.
    /// struct Recording(Arc<dyn Lamp>, DryRunPlan);
    ///
    /// impl Lamp for Recording {
    ///     fn is_lit(&self) -> bool {
    ///         self.0.is_lit()
    ///     }
    ///     fn light(&self) {
    ///         self.1.add(PlannedCall::new("lamp", "light a lamp"));
    ///     }
    /// }
    ///
    /// let mut registry = Registry::default();
    /// registry.driver_trait::<dyn Lamp>("lamp", "candle", "Lights the way.");
    /// registry.recorded::<dyn Lamp>(|lamp, plan| Arc::new(Recording(lamp, plan)));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`driver_trait`](Self::driver_trait) was not called for `D`: an error of the program, not of its configuration.
    pub fn recorded<D: ?Sized + Send + Sync + 'static>(
        &mut self,
        record: impl Fn(Arc<D>, DryRunPlan) -> Arc<D> + Send + Sync + 'static,
    ) {
        self.driver_trait_mut::<D>().recorder = Some(Box::new(move |driver, plan| {
            let driver = *driver.downcast().expect("the factory was registered for this trait");
            Box::new(record(driver, plan.clone()))
        }));
    }

    /// Adds a driver of the trait `D`, or replaces the driver of the same name.
    ///
    /// # Panics
    ///
    /// Panics if [`driver_trait`](Self::driver_trait) was not called for `D`: an error of the program, not of its configuration.
    pub fn driver<D: ?Sized + Send + Sync + 'static>(
        &mut self,
        name: &str,
        about: &str,
        build: impl Fn(&Setup) -> Result<Arc<D>, SetupError> + Send + Sync + 'static,
    ) {
        let build: Factory<AnyDriver> = Box::new(move |setup| Ok(Box::new(build(setup)?)));
        let entry = DriverEntry { about: about.to_owned(), build };
        self.driver_trait_mut::<D>().drivers.insert(name.to_owned(), entry);
    }

    /// Returns the driver trait `D`, for example to change its default driver.
    ///
    /// # Panics
    ///
    /// Panics if [`driver_trait`](Self::driver_trait) was not called for `D`: an error of the program, not of its configuration.
    pub fn driver_trait_mut<D: ?Sized + 'static>(&mut self) -> &mut DriverTrait {
        let mut driver_traits = self.driver_traits.iter_mut();
        let found = driver_traits.find(|driver_trait| driver_trait.type_id == TypeId::of::<D>());
        found.unwrap_or_else(|| panic!("no driver trait was registered for {}", type_name::<D>()))
    }

    /// Adds a section of the configuration file. `T` must deny unknown fields and have a default for each option.
    pub fn section<T: DeserializeOwned + Serialize + JsonSchema + Default>(&mut self, name: &str) {
        let schema = || {
            let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
            settings.into_generator().into_root_schema_for::<T>()
        };
        let defaults =
            || serde_json::to_value(T::default()).expect("the defaults of a section are plain data");
        let check = |options| serde_path_to_error::deserialize::<_, T>(options).map(drop);
        self.sections.push(Section { name: name.to_owned(), schema, defaults, check });
    }

    /// Returns the handlers, sorted by name.
    pub fn handlers(&self) -> impl Iterator<Item = (&str, &HandlerEntry)> {
        self.handlers.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns the driver traits, in the order in which they were added.
    pub fn driver_traits(&self) -> impl Iterator<Item = &DriverTrait> {
        self.driver_traits.iter()
    }

    /// Returns the sections, in the order in which they were added.
    pub fn sections(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter()
    }

    /// Builds the handler called `handler`. Fails if there is no such handler, or with the error of the function that
    /// builds it.
    pub fn make(&self, handler: &str, setup: &Setup) -> Result<Registration, SetupError> {
        let entry = self.handlers.get(handler).ok_or_else(|| {
            let known = join(self.handlers.keys());
            SetupError::Invalid(format!("there is no handler `{handler}`; the handlers are {known}"))
        })?;
        let built = (entry.build)(setup);
        let drivers = setup.take_requested();
        let mut registration = built?;
        registration.drivers = drivers;
        Ok(registration)
    }
}

/// Quotes the names and joins them with commas, for an error message.
fn join<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    trait Lamp: Send + Sync {
        fn name(&self) -> &'static str;
    }

    struct Named(&'static str);

    impl Lamp for Named {
        fn name(&self) -> &'static str {
            self.0
        }
    }

    fn setup(registry: &Arc<Registry>, configuration: Value) -> Setup {
        let (service, _) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        registry.setup(Client::new(service, "default"), configuration, Some(HashSet::new()))
    }

    #[tokio::test]
    async fn a_handler_of_virtual_nodes_is_known_as_such_until_another_one_takes_its_name() {
        let build = |_: &Setup| Ok(Registration::new(()).erase());
        let have = |registry: Registry| {
            setup(&Arc::new(registry), json!({})).any_has_virtual_nodes(&["edge".to_owned()])
        };
        let mut registry = Registry::default();
        registry.handler("edge", "", build).has_virtual_nodes = true;
        let mut other = Registry::default();
        other.handler("edge", "", build).has_virtual_nodes = true;
        other.handler("edge", "", build);
        assert!(!have(other));
        assert!(!have(Registry::default()));
        assert!(have(registry));
    }

    #[tokio::test]
    async fn the_configured_driver_is_built_once() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let mut registry = Registry::default();
        registry.driver_trait::<dyn Lamp>("lamp", "candle", "Lights the way.");
        registry.driver::<dyn Lamp>("candle", "", |_| Ok(Arc::new(Named("candle"))));
        registry.driver::<dyn Lamp>("torch", "", |_| {
            MADE.fetch_add(1, Ordering::Relaxed);
            Ok(Arc::new(Named("torch")))
        });
        let setup = setup(&Arc::new(registry), json!({ "kubernetes": { "lamp_driver": "torch" } }));
        let (first, second) = (setup.driver::<dyn Lamp>().unwrap(), setup.driver::<dyn Lamp>().unwrap());
        assert_eq!((first.name(), second.name(), MADE.load(Ordering::Relaxed)), ("torch", "torch", 1));
        assert_eq!(setup.driver_named::<dyn Lamp>("candle").unwrap().name(), "candle");
        let all: Vec<_> = setup.drivers::<dyn Lamp>().unwrap().into_iter().collect();
        assert_eq!(
            all.iter().map(|(name, lamp)| (name.as_str(), lamp.name())).collect::<Vec<_>>(),
            [("candle", "candle"), ("torch", "torch"),]
        );
        assert_eq!(
            (setup.driver_name::<dyn Lamp>().unwrap().as_str(), MADE.load(Ordering::Relaxed)),
            ("torch", 1)
        );
    }

    #[tokio::test]
    async fn a_handler_knows_the_drivers_that_it_requested_and_not_those_of_its_drivers() {
        let mut registry = Registry::default();
        registry.driver_trait::<dyn Lamp>("lamp", "torch", "Lights the way.");
        registry.driver::<dyn Lamp>("candle", "", |_| Ok(Arc::new(Named("candle"))));
        registry.driver::<dyn Lamp>("torch", "", |setup| setup.driver_named::<dyn Lamp>("candle"));
        for name in ["first", "second"] {
            registry.handler(name, "", |setup| {
                setup.driver::<dyn Lamp>()?;
                setup.driver::<dyn Lamp>()?;
                Ok(Registration::new(()).erase())
            });
        }
        registry.handler("third", "", |_| Ok(Registration::new(()).erase()));
        let registry = Arc::new(registry);
        let setup = setup(&registry, json!({}));
        let torch = DriverId { driver_trait: "lamp".to_owned(), name: "torch".to_owned() };
        for (handler, drivers) in [("first", vec![torch.clone()]), ("second", vec![torch]), ("third", vec![])]
        {
            let made = registry.make(handler, &setup).unwrap();
            assert_eq!(made.drivers, drivers, "{handler}");
        }
    }

    /// A driver that records the call, with the name of the driver that it wraps.
    struct Recording(Arc<dyn Lamp>, DryRunPlan);

    impl Lamp for Recording {
        fn name(&self) -> &'static str {
            self.1.add(PlannedCall::new("lamp", format!("light the {}", self.0.name())));
            "recording"
        }
    }

    #[tokio::test]
    async fn a_dry_run_uses_the_recorder_of_a_driver_and_a_real_run_the_driver() {
        let mut registry = Registry::default();
        registry.driver_trait::<dyn Lamp>("lamp", "candle", "Lights the way.");
        registry.recorded::<dyn Lamp>(|lamp, plan| Arc::new(Recording(lamp, plan)));
        registry.driver::<dyn Lamp>("candle", "", |_| Ok(Arc::new(Named("candle"))));
        let registry = Arc::new(registry);
        let calls = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&calls);
        let plan = DryRunPlan::new(move |_, call: PlannedCall| recorded.lock().push(call.what));
        let dry = setup(&registry, json!({})).dry_run(plan);
        assert_eq!(dry.driver::<dyn Lamp>().unwrap().name(), "recording");
        assert_eq!(*calls.lock(), ["light the candle"]);
        assert_eq!(setup(&registry, json!({})).driver::<dyn Lamp>().unwrap().name(), "candle");
    }

    #[tokio::test]
    async fn the_drivers_of_a_trait_that_only_reads_are_used_as_they_are() {
        let mut registry = Registry::default();
        registry.driver_trait::<dyn Lamp>("lamp", "candle", "Lights the way.").reads_only();
        registry.driver::<dyn Lamp>("candle", "", |_| Ok(Arc::new(Named("candle"))));
        let dry = setup(&Arc::new(registry), json!({})).dry_run(DryRunPlan::default());
        assert_eq!(dry.driver::<dyn Lamp>().unwrap().name(), "candle");
    }

    #[tokio::test]
    async fn a_trait_without_a_recorder_refuses_a_dry_run_by_name() {
        let mut registry = Registry::default();
        registry.driver_trait::<dyn Lamp>("lamp", "candle", "Lights the way.");
        registry.driver::<dyn Lamp>("candle", "", |_| panic!("it is not even made"));
        let dry = setup(&Arc::new(registry), json!({})).dry_run(DryRunPlan::default());
        let error = dry.driver::<dyn Lamp>().err().map(|error| error.to_string()).unwrap();
        assert!(error.contains("registry::tests::Lamp (`lamp_driver`) have no recorder"), "{error}");
    }

    #[tokio::test]
    async fn a_shared_value_can_be_set_before_it_is_requested() {
        let setup = setup(&Arc::new(Registry::default()), json!({}));
        setup.share(Arc::new(7_u8));
        assert_eq!(*setup.shared::<u8>(|| panic!("it is there")).unwrap(), 7);
        assert_eq!(*setup.shared(|| Ok(8_u16)).unwrap(), 8);
    }

    #[tokio::test]
    async fn an_unknown_name_is_refused_with_the_existing_names() {
        let mut registry = Registry::default();
        registry.driver_trait::<dyn Lamp>("lamp", "candle", "Lights the way.");
        registry.driver::<dyn Lamp>("torch", "", |_| Ok(Arc::new(Named("torch"))));
        let registry = Arc::new(registry);
        let setup = setup(&registry, json!({}));
        let driver = setup.driver::<dyn Lamp>().err().map(|error| error.to_string());
        assert_eq!(driver.unwrap(), "there is no driver `candle` for `lamp_driver`; the drivers are `torch`");
        let mut registry = Registry::default();
        registry.driver_trait::<dyn Lamp>("lamp", "candle", "Lights the way.");
        let setup = self::setup(&Arc::new(registry), json!({}));
        let driver = setup.driver::<dyn Lamp>().err().map(|error| error.to_string());
        let expected =
            "there is no driver `candle` for `lamp_driver`; register one, or enable the feature of one";
        assert_eq!(driver.unwrap(), expected);
        let registry = Arc::new(Registry::default());
        let handler = registry.make("vif", &setup).err().map(|error| error.to_string());
        assert_eq!(handler.unwrap(), "there is no handler `vif`; the handlers are ");
    }
}
