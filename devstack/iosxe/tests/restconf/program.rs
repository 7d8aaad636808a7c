//! The program.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::client::Asking;

#[tokio::test]
async fn the_program_prints_where_its_control_api_is_and_ends_when_asked() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_staffetta-iosxe-devices"))
        .args(["--count", "3"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.next_line().await.unwrap().unwrap();
    let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
    let devices = Asking::new("GET", "/devices", &Value::Null).over(stream).await.unwrap().json();
    let names: Vec<_> = devices.as_array().unwrap().iter().map(|device| device["name"].clone()).collect();
    assert_eq!(names, ["edge-1", "edge-2", "edge-3"]);
    let id = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    assert!(child.wait().await.unwrap().success());
}
