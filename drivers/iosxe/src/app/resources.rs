//! Computes the resources that an application reserves, from the requests and limits of its container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use staffetta_driver::app_hosting::ResourceLimits;
use staffetta_driver::{DriverError, ExactQuantity};

use super::refusal::{invalid, unsupported};
use crate::model::config::ResourceProfile;

const MEBIBYTE: u64 = 1 << 20;

/// The units, default and maximum of one resource that a device gives to applications.
#[derive(Clone, Copy, Debug)]
struct Measure {
    /// The names of the resource in requests and limits. The first name that is present is used.
    names: &'static [&'static str],
    /// The factor and the divisor that convert the unit of Kubernetes into that of the device.
    factor: u64,
    divisor: u64,
    /// The amount for a container without a request or limit, in the device's unit.
    default: u64,
    /// The maximum amount, in the device's unit: that of the YANG module, or a lower one from the device specification.
    max: u64,
    /// The maximum of a limit if there is a request too, in the device's unit. A CPU limit then only sets the number of
    /// virtual CPUs, so this maximum is higher.
    max_limit_with_request: u64,
    /// The unit of the device, as error messages name it.
    unit: &'static str,
}

/// CPU time. The device counts in units of a thousandth of a CPU.
const CPU: Measure = Measure {
    names: &["cpu"],
    factor: 1000,
    divisor: 1,
    default: 1000,
    max: 20_000,
    max_limit_with_request: 65_535_000,
    unit: "units of CPU",
};

/// Memory, in MB of 2^20 bytes.
const MEMORY: Measure = Measure {
    names: &["memory"],
    factor: 1,
    divisor: MEBIBYTE,
    default: 512,
    max: 16_384,
    max_limit_with_request: 16_384,
    unit: "MB of memory",
};

/// Storage, in MB of 2^20 bytes.
const STORAGE: Measure = Measure {
    names: &["ephemeral-storage", "storage"],
    factor: 1,
    divisor: MEBIBYTE,
    default: 1024,
    max: 65_535,
    max_limit_with_request: 65_535,
    unit: "MB of storage",
};

impl Measure {
    /// Converts a quantity into the device's unit, rounded up; `None` if it cannot be parsed or is too large.
    fn read(self, quantity: &str) -> Option<u64> {
        ExactQuantity::parse(quantity)?.times(self.factor).map(|amount| amount.div_ceil(self.divisor))
    }
}

/// The defaults and maxima of the resources that a device gives to an application.
#[derive(Clone, Debug)]
pub(crate) struct AppResourceLimits {
    cpu: Measure,
    memory: Measure,
    storage: Measure,
}

impl AppResourceLimits {
    /// Reads the defaults and maxima from a device specification. Refuses values above the range of the YANG module,
    /// and a default above the maximum.
    pub(crate) fn read(limits: &ResourceLimits) -> Result<Self, DriverError> {
        let bounded = |measure: Measure, default: &Option<String>, max: &Option<String>, what: &str| {
            let read = |text: &str, name: &str| {
                let amount = measure.read(text).filter(|amount| *amount <= measure.max);
                amount.ok_or_else(|| invalid(format!("resourceLimits.{name}"), out_of_range(text, measure)))
            };
            let given = max.as_deref().map(|text| read(text, &format!("max{what}"))).transpose()?;
            let (max, max_limit_with_request) =
                (given.unwrap_or(measure.max), given.unwrap_or(measure.max_limit_with_request));
            let path = format!("default{what}");
            let default = default.as_deref().map(|text| read(text, &path)).transpose()?;
            let default = default.unwrap_or(measure.default.min(max));
            if default > max {
                let why = format!("it is more than `resourceLimits.max{what}`");
                return Err(invalid(format!("resourceLimits.{path}"), why));
            }
            Ok(Measure { default, max, max_limit_with_request, ..measure })
        };
        Ok(Self {
            cpu: bounded(CPU, &limits.default_cpu, &limits.max_cpu, "CPU")?,
            memory: bounded(MEMORY, &limits.default_memory, &limits.max_memory, "Memory")?,
            storage: bounded(STORAGE, &limits.default_storage, &limits.max_storage, "Storage")?,
        })
    }

