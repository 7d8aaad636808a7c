//! The checks of the cloud for `staffetta check`: extensions and quotas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use staffetta_driver::{DriverError, ProjectId};
use staffetta_handler::{Finding, Setup, SetupError};
use staffetta_openstack::{Cloud, Quota};

use super::super::unreachable::Unreachable;
use super::UNUSABLE;
use crate::lock::lock;

/// The category of the findings.
const CATEGORY: &str = "openstack";

/// The resources of Neutron that the drivers in use create, by Neutron's names in quotas.
#[derive(Default)]
struct CreatedResources(Mutex<BTreeSet<&'static str>>);

/// Records that a driver in use creates `resources`.
pub(super) fn creates(setup: &Setup, resources: &[&'static str]) -> Result<(), SetupError> {
    lock(&setup.shared(|| Ok(CreatedResources::default()))?.0).extend(resources);
    Ok(())
}

/// Adds the check that Neutron has an extension that `user` needs.
pub(super) fn needs_extension(setup: &Setup, cloud: &Cloud, extension: &'static str, user: &'static str) {
    let network = cloud.network();
    setup.diagnosis(CATEGORY, move || {
        let network = network.clone();
        async move {
            let check = format!("Neutron has the extension {extension}");
            let has = network.has_extension(extension).await;
            Ok(vec![if has.map_err(|error| Unreachable::new(UNUSABLE, DriverError::from(error)))? {
                Finding::ok(check, "")
            } else {
                let remedy = "enable it in Neutron, or choose another driver";
                Finding::failed(check, format!("{user} needs it"), remedy)
            }])
        }
    });
}

/// Adds the check that the quotas of a project leave room for what the drivers in use create.
pub(super) fn needs_quotas(setup: &Setup, cloud: &Cloud, project: ProjectId) -> Result<(), SetupError> {
    let (network, created) = (cloud.network(), setup.shared(|| Ok(CreatedResources::default()))?);
    setup.diagnosis(CATEGORY, move || {
        let (network, project, created) = (network.clone(), project.clone(), lock(&created.0).clone());
        async move {
            let quotas = network.quotas(&project).await;
            let quotas = quotas.map_err(|error| Unreachable::new(UNUSABLE, DriverError::from(error)))?;
            let check = format!("the quotas of the project {project} leave room");
            Ok(judged(check, quotas.as_ref(), &created))
        }
    });
    Ok(())
}

/// Returns the findings about the quotas of the resources `created`; `None` if the quotas are not known.
fn judged(
    check: String,
    quotas: Option<&BTreeMap<String, Quota>>,
    created: &BTreeSet<&'static str>,
) -> Vec<Finding> {
    let Some(quotas) = quotas else {
        let detail = "not known: the user may not read them, or Neutron lacks the extension quota_details";
        return vec![Finding::warning(check, detail, "see whether `openstack quota show --usage` has room")];
    };
    let of_resource = |&name: &&'static str| Some((name, *quotas.get(name)?));
    let scarce: Vec<_> = created.iter().filter_map(of_resource).filter_map(scarce).collect();
    if scarce.is_empty() { vec![Finding::ok(check, "")] } else { scarce }
}

/// Returns a finding if a quota is used up (a failure), or to nine tenths (a warning).
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
            judged("room".to_owned(), Some(&quotas), &created).remove(0).result
        };
        assert_eq!([result(&["port"]), result(&[])], [CheckResult::Ok; 2]);
        assert_eq!(result(&["floatingip", "port"]), CheckResult::Failed);
        let unknown = judged("room".to_owned(), None, &BTreeSet::from(["port"])).remove(0);
        assert_eq!(unknown.result, CheckResult::Warning);
    }
}
