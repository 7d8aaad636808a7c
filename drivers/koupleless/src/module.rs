//! Converts a container of a pod to a module of Arklet, the agent in a base.

use k8s_openapi::api::core::v1::{Container, EnvVar};
use serde::{Deserialize, Serialize};
use staffetta_driver::tunnel::NodeId;
use staffetta_driver::{ContainerKey, DriverError, Reason};
use tracing::warn;

/// The environment variable of a container that holds the version of its module.
const VERSION: &str = "BIZ_VERSION";

/// The maximum length of the name or the version of a module, in bytes.
const MAX_LENGTH: usize = 128;

/// The maximum length of the URL of a module, in bytes.
const MAX_URL: usize = 2048;

/// A module as Arklet loads and unloads it (`BizModel`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Module {
    #[serde(rename = "bizName")]
    name: String,
    #[serde(rename = "bizVersion")]
    version: String,
    #[serde(rename = "bizUrl")]
    url: String,
}

impl Module {
    /// Returns the module of a container. The error names the field of the container that is missing or malformed. `step` is the
    /// operation that the error names.
    pub(crate) fn of(container: &Container, step: &'static str) -> Result<Self, DriverError> {
        let refused = |field: &str, why: &str| {
            let name: String = container.name.chars().take(64).collect();
            Err(DriverError::new(Reason::Refused, step).detail(format!("container {name:?}: {field}: {why}")))
        };
        let syntax = "use letters, digits, dots, hyphens, underscores and plus signs, at most 128";
        let version = version(container);
        let url = container.image.clone().unwrap_or_default();
        if !is_name(&container.name) {
            return refused("name", syntax);
        }
        if version.is_empty() {
            return refused("env", &format!("set {VERSION} to the version of the module, as a plain value"));
        }
        if !is_name(version) {
            return refused(&format!("env {VERSION}"), syntax);
        }
        if url.is_empty() || url.len() > MAX_URL || url.chars().any(|c| c.is_control() || c == ' ') {
            return refused("image", "it must be the URL of a JAR file, of at most 2048 bytes");
        }
        Ok(Self { name: container.name.clone(), version: version.to_owned(), url })
    }

    /// Returns the container, without its image, of a module that a base has loaded; `None` if no container can be that module.
    pub(crate) fn container(name: &str, version: &str) -> Option<Container> {
        let variable =
            EnvVar { name: VERSION.to_owned(), value: Some(version.to_owned()), ..EnvVar::default() };
        let container =
            Container { name: name.to_owned(), env: Some(vec![variable]), ..Container::default() };
        (is_name(name) && is_name(version)).then_some(container)
    }

    /// Returns the modules with which a base starts (its baseline). A container that names no valid module is left out, with a log line.
    pub(crate) fn of_all(containers: &[Container], base: &NodeId) -> Vec<Self> {
        let module = |container| {
            let module = Self::of(container, "tell a base its baseline");
            module.inspect_err(|error| warn!(%base, %error, "a container of the baseline is left out")).ok()
        };
        containers.iter().filter_map(module).collect()
    }

    /// Returns the key under which a base reports the module.
    pub(crate) fn key(&self) -> ContainerKey {
        key(&self.name, &self.version)
    }
}

/// Returns the key of the module of a container, whether or not a base can load it.
pub(crate) fn key_of(container: &Container) -> ContainerKey {
    key(&container.name, version(container))
}

/// Returns the key of a module: `name:version`.
pub(crate) fn key(name: &str, version: &str) -> ContainerKey {
    format!("{name}:{version}").into()
}

/// Returns `true` for a text that may be the name or the version of a module. It contains no colon, so a key is unambiguous.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    !text.is_empty() && text.len() <= MAX_LENGTH && text.bytes().all(allowed)
}

/// Returns the value of the environment variable [`VERSION`] of a container; empty if there is none.
fn version(container: &Container) -> &str {
    let variable = container.env.iter().flatten().find(|variable| variable.name == VERSION);
    variable.and_then(|variable| variable.value.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(name: &str, version: &str, image: &str) -> Container {
        let env = json!([{ "name": "OTHER", "value": "x" }, { "name": VERSION, "value": version }]);
        serde_json::from_value(json!({ "name": name, "image": image, "env": env })).unwrap()
    }

    #[test]
    fn a_container_is_a_module_of_its_name_version_and_image() {
        let container = container("cart", "1.0.0", "https://example.com/cart.jar");
        let module = Module::of(&container, "load a module").unwrap();
        assert_eq!(
            serde_json::to_value(&module).unwrap(),
            json!({ "bizName": "cart", "bizVersion": "1.0.0", "bizUrl": "https://example.com/cart.jar" })
        );
        assert_eq!((module.key().as_str(), key_of(&container)), ("cart:1.0.0", module.key()));
    }

    #[test]
    fn a_container_that_is_no_module_is_refused_by_field() {
        let url = "https://example.com/cart.jar";
        let long = "1".repeat(MAX_LENGTH + 1);
        for (container, field) in [
            (container("cart", "", url), "env"),
            (container("cart", "1:0", url), "env BIZ_VERSION"),
            (container("cart", &long, url), "env BIZ_VERSION"),
            (container("a/b", "1", url), "name"),
            (container("cart", "1", ""), "image"),
            (container("cart", "1", "https://example.com/a b"), "image"),
            (container("cart", "1", &"x".repeat(MAX_URL + 1)), "image"),
        ] {
            let error = Module::of(&container, "load a module").unwrap_err();
            assert_eq!(error.reason(), Reason::Refused);
            assert!(error.to_string().contains(&format!(": {field}: ")), "{error}");
        }
    }
}
