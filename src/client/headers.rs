//! The headers of a request: the client's, and those of one call over them.

use std::fmt;

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::auth::is_credential;
use crate::error::{Error, ErrorKind, Result};
use crate::messages::options::CallOptions;

/// The headers of every request of a client.
#[derive(Clone)]
pub(crate) struct ClientHeaders {
    map: HeaderMap,
    betas: Vec<String>,
    /// Values of `anthropic-beta` that were given as headers.
    raw_betas: Vec<HeaderValue>,
}

impl ClientHeaders {
    /// `own` are the headers that the client sets itself, `given` those of its builder.
    pub(crate) fn new(
        own: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        given: &[(HeaderName, HeaderValue)],
        betas: Vec<String>,
    ) -> Result<Self> {
        let mut map = HeaderMap::new();
        map.insert(ACCEPT, HeaderValue::from_static("application/json"));
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.extend(own);
        let mut raw_betas = Vec::new();
        lay_over(&mut map, &mut raw_betas, given, ErrorKind::Config)?;
        let headers = Self { map, betas, raw_betas };
        // Bad names among the betas are the builder's error and not that of every call.
        headers.beta(&[], &[], ErrorKind::Config)?;
        Ok(headers)
    }

    /// The headers of one call: its own replace the client's, betas are joined.
    pub(crate) fn for_call(&self, options: &CallOptions) -> Result<HeaderMap> {
        let mut map = self.map.clone();
        let mut raw_betas = Vec::new();
        lay_over(&mut map, &mut raw_betas, &options.headers, ErrorKind::Request)?;
        if let Some(value) = self.beta(&options.betas, &raw_betas, ErrorKind::Request)? {
            map.insert(BETA, value);
        }
        Ok(map)
    }

    pub(crate) fn has_credential(&self) -> bool {
        self.map.keys().any(is_credential)
    }

    /// One value with each beta once: the client's, the call's, then those of raw headers.
    fn beta(&self, call: &[String], raw: &[HeaderValue], kind: ErrorKind) -> Result<Option<HeaderValue>> {
        let bad = || Error::new(kind, "a beta name holds a character that no header may hold");
        let mut all = Vec::new();
        let named = self.betas.iter().chain(call).map(|text| Ok(text.as_str()));
        let given = self.raw_betas.iter().chain(raw).map(|value| value.to_str().map_err(|_| bad()));
        for text in named.chain(given) {
            for beta in text?.split(',').map(str::trim).filter(|beta| !beta.is_empty()) {
                if !all.contains(&beta) {
                    all.push(beta);
                }
            }
        }
        if all.is_empty() {
            return Ok(None);
        }
        HeaderValue::try_from(all.join(",")).map(Some).map_err(|_| bad())
    }
}

impl fmt::Debug for ClientHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.map.keys().map(HeaderName::as_str)).finish()
    }
}

/// Shows the names of headers and not their values.
pub(crate) struct Names<'a>(pub(crate) &'a [(HeaderName, HeaderValue)]);

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name.as_str())).finish()
    }
}

/// Makes a header whose value never shows; an error names the header and not the value.
pub(crate) fn pair<N, V>(name: N, value: V, kind: ErrorKind) -> Result<(HeaderName, HeaderValue)>
where
    N: TryInto<HeaderName>,
    V: TryInto<HeaderValue>,
{
    let Ok(name) = name.try_into() else {
        return Err(Error::new(kind, "a name given to `header` is no header name"));
    };
    let Ok(mut value) = value.try_into() else {
        return Err(Error::new(
            kind,
            format!("the value of header `{name}` holds a character that no header may hold"),
        ));
    };
    value.set_sensitive(true);
    Ok((name, value))
}

fn lay_over(
    map: &mut HeaderMap,
    raw_betas: &mut Vec<HeaderValue>,
    given: &[(HeaderName, HeaderValue)],
    kind: ErrorKind,
) -> Result<()> {
    let mut credentials = given.iter().map(|(name, _)| name).filter(|name| is_credential(name));
    if let Some(first) = credentials.next() {
        if credentials.any(|name| name != first) {
            return Err(Error::new(
                kind,
                "both `x-api-key` and `authorization` are set as headers: one credential is sent",
            ));
        }
        // A credential given as a header stands for the client's own, whichever header that uses.
        let ours: Vec<_> = map.keys().filter(|name| is_credential(name)).cloned().collect();
        for name in ours {
            map.remove(name);
        }
    }
    for (name, value) in given {
        if *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING {
            return Err(Error::new(kind, format!("header `{name}` follows from the body and can't be set")));
        }
        if *name == BETA {
            raw_betas.push(value.clone());
        } else {
            map.insert(name.clone(), value.clone());
        }
    }
    Ok(())
}

