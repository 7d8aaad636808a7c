//! The demo: the embedded API server, the cluster's controllers and the real staffetta in one process.

mod annotations;
mod arguments;
mod bases;
mod devices;
mod follow;
mod journal;
mod judge;
mod kubeconfig;
mod news;
mod read;
mod run;
mod samples;
mod scenario;
mod screen;
mod stack;
mod table;
mod terminal;

fn main() -> std::process::ExitCode {
    run::main(&clap::Parser::parse())
}
