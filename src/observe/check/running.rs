//! The checks of a running controller, which only its own credentials can make.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use staffetta_handler::{Check, Finding, HandlerError, bounded, causes};

use super::{CHECK_TIMEOUT, CheckReport};

/// The checks that the handlers and drivers of this process added.
pub(crate) struct Diagnostics {
    /// The readiness checks, which can be run again on request.
    pub(crate) readiness: Vec<Arc<Check>>,
    /// The checks that run only on request.
    pub(crate) diagnoses: Vec<Check>,
}

impl Diagnostics {
    pub(crate) fn new((readiness, diagnoses): (Vec<Check>, Vec<Check>)) -> Self {
        Self { readiness: readiness.into_iter().map(Arc::new).collect(), diagnoses }
    }

    /// Runs the checks of all `diagnostics` at the same time, each within [`CHECK_TIMEOUT`], and adds their findings to `report`.
    pub(crate) async fn run_all(diagnostics: &[Arc<Self>], report: &mut CheckReport) {
        let checks = diagnostics.iter().flat_map(|diagnostics| diagnostics.checks());
        for (category, findings) in join_all(checks).await {
            report.add(category, findings);
        }
    }

    /// Returns the checks, each as a future of its category and its findings.
    fn checks(&self) -> impl Iterator<Item = impl Future<Output = (&str, Vec<Finding>)>> {
        let readiness = self.readiness.iter().map(|check| &**check);
        readiness.chain(&self.diagnoses).map(|check| findings(&check.name, (check.run)()))
    }
}

/// Runs the checks of one category. An error, or a timeout, becomes a failed finding.
async fn findings<'n>(
    category: &'n str,
    run: BoxFuture<'_, Result<Vec<Finding>, HandlerError>>,
) -> (&'n str, Vec<Finding>) {
    let findings = bounded(CHECK_TIMEOUT, run).await.unwrap_or_else(|error| {
        let remedy = "correct what the message names; docs/troubleshooting.md lists causes by symptom";
        vec![Finding::failed(format!("{category} answers"), causes(&*error), remedy)]
    });
    (category, findings)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt;
    use staffetta_handler::{CheckResult, Failure};

    use super::*;
    use crate::observe::check::ReportedFinding;

    #[derive(Debug, thiserror::Error)]
    #[error("the lamp is broken")]
    struct Broken;

    impl Failure for Broken {
        fn transient(&self) -> bool {
            true
        }
    }

    #[tokio::test(start_paused = true)]
    async fn checks_that_fail_panic_or_hang_are_findings_like_the_others() {
        let check = |name: &str, run: fn() -> BoxFuture<'static, Result<Vec<Finding>, HandlerError>>| Check {
            name: name.to_owned(),
            run: Box::new(run),
        };
        let checks = vec![
            check("good", || async { Ok(vec![Finding::ok("good answers", "")]) }.boxed()),
            check("broken", || async { Err(Broken.into()) }.boxed()),
            check("silent", || pending().boxed()),
            check("odd", || async { panic!("out of oil") }.boxed()),
        ];
        let low = || async { Ok(vec![Finding::warning("it has oil", "3 ml", "refill it")]) }.boxed();
        let diagnoses = vec![Check { name: "lamp".to_owned(), run: Box::new(low) }];
        let mut report = CheckReport::default();
        let began = tokio::time::Instant::now();
        let also_silent = vec![check("also silent", || pending().boxed())];
        let diagnostics = [(checks, diagnoses), (also_silent, Vec::new())];
        Diagnostics::run_all(&diagnostics.map(|checks| Arc::new(Diagnostics::new(checks))), &mut report)
            .await;
        assert_eq!(began.elapsed().as_secs(), CHECK_TIMEOUT.as_secs());
        let lines = report.checks.iter().map(|ReportedFinding { category, finding }| {
            (category.as_str(), finding.result, finding.detail.as_str())
        });
        let expected = [
            ("good", CheckResult::Ok, ""),
            ("broken", CheckResult::Failed, "the lamp is broken"),
            ("silent", CheckResult::Failed, "no answer within 10 s"),
            ("odd", CheckResult::Failed, "the handler panicked: out of oil"),
            ("lamp", CheckResult::Warning, "3 ml"),
            ("also silent", CheckResult::Failed, "no answer within 10 s"),
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }
}
