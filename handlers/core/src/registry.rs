//! Which handlers, drivers and configuration sections exist. It is filled in one place, by name.

use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;

use kube::Client;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::plan::Plan;
use crate::registration::Registration;
use crate::setup::{Makers, Setup, SetupError};

/// The handlers, drivers and configuration sections that exist.
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
/// registry.interface::<dyn Lamp>("lamp", "candle", "Lights the way.");
/// registry.driver::<dyn Lamp>("candle", "A candle.", |_| Ok(Arc::new(Candle)));
/// assert_eq!(registry.interfaces().next().map(|lamp| lamp.option()), Some("lamp_driver".into()));
/// ```
#[derive(Default)]
pub struct Registry {
    handlers: BTreeMap<String, HandlerEntry>,
    interfaces: Vec<Interface>,
    sections: Vec<Section>,
}

/// A handler that can be enabled.
pub struct HandlerEntry {
    /// One sentence for people.
    pub about: String,
    pub(crate) build: HandlerFactory,
}

type HandlerFactory = Box<dyn Fn(&Setup) -> Result<Registration, SetupError> + Send + Sync>;

/// A driver trait, and the drivers that implement it.
pub struct Interface {
    /// The name by which the configuration knows it: `pod_vif` is chosen by the option `pod_vif_driver`.
    pub alias: String,
    /// The driver that is used when the configuration names none.
    pub default: String,
    /// One sentence for people.
    pub about: String,
    /// The drivers, by name.
    pub drivers: BTreeMap<String, DriverEntry>,
    type_id: TypeId,
    type_name: &'static str,
    /// What takes the place of a driver in a dry run; none while nobody has said.
    rehearse: Option<Rehearse>,
}

/// Puts a driver that plans in front of one that acts: both an `Arc` of the trait, in a box.
type Rehearse = Box<dyn Fn(AnyDriver, &Plan) -> AnyDriver + Send + Sync>;

/// An `Arc` of a driver trait.
type AnyDriver = Box<dyn Any + Send + Sync>;

impl Interface {
    /// The option in the section `[kubernetes]` that names the driver.
    pub fn option(&self) -> String {
        format!("{}_driver", self.alias)
    }
}

/// A driver that can be chosen.
pub struct DriverEntry {
    /// One sentence for people.
    pub about: String,
    pub(crate) build: DriverFactory,
}

type DriverFactory = Box<dyn Fn(&Setup) -> Result<AnyDriver, SetupError> + Send + Sync>;

/// A driver trait that was just added, to say what a dry run makes of its drivers.
///
/// ```
/// use std::sync::Arc;
/// use staffetta_handler::{Plan, Registry, Step};
///
/// trait Lamp: Send + Sync {
///     fn is_lit(&self) -> bool;
///     fn light(&self);
/// }
///
/// /// Answers what the real one does, and writes down what it would be asked to do.
/// struct Rehearsed(Arc<dyn Lamp>, Plan);
///
/// impl Lamp for Rehearsed {
///     fn is_lit(&self) -> bool {
///         self.0.is_lit()
///     }
///     fn light(&self) {
///         self.1.add(Step::new("lamp", "light a lamp"));
///     }
/// }
///
/// let mut registry = Registry::default();
/// let lamp = registry.interface::<dyn Lamp>("lamp", "candle", "Lights the way.");
/// lamp.rehearsed(|inner, plan| Arc::new(Rehearsed(inner, plan)));
/// ```
pub struct NewInterface<'r, D: ?Sized> {
    interface: &'r mut Interface,
    driver_trait: PhantomData<fn() -> Arc<D>>,
}

impl<D: ?Sized + Send + Sync + 'static> NewInterface<'_, D> {
    /// In a dry run, a driver is replaced by what `rehearse` makes of it: a driver that passes reads on, and adds to the plan
    /// what it would be asked to do.
    pub fn rehearsed(self, rehearse: impl Fn(Arc<D>, Plan) -> Arc<D> + Send + Sync + 'static) {
        self.interface.rehearse = Some(Box::new(move |inner, plan| {
            let inner = *inner.downcast().expect("the factory was registered for this trait");
            Box::new(rehearse(inner, plan.clone()))
        }));
    }

    /// No method of the trait changes anything, so that a dry run may call them all.
    pub fn reads_only(self) {
        self.interface.rehearse = Some(Box::new(|inner, _| inner));
    }
}

