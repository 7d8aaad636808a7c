//! The checks of the cloud for `staffetta check`: extensions and quotas.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use staffetta_driver::ProjectId;
use staffetta_handler::{Finding, Setup, SetupError};
use staffetta_openstack::{Cloud, Quota, Service};

use super::unusable;

/// The category of the findings about Neutron.
pub(super) const CATEGORY: &str = "openstack";

/// The resources of Neutron and Octavia that the drivers in use create, by their names in quotas.
#[derive(Default)]
struct CreatedResources(Mutex<BTreeSet<&'static str>>);

/// Records that a driver in use creates `resources`, so that their quotas are checked.
pub(super) fn declare_created(setup: &Setup, resources: &[&'static str]) -> Result<(), SetupError> {
    setup.shared(|| Ok(CreatedResources::default()))?.0.lock().extend(resources);
    Ok(())
}

/// Adds the check that Neutron has the API extension `extension`. `user` is the driver that needs it, as `option = "driver"`.
pub(super) fn needs_extension(setup: &Setup, cloud: &Cloud, extension: &'static str, user: &'static str) {
    let network = cloud.network();
    setup.diagnosis(CATEGORY, move || {
        let network = network.clone();
        async move {
            let check = format!("Neutron has the extension {extension}");
            let has = network.has_extension(extension).await;
            Ok(vec![if has.map_err(unusable)? {
                Finding::ok(check, "")
            } else {
                let remedy = "enable it in Neutron, or choose another driver";
                Finding::failed(check, format!("{user} needs it"), remedy)
            }])
        }
    });
}

/// Adds the check that the quotas of a project in `service`, Neutron or Octavia, leave room for what the drivers in use create. `unknown`
/// is the detail and the remedy of the finding if the quotas are unknown.
pub(super) fn needs_quotas(
    setup: &Setup,
    category: &str,
    service: Service,
    project: ProjectId,
    unknown: (&'static str, &'static str),
) -> Result<(), SetupError> {
    let created = setup.shared(|| Ok(CreatedResources::default()))?;
    setup.diagnosis(category, move || {
        let (service, project, created) = (service.clone(), project.clone(), created.0.lock().clone());
        async move {
            let quotas = service.quotas(&project).await;
            let quotas = quotas.map_err(unusable)?;
            let check = format!("the quotas of the project {project} leave room");
            Ok(quota_findings(check, quotas.as_ref(), &created, unknown))
        }
    });
    Ok(())
}

/// Returns the findings about the quotas of the resources `created`. `unknown` is the detail and the remedy if the quotas are not known.
fn quota_findings(
    check: String,
    quotas: Option<&BTreeMap<String, Quota>>,
    created: &BTreeSet<&'static str>,
    unknown: (&'static str, &'static str),
) -> Vec<Finding> {
    let Some(quotas) = quotas else { return vec![Finding::warning(check, unknown.0, unknown.1)] };
    let of_resource = |&name: &&'static str| Some((name, *quotas.get(name)?));
    let scarce: Vec<_> = created.iter().filter_map(of_resource).filter_map(scarce).collect();
    if scarce.is_empty() { vec![Finding::ok(check, "")] } else { scarce }
}

/// Returns a failure if the quota of a resource is used up, a warning if nine tenths of it are in use, and otherwise `None`, as for an
/// unlimited quota, which is negative.
fn scarce((resource, Quota { limit, used }): (&str, Quota)) -> Option<Finding> {
    if limit < 0 || used * 10 < limit * 9 {
        return None;
    }
    let check = format!("the quota of {resource} leaves room");
    let detail = format!("{used} of {limit} are in use");
    let remedy = "raise the quota, or release what is not needed";
    Some(if used < limit {
        Finding::warning(check, detail, remedy)
    } else {
        Finding::failed(check, detail, remedy)
    })
}

#[cfg(test)]
mod tests {
    use staffetta_handler::CheckResult;

    use super::*;

    #[test]
    fn a_quota_that_is_nearly_used_up_is_a_warning_and_a_full_one_a_failure() {
        let result = |limit, used| scarce(("port", Quota { limit, used })).map(|finding| finding.result);
        assert_eq!([result(-1, 1000), result(100, 89)], [None, None]);
        assert_eq!([result(100, 90), result(100, 99)], [Some(CheckResult::Warning); 2]);
        assert_eq!([result(100, 100), result(0, 0)], [Some(CheckResult::Failed); 2]);
    }

    #[test]
    fn only_the_quotas_of_what_the_drivers_in_use_create_count() {
        let quota = |name: &str, limit, used| (name.to_owned(), Quota { limit, used });
        let quotas = BTreeMap::from([quota("port", 100, 3), quota("floatingip", 0, 0)]);
        let result = |created: &[&'static str]| {
            let created = created.iter().copied().collect();
            quota_findings("room".to_owned(), Some(&quotas), &created, ("", "")).remove(0).result
        };
        assert_eq!([result(&["port"]), result(&[])], [CheckResult::Ok; 2]);
        assert_eq!(result(&["floatingip", "port"]), CheckResult::Failed);
        let unknown =
            quota_findings("room".to_owned(), None, &BTreeSet::from(["port"]), ("not known", "look"));
        assert_eq!(unknown[0].result, CheckResult::Warning);
    }
}
