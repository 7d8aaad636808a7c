//! Where the package of an application comes from.

/// Where the package of an application comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Package {
    /// From a file system of the device.
    OnDevice,
    /// From a URL, which the device is to fetch itself.
    AtUrl,
    /// From a copy on the flash, as the configuration says.
    Copied,
}
