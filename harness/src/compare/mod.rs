//! `stubline compare` runs benchmark clients against servers that know the truth, and holds what they
//! report against it.

pub mod cli;
mod client;
mod exchange;
pub mod install;
mod known;
mod ledger;
mod play;
mod print;
mod quantity;
mod replies;
mod reported;
mod scenario;
mod stage;
mod stated;
mod truth;
mod value;
mod witness;
