//! Gives the shared library its name for the dynamic linker. The number in it changes when programs
//! that were built with an older header can no longer run.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libextant.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
