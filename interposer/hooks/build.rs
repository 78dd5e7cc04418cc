//! How the library is linked.

#![allow(clippy::disallowed_macros)] // so a build script speaks to cargo

fn main() {
    // A program may export a function by the name of one of ours. The loader would then bind even
    // our own references to it, and the addresses that we hand out would be the program's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
