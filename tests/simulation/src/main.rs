//! The whole controller in one process, under a seed (docs/simulation.md). `cargo xtask simulate` builds and runs it.
//!
//! | module | content |
//! |---|---|
//! | `batch` | runs many seeds, each in a process of its own, and shrinks a failing one |
//! | `pods`, `services`, `policies`, `bases` | a world each: what exists, what happens when, and when everything has converged |
//! | `storm` | what worlds have in common: steps in time, the end of the faults, convergence and rest |
//! | `world` | the API server, the cloud, the trace, the invariants |
//! | `replica`, `link`, `drivers` | a replica of the controller, the network between it and the world, and its drivers |
//! | `choices` | the random numbers of a seed |
//! | `c_library` | clocks and random numbers for the code that asks the C library |

mod bases;
mod batch;
mod c_library;
mod choices;
mod drivers;
mod leases;
mod link;
mod pods;
mod policies;
mod replica;
mod services;
mod storm;
mod tunnel;
mod views;
mod world;

use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    if !cfg!(feature = "clocks") {
        eprintln!("the clocks are not simulated in this build: use cargo xtask simulate");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [batch::ONE_SEED, seed, without, show] => one(seed, without, show),
        _ => batch::main(&arguments),
    }
}

/// Runs one seed. Prints the verdict and the hash of the trace, and, with `show`, the trace or the log.
fn one(seed: &str, without: &str, show: &str) -> ExitCode {
    c_library::fix_layout();
    c_library::limit_time();
    let seed = seed.parse().expect("the seed is a number");
    let without: Vec<usize> = without.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    std::panic::set_hook(Box::new(|panic| {
        let lines = panic.to_string().replace('\n', " ");
        println!("violation a panic: {lines}");
    }));
    c_library::simulate(seed);
    if show.trim() == "log" {
        let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
        log.with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).init();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let (world, steps) = runtime.expect("a runtime can be built").block_on(async {
        let world = Arc::new(world::World::new(seed));
        let steps = match seed % 4 {
            0 => pods::run(&world, &without).await,
            1 => services::run(&world, &without).await,
            2 => policies::run(&world, &without).await,
            _ => bases::run(&world, &without).await,
        };
        (world, steps)
    });
    batch::report(seed, steps, &world.trace(), &world.violations(), show.trim() == "trace")
}
