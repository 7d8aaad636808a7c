//! Leader election as a black box: processes of the program, each behind a proxy that records its requests, on the embedded
//! server and on a real one.

mod faults;
mod fence;
mod late;
mod strangers;
mod succession;
mod world;
