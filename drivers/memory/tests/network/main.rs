//! The promises of the simulated network, seen from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

/// Makes two tests of each law: one for the drivers in memory, one for those that reach the same network over HTTP.
macro_rules! laws {
    ($($law:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $law() {
                super::$law(crate::world::Place::InMemory).await;
            })+
        }

        mod over_http {
            $(#[tokio::test]
            async fn $law() {
                super::$law(crate::world::Place::OverHttp).await;
            })+
        }
    };
}

mod effects;
mod faults;
mod load_balancers;
mod methods;
mod pods;
mod program;
mod public_ips;
mod same;
mod server;
mod world;
