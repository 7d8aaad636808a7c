//! Runs many seeds, each in a process of its own, and shows the first one that fails.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The first argument of a process that runs one seed.
pub(crate) const ONE_SEED: &str = "--one-seed";

const USAGE: &str = "\
Usage: cargo xtask simulate [OPTIONS]

  --seeds N        run N seeds (default: 1000)
  --minutes N      run seeds for N minutes instead
  --first N        the first of them (default: by the time of day)
  --seed N         run this one
  --without N,...  without these steps of it
  --shrink         leave out steps of a failing seed as long as it fails
  --trace          print the trace of the seed given by --seed
  --log            print the log of the controllers of the seed given by --seed";

/// One seed in so many runs twice, and must do the same. The number is odd, so that these are seeds of all worlds.
const REPEATED: u64 = 19;

/// The options of the command line.
struct Options {
    seeds: Option<u64>,
    minutes: Option<u64>,
    first: u64,
    seed: Option<u64>,
    without: Vec<usize>,
    shrink: bool,
    show: &'static str,
}

/// The result of one seed.
#[derive(Clone, PartialEq)]
struct Verdict {
    steps: usize,
    /// The number of lines of the trace.
    lines: usize,
    /// The hash of the trace.
    trace: String,
    violations: Vec<String>,
}

