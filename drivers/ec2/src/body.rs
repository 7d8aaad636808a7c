//! Reads the bodies of responses, up to a maximum size.

use reqwest::Response;

/// The maximum size of a response body, in bytes.
const MAX_BODY: usize = 16 << 20;

/// Reads a response body of at most [`MAX_BODY`] bytes as text. The error is a text that tells why it cannot be read.
pub(crate) async fn read_body(mut response: Response) -> Result<String, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(format!("the response has more than {MAX_BODY} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    String::from_utf8(body).map_err(|_| "the response is not UTF-8".to_owned())
}
