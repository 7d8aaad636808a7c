//! Registers the driver `ec2`, which assigns prefixes to the network interfaces of EC2 instances.

use std::sync::Arc;

use serde_json::json;
use staffetta_driver::prefix::PrefixProvider;
use staffetta_driver::{DriverError, Reason};
use staffetta_ec2::{AwsEnvironment, Ec2Options, Ec2OptionsError, Ec2Prefixes};
use staffetta_handler::{Finding, Registry, Setup, SetupError, causes};

use super::family::DriverFamily;
use super::unreachable::Unreachable;
use crate::base::metrics::Metrics;

/// The error message when EC2 does not respond, or rejects the credentials.
const UNUSABLE: &str = "EC2 cannot be used with the options of the section [ec2]";

/// Registers the driver `ec2` and the section `[ec2]`.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<Ec2Options>("ec2");
    registry.driver::<dyn PrefixProvider>(
        "ec2",
        "The primary network interfaces of EC2 instances.",
        |setup| Ok(provider(setup)?),
    );
}

/// Creates the driver `ec2`, and registers its readiness check and the checks of its rights for `kubectl staffetta check`. Fails with
/// [`SetupError::Missing`] if neither the configuration nor the environment names a region.
fn provider(setup: &Setup) -> Result<Arc<Ec2Prefixes>, SetupError> {
    DriverFamily::Real.select(setup)?;
    let options: Ec2Options = setup.section("ec2")?;
    let access = options.access(&AwsEnvironment::from_process()).map_err(|error| match error {
        Ec2OptionsError::NoRegion => {
            let stand_in = json!({ "ec2": { "region": "eu-west-1" } });
            SetupError::Missing { message: error.to_string(), stand_in }
        }
        error => SetupError::Invalid(causes(&error)),
    })?;
    let requests = Arc::clone(&setup.shared(|| Ok(Metrics::default()))?.ec2_requests);
    let driver = Ec2Prefixes::new(access, requests, super::fence(setup)?);
    let driver = Arc::new(driver.map_err(|error| SetupError::Invalid(causes(&error)))?);
    let checked = Arc::clone(&driver);
    setup.check("ec2", move || {
        let driver = Arc::clone(&checked);
        async move { driver.check().await.map_err(|error| Unreachable::new(UNUSABLE, error).into()) }
    });
    let checked = Arc::clone(&driver);
    setup.diagnosis("ec2", move || {
        let driver = Arc::clone(&checked);
        async move {
            let rights = driver.read_rights().await.into_iter();
            Ok(rights.map(|(action, result)| right(action, result.err())).collect())
        }
    });
    Ok(driver)
}

/// Returns the finding about the right to call the EC2 action `action`, after a call that failed with `error` or succeeded (`None`).
fn right(action: &str, error: Option<DriverError>) -> Finding {
    let check = format!("EC2 permits {action}");
    match error {
        None => Finding::ok(check, ""),
        Some(error) => {
            let remedy = match error.reason() {
                Reason::Refused => {
                    format!("permit `ec2:{action}` in the IAM policy of the controller's identity")
                }
                _ => "correct what the message names, or check again later".to_owned(),
            };
            Finding::failed(check, causes(&error), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_action_that_was_refused_is_a_matter_of_the_policy() {
        let remedy = |reason| right("DescribeSubnets", Some(DriverError::new(reason, "read"))).remedy;
        assert!(remedy(Reason::Refused).contains("permit `ec2:DescribeSubnets`"));
        assert!(!remedy(Reason::Unavailable).contains("permit"));
    }
}
