//! The target of a request, parsed from its method, path and query.

use http::{Method, Uri};

use super::path::{self, Fixed, Path, Target};
use super::query::Query;
use crate::status::Status;

/// A request that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is about objects.
    Objects(Question),
    /// It shows what there is.
    Fixed(Fixed),
}

/// The verb and the objects of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub(crate) verb: &'static str,
    pub(crate) target: Target,
    /// `true` if the query contains `dryRun=All`.
    pub(crate) dry_run: bool,
}

impl Asked {
    /// Reads method, path and query; the refusal where they lead nowhere.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Result<Self, Status> {
        match path::parse(uri.path()) {
            None => Err(Status::no_such_path()),
            Some(Path::Fixed(_)) if method != Method::GET => Err(Status::method_not_allowed()),
            Some(Path::Fixed(fixed)) => Ok(Self::Fixed(fixed)),
            Some(Path::Objects(target)) => {
                let query = Query::of(uri)?;
                let verb = verb(method, &target, &query)?;
                let dry_run = query.values("dryRun") == ["All"];
                Ok(Self::Objects(Question { verb, target, dry_run }))
            }
        }
    }
}

fn verb(method: &Method, target: &Target, query: &Query) -> Result<&'static str, Status> {
    let watches = query.flag("watch")?;
    match (method.as_str(), target.name.is_some()) {
        ("GET", true) => Ok("get"),
        ("GET", false) if watches => Ok("watch"),
        ("GET", false) => Ok("list"),
        ("POST", _) => Ok("create"),
        ("PUT", true) => Ok("update"),
        ("PATCH", true) => Ok("patch"),
        ("DELETE", true) => Ok("delete"),
        ("DELETE", false) => Ok("deletecollection"),
        _ => Err(Status::method_not_allowed()),
    }
}
