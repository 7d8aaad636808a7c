//! The check of the machines behind virtual nodes, for `staffetta check`.

use staffetta_handler::{Finding, Setup, SetupError};
use staffetta_virtual_node::MachineState;

use crate::base::metrics::Metrics;

/// The maximum number of unreachable machines (devices or bases) that a check names.
const MAX_MACHINES: usize = 20;

/// Registers a check for `kubectl staffetta check` that reports which machines behind the nodes of `handler` cannot be reached. `machines`
/// is the word for machines in messages: `devices` or `bases`.
pub(super) fn diagnose(
    setup: &Setup,
    handler: &'static str,
    machines: &'static str,
) -> Result<(), SetupError> {
    let figures = setup.shared(|| Ok(Metrics::default()))?.virtual_nodes.clone();
    setup.diagnosis(handler, move || {
        let findings = reachability_findings(machines, figures.machines(handler));
        async move { Ok(findings) }
    });
    Ok(())
}

/// Returns a finding with the number of reachable machines, and a failure for each unreachable one, at most [`MAX_MACHINES`].
fn reachability_findings(machines: &str, states: Vec<(String, MachineState)>) -> Vec<Finding> {
    let count = |state| states.iter().filter(|(_, of)| *of == state).count();
    let (check, untried) = (format!("the {machines} are known"), count(MachineState::Untried));
    let detail = format!("{} of {} answer", count(MachineState::Reached), states.len());
    let mut findings = vec![if untried == 0 {
        Finding::ok(check, detail)
    } else {
        Finding::warning(check, format!("{detail}, {untried} were not read yet"), "check again in a minute")
    }];
    let lost = states.into_iter().filter_map(|(name, state)| match state {
        MachineState::Unreachable(outage) => Some((name, outage)),
        MachineState::Reached | MachineState::Untried => None,
    });
    findings.extend(lost.take(MAX_MACHINES).map(|(name, outage)| {
        let remedy =
            "the controller tries again by itself; correct its address, its credentials or the network";
        Finding::failed(format!("{name} answers"), outage, remedy)
    }));
    findings
}

#[cfg(test)]
mod tests {
    use staffetta_handler::CheckResult;

    use super::*;

    #[test]
    fn machines_that_were_not_read_yet_are_a_warning_and_unreachable_ones_failures() {
        let results = |states: &[MachineState]| {
            let named = states.iter().map(|state| ("base-1".to_owned(), state.clone())).collect();
            reachability_findings("bases", named)
                .into_iter()
                .map(|finding| (finding.result, finding.detail))
                .collect::<Vec<_>>()
        };
        let (reached, untried) = (MachineState::Reached, MachineState::Untried);
        let lost = MachineState::Unreachable("no route".to_owned());
        let reported = results(&[reached.clone(), untried]);
        assert_eq!(reported, [(CheckResult::Warning, "1 of 2 answer, 1 were not read yet".to_owned())]);
        let reported = results(&[reached, lost]);
        let counted = (CheckResult::Ok, "1 of 2 answer".to_owned());
        assert_eq!(reported, [counted, (CheckResult::Failed, "no route".to_owned())]);
    }
}
