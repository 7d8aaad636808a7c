//! The images that a device can install: a package file on the device, or at an HTTP or HTTPS URL.

use staffetta_driver::DriverError;

use super::refusal::invalid;

/// The maximum length of an image name, in characters. A longer one is refused.
const MAX_LENGTH: usize = 1024;

/// The names of the file systems of devices. A number may follow the name: `usbflash1`.
const FILE_SYSTEMS: [&str; 7] = ["flash", "bootflash", "harddisk", "usb", "usbflash", "sdflash", "disk"];

/// Refuses an image that no device can install, and a URL with the pull policy `Never`. `path` is that of the container in the pod.
pub(super) fn check(path: &str, image: &str, pull_policy: Option<&str>) -> Result<(), DriverError> {
    let refused = |why: String| Err(invalid(format!("{path}.image"), why));
    if image.len() > MAX_LENGTH || !image.chars().all(|c| c.is_ascii_graphic()) {
        return refused("a package has at most 1024 printable characters, none of them a blank".into());
    }
    if is_url(image) {
        let rest = image.split_once("://").map_or("", |(_, rest)| rest);
        if rest.split('/').next().is_none_or(str::is_empty) {
            return refused("the URL names no host".into());
        }
        if pull_policy == Some("Never") {
            let why = "the image is at a URL, and nothing is fetched with the policy Never";
            return Err(invalid(format!("{path}.imagePullPolicy"), why));
        }
        return Ok(());
    }
    match image.split_once(':') {
        Some((system, file)) if is_file_system(system) && !file.trim_matches('/').is_empty() => Ok(()),
        _ => refused(format!(
            "`{}` cannot be installed: give a file on {}: (a number may follow, as in usbflash1:), or an http or https \
             URL; registries are not supported",
            image.chars().take(100).collect::<String>(),
            FILE_SYSTEMS.join(":, ")
        )),
    }
}

/// Returns `true` if the image is a URL, from which the device downloads the package.
pub(super) fn is_url(image: &str) -> bool {
    image.starts_with("http://") || image.starts_with("https://")
}

/// Returns the path of the copy of an application's package on the flash, which is made if the device cannot install the
/// package from its URL directly. The file name contains a prefix of this controller and the application's name `id`.
pub(crate) fn copy_of(id: &str) -> String {
    format!("flash:/staffetta_{id}.tar")
}

/// Returns `true` if `name` is a file system of a device, with or without a number.
fn is_file_system(name: &str) -> bool {
    FILE_SYSTEMS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_on_the_device_and_at_urls_are_taken() {
        for image in [
            "flash:a.tar",
            "flash:/dir/a.tar",
            "bootflash:a.tar",
            "harddisk:/a",
            "usb0:a.tar",
            "usb:a.tar",
            "usb1:/a",
            "usbflash1:a.tar",
            "usbflash0:/a.tar",
            "sdflash:a.tar",
            "disk0:a.tar",
            "flash1:a.tar",
            "http://h/a.tar",
            "https://h:8443/a.tar",
        ] {
            assert!(check("c", image, Some("IfNotPresent")).is_ok(), "{image}");
        }
    }

    #[test]
    fn names_of_a_registry_and_what_is_no_name_are_refused() {
        for image in [
            "nginx",
            "nginx:latest",
            "docker.io/library/nginx:1",
            "localhost:5000/a",
            "flash:",
            "flash:/",
            "",
            "tftp://h/a",
            "flash:a b",
            "http://",
            "https:///a",
            "usbx:a",
            "1:a",
            "tmpsys:a",
            "ftp:a",
        ] {
            let error = check("spec.containers[0]", image, None).unwrap_err();
            assert!(error.to_string().contains("spec.containers[0].image: "), "{image}: {error}");
            assert!(!error.transient());
        }
        assert!(check("c", &format!("flash:{}", "x".repeat(1024)), None).is_err());
    }

    #[test]
    fn what_is_at_a_url_cannot_be_there_with_the_policy_never() {
        assert!(check("c", "http://h/a.tar", Some("Never")).is_err());
        assert!(check("c", "flash:a.tar", Some("Never")).is_ok());
    }
}
