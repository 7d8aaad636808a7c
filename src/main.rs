//! The program: everything that ships, by name, and the command line in front of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    staffetta::run(staffetta::assembly::registry())
}
