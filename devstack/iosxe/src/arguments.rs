//! The command line of the program.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Parser;
use staffetta_iosxe_device::Options;

/// Simulated IOS-XE devices that host applications, over RESTCONF.
#[derive(Debug, Parser)]
#[command(name = "staffetta-iosxe-devices", version)]
pub(crate) struct Arguments {
    /// The number of devices; they are named edge-1, edge-2 ...
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    count: u16,
    /// The port of the first device on 127.0.0.1, the others follow; 0 takes free ones.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// The address of the control API; port 0 chooses a free port. The address is printed.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) control: SocketAddr,
    /// Options of every device as JSON: `{"tls": "server", "times": {"install": 30000}}`.
    #[arg(long, value_name = "JSON", value_parser = options, default_value = "{}")]
    options: Box<Options>,
}

fn options(text: &str) -> Result<Box<Options>, serde_json::Error> {
    serde_json::from_str(text)
}

impl Arguments {
    /// The options of each device.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Options> {
        (0..self.count).map(|number| {
            let port = if self.port == 0 { 0 } else { self.port.saturating_add(number) };
            Options {
                name: format!("edge-{}", number + 1),
                listen: (Ipv4Addr::LOCALHOST, port).into(),
                serial_number: format!("9ESQK0SIM{:02}", number + 1),
                ..(*self.options).clone()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use staffetta_iosxe_device::Tls;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, String> {
        let arguments = ["staffetta-iosxe-devices"].iter().chain(arguments);
        Arguments::try_parse_from(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn devices_share_their_options_and_have_names_and_ports_of_their_own() {
        let options = r#"{"tls": "server", "times": {"install": 30000}}"#;
        let arguments = parse(&["--count", "2", "--port", "8443", "--options", options]).unwrap();
        let devices: Vec<_> = arguments.devices().collect();
        let reported = devices.iter().map(|device| (device.name.as_str(), device.listen.port()));
        assert_eq!(reported.collect::<Vec<_>>(), [("edge-1", 8443), ("edge-2", 8444)]);
        assert_eq!((devices[1].tls, devices[0].times.install.as_secs()), (Tls::Server, 30));
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        assert!(parse(&["--options", r#"{"tsl": true}"#]).unwrap_err().contains("tsl"));
    }
}
