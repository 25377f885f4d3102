//! Where the API is.

use std::fmt;

use reqwest::Url;

use crate::error::{Error, Result};

/// A checked base URL. `Debug` leaves out the query, which may hold a gateway's key.
#[derive(Clone)]
pub(crate) struct BaseUrl {
    /// Its path ends before `/v1` and without a slash.
    url: Url,
}

impl BaseUrl {
    /// Checks a URL; `origin` is the setter or the variable that an error names. No error shows
    /// the URL itself, since a wrong one may hold a password in any place.
    pub(crate) fn parse(text: &str, origin: &str) -> Result<Self> {
        let refuse = |why: &str| Err(Error::config(format!("the base URL of {origin} {why}")));
        let mut url = match Url::parse(text.trim()) {
            Ok(url) => url,
            Err(error) => return refuse(&format!("is not a URL: {error}")),
        };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse("does not start with `http://` or `https://`");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("holds a user name or password: give credentials to `auth` or `header`");
        }
        if url.fragment().is_some() {
            return refuse("holds a fragment (`#…`)");
        }
        if url.host_str().is_none_or(str::is_empty) {
            return refuse("has no host");
        }
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/').to_owned();
        url.set_path(&path);
        if http::Uri::try_from(url.as_str()).is_err() {
            return refuse("holds characters that no request line may hold");
        }
        Ok(Self { url })
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The URL of an endpoint; `path` starts with `/v1/`.
    pub(crate) fn endpoint(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let path = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&without_query(&self.url), f)
    }
}

/// Scheme, host, port and path: what may be shown of a URL.
pub(crate) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for URLs that have no host, and those hold no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn every_form_reaches_the_same_endpoint() {
        const FORMS: [(&str, &str); 14] = [
            ("http://h", "http://h/v1/messages"),
            ("http://h/", "http://h/v1/messages"),
            ("http://h//", "http://h/v1/messages"),
            ("http://h/v1", "http://h/v1/messages"),
            ("http://h/v1/", "http://h/v1/messages"),
            (" http://h/v1/\n", "http://h/v1/messages"),
            ("HTTPS://H:443/", "https://h/v1/messages"),
            ("http://h:81/a/b", "http://h:81/a/b/v1/messages"),
            ("http://h/a/v1/", "http://h/a/v1/messages"),
            ("http://h/a/v10", "http://h/a/v10/v1/messages"),
            ("http://h/xv1", "http://h/xv1/v1/messages"),
            ("http://h?k=1&l=%20", "http://h/v1/messages?k=1&l=%20"),
            ("http://h/a%2Fb/v1?k=1", "http://h/a%2Fb/v1/messages?k=1"),
            ("http://[::1]:8080", "http://[::1]:8080/v1/messages"),
        ];
        for (form, endpoint) in FORMS {
            let url = BaseUrl::parse(form, "x").unwrap();
            assert_eq!(url.endpoint("/v1/messages").as_str(), endpoint, "{form}");
        }
    }

    #[test]
    fn a_wrong_url_is_refused_without_showing_it() {
        for text in [
            "SENTINEL",
            "SENTINEL.example:80",
            "//SENTINEL",
            "ftp://SENTINEL/",
            "file:///SENTINEL",
            "http://",
            "http:///",
            "http://SENTINEL@h/",
            "http://u:SENTINEL@h/",
            "http://:SENTINEL@h/",
            "http://h/#SENTINEL",
            "http://h:99999/SENTINEL",
            "http://SENTI NEL/",
            "http://{{SENTINEL}}/",
        ] {
            let error = BaseUrl::parse(text, "`base_url`").map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{text}");
            let shown = format!("{error} {error:?}");
            assert!(shown.contains("`base_url`"), "{shown}");
            assert!(!shown.to_uppercase().contains("SENTI"), "{shown}");
        }
    }

    #[test]
    fn debug_leaves_out_the_query() {
        let url = BaseUrl::parse("https://h/a?key=SENTINEL", "x").unwrap();
        assert_eq!(format!("{url:?}"), r#""https://h/a""#);
    }
}
