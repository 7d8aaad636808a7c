//! A driver that assigns prefixes and addresses to the network interfaces of EC2 instances.
//!
//! | module | content |
//! |---|---|
//! | `options` | the section `[ec2]` |
//! | `environment` | the environment variables of the AWS SDKs |
//! | `access_keys` | the access keys |
//! | `credentials` | where the access keys come from |
//! | `client` | sends signed requests to the Query API of EC2 |
//! | `combined` | combines concurrent reads into one request |
//! | `body` | reads the bodies of responses |
//! | `rate` | limits the rate of requests |
//! | `failure` | the errors of EC2 |
//! | `responses` | the parts of responses that the driver reads |
//! | `signature` | signs requests |
//! | `provider` | the driver |
//!
//! Facts are from the Amazon EC2 API Reference, version 2016-11-15, and from the reference of the AWS SDKs and tools.

mod access_keys;
mod body;
mod client;
mod combined;
mod credentials;
mod environment;
mod failure;
mod options;
mod provider;
mod rate;
mod responses;
mod signature;

pub use credentials::{CredentialError, ProfileError};
pub use environment::{AwsEnvironment, IncompleteVariables};
pub use options::{Ec2Access, Ec2Options, Ec2OptionsError};
pub use provider::{Ec2ClientError, Ec2Prefixes};
