//! The checks of the cloud for `staffetta check`: extensions and quotas.

use staffetta_driver::{DriverError, ProjectId};
use staffetta_handler::{Finding, Setup};
use staffetta_openstack::{Cloud, Quota};

use super::super::unreachable::Unreachable;
use super::UNUSABLE;

/// The category of the findings.
const CATEGORY: &str = "openstack";

/// The resources of Neutron that the drivers create.
const RESOURCES: [&str; 6] =
    ["port", "security_group", "security_group_rule", "network", "subnet", "floatingip"];

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

/// Adds the check that the quotas of a project leave room.
pub(super) fn needs_quotas(setup: &Setup, cloud: &Cloud, project: ProjectId) {
    let network = cloud.network();
    setup.diagnosis(CATEGORY, move || {
        let (network, project) = (network.clone(), project.clone());
        async move {
            let quotas = network.quotas(&project).await;
            let quotas = quotas.map_err(|error| Unreachable::new(UNUSABLE, DriverError::from(error)))?;
            let check = format!("the quotas of the project {project} leave room");
            let Some(quotas) = quotas else {
                let detail = "the user may not read them, or Neutron lacks the extension quota_details";
                return Ok(vec![Finding::ok(check, format!("not known: {detail}"))]);
            };
            let of_resource = |name| Some((name, *quotas.get(name)?));
            let scarce = RESOURCES.into_iter().filter_map(of_resource).filter_map(scarce);
            let scarce: Vec<_> = scarce.collect();
            Ok(if scarce.is_empty() { vec![Finding::ok(check, "")] } else { scarce })
        }
    });
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
}
