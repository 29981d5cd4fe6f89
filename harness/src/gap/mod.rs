//! Why two sides' token counts differ: each cause played by a stub, counted by each basis, explained.
//!
//! A `scenario` says what a model says, how a server is started and what it is asked. It is played
//! (`play`), read as clients read it (`seen`), counted (`ledger`), and each count is traced back
//! to the tokens that the model said (`trace`). `table` prints the outcomes.

pub mod answer;
pub mod attribution;
mod basis;
pub mod cli;
mod exchange;
mod files;
pub mod from_run;
mod ledger;
pub mod live;
mod outcome;
pub mod paired;
mod play;
pub(crate) mod prompt;
mod scenario;
mod seen;
mod table;
mod trace;

pub(crate) use files::Folders;
pub use files::tokenizer;
pub(crate) use scenario::Replay;
