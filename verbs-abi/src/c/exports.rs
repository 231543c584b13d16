//! The exported names, each with its version: made by the build script of `symbols/`.

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
