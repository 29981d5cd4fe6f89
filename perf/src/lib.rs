//! Rooflines: what a server and a client can do at most, always as ratios of one interleaved run.

pub mod roofline;
