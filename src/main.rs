//! The program: everything that ships, by name, and the command line in front of it.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Gives back to the system what a first list needed, and is quicker with many small objects.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    staffetta::run(staffetta::assembly::registry())
}
