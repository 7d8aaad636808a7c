//! Makes the replaced functions of the C library visible to libraries that look them up by name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-rdynamic");
}