/// A section of the configuration file: a struct whose fields are the options.
pub struct Section {
    /// The name, as in `[name]`.
    pub name: String,
    /// The schema of the struct; its descriptions become the comments of the sample.
    pub schema: Schema,
    /// The options' defaults.
    pub defaults: Value,
}

impl Registry {
    /// Adds a handler. A second one of the same name takes the place of the first.
    pub fn handler(
        &mut self,
        name: &str,
        about: &str,
        build: impl Fn(&Setup) -> Result<Registration, SetupError> + Send + Sync + 'static,
    ) {
        let entry = HandlerEntry { about: about.to_owned(), build: Box::new(build) };
        self.handlers.insert(name.to_owned(), entry);
    }

    /// Adds a driver trait. `default` names the driver that is used when the configuration names none. As long as the
    /// answer was not told what a dry run makes of its drivers, a dry run with a handler that uses one is refused.
    pub fn interface<D: ?Sized + 'static>(
        &mut self,
        alias: &str,
        default: &str,
        about: &str,
    ) -> NewInterface<'_, D> {
        self.interfaces.push(Interface {
            alias: alias.to_owned(),
            default: default.to_owned(),
            about: about.to_owned(),
            drivers: BTreeMap::new(),
            type_id: TypeId::of::<D>(),
            type_name: type_name::<D>(),
            rehearse: None,
        });
        let interface = self.interfaces.last_mut().expect("it was pushed just now");
        NewInterface { interface, driver_trait: PhantomData }
    }

    /// Adds a driver. A second one of the same name takes the place of the first.
    ///
    /// # Panics
    ///
    /// When [`interface`](Self::interface) was not called for `D`: a mistake in the program, not in its configuration.
    pub fn driver<D: ?Sized + Send + Sync + 'static>(
        &mut self,
        name: &str,
        about: &str,
        build: impl Fn(&Setup) -> Result<Arc<D>, SetupError> + Send + Sync + 'static,
    ) {
        let interface = self.interfaces.iter_mut().find(|interface| interface.type_id == TypeId::of::<D>());
        let interface =
            interface.unwrap_or_else(|| panic!("no interface was registered for {}", type_name::<D>()));
        let build: DriverFactory = Box::new(move |setup| Ok(Box::new(build(setup)?)));
        interface.drivers.insert(name.to_owned(), DriverEntry { about: about.to_owned(), build });
    }

    /// Adds a section of the configuration file. `T` denies unknown fields and has a default for each option.
    pub fn section<T: DeserializeOwned + Serialize + JsonSchema + Default>(&mut self, name: &str) {
        let defaults = serde_json::to_value(T::default()).expect("the defaults of a section are plain data");
        self.sections.push(Section { name: name.to_owned(), schema: schema_for!(T), defaults });
    }

    /// The handlers, by name.
    pub fn handlers(&self) -> impl Iterator<Item = (&str, &HandlerEntry)> {
        self.handlers.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// The driver traits, in the order in which they were added.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter()
    }

    /// The sections, in the order in which they were added.
    pub fn sections(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter()
    }

    /// What a handler and its drivers are given when they are made. `configuration` holds a value for each section;
    /// `served` the API versions (`v1`, `apps/v1`) that the server has.
    pub fn setup(self: &Arc<Self>, client: Client, configuration: Value, served: HashSet<String>) -> Setup {
        Setup::new(Arc::<Self>::clone(self), client, configuration, served)
    }

    /// Makes the handler of that name.
    pub fn make(&self, handler: &str, setup: &Setup) -> Result<Registration, SetupError> {
        let entry = self.handlers.get(handler).ok_or_else(|| SetupError::UnknownHandler {
            name: handler.to_owned(),
            known: join(self.handlers.keys()),
        })?;
        (entry.build)(setup)
    }
}

impl Makers for Registry {
    fn choice(&self, driver_trait: TypeId) -> Option<(String, String)> {
        let interface = self.interfaces.iter().find(|interface| interface.type_id == driver_trait)?;
        Some((interface.option(), interface.default.clone()))
    }

    fn names(&self, driver_trait: TypeId) -> Vec<String> {
        let interface = self.interfaces.iter().find(|interface| interface.type_id == driver_trait);
        interface.map(|interface| interface.drivers.keys().cloned().collect()).unwrap_or_default()
    }