    /// Returns the resource profile of a container: for each resource the request, or else the limit, or else the
    /// device's default, also in place of 0. Refuses unknown resources and amounts above the maximum. `path` is the
    /// path of the container in the pod.
    pub(super) fn profile(&self, path: &str, container: &Container) -> Result<ResourceProfile, DriverError> {
        let empty = BTreeMap::new();
        let resources = container.resources.as_ref();
        let requests = resources.and_then(|resources| resources.requests.as_ref()).unwrap_or(&empty);
        let limits = resources.and_then(|resources| resources.limits.as_ref()).unwrap_or(&empty);
        if resources.and_then(|resources| resources.claims.as_ref()).is_some_and(|claims| !claims.is_empty())
        {
            return Err(unsupported(format!("{path}.resources.claims"), "the device has no claims"));
        }
        let known = |name: &String| {
            [CPU, MEMORY, STORAGE].iter().any(|measure| measure.names.contains(&name.as_str()))
        };
        if let Some(other) = requests.keys().chain(limits.keys()).find(|name| !known(name)) {
            return Err(unsupported(format!("{path}.resources"), format!("the device has no `{other}`")));
        }
        let read = |measure: Measure, words: &str, amounts| match amount_of(amounts, measure) {
            None => Ok(None),
            Some((name, Quantity(text))) => {
                let amount = measure.read(text).filter(|amount| *amount <= measure.max);
                let path = || format!("{path}.resources.{words}.{name}");
                amount.map(Some).ok_or_else(|| invalid(path(), out_of_range(text, measure)))
            }
        };
        let amount = |measure: Measure| -> Result<u64, DriverError> {
            let request = read(measure, "requests", requests)?.filter(|amount| *amount > 0);
            let max = if request.is_some() { measure.max_limit_with_request } else { measure.max };
            let limit = read(Measure { max, ..measure }, "limits", limits)?;
            Ok(request.or(limit).filter(|amount| *amount > 0).unwrap_or(measure.default))
        };
        let cpus = read(Measure { max: self.cpu.max_limit_with_request, ..self.cpu }, "limits", limits)?;
        let cpus = cpus.map_or(1, |units| units.div_ceil(CPU.factor).max(1));
        // The module's ranges are within 16 bits, and so is everything that was held against them.
        let narrow = |amount: u64| u16::try_from(amount).unwrap_or(u16::MAX);
        Ok(ResourceProfile {
            profile_name: "custom".into(),
            cpu_units: narrow(amount(self.cpu)?),
            memory_capacity_mb: narrow(amount(self.memory)?),
            disk_size_mb: narrow(amount(self.storage)?),
            vcpu: narrow(cpus),
        })
    }
}

/// Returns the amount of a resource in requests or limits, with the name under which it is given; `None` if it is not given.
fn amount_of(amounts: &BTreeMap<String, Quantity>, measure: Measure) -> Option<(&'static str, &Quantity)> {
    measure.names.iter().find_map(|name| Some((*name, amounts.get(*name)?)))
}

