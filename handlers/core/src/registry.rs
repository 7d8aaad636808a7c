//! Which handlers, drivers and configuration sections exist. It is filled in one place, by name.

use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kube::Client;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

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
    pub(crate) type_id: TypeId,
}

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

type DriverFactory = Box<dyn Fn(&Setup) -> Result<Box<dyn Any + Send + Sync>, SetupError> + Send + Sync>;

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

    /// Adds a driver trait. `default` names the driver that is used when the configuration names none.
    pub fn interface<D: ?Sized + 'static>(&mut self, alias: &str, default: &str, about: &str) {
        self.interfaces.push(Interface {
            alias: alias.to_owned(),
            default: default.to_owned(),
            about: about.to_owned(),
            drivers: BTreeMap::new(),
            type_id: TypeId::of::<D>(),
        });
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

    fn make(
        &self,
        driver_trait: TypeId,
        name: &str,
        setup: &Setup,
    ) -> Result<Box<dyn Any + Send + Sync>, SetupError> {
        let interface = self.interfaces.iter().find(|interface| interface.type_id == driver_trait);
        let entry = interface.and_then(|interface| interface.drivers.get(name));
        let entry = entry.ok_or_else(|| SetupError::UnknownDriver {
            option: interface.map(Interface::option).unwrap_or_default(),
            name: name.to_owned(),
            known: interface.map(|interface| join(interface.drivers.keys())).unwrap_or_default(),
        })?;
        (entry.build)(setup)
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
