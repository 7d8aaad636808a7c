//! `kubectl staffetta check`: checks an installation, and shows what is wrong with the remedies.

use std::io::Write;

use clap::Args;
use staffetta_handler::{Finding, causes};
use tokio::time::timeout;

use super::CommandError;
use super::arguments::OutputArguments;
use super::report::write_report;
use super::request::{AdminClient, Leader, LeaderArguments, RequestError};
use crate::base::config::TimeSpan;
use crate::base::version::VERSION;
use crate::observe::check::{CheckReport, Preset, ReportedFinding, check_installation};

#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// Check the cluster before an installation, with your rights; no controller is needed.
    #[arg(long)]
    pre: bool,
    /// Check only what this preset of the chart needs. If not set: all presets.
    #[arg(long, value_enum, requires = "pre")]
    preset: Option<Preset>,
    /// The time limit of all checks.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: TimeSpan,
    #[command(flatten)]
    output: OutputArguments,
}

/// Runs the checks of `kubectl staffetta check` and writes their findings.
pub(super) async fn check(
    arguments: CheckArguments,
    leader: LeaderArguments,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    let CheckArguments { pre, preset, timeout: limit, output: OutputArguments { format } } = arguments;
    let mut report = CheckReport::default();
    let checks = async {
        match Leader::new(leader).await {
            Ok(leader) if pre => {
                check_installation(&leader.client, &leader.namespace, preset, &mut report).await;
            }
            Ok(leader) => check_controller(leader, &mut report).await,
            Err(error) => report.add("kubernetes", [failed("the kubeconfig can be used", error)]),
        }
    };
    if timeout(limit.into(), checks).await.is_err() {
        let detail = format!("the time limit of {limit} (--timeout) has passed");
        let remedy = "see whether the API server answers, and whether the leader's pod runs";
        report.add("check", [Finding::failed("all checks end in time", detail, remedy)]);
    }
    write_report(&report, format, output)
}

/// Checks that a replica leads, renews its Lease and answers. Adds the findings to `report`, with those of the checks that the leader and
/// the other replicas run themselves.
async fn check_controller(leader: Leader, report: &mut CheckReport) {
    const LEASE: &str = "a replica leads, and renews its Lease";
    const ANSWERS: &str = "the leader answers";
    report.add(
        "controller",
        [match leader.holder().await {
            Ok(holder) if holder.renewal.is_expired() => Finding::failed(
                LEASE,
                format!("{} leads; its Lease was {}", holder.host, holder.renewal),
                "see whether the pods run, and compare the clock of this machine with theirs",
            ),
            Ok(holder) => Finding::ok(LEASE, holder.host),
            Err(error) => failed(LEASE, error),
        }],
    );
    let client = AdminClient::Leader(leader);
    let answer = match client.check().await {
        Ok(answer) => answer,
        Err(error) => return report.add("controller", [failed(ANSWERS, error)]),
    };
    report.add("controller", [Finding::ok(ANSWERS, ""), version_finding(&answer.version)]);
    report.checks.extend(answer.checks);
    let Some(leader) = answer.one_of else { return };
    match client.check_others(&leader).await {
        Ok(others) => others.into_iter().for_each(|(pod, answer)| add_replica(report, &pod, answer)),
        Err(error) => report.add("replicas", [failed("the other replicas are known", error)]),
    }
}

/// Adds the findings of the standby in the pod `pod` to `report`, or a failed finding if the standby did not answer. A standby checks only
/// the handlers that run in every replica.
fn add_replica(report: &mut CheckReport, pod: &str, answer: Result<CheckReport, RequestError>) {
    match answer {
        Ok(answer) => {
            for ReportedFinding { category, finding } in answer.checks {
                report.add(&format!("{category} of the replica {pod}"), [finding]);
            }
        }
        Err(error) => report.add("replicas", [failed(&format!("the replica {pod} answers"), error)]),
    }
}

/// Returns the failed finding of the check `check` about a replica that cannot be found or did not run its checks. If it rejected the
/// request, its message names the remedy.
fn failed(check: &str, error: impl Into<RequestError>) -> Finding {
    let error = error.into();
    let remedy = match error {
        RequestError::Rejected(_) => "follow the message",
        _ => CONTROLLER_DOWN_REMEDY,
    };
    Finding::failed(check, causes(&error), remedy)
}

/// The remedy if the controller does not answer.
const CONTROLLER_DOWN_REMEDY: &str = "see whether the pods of the controller run (`kubectl get pods -l app.kubernetes.io/name=staffetta -A`), and what their logs say";

/// Compares the version of the controller with that of this program. Returns a warning if they differ.
fn version_finding(version: &str) -> Finding {
    let check = "the controller has the version of this program";
    if version == VERSION.version {
        return Finding::ok(check, version);
    }
    let detail = format!("the controller is {version}, and this program {}", VERSION.version);
    Finding::warning(check, detail, "use the program of the controller's release")
}

#[cfg(test)]
mod tests {
    use staffetta_handler::CheckResult;

    use super::*;

    #[test]
    fn the_findings_of_another_replica_name_it() {
        let mut report = CheckReport::default();
        let mut answer = CheckReport::default();
        answer.add("vnode", [Finding::failed("base-1 answers", "no route", "correct the network")]);
        add_replica(&mut report, "relay-2", Ok(answer));
        add_replica(&mut report, "relay-3", Err(RequestError::Rejected("another check runs".into())));
        let reported = report.checks.iter().map(|ReportedFinding { category, finding }| {
            (category.as_str(), finding.check.as_str(), finding.detail.as_str(), finding.remedy.as_str())
        });
        let expected = [
            ("vnode of the replica relay-2", "base-1 answers", "no route", "correct the network"),
            ("replicas", "the replica relay-3 answers", "another check runs", "follow the message"),
        ];
        assert_eq!(reported.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_controller_of_another_version_is_a_warning() {
        assert_eq!(version_finding(VERSION.version).result, CheckResult::Ok);
        let other = version_finding("0.0.1");
        assert_eq!(other.result, CheckResult::Warning);
        assert!(other.detail.starts_with("the controller is 0.0.1, and this program "), "{}", other.detail);
    }
}
