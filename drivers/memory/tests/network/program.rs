//! The program: it says where it listens, serves, and ends when it is told to.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

use staffetta_driver::Reason;

use crate::world::{client, over_http};

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta-simulated-network");

/// A running program. It is killed when it is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(arguments: &[&str]) -> (Program, String, impl Read + use<>) {
    let mut child = Command::new(PROGRAM).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (Program(child), line.trim_end().to_owned(), stdout)
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

#[tokio::test]
async fn it_prints_its_address_serves_with_its_options_and_ends_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("network.toml");
    std::fs::write(&file, "activation_delay_ms = 0\nport_quota = 1\n").unwrap();
    let (mut program, url, mut rest) =
        start(&["--listen", "127.0.0.1:0", "--options", file.to_str().unwrap()]);
    let drivers = over_http(&client(&url, 60_000), "east");
    assert!(drivers.vifs.request_vif(&drivers.vif_request("a").await).await.unwrap().active);
    let refused = drivers.vifs.request_vif(&drivers.vif_request("b").await).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::Quota);

    let id = program.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(program.0.wait().unwrap().success());
    let mut said = String::new();
    rest.read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "one line is all it prints");
}

#[test]
fn options_that_cannot_be_used_end_it_with_2_and_are_named() {
    let misspelt = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(misspelt.path(), "port_qouta = 1\n").unwrap();
    for (arguments, word) in [
        (["--options", misspelt.path().to_str().unwrap()], "port_qouta"),
        (["--options", "/nowhere/network.toml"], "/nowhere/network.toml"),
        (["--listen", "everywhere"], "everywhere"),
    ] {
        let ended = run(&arguments);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(2) && said.contains(word), "{said}");
        assert_eq!(ended.stdout, b"");
    }
}

#[test]
fn an_address_that_is_taken_ends_it_with_1_and_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(&["--listen", &address]);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && said.contains(&address), "{said}");
}