/// Prints the result of one seed, for the process that runs many. Returns whether it has passed.
pub(crate) fn report(
    seed: u64,
    steps: usize,
    trace: &[String],
    violations: &[String],
    all: bool,
) -> ExitCode {
    let mut hasher = DefaultHasher::new();
    trace.hash(&mut hasher);
    if all {
        for line in trace {
            println!("{line}");
        }
    }
    println!("seed {seed} steps {steps} lines {} trace {:016x}", trace.len(), hasher.finish());
    for violation in violations {
        println!("violation {violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the seeds that the command line names.
pub(crate) fn main(arguments: &[&str]) -> ExitCode {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let failed = match options.seed {
        Some(seed) if !options.show.is_empty() => {
            return match command(seed, &options.without, options.show).status() {
                Ok(status) if status.success() => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            };
        }
        Some(seed) => Some((seed, run(seed, &options.without))),
        None => many(&options),
    };
    let Some((seed, verdict)) = failed else { return ExitCode::SUCCESS };
    println!("seed {seed}: {} steps, {} lines", verdict.steps, verdict.lines);
    if verdict.violations.is_empty() {
        return ExitCode::SUCCESS;
    }
    verdict.violations.iter().take(5).for_each(|violation| println!("  {violation}"));
    if options.shrink && verdict.steps > 0 {
        let without = shrunk(seed, &options.without, &verdict);
        let without: Vec<_> = without.iter().map(usize::to_string).collect();
        println!(
            "it fails with fewer steps: cargo xtask simulate --seed {seed} --without {} --trace",
            without.join(",")
        );
    } else {
        println!(
            "its trace: cargo xtask simulate --seed {seed} --trace; fewer steps: --seed {seed} --shrink"
        );
    }
    ExitCode::FAILURE
}

impl Options {
    fn parse(arguments: &[&str]) -> Result<Self, String> {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs());
        let mut options = Self {
            seeds: None,
            minutes: None,
            first: now * 1_000_000,
            seed: None,
            without: Vec::new(),
            shrink: false,
            show: "",
        };
        let mut arguments = arguments.iter();
        while let Some(&name) = arguments.next() {
            let mut number = || {
                let value = arguments.next().and_then(|value| value.parse().ok());
                value.ok_or_else(|| format!("{name} needs a number\n\n"))
            };
            match name {
                "--seeds" => options.seeds = Some(number()?),
                "--minutes" => options.minutes = Some(number()?),
                "--first" => options.first = number()?,
                "--seed" => options.seed = Some(number()?),
                "--without" => {
                    let numbers = arguments.next().unwrap_or(&"").split(',').map(str::parse);
                    options.without =
                        numbers.collect::<Result<_, _>>().map_err(|_| "--without needs numbers\n\n")?;
                }
                "--shrink" => options.shrink = true,
                "--trace" => options.show = "trace",
                "--log" => options.show = "log",
                "--help" => {
                    println!("{USAGE}");
                    std::process::exit(0);
                }
                _ => return Err(format!("{name} is not an option\n\n")),
            }
        }
        if !options.show.is_empty() && (options.seed.is_none() || options.shrink) {
            return Err("--trace and --log need --seed, and do not go with --shrink\n\n".to_owned());
        }
        Ok(options)
    }
}

/// Returns the process that runs one seed. Its arguments have always the same length, so that its memory has the same layout.
fn command(seed: u64, without: &[usize], show: &str) -> Command {
    let without: Vec<_> = without.iter().map(usize::to_string).collect();
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([
        ONE_SEED,
        &format!("{seed:020}"),
        &format!("{:200}", without.join(",")),
        &format!("{show:5}"),
    ]);
    command.env_clear();
    command
}

/// Runs one seed, and returns its result.
fn run(seed: u64, without: &[usize]) -> Verdict {
    let mut verdict = Verdict { steps: 0, lines: 0, trace: String::new(), violations: Vec::new() };
    let output = command(seed, without, "").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        if let Some(violation) = line.strip_prefix("violation ") {
            verdict.violations.push(violation.to_owned());
        } else if let ["seed", _, "steps", steps, "lines", lines, "trace", trace] =
            line.split(' ').collect::<Vec<_>>()[..]
        {
            verdict.steps = steps.parse().unwrap_or_default();
            verdict.lines = lines.parse().unwrap_or_default();
            trace.clone_into(&mut verdict.trace);
        }
    }
    if verdict.trace.is_empty() && verdict.violations.is_empty() {
        let error = String::from_utf8_lossy(&output.stderr);
        verdict.violations.push(format!("the process failed ({}): {}", output.status, error.trim()));
    }
    verdict
}

/// Runs many seeds on all cores. Returns the first that fails.
fn many(options: &Options) -> Option<(u64, Verdict)> {
    let seeds = options.seeds.unwrap_or(if options.minutes.is_some() { u64::MAX } else { 1000 });
    let begin = Instant::now();
    let deadline = options.minutes.map(|minutes| begin + Duration::from_secs(minutes * 60));
    println!("the first seed is {}", options.first);
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None::<(u64, Verdict)>));
    let done = AtomicU64::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let is_over = deadline.is_some_and(|deadline| Instant::now() > deadline);
            if number >= seeds || is_over || failed.lock().expect("nothing panics with it").is_some() {
                break;
            }
            let seed = options.first.wrapping_add(number);
            let mut verdict = run(seed, &options.without);
            if number % REPEATED == 0
                && verdict.violations.is_empty()
                && run(seed, &options.without) != verdict
            {
                verdict.violations.push("its second run differs from the first".to_owned());
            }
            let count = done.fetch_add(1, Ordering::Relaxed) + 1;
            if count.is_multiple_of(100) {
                progress(count, begin);
            }
            if !verdict.violations.is_empty() {
                failed.lock().expect("nothing panics with it").get_or_insert((seed, verdict));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    progress(done.load(Ordering::Relaxed), begin);
    failed.into_inner().expect("nothing panics with it")
}

#[expect(clippy::cast_precision_loss, reason = "it is shown in whole seeds a minute")]
fn progress(done: u64, begin: Instant) {
    let minutes = begin.elapsed().as_secs_f64() / 60.0;
    println!("{done} seeds, {:.0} a minute", done as f64 / minutes);
}

/// Returns the steps that can be left out so that the seed still fails in the same way.
fn shrunk(seed: u64, without: &[usize], verdict: &Verdict) -> Vec<usize> {
    // The names of objects in it differ.
    let kind = |verdict: &Verdict| {
        let first = verdict.violations.first()?;
        Some(
            first
                .split(' ')
                .filter(|word| word.chars().all(char::is_alphabetic))
                .collect::<Vec<_>>()
                .join(" "),
        )
    };
    let mut without = without.to_vec();
    for step in (0..verdict.steps).rev().filter(|step| !without.contains(step)).collect::<Vec<_>>() {
        let mut fewer = without.clone();
        fewer.push(step);
        let result = run(seed, &fewer);
        if kind(&result) == kind(verdict) {
            without = fewer;
            println!("it fails without step {step}, too");
        }
    }
    without.sort_unstable();
    without
}
