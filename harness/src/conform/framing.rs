//! How a body was framed, and how its JSON was written.

/// Cuts a chunked body into its chunks; what breaks the recorded framing is said in words.
pub(super) fn chunks(mut body: &[u8], is_upper: bool) -> Result<Vec<String>, String> {
    let mut chunks = Vec::new();
    while !body.is_empty() {
        let end = body.windows(2).position(|pair| pair == b"\r\n");
        let end = end.ok_or("the body is cut within a chunk size")?;
        let line = String::from_utf8_lossy(&body[..end]).into_owned();
        let size = usize::from_str_radix(&line, 16);
        let size = size.map_err(|_| format!("chunk size {line:?} is not plain hex"))?;
        let expected = if is_upper {
            format!("{size:X}")
        } else {
            format!("{size:x}")
        };
        if line != expected {
            return Err(format!("chunk size is written {line:?}, not {expected}"));
        }
        let content = body.get(end + 2..end + 2 + size);
        let content = content.ok_or("the body is cut within a chunk")?;
        body = body
            .get(end + 2 + size + 2..)
            .ok_or("the body is cut behind a chunk")?;
        if size == 0 {
            let ends = if body.is_empty() {
                Ok(chunks)
            } else {
                Err("bytes follow the last chunk".into())
            };
            return ends;
        }
        chunks.push(String::from_utf8_lossy(content).into_owned());
    }
    Err("the last chunk is missing".into())
}

/// No space stands outside of strings.
pub(super) fn is_compact(json: &str) -> bool {
    let (mut within, mut escaped) = (false, false);
    json.bytes().all(|byte| {
        let plain = within || !byte.is_ascii_whitespace();
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => within = !within,
            _ => {}
        }
        plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_is_held() {
        let cut = |body: &str| chunks(body.as_bytes(), false);
        assert_eq!(cut("2\r\nab\r\n0\r\n\r\n").unwrap(), ["ab"]);
        assert_eq!(
            cut("A\r\n0123456789\r\n0\r\n\r\n").unwrap_err(),
            "chunk size is written \"A\", not a"
        );
        let upper = |body: &str| chunks(body.as_bytes(), true);
        assert_eq!(
            upper("a\r\n0123456789\r\n0\r\n\r\n").unwrap_err(),
            "chunk size is written \"a\", not A"
        );
        assert_eq!(cut("2\r\nab\r\n").unwrap_err(), "the last chunk is missing");
        assert!(is_compact(r#"{"a b":"c \" d"}"#));
    }
}
