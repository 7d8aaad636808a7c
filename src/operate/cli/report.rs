//! The findings of checks, as text or as a document.

use std::fmt;
use std::io::Write;

use staffetta_handler::{CheckResult, Finding};

use super::CommandError;
use super::arguments::OutputFormat;
use super::line::single_line;
use crate::observe::check::{CheckReport, ReportedFinding};

/// Writes the findings in `report` to `output`. Fails if a check failed.
pub(super) fn write_report(
    report: &CheckReport,
    format: OutputFormat,
    output: &mut impl Write,
) -> Result<(), CommandError> {
    format.write(report, || report.to_string(), output)?;
    let complete = report.count(CheckResult::Failed) == 0;
    CommandError::unless(complete, "a check failed; the report shows the remedies")
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = None;
        for ReportedFinding { category, finding } in &self.checks {
            if shown != Some(category) {
                writeln!(f, "{}{}", if shown.is_some() { "\n" } else { "" }, single_line(category))?;
                shown = Some(category);
            }
            let Finding { check, result, detail, remedy } = finding;
            let mark = match result {
                CheckResult::Ok => "ok",
                CheckResult::Warning => "WARNING",
                CheckResult::Failed => "FAILED",
            };
            let colon = if detail.is_empty() { "" } else { ": " };
            writeln!(f, "  {mark:8} {}{colon}{}", single_line(check), single_line(detail))?;
            if !remedy.is_empty() {
                writeln!(f, "           remedy: {}", single_line(remedy))?;
            }
        }
        let [ok, warnings, failed] =
            [CheckResult::Ok, CheckResult::Warning, CheckResult::Failed].map(|result| self.count(result));
        writeln!(f, "\n{ok} ok, {warnings} with a warning, {failed} failed")
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::*;

    fn report(findings: impl IntoIterator<Item = Finding>) -> CheckReport {
        let mut report = CheckReport::default();
        report.add("kubernetes", [Finding::ok("the API server answers", "v1.33.1")]);
        report.add("rights", findings);
        report
    }

    fn written(report: &CheckReport, format: OutputFormat) -> (String, Result<(), CommandError>) {
        let mut output = Vec::new();
        let result = write_report(report, format, &mut output);
        (String::from_utf8(output).unwrap(), result)
    }

    #[test]
    fn each_finding_is_one_line_below_its_category_with_its_remedy() {
        let warning = Finding::warning("you may grant rights", "you may\nnot", "ask an administrator");
        let (text, result) =
            written(&report([Finding::ok("you may create jobs.batch", ""), warning]), OutputFormat::Table);
        let lines = [
            "kubernetes",
            "  ok       the API server answers: v1.33.1",
            "",
            "rights",
            "  ok       you may create jobs.batch",
            "  WARNING  you may grant rights: you may not",
            "           remedy: ask an administrator",
            "",
            "2 ok, 1 with a warning, 0 failed",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        assert!(result.is_ok(), "a warning is no failure");
    }

    #[test]
    fn a_failed_check_is_a_failure_of_the_command_in_both_formats() {
        let report = report([Finding::failed("you may create jobs.batch", "you may not", "ask")]);
        for format in [OutputFormat::Table, OutputFormat::Json] {
            let (text, result) = written(&report, format);
            assert!(text.contains("you may create jobs.batch"));
            assert_eq!(result.unwrap_err().exit_code(), ExitCode::FAILURE);
        }
        let (text, _) = written(&report, OutputFormat::Json);
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({ "category": "rights", "check": "you may create jobs.batch", "result": "failed",
            "detail": "you may not", "remedy": "ask" });
        assert_eq!(document["checks"][1], expected);
    }
}