const BETA: HeaderName = HeaderName::from_static("anthropic-beta");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::auth::Auth;

    fn given(pairs: &[(&str, &str)]) -> Vec<(HeaderName, HeaderValue)> {
        pairs.iter().map(|(name, value)| pair(*name, *value, ErrorKind::Config).unwrap()).collect()
    }

    fn options(headers: &[(&str, &str)], betas: &[&str]) -> CallOptions {
        CallOptions {
            headers: given(headers),
            betas: betas.iter().map(ToString::to_string).collect(),
            ..CallOptions::default()
        }
    }

    fn client(headers: &[(&str, &str)], betas: &[&str]) -> Result<ClientHeaders> {
        let key = Auth::ApiKey("own".into()).header("x").unwrap();
        ClientHeaders::new(key, &given(headers), betas.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn betas_are_one_header_each_name_once() {
        let both = client(&[("Anthropic-Beta", "d, a")], &["a"]).unwrap();
        let map = both.for_call(&options(&[("ANTHROPIC-BETA", "e,b , d,,")], &["b", "c,a"])).unwrap();
        assert_eq!(map.get_all("anthropic-beta").iter().collect::<Vec<_>>(), ["a,b,c,d,e"]);

        let none = client(&[], &[" "]).unwrap().for_call(&options(&[], &[])).unwrap();
        assert!(!none.contains_key("anthropic-beta"));
    }

    #[test]
    fn a_bad_beta_is_the_error_of_who_set_it() {
        assert_eq!(client(&[], &["a\nb"]).unwrap_err().kind(), ErrorKind::Config);
        let error = client(&[], &[]).unwrap().for_call(&options(&[], &["a\nb"])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request);
    }

    #[test]
    fn a_later_layer_replaces_whatever_the_case() {
        let client = client(&[("X-One", "client"), ("x-two", "client"), ("x-TWO", "again")], &[]).unwrap();
        let map = client
            .for_call(&options(&[("x-ONE", "call"), ("Content-Type", "application/json; a=b")], &[]))
            .unwrap();
        for (name, value) in
            [("x-one", "call"), ("x-two", "again"), ("content-type", "application/json; a=b")]
        {
            assert_eq!(map.get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
        }
        assert!(map["x-one"].is_sensitive());
    }

    #[test]
    fn exactly_one_credential_in_every_combination() {
        const LAYERS: [&[(&str, &str)]; 3] = [&[], &[("X-Api-Key", "k")], &[("Authorization", "Bearer t")]];
        for of_client in LAYERS {
            for of_call in LAYERS {
                let map = client(of_client, &[]).unwrap().for_call(&options(of_call, &[])).unwrap();
                let sent: Vec<_> = map
                    .iter()
                    .filter(|(name, _)| is_credential(name))
                    .map(|(_, value)| value.to_str().unwrap())
                    .collect();
                let expected =
                    of_call.first().or_else(|| of_client.first()).map_or("own", |(_, value)| value);
                assert_eq!(sent, [expected], "{of_client:?} {of_call:?}");
            }
        }
        let both = [("x-api-key", "k"), ("authorization", "t")];
        assert_eq!(client(&both, &[]).unwrap_err().kind(), ErrorKind::Config);
        let error = client(&[], &[]).unwrap().for_call(&options(&both, &[])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request);
    }

    #[test]
    fn a_wrong_header_names_itself_and_not_its_value() {
        let error = pair("x-one", "SENTI\nNEL", ErrorKind::Config).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("x-one") && !shown.contains("SENTI"), "{shown}");
        assert_eq!(pair("x one", "v", ErrorKind::Request).unwrap_err().kind(), ErrorKind::Request);
        for framing in ["Content-Length", "transfer-encoding"] {
            assert!(
                client(&[(framing, "1")], &[]).unwrap_err().to_string().contains("follows from the body")
            );
        }
    }

    #[test]
    fn debug_shows_names_alone() {
        let headers = given(&[("x-one", "SENTINEL")]);
        assert_eq!(format!("{:?}", Names(&headers)), r#"["x-one"]"#);
        let client = client(&[("x-one", "SENTINEL")], &[]).unwrap();
        let call = CallOptions { headers, ..CallOptions::default() };
        let shown = format!("{client:?} {client:#?} {call:?} {call:#?}");
        assert!(shown.contains("x-one") && !shown.contains("SENTINEL") && !shown.contains("own"), "{shown}");
    }
}
