//! Gives the library the name that programs load it by.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // As the real one: what it hands out are its own functions, whoever else exports the name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
