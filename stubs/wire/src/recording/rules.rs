//! What may differ between two runs of one server, as data: one constant a server.

/// The rules of a server's recordings: what is taken out before two responses are compared.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "rules that hold or do not, each by itself"
)]
pub struct Rules {
    /// Random ids: what stands in front of `-` or `_`, longer ones first, and the numbers of digits that may
    /// follow, longer ones first; [`UUID`] is five groups of digits.
    pub(super) ids: &'static [(&'static str, &'static [usize])],
    /// Keys of texts that begin with 32 random digits and no prefix.
    pub(super) bare_ids: &'static [&'static str],
    /// Ids are told apart, by the order in which they are first seen.
    pub(super) are_ids_numbered: bool,
    /// Keys of moments, as numbers.
    pub(super) moments: &'static [&'static str],
    /// Such moments may be texts.
    pub(super) are_moments_texts: bool,
    /// How keys of measured numbers end.
    pub(super) measured: &'static [&'static str],
    /// Keys of objects of measured numbers.
    pub(super) measured_objects: &'static [&'static str],
    /// What stands in front of a version and 8 digits that depend on how the server was started.
    pub(super) fingerprint: Option<&'static str>,
    /// The samples of a request take turns as they like, and `allow` is a set.
    pub(super) has_free_order: bool,
    /// How many tokens a frame holds depends on how busy the machine was.
    pub(super) has_free_frames: bool,
    /// The message of a validation error names files and lines of the server.
    pub(super) are_validations_dropped: bool,
    /// Chunk sizes may be written in upper case; they still are compared.
    pub(super) has_upper_sizes: bool,
    /// Pages of which only the keys are compared.
    pub(super) key_pages: &'static [&'static str],
    /// Of a body only the keys are compared.
    pub(super) only_keys: bool,
}

/// Digits and dashes of an id like `01234567-89ab-cdef-0123-456789abcdef`.
pub(super) const UUID: usize = 36;

const VLLM_DIGITS: &[usize] = &[32, 16];

impl Rules {
    /// ExecuTorch's LLM server.
    pub const EXECUTORCH: Self = Self {
        ids: &[("chatcmpl", &[32]), ("call", &[32])],
        bare_ids: &[],
        moments: &["created"],
        measured_objects: &[],
        fingerprint: None,
        ..Self::VLLM
    };

    /// SGLang's front end in Rust, which was recorded on a busy machine.
    pub const SGLANG_RUST: Self = Self {
        has_free_frames: true,
        ..Self::SGLANG
    };

    /// SGLang.
    pub const SGLANG: Self = Self {
        ids: &[
            ("chatcmpl", &[32]),
            ("cmpl", &[32]),
            ("resp", &[32]),
            ("call", &[UUID, 24]),
            ("msg", &[32]),
            ("rs", &[32]),
            ("fc", &[8]),
        ],
        bare_ids: &["id", "rid"],
        are_ids_numbered: true,
        moments: &["created", "created_at", "modified_at", "timestamp"],
        are_moments_texts: true,
        measured: &[
            "_ts",
            "_time",
            "_latency",
            "decode_throughput",
            "total_duration",
        ],
        measured_objects: &[],
        fingerprint: None,
        has_free_frames: false,
        has_free_order: true,
        are_validations_dropped: true,
        has_upper_sizes: true,
        key_pages: &["/get_server_info", "/metrics", "/server_info", "/v1/loads"],
        only_keys: false,
    };

    /// vLLM.
    pub const VLLM: Self = Self {
        ids: &[
            ("chatcmpl-tool", VLLM_DIGITS),
            ("generate-tokens", VLLM_DIGITS),
            ("modelperm", VLLM_DIGITS),
            ("chatcmpl", VLLM_DIGITS),
            ("cmpl", VLLM_DIGITS),
            ("resp", VLLM_DIGITS),
            ("call", VLLM_DIGITS),
            ("msg", VLLM_DIGITS),
            ("rs", VLLM_DIGITS),
            ("fc", VLLM_DIGITS),
        ],
        bare_ids: &["signature"],
        are_ids_numbered: false,
        moments: &["created", "created_at", "completed_at", "expires_at"],
        are_moments_texts: false,
        measured: &[],
        measured_objects: &["metrics"],
        fingerprint: Some("vllm-"),
        has_free_frames: false,
        has_free_order: false,
        are_validations_dropped: false,
        has_upper_sizes: false,
        key_pages: &[],
        only_keys: false,
    };

    /// The rules for the answer to a request to this path.
    #[must_use]
    pub fn of_page(self, path: &str) -> Self {
        let only_keys = self.key_pages.contains(&path);
        Self { only_keys, ..self }
    }

    /// What a random id looks like: its prefix and the number of its digits. `None` if it is none.
    pub fn id_form<'a>(&self, text: &'a str) -> Option<(&'a str, usize)> {
        if self.bare_ids.contains(&"id") && text.len() == 32 && hex_digits(text) == 32 {
            return Some(("", 32));
        }
        let (prefix, digits) = self.random_id(text)?;
        (text.len() == prefix + digits).then(|| (&text[..prefix], digits))
    }

    /// The lengths of prefix and digits of a random id at the front of a text.
    pub(super) fn random_id(&self, text: &str) -> Option<(usize, usize)> {
        self.ids.iter().find_map(|(prefix, lengths)| {
            let behind = text.strip_prefix(prefix)?.strip_prefix(['-', '_'])?;
            let digits = uuid(behind).unwrap_or_else(|| hex_digits(behind));
            lengths
                .contains(&digits)
                .then_some((prefix.len() + 1, digits))
        })
    }
}

/// The length of five groups of digits at the front of a text.
fn uuid(text: &str) -> Option<usize> {
    let mut rest = text;
    for (number, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        rest = match number {
            0 => rest,
            _ => rest.strip_prefix('-')?,
        };
        rest = (hex_digits(rest) == length).then(|| &rest[length..])?;
    }
    Some(UUID)
}

pub(super) fn hex_digits(text: &str) -> usize {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    text.bytes().take_while(|byte| is_hex(byte)).count()
}
