//! Simulated IOS-XE devices as a program. It prints where its control API is, and serves until SIGTERM or SIGINT.

mod arguments;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use staffetta_iosxe_device::Site;
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let served = Site::start().and_then(|site| {
        for options in arguments.devices() {
            site.device(options)?;
        }
        serve_until_signalled(&format!("http://{}", site.control(arguments.control)?))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where nobody listens, there is nobody to tell.
            let _ = writeln!(io::stderr(), "staffetta-iosxe-devices: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the URL, and waits for a signal. Whoever reads the URL may send the signal at once.
fn serve_until_signalled(url: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        writeln!(io::stdout(), "{url}")?;
        io::stdout().flush()?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}
