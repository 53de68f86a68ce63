//! Gives the shared library its name for the dynamic linker: the number changes when a program that
//! was built against an older header could no longer run.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libextant.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
