//! What a server answers in place of what was asked for.

/// An answer that refuses or reports a failure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The web framework's own answer, `{"detail":…}`.
    Detail {
        /// HTTP status.
        status: u16,
        /// The text.
        detail: &'static str,
    },
    /// The `OpenAI` error object.
    Error(ErrorObject),
    /// A body of its own.
    Body {
        /// HTTP status.
        status: u16,
        /// The JSON.
        json: String,
    },
}

/// The members of `{"error":{…}}`.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct ErrorObject {
    /// `message`
    pub message: String,
    /// `type`
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `param`
    pub param: Option<String>,
    /// `code`, which is the HTTP status.
    pub code: u16,
}

impl Failure {
    /// A request refused by a check of the server's own.
    pub fn bad_request(message: impl Into<String>, param: Option<&str>) -> Self {
        Self::Error(ErrorObject {
            message: message.into(),
            kind: "BadRequestError",
            param: param.map(Into::into),
            code: 400,
        })
    }

    /// A failure of the server's own.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::Error(ErrorObject {
            message: message.into(),
            kind: "InternalServerError",
            param: None,
            code: 500,
        })
    }

    /// What it says.
    pub fn message(&self) -> &str {
        match self {
            Self::Body { json, .. } => json,
            Self::Detail { detail, .. } => detail,
            Self::Error(error) => &error.message,
        }
    }

    /// HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Self::Body { status, .. } | Self::Detail { status, .. } => *status,
            Self::Error(error) => error.code,
        }
    }

    /// Appends the JSON body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        #[derive(serde::Serialize)]
        #[serde(rename_all = "lowercase")]
        enum Body<'a> {
            Detail(&'a str),
            Error(&'a ErrorObject),
        }
        let body = match self {
            Self::Detail { detail, .. } => Body::Detail(detail),
            Self::Error(error) => Body::Error(error),
            Self::Body { json, .. } => return out.extend_from_slice(json.as_bytes()),
        };
        serde_json::to_writer(out, &body).expect("strings and numbers encode");
    }
}
