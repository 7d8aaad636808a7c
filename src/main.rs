//! The program `staffetta`: the command line with all handlers and drivers.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// The memory allocator. It returns the memory that the initial lists used to the system, and is faster with many small objects.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    staffetta::run(staffetta::assembly::registry())
}
