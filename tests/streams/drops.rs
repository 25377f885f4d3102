//! What a dropped stream leaves behind, seen from the server.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use agentloop::testing::{Gate, Reply, Server};
use agentloop::{Client, MessageStream};

use crate::{begin, hello, in_time, ping, reply_of};

fn held(events: usize, shut: &Gate) -> Reply {
    let all = [vec![ping()], reply_of(&["Hello", ", world"])].concat();
    Reply::events(all).hold_after_events(events, shut)
}

async fn closes(server: &Server) {
    in_time(server.wait_for_open_connections(0)).await;
    assert_eq!(
        (server.request_count(), server.connections_opened()),
        (1, 1),
        "and nothing is asked for again"
    );
}

/// Polls the work until it can go on no more, and drops it.
async fn drop_pending<T: std::fmt::Debug>(server: &Server, work: impl Future<Output = T>) {
    {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = work.as_mut() => panic!("{done:?}"),
            () = server.wait_for_requests(1) => {}
        }
        // What the server has sent by now arrives meanwhile.
        for _ in 0..100 {
            let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
            assert!(polled.is_pending(), "{polled:?}");
            tokio::task::yield_now().await;
        }
        assert_eq!(server.connections_open(), 1);
    }
    closes(server).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_before_its_reply_begins_closes_the_connection() {
    let shut = Gate::new();
    for (name, reply) in [
        ("before the head", held(0, &shut).hold(&shut)),
        ("in the head", held(0, &shut).hold_after(30, &shut)),
        ("behind the head", held(0, &shut)),
        ("behind a ping", held(1, &shut)),
    ] {
        println!("{name}");
        for collected in [false, true] {
            let server = Server::start([reply.clone()]).await;
            let (client, request) = (server.client(), hello());
            match collected {
                true => drop_pending(&server, client.create_streamed(&request)).await,
                false => drop_pending(&server, client.stream(&request)).await,
            }
        }
    }
}

#[tokio::test]
async fn a_collected_reply_that_is_dropped_in_its_middle_closes_the_connection() {
    let shut = Gate::new();
    for events in [2, 4, 6, 7] {
        let server = Server::start([held(events, &shut)]).await;
        let (client, request) = (server.client(), hello());
        drop_pending(&server, client.create_streamed(&request)).await;
    }
}

async fn stream_at(client: &Client, events: usize) -> MessageStream {
    let mut stream = client.stream(&hello()).await.unwrap();
    for _ in 0..events {
        in_time(stream.next()).await.unwrap().unwrap();
    }
    stream
}

#[tokio::test]
async fn a_stream_that_is_dropped_closes_the_connection() {
    let shut = Gate::new();
    // The ping, the start, the block, and in the middle of its text.
    for events in [1, 2, 3, 4] {
        for asked in [false, true] {
            let server = Server::start([held(events.max(2), &shut)]).await;
            // The client lives on: it is the stream that is dropped.
            let client = server.client();
            let mut stream = stream_at(&client, events).await;
            if asked && events > 1 {
                let mut next = pin!(stream.next());
                assert!(poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx).is_pending())).await);
            }
            assert_eq!(server.connections_open(), 1);
            drop(stream);
            closes(&server).await;
            drop(client);

            let server = Server::start([held(events.max(2), &shut)]).await;
            let client = server.client();
            drop(stream_at(&client, events).await.text_stream());
            closes(&server).await;

            let server = Server::start([held(events.max(2), &shut)]).await;
            let client = server.client();
            drop_pending(&server, stream_at(&client, events).await.final_message()).await;
        }
    }
}

#[tokio::test]
async fn a_stream_that_failed_closes_its_connection_though_it_is_kept() {
    let server = Server::start([Reply::sse("data: no JSON\n\n").hold_after(180, &Gate::new())]).await;
    let error = in_time(server.client().stream(&hello())).await.unwrap_err();
    closes(&server).await;
    drop(error);
    let shut = Gate::new();
    let broken = [reply_of(&["x"])[..3].to_vec(), vec![begin(), ping()]].concat();
    let server = Server::start([Reply::events(broken).hold_after_events(5, &shut)]).await;
    let client = server.client();
    let mut stream = stream_at(&client, 3).await;
    stream.next().await.unwrap().unwrap_err();
    closes(&server).await;
    stream.final_message().await.unwrap_err();
}
