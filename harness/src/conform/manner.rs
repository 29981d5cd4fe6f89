//! Where servers differ as recorded, as data: one constant a front end.

use wire::recording::Rules;

/// How a server's recordings were made, and what of them depends on where it runs.
#[derive(Debug)]
pub(super) struct Manner {
    /// What may differ byte for byte.
    pub(super) rules: Rules,
    /// Its configurations among those of its corpus.
    pub(super) has: fn(&str) -> bool,
    /// The configuration that has no flags of its own.
    pub(super) configuration: &'static str,
    /// The served name in the recordings.
    pub(super) model: &'static str,
    /// Answers carry the model that was asked for, whatever it is.
    pub(super) is_model_echoed: bool,
    /// Variables and flags that every recorded server had.
    pub(super) common_flags: &'static [&'static str],
    /// The recorded limit, and the flag that sets it.
    pub(super) max_model_len: i128,
    pub(super) length_flag: &'static str,
    /// The case that lists the models.
    pub(super) models: &'static str,
    /// The case that tells how the server cuts a text.
    pub(super) tokenize: &'static str,
    /// Words of errors that tell numbers of tokens.
    pub(super) counted: &'static [&'static str],
    /// Headers whose values are free.
    pub(super) free_headers: &'static [&'static str],
    /// Paths of pages that tell how the server was started: only their keys are its own.
    pub(super) facts: &'static [&'static str],
    /// How the types of its metrics begin.
    pub(super) metric_types: &'static str,
    /// Chunk sizes are in upper case.
    pub(super) has_upper_sizes: bool,
}

static VLLM: Manner = Manner {
    rules: Rules::VLLM,
    has: |_| true,
    configuration: "default",
    model: "tiny-chat",
    is_model_echoed: false,
    common_flags: &["--max-model-len 512 --served-model-name tiny-chat"],
    max_model_len: 512,
    length_flag: "--max-model-len",
    models: "default/get-models",
    tokenize: "default/post-tokenize",
    counted: &["out of vocabulary"],
    free_headers: &["content-length", "date", "location"],
    facts: &[],
    metric_types: "# TYPE vllm:",
    has_upper_sizes: false,
};

static SGLANG: Manner = Manner {
    rules: Rules::SGLANG,
    has: |configuration| !configuration.starts_with(RUST),
    configuration: "default",
    model: "stub-model",
    is_model_echoed: true,
    common_flags: &[
        "SGLANG_RUST_SERVER=1",
        "SGLANG_USE_CPU_ENGINE=1",
        "--model-path stub-model --served-model-name stub-model --device cpu --load-format dummy --dtype float32 --attention-backend torch_native --disable-overlap-schedule --max-total-tokens 8192 --mem-fraction-static 0.3 --random-seed 1",
    ],
    max_model_len: 2048,
    length_flag: "--context-length",
    models: "default/route-v1-models",
    tokenize: "default/route-tokenize",
    counted: &[" tokens)", "requested a total of"],
    free_headers: &["allow", "content-length", "date"],
    facts: &[
        "/get_model_info",
        "/get_server_info",
        "/model_info",
        "/server_info",
        "/v1/loads",
    ],
    metric_types: "# TYPE sglang:",
    has_upper_sizes: false,
};

static SGLANG_RUST: Manner = Manner {
    rules: Rules::SGLANG_RUST,
    has: |configuration| configuration.starts_with(RUST),
    configuration: RUST,
    models: "rust-server/route-v1-models",
    tokenize: "rust-server/route-tokenize",
    has_upper_sizes: true,
    ..SGLANG
};

/// How the folders of SGLang's other front end begin.
const RUST: &str = "rust-server";

/// The front ends of a corpus: what a profile's name has behind the corpus's, and its manner.
static FRONT_ENDS: [(&str, &str, &Manner); 3] = [
    ("sglang-", "-rust", &SGLANG_RUST),
    ("sglang-", "", &SGLANG),
    ("vllm-", "", &VLLM),
];

impl Manner {
    /// The profiles of a corpus.
    pub(super) fn profiles(corpus: &str) -> impl Iterator<Item = (String, &'static Self)> {
        let own = FRONT_ENDS
            .iter()
            .filter(move |(prefix, ..)| corpus.starts_with(prefix));
        own.map(move |(_, suffix, manner)| (format!("{corpus}{suffix}"), *manner))
    }

    /// The manner of a folder's server, by the variables of its environment.
    pub(super) fn of_environment<'a>(mut names: impl Iterator<Item = &'a str>) -> &'static Self {
        if names.any(|name| name.starts_with("SGLANG_")) {
            return &SGLANG;
        }
        &VLLM
    }
}

impl Default for &'static Manner {
    fn default() -> Self {
        &VLLM
    }
}
