//! The errors of EC2, by their codes (EC2 API Reference, "Error codes for the Amazon EC2 API").

use staffetta_driver::{DriverError, Reason};

use crate::responses::Ec2ErrorResponse;

/// The failure of a request that EC2 rejected, or that had no usable response.
#[derive(Debug)]
pub(crate) struct Ec2Failure {
    /// The error code in the response; empty if there is none.
    pub(crate) code: String,
    /// The error that the driver returns.
    pub(crate) error: DriverError,
}

impl From<Ec2Failure> for DriverError {
    fn from(failure: Ec2Failure) -> Self {
        failure.error
    }
}

/// The class of an EC2 error, which decides how the driver reacts to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeClass {
    /// Too many requests (throttling): the driver pauses further requests.
    Throttled,
    /// EC2 does not accept the credentials: they have expired, are not known yet, or may have been deleted. The value is the reason of the
    /// driver's error.
    Credentials(Reason),
    /// Any other failure, with the reason of the driver's error.
    Other(Reason),
}

impl CodeClass {
    /// Classifies the error code of a response with this HTTP status.
    pub(crate) fn of(code: &str, status: u16) -> Self {
        match code {
            "RequestLimitExceeded"
            | "Throttling"
            | "ThrottlingException"
            | "ThrottledException"
            | "EC2ThrottledException"
            | "RequestThrottled"
            | "SlowDown" => Self::Throttled,
            "ExpiredToken" | "ExpiredTokenException" | "RequestExpired" | "InvalidClientTokenId" => {
                Self::Credentials(Reason::Unavailable)
            }
            "AuthFailure" => Self::Credentials(Reason::Refused),
            "InsufficientCidrBlocks" | "InsufficientFreeAddressesInSubnet" => Self::Other(Reason::NoAddress),
            "PrivateIpAddressLimitExceeded" => Self::Other(Reason::Quota),
            "IncorrectState" | "ResourceAlreadyAssociated" | "OperationNotPermitted" => {
                Self::Other(Reason::Conflict)
            }
            _ if code.ends_with(".NotFound") => Self::Other(Reason::NotFound),
            _ if status == 429 || status == 503 => Self::Throttled,
            _ if status >= 500 => Self::Other(Reason::Unavailable),
            _ => Self::Other(Reason::Refused),
        }
    }
}

impl Ec2Failure {
    /// Creates the failure of `step` from the response of EC2. `changes` is `true` if the request changes something.
    pub(crate) fn of_response(step: &'static str, status: u16, body: &str, changes: bool) -> Self {
        let Ec2ErrorResponse { code, message, request_id } = Ec2ErrorResponse::parse(body);
        let class = CodeClass::of(&code, status);
        let reason = match class {
            CodeClass::Other(reason) | CodeClass::Credentials(reason) => reason,
            CodeClass::Throttled => Reason::Unavailable,
        };
        let detail =
            if code.is_empty() { format!("HTTP status {status}") } else { format!("{code}: {message}") };
        let mut error = DriverError::new(reason, step).detail(detail);
        if !request_id.is_empty() {
            error = error.request_id(request_id);
        }
        // EC2 fails after it has begun, too.
        if changes && status >= 500 && class == CodeClass::Other(Reason::Unavailable) {
            error = error.maybe_applied();
        }
        Self { code, error }
    }
}

/// Creates the failure of a request without a usable response, which has no error code.
impl From<DriverError> for Ec2Failure {
    fn from(error: DriverError) -> Self {
        Self { code: String::new(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(code: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>It failed &amp; how.\
             </Message></Error></Errors><RequestID>req-7</RequestID></Response>"
        )
    }

    #[test]
    fn each_code_has_its_reason_and_the_message_names_the_request() {
        let reason =
            |code: &str, status| Ec2Failure::of_response("assign", status, &body(code), true).error.reason();
        assert_eq!(reason("InsufficientCidrBlocks", 400), Reason::NoAddress);
        assert_eq!(reason("PrivateIpAddressLimitExceeded", 400), Reason::Quota);
        assert_eq!(reason("InvalidNetworkInterfaceID.NotFound", 400), Reason::NotFound);
        assert_eq!(reason("UnauthorizedOperation", 403), Reason::Refused);
        assert_eq!(reason("RequestLimitExceeded", 503), Reason::Unavailable);
        let failure = Ec2Failure::of_response("assign", 500, &body("InternalError"), true);
        assert!(failure.error.ambiguous());
        assert_eq!(
            failure.error.to_string(),
            "assign: the external system is unavailable: InternalError: It failed & how. (it may have taken effect) (request req-7)"
        );
        assert!(!Ec2Failure::of_response("read", 500, "<html>", false).error.ambiguous());
    }

    #[test]
    fn throttling_is_known_by_its_code_or_by_its_status() {
        assert_eq!(CodeClass::of("RequestLimitExceeded", 503), CodeClass::Throttled);
        assert_eq!(CodeClass::of("Throttling", 400), CodeClass::Throttled);
        assert_eq!(CodeClass::of("", 429), CodeClass::Throttled);
        assert_eq!(CodeClass::of("ExpiredToken", 400), CodeClass::Credentials(Reason::Unavailable));
    }
}
