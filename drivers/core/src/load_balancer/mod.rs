//! The load balancers of services: their driver, their state and their settings.

mod driver;
mod settings;
mod types;

pub use self::driver::*;
pub use self::settings::*;
pub use self::types::*;
