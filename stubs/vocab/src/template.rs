//! Chat templates: Jinja as `transformers` renders it.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;

/// A compiled chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
}

/// Why a template does not compile or render.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct TemplateError(Error);

impl From<Error> for TemplateError {
    /// The library's own text has its causes in it.
    fn from(error: Error) -> Self {
        Self(error)
    }
}

const NAME: &str = "chat";

impl Template {
    /// Compiles a template.
    pub fn new(source: String) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        environment.set_syntax(
            SyntaxConfig::builder()
                .trim_blocks(true)
                .lstrip_blocks(true)
                .keep_trailing_newline(true)
                .build()?,
        );
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", |message: String| {
            Err::<Value, Error>(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_template_owned(NAME, source)?;
        Ok(Self { environment })
    }

    /// Renders a context: `messages`, `tools`, `add_generation_prompt` and the template's own arguments.
    pub fn render(&self, context: impl Serialize) -> Result<String, TemplateError> {
        Ok(self
            .environment
            .get_template(NAME)?
            .render(Serde(context))?)
    }
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)`
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands arguments over"
)]
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let mut out = Vec::new();
    let written = match indent {
        None => value.serialize(&mut serde_json::Serializer::with_formatter(
            &mut out,
            PythonFormatter,
        )),
        Some(indent) => {
            let spaces = " ".repeat(indent);
            let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(
                &mut out, formatter,
            ))
        }
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    Ok(Value::from_safe_string(text))
}

/// Python's default separators, `", "` and `": "`.
struct PythonFormatter;

impl serde_json::ser::Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn python_methods_and_spacing_work() {
        let source = "{{ m.strip().split('-')[1] }} {{ {'a': [1, 'é']} | tojson }}";
        let template = Template::new(source.into()).unwrap();
        let text = template.render(json!({"m": " x-y "})).unwrap();
        assert_eq!(text, "y {\"a\": [1, \"é\"]}");
    }

    #[test]
    fn exceptions_of_a_template_are_errors() {
        let template = Template::new("{{ raise_exception('no system role') }}".into()).unwrap();
        let error = template.render(json!({})).unwrap_err().to_string();
        assert!(error.contains("no system role"), "{error}");
    }
}
