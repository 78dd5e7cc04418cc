//! How the library is linked.

#![allow(clippy::disallowed_macros)] // cargo reads this output

fn main() {
    // A program may export a function with the name of one of ours. The loader would then bind even
    // our own references to it, and dlsym would return the program's addresses.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