/// Returns the reason of refusing a text that is no quantity within the range of the resource.
fn out_of_range(text: &str, measure: Measure) -> String {
    let text: String = text.chars().take(40).collect();
    format!("`{text}` is not a quantity up to {} {}", measure.max, measure.unit)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn profile(limits: &ResourceLimits, resources: &Value) -> Result<(u16, u16, u16, u16), String> {
        let container = json!({ "name": "app", "resources": resources });
        let container: Container = serde_json::from_value(container).unwrap();
        let reported = |refusal: DriverError| refusal.to_string();
        let profile = AppResourceLimits::read(limits)
            .and_then(|limits| limits.profile("c", &container))
            .map_err(reported)?;
        Ok((profile.cpu_units, profile.memory_capacity_mb, profile.disk_size_mb, profile.vcpu))
    }

    fn limits() -> ResourceLimits {
        ResourceLimits {
            default_cpu: Some("250m".into()),
            default_memory: Some("128Mi".into()),
            default_storage: Some("10Mi".into()),
            max_cpu: Some("2".into()),
            max_memory: Some("1Gi".into()),
            max_storage: Some("1Gi".into()),
            ..ResourceLimits::default()
        }
    }

    #[test]
    fn requests_hold_before_limits_and_both_before_the_defaults_of_the_device() {
        let none = ResourceLimits::default();
        assert_eq!(profile(&none, &json!({})), Ok((1000, 512, 1024, 1)));
        assert_eq!(profile(&limits(), &json!({})), Ok((250, 128, 10, 1)));
        let both = json!({
            "requests": { "cpu": "100m", "memory": "1Ki", "storage": "1" },
            "limits": { "cpu": "1500m", "memory": "64Mi", "ephemeral-storage": "5Mi" },
        });
        assert_eq!(profile(&limits(), &both), Ok((100, 1, 1, 2)));
        let only_limits = json!({ "limits": { "cpu": "2", "memory": "64Mi", "ephemeral-storage": "5Mi" } });
        assert_eq!(profile(&limits(), &only_limits), Ok((2000, 64, 5, 2)));
        assert_eq!(
            profile(&none, &json!({ "requests": { "cpu": "0", "memory": "0" } })),
            Ok((1000, 512, 1024, 1))
        );
        let limited = json!({ "requests": { "cpu": "0" }, "limits": { "cpu": "500m" } });
        assert_eq!(profile(&none, &limited), Ok((500, 512, 1024, 1)), "a request of 0 is none");
    }

    #[test]
    fn the_ends_of_each_range_are_taken_and_what_is_beyond_is_refused_by_path() {
        let none = ResourceLimits::default();
        let max = json!({ "requests": { "cpu": "20", "memory": "16Gi", "storage": "65535Mi" } });
        assert_eq!(profile(&none, &max), Ok((20_000, 16_384, 65_535, 1)));
        for (resources, path) in [
            (json!({ "requests": { "cpu": "20001m" } }), "c.resources.requests.cpu: `20001m`"),
            (json!({ "requests": { "memory": "64Gi" } }), "c.resources.requests.memory: `64Gi`"),
            (json!({ "requests": { "memory": "16385Mi" } }), "c.resources.requests.memory: `16385Mi`"),
            (json!({ "limits": { "storage": "65536Mi" } }), "c.resources.limits.storage: `65536Mi`"),
            (json!({ "limits": { "cpu": "65536" }, "requests": { "cpu": "1" } }), "c.resources.limits.cpu: "),
            (
                json!({ "limits": { "memory": "17Gi" }, "requests": { "memory": "1" } }),
                "c.resources.limits.memory: ",
            ),
            (
                json!({ "requests": { "nvidia.com/gpu": "1" } }),
                "c.resources: the device has no `nvidia.com/gpu`",
            ),
        ] {
            let error = profile(&none, &resources).unwrap_err();
            assert!(error.contains(path), "{error}");
        }
    }

    #[test]
    fn a_device_may_take_less_and_its_own_limits_must_be_possible() {
        for (name, max, more) in
            [("cpu", "2", "64"), ("memory", "1Gi", "2Gi"), ("ephemeral-storage", "1Gi", "2Gi")]
        {
            let of = |request: &str, limit: &str| json!({ "requests": { name: request }, "limits": { name: limit } });
            assert!(profile(&limits(), &of("1", max)).is_ok());
            for (wrong, path) in [(of("1", more), "limits"), (of(more, "1"), "requests")] {
                let error = profile(&limits(), &wrong).unwrap_err();
                let expected = format!("c.resources.{path}.{name}: `{more}` is not a quantity up to ");
                assert!(error.contains(&expected), "{error}");
            }
        }
        let error = profile(&limits(), &json!({ "requests": { "cpu": "2001m" } })).unwrap_err();
        assert!(error.contains("is not a quantity up to 2000 units of CPU"), "{error}");
        for (wrong, path) in [
            (ResourceLimits { max_memory: Some("32Gi".into()), ..limits() }, "resourceLimits.maxMemory"),
            (ResourceLimits { default_cpu: Some("lots".into()), ..limits() }, "resourceLimits.defaultCPU"),
            (
                ResourceLimits { default_storage: Some("2Gi".into()), ..limits() },
                "resourceLimits.defaultStorage",
            ),
        ] {
            let error = profile(&wrong, &json!({})).unwrap_err();
            assert!(error.contains(path), "{error}");
        }
    }
}
