//! Runs a program that prints access keys (AWS SDKs and Tools Reference Guide, "Process credential provider").

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use staffetta_driver::{DriverError, Reason};
use tokio::process::Command;
use tokio::time::timeout;

use super::{STEP, malformed};
use crate::access_keys::AccessKeys;

/// The time limit of the program that prints keys.
const LIMIT: Duration = Duration::from_secs(30);
/// The maximum size of what the program prints, in bytes.
const MAX_OUTPUT: usize = 64 << 10;

/// The JSON output of a program that prints access keys.
#[derive(Deserialize)]
struct ProcessOutput {
    #[serde(rename = "Version")]
    version: u32,
    #[serde(flatten)]
    keys: AccessKeys,
}

/// Runs the program `command` and parses the keys that it prints. No shell is used: the parts of the command
/// are separated by spaces, unless they are between double quotes. Errors contain no output.
pub(super) async fn keys(command: &str) -> Result<AccessKeys, DriverError> {
    let failed = |detail: String| DriverError::new(Reason::Unavailable, STEP).detail(detail);
    let mut parts = split(command).into_iter();
    let program = parts.next().ok_or_else(|| failed("`credential_process` is empty".to_owned()))?;
    let mut command = Command::new(&program);
    command.args(parts).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = timeout(LIMIT, command.output()).await;
    let output =
        output.map_err(|_| failed(format!("`{program}` does not end within {} s", LIMIT.as_secs())))?;
    let output = output.map_err(|error| failed(format!("cannot run `{program}`")).because(error))?;
    if !output.status.success() {
        return Err(failed(format!("`{program}` ended with {}", output.status)));
    }
    if output.stdout.len() > MAX_OUTPUT {
        return Err(malformed());
    }
    let output: ProcessOutput = serde_json::from_slice(&output.stdout).map_err(|_| malformed())?;
    if output.version != 1 {
        return Err(failed(format!("`{program}` prints another version of credentials than 1")));
    }
    Ok(output.keys)
}

/// Splits a command line into its parts at spaces outside of double quotes.
fn split(command: &str) -> Vec<String> {
    let (mut parts, mut part, mut is_quoted, mut is_part) = (Vec::new(), String::new(), false, false);
    for character in command.chars() {
        match character {
            '"' => (is_quoted, is_part) = (!is_quoted, true),
            space if space.is_whitespace() && !is_quoted => {
                if std::mem::take(&mut is_part) {
                    parts.push(std::mem::take(&mut part));
                }
            }
            other => {
                part.push(other);
                is_part = true;
            }
        }
    }
    parts.extend(is_part.then_some(part));
    parts
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn a_command_is_split_at_spaces_outside_of_quotes() {
        assert_eq!(split("p --q  \"a b\"c \"\""), ["p", "--q", "a bc", ""]);
        assert!(split("  ").is_empty());
    }

    #[tokio::test]
    async fn the_keys_that_a_program_prints_are_used_and_a_failure_shows_no_output() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.json");
        let command = format!("cat \"{}\"", file.display());
        let print = async |text: &str| {
            std::fs::write(&file, text).unwrap();
            keys(&command).await
        };
        let whole = r#"{"Version":1,"AccessKeyId":"ASIA","SecretAccessKey":"hunter2","SessionToken":"t","Expiration":"2100-01-01T00:00:00Z"}"#;
        let printed = print(whole).await.unwrap();
        assert_eq!((printed.id.as_str(), printed.secret.expose_secret()), ("ASIA", "hunter2"));
        assert!(printed.token.is_some() && printed.expires.is_some());
        let both =
            print(&whole.replace("\"SessionToken\"", "\"Token\":\"of an agent\",\"SessionToken\"")).await;
        assert_eq!(both.unwrap().token.unwrap().expose_secret(), "t");
        let lasting = print(r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"s"}"#).await.unwrap();
        assert!(lasting.token.is_none() && lasting.expires.is_none());
        for text in ["hunter2", r#"{"Version":2,"AccessKeyId":"A","SecretAccessKey":"hunter2"}"#] {
            let error = print(text).await.unwrap_err().to_string();
            assert!(error.contains("credentials") && !error.contains("hunter2"), "{error}");
        }
        let error = keys("/nowhere/program hunter2").await.unwrap_err().to_string();
        assert!(error.contains("cannot run `/nowhere/program`") && !error.contains("hunter2"), "{error}");
        let error = keys("false").await.unwrap_err().to_string();
        assert!(error.contains("`false` ended with"), "{error}");
    }
}
