//! Authorities and client certificates given to the builder.

use agentloop::{Client, ClientBuilder, ErrorKind};
use http::Version;

use crate::answer::Answer;
use crate::server::{Identity, Server};

fn builder(server: &Server) -> ClientBuilder {
    Client::builder().base_url(server.url()).api_key("k").no_proxy().max_retries(0)
}

#[tokio::test]
async fn an_authority_of_ones_own_is_trusted_beside_the_others() {
    let server = Server::start([Answer::text("a"), Answer::text("b")]).await;
    let other = Server::start([]).await;
    let error = builder(&server).build().unwrap().create(&"Hi".into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect, "{error:?}");

    let pem = server.authority().pem();
    let client = builder(&server).root_certificate(pem.clone()).build().unwrap();
    assert_eq!(client.create(&"Hi".into()).await.unwrap().text(), "a");
    // In a bundle, and in one of several.
    let bundle = format!("{}{pem}", other.authority().pem());
    let client =
        builder(&server).root_certificate(other.authority().pem()).root_certificate(bundle).build().unwrap();
    assert_eq!(client.create(&"Hi".into()).await.unwrap().text(), "b");
    assert!(server.seen().iter().all(|seen| seen.version == Version::HTTP_2));
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    let identity = Identity::generate();
    let server = Server::that_asks_for(&identity, [Answer::text("in")]).await;
    let trusting = builder(&server).root_certificate(server.authority().pem());
    // TLS 1.3 tells the client only after the handshake that its certificate was missed.
    let error = trusting.clone().build().unwrap().create(&"Hi".into()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Connect | ErrorKind::Transport), "{error:?}");
    assert!(server.seen().is_empty());

    let shown = trusting.client_certificate(identity.chain(), identity.key());
    assert!(!format!("{shown:?} {shown:#?}").contains("PRIVATE"));
    let client = shown.build().unwrap();
    assert_eq!(client.create(&"Hi".into()).await.unwrap().text(), "in");
}

#[tokio::test]
async fn what_is_no_certificate_is_refused_by_name() {
    let identity = Identity::generate();
    let server = Server::start([]).await;
    let key = || identity.key();
    for (builder, setter) in [
        (builder(&server).root_certificate("SENTINEL"), "root_certificate"),
        (builder(&server).root_certificate(Vec::new()), "root_certificate"),
        (builder(&server).client_certificate("SENTINEL", key()), "client_certificate"),
        (builder(&server).client_certificate(identity.chain(), "SENTINEL"), "client_certificate"),
        (
            builder(&server).http_client(reqwest::Client::new()).root_certificate(identity.chain()),
            "root_certificate",
        ),
        (
            builder(&server).http_client(reqwest::Client::new()).client_certificate(identity.chain(), key()),
            "client_certificate",
        ),
        (builder(&server).http_client(reqwest::Client::new()).proxy("http://u:SENTINEL@h"), "proxy"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
        let shown = format!("{error:?} {}", error.chain());
        assert!(shown.contains(&format!("`{setter}`")) && !shown.contains("SENTINEL"), "{shown}");
        assert!(!shown.contains("PRIVATE"), "{shown}");
    }
}
