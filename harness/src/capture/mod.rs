//! `stubline record`: a live server's bytes and when they came, as a fixture folder.
//!
//! `cases` reads what to send, `proxy` listens in on a client's own traffic and cuts it into
//! exchanges with `tape`, `store` writes the folder.

mod cases;
pub mod cli;
mod proxy;
mod store;
mod tape;
