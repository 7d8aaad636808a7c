//! The tasks of a contributor, as `cargo xtask TASK`. CI runs the same ones.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

const USAGE: &str = "\
Usage: cargo xtask TASK [ARGUMENTS]

  fmt [--check]    format the code, or check that it is formatted
  clippy           run the lints of CI, with warnings as errors
  test [...]       run the tests that need no service; the arguments go to cargo test
  real [...]       run the tests on real services; the arguments go to devstack/real/test
  bench NAME       run one benchmark (docs/benchmarks.md lists them)
  simulate [...]   run the whole controller under many seeds (docs/simulation.md); --help lists the options
  doc              build the documentation of the crates for authors, as docs.rs does
  flaky TIMES      run all tests so often, beside a busy loop on each core, and list those that failed";

/// The lints of all targets.
const LINTS: [&str; 7] =
    ["clippy", "--workspace", "--all-targets", "--features=staffetta/simulated", "--", "-D", "warnings"];

/// The simulation, in a profile of its own. The feature makes the clocks of all crates those of the simulation.
const SIMULATION: [&str; 9] = [
    "run",
    "--quiet",
    "--features",
    "staffetta-simulation/clocks",
    "--profile",
    "simulation",
    "--package",
    "staffetta-simulation",
    "--",
];

/// The crates for authors of handlers and drivers.
const AUTHORS_CRATES: [&str; 2] = ["staffetta-driver", "staffetta-handler"];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["fmt"] => cargo(["fmt", "--all"]),
        ["fmt", "--check"] => cargo(["fmt", "--all", "--check"]),
        ["clippy"] => cargo(LINTS),
        ["test", rest @ ..] => cargo(["test", "--workspace"].iter().chain(rest)),
        ["real", rest @ ..] => run(Command::new("devstack/real/test").args(rest)),
        // One of them needs the drivers of a network in another process.
        ["bench", name] => cargo(["bench", "--features", "simulated", "--bench", name]),
        ["simulate", rest @ ..] => cargo(SIMULATION.iter().chain(rest)),
        ["doc"] => AUTHORS_CRATES.into_iter().try_for_each(document),
        ["flaky", times] => times
            .parse()
            .map_err(|_| format!("{times} is not a positive number of times"))
            .and_then(repeat_tests_under_load),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the command `cargo`, the one that runs this task.
fn cargo_command() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn cargo(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<(), String> {
    run(cargo_command().args(arguments))
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed: {status}")) }
}

/// Builds the documentation of a crate with warnings as errors.
fn document(package: &str) -> Result<(), String> {
    let arguments = ["doc", "--no-deps", "--package", package, "--features", "k8s-openapi/v1_33"];
    run(cargo_command().args(arguments).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs all tests `times` times, beside a busy loop on each core. Fails if a test failed in one of the runs.
fn repeat_tests_under_load(times: NonZeroU32) -> Result<(), String> {
    cargo(["test", "--workspace", "--no-run"])?;
    // The threads end with the process.
    for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
        thread::spawn(|| {
            loop {
                black_box(0);
            }
        });
    }
    let mut failures = BTreeMap::<String, u32>::new();
    for time in 1..=times.get() {
        for test in failed_tests()? {
            *failures.entry(test).or_default() += 1;
        }
        eprintln!("run {time} of {times}: {} tests have failed so far", failures.len());
    }
    if failures.is_empty() {
        return Ok(());
    }
    let lines =
        failures.into_iter().map(|(test, count)| format!("{test}: failed in {count} of {times} runs"));
    Err(lines.collect::<Vec<_>>().join("\n"))
}

/// Runs all tests once. Returns the names of those that failed.
fn failed_tests() -> Result<Vec<String>, String> {
    let mut command = cargo_command();
    command.args(["test", "--workspace", "--no-fail-fast"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tests = command.spawn().map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    let output = BufReader::new(tests.stdout.take().ok_or("the output of the tests is not read")?);
    let name = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    let failed: Vec<_> = output.lines().map_while(Result::ok).filter_map(|line| name(&line)).collect();
    let status = tests.wait().map_err(|error| format!("the tests cannot be waited for: {error}"))?;
    if failed.is_empty() && !status.success() {
        return Ok(vec![format!("a test binary ({status})")]);
    }
    Ok(failed)
}
