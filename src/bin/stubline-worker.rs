//! A model worker that ExecuTorch's LLM server can start: `--worker-bin stubline-worker`.

use std::io::Write as _;
use std::process::ExitCode;

const HELP: &str = "A model worker for ExecuTorch's LLM server that says what a script says

Usage: stubline-worker --model_path FILE --tokenizer_path NAME|PATH

Example:
  stubline-worker --model_path fixtures/executorch/scripts.json --tokenizer_path byte
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if words == ["--help"] {
        let printed = std::io::stdout().write_all(HELP.as_bytes());
        return ExitCode::from(u8::from(printed.is_err()));
    }
    match serve::model_worker::four_words(&words) {
        Ok(prepared) => ExitCode::from(serve::model_worker::run(prepared)),
        Err(error) => {
            let line = format!("{error:#}").replace('\n', " ");
            // Nobody is left to tell if stderr is gone.
            let _ = writeln!(std::io::stderr(), "stubline-worker: {line}");
            ExitCode::from(2)
        }
    }
}
