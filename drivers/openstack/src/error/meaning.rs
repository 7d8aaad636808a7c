//! What a refusal means to a handler. It is decided by the service's own word for it where it has one, not by the status:
//! 409 is both "the quota is used up" and "somebody was faster".

use staffetta_driver::Reason;

use super::{Problem, Refusal};

/// What went wrong, in the words of a driver.
pub(super) fn reason(problem: &Problem) -> Reason {
    match problem {
        Problem::Refused(refusal) => of_refusal(refusal),
        Problem::Unreachable(_) | Problem::Unanswered(_) | Problem::Unreadable(_) | Problem::NoService(_) => {
            Reason::Unavailable
        }
    }
}

/// Neutron's words (`neutron_lib.exceptions`) first, then Octavia's sentences, which has no words, then the status.
fn of_refusal(refusal: &Refusal) -> Reason {
    match refusal.kind.as_deref() {
        Some("OverQuota" | "SubnetPoolQuotaExceeded" | "QuotaResourceUnknown") => return Reason::Quota,
        Some(kind) if kind.starts_with("IpAddressGenerationFailure") => return Reason::NoAddress,
        Some("SubnetAllocationError" | "ExternalIpAddressExhausted") => return Reason::NoAddress,
        _ => {}
    }
    if refusal.message.starts_with("Quota has been met") {
        return Reason::Quota;
    }
    match refusal.status {
        404 | 410 => Reason::NotFound,
        409 | 412 | 423 => Reason::Conflict,
        405 | 501 => Reason::Unsupported,
        408 | 413 | 429 | 500.. => Reason::Unavailable,
        _ => Reason::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(status: u16, kind: Option<&str>, message: &str) -> Reason {
        of_refusal(&Refusal { status, kind: kind.map(str::to_owned), message: message.to_owned() })
    }

    #[test]
    fn a_conflict_is_what_the_service_calls_it() {
        assert_eq!(meant(409, Some("OverQuota"), ""), Reason::Quota);
        assert_eq!(meant(409, Some("IpAddressGenerationFailure"), ""), Reason::NoAddress);
        assert_eq!(meant(409, Some("IpAddressGenerationFailureAllSubnets"), ""), Reason::NoAddress);
        assert_eq!(meant(409, Some("NetworkInUse"), ""), Reason::Conflict);
        assert_eq!(meant(409, None, "Load Balancer 1 is immutable and cannot be updated."), Reason::Conflict);
        assert_eq!(meant(403, None, "Quota has been met for resources: listener"), Reason::Quota);
    }

    #[test]
    fn a_status_without_a_word_speaks_for_itself() {
        for (status, reason) in [
            (400, Reason::Refused),
            (401, Reason::Refused),
            (403, Reason::Refused),
            (404, Reason::NotFound),
            (412, Reason::Conflict),
            (413, Reason::Unavailable),
            (429, Reason::Unavailable),
            (500, Reason::Unavailable),
            (501, Reason::Unsupported),
            (503, Reason::Unavailable),
        ] {
            assert_eq!(meant(status, None, "<html>"), reason, "{status}");
        }
        assert_eq!(meant(403, Some("PolicyNotAuthorized"), ""), Reason::Refused);
    }
}