    fn make(&self, driver_trait: TypeId, name: &str, setup: &Setup) -> Result<AnyDriver, SetupError> {
        let interface = self.interfaces.iter().find(|interface| interface.type_id == driver_trait);
        let entry = interface.and_then(|interface| Some((interface, interface.drivers.get(name)?)));
        let (interface, entry) = entry.ok_or_else(|| SetupError::UnknownDriver {
            option: interface.map(Interface::option).unwrap_or_default(),
            name: name.to_owned(),
            known: interface.map(|interface| join(interface.drivers.keys())).unwrap_or_default(),
        })?;
        let Some(plan) = setup.plan() else { return (entry.build)(setup) };
        let rehearse = interface.rehearse.as_ref().ok_or_else(|| SetupError::Unrehearsed {
            option: interface.option(),
            driver_trait: interface.type_name,
        })?;
        Ok(rehearse((entry.build)(setup)?, plan))
    }
}

fn join<'a>(names: impl Iterator<Item = &'a String>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::plan::Step;

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
        registry.setup(Client::new(service, "default"), configuration, HashSet::new())
    }

    #[tokio::test]
    async fn a_driver_is_the_one_that_the_configuration_names_and_is_made_once() {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let mut registry = Registry::default();
        registry.interface::<dyn Lamp>("lamp", "candle", "Lights the way.");
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

    /// Says in front of another lamp's name what it would be.
    struct Rehearsed(Arc<dyn Lamp>, Plan);

    impl Lamp for Rehearsed {
        fn name(&self) -> &'static str {
            self.1.add(Step::new("lamp", format!("light the {}", self.0.name())));
            "rehearsed"
        }
    }

    #[tokio::test]
    async fn a_dry_run_gets_what_a_trait_makes_of_its_drivers_and_a_real_one_the_drivers() {
        let mut registry = Registry::default();
        let lamp = registry.interface::<dyn Lamp>("lamp", "candle", "Lights the way.");
        lamp.rehearsed(|inner, plan| Arc::new(Rehearsed(inner, plan)));
        registry.driver::<dyn Lamp>("candle", "", |_| Ok(Arc::new(Named("candle"))));
        let registry = Arc::new(registry);
        let plan = Plan::default();
        let dry = setup(&registry, json!({})).rehearsing(plan.clone());
        assert_eq!(dry.driver::<dyn Lamp>().unwrap().name(), "rehearsed");
        assert_eq!(plan.take().into_values().next().unwrap().steps[0].step.what, "light the candle");
        assert_eq!(setup(&registry, json!({})).driver::<dyn Lamp>().unwrap().name(), "candle");
    }

    #[tokio::test]
    async fn a_trait_that_only_reads_is_its_own_rehearsal() {
        let mut registry = Registry::default();
        registry.interface::<dyn Lamp>("lamp", "candle", "Lights the way.").reads_only();
        registry.driver::<dyn Lamp>("candle", "", |_| Ok(Arc::new(Named("candle"))));
        let dry = setup(&Arc::new(registry), json!({})).rehearsing(Plan::default());
        assert_eq!(dry.driver::<dyn Lamp>().unwrap().name(), "candle");
    }

    #[tokio::test]
    async fn a_trait_of_which_nobody_said_how_it_is_rehearsed_refuses_a_dry_run_by_name() {
        let mut registry = Registry::default();
        registry.interface::<dyn Lamp>("lamp", "candle", "Lights the way.");
        registry.driver::<dyn Lamp>("candle", "", |_| panic!("it is not even made"));
        let dry = setup(&Arc::new(registry), json!({})).rehearsing(Plan::default());
        let error = dry.driver::<dyn Lamp>().err().map(|error| error.to_string()).unwrap();
        assert!(error.contains("registry::tests::Lamp (`lamp_driver`) are rehearsed"), "{error}");
    }

    #[tokio::test]
    async fn an_unknown_name_is_refused_with_those_that_exist() {
        let mut registry = Registry::default();
        registry.interface::<dyn Lamp>("lamp", "candle", "Lights the way.");
        registry.driver::<dyn Lamp>("torch", "", |_| Ok(Arc::new(Named("torch"))));
        let registry = Arc::new(registry);
        let setup = setup(&registry, json!({}));
        let driver = setup.driver::<dyn Lamp>().err().map(|error| error.to_string());
        assert_eq!(driver.unwrap(), "there is no driver `candle` for `lamp_driver`; the drivers are `torch`");
        let handler = registry.make("vif", &setup).err().map(|error| error.to_string());
        assert_eq!(handler.unwrap(), "there is no handler `vif`; the handlers are ");
    }
}
