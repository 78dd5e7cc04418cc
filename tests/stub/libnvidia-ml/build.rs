//! Gives the library the name that programs load it by.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // As the real library: it returns its own functions, even if another library exports the name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
